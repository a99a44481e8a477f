//! Windows: the fixed window and the sliding window counter.

use super::{Exact, LOST, Verdict, is_last_fifth};

/// At most `limit` cost units in a window of time.
///
/// A fixed window starts at each multiple of its length. The sliding window counter adds the count of the
/// previous window, weighted by the share of it that lies within one length before now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    length: u64,
    limit: u64,
    sliding: bool,
    /// The number of the newest window with a packet: its start divided by the length.
    newest: u64,
    /// The counts of the window before that one, and of that one.
    counts: [u64; 2],
}

impl Window {
    /// A fixed window of `length` nanoseconds, without packets at `now`.
    #[must_use]
    pub fn fixed(limit: u64, length: u64, now: u64) -> Self {
        Self { length, limit, sliding: false, newest: now / length, counts: [0; 2] }
    }

    /// A sliding window counter over `length` nanoseconds, without packets at `now`.
    #[must_use]
    pub fn sliding(limit: u64, length: u64, now: u64) -> Self {
        Self { sliding: true, ..Self::fixed(limit, length, now) }
    }

    /// The number of the window of a packet at `now`, and the nanoseconds of it that have passed. A `now`
    /// before the newest window counts as its start; `None` if it is earlier by more than [`LOST`].
    fn at(&self, now: u64) -> Option<(u64, u64)> {
        let number = now / self.length;
        if number >= self.newest {
            return Some((number, now % self.length));
        }
        let early = u128::from(self.newest) * u128::from(self.length) - u128::from(now);
        (early <= u128::from(LOST)).then_some((self.newest, 0))
    }

    /// The weighted count when `elapsed` nanoseconds of a window have passed, multiplied by the length so
    /// that nothing is rounded.
    fn sum(&self, number: u64, elapsed: u64) -> u128 {
        let [previous, current] = self.counts(number).map(u128::from);
        let [length, left] = [self.length, self.length - elapsed].map(u128::from);
        current * length + if self.sliding { previous * left } else { 0 }
    }

    /// The counts of the window before `number`, and of window `number`.
    fn counts(&self, number: u64) -> [u64; 2] {
        match number - self.newest {
            0 => self.counts,
            1 => [self.counts[1], 0],
            _ => [0; 2],
        }
    }
}

impl Exact for Window {
    fn look(&self, now: u64, cost: u64) -> Verdict {
        let Some((number, elapsed)) = self.at(now) else { return Verdict::Lose };
        let length = u128::from(self.length);
        let sum = self.sum(number, elapsed) + u128::from(cost) * length;
        if sum <= u128::from(self.limit) * length { Verdict::Admit } else { Verdict::Refuse }
    }

    fn charge(&mut self, now: u64, cost: u64) {
        if let Some((number, _)) = self.at(now) {
            self.counts = self.counts(number);
            self.newest = number;
            self.counts[1] += cost;
        }
    }

    fn is_near(&self, now: u64) -> bool {
        self.at(now).is_some_and(|(number, elapsed)| {
            let used = self.sum(number, elapsed).div_ceil(self.length.into());
            let left = u128::from(self.limit).saturating_sub(used);
            is_last_fifth(left as i128, self.limit.into())
        })
    }

    fn lose(&mut self, now: u64) {
        self.newest = now / self.length;
        self.counts = [0, self.limit];
    }
}
