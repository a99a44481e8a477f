//! The way of a packet: parse, source, lists, limits, verdict.
//!
//! [`fast`] decides about most packets, [`simple`] about what is admitted or refused as the packet before, [`full`] about the
//! rest; [`run()`] calls them.

pub(crate) mod cache;
pub(crate) mod classify;
pub(crate) mod control;
mod dispatch;
pub(crate) mod fast;
pub(crate) mod full;
pub(crate) mod lease;
pub(crate) mod lists;
pub(crate) mod probation;
pub(crate) mod refusal;
mod run;
pub(crate) mod simple;

pub use self::{dispatch::dispatch, run::run};
