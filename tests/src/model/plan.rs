//! Several limits, charged together or not at all.

use super::{Exact as _, Model, Verdict};

/// The limits that may apply to a packet, by place, in the order in which they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<const N: usize> {
    /// The limits; `None` for a free place.
    pub limits: [Option<Model>; N],
    /// Whether each limit is enforced; the others are monitored.
    pub enforced: [bool; N],
    /// The places in the order in which they are checked. A limit is not checked once one before it has
    /// refused.
    pub order: [usize; N],
}

/// The result for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<const N: usize> {
    /// The place of the first limit that refused it.
    pub refused: Option<usize>,
    /// The limits that it was charged to.
    pub charged: [bool; N],
    /// The monitored limits that were checked and would have refused it.
    pub exceeded: [bool; N],
}

impl<const N: usize> Plan<N> {
    /// Decides about a packet at `now` to which the limits in `applies` apply, at the given cost for each.
    pub fn admit(&mut self, applies: [bool; N], costs: [u64; N], now: u64) -> Outcome<N> {
        let mut outcome = Outcome { refused: None, charged: [false; N], exceeded: [false; N] };
        for place in self.order {
            let Some(limit) = &mut self.limits[place] else { continue };
            if !applies[place] || outcome.refused.is_some_and(|first| place > first) {
                continue;
            }
            let verdict = limit.look(now, costs[place]);
            if verdict == Verdict::Lose {
                limit.lose(now);
            }
            if verdict != Verdict::Admit {
                if self.enforced[place] {
                    outcome.refused = Some(place);
                } else {
                    outcome.exceeded[place] = true;
                }
            }
        }
        if outcome.refused.is_some() {
            return outcome;
        }
        for (place, limit) in self.limits.iter_mut().enumerate() {
            if let Some(limit) = limit
                && applies[place]
                && !outcome.exceeded[place]
            {
                limit.charge(now, costs[place]);
                outcome.charged[place] = true;
            }
        }
        outcome
    }
}
