//! What the kernel half and the user half agree on: the layout of map keys and values, and names.
//!
//! Structures have no padding, their sizes and offsets are checked at compile time, and multi-byte fields are in native
//! order unless their documentation says network order.

pub mod build;
pub mod counters;
pub mod description;
pub mod interface;
pub mod layout;
#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "aya asks for an unsafe marker on what crosses a map")]
mod pod;
pub mod policy;
pub mod push;
pub mod state;
pub mod table;
