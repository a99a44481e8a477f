//! The decision core of limiter, and the contract between its kernel and its user half.
//!
//! Everything that decides about a packet is here: how a frame is read ([`packet`]), which limits it
//! is about ([`class`]), how a limit admits ([`policer`], [`meter`]), how several are charged
//! together ([`plan`]) and how state follows a change of policy ([`binding`]). It is `no_std`, does no I/O and reads no clock, so the BPF
//! program, the unit tests and the model checker run the same code.
//!
//! [`contract`] holds what both halves must agree on. Its structures have no padding, their sizes
//! and offsets are checked at compile time, and multi-byte fields are in native order unless their
//! documentation says network order.

#![no_std]
#![deny(unsafe_code)]

pub mod address;
pub mod binding;
pub mod cache;
pub mod class;
pub mod contract;
pub mod control;
pub mod credit;
pub mod ending;
pub mod extension;
pub mod frame;
pub mod gcra;
pub mod lease;
pub mod limit;
pub mod log;
pub mod meter;
pub mod near;
pub mod newcomer;
pub mod notice;
pub mod opening;
pub mod packet;
pub mod penalty;
pub mod plain;
pub mod plan;
#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "aya asks for an unsafe marker on what crosses a map")]
mod pod;
pub mod policer;
pub mod rate;
pub mod reason;
pub mod recent;
pub mod siphash;
pub mod slots;
pub mod table;
pub mod tick;
pub mod window;
pub mod word;
