//! The pace of reads that may take long: scans of all sources, and details of one.

use std::time::{Duration, Instant};

/// After a read that took `t`, the next one waits for `REST * t`. A scan of a million sources takes
/// a good part of a second.
const REST: u32 = 9;

/// Keeps reads to a tenth of the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    next: Option<Instant>,
}

impl Pace {
    /// Whether the next read is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// Notes a read that ended at `now` and took this long.
    pub(super) fn scanned(&mut self, now: Instant, took: Duration) {
        self.next = took.checked_mul(REST).and_then(|rest| now.checked_add(rest)).or(self.next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_take_a_tenth_of_the_time() {
        let mut now = Instant::now();
        let (start, cost, tick) = (now, Duration::from_millis(500), Duration::from_secs(1));
        let mut pace = Pace::default();
        let mut scanning = Duration::ZERO;
        for _ in 0..1_000 {
            if pace.is_due(now) {
                now += cost;
                scanning += cost;
                pace.scanned(now, cost);
            }
            now += tick;
        }
        let share = scanning.as_secs_f64() / (now - start).as_secs_f64();
        assert!((0.05..0.1).contains(&share), "{share}");
    }

    #[test]
    fn a_cheap_scan_is_made_at_every_reading() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.scanned(now, Duration::from_millis(2));
        assert!(pace.is_due(now + Duration::from_millis(100)));
    }
}
