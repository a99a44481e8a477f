//! Charges and refunds after the fact.

use limiter_common::{algorithm::kind::WideKind, base::word::Word as _};

use super::{super::Settlement, Limited, State};

impl Limited<'_> {
    /// Charges the rows whatever they have left, or gives back what they were charged. A key that was charged nothing has nothing
    /// to get back. Places of open requests are left as they are.
    pub(in crate::bridge::decide) fn settle(&mut self, settlement: Settlement) {
        for at in 0..self.places.len() {
            let place = self.places[at];
            let kind = self.wide(at);
            if kind == Some(WideKind::Concurrent) {
                // What was never open has no end.
                continue;
            }
            let entry = match (settlement, place.state) {
                (Settlement::Refund, State::Vacant(_)) => continue,
                (Settlement::Refund, _) => place.entry(),
                (Settlement::Charge, _) => self.made(at),
            };
            if settlement == Settlement::Refund {
                self.table.lowered(entry);
            }
            let (meter, now, cost) = (self.meter(at), self.now, place.cost);
            let word = self.table.word(entry);
            if kind == Some(WideKind::SlidingLog) {
                let (log, slots) = (meter.sliding_log(), self.table.slots(entry));
                match settlement {
                    Settlement::Charge => log.charge_beyond(&word, &slots, now, cost),
                    Settlement::Refund => log.give_back(&word, &slots, now, cost),
                }
                continue;
            }
            let seen = word.get();
            let next = match settlement {
                Settlement::Charge => meter.charge_beyond(seen, now, cost),
                Settlement::Refund => meter.give_back(seen, now, cost),
            };
            let _: u64 = word.compare_exchange(seen, next);
        }
    }
}
