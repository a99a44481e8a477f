//! Parts of the way of a packet by themselves, for the benchmark: what a limiter like this cannot do
//! without.

use aya_ebpf::programs::XdpContext;
use limiter_common::packet::parse;

use crate::kernel::{atomics, clock, frame::XdpFrame, scratch::PacketScratch};

/// Reads the clock.
#[inline(always)]
pub fn clock() {
    let _: u64 = clock::now();
}

/// Adds to a word that other CPUs may add to as well.
///
/// # Safety
/// `word` points into a map value that was looked up in this run of the program, and is aligned.
#[inline(always)]
pub unsafe fn add(word: *mut u64) {
    // SAFETY: as the caller promises.
    unsafe { atomics::add(word, 1) };
}

/// Reads the headers.
#[inline(always)]
pub fn parse(ctx: &XdpContext) {
    if let Some(scratch) = PacketScratch::get() {
        let _ = parse::parse(&XdpFrame::new::<false>(ctx), &mut scratch.packet);
    }
}
