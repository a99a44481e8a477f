//! A pace kept by absolute deadlines, so that delays do not add up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A flag that stops senders. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Sets the flag.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number of packets per second, for a length of time.
#[derive(Clone, Debug)]
pub struct Pace {
    start: Instant,
    per_second: u64,
    total: u64,
    given: u64,
    /// The time of the last look at the clock, since the start.
    seen: Duration,
    paused: Duration,
}

impl Pace {
    /// The shortest sleep; waking up more often costs more than it gains.
    const NAP: Duration = Duration::from_micros(200);
    /// The longest sleep, so that the stop flag is seen soon.
    const DOZE: Duration = Duration::from_millis(20);
    /// A gap between two looks at the clock that is longer than this counts as a pause of the machine.
    const PAUSE: Duration = Duration::from_millis(40);

    /// Starts a pace of `per_second` packets, for `length`, now.
    #[must_use]
    pub fn new(per_second: u64, length: Duration) -> Self {
        let total = u128::from(per_second) * length.as_nanos() / 1_000_000_000;
        let [seen, paused] = [Duration::ZERO; 2];
        Self { start: Instant::now(), per_second, total: total as u64, given: 0, seen, paused }
    }

    /// The time of the start.
    #[must_use]
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// The sum of all gaps in which this thread did not run. A bucket that is full gains nothing in such a
    /// gap, so a test subtracts it.
    #[must_use]
    pub const fn paused(&self) -> Duration {
        self.paused
    }

    /// Waits until packets are due and returns their number, at most `most`; 0 at the end or when stopped.
    pub fn wait(&mut self, most: usize, stop: &Stop) -> usize {
        while self.given < self.total && !stop.is_stopped() {
            let elapsed = self.start.elapsed();
            let unseen = elapsed.saturating_sub(self.seen);
            if unseen > Self::PAUSE {
                self.paused += unseen;
            }
            self.seen = elapsed;
            let due = elapsed.as_nanos() * u128::from(self.per_second) / 1_000_000_000 + 1;
            let due = (due as u64).min(self.total);
            if due > self.given {
                let count = (due - self.given).min(most as u64);
                self.given += count;
                return count as usize;
            }
            let next = u128::from(self.given) * 1_000_000_000 / u128::from(self.per_second);
            let next = Duration::from_nanos(next as u64).saturating_sub(elapsed);
            thread::sleep(next.clamp(Self::NAP, Self::DOZE));
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_gives_all_its_packets_and_not_before_their_time() {
        for (per_second, milliseconds, total) in [(100_000, 50, 5_000), (100, 55, 5), (7, 0, 0)] {
            let start = Instant::now();
            let mut pace = Pace::new(per_second, Duration::from_millis(milliseconds));
            let mut given = 0;
            loop {
                let count = pace.wait(64, &Stop::default());
                let due = start.elapsed().as_secs_f64() * per_second as f64 + 1.0;
                given += count;
                assert!(given as f64 <= due, "{given} of {due} at {per_second}/s");
                if count == 0 {
                    break;
                }
            }
            assert_eq!(given, total);
        }
    }

    #[test]
    fn a_pace_that_is_stopped_ends() {
        let stop = Stop::default();
        let mut pace = Pace::new(1, Duration::from_secs(3600));
        assert_eq!(pace.wait(64, &stop), 1);
        stop.clone().stop();
        assert_eq!(pace.wait(64, &stop), 0);
    }

    #[test]
    fn what_the_machine_does_instead_is_a_pause() {
        let mut pace = Pace::new(1_000, Duration::from_secs(60));
        let stop = Stop::default();
        assert_ne!(pace.wait(1, &stop), 0);
        let before = pace.paused();
        thread::sleep(2 * Pace::PAUSE);
        assert_ne!(pace.wait(1, &stop), 0);
        assert!(pace.paused() - before >= 2 * Pace::PAUSE);
    }
}
