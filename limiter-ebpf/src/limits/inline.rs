//! The limits of a source whose state is in its entry.
//!
//! What happens when CPUs are at the same state at once is verified by itself, so that the rest of
//! the program need not be followed into it.

use core::cell::Cell;

use limiter_common::{
    abi::policy::{Settings, half},
    algorithm::{
        gcra::Gcra,
        policer::{Look, Policer as _, REFUND_TRIES, Refusal},
    },
    policy::{
        charge::{self, Bill, Charge, Group},
        limit::{INLINE, Limit},
    },
};

use crate::{
    kernel::{atomics, barrier::unlink, maps::LIMITS, scratch::PacketScratch},
    policy::active::settings,
    table::entry::SourceEntry,
};

/// The inline limits of one packet.
pub(crate) struct Inline<'a> {
    pub(crate) entry: &'a SourceEntry,
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
pub(crate) fn all(
    settings: &Settings,
    limits: u64,
    mut visit: impl FnMut(usize, u64) -> bool,
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
    let _: bool = visit_pair(0)
        && (done() || visit_pair(2) && (done() || visit_pair(4) && (done() || visit_pair(6))));
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
    |place: usize, _| {
        let look = PacketScratch::hide_provenance(&mut scratch.looks[place]);
        let Err(found) = look.commit(entry.cell(place)) else { return true };
        (look.seen, scratch.looked) = (found, place as u64);
        false
    };
    all(settings, limits, commit_at)
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
    type Word = atomics::BoundWord;
    type Policer = Gcra;
    const LEN: usize = INLINE;

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
    fn find(&mut self, place: usize) -> Option<atomics::BoundWord> {
        Some(self.entry.cell(place))
    }

    #[inline(always)]
    fn create(&mut self, _: usize) -> Option<atomics::BoundWord> {
        None
    }

    #[inline(always)]
    fn charge_again(
        &mut self,
        place: usize,
        _: atomics::BoundWord,
        found: u64,
        _: u64,
    ) -> Result<Charge, Refusal> {
        match charge_inline_again(place as u32, found) {
            CHARGED => Ok(Charge::Made),
            EXCEEDS => Err(Refusal::Exceed),
            _ => Err(Refusal::Contended),
        }
    }

    #[inline(always)]
    fn bill(&mut self) -> &mut Bill {
        PacketScratch::hide_provenance(&mut self.scratch.bill)
    }

    #[inline(always)]
    fn look(&mut self, place: usize) -> &mut Look {
        PacketScratch::hide_provenance(&mut self.scratch.looks[place])
    }
}

const CHARGED: u32 = 0;
const EXCEEDS: u32 = 1;
const CONTENDED: u32 = 2;

/// Charges the limit at a place, whose word other CPUs move.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_inline_again(place: u32, found: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return CONTENDED };
    let now = scratch.time.now;
    let place = place as usize & (INLINE - 1);
    let charged = with_inline(scratch, |mut inline| {
        let (word, now) = (inline.find(place)?, inline.time(place, now));
        let (policer, cost) = inline.policer(place)?;
        let mut look = Look { seen: found, next: found };
        let charged = policer.charge_again(word, &mut look, now, cost);
        *inline.look(place) = look;
        charge::note_near(&mut inline, place, now);
        Some(charged)
    });
    match charged {
        Some(Ok(())) => CHARGED,
        Some(Err(Refusal::Exceed)) => EXCEEDS,
        _ => CONTENDED,
    }
}

/// Takes back what was charged to the inline limits.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn refund_inline() -> u32 {
    let Some(scratch) = PacketScratch::get() else { return CHARGED };
    let Some(settings) = settings(scratch.binding.epoch()) else { return CHARGED };
    for place in 0..INLINE {
        if settings.inline[place] & scratch.bill.charged != 0 {
            refund_inline_at(place as u32);
        }
    }
    CHARGED
}

/// Takes back what was charged to the limit at a place.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn refund_inline_at(place: u32) -> u32 {
    for _ in 0..REFUND_TRIES {
        if try_refund_inline_at(place) == CHARGED {
            break;
        }
    }
    CHARGED
}

/// The same, unless another CPU moves the word at that moment.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn try_refund_inline_at(place: u32) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return CHARGED };
    let now = scratch.time.now;
    let place = place as usize & (INLINE - 1);
    let refunded =
        with_inline(scratch, |mut inline| Some(charge::refund_at(&mut inline, place, now)));
    if refunded == Some(Charge::LostRace) { CONTENDED } else { CHARGED }
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
    with(Inline { entry: &entry, settings, scratch })
}
