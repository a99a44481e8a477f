//! The userspace part of limiter: everything that the `limiter` command consists of.
//!
//! [`policy`] compiles a policy to tables. [`datapath`] loads the programs and tables into the
//! kernel, and reads its counters and state. [`query`] answers questions about single sources and
//! packets. [`output`] and [`watch`] show the results. [`crowdsec`] follows decisions of CrowdSec.
//! Nothing here has to run for packets to be limited.

#[cfg(not(fuzzing))]
pub mod agent;
pub mod bridge;
#[cfg(not(fuzzing))]
pub mod cli;
pub mod crowdsec;
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
