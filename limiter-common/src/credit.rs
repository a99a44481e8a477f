//! Packets of sources without an entry that pass on credit: nobody remembers them.
//!
//! In a [set](crate::table) that is full, what the first packet of a source was charged is kept beside the
//! entries, under a lock, for two sources at a time (see [`newcomer`](crate::newcomer)). Where a packet is a
//! two-thousandth of the burst or less, that is not needed for some of them: a set admits a few in each tick of the kernel
//! without. Should all of these be of one source, it is charged too little by what they cost.
//!
//! How many is told by [`Gcra::credit`]. Together they cost half of what comes in during a tick at most, so that
//! a source that sends nothing else is within its limit, and owes nothing by the end of the next tick. Ticks may be close
//! together, at the end of one and the beginning of the next: that is a thousandth of the burst. A source that
//! sends more has a packet remembered with the next, then an entry, and there everything is charged.
//!
//! One packet of [`HELD_OF`](Credit::HELD_OF) is not admitted so, so that a source that sends many comes to have an entry.

#[cfg(doc)]
use crate::gcra::Gcra;

/// What a set admitted on credit: the number of a tick, in 32 bits, a turn of [`HELD_OF`](Self::HELD_OF), in 8, and how many
/// packets were admitted in that tick, in 24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit(pub u64);

impl Credit {
    /// Of so many packets, one is not admitted on credit.
    pub const HELD_OF: u32 = 64;
    const COUNT: u32 = 24;
    const TURN: u32 = 8;
    /// The most packets that there is credit for.
    pub const MOST: u64 = (1 << Self::COUNT) - 2;
    /// Ticks that a CPU may be behind another one.
    const BEHIND: u32 = 8;

    /// What becomes of it with a packet in the tick with this number, of which the low bits count, where
    /// so many have credit; and whether that is admitted. `None` if it changes nothing.
    #[inline(always)]
    pub const fn next(self, tick: u32, most: u64) -> Option<(Self, bool)> {
        let last = (self.0 >> (Self::COUNT + Self::TURN)) as u32;
        let turn = (self.0 >> Self::COUNT) as u32 & ((1 << Self::TURN) - 1);
        // A CPU that was slow counts for the tick in which others are.
        let same = last.wrapping_sub(tick) < Self::BEHIND;
        let tick = if same { last } else { tick };
        let count = if same { self.0 & ((1 << Self::COUNT) - 1) } else { 0 };
        if count >= most {
            return None;
        }
        let turn = (turn + 1) % Self::HELD_OF;
        let admitted = turn != 0;
        let count = count + admitted as u64;
        let next =
            (tick as u64) << (Self::COUNT + Self::TURN) | (turn as u64) << Self::COUNT | count;
        Some((Self(next), admitted))
    }
}
