//! What a log says of the past, and how an event is taken back.

use super::{Event, SlidingLog};
use crate::base::{slots::Slots, word::Word};

impl SlidingLog {
    /// Takes back an event whose packet is refused by another limit after all.
    ///
    /// If others were admitted since, its slot stays used up: until it would have left the window,
    /// the log may refuse what it could admit, and it never admits more.
    #[inline(never)]
    pub fn refund(control: &impl Word, slots: &impl Slots, event: Event) {
        let (number, time) = (Self::number(event.0), event.0 & Self::TIME);
        let (place, charged) = (Self::place(number), Self::slot(number, time));
        let void = Self::slot(number, Self::VOID);
        let seen = control.load();
        if Self::number(seen) != Self::number(Self::pack(number.wrapping_add(1), 0)) {
            let _: u64 = slots.compare_exchange(place, charged, void);
            return;
        }
        // First the slot, as it was when nobody had claimed it in this lap: the number may be given
        // out again as soon as the control word says so.
        let unclaimed = Self::slot(number.wrapping_sub(Self::LAP), 0);
        if slots.compare_exchange(place, charged, unclaimed) != charged {
            return;
        }
        // The time of the event stays: nothing before it was later.
        let back = Self::pack(number, seen & Self::TIME);
        if control.compare_exchange(seen, back) != seen {
            // Another event came in between. Nobody claims the slot while it looks unwritten.
            slots.store(place, void);
        }
    }

    /// Nanoseconds from `now` until an event conforms, unless others are charged meanwhile; 0 when
    /// one does at once or other CPUs are just writing, `u64::MAX` when none ever does.
    #[inline(always)]
    pub fn wait(&self, control: &impl Word, slots: &impl Slots, now: u64) -> u64 {
        let seen = control.load();
        let moment = self.moment(seen, now);
        if self.limit == 0 {
            return u64::MAX;
        }
        if moment.quiet || moment.lost {
            return 0;
        }
        let limit = if self.limit < Self::LAP { self.limit } else { Self::LAP };
        let Ok(event) = Self::written(slots, Self::number(seen).wrapping_sub(limit)) else {
            return 0;
        };
        if !Self::is_event(event) || self.expired(event, moment.time) {
            return 0;
        }
        // An event that is still to come counts until the last one has left the window.
        let age = moment.time.wrapping_sub(event) & Self::TIME;
        let from = if age < Self::FUTURE { event } else { seen & Self::TIME };
        from.wrapping_add(self.window).wrapping_sub(now) & Self::TIME
    }

    /// Nanoseconds from `now` until no event is in the window, unless others are charged meanwhile; 0
    /// when none is. Not for the packet path.
    #[inline(never)]
    pub fn rest(&self, control: &impl Word, slots: &impl Slots, now: u64) -> u64 {
        if self.fill(control, slots, now) == 0 {
            return 0;
        }
        let last = control.load() & Self::TIME;
        last.wrapping_add(self.window).wrapping_sub(now) & Self::TIME
    }

    /// The events in the window that ends at `now` (nanoseconds). Not for the packet path.
    #[inline(never)]
    pub fn fill(&self, control: &impl Word, slots: &impl Slots, now: u64) -> u64 {
        let moment = self.moment(control.load(), now);
        let mut events = 0;
        for place in 0..Self::MOST {
            let event = slots.load(place) & Self::TIME;
            if Self::is_event(event) && !self.expired(event, moment.time) {
                events += 1;
            }
        }
        if moment.quiet { 0 } else { events }
    }
}
