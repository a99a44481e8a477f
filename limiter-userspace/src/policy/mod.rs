//! Policy: from the words of the command line to the tables that the kernel reads.
//!
//! Nothing here touches the kernel.
//!
//! - [`model`] is the policy with every value parsed; [`edit`] changes it.
//! - [`document`] reads and writes the YAML that operators keep, [`units`] its values.
//! - [`list_text`] reads lists of addresses as feeds write them.
//! - [`lists`] are the lists of a document, [`run_time`] those that commands set beside it.
//! - [`shadowed`] finds entries without effect, [`caveats`] what a valid policy does not protect from.
//! - [`tables`] compiles a policy into what the datapath reads.

pub mod allowance;
pub mod builtin;
pub mod caveats;
mod control;
pub mod count;
mod cover;
pub mod document;
pub mod edit;
pub mod error;
pub mod guard;
pub mod interfaces;
pub mod list_text;
pub mod lists;
pub mod model;
pub mod nearest;
pub(crate) mod packed;
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
pub use lists::List;
pub use model::{Given, KeyPrefix, Policy};
pub use run_time::{Layered, Layers, RunTime};
pub use session::Session;
pub use tables::{
    Assignment, Context, LongestPrefix, Tables, compile, dearest, recompile, tallies,
};
