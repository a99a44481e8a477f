//! Which limits a packet leaves nearly used up; see [`near`](limiter_common::near).
//!
//! Most packets are far from every limit: only for the others anything is done here.

use limiter_common::{
    contract::{Settings, half},
    limit::{INLINE, KEYED, Limit},
    meter::Meter,
    policer::Policer as _,
};

use crate::{
    datapath::settings,
    maps::{LIMITS, METERS, PROFILES, TALLIES},
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

/// Finds out which of the limits that the subject was charged to it leaves near, by the words that are
/// stored, and counts it there. Of ledgers, that was found out as they were charged.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_near() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let epoch = subject.binding.epoch();
    let Some(settings) = settings(epoch) else { return 0 };
    if subject.bill.charged & !settings.keyed != 0 {
        look_inline(subject, settings);
    }
    if subject.bill.charged & settings.keyed != 0 {
        for place in 0..KEYED as u32 {
            if find_near_keyed_at(place) == 0 {
                break;
            }
        }
    }
    if subject.reread().near != 0 {
        count_near(epoch);
    }
    0
}

#[inline(always)]
fn look_inline(subject: &mut Subject, settings: &Settings) {
    let (epoch, now) = (subject.binding.epoch(), subject.time.now);
    let Some(profile) = PROFILES.get(half(epoch, subject.binding.profile())) else { return };
    for place in 0..INLINE {
        let bit = settings.inline[place] & subject.bill.charged;
        if bit != 0
            && let Some(meter) = METERS.get(half(epoch, profile.meters[place]))
            && meter.gcra.is_near(subject.looks[place].next, now)
        {
            *Subject::anew(&mut subject.near) |= bit;
        }
    }
}

/// Finds out whether the subject leaves the limit at a place near, which is kept by a key of its own.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_near_keyed_at(place: u32) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let place = place as usize & (KEYED - 1);
    let bit = subject.keyed.bits[place];
    let is_charged = bit & subject.bill.charged != 0;
    if is_charged
        && subject.keyed.kinds[place] < Meter::LOG as u32
        && let Some(meter) = METERS.get(half(subject.binding.epoch(), subject.keyed.meters[place]))
        && meter.is_near(subject.keyed.looks[place].next, subject.time.now)
    {
        subject.near |= bit;
    }
    // Behind one that is not in use there is none.
    u32::from(bit != 0)
}
