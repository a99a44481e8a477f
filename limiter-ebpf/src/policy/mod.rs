//! The policy in force, looked up.

pub(crate) mod active;
pub(crate) mod keyed_meter;
pub(crate) mod matching;
pub(crate) mod profile;
pub(crate) mod verdict;
