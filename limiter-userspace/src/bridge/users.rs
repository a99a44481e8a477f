//! The users whose processes the bridge answers.

use std::{collections::BTreeSet, fs, io};

use thiserror::Error;

use crate::{error::Failure, policy::units::quoted};

/// Users, by their names in `/etc/passwd`.
const USERS: &str = "/etc/passwd";
/// Groups, by their names.
const GROUPS: &str = "/etc/group";

/// Users that are trusted unless others are named, as far as this machine has them: those of the usual proxies, and root.
const USUAL: [&str; 6] = ["root", "www-data", "nginx", "caddy", "envoy", "haproxy"];

/// A user or a group that is not there.
#[derive(Debug, Error)]
pub enum UserError {
    /// There is none of this name.
    #[error("there is no {kind} {name}")]
    Unknown {
        /// `user` or `group`.
        kind: &'static str,
        /// The name, quoted.
        name: String,
    },
    /// The file with all of them cannot be read.
    #[error("cannot read {file}: {source}")]
    Unreadable {
        /// The file.
        file: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

impl Failure for UserError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Unknown { .. } => 4,
            Self::Unreadable { .. } => 1,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unknown { kind, .. } => {
                Some(format!("give the name or the number of a {kind} of this machine"))
            }
            Self::Unreadable { .. } => None,
        }
    }
}

/// Users by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Users(BTreeSet<u32>);

impl Users {
    /// The users of these names or numbers, and the one with the number `own`. Without names, the usual ones.
    ///
    /// # Errors
    /// [`UserError`].
    pub fn named(names: &[String], own: u32) -> Result<Self, UserError> {
        Self::named_or(names, &USUAL, own)
    }

    /// The same, with other usual users.
    ///
    /// # Errors
    /// [`UserError`].
    pub fn named_or(names: &[String], usual: &[&str], own: u32) -> Result<Self, UserError> {
        let file = read(USERS)?;
        let mut users = BTreeSet::from([own]);
        if names.is_empty() {
            users.extend(usual.iter().filter_map(|name| number(&file, name)));
        }
        for name in names {
            users.insert(find(&file, "user", name)?);
        }
        Ok(Self(users))
    }

    /// Whether a user is one of them.
    pub fn contains(&self, user: u32) -> bool {
        self.0.contains(&user)
    }
}

/// The number of a group.
///
/// # Errors
/// [`UserError`].
pub fn group(name: &str) -> Result<u32, UserError> {
    find(&read(GROUPS)?, "group", name)
}

fn read(file: &'static str) -> Result<String, UserError> {
    let bytes = fs::read(file).map_err(|source| UserError::Unreadable { file, source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of a user or group, which may be given as one.
fn find(file: &str, kind: &'static str, name: &str) -> Result<u32, UserError> {
    let found = number(file, name).or_else(|| name.parse().ok());
    found.ok_or_else(|| UserError::Unknown { kind, name: quoted(name) })
}

/// The third field of the line that begins with a name. Both files have the number there.
fn number(file: &str, name: &str) -> Option<u32> {
    let mut lines = file.lines().map(|line| line.split(':'));
    let mut line = lines.find_map(|mut line| (line.next() == Some(name)).then_some(line))?;
    line.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        let file = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/:/bin/false\nbroken\n:x:7:\n";
        assert_eq!(number(file, "www-data"), Some(33));
        assert_eq!(number(file, "www"), None);
        assert_eq!(number(file, "broken"), None);
        assert_eq!(find(file, "user", "1000").unwrap(), 1000);
        let error = find(file, "user", "nobody\n").unwrap_err();
        assert_eq!(error.to_string(), r#"there is no user "nobody\n""#);
        assert_eq!(error.exit_code(), 4);
        assert_eq!(group("root").unwrap(), 0);
    }

    #[test]
    fn root_is_trusted_unless_others_are_named() {
        let usual = Users::named(&[], 4_000_000_000).unwrap();
        assert!(usual.contains(0) && usual.contains(4_000_000_000) && !usual.contains(65_534));
        let named = Users::named(&["65534".to_owned()], 7).unwrap();
        assert!(!named.contains(0) && named.contains(65_534) && named.contains(7));
    }
}
