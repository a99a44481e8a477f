//! Events that are not asked about, and events that are given back later. Both are for a log that nobody else moves meanwhile.

use super::{Event, Log, SlidingLog};
use crate::{algorithm::policer::Look, base::word::Word};

impl SlidingLog {
    /// Charges so many events at `now` (nanoseconds), whether they conform or not. A log has room for [`MOST`](Self::MOST) events
    /// of a window, and what is beyond that is not charged: no event is forgotten that is in the window.
    pub fn charge_beyond(&self, control: &impl Word, slots: &impl Log, now: u64, events: u64) {
        let room = Self::LAP.saturating_sub(self.fill(control, slots, now));
        for _ in 0..events.min(room) {
            let seen = control.load_acquire();
            let next = Self::pack(Self::number(seen).wrapping_add(1), self.moment(seen, now).time);
            if self.attempt(control, slots, Look { seen, next }, now).is_none() {
                return;
            }
        }
    }

    /// Gives so many events of the window that ends at `now` (nanoseconds) back, the last ones first.
    pub fn give_back(&self, control: &impl Word, slots: &impl Log, now: u64, events: u64) {
        for _ in 0..events.min(Self::LAP) {
            let seen = control.load_acquire();
            let last = Self::number(seen).wrapping_sub(1);
            let moment = self.moment(seen, now);
            match Self::written(slots, last) {
                Ok(time) if Self::is_event(time) && !self.expired(time, moment.time) => {
                    Self::refund(control, slots, Event(Self::pack(last, time)));
                }
                _ => return,
            }
        }
    }
}
