//! Which limits a packet leaves nearly used up; see [`near`](limiter_common::algorithm::near).
//!
//! Packets that are far from all of their limits, all of them inline ones, do not come here.

use limiter_common::{
    abi::policy::{Settings, half},
    algorithm::{meter::Meter, policer::Policer as _},
    base::tally,
    policy::limit::{INLINE, KEYED, Limit},
};

use crate::{
    kernel::{
        maps::{LIMITS, METERS, TALLIES},
        scratch::PacketScratch,
    },
    limits::inline,
    table::entry::SourceEntry,
};

/// Counts the packet under each of the limits that it [leaves near](PacketScratch::near), by the
/// policy of an epoch.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn count_near(epoch: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let mut left = scratch.near;
    for _ in 0..INLINE + KEYED {
        let bit = left & left.wrapping_neg();
        if bit == 0 {
            break;
        }
        left ^= bit;
        if let Some(limit) = LIMITS.get(half(epoch, Limit::row(bit)))
            && let Some(tallies) = TALLIES.get_ptr_mut(limit.tally)
        {
            // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its
            // end on a CPU before the next packet.
            tally::add(unsafe { &mut (*tallies).near }, scratch.bytes);
        }
    }
    0
}

/// Finds out which of the limits that are kept by keys of their own, and that the packet was charged to, it leaves near,
/// by the words that are stored. Of logs and of open connections, that is found out as they are charged.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_near_keyed() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (epoch, now) = (scratch.binding.epoch(), scratch.time.now);
    for place in 0..KEYED {
        let bit = scratch.keyed.bits[place];
        if bit == 0 {
            break;
        }
        if bit & scratch.bill.charged != 0
            && scratch.keyed.kinds[place] < Meter::SLIDING_LOG as u32
            && let Some(meter) = METERS.get(half(epoch, scratch.keyed.meters[place]))
            && meter.is_near(scratch.keyed.looks[place].next, now)
        {
            *PacketScratch::hide_provenance(&mut scratch.near) |= bit;
        }
    }
    0
}

/// Finds out which of the inline limits that the packet was charged to it leaves near, by the words that
/// are stored. Of others, that is found out as they are charged.
#[inline(always)]
pub(crate) fn find_near_inline(
    scratch: &mut PacketScratch,
    settings: &Settings,
    entry: &SourceEntry,
) {
    let epoch = entry.binding.epoch();
    let charged = scratch.bill.charged & !settings.keyed;
    let look_at = #[inline(always)]
    |place: usize, bit: u64| {
        if let Some(meter) = METERS.get(half(epoch, entry.meters[place]))
            && meter.gcra.is_near(scratch.looks[place].next, scratch.time_of(&meter.gcra))
        {
            *PacketScratch::hide_provenance(&mut scratch.near) |= bit;
        }
        true
    };
    inline::all(settings, charged, look_at);
}
