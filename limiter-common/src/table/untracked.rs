//! The untracked allowance: packets of sources without an entry that a full set lets pass without a record.
//!
//! In a [set](crate::table::set) that is full, what the first packet of a source was charged is kept beside the
//! entries, under a lock, for two sources at a time (see [probation](crate::table::probation)). Where a packet is next to
//! nothing of the burst, that can be done without: a set admits a [few](crate::algorithm::gcra::Gcra::untracked) in each tick of
//! the kernel that it forgets at once. All of these may be of one source.
//!
//! * One that sends nothing else is within its limit: the allowance of a tick is refilled in a third of a tick.
//! * One that sends more comes to a place beside the entries, and to an entry. The untracked packets that it may have sent
//!   in [`TICKS`] ticks are charged there first, whoever it is: that is what the shortest tick brings in at most, and what
//!   can be gained by the allowance at all.
//! * Where no entry is to be had, there is no allowance until one was: beside a bucket that many share, it would be
//!   used in each tick.
//!
//! One packet of [`HELD_OF`](UntrackedAllowance::HELD_OF) is not admitted so, so that a source that sends many comes to have an
//! entry.

use crate::algorithm::gcra::Gcra;

/// Ticks of which the allowance may be used at one moment: one that is over, but that the kernel still takes to be
/// at hand, the one after it, and the one that begins then.
pub const TICKS: u64 = 3;

/// What a set let pass untracked: the number of a tick, in the high half, and how many packets used the allowance of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntrackedAllowance(pub u64);

impl UntrackedAllowance {
    /// Of so many packets that the allowance has room for, one is not admitted.
    pub const HELD_OF: u32 = 1 << Self::HELD_BITS;
    const HELD_BITS: u32 = 6;
    /// The most packets of an allowance.
    pub const MOST: u64 = 1 << 31;
    /// That of a set that has no entry to give.
    pub const ENDED: Self = Self(u32::MAX as u64);
    /// Ticks that a CPU may be behind another one.
    const BEHIND: u32 = 8;

    /// What becomes of it with a packet in the tick with this number, of which the low bits count, where
    /// the allowance is so many; and whether that is admitted. `None` if nothing is left of the allowance.
    #[inline(always)]
    pub const fn next(self, tick: u32, most: u64) -> Option<(Self, bool)> {
        let (last, count) = ((self.0 >> 32) as u32, self.0 & u32::MAX as u64);
        // A CPU that was slow counts for the tick in which others are.
        let same = last.wrapping_sub(tick) <= Self::BEHIND;
        let ended = count == u32::MAX as u64;
        let (tick, count) = if same || ended { (last, count) } else { (tick, 0) };
        if count >= most {
            return None;
        }
        let next = Self((tick as u64) << 32 | (count + 1));
        Some((next, !Self::is_held(tick, count as u32)))
    }

    /// Whether the packet after so many in a tick is not admitted, by a hash with odd and otherwise arbitrary
    /// factors: no source is to be the first of a tick each time, and never held.
    #[inline(always)]
    const fn is_held(tick: u32, count: u32) -> bool {
        let mixed = tick.wrapping_mul(0x9e37_79b1) ^ count.wrapping_mul(0x85eb_ca77);
        (mixed ^ mixed >> 15).wrapping_mul(0xc2b2_ae3d) >> (u32::BITS - Self::HELD_BITS) == 0
    }
}

impl Gcra {
    const SHORTEST_TICK: u64 = 1_000_000;

    /// How many packets of sources that nobody remembers may pass in a tick, see the [untracked allowance](crate::table::untracked): so
    /// many that those of [`TICKS`] take the shortest tick to refill at most, and are a thousandth of the burst or less;
    /// none by a bucket that is precise. Not for the packet path.
    pub fn untracked(&self) -> u64 {
        if self.precise != 0 {
            return 0;
        }
        let units = (self.depth / 1_000).min(Self::SHORTEST_TICK << self.shift) / TICKS;
        units.checked_div(self.dearest).map_or(0, |packets| packets.min(UntrackedAllowance::MOST))
    }

    /// What so many packets in each of [`TICKS`] take at most, in units.
    #[inline(always)]
    pub const fn untracked_units(&self, packets: u64) -> u64 {
        TICKS * packets * self.dearest
    }
}
