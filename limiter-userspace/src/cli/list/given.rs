//! The prefixes that a command is about: its arguments, or a list on standard input.

use std::{
    collections::HashSet,
    io::{IsTerminal as _, stdin},
};

use clap::Args;
use ipnet::IpNet;
use thiserror::Error;

use crate::{
    cli::progress::Progress,
    error::{Error, Failure, Result},
    output::number::grouped,
    policy::{
        PolicyError, RunTime,
        document::{FileError, SET_BYTES, read_up_to, unpacked},
        list_text::parse_list,
        units::parse_addresses,
    },
};

/// The list on standard input cannot be used.
#[derive(Debug, Error)]
#[error("the list on standard input is not used: {0}")]
struct Unread(FileError);

impl Failure for Unread {
    fn remedy(&self) -> Option<String> {
        Some(self.0.remedy().to_owned())
    }
}

/// The prefixes that are given cannot be used.
#[derive(Debug, Error)]
enum Unusable {
    #[error("the standard input names no prefix")]
    Empty,
    #[error("more than {} prefixes are given", grouped(RunTime::MOST_PREFIXES as u64))]
    TooMany,
}

impl Failure for Unusable {
    fn exit_code(&self) -> u8 {
        2
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Empty => "check where the list comes from: it has at least one prefix".to_owned(),
            Self::TooMany => "write neighbouring prefixes as a wider one".to_owned(),
        })
    }
}

/// The argument that stands for standard input.
const STDIN: &str = "-";

#[derive(Debug, Args)]
pub(in crate::cli) struct Given {
    /// Addresses, prefixes or ranges, e.g. 203.0.113.9, 2001:db8::/48 or 203.0.113.5-203.0.113.77, between spaces or
    /// commas; or - for a list on standard input
    #[arg(value_name = "PREFIX", required = true)]
    prefixes: Vec<String>,
}

/// What is to be taken off a list.
#[derive(Debug, Args)]
pub(in crate::cli) struct GivenOrAll {
    /// Addresses, prefixes or ranges; or - for a list on standard input
    #[arg(value_name = "PREFIX", required_unless_present = "all", conflicts_with = "all")]
    prefixes: Vec<String>,
    /// The same as `flush`: all entries that were set at run time
    #[arg(long)]
    all: bool,
}

impl Given {
    /// The prefixes, each once, in the order in which they were given; none if the standard input has none.
    pub(super) fn read(&self) -> Result<Vec<IpNet>> {
        read(&self.prefixes, read_stdin)
    }
}

impl GivenOrAll {
    /// The prefixes, as [`Given::read`] returns them, at least one; `None` for all entries.
    pub(super) fn read(&self) -> Result<Option<Vec<IpNet>>> {
        if self.all {
            return Ok(None);
        }
        read(&self.prefixes, read_stdin).and_then(some).map(Some)
    }
}

fn read(words: &[String], stdin: impl Fn() -> Result<Vec<u8>>) -> Result<Vec<IpNet>> {
    let mut all = Vec::new();
    for word in words.iter().flat_map(|word| word.split(',')) {
        if word == STDIN {
            all.extend(parse_list(&stdin()?)?);
        } else {
            all.extend(parse_addresses(word).map_err(PolicyError::from)?);
        }
        if all.len() > RunTime::MOST_PREFIXES {
            return Err(Unusable::TooMany.into());
        }
    }
    Ok(each_once(all))
}

/// The same prefixes, if there are any. Only the standard input can have none.
pub(super) fn some(prefixes: Vec<IpNet>) -> Result<Vec<IpNet>> {
    if prefixes.is_empty() { Err(Unusable::Empty.into()) } else { Ok(prefixes) }
}

/// The same prefixes without repetitions.
pub(super) fn each_once(mut prefixes: Vec<IpNet>) -> Vec<IpNet> {
    let mut seen = HashSet::with_capacity(prefixes.len());
    prefixes.retain(|prefix| seen.insert(*prefix));
    prefixes
}

/// The text on standard input, unpacked if it is compressed.
fn read_stdin() -> Result<Vec<u8>> {
    // A list that is typed would be typed behind it.
    let _progress = (!stdin().is_terminal()).then(|| Progress::of("reading the standard input"));
    let failed = |error| Error::system("read the standard input", error);
    let text = read_up_to(&mut stdin().lock(), SET_BYTES).map_err(failed)?;
    if text.len() as u64 > SET_BYTES {
        return Err(Unread(FileError::TooLarge { most: SET_BYTES }).into());
    }
    Ok(unpacked(text, SET_BYTES).map_err(Unread)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str], stdin: &str) -> Result<usize> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        read(&words, || Ok(stdin.into())).and_then(some).map(|prefixes| prefixes.len())
    }

    #[test]
    fn a_list_on_standard_input_names_a_prefix() {
        for list in ["", "\n", "# nothing\n", "nobody,1\n"] {
            let error = given(&["-"], list).unwrap_err();
            assert_eq!(error.to_string(), "the standard input names no prefix");
            assert_eq!(error.exit_code(), 2);
            assert!(error.remedy().is_some());
        }
        assert_eq!(given(&["-"], "ip,1\n192.0.2.1,1\n").unwrap(), 1);
        assert_eq!(given(&["192.0.2.1", "-"], "").unwrap(), 1);
        assert_eq!(given(&["192.0.2.1,192.0.2.3", "192.0.2.5"], "").unwrap(), 3);
        assert!(given(&["192.0.2.1,"], "").is_err());
    }

    #[test]
    fn ranges_are_read_until_there_is_no_room_for_more() {
        let ranges = ["::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"; 8000];
        let error = given(&ranges, "").unwrap_err();
        assert_eq!(error.to_string(), "more than 2,000,000 prefixes are given");
        assert_eq!(error.exit_code(), 2);
    }
}
