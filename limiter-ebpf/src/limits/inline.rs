//! The limits of a source whose state is in its entry.
//!
//! What happens when CPUs are at the same state at once is verified by itself, so that the rest of
//! the program need not be followed into it.

use core::{cell::Cell, ops::Range};

use limiter_common::{
    abi::{
        policy::{Settings, half},
        table::ENTRY_PLACES,
    },
    algorithm::{
        gcra::Gcra,
        policer::{Look, Refusal},
    },
    base::word::{RACES, TRIES},
    policy::{
        charge::{self, Bill, Charge, Group},
        limit::{INLINE, Limit},
    },
};

use crate::{
    kernel::{
        atomics::BoundWord,
        barrier::unlink,
        maps::LIMITS,
        scratch::{PacketScratch, lose_race, wait_to_refund},
    },
    limits::step::{AGAIN, CHARGED, DONE},
    policy::active::settings,
    table::{
        entry::SourceEntry,
        record::{LimitRef, Places, has_further},
    },
};

/// The inline limits of one packet.
pub(crate) struct Inline<'a> {
    pub(crate) entry: &'a SourceEntry,
    /// Where their state is; without the further ones, where those are not asked for.
    pub(crate) places: Places,
    pub(crate) settings: &'a Settings,
    /// What the packet is has been found out, if its cost depends on that.
    pub(crate) scratch: &'a mut PacketScratch,
}

/// Visits those of the inline limits that are among these, with the place and the bit of each, until one
/// visit says no. Gives that and those that were not visited, as bits; 0 if all said yes.
///
/// It is not a loop: the compiler would keep one with an end that is not known, and most sources have
/// one limit.
#[inline(always)]
pub(crate) fn all(settings: &Settings, limits: u64, visit: impl FnMut(usize, u64) -> bool) -> u64 {
    all_from(settings, limits, visit, || true)
}

/// The same with the word of each limit in the entry of the packet's source. Where there is no place for a limit, it is as if
/// the visit there said no.
#[inline(always)]
pub(crate) fn all_words(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
    mut visit: impl FnMut(&mut PacketScratch, usize, u64, BoundWord) -> bool,
) -> u64 {
    let places = Cell::new(entry.places());
    let number = &raw const scratch.entry_id;
    let visit = #[inline(always)]
    |place, bit| {
        // The compiler knows the place.
        let state = if place < ENTRY_PLACES {
            LimitRef::in_entry(entry.source, place)
        } else {
            LimitRef::beside(places.get().further, place - ENTRY_PLACES)
        };
        visit(scratch, place, bit, entry.word(state))
    };
    let find = #[inline(always)]
    || {
        // SAFETY: it is part of the packet's scratch, which stays. It is read here, as there is no room on the stack.
        let found = places.get().with_further(unsafe { number.read_volatile() });
        found.is_some_and(|found| {
            places.set(found);
            true
        })
    };
    all_from(settings, limits, visit, find)
}

/// Visits those of the inline limits that are among these, as [`all`] does. Before those at further places than entries have,
/// it calls `begin_further`; if that says no, none of those is visited.
#[inline(always)]
fn all_from(
    settings: &Settings,
    limits: u64,
    mut visit: impl FnMut(usize, u64) -> bool,
    begin_further: impl FnOnce() -> bool,
) -> u64 {
    const { assert!(INLINE == 8) };
    let left = Cell::new(limits);
    let mut visit_at = #[inline(always)]
    |place: usize| {
        let bit = settings.inline[place] & left.get();
        // Before the visit, so that there is no need to keep the bit over it: there is no room on the stack.
        left.set(left.get() ^ bit);
        if bit == 0 || visit(place, bit) {
            return true;
        }
        left.set(left.get() ^ bit);
        false
    };
    let done = || left.get() == 0;
    let mut visit_pair = #[inline(always)]
    |place: usize| visit_at(place) && (done() || visit_at(place + 1));
    // At a place that there is not, no limit is left.
    let _: bool = visit_pair(0)
        && (done()
            || has_further()
                && begin_further()
                && visit_pair(2)
                && (done() || visit_pair(4) && (done() || visit_pair(6))));
    // Those that were not visited may be all.
    unlink(left.get())
}

/// The place of an inline limit, if this is the bit of one.
#[inline(always)]
pub(crate) fn place(settings: &Settings, bit: u64) -> Option<usize> {
    settings.inline.iter().position(
        #[inline(always)]
        |inline| *inline == bit,
    )
}

/// Charges limits as they were looked at. Returns those that were not charged, as another CPU was first at one of them.
/// [`PacketScratch::looked`] is the place of that one then, and [`seen`](limiter_common::algorithm::policer::Look::seen) there
/// is the word that was found.
#[inline(always)]
pub(crate) fn commit(
    scratch: &mut PacketScratch,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
) -> u64 {
    let commit_at = #[inline(always)]
    |scratch: &mut PacketScratch, place: usize, _, word| {
        let look = PacketScratch::hide_provenance(&mut scratch.looks[place]);
        let Err(found) = look.commit(word) else { return true };
        (look.seen, scratch.looked) = (found, place as u64);
        false
    };
    all_words(scratch, entry, settings, limits, commit_at)
}

/// What a packet costs by a limit of an epoch; `by` tells where it is not 1 for all.
#[inline(always)]
pub(crate) fn cost(
    settings: &Settings,
    epoch: u32,
    bit: u64,
    by: impl FnOnce(&Limit) -> u64,
) -> u64 {
    if settings.unit & bit != 0 {
        return 1;
    }
    LIMITS.get(half(epoch, Limit::row(bit))).map_or(1, by)
}

impl Inline<'_> {
    /// The bucket at a place.
    #[inline(always)]
    fn bucket(&self, place: usize) -> Option<&'static Gcra> {
        Some(&self.entry.meter(place)?.gcra)
    }
}

impl Group for Inline<'_> {
    type Word = BoundWord;
    type Policer = Gcra;

    #[inline(always)]
    fn bit(&self, place: usize) -> u64 {
        self.settings.inline[place]
    }

    #[inline(always)]
    fn policer(&self, place: usize) -> Option<(&Gcra, u64)> {
        let epoch = self.entry.binding.epoch();
        let bucket = self.bucket(place)?;
        let bit = self.settings.inline[place];
        let by = |limit: &Limit| limit.cost(self.scratch.cost_class(), self.scratch.bytes);
        let packets = 1 + self.scratch.leased();
        Some((bucket, cost(self.settings, epoch, bit, by) * packets))
    }

    #[inline(always)]
    fn time(&self, place: usize, now: u64) -> u64 {
        self.bucket(place).map_or(now, |bucket| self.scratch.time_of(bucket))
    }

    #[inline(always)]
    fn find(&mut self, place: usize) -> Option<BoundWord> {
        Some(self.entry.word(self.places.at(place)))
    }

    #[inline(always)]
    fn bill(&mut self) -> &mut Bill {
        // So that no address in it is kept over the loop: there is no room on the stack.
        &mut self.scratch.reread().bill
    }

    #[inline(always)]
    fn look(&mut self, place: usize) -> &mut Look {
        &mut self.scratch.reread().looks[place]
    }
}

/// The limits of a packet that are [further](limiter_common::abi::table::FurtherLimits) ones, as bits.
#[inline(always)]
fn further(scratch: &mut PacketScratch, settings: &Settings) -> u64 {
    let [first, second, ..] = settings.inline;
    if has_further() {
        scratch.reread().bill.applies & !(settings.keyed | first | second)
    } else {
        0
    }
}

/// Looks at the inline limits that are about the packet, and charges nothing. Each limit tells the time that it goes by.
#[inline(always)]
pub(crate) fn look_at_all(inline: &mut Inline<'_>) {
    charge::look(inline, 0..ENTRY_PLACES, 0);
    if further(inline.scratch, inline.settings) != 0 {
        look_further();
    }
}

/// Charges the inline limits that are about the packet, and all conform. If one refuses after all, what was charged before is to
/// be [taken back](refund_inline).
#[inline(always)]
pub(crate) fn charge_all(inline: &mut Inline<'_>) {
    let is_first = charge_places(inline, 0..ENTRY_PLACES);
    if is_first && further(inline.scratch, inline.settings) != 0 {
        charge_further();
    }
    if left(inline.scratch.reread(), inline.settings) != 0 {
        charge_left();
    }
}

/// Charges the limits at some places, until another CPU was first at one: that may refuse the packet now. Whether none was.
#[inline(always)]
fn charge_places(inline: &mut Inline<'_>, places: Range<usize>) -> bool {
    for place in places {
        if charge::charge_at(inline, place, false, 0) == Charge::LostRace {
            return false;
        }
    }
    true
}

/// The inline limits that the packet is still to be charged to, as bits.
#[inline(always)]
fn left(scratch: &PacketScratch, settings: &Settings) -> u64 {
    let bill = &scratch.bill;
    if bill.refused == 0 { bill.due() & !bill.charged & !settings.keyed } else { 0 }
}

/// Looks at the further limits. It is verified by itself: few packets have any, and there is no room on the stack of the others.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn look_further() -> u32 {
    with_further(|inline| charge::look(inline, ENTRY_PLACES..INLINE, 0))
}

/// Charges the further limits.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_further() -> u32 {
    with_further(|inline| {
        charge_places(inline, ENTRY_PLACES..INLINE);
    })
}

/// Calls `with`. A packet whose entry is bound anew meanwhile is undecided.
#[inline(always)]
fn with_further(with: impl FnOnce(&mut Inline<'_>)) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let done = has_further()
        && with_all(scratch.reread(), |mut inline| {
            with(&mut inline);
            Some(())
        })
        .is_some();
    if !done {
        scratch.reread().bill.give_up();
    }
    DONE
}

/// Charges the inline limits that are left: that which another CPU was first at, and those behind it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_left() -> u32 {
    for _ in 0..RACES + INLINE as u32 {
        let outcome = charge_one_left();
        if outcome == DONE {
            return DONE;
        }
        if outcome == AGAIN {
            lose_first_left();
        }
    }
    DONE
}

/// Notes that another CPU was first at the first of them, and waits. If other CPUs move its word all the time, it refuses the packet,
/// or is left out if it is only counted.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn lose_first_left() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let Some(settings) = settings(scratch.binding.epoch()) else { return DONE };
    let left = left(scratch, settings);
    let first = left & left.wrapping_neg();
    if lose_race(scratch.bill.most_races(first)) == 0 {
        scratch.reread().bill.refuse(first, Refusal::Contended);
    }
    DONE
}

/// Charges the first of them. Returns [`AGAIN`] if another CPU moves its word, [`DONE`] if none is left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_one_left() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let done = with_all(scratch, |mut inline| {
        let left = left(inline.scratch, inline.settings);
        if left == 0 {
            return Some(DONE);
        }
        let place = place(inline.settings, left & left.wrapping_neg())?;
        Some(match charge::charge_at(&mut inline, place, true, 0) {
            Charge::Made => CHARGED,
            Charge::LostRace => AGAIN,
        })
    });
    done.unwrap_or_else(|| {
        // The entry is bound anew.
        scratch.bill.give_up();
        DONE
    })
}

/// Takes back what was charged to the inline limits.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn refund_inline() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let Some(settings) = settings(scratch.binding.epoch()) else { return DONE };
    for place in 0..INLINE {
        if settings.inline[place] & scratch.bill.charged != 0 {
            refund_inline_at(place as u32);
        }
    }
    DONE
}

/// Takes back what was charged to the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn refund_inline_at(place: u32) -> u32 {
    for _ in 0..TRIES {
        if try_refund_inline_at(place) == DONE {
            break;
        }
        wait_to_refund();
    }
    DONE
}

/// The same, unless another CPU moves the word at that moment.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn try_refund_inline_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return DONE };
    let now = scratch.time.now;
    let place = place as usize & (INLINE - 1);
    let refunded = with_all(scratch, |mut inline| Some(charge::refund_at(&mut inline, place, now)));
    if refunded == Some(Charge::LostRace) { AGAIN } else { DONE }
}

/// Looks up anew what the packet was found to be under.
#[inline(always)]
fn with_inline<T>(
    scratch: &mut PacketScratch,
    with: impl FnOnce(Inline<'_>) -> Option<T>,
) -> Option<T> {
    let epoch = scratch.binding.epoch();
    let settings = settings(epoch)?;
    let entry = SourceEntry::of(scratch, epoch)?;
    if entry.binding != scratch.binding {
        return None;
    }
    with(Inline { entry: &entry, places: entry.places(), settings, scratch })
}

/// The same with all places.
#[inline(always)]
fn with_all<T>(
    scratch: &mut PacketScratch,
    with: impl FnOnce(Inline<'_>) -> Option<T>,
) -> Option<T> {
    with_inline(
        scratch,
        #[inline(always)]
        |inline| {
            let places = Places::of(inline.scratch.entry_id, inline.entry.source)?;
            with(Inline { places, ..inline })
        },
    )
}
