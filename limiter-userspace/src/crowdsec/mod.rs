//! A bouncer of CrowdSec: what its local API (LAPI) decides becomes a set of the run-time list `deny`.
//!
//! [`answer`] reads the stream of decisions, and [`decisions`] says which entries they make. Both do no I/O. [`lapi`] asks by HTTP. The
//! agent puts the entries in force.
//!
//! Decisions are entries of a set, and no pushed blocks: a prefix has an entry of each set, so that the end of a decision ends no ban of
//! others, and ranges and reboots need nothing more. All that one answer has is one change of the policy.

pub mod answer;
pub mod decisions;
#[cfg(not(fuzzing))]
pub mod lapi;

/// The set of run-time entries that decisions are in.
pub const SET: &str = "crowdsec";
