//! The sliding log: the list of all that was admitted.

use super::{Exact, LOST, Verdict, is_last_fifth};

/// So many events in any window of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: u64,
    /// When each event counts, in the order in which they were admitted.
    events: Vec<u64>,
}

impl SlidingLog {
    /// Events that are kept, whatever the limit.
    pub const MOST: usize = 128;

    /// A log without events.
    #[must_use]
    pub const fn new(limit: u64, window: u64) -> Self {
        Self { limit, window, events: Vec::new() }
    }

    /// When an event at `now` counts, and whether the clock went far back. One that went back a
    /// little counts at the time of the last event; there is no time 0.
    fn moment(&self, now: u64) -> (u64, bool) {
        let now = now.max(1);
        match self.events.last() {
            Some(last) if now < *last && last - now <= LOST => (*last, false),
            Some(last) => (now, now < *last),
            None => (now, false),
        }
    }
}

impl Exact for SlidingLog {
    fn look(&self, now: u64, _: u64) -> Verdict {
        let (time, lost) = self.moment(now);
        let recent = self.events.iter().filter(|event| **event + self.window > time).count();
        if lost || (recent as u64) < self.limit { Verdict::Admit } else { Verdict::Refuse }
    }

    /// When the clock went far back, all that is still to come counts as of now.
    fn charge(&mut self, now: u64, _: u64) {
        let (time, lost) = self.moment(now);
        if lost {
            self.events.iter_mut().for_each(|event| *event = (*event).min(time));
        }
        self.events.push(time);
        if self.events.len() > Self::MOST {
            self.events.remove(0);
        }
    }

    fn is_near(&self, _: u64) -> bool {
        let Some(last) = self.events.last() else { return false };
        let recent = self.events.iter().filter(|event| **event + self.window > *last).count();
        is_last_fifth(self.limit.saturating_sub(recent as u64), self.limit)
    }

    /// It is never lost: it admits one, and that is the last event then.
    fn lose(&mut self, _: u64) {}
}
