//! Policy: what an operator wants, from the words of the command line to the tables of the kernel.
//!
//! Everything here is pure. [`units`] reads and prints values, [`model`] is the policy, [`edit`] and
//! [`edit_lists`] are its edits, [`shadowed`] is what of it decides nothing, [`spec`] the document that
//! operators write, and [`tables`] what the datapath is given.

pub mod allowance;
pub mod builtin;
pub mod count;
pub mod edit;
pub mod edit_lists;
pub mod error;
pub mod model;
mod nearest;
pub mod reading;
mod scope;
mod scopes;
pub mod session;
pub mod shadowed;
pub mod spec;
pub mod tables;
pub mod units;
mod unmet;

pub use allowance::Bucket;
pub use builtin::Builtin;
pub use edit_lists::List;
pub use error::{PolicyError, PolicyErrorKind};
pub use model::{KeyPrefix, Policy};
pub use session::Session;
pub use tables::{Context, Held, Tables, compile, tallies};
