//! The XDP datapath of limiter.
//!
//! It only adapts: packet bytes, maps, clock and atomics are here, every decision is made by
//! `limiter-common`. For the host this library is empty; it is a build dependency of the
//! controller, so that a change here rebuilds the object.

// Of zeros in a row the compiler would make a call of `memset`, which clears byte by byte here. The
// programs, in which most of this is inlined, say so too.
#![no_builtins]
#![no_std]
#![cfg_attr(
    target_arch = "bpf",
    feature(asm_experimental_arch, core_intrinsics, stmt_expr_attributes)
)]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "BPF has no stable atomics beyond load and store")
)]

#[cfg(target_arch = "bpf")]
pub mod bench;
#[cfg(target_arch = "bpf")]
mod events;
#[cfg(target_arch = "bpf")]
mod history;
#[cfg(target_arch = "bpf")]
mod kernel;
#[cfg(target_arch = "bpf")]
mod limits;
#[cfg(target_arch = "bpf")]
pub mod pipeline;
#[cfg(target_arch = "bpf")]
mod policy;
#[cfg(target_arch = "bpf")]
pub mod table;
