//! The policy document: fixtures, and what no document may do.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod edits;
mod files;
mod fixtures;
mod generated;
mod hostile;
mod meaning;
