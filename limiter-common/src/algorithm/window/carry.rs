//! Counts that follow a change of policy.

use super::Window;

impl Window {
    /// The word that carries state of another window over to this one. `slides` for the sliding window counter.
    ///
    /// Each count is kept as a share of the limit, rounded up: a full window stays full until it ends. When the length
    /// changes, it is the estimate that is kept so, as the count of the window of this length at `now`. State of no window
    /// gives an empty one.
    #[inline(always)]
    pub const fn carry(&self, word: u64, from: &Self, now: u64, slides: bool) -> u64 {
        let counts = from.at(word, now, slides);
        if from.length == 0 || from.limit == 0 {
            return self.full(now);
        }
        if from.length != self.length {
            let current = self.share(from.estimate(&counts), from);
            return self.pack(self.number(now), 0, current);
        }
        if from.limit == self.limit && from.unit == self.unit {
            return word;
        }
        let previous = self.share(counts.previous << from.coarse(), from);
        let current = self.share(counts.current, from);
        self.pack(counts.number, self.coarsen(previous), current)
    }

    /// The same share of the limit, rounded up.
    #[inline(always)]
    const fn share(&self, count: u64, from: &Self) -> u64 {
        // Below the limit, which is below 2^32 as the other: the product fits.
        let count = if count < from.limit { count } else { from.limit };
        let rounded = count.wrapping_mul(self.limit).wrapping_add(from.limit - 1);
        match rounded.checked_div(from.limit) {
            Some(share) => share,
            None => self.limit,
        }
    }
}
