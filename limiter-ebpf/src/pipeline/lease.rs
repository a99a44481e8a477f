//! Packets that are charged in advance: a CPU charges one packet for several of its source, and decides the next ones by the
//! [cache](super::cache).

use limiter_common::{
    abi::policy::{Settings, half},
    algorithm::policer::Look,
    base::{
        tally,
        word::{RACES, Word as _},
    },
    policy::limit::{INLINE, KEYED},
};

use super::cache::{Slot, clear, is_of, of, slot, take_slot};
use crate::{
    kernel::{
        atomics::BoundWord,
        barrier::escape,
        clock,
        maps::{METERS, PROFILES},
        scratch::{self, PacketScratch, lose_race},
    },
    limits::inline,
    policy::active::settings,
    table::entry::SourceEntry,
};

/// Whether the packet, whose source has this entry, passes because it is charged for several; it is in the
/// totals of the source then. One packet [of sixteen](SourceEntry::is_sixteenth) takes a slot that is free, so that the next
/// ones may be leased.
///
/// The limits are those that are about the packet, all of them inline ones. Where there are none, a lease charges nothing:
/// this CPU counts the packets, and several CPUs do not write to the entry with each of them.
#[inline(always)]
pub(crate) fn pass(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
) -> bool {
    // Without ticks nothing is leased, as nothing tells when that ends.
    if entry.profile.lease == 0
        || limits & !entry.profile.leased_of != 0
        || clock::tick_length() == 0
    {
        return false;
    }
    let epoch = entry.binding.epoch();
    match of(scratch, scratch.key(), epoch, settings) {
        Slot::Own(cached)
            if cached.demand(entry.profile.lease) > 1 && cached.unleased != clock::number() =>
        {
            escape(scratch);
            let outcome = lease(epoch);
            outcome == LEASED || outcome == LOST && lease_again(epoch) == LEASED
        }
        Slot::Free if entry.is_sixteenth() => {
            escape(scratch);
            take_slot(epoch, limits);
            false
        }
        _ => false,
    }
}

/// The packets are leased.
const LEASED: u32 = 1;
/// Nothing is leased, as another CPU moved a word meanwhile.
const LOST: u32 = 2;

/// Tries [`lease`] again, until no other CPU is first. One that charged its packets one by one instead would be at the words
/// far more often.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lease_again(epoch: u32) -> u32 {
    for _ in 0..RACES {
        if lose_race(RACES) == 0 {
            break;
        }
        let outcome = lease(epoch);
        if outcome != LOST {
            return outcome;
        }
    }
    LOST
}

/// Charges the packet, in whose slot its source is, to all of its limits for several packets, if all limits
/// lease them. Returns [`LEASED`], [`LOST`], or 0 if a limit does not lease.
///
/// It is verified by itself, and called once for all that are leased.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lease(epoch: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    let Some(entry) = SourceEntry::of(scratch, epoch) else { return 0 };
    let Some(cached) = slot(scratch) else { return 0 };
    let limits = entry.profile.limits & scratch.applicable;
    let packets = cached.demand(entry.profile.lease);
    let is_own = is_of(cached, scratch, scratch.key(), epoch, settings);
    if packets < 2 || limits & !entry.profile.leased_of != 0 || !is_own {
        return 0;
    }
    // Before the time of the charge is known, so that what is leased is not used for a tick too long.
    let tick = clock::number();
    scratch.binding = entry.binding;
    scratch.time = scratch::coarse_now(scratch);
    if !look(scratch, &entry, settings, limits, packets) {
        cached.unleased = tick;
        return 0;
    }
    let left = inline::commit(scratch, &entry, settings, limits);
    if left != 0 {
        // Another CPU was first.
        scratch.bill.charged = limits & !left;
        if limits != left {
            scratch.leased = packets - 1;
            inline::refund_inline();
            scratch.reread().leased = 0;
        }
        return LOST;
    }
    cached.lease(packets - 1, tick);
    let mut passed = cached.passed.tally();
    tally::add(&mut passed, scratch.reread().bytes);
    entry.account_passed(&passed);
    clear(&mut cached.passed);
    LEASED
}

/// Plans a lease for a packet that keyed limits are about too: notes for how many packets more it is charged, or that the
/// source may take the slot. Other limits than those of [`Profile::leased_of`](limiter_common::abi::policy::Profile) rule
/// both out.
#[inline(always)]
pub(crate) fn plan_lease(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
) {
    if limits & !entry.profile.leased_of != 0 || clock::tick_length() == 0 || scratch.monitors() {
        return;
    }
    if scratch.lease_lost != 0 {
        return;
    }
    match of(scratch, scratch.key(), entry.binding.epoch(), settings) {
        Slot::Own(cached) if cached.unleased != scratch.lease_tick => {
            scratch.leased = cached.demand(entry.profile.lease).saturating_sub(1);
            scratch.may_lease = scratch.leased;
        }
        Slot::Free => scratch.may_lease = 1,
        Slot::Own(_) | Slot::Taken => {}
    }
}

/// Whether all limits of the packet have what it was checked for to spare, as
/// [`Gcra::spares`](limiter_common::algorithm::gcra::Gcra::spares) says. Returns 0 if one has not; no lease is planned in
/// that slot in this tick again.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn may_be_leased() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let is_spared = are_spared(scratch);
    if !is_spared && let Some(cached) = slot(scratch) {
        cached.unleased = scratch.lease_tick;
    }
    is_spared.into()
}

#[inline(always)]
fn are_spared(scratch: &mut PacketScratch) -> bool {
    let (bill, epoch) = (scratch.bill, scratch.binding.epoch());
    let (Some(settings), Some(profile)) =
        (settings(epoch), PROFILES.get(half(epoch, scratch.binding.profile())))
    else {
        return false;
    };
    if bill.refused | bill.exceeded != 0 {
        return false;
    }
    for place in 0..INLINE {
        if settings.inline[place] & bill.applies == 0 {
            continue;
        }
        let Some(meter) = METERS.get(half(epoch, profile.meters[place])) else { return false };
        if !meter.gcra.spares(scratch.looks[place].next, scratch.time_of(&meter.gcra)) {
            return false;
        }
    }
    for place in 0..KEYED {
        if scratch.keyed.bits[place] == 0 {
            break;
        }
        let Some(meter) = METERS.get(half(epoch, scratch.keyed.meters[place])) else {
            return false;
        };
        if !meter.gcra.spares(scratch.keyed.looks[place].next, scratch.time.now) {
            return false;
        }
    }
    true
}

/// Stores the lease that the packet was charged for in the slot of its source; without one, gives the source the slot.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn keep_lease() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (epoch, limits, more) = (scratch.binding.epoch(), scratch.bill.applies, scratch.leased());
    if more == 0 {
        return take_slot(epoch, limits);
    }
    scratch.leased = 0;
    let (Some(cached), Some(settings)) = (slot(scratch), settings(epoch)) else { return 0 };
    if !is_of(cached, scratch, scratch.key(), epoch, settings) {
        return 0;
    }
    cached.lease(more, scratch.lease_tick);
    if let Some(entry) = SourceEntry::of(scratch, epoch)
        && cached.passed.packets != 0
    {
        entry.account_passed(&cached.passed.tally());
        clear(&mut cached.passed);
    }
    1
}

/// Looks at limits by which each packet costs 1. Whether all of them lease so many; if so, what charging them makes of the
/// limits is known.
#[inline(always)]
fn look(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
    packets: u64,
) -> bool {
    let look_at = #[inline(always)]
    |scratch: &mut PacketScratch, place: usize, _, word: BoundWord| {
        let Some(meter) = entry.meter(place) else { return false };
        let seen = word.load_acquire();
        let Some(next) = meter.gcra.leased(seen, scratch.time(), packets) else { return false };
        *PacketScratch::hide_provenance(&mut scratch.looks[place]) = Look { seen, next };
        true
    };
    inline::all_words(scratch, entry, settings, limits, look_at) == 0 && entry.is_bound()
}
