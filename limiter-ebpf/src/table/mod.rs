//! The table of sources.

pub(crate) mod buckets;
pub(crate) mod debt;
pub(crate) mod entry;
pub(crate) mod evict;
pub(crate) mod insert;
pub(crate) mod lookup;
pub mod pushes;
pub(crate) mod recall;
pub(crate) mod record;
mod row;
pub(crate) mod search;
pub(crate) mod set;
pub mod sweep;
pub(crate) mod wide;
