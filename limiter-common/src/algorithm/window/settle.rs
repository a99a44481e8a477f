//! Charges that are not asked about, and charges that are given back later.

use super::Window;

impl Window {
    /// The word after a charge of this cost at `now` (nanoseconds), whether that conforms or not. The window counts its limit at
    /// most. `slides` for the sliding window counter.
    #[must_use]
    pub fn charge_beyond(&self, word: u64, now: u64, cost: u64, slides: bool) -> u64 {
        let counts = self.at(word, now, slides);
        let current = counts.current.saturating_add(self.units(cost)).min(self.limit);
        self.pack(counts.number, counts.previous, current)
    }

    /// The word after so much of what is counted was given back at `now` (nanoseconds): of this window, and then, where it
    /// `slides`, of the one before. A cost is rounded down to units. What was counted in older windows has ended.
    #[must_use]
    pub fn give_back(&self, word: u64, now: u64, cost: u64, slides: bool) -> u64 {
        let counts = self.at(word, now, slides);
        let units = cost >> (self.unit & 63);
        let of_previous = units.saturating_sub(counts.current) >> self.coarse();
        let previous = counts.previous.saturating_sub(of_previous);
        self.pack(counts.number, previous, counts.current.saturating_sub(units))
    }
}
