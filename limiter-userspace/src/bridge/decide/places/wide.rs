//! The rows whose state is more than a word: logs, and places of open requests.

use limiter_common::algorithm::{
    concurrent::{Concurrent, Signal},
    kind::WideKind,
    policer::Refusal,
    sliding_log::SlidingLog,
};

use super::{
    super::super::{
        answer::Answer,
        lease::{Lease, Numbers},
        rules::Row,
        table::Area,
    },
    Limited, State, standing,
};

impl Limited<'_> {
    /// The algorithm of the row at a place, if its state is more than a word.
    pub(super) fn wide(&self, at: usize) -> Option<WideKind> {
        let Row { area, kind, .. } = self.rules.rows[self.places[at].row];
        (area == Area::Wide).then(|| WideKind::of(kind.number()))
    }

    /// Looks whether the row at a place has room for the request.
    pub(super) fn look_wide(&self, at: usize, kind: WideKind) -> Result<(), Refusal> {
        let place = &self.places[at];
        let limit = standing::for_cost(self.meter(at).gcra.depth, place.cost);
        let limit = limit.ok_or(Refusal::Exceed)?;
        let (State::Own(entry) | State::Shared(entry)) = place.state else { return Ok(()) };
        let (word, slots) = (self.table.word(entry), self.table.slots(entry));
        match kind {
            WideKind::SlidingLog => {
                let log = SlidingLog { limit, ..self.meter(at).sliding_log() };
                log.look(&word, &slots, self.now).map(drop)
            }
            WideKind::Concurrent => {
                let open = self.meter(at).concurrent().held(&slots, self.now);
                if open < limit { Ok(()) } else { Err(Refusal::Exceed) }
            }
        }
    }

    /// Charges as many events or places as the request costs.
    pub(super) fn charge_wide(&mut self, at: usize, kind: WideKind, leased: &mut Numbers) {
        let bit = 1 << at & self.bill.due();
        if bit == 0 {
            return;
        }
        let (entry, cost, meter) = (self.made(at), self.places[at].cost, self.meter(at));
        let (word, slots, now) = (self.table.word(entry), self.table.slots(entry), self.now);
        let is_near = match kind {
            WideKind::SlidingLog => {
                let log = meter.sliding_log();
                let mut last = None;
                for _ in 0..cost {
                    let Ok(look) = log.look(&word, &slots, now) else { break };
                    last = log.attempt(&word, &slots, look, now);
                }
                last.map(|event| log.is_near(&slots, event))
            }
            WideKind::Concurrent => {
                let leases = meter.concurrent();
                leases.stamp(&word, now);
                let key = self.table.key(entry);
                // There is room for so many, as it was looked.
                let places = cost.min(Concurrent::MOST as u64) as u8;
                let lease = Lease { key, first: leased.take(places), places };
                self.places[at].lease = Some(lease);
                let mut last = None;
                for tag in lease.tags() {
                    let taken = leases
                        .look(&slots, tag, Signal::Open, now)
                        .and_then(|look| leases.charge(&slots, look, tag, Signal::Open, now));
                    last = taken.ok().or(last);
                }
                last.map(|look| leases.is_near(&slots, look, now))
            }
        };
        if let Some(is_near) = is_near {
            self.bill.charged |= bit;
            self.bill.note_near(bit, is_near);
        }
    }

    /// Tells the first of the requests that took places of them.
    pub(in crate::bridge::decide) fn lease(&self, answers: &mut [Answer]) {
        for place in &*self.places {
            let first = answers.get_mut(place.items.trailing_zeros() as usize);
            if let (Some(lease), Some(answer)) = (place.lease, first) {
                answer.leases.0.push(lease);
            }
        }
    }
}
