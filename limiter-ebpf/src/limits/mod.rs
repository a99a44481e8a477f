//! The limits of a packet: looked at, charged, and counted.

pub(crate) mod counters;
pub(crate) mod inline;
pub(crate) mod keyed;
pub(crate) mod step;
pub(crate) mod wide;
