//! The way of a packet: parse, source, lists, limits, verdict.
//!
//! [`headers`] reads a packet, [`admit`] settles most of them, and [`full`] decides about the rest; [`run()`] calls them.

pub(crate) mod admit;
pub(crate) mod cache;
pub(crate) mod classify;
pub(crate) mod control;
mod dispatch;
pub(crate) mod full;
pub(crate) mod headers;
pub(crate) mod lease;
pub(crate) mod lists;
pub(crate) mod probation;
pub(crate) mod refusal;
mod run;
mod sample;

pub use self::{dispatch::dispatch, run::run};
