//! Scenarios that need root: the programs in the kernel, the command line and real traffic.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod cli;
mod netns;
mod prog;
