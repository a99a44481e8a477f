//! What the word of a window counts, and when.

use super::Window;
use crate::algorithm::gcra::Gcra;

/// A word, brought up to a time.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    /// The newest window seen, this one as a rule.
    pub(super) number: u64,
    /// Nanoseconds of it that have passed.
    pub(super) elapsed: u64,
    /// Nanoseconds until it begins; not 0 only when the clock went back a little.
    pub(super) early: u64,
    /// The count of the window before, in units of 2^[`Window::coarse`] units; 0 in a fixed window.
    pub(super) previous: u64,
    /// Its own count, in units.
    pub(super) current: u64,
    /// Whether the word is of a time that the clock went far back from.
    pub(super) lost: bool,
}

impl Window {
    /// The bits of a count.
    pub(super) const COUNT_BITS: u32 = 32;
    /// The bits of a previous count, one less than its field has: rounding up may carry.
    const PREVIOUS_BITS: u32 = 16;

    #[inline(always)]
    const fn bits(&self) -> u32 {
        if self.bits < Self::COUNT_BITS { self.bits } else { Self::COUNT_BITS }
    }

    /// A unit of a previous count is 2^coarse units.
    #[inline(always)]
    pub(super) const fn coarse(&self) -> u32 {
        self.bits().saturating_sub(Self::PREVIOUS_BITS)
    }

    /// The bits of a word that are not its number.
    #[inline(always)]
    const fn counted(&self) -> u32 {
        let bits = self.bits();
        if bits > Self::PREVIOUS_BITS { bits + Self::PREVIOUS_BITS + 1 } else { 2 * bits }
    }

    #[inline(always)]
    pub(super) const fn pack(&self, number: u64, previous: u64, current: u64) -> u64 {
        number << self.counted() | previous << self.bits() | current
    }

    /// The previous and the current count in a word.
    #[inline(always)]
    pub(super) const fn fields(&self, word: u64) -> (u64, u64) {
        let (bits, counted) = (self.bits(), self.counted());
        let [previous, current] = [(1_u64 << (counted - bits)) - 1, (1_u64 << bits) - 1];
        (word >> bits & previous, word & current)
    }

    /// The number of the window at `now`.
    #[inline(always)]
    pub(super) const fn number(&self, now: u64) -> u64 {
        match now.checked_div(self.length) {
            Some(number) => number,
            None => 0,
        }
    }

    /// By how many windows a word is newer than this number, modulo the wrap.
    #[inline(always)]
    pub(super) const fn ahead(&self, word: u64, number: u64) -> i64 {
        let counted = self.counted();
        ((word >> counted).wrapping_sub(number) << counted) as i64 >> counted
    }

    /// Brings a word up to `now`. `slides` for the sliding window counter.
    #[inline(always)]
    pub(super) const fn at(&self, word: u64, now: u64, slides: bool) -> Counts {
        let number = self.number(now);
        let elapsed = now.wrapping_sub(number.wrapping_mul(self.length));
        let (previous, current) = self.fields(word);
        let current = if current < self.limit { current } else { self.limit };
        let here = Counts { number, elapsed, early: 0, previous, current, lost: false };
        let mut counts = match self.ahead(word, number) {
            0 => here,
            -1 => Counts { previous: self.coarsen(current), current: 0, ..here },
            ahead if ahead < 0 => Counts { previous: 0, current: 0, ..here },
            ahead => {
                let ahead = ahead as u64;
                let early = ahead.wrapping_mul(self.length).wrapping_sub(elapsed);
                // The product wraps only for what is lost by its number already.
                if ahead > self.number(Gcra::TOLERANCE) + 1 || early > Gcra::TOLERANCE {
                    Counts { previous: 0, current: self.limit, lost: true, ..here }
                } else {
                    Counts { number: number.wrapping_add(ahead), elapsed: 0, early, ..here }
                }
            }
        };
        // Last, so that the verifier does not follow each of these ways for both kinds.
        counts.previous &= (slides as u64).wrapping_neg();
        counts
    }

    /// A count as it is kept of the previous window, rounded up.
    #[inline(always)]
    pub(super) const fn coarsen(&self, count: u64) -> u64 {
        let coarse = self.coarse();
        (count + ((1 << coarse) - 1)) >> coarse
    }

    /// The length and what remains of it, rounded up, in a unit in which 16 bits of count times the
    /// length fit in a word: 1 ns up to 39 hours, then about a microsecond.
    #[inline(always)]
    pub(super) const fn ticks(&self, remaining: u64) -> (u64, u64) {
        if self.length < 1 << 47 {
            return (self.length, remaining);
        }
        let length = self.length >> Self::TICK;
        let remaining = (remaining + ((1 << Self::TICK) - 1)) >> Self::TICK;
        (length, if remaining < length { remaining } else { length })
    }

    /// A tick of windows above 39 hours is 2^TICK ns.
    pub(super) const TICK: u32 = 10;

    /// The estimate, in units, rounded up.
    #[inline(always)]
    pub(super) const fn estimate(&self, counts: &Counts) -> u64 {
        if counts.previous == 0 {
            return counts.current;
        }
        let (length, remaining) = self.ticks(self.length.wrapping_sub(counts.elapsed));
        let product = counts.previous.wrapping_mul(remaining);
        let Some(whole) = product.checked_div(length) else { return self.limit };
        // In two steps, as the product in units would not fit.
        let rest = product.wrapping_sub(whole.wrapping_mul(length)) << self.coarse();
        let part = match rest.wrapping_add(length - 1).checked_div(length) {
            Some(part) => part,
            None => 0,
        };
        counts.current + (whole << self.coarse()) + part
    }
}
