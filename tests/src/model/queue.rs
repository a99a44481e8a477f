//! The leaky bucket: a queue that packets join and that drains at the rate.

use super::{Exact, Flow, Verdict, is_last_fifth};

/// A leaky bucket as a meter: a packet conforms if the whole packet fits into the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    flow: Flow,
    depth: i128,
    lost: i128,
    content: i128,
    at: u64,
}

impl Queue {
    /// An empty queue at `now` with room for cost `depth`, for packets of cost `dearest` at most.
    #[must_use]
    pub fn of(flow: Flow, depth: u64, dearest: u64, now: u64) -> Self {
        let depth = flow.fractions(depth);
        // After `lose`, the content is over the depth by one grain, the smallest excess there is.
        let over = depth + flow.grain;
        let lost = over + flow.lost(over, dearest);
        Self { flow, depth, lost, content: 0, at: now }
    }

    /// The content at `now`. For a `now` before the last charge, what drained in between is added again.
    fn content_at(&self, now: u64) -> i128 {
        let passed = i128::from(now) - i128::from(self.at);
        (self.content - self.flow.over(passed)).max(0)
    }
}

impl Exact for Queue {
    fn look(&self, now: u64, cost: u64) -> Verdict {
        let content = self.content_at(now);
        if content + self.flow.fractions(cost) <= self.depth {
            Verdict::Admit
        } else if content > self.lost {
            Verdict::Lose
        } else {
            Verdict::Refuse
        }
    }

    fn charge(&mut self, now: u64, cost: u64) {
        if now >= self.at {
            self.content = self.content_at(now);
            self.at = now;
        }
        self.content += self.flow.fractions(cost);
    }

    fn is_near(&self, now: u64) -> bool {
        // The cost of a packet is rounded down to the grain, so one fits when all but a grain of it is there.
        let packets = |room: i128| (room + self.flow.grain - 1).div_euclid(self.flow.per_cost);
        let room = (self.depth - self.content_at(now)).max(0);
        is_last_fifth(packets(room), packets(self.depth))
    }

    fn lose(&mut self, now: u64) {
        self.content = self.depth + self.flow.grain;
        self.at = now;
    }
}
