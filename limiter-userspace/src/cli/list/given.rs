//! The prefixes that a command is about: its arguments, or a list on standard input.

use std::{collections::HashSet, io::stdin};

use clap::Args;
use ipnet::IpNet;
use thiserror::Error;

use crate::{
    error::{Error, Failure, Result},
    policy::{
        PolicyError,
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

/// The argument that stands for standard input.
const STDIN: &str = "-";

#[derive(Debug, Args)]
pub(in crate::cli) struct Given {
    /// Addresses, prefixes or ranges, e.g. 203.0.113.9, 2001:db8::/48 or 203.0.113.5-203.0.113.77; or - for a
    /// list on standard input
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
    /// The prefixes, each once, in the order in which they were given.
    pub(super) fn read(&self) -> Result<Vec<IpNet>> {
        read(&self.prefixes)
    }
}

impl GivenOrAll {
    /// The prefixes, as [`Given::read`] returns them; `None` for all entries.
    pub(super) fn read(&self) -> Result<Option<Vec<IpNet>>> {
        if self.all { Ok(None) } else { read(&self.prefixes).map(Some) }
    }
}

fn read(words: &[String]) -> Result<Vec<IpNet>> {
    let mut all = Vec::new();
    for word in words {
        if word == STDIN {
            all.extend(parse_list(&read_stdin()?)?);
        } else {
            all.extend(parse_addresses(word).map_err(PolicyError::from)?);
        }
    }
    Ok(each_once(all))
}

/// The same prefixes without repetitions.
pub(super) fn each_once(mut prefixes: Vec<IpNet>) -> Vec<IpNet> {
    let mut seen = HashSet::with_capacity(prefixes.len());
    prefixes.retain(|prefix| seen.insert(*prefix));
    prefixes
}

/// The text on standard input, unpacked if it is compressed.
fn read_stdin() -> Result<Vec<u8>> {
    let failed = |error| Error::system("read the standard input", error);
    let text = read_up_to(&mut stdin().lock(), SET_BYTES).map_err(failed)?;
    if text.len() as u64 > SET_BYTES {
        return Err(Unread(FileError::TooLarge { most: SET_BYTES }).into());
    }
    Ok(unpacked(text, SET_BYTES).map_err(Unread)?)
}
