//! GCRA as ITU-T I.371 has it, by virtual scheduling.

use super::{Exact, Flow, Verdict, is_last_fifth};

/// Cells that are due one increment after another, and may be early by a tolerance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cells {
    flow: Flow,
    tolerance: i128,
    lost: i128,
    /// When the next cell is due: the theoretical arrival time, in fractions since time began.
    due: i128,
}

impl Cells {
    /// No cell has come at `now`; those that do may be early by `tolerance` nanoseconds and cost
    /// `dearest` at most.
    #[must_use]
    pub fn of(flow: Flow, tolerance: u64, dearest: u64, now: u64) -> Self {
        let tolerance = flow.over(tolerance.into());
        // One that is lost is earlier than that, by the least that it can be.
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
        // The last one is as early as it may be.
        let packets = |early: i128| -(-early).div_euclid(self.flow.per_cost);
        let most = self.tolerance + self.flow.grain;
        let early = (self.due - self.flow.over(now.into())).max(0);
        is_last_fifth(packets((most - early).max(0)), packets(most))
    }

    fn lose(&mut self, now: u64) {
        self.due = self.flow.over(now.into()) + self.tolerance + self.flow.grain;
    }
}
