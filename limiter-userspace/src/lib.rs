//! The controller of limiter: what the `limiter` command is made of.
//!
//! [`policy`] turns the operator's words into tables, [`datapath`] puts them and the programs into
//! the kernel and reads back what they did, [`output`] and [`watch`] show it. Nothing here has to
//! run for enforcement to go on.

#[cfg(not(fuzzing))]
pub mod agent;
#[cfg(not(fuzzing))]
pub mod cli;
pub mod datapath;
pub mod doctor;
pub mod error;
#[cfg(not(fuzzing))]
pub mod metrics;
pub mod output;
pub mod policy;
pub mod query;
#[cfg(not(fuzzing))]
pub mod watch;
