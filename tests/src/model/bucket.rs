//! The token bucket: a level that time raises and packets lower.

use super::{Exact, Flow, Verdict, is_last_fifth};

/// A token bucket.
///
/// A packet passes if any fraction of a token is there, and takes its whole cost. The level may so fall below
/// 0; that debt is refilled first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    flow: Flow,
    capacity: i128,
    lost: i128,
    level: i128,
    at: u64,
}

impl Bucket {
    /// A full bucket at `now` of `burst` tokens, refilled with `packets` tokens every `period` nanoseconds.
    /// Each packet costs one token.
    #[must_use]
    pub fn new(packets: i128, period: i128, burst: u64, now: u64) -> Self {
        Self::of(Flow::exact(packets, period), burst, 1, now)
    }

    /// A full bucket at `now`, for packets of cost `dearest` at most.
    #[must_use]
    pub fn of(flow: Flow, burst: u64, dearest: u64, now: u64) -> Self {
        let capacity = flow.fractions(burst);
        let lost = flow.lost(capacity, dearest);
        Self { flow, capacity, lost, level: capacity, at: now }
    }

    /// The level at `now`. For a `now` before the last charge, the refill between is subtracted, so a clock
    /// that goes back and forth refills nothing twice.
    fn level_at(&self, now: u64) -> i128 {
        let passed = i128::from(now) - i128::from(self.at);
        (self.level + self.flow.over(passed)).min(self.capacity)
    }

    /// Decides about a packet of cost 1 at `now`, and charges it if it is admitted.
    pub fn admit(&mut self, now: u64) -> bool {
        self.take(now, 1)
    }
}

impl Exact for Bucket {
    fn look(&self, now: u64, _: u64) -> Verdict {
        let level = self.level_at(now);
        if level > 0 {
            Verdict::Admit
        } else if -level > self.lost {
            Verdict::Lose
        } else {
            Verdict::Refuse
        }
    }

    fn charge(&mut self, now: u64, cost: u64) {
        if now >= self.at {
            self.level = self.level_at(now);
            self.at = now;
        }
        self.level -= self.flow.fractions(cost);
    }

    fn is_near(&self, now: u64) -> bool {
        // A packet passes with part of a token, so round up.
        let packets = |level: i128| -(-level).div_euclid(self.flow.per_cost);
        is_last_fifth(packets(self.level_at(now).max(0)), packets(self.capacity))
    }

    fn lose(&mut self, now: u64) {
        self.level = 0;
        self.at = now;
    }
}
