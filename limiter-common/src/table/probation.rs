//! Sources that have sent one packet: what is known of them before they are given an entry.
//!
//! Once a set of the [table](crate::table::set) has no free entry, a source that it does not know is given one
//! with its second packet, not counting those that pass [untracked](crate::table::untracked). Of the first, the set
//! keeps what it was charged, so that this is made up for then. A place there is given away when its debt is
//! paid, and where untracked packets pass, a packet later: then nothing would have to be made up for. Where no place
//! is, the first packet gets an entry as the second does; if it owes nothing, as no limit is about it, it
//! mostly does without. So do most packets of sources that the lists name.
//!
//! So a flood of made-up sources, each of which sends a packet, touches one line of the cache for each,
//! that which said that the source is not known, and where untracked packets pass, a word of another, and of one in 16
//! a third, that of the marks, as somebody has its tag. It takes no entry away from anybody, as long as the
//! places hold what is owed: [`PROBATION_SLOTS`] for each set, hence one for eight entries of the table.
//!
//! Where all entries of the set owe as well, one of them for a single packet, one first packet of [`HELD_OF`] takes that,
//! and the others replace the newcomer who came first, so that the flood goes on to cost what it did. A source that goes on
//! sending is held by an entry after some [`HELD_OF`] packets (the sample and hold of Estan and Varghese, "New Directions
//! in Traffic Measurement and Accounting", 2002), if it sends two before the entry that the first got is
//! taken again: that takes [`HELD_OF`] first packets of others in the set for each entry there that owes
//! for a single packet. One that is much slower is hardly ever held while the flood lasts.

use crate::{
    abi::{
        policy::Settings,
        table::{PROBATION_SLOTS, Probation},
    },
    algorithm::gcra::Gcra,
    base::address::Address,
    policy::limit::{CostClass, INLINE, Limit},
};

/// Of so many packets without an entry, one takes it that could do without: of first ones for which somebody has to
/// be forgotten, and of those of sources that the lists name, so that a source that sends many is known.
pub const HELD_OF: u32 = 16;

/// The lock of a set, a number that is another one after an entry was given away, and until when the
/// newcomers owe: 28 bits each, in units of 2^13 ns, rounded up, and wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetState(pub u64);

impl SetState {
    /// Set while the set is locked.
    pub const LOCK: u64 = 1;
    const NUMBER: u64 = 2;
    const NUMBERS: u64 = 0x7f * Self::NUMBER;
    const TIME_BITS: u32 = 28;
    const TIME: u64 = (1 << Self::TIME_BITS) - 1;
    const UNIT: u32 = 13;
    /// The longest debt of a newcomer, 18 minutes: a time that is further ahead has passed.
    const FARTHEST: u64 = 1 << 27;

    /// The same, unlocked.
    #[inline(always)]
    pub const fn unlocked(self) -> Self {
        Self(self.0 & !Self::LOCK)
    }

    /// The same with another number.
    #[inline(always)]
    pub const fn renumbered(self) -> Self {
        Self(self.0 & !Self::NUMBERS | self.0.wrapping_add(Self::NUMBER) & Self::NUMBERS)
    }

    /// Whether another one has the same number.
    #[inline(always)]
    pub const fn has_number_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::NUMBERS == 0
    }

    /// Whether a newcomer can owe so long, in nanoseconds.
    #[inline(always)]
    pub const fn holds(until: u64, now: u64) -> bool {
        until.wrapping_sub(now) >> Self::UNIT < Self::FARTHEST - 1
    }

    /// The same with a newcomer at a place who owes until then, in nanoseconds.
    #[inline(always)]
    pub const fn with(self, place: usize, until: u64) -> Self {
        let time = (until >> Self::UNIT).wrapping_add(1) & Self::TIME;
        let shift = Self::shift(place);
        Self(self.0 & !(Self::TIME << shift) | time << shift)
    }

    /// Whether the newcomer at a place still owes at `now`, in nanoseconds, who came less than half of
    /// what wraps ago.
    #[inline(always)]
    pub const fn owes(self, place: usize, now: u64) -> bool {
        let until = self.0 >> Self::shift(place);
        let ahead = until.wrapping_sub(now >> Self::UNIT) & Self::TIME;
        0 < ahead && ahead <= Self::FARTHEST
    }

    #[inline(always)]
    const fn shift(place: usize) -> u32 {
        8 + (place & (PROBATION_SLOTS - 1)) as u32 * Self::TIME_BITS
    }
}

/// What else there is to know of a newcomer, in a word: the bytes of its packet, the places of the
/// inline limits that it was charged to, and the family and the policy that those were by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbationFacts(pub u32);

impl ProbationFacts {
    /// No newcomer.
    pub const NONE: Self = Self(0);
    /// The longest frame that can be one's.
    pub const LONGEST: u64 = (1 << Self::PLACES) - 1;
    const PLACES: u32 = 14;
    const IPV6: u32 = 1 << (Self::PLACES + INLINE as u32);
    /// The low bits of an epoch are kept.
    const EPOCH: u32 = Self::PLACES + INLINE as u32 + 1;

    /// Those of a source with a packet of so many bytes, from 1 to [`LONGEST`](Self::LONGEST), charged
    /// to the inline limits at these places, as bits, under an epoch.
    #[inline(always)]
    pub const fn new(source: &Address, bytes: u64, places: u32, epoch: u32) -> Self {
        let family = Self::family(source);
        Self(
            (bytes & Self::LONGEST) as u32 | places << Self::PLACES | family | epoch << Self::EPOCH,
        )
    }

    /// The bytes of its packet; 0 when there is no newcomer.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.0 as u64 & Self::LONGEST
    }

    /// The places that it was charged to, as bits.
    #[inline(always)]
    const fn places(self) -> u32 {
        self.0 >> Self::PLACES & ((1 << INLINE) - 1)
    }

    /// The places that it was charged to, as bits, of those that are the same limit's under `epoch`, given
    /// its settings and those of the epoch before, or after.
    #[inline(always)]
    pub const fn charged(self, epoch: u32, settings: &Settings, other: &Settings) -> u32 {
        const NEXT: u32 = u32::MAX >> ProbationFacts::EPOCH;
        let places = self.places();
        match epoch.wrapping_sub(self.0 >> Self::EPOCH) & NEXT {
            0 => places,
            // A packet may still go by one epoch when another one already goes by the next.
            1 | NEXT => places & settings.kept(other),
            ago => places & settings.there_since(epoch.wrapping_sub(ago)),
        }
    }

    /// Whether they are of somebody of the family of a source.
    #[inline(always)]
    const fn are_of_family(self, source: &Address) -> bool {
        self.0 & Self::IPV6 == Self::family(source) && self.bytes() != 0
    }

    /// The bit by which they tell the family of a source.
    #[inline(always)]
    const fn family(source: &Address) -> u32 {
        if source.family == Address::IPV4 { 0 } else { Self::IPV6 }
    }
}

/// The first packet of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbationSlot {
    /// When it came, in nanoseconds.
    pub time: u64,
    /// What it was.
    pub facts: ProbationFacts,
}

impl ProbationSlot {
    /// Nobody.
    pub const NONE: Self = Self { time: 0, facts: ProbationFacts::NONE };

    /// The word of a bucket that was full when its packet was charged by a limit.
    #[inline(always)]
    pub const fn word(self, limit: &Limit, gcra: &Gcra) -> u64 {
        let cost = limit.cost(CostClass(CostClass::OTHER), self.facts.bytes());
        (self.time << gcra.shift).wrapping_add(gcra.units(cost))
    }

    /// Whether a source can be one: IPv4 addresses, and IPv6 networks of up to 64 bits.
    #[inline(always)]
    pub const fn can_be(source: &Address) -> bool {
        source.words[2] | source.words[3] == 0
    }
}

impl Probation {
    /// The place of a source; [`PROBATION_SLOTS`] if it is none of them.
    #[inline(always)]
    pub const fn find(&self, source: &Address) -> usize {
        if self.is_at(0, source) {
            0
        } else if self.is_at(1, source) {
            1
        } else {
            PROBATION_SLOTS
        }
    }

    /// Whether a source is the one at a place. Its address is asked first: that of another one mostly differs.
    #[inline(always)]
    const fn is_at(&self, place: usize, source: &Address) -> bool {
        let ([a, b], [c, d, ..]) = (self.sources[place], source.words);
        let is_same = (a ^ c) | (b ^ d) == 0;
        is_same
            && ProbationSlot::can_be(source)
            && ProbationFacts(self.facts[place]).are_of_family(source)
    }

    /// The place for another one at `now`, in nanoseconds: that of who owes nothing and came first;
    /// [`PROBATION_SLOTS`] if both owe.
    #[inline(always)]
    pub const fn room(&self, now: u64) -> usize {
        match (self.owes(0, now), self.owes(1, now)) {
            (true, true) => PROBATION_SLOTS,
            (true, false) => 1,
            (false, true) => 0,
            (false, false) => self.first(),
        }
    }

    /// The place of who came first. Without a branch: which one it is, no CPU can guess.
    #[inline(always)]
    pub const fn first(&self) -> usize {
        (self.times[1].wrapping_sub(self.times[0]) >> 63) as usize
    }

    /// Whether somebody is at a place who still owes at `now`, in nanoseconds.
    #[inline(always)]
    const fn owes(&self, place: usize, now: u64) -> bool {
        // By another clock, its time may be still to come.
        let since = now.wrapping_sub(self.times[place]) as i64 >> SetState::UNIT;
        ProbationFacts(self.facts[place]).places() != 0
            && SetState(self.state).owes(place, now)
            && since < SetState::FARTHEST as i64
    }

    /// Who is at a place.
    #[inline(always)]
    pub const fn at(&self, place: usize) -> ProbationSlot {
        let place = place & (PROBATION_SLOTS - 1);
        ProbationSlot { time: self.times[place], facts: ProbationFacts(self.facts[place]) }
    }
}
