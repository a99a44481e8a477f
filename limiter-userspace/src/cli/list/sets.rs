//! Sets of run-time entries, which `--replace SET` replaces as a whole.
//!
//! Such a set is mostly a feed that a timer fetches. So what a broken feed looks like is refused.

use ipnet::IpNet;
use thiserror::Error;

use crate::{
    error::{Failure, INVALID, Result},
    policy::{List, RunTime, guard::LONG, units::quoted},
};

/// Why a set is not replaced.
#[derive(Debug, Error)]
enum SetError {
    #[error("set {set} is not replaced: the new list is empty")]
    Empty { list: &'static str, set: String },
    #[error(
        "set {set} is not replaced: the new list has {prefix}, which is a whole address family"
    )]
    Everybody { list: &'static str, set: String, prefix: IpNet },
    #[error("set {set} is not replaced: it has {before} entries, and the new list {after}")]
    Loss { list: &'static str, set: String, before: usize, after: usize },
}

impl Failure for SetError {
    fn exit_code(&self) -> u8 {
        INVALID
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Empty { list, set } => {
                format!("check the list; `limiter {list} flush --set {set}` empties the set")
            }
            Self::Everybody { list, prefix, .. } => {
                format!("check the list; `limiter {list} add {prefix}` does that by itself")
            }
            Self::Loss { list, set, .. } => format!(
                "check that the list is whole; if so, empty the set first: `limiter {list} flush \
                 --set {set}`"
            ),
        })
    }
}

/// Checks the name of a set.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(is_plain) {
        return Err(format!("{} is no name: give letters, digits, _ and -", quoted(text)));
    }
    Ok(text.to_owned())
}

/// Checks that a set may be replaced by these prefixes.
pub(super) fn check(list: List, set: &str, prefixes: &[IpNet]) -> Result<()> {
    let (list, set) = (list.name(), set.to_owned());
    if prefixes.is_empty() {
        return Err(SetError::Empty { list, set }.into());
    }
    match prefixes.iter().find(|prefix| prefix.prefix_len() == 0) {
        Some(&prefix) => Err(SetError::Everybody { list, set, prefix }.into()),
        None => Ok(()),
    }
}

/// Checks that a set does not lose over half of its entries to `after` new ones.
pub(super) fn check_size(list: List, set: &str, run_time: &RunTime, after: usize) -> Result<()> {
    let is_of_set = run_time.list(list).filter(|entry| entry.set.as_deref() == Some(set));
    let before = is_of_set.count();
    if before >= LONG && after.saturating_mul(2) < before {
        let (list, set) = (list.name(), set.to_owned());
        return Err(SetError::Loss { list, set, before, after }.into());
    }
    Ok(())
}
