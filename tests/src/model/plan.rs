//! Several limits, charged together.

use super::{Exact as _, Model, Verdict};

/// The limits of one packet, narrow before wide, all of which are charged or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<const N: usize> {
    /// The limits; `None` where there is none.
    pub limits: [Option<Model>; N],
    /// Whether they are enforced; the others only count.
    pub enforced: [bool; N],
    /// The places in the order in which they are looked at. None is, once a narrower one has refused.
    pub order: [usize; N],
}

/// What comes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<const N: usize> {
    /// The place of the narrowest limit that refuses it.
    pub refused: Option<usize>,
    /// The limits that it was charged to.
    pub charged: [bool; N],
    /// The limits that only count, were asked, and would refuse it.
    pub exceeded: [bool; N],
}

impl<const N: usize> Plan<N> {
    /// Decides about a packet at `now` that the limits in `applies` are about, by what it costs.
    pub fn admit(&mut self, applies: [bool; N], costs: [u64; N], now: u64) -> Outcome<N> {
        let mut outcome = Outcome { refused: None, charged: [false; N], exceeded: [false; N] };
        for place in self.order {
            let Some(limit) = &mut self.limits[place] else { continue };
            if !applies[place] || outcome.refused.is_some_and(|narrowest| place > narrowest) {
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
