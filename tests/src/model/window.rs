//! Windows: fixed ones, and the sliding window counter.

use super::{Exact, LOST, Verdict, is_last_fifth};

/// So much in a window of time.
///
/// A fixed one counts from a multiple of its length to the next. The sliding window counter adds what
/// the window before counted, weighted by how much of it is still within one length of now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    length: u64,
    limit: u64,
    sliding: bool,
    /// The newest window that was counted in.
    newest: u64,
    /// What the one before counted, and what it counts.
    counts: [u64; 2],
}

impl Window {
    /// A fixed window that nothing was counted in at `now`.
    #[must_use]
    pub fn fixed(limit: u64, length: u64, now: u64) -> Self {
        Self { length, limit, sliding: false, newest: now / length, counts: [0; 2] }
    }

    /// A sliding window counter that nothing was counted in at `now`.
    #[must_use]
    pub fn sliding(limit: u64, length: u64, now: u64) -> Self {
        Self { sliding: true, ..Self::fixed(limit, length, now) }
    }

    /// The window that a packet at `now` counts in, and how much of it has passed; `None` when the
    /// clock went too far back from the newest one.
    fn at(&self, now: u64) -> Option<(u64, u64)> {
        let number = now / self.length;
        if number >= self.newest {
            return Some((number, now % self.length));
        }
        let early = u128::from(self.newest) * u128::from(self.length) - u128::from(now);
        (early <= u128::from(LOST)).then_some((self.newest, 0))
    }

    /// What counts when so much of a window has passed, times the length, so that nothing is rounded.
    fn sum(&self, number: u64, elapsed: u64) -> u128 {
        let [previous, current] = self.counts(number).map(u128::from);
        let [length, left] = [self.length, self.length - elapsed].map(u128::from);
        current * length + if self.sliding { previous * left } else { 0 }
    }

    /// The counts of a window, as they were when it began or are.
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
