//! Policy: what an operator wants, from the words of the command line to the tables of the kernel.
//!
//! Everything here is pure. [`units`] reads and prints values, [`model`] is the policy, [`edit`] its edits,
//! [`lists`] are the lists of it and [`run_time`] those beside it, [`shadowed`] is what of it decides nothing,
//! [`caveats`] what it does not keep out, [`document`] the document that operators write, and [`tables`] what the
//! datapath is given.

pub mod allowance;
pub mod builtin;
pub mod caveats;
pub mod control;
pub mod count;
pub mod document;
pub mod edit;
pub mod error;
mod given;
pub mod guard;
pub mod interfaces;
pub mod lists;
pub mod model;
mod nearest;
pub mod reading;
pub mod run_time;
mod scope;
mod scopes;
pub mod session;
pub mod shadowed;
pub mod tables;
pub mod units;
mod unmet;

pub use allowance::Bucket;
pub use builtin::Builtin;
pub use error::{PolicyError, PolicyErrorKind};
pub use given::Given;
pub use lists::List;
pub use model::{KeyPrefix, Policy};
pub use run_time::{Layered, Layers, RunTime};
pub use session::Session;
pub use tables::{Assignment, Context, LongestPrefix, Tables, compile, recompile, tallies};
