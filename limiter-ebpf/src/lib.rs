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
mod admit;
#[cfg(target_arch = "bpf")]
mod barrier;
#[cfg(target_arch = "bpf")]
mod buckets;
#[cfg(target_arch = "bpf")]
mod cache;
#[cfg(target_arch = "bpf")]
mod carry;
#[cfg(target_arch = "bpf")]
mod cell;
#[cfg(target_arch = "bpf")]
mod classes;
#[cfg(target_arch = "bpf")]
mod clock;
#[cfg(target_arch = "bpf")]
mod control;
#[cfg(target_arch = "bpf")]
pub mod datapath;
#[cfg(target_arch = "bpf")]
mod decide;
#[cfg(target_arch = "bpf")]
mod entry;
#[cfg(target_arch = "bpf")]
mod fast_path;
#[cfg(target_arch = "bpf")]
mod frame;
#[cfg(target_arch = "bpf")]
mod inline;
#[cfg(target_arch = "bpf")]
mod keyed;
#[cfg(target_arch = "bpf")]
mod ledger;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(all(target_arch = "bpf", feature = "messages"))]
mod messages;
#[cfg(target_arch = "bpf")]
mod near;
#[cfg(target_arch = "bpf")]
mod newcomers;
#[cfg(target_arch = "bpf")]
mod notices;
#[cfg(target_arch = "bpf")]
mod offence;
#[cfg(target_arch = "bpf")]
mod opening;
#[cfg(target_arch = "bpf")]
pub mod parts;
#[cfg(target_arch = "bpf")]
mod profile;
#[cfg(target_arch = "bpf")]
mod renewal;
#[cfg(target_arch = "bpf")]
mod seat;
#[cfg(target_arch = "bpf")]
mod seats;
#[cfg(target_arch = "bpf")]
mod socket;
#[cfg(target_arch = "bpf")]
mod source_key;
#[cfg(target_arch = "bpf")]
mod subject;
#[cfg(target_arch = "bpf")]
mod tally;
#[cfg(target_arch = "bpf")]
mod turnover;
#[cfg(target_arch = "bpf")]
mod usage;
#[cfg(target_arch = "bpf")]
mod vacancy;
#[cfg(target_arch = "bpf")]
mod verdict;
