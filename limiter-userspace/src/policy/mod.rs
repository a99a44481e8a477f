//! Policy: what an operator wants, from the words of the command line to the tables of the kernel.
//!
//! Everything here is pure. [`units`] reads and prints values, [`model`] is the policy with its
//! edits, [`document`] the form in which it is stored, and [`compile`](mod@compile) what the
//! datapath is given.

pub mod compile;
pub mod document;
pub mod error;
pub mod model;
pub mod name;
mod nearest;
pub mod units;

pub use compile::{Compiled, compile};
pub use error::{PolicyError, PolicyErrorKind};
pub use model::{Bucket, KeyPrefix, LimitPolicy, Policy};
pub use name::limit_by_name;
