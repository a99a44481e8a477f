//! The decision core of limiter, and the contract between its kernel and its user half.
//!
//! Everything that decides about a packet is here: how a frame is read ([`packet`]), which limits it is about
//! ([`policy::matching`]), how a limit admits ([`algorithm`]), how several are charged together ([`policy::charge`]) and how
//! state follows a change of policy ([`algorithm::binding`]). It is `no_std`, does no I/O and reads no clock, so the BPF
//! program, the unit tests and the model checker run the same code. [`abi`] holds what both halves must agree on.

#![no_std]
#![deny(unsafe_code)]

pub mod abi;
pub mod algorithm;
pub mod base;
pub mod memory;
pub mod packet;
pub mod policy;
pub mod table;
