//! The token bucket, as the generic cell rate algorithm.
//!
//! A bucket of `burst` tokens, refilled at a constant rate, is one point in time: the theoretical
//! arrival time (TAT), at which the bucket is full again (ITU-T I.371, virtual scheduling). A packet
//! conforms while that is less than `depth` = burst * interval ahead of now, and moves it by one
//! `interval`. So the whole state is one word, and a refused packet need not write it.
//!
//! At one instant a full bucket admits exactly `burst` packets, and over any time `t` fewer than
//! burst + rate * t + 1. A packet for which part of a token is there passes and owes the rest: a
//! bucket that waited for the whole token would, with a burst of 1, waste what comes in while it is
//! full, and admit half the rate of a load just above it.
//!
//! Times are in units of 2^-shift nanoseconds and wrap: differences are taken modulo 2^64 and read
//! as signed, and every legitimate difference is far below 2^63.

use crate::algorithm::{
    policer::{Decision, Policer},
    time::Time,
};

/// The parameters of a bucket; made by [`Rate::bucket`](crate::algorithm::rate::Rate::bucket).
///
/// Token bucket, leaky bucket and GCRA are this one arithmetic. They differ in how far ahead the TAT
/// may be when a packet comes: less than the burst for a token bucket, at most the tolerance for
/// GCRA, and with the packet itself at most the depth of the queue for a leaky bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gcra {
    /// Units, times 2^fraction, that a packet of cost 1 takes at the rate; at most
    /// [`Gcra::MAX_DEPTH`].
    pub interval: u64,
    /// Units that the TAT has to be less than ahead for a packet to conform: for a token bucket those
    /// that it takes to refill, burst * interval. At most [`Gcra::MAX_DEPTH`]; 0 means no bucket.
    pub depth: u64,
    /// Units that the dearest packet takes, at most [`Gcra::MAX_DEPTH`].
    pub dearest: u64,
    /// Units that are spent where the bucket begins to be [near](crate::algorithm::near), at most `depth`.
    pub near: u64,
    /// A unit is 2^-shift nanoseconds; at most [`Gcra::MAX_SHIFT`].
    pub shift: u16,
    /// Binary digits of `interval` after the point; at most [`Gcra::MAX_FRACTION`].
    pub fraction: u16,
    /// 1 when there has to be room for the whole packet, as in a queue; 0 when any room will do.
    pub strict: u16,
    /// [`Gcra::PRECISE`] where every packet is charged by the clock, else 0.
    pub precise: u16,
}

impl Gcra {
    /// No bucket.
    pub const NONE: Self = Self {
        interval: 0,
        depth: 0,
        dearest: 0,
        near: 0,
        shift: 0,
        fraction: 0,
        strict: 0,
        precise: 0,
    };
    /// The bucket that admits nothing: one packet takes all of its depth, and it has to have room for the whole packet. Its
    /// depth is longer than any tick, and what several packets take at once fits in a word.
    pub const CLOSED: Self =
        Self { interval: 1 << 40, depth: 1 << 40, dearest: 1 << 40, strict: 1, ..Self::NONE };
    /// Binary digits of which no depth has more, see [`will_do`](Self::will_do).
    pub const PRECISE: u16 = 60;
    /// The largest shift.
    pub const MAX_SHIFT: u16 = 10;
    /// The most binary digits of an interval after the point.
    pub const MAX_FRACTION: u16 = 10;
    /// The deepest bucket, in units.
    pub const MAX_DEPTH: u64 = 1 << 59;
    /// How far beyond any debt a word may lie before it counts as lost, in nanoseconds. No debt takes
    /// longer than the bucket itself, not even one made before the rate was changed.
    /// CPUs whose clocks or packets are apart by less than this are one sequence to a bucket.
    pub const TOLERANCE: u64 = 1_000_000_000;

    /// Units that a packet of this cost takes.
    #[inline(always)]
    pub const fn units(&self, cost: u64) -> u64 {
        (self.interval * cost) >> self.fraction
    }

    /// Units that one packet takes at most, so that a key that owes no more may be forgotten: those of a packet of cost 1, or a
    /// 64th of the dearest. Where bytes are counted, that is 2 KiB of 128 KiB: by the dearest packet, 86 frames could be forgotten.
    #[inline(always)]
    pub const fn of_one_packet(&self) -> u64 {
        let (one, part) = (self.units(1), self.dearest >> 6);
        if one > part { one } else { part }
    }

    /// How far ahead a word is, in units, from which on it counts as lost.
    #[inline(always)]
    const fn lost(&self) -> u64 {
        let debt = if self.depth > self.dearest { self.depth } else { self.dearest };
        self.depth + debt + (Self::TOLERANCE << self.shift)
    }

    /// A bucket that holds less than its rate brings in so many ticks goes by the clock.
    pub const FEWEST_TICKS: u64 = 8;

    /// The word that a packet of this cost, which conforms, leaves behind; `None` if it does not, or
    /// if that takes a better clock to tell.
    ///
    /// By the time of a tick, which is the same on all CPUs, a packet is charged up to a tick before it comes. So in any
    /// time t what is charged is `burst + rate * (t + 1 tick)` at most, and what is refused would have conformed a tick
    /// later at the latest.
    #[inline(always)]
    pub const fn conform(&self, word: u64, time: Time, cost: u64) -> Option<u64> {
        match self.admit(self.spent(word, time.now), time, cost) {
            Some(spent) => Some((time.now << self.shift).wrapping_add(spent)),
            None => None,
        }
    }

    /// What is spent after a packet of this cost, in units, where so much was before; `None` as for
    /// [`conform`](Self::conform).
    #[inline(always)]
    pub const fn admit(&self, spent: u64, time: Time, cost: u64) -> Option<u64> {
        let units = self.units(cost);
        if self.will_do(time) && self.has_room(spent, units) { Some(spent + units) } else { None }
    }

    /// Whether there is room for a packet that takes so many units, where so many are spent.
    #[inline(always)]
    const fn has_room(&self, spent: u64, units: u64) -> bool {
        spent + (units & self.strictness()) < self.depth
    }

    /// How long it takes, in nanoseconds, until nothing is spent any more of so many units.
    #[inline(always)]
    pub const fn refills(&self, spent: u64) -> u64 {
        if spent == 0 { 0 } else { (spent >> self.shift) + 1 }
    }

    /// What a packet of this cost makes of a word, and whether that leaves the bucket [near](crate::algorithm::near) being
    /// used up; `None` if it does not conform. The time is one that [will do](Self::will_do).
    #[inline(always)]
    pub const fn pass(&self, word: u64, time: Time, cost: u64) -> Option<(u64, bool)> {
        let (before, units) = (self.spent(word, time.now), self.units(cost));
        let spent = before + units;
        // A bucket that is left far has room.
        let near = spent >= self.near;
        if near && !self.has_room(before, units) {
            return None;
        }
        Some(((time.now << self.shift).wrapping_add(spent), near))
    }

    /// What so many packets of cost 1 that are [leased](crate::memory::cache) make of a word, if that leaves three quarters of the
    /// bucket; `None` if it does not. So what is leased and lost is a quarter of the burst at most, however often. The time
    /// is one that [will do](Self::will_do).
    #[inline(always)]
    pub const fn leased(&self, word: u64, time: Time, packets: u64) -> Option<u64> {
        let next =
            (time.now << self.shift).wrapping_add(self.spent(word, time.now) + self.units(packets));
        if self.spares(next, time.now) { Some(next) } else { None }
    }

    /// Whether a word leaves three quarters of the bucket at `now`, in nanoseconds.
    #[inline(always)]
    pub const fn spares(&self, word: u64, now: u64) -> bool {
        self.spent(word, now) < self.depth / 4
    }

    /// Whether a packet of cost 1 exceeds, by a word that a charge can have made. The time is one that
    /// [will do](Self::will_do).
    #[inline(always)]
    pub const fn exceeds(&self, word: u64, time: Time) -> bool {
        let spent = self.spent(word, time.now);
        !self.has_room(spent, self.units(1)) && spent <= self.lost()
    }

    /// Whether packets are to be charged by the clock where ticks are so long, in nanoseconds; 0 if there are none.
    #[inline(always)]
    pub const fn takes_clock(&self, tick: u64) -> bool {
        tick == 0 || !self.will_do(Time { now: 0, tick })
    }

    /// Whether the time is good enough: one that is exact always is, and that of a tick where the bucket holds
    /// [enough](Self::FEWEST_TICKS) and need not be precise.
    #[inline(always)]
    pub const fn will_do(&self, time: Time) -> bool {
        // Of a depth, nothing is left by the shift.
        self.depth >> self.precise >= (time.tick * Self::FEWEST_TICKS) << self.shift
    }

    /// Nanoseconds from `now` until a packet of this cost conforms, unless others are charged
    /// meanwhile; 0 when it does at once, and [`u64::MAX`] when it never does.
    #[inline(always)]
    pub const fn wait(&self, word: u64, now: u64, cost: u64) -> u64 {
        let room = self.units(cost) & self.strictness();
        let ahead = self.spent(word, now);
        if ahead + room < self.depth {
            0
        } else if room >= self.depth {
            u64::MAX
        } else {
            ((ahead + room - self.depth) >> self.shift) + 1
        }
    }

    /// How much is spent at `now`, in units of [`depth`](Self::depth); more than that is a debt.
    #[inline(always)]
    pub const fn spent(&self, word: u64, now: u64) -> u64 {
        let ahead = word.wrapping_sub(now << self.shift);
        // A TAT that has passed is a full bucket.
        if ahead as i64 > 0 { ahead } else { 0 }
    }

    /// How many packets of cost 1 conform at once when so many units are spent. Not for the packet path.
    pub fn left(&self, spent: u64) -> u64 {
        let room = self.depth.saturating_sub(spent);
        let interval = self.interval.max(1);
        // A packet conforms where those before it leave room, or in a queue, where those with it do.
        let more = u64::from(self.strict == 0);
        match room.checked_mul(1 << self.fraction) {
            Some(0) => 0,
            Some(room) => (room - 1) / interval + more,
            None => {
                let room = u128::from(room) << self.fraction;
                let whole = (room - 1) / u128::from(interval);
                u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(more)
            }
        }
    }

    /// The same bucket, which knows where it begins to be [near](Self::near). Not for the packet path.
    #[must_use]
    pub(crate) fn with_marks(self) -> Self {
        // A queue has to have room for one more, so that it has less than the next one needs.
        let left = u128::from(self.left(0) / 5) + u128::from(self.strict);
        let room = (left * u128::from(self.interval)) >> self.fraction;
        let near = u64::try_from(room).map_or(0, |room| self.depth.saturating_sub(room));
        Self { near, ..self }
    }

    /// The word after a charge of this cost at `now` (nanoseconds), whether that conforms or not. What is beyond the bucket is
    /// owed: the deeper of [`depth`](Self::depth) and [`dearest`](Self::dearest) at most, as a word that is further ahead
    /// counts as lost. Not for the packet path.
    #[must_use]
    pub fn charge_beyond(&self, word: u64, now: u64, cost: u64) -> u64 {
        let spent = self.known_spent(word, now);
        let units = (u128::from(self.interval) * u128::from(cost)) >> self.fraction;
        let most = (self.depth + self.depth.max(self.dearest)).max(spent);
        let sum = u64::try_from(u128::from(spent) + units).unwrap_or(most);
        (now << self.shift).wrapping_add(sum.min(most))
    }

    /// The word after so much of what is charged was given back at `now` (nanoseconds), all of it at most. Not for the packet
    /// path.
    #[must_use]
    pub fn give_back(&self, word: u64, now: u64, cost: u64) -> u64 {
        let units = (u128::from(self.interval) * u128::from(cost)) >> self.fraction;
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        let left = self.known_spent(word, now).saturating_sub(units);
        (now << self.shift).wrapping_add(left)
    }

    /// What is spent at `now`; of a word that is lost, all of the bucket.
    fn known_spent(&self, word: u64, now: u64) -> u64 {
        let spent = self.spent(word, now);
        if spent > self.lost() { self.depth } else { spent }
    }

    /// All ones when there has to be room for the whole packet.
    #[inline(always)]
    const fn strictness(&self) -> u64 {
        0_u64.wrapping_sub(self.strict as u64)
    }

    /// What a word of this bucket is measured in, to be kept beside it.
    #[inline(always)]
    pub const fn scale(&self) -> Scale {
        Scale(self.depth << Scale::SHIFT_BITS | self.shift as u64)
    }

    /// The word that carries the state of a bucket over to this one.
    ///
    /// The fill is kept as a share of the burst, rounded down by at most 2^-20, and a debt as the
    /// time that it takes, up to that of the dearest packet: an empty bucket stays empty and a full one full,
    /// whatever the new rate and burst. State of no bucket gives a full one.
    #[inline(always)]
    pub const fn carry(&self, word: u64, from: Scale, now: u64) -> u64 {
        if from.0 == self.scale().0 {
            return word;
        }
        let depth = from.depth();
        let ahead = word.wrapping_sub(now << from.shift());
        if depth == 0 || ahead as i64 <= 0 {
            return now << self.shift;
        }
        if ahead >= depth {
            let debt = ((ahead - depth) >> from.shift()) + 1;
            let most = self.dearest >> self.shift;
            let debt = if debt < most { debt } else { most };
            return (now << self.shift).wrapping_add(self.depth + (debt << self.shift));
        }
        // The share of the bucket that is spent, in 2^-20, rounded up; 43 bits keep it in a word.
        let bits = 64 - depth.leading_zeros();
        let drop = bits.saturating_sub(43);
        let spent = match (((ahead + ((1 << drop) - 1)) >> drop) << 20).checked_div(depth >> drop) {
            Some(share) => share + 1,
            None => 1 << 20,
        };
        let whole = (self.depth >> 20) * spent;
        let rest = ((self.depth & 0xf_ffff) * spent) >> 20;
        let ahead = whole + rest + 1;
        (now << self.shift).wrapping_add(if ahead < self.depth { ahead } else { self.depth })
    }
}

impl Policer for Gcra {
    #[inline(always)]
    fn fresh(&self, now: u64) -> u64 {
        now << self.shift
    }

    #[inline(always)]
    fn decide(&self, word: u64, now: u64, cost: u64) -> Decision {
        if let Some(next) = self.conform(word, Time::exact(now), cost) {
            Decision::Conform(next)
        } else if self.spent(word, now) > self.lost() {
            Decision::Lost((now << self.shift).wrapping_add(self.depth))
        } else {
            Decision::Exceed
        }
    }

    #[inline(always)]
    fn is_near(&self, word: u64, now: u64) -> bool {
        self.spent(word, now) >= self.near
    }

    /// Should the bucket have become full since the charge, what was charged is given back all the same.
    #[inline(always)]
    fn undo(&self, word: u64, _now: u64, cost: u64) -> u64 {
        word.wrapping_sub(self.units(cost))
    }
}

/// The depth and the shift that a word was charged under, in one word; 0 for no bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(pub u64);

impl Scale {
    const SHIFT_BITS: u32 = 4;

    /// See [`Gcra::depth`].
    #[inline(always)]
    pub const fn depth(self) -> u64 {
        self.0 >> Self::SHIFT_BITS
    }

    /// See [`Gcra::shift`].
    #[inline(always)]
    pub const fn shift(self) -> u64 {
        self.0 & ((1 << Self::SHIFT_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_bucket_admits_nothing_and_never_owes() {
        let (closed, now) = (Gcra::CLOSED, 1_000_000_000);
        let fresh = closed.fresh(now);
        for time in [Time::exact(now), Time { now, tick: 10_000_000 }] {
            assert!(closed.will_do(time), "no clock is read for it");
            assert_eq!(closed.conform(fresh, time, 1), None);
            assert_eq!(closed.pass(fresh, time, 1), None);
            assert_eq!(closed.leased(fresh, time, 16), None);
        }
        assert_eq!(closed.decide(fresh, now, 1), Decision::Exceed);
        assert_eq!((closed.wait(fresh, now, 1), closed.left(0)), (u64::MAX, 0));
        assert_eq!((closed.lease(1), closed.untracked()), (0, 0));
    }
}
