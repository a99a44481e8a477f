//! The table of sources: a 16-way set-associative table with tags.

pub mod lock;
pub mod probation;
pub mod set;
pub mod untracked;
