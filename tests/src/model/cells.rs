//! GCRA as ITU-T I.371 has it, by virtual scheduling.

use super::{Exact, Flow, Verdict, is_last_fifth};

/// A cell is due one increment after the last; it may come early by the tolerance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    flow: Flow,
    tolerance: i128,
    lost: i128,
    /// The theoretical arrival time of the next cell, in fractions since time 0.
    due: i128,
}

impl Cells {
    /// No cell has come at `now`. Cells may be early by `tolerance` nanoseconds and cost `dearest` at most.
    #[must_use]
    pub fn of(flow: Flow, tolerance: u64, dearest: u64, now: u64) -> Self {
        let tolerance = flow.over(tolerance.into());
        // After `lose`, the cell is too early by one grain, the smallest excess there is.
        let over = tolerance + flow.grain;
        let lost = over + flow.lost(over, dearest);
        Self { flow, tolerance, lost, due: flow.over(now.into()) }
    }
}

impl Exact for Cells {
    fn look(&self, now: u64, _: u64) -> Verdict {
        let early = self.due - self.flow.over(now.into());
        if early <= self.tolerance {
            Verdict::Admit
        } else if early > self.lost {
            Verdict::Lose
        } else {
            Verdict::Refuse
        }
    }

    fn charge(&mut self, now: u64, cost: u64) {
        self.due = self.due.max(self.flow.over(now.into())) + self.flow.fractions(cost);
    }

    fn is_near(&self, now: u64) -> bool {
        // A cell may be early by exactly the tolerance, so round up.
        let packets = |early: i128| -(-early).div_euclid(self.flow.per_cost);
        let most = self.tolerance + self.flow.grain;
        let early = (self.due - self.flow.over(now.into())).max(0);
        is_last_fifth(packets((most - early).max(0)), packets(most))
    }

    fn lose(&mut self, now: u64) {
        self.due = self.flow.over(now.into()) + self.tolerance + self.flow.grain;
    }
}
