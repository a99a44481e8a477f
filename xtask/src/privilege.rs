//! Runs commands with root's rights.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{child, workspace};

/// How commands get root's rights.
#[derive(Clone, Copy)]
pub(crate) enum Privilege {
    /// This process is root.
    Root,
    /// Each command is run through sudo.
    Sudo,
}

impl Privilege {
    /// Finds a way to root's rights, and asks for the password of sudo now if it needs one. `reason` is for
    /// the error message.
    pub(crate) fn get(reason: &str) -> Result<Self> {
        let status = fs::read_to_string("/proc/self/status")
            .context("cannot read /proc/self/status to see who runs this")?;
        if effective_user(&status) == Some(0) {
            return Ok(Self::Root);
        }
        if workspace::find_program("sudo").is_none() {
            bail!("{reason}, which takes root: run this as root, or install sudo");
        }
        child::run(Command::new("sudo").arg("--validate"))
            .with_context(|| format!("{reason}, which takes root, and sudo refused"))?;
        Ok(Self::Sudo)
    }

    /// Builds a command with root's rights and these environment variables.
    pub(crate) fn command(self, program: impl AsRef<OsStr>, variables: &[(&str, &str)]) -> Command {
        match self {
            Self::Root => {
                let mut command = Command::new(program);
                command.env("PATH", workspace::search_path()).envs(variables.iter().copied());
                command
            }
            Self::Sudo => {
                let mut words = sudo(variables).into_iter();
                let mut command = Command::new(words.next().unwrap_or_default());
                command.args(words).arg(program);
                command
            }
        }
    }

    /// Makes cargo run tests and binaries with root's rights and these environment variables. The build
    /// itself still runs as the user.
    pub(crate) fn run_by_cargo(self, cargo: &mut Command, variables: &[(&str, &str)]) {
        match self {
            Self::Root => {
                cargo.env("PATH", workspace::search_path()).envs(variables.iter().copied());
            }
            Self::Sudo => {
                // A list of quoted strings looks the same in Rust's debug format and in TOML.
                let runner: Vec<String> = sudo(variables)
                    .into_iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect();
                cargo.arg("--config").arg(format!("target.'cfg(all())'.runner={runner:?}"));
            }
        }
    }
}

/// `sudo env NAME=VALUE...`: sudo clears the environment, so the variables for the tests are passed by name.
fn sudo(variables: &[(&str, &str)]) -> Vec<OsString> {
    let mut words = vec![OsString::from("sudo"), OsString::from("env")];
    let mut hand_on = |name: &OsStr, value: &OsStr| {
        let mut word = name.to_os_string();
        word.push("=");
        word.push(value);
        words.push(word);
    };
    hand_on(OsStr::new("PATH"), &workspace::search_path());
    for (name, value) in env::vars_os() {
        if name.to_str().is_some_and(is_for_the_tests) {
            hand_on(&name, &value);
        }
    }
    for (name, value) in variables {
        hand_on(OsStr::new(name), OsStr::new(value));
    }
    words
}

fn is_for_the_tests(name: &str) -> bool {
    ["RUST_BACKTRACE", "RUSTC_BOOTSTRAP"].contains(&name)
        || name.starts_with("LIMITER_")
        || name.starts_with("PROPTEST_")
}

/// The effective user id: the second number in the line `Uid:` of `/proc/PID/status`.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_read() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t1000\t1000\nGid:\t1\n"), Some(0));
        assert_eq!(effective_user("Name:\tx\n"), None);
    }

    #[test]
    fn sudo_hands_on_what_the_tests_read() {
        let words = sudo(&[("LIMITER_BIN", "/some where/limiter")]);
        assert_eq!(words[..2], ["sudo", "env"]);
        assert!(words[2].to_string_lossy().starts_with("PATH="));
        assert_eq!(words[words.len() - 1], "LIMITER_BIN=/some where/limiter");
    }
}
