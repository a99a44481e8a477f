//! Which limits a packet leaves nearly used up; see [`near`](limiter_common::near).
//!
//! Packets that are far from all of their limits, all of them inline ones, do not come here.

use limiter_common::{
    contract::{Settings, half},
    limit::{INLINE, KEYED, Limit},
    meter::Meter,
    policer::Policer as _,
};

use crate::{
    entry::SourceEntry,
    inline,
    maps::{LIMITS, METERS, TALLIES},
    subject::Subject,
    tally,
};

/// Counts the packet of the subject under each of the limits that it [leaves near](Subject::near), by the
/// policy of an epoch.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn count_near(epoch: u32) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let mut left = subject.near;
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
            tally::add(unsafe { &mut (*tallies).near }, subject.bytes);
        }
    }
    0
}

/// Finds out which of the limits that are kept by keys of their own, and that the subject was charged to, it leaves near,
/// by the words that are stored. Of logs and of open connections, that is found out as they are charged.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_near_keyed() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let (epoch, now) = (subject.binding.epoch(), subject.time.now);
    for place in 0..KEYED {
        let bit = subject.keyed.bits[place];
        if bit == 0 {
            break;
        }
        if bit & subject.bill.charged != 0
            && subject.keyed.kinds[place] < Meter::LOG as u32
            && let Some(meter) = METERS.get(half(epoch, subject.keyed.meters[place]))
            && meter.is_near(subject.keyed.looks[place].next, now)
        {
            *Subject::anew(&mut subject.near) |= bit;
        }
    }
    0
}

/// Finds out which of the inline limits that the subject was charged to it leaves near, by the words that
/// are stored. Of others, that is found out as they are charged.
#[inline(always)]
pub(crate) fn find_near_inline(subject: &mut Subject, settings: &Settings, entry: &SourceEntry) {
    let epoch = entry.binding.epoch();
    let charged = subject.bill.charged & !settings.keyed;
    let look_at = #[inline(always)]
    |place: usize, bit: u64| {
        if let Some(meter) = METERS.get(half(epoch, entry.profile.meters[place]))
            && meter.gcra.is_near(subject.looks[place].next, subject.time_of(&meter.gcra))
        {
            *Subject::anew(&mut subject.near) |= bit;
        }
        true
    };
    inline::all(settings, charged, look_at);
}
