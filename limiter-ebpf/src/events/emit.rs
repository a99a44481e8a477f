//! Emission of sources that begin to be over their limits, and of those that are blocked.

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use limiter_common::{
    abi::policy::half,
    base::word::Word as _,
    memory::event::{Emission, SourceEvent, kind},
    policy::limit::Limit,
};

use crate::{
    kernel::{
        atomics::MapWord,
        maps::{EVENT_STATS, EVENTS, LIMITS, packet_slot},
        scratch::PacketScratch,
    },
    table::lookup::EntryId,
};

/// Notes that the packet is over a limit, or has its source blocked, and tells of it if that is something new.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn note_refusal() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    // Of sources that share an entry, nothing can be told of one.
    let Some((episode, dropped)) = EntryId(scratch.entry_id).episode(scratch.binding) else {
        return 0;
    };
    let (bit, blocking) = (scratch.refusing.bit, scratch.refusing.blocking);
    if bit != 0 {
        let monitored = bit & (scratch.monitored() | !scratch.bill.refused) != 0;
        let emission = episode.refuse(scratch.time.now, monitored);
        if emission != Emission::Nothing {
            let kind = if monitored { kind::MONITORED } else { kind::LIMITED };
            emit(scratch, bit, &dropped, kind, emission == Emission::GoesOn);
        }
    }
    if scratch.refusing.until != 0 {
        emit(scratch, blocking, &dropped, kind::BLOCKED, false);
    }
    0
}

/// Tells what a limit, whose bit this is, did to the source of the packet, or counts it only.
#[inline(always)]
fn emit(scratch: &PacketScratch, bit: u64, dropped: &MapWord, kind: u16, again: bool) {
    let Some(event_stats) = EVENT_STATS.get_ptr_mut(0) else { return };
    // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its end on a
    // CPU before the next packet.
    let event_stats = unsafe { &mut *event_stats };
    let row = half(scratch.binding.epoch(), Limit::row(bit));
    let now = scratch.time.now;
    let emitted = event_stats.spend(now, kind, again)
        && LIMITS.get(row).is_some_and(|limit| {
            let event = SourceEvent {
                time: now,
                until: if kind == kind::BLOCKED { scratch.refusing.until } else { 0 },
                dropped: dropped.load(),
                source: scratch.source,
                slot: packet_slot(),
                tally: limit.tally,
                kind,
                again: again.into(),
            };
            // Who reads looks by itself: to wake it would cost more than to tell.
            EVENTS.output::<SourceEvent>(&event, BPF_RB_NO_WAKEUP.into()).is_ok()
        });
    if again {
        return;
    }
    if let Some(happened) = event_stats.happened.get_mut(usize::from(kind)) {
        *happened += 1;
    }
    if !emitted && let Some(suppressed) = event_stats.suppressed.get_mut(usize::from(kind)) {
        *suppressed += 1;
    }
}
