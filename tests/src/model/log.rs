//! The sliding log: a list of the times of all admitted packets.

use super::{Exact, LOST, Verdict, is_last_fifth};

/// At most `limit` events in any window of `window` nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: u64,
    /// The times of the events in nanoseconds, in the order of admission.
    events: Vec<u64>,
}

impl SlidingLog {
    /// Events that are kept, whatever the limit: the capacity of the real log.
    pub const MOST: usize = 128;

    /// An empty log for `limit` events in any `window` nanoseconds.
    #[must_use]
    pub const fn new(limit: u64, window: u64) -> Self {
        Self { limit, window, events: Vec::new() }
    }

    /// The time under which an event at `now` is logged, and whether the clock went back by more than
    /// [`LOST`]. After a smaller step back, events take the time of the last one. Time 0 counts as 1, because
    /// 0 marks a free slot in the real log.
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

    /// If the clock went far back, all events later than `now` are moved to `now`.
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

    /// The log is never lost: `look` admits such a packet, and `charge` moves the events.
    fn lose(&mut self, _: u64) {}
}
