//! Samples of dropped packets, for a reader that asks for them.

use aya_ebpf::{
    bindings::{BPF_RB_NO_WAKEUP, xdp_md},
    helpers::bpf_get_prandom_u32,
};
use limiter_common::{
    abi::policy::half,
    base::{address::Address, word::Word as _},
    memory::sample::{SNAPPED, Sample, Sampling},
    packet::frame::Frame as _,
    policy::limit::Limit,
};

use crate::{
    kernel::{
        atomics::MapWord,
        barrier::{black_box, escape},
        clock,
        frame::XdpFrame,
        maps::{LIMITS, SAMPLES, SAMPLING, packet_slot},
        scratch::{Blame, PacketScratch},
    },
    pipeline::headers::read_all,
    policy::verdict::Verdict,
};

/// Bytes that are copied at once. Linux before 5.18 has no call for all.
const WORD: usize = 8;
const _: () = assert!(SNAPPED.is_multiple_of(WORD));

/// Counts the frame, shows it to who asks for dropped ones, and gives the action that the kernel takes.
#[inline(always)]
pub(super) fn settle(ctx: *mut xdp_md, verdict: &Verdict, bytes: u64) -> u32 {
    if verdict.would_drop() && is_asked_for() {
        sample(ctx, verdict.0 as u32);
    }
    verdict.settle(bytes)
}

/// Whether somebody asked for samples, and did not take that back. Whether that reader is there still, [`sample`] finds out.
#[inline(always)]
pub(super) fn is_asked_for() -> bool {
    // SAFETY: an aligned word of a map value, which the reader writes by one store.
    SAMPLING.get_ptr(0).is_some_and(|it| unsafe { (&raw const (*it).until).read_volatile() } != 0)
}

/// Shows the packet, which is dropped or would be, to the reader of samples, if that wants to see it and the budget has one
/// left. The reason is given by its place.
///
/// It is verified by itself: what is dropped takes no call while nobody reads.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sample(ctx: *mut xdp_md, reason: u32) -> u32 {
    let (Some(scratch), Some(place)) = (PacketScratch::get(), SAMPLING.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: a map value that was just looked up, of which any bytes are a valid value. Its reader may be about to write it:
    // what is shown by some of the old wishes and some of the new ones, the reader leaves out.
    let sampling = unsafe { &*place };
    let slot = packet_slot();
    // SAFETY: the helper has no arguments.
    let random = unsafe { bpf_get_prandom_u32() };
    // What nobody wants takes no reading of the clock.
    if !sampling.may_want(reason, slot) || !sampling.odds.win(random) {
        return 0;
    }
    let (now, tally) = (clock::now(), tally(scratch));
    // SAFETY: aligned words of that value.
    let (until, next) =
        unsafe { (MapWord::new(&raw mut (*place).until), MapWord::new(&raw mut (*place).next)) };
    let end = until.load();
    if now >= end {
        // The reader ended without taking it back. If it moved the time on just now, it is there.
        let _: u64 = until.compare_exchange(end, 0);
        return 0;
    }
    // Of a plain packet, the source alone was read, and cut to what counts as one.
    if sampling.source.family != Address::NONE.family && scratch.is_read == 0 {
        escape(scratch);
        read_all(ctx);
    }
    let scratch = scratch.reread();
    if !sampling.wants(reason, slot, tally, &scratch.packet.source)
        || !sampling.budget.spend(&next, now)
    {
        return 0;
    }
    // How many were not shown, the reader finds out by the counters of all that was dropped.
    let Some(mut entry) = SAMPLES.reserve::<Sample>(0) else { return 0 };
    let (to, frame) = (entry.as_mut_ptr(), XdpFrame::of(ctx, scratch.bytes as usize));
    let (bytes, captured) = (frame.total() as u32, frame.len().min(SNAPPED) as u32);
    // SAFETY: memory of the ring for a sample, which nobody else reads or writes until it is submitted.
    unsafe {
        (&raw mut (*to).time).write(now);
        (&raw mut (*to).bytes).write(bytes);
        (&raw mut (*to).captured).write(captured);
        (&raw mut (*to).reason).write(reason);
        (&raw mut (*to).tally).write(tally);
        (&raw mut (*to).slot).write(slot);
        (&raw mut (*to).unused).write(0);
        let data = (&raw mut (*to).data).cast::<u8>();
        // The last word overlaps the one before it. No frame is shorter than a word.
        let last = black_box((captured as usize).wrapping_sub(WORD));
        if last <= SNAPPED - WORD
            && let Some(word) = frame.read::<WORD>(last)
        {
            data.add(last).cast::<[u8; WORD]>().write_unaligned(word);
        }
        for at in (0..SNAPPED).step_by(WORD) {
            let Some(word) = frame.read::<WORD>(at) else { break };
            data.add(at).cast::<[u8; WORD]>().write_unaligned(word);
        }
    }
    // The reader looks by itself: to wake it would cost more than to show.
    entry.submit(BPF_RB_NO_WAKEUP.into());
    0
}

/// The tally of the limit that the packet is over; [`Sampling::NO_LIMIT`] if it is over none.
#[inline(always)]
fn tally(scratch: &PacketScratch) -> u32 {
    if let Some(tally) = scratch.blame.of_tally() {
        return tally;
    }
    let (bit, epoch) = match scratch.blame {
        Blame::DROPPING => scratch.dropping,
        Blame::REFUSING => (scratch.refusing.bit, scratch.binding.epoch()),
        _ => (0, 0),
    };
    if bit == 0 {
        return Sampling::NO_LIMIT;
    }
    LIMITS.get(half(epoch, Limit::row(bit))).map_or(Sampling::NO_LIMIT, |limit| limit.tally)
}
