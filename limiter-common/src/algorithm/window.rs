//! Windows of fixed length: the fixed window, and the sliding window counter.
//!
//! Time is cut into windows `[k * length, (k + 1) * length)`, and cost is counted in each. The fixed
//! window admits `limit` in every one of them, so up to twice that around an edge. The sliding window
//! counter also weighs in the previous window, by the share of it that a window that ends now would
//! still overlap: estimate = current + previous * (length - elapsed) / length. It is exact when the
//! cost of the previous window came evenly.
//!
//! The state is one word: the number of the newest window seen, the count of the one before, and its
//! own. The fields are as wide as the limit asks for, so the number of a window wraps after 2^15
//! windows at the largest limits and after 2^58 at the smallest. A source that was idle for over half
//! of that may be taken for one whose clock went back, and be refused for one window.
//!
//! Counts are exact in units of 2^unit, and the unit is 1 for limits below 2^32. The previous count
//! is kept in 16 bits and rounded up, so it may be too high by 2^-15 of the limit, and is exact for
//! limits below 2^16.

use crate::algorithm::{
    bounds::{BoundsError, check},
    near,
    policer::Decision,
    rate::Rate,
};

mod carry;
mod counts;
mod settle;
mod wait;

/// A limit of cost in a window of time; made by [`Window::new`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Nanoseconds in a window, from [`Window::SHORTEST`] to [`Window::LONGEST`].
    pub length: u64,
    /// Units that a window admits, below 2^32.
    pub limit: u64,
    /// A unit is 2^unit of cost, the smallest that the limit fits in; at most 32.
    pub unit: u32,
    /// The bits that a count takes: those of the limit, at most 32.
    pub bits: u32,
}

impl Window {
    /// The shortest window, in nanoseconds.
    pub const SHORTEST: u64 = 1_000_000;
    /// The longest window, in nanoseconds: 366 days.
    pub const LONGEST: u64 = Rate::MIN.period;

    /// The window that admits `limit` of cost in `length` nanoseconds.
    ///
    /// A limit of 2^32 or more is rounded down to units, by less than 2^-31 of it, and each cost is
    /// then rounded up to units, so that less may pass but never more.
    ///
    /// # Errors
    /// Any [`BoundsError`] but that the limit is too high.
    pub const fn new(limit: u64, length: u64) -> Result<Self, BoundsError> {
        if let Err(error) = check((limit, u64::MAX), length, (Self::SHORTEST, Self::LONGEST)) {
            return Err(error);
        }
        let unit = (u64::BITS - limit.leading_zeros()).saturating_sub(Self::COUNT_BITS);
        let limit = limit >> unit;
        Ok(Self { length, limit, unit, bits: u64::BITS - limit.leading_zeros() })
    }

    /// The word of a state in which nothing was counted.
    #[inline(always)]
    pub const fn full(&self, now: u64) -> u64 {
        self.pack(self.number(now), 0, 0)
    }

    /// Decides about `cost` at `now` (nanoseconds): it conforms while the estimate and the cost are within the limit. The
    /// estimate of a fixed window is its count, and where it `slides`, that of the sliding window counter.
    ///
    /// The estimate is rounded up. For limits below 2^16 in windows below 39 hours that decides as
    /// rational arithmetic does; for others it refuses what comes within 2^-15 of the limit, and
    /// never admits what rational arithmetic would refuse.
    ///
    /// A clock that is back by at most [`Gcra::TOLERANCE`](crate::algorithm::gcra::Gcra::TOLERANCE) counts into the newest window seen.
    #[inline(always)]
    pub const fn decide(&self, word: u64, now: u64, cost: u64, slides: bool) -> Decision {
        let counts = self.at(word, now, slides);
        if counts.lost {
            return Decision::Lost(self.pack(counts.number, 0, self.limit));
        }
        let cost = self.units(cost);
        if cost <= self.limit && self.estimate(&counts) <= self.limit - cost {
            Decision::Conform(self.pack(counts.number, counts.previous, counts.current + cost))
        } else {
            Decision::Exceed
        }
    }

    /// The word without a cost that was charged at `now` and is refused by another limit after all.
    ///
    /// What was counted in a window that is the previous one by now is taken back from that, rounded
    /// down, and is left in older ones. A cost that a clock behind the others charged counts as one
    /// of its own window then, which takes back less than was charged, as time goes by.
    #[inline(always)]
    pub const fn refund(&self, word: u64, now: u64, cost: u64) -> u64 {
        let cost = self.units(cost);
        let (previous, current) = self.fields(word);
        let number = self.number(now);
        match self.ahead(word, number) {
            0 => self.pack(number, previous, current.saturating_sub(cost)),
            1 => {
                let previous = previous.saturating_sub(cost >> self.coarse());
                self.pack(number.wrapping_add(1), previous, current)
            }
            _ => word,
        }
    }

    /// The cost that the window counts at `now` (nanoseconds), or where it `slides`, estimates.
    #[inline(always)]
    pub const fn fill(&self, word: u64, now: u64, slides: bool) -> u64 {
        self.estimate(&self.at(word, now, slides)) << (self.unit & 63)
    }

    /// Whether the window is [near] at `now` (nanoseconds), by its estimate where it `slides`.
    #[inline(always)]
    pub const fn is_near(&self, word: u64, now: u64, slides: bool) -> bool {
        let counts = self.at(word, now, slides);
        // Mostly it takes no division to tell that it is not: the previous window weighs no more than this.
        let most = counts.current + (counts.previous << self.coarse());
        near::is(most, self.limit) && near::is(self.estimate(&counts), self.limit)
    }

    /// A cost in units, rounded up.
    #[inline(always)]
    const fn units(&self, cost: u64) -> u64 {
        let unit = self.unit & 63;
        (cost >> unit) + (cost & ((1 << unit) - 1) != 0) as u64
    }
}
