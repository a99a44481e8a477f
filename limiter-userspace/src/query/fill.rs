//! How much of a limit is used.

use std::time::Duration;

use limiter_common::{
    algorithm::{gcra::Gcra, kind::Kind, meter::Meter, sliding_log::SlidingLog, window::Window},
    base::{slots::Slots, word::Word},
};

use super::state::State;

/// How much of a limit is used, in the unit that the limit counts: packets or bytes, for example.
///
/// [`left`](Self::left) is what would pass at once now. A bucket with part of a token passes one
/// packet more, which owes the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The most that the limit admits at once, after a rest.
    pub most: u64,
    /// The part of `most` that is used; equal to `most` while nothing is left.
    pub used: u64,
    /// Time until a packet conforms; `None` if none ever does.
    pub next: Option<Duration>,
    /// Time until nothing is used.
    pub full: Duration,
}

impl Fill {
    /// The part that is used, in percent: 0 to 100.
    pub fn percent(&self) -> u64 {
        let share = u128::from(self.used) * 100 / u128::from(self.most.max(1));
        u64::try_from(share.min(100)).unwrap_or(100)
    }

    /// The part of `most` that is not used.
    pub const fn left(&self) -> u64 {
        self.most - self.used
    }

    /// A sort key: the part that is used, then the time until a packet conforms.
    pub(super) fn rank(&self) -> (u64, Option<Duration>) {
        let part = u128::from(self.used) * 1_000_000 / u128::from(self.most.max(1));
        // A limit that never admits a packet sorts after all others.
        let next = self.next.unwrap_or(Duration::MAX);
        (u64::try_from(part).unwrap_or(u64::MAX), Some(next))
    }

    /// The fill of a state of one word at `now`, in nanoseconds, for packets of `cost`. `None` for
    /// other kinds of state.
    pub(super) fn of(state: &State, now: u64, cost: u64) -> Option<Self> {
        Self::of_word(&state.meter, state.word(now), now, cost)
    }

    /// The fill of a state of this word, which is not lost; as [`of`](Self::of).
    pub(crate) fn of_word(meter: &Meter, word: u64, now: u64, cost: u64) -> Option<Self> {
        match meter.kind() {
            // There is nothing that could be used of it.
            Kind::Bucket if meter.gcra == Gcra::CLOSED => None,
            Kind::Bucket => Some(bucket(&meter.gcra, word, now, cost)),
            Kind::Fixed | Kind::Sliding => Some(window(meter, word, now, cost)),
            Kind::SlidingLog | Kind::Concurrent => None,
        }
    }

    /// The fill of a log at `now`, in nanoseconds.
    pub(crate) fn of_log(
        log: SlidingLog,
        control: &impl Word,
        slots: &impl Slots,
        now: u64,
    ) -> Self {
        let (wait, rest) = (log.wait(control, slots, now), log.rest(control, slots, now));
        Self::of_count(log.limit, log.fill(control, slots, now), wait, rest)
    }

    /// The fill of a limit that counts what lasts: events, or connections. `wait` and `rest` are in nanoseconds,
    /// [`u64::MAX`] for a wait without end.
    pub(super) fn of_count(most: u64, used: u64, wait: u64, rest: u64) -> Self {
        let next = (wait != u64::MAX).then(|| Duration::from_nanos(wait));
        Self { most, used: used.min(most), next, full: Duration::from_nanos(rest) }
    }
}

fn bucket(gcra: &Gcra, word: u64, now: u64, cost: u64) -> Fill {
    let spent = gcra.spent(word, now);
    let most = gcra.left(0);
    let next = match gcra.wait(word, now, cost) {
        u64::MAX => None,
        wait => Some(Duration::from_nanos(wait)),
    };
    let full = Duration::from_nanos(spent.div_ceil(1 << gcra.shift));
    Fill { most, used: most - gcra.left(spent).min(most), next, full }
}

fn window(meter: &Meter, word: u64, now: u64, cost: u64) -> Fill {
    let Window { length, limit, unit, .. } = meter.window();
    // A fixed window forgets its count at its end, a sliding one a window later.
    let slides = !matches!(meter.kind(), Kind::Fixed);
    let (used, windows) = (meter.window().fill(word, now, slides), 1 + u64::from(slides));
    let next = match meter.wait(word, now, cost) {
        u64::MAX => None,
        wait => Some(Duration::from_nanos(wait)),
    };
    let elapsed = now.checked_rem(length).unwrap_or(0);
    let full = if used == 0 { 0 } else { (length * windows).saturating_sub(elapsed) };
    let most = limit << (unit & 63);
    Fill { most, used: used.min(most), next, full: Duration::from_nanos(full) }
}

#[cfg(test)]
mod tests {
    use limiter_common::algorithm::{
        near,
        policer::{Decision, Policer as _},
        rate::{Rate, SECOND},
    };

    use super::*;

    const NOW: u64 = 1_000_000 * SECOND;

    fn rates() -> [Rate; 5] {
        [
            Rate { packets: 5, period: 60 * SECOND },
            Rate::per_second(3),
            Rate::per_second(1_000),
            Rate::per_second(10_000_000),
            Rate::per_second(90_000_000_000),
        ]
    }

    fn fill(gcra: Gcra, word: u64, now: u64) -> Fill {
        let meter = Meter::bucket(gcra);
        let state = State::fresh(meter, 0);
        Fill::of(&state.with_word(word), now, 1).unwrap()
    }

    /// Charges packets of cost 1 until one is refused.
    fn drain(gcra: &Gcra, mut word: u64, now: u64) -> (u64, u64) {
        for packets in 0.. {
            match gcra.decide(word, now, 1) {
                Decision::Conform(next) => word = next,
                _ => return (packets, word),
            }
        }
        (u64::MAX, word)
    }

    #[test]
    fn what_is_left_is_what_conforms() {
        for rate in rates() {
            for burst in [1, 2, 7, 100] {
                let queue = rate.queue(burst, 1).unwrap();
                let tolerance = rate.gcra(7 * SECOND, 1);
                let buckets = [Ok(rate.bucket(burst, 1).unwrap()), Ok(queue), tolerance];
                for gcra in buckets.into_iter().flatten() {
                    let fresh = gcra.fresh(NOW);
                    // Above 250 M/s the interval has a fraction, and the units of a single packet
                    // are rounded down.
                    if gcra.fraction != 0 || fill(gcra, fresh, NOW).most > 10_000 {
                        continue;
                    }
                    let (most, empty) = drain(&gcra, fresh, NOW);
                    let full = fill(gcra, fresh, NOW);
                    assert_eq!((full.most, full.used, full.full), (most, 0, Duration::ZERO));
                    assert_eq!(full.next, Some(Duration::ZERO), "{gcra:?}");
                    let spent = fill(gcra, empty, NOW);
                    assert_eq!((spent.used, spent.left()), (most, 0), "{gcra:?}");
                    for later in 0..40 {
                        let now = NOW + later * rate.period / rate.packets / 3;
                        let (left, _) = drain(&gcra, empty, now);
                        assert_eq!(fill(gcra, empty, now).left(), left.min(most), "{gcra:?}");
                    }
                }
            }
        }
    }

    /// A bucket is near by its threshold exactly when it is near by the part that is used.
    #[test]
    fn a_bucket_is_near_by_what_is_used() {
        let mut seen = [0; 2];
        for rate in rates() {
            for burst in [1, 2, 4, 5, 7, 100, 999] {
                let buckets = [
                    rate.bucket(burst, 1),
                    rate.bucket(burst, 1_500),
                    rate.queue(burst, 1),
                    rate.gcra(7 * SECOND, 1),
                    rate.gcra(0, 1),
                ];
                for gcra in buckets.into_iter().flatten() {
                    let edge = gcra.near.saturating_sub(2)..gcra.near + 3;
                    let steps = (0..40).map(|step| gcra.depth / 32 * step);
                    for spent in edge.chain(steps).filter(|spent| *spent > 0) {
                        let word = gcra.fresh(NOW).wrapping_add(spent);
                        let Fill { used, most, .. } = fill(gcra, word, NOW);
                        let is_near = gcra.is_near(word, NOW);
                        assert_eq!(is_near, near::is(used, most), "{gcra:?}, {spent}");
                        seen[usize::from(is_near)] += 1;
                    }
                }
            }
        }
        assert!(seen.iter().all(|number| *number > 1_000), "{seen:?}");
    }

    #[test]
    fn a_rest_leaves_the_whole_burst() {
        for rate in rates() {
            for burst in [1, 7, 1_000, 123_456] {
                for gcra in [rate.bucket(burst, 1), rate.queue(burst, 1)].into_iter().flatten() {
                    let full = fill(gcra, gcra.fresh(NOW), NOW);
                    assert_eq!((full.most, full.left()), (burst, burst), "{gcra:?}");
                }
            }
        }
    }

    #[test]
    fn the_times_are_those_at_which_it_happens() {
        for rate in rates() {
            let gcra = rate.bucket(5, 1).unwrap();
            let (_, empty) = drain(&gcra, gcra.fresh(NOW), NOW);
            let spent = fill(gcra, empty, NOW);
            let next = spent.next.unwrap().as_nanos() as u64;
            assert!(matches!(gcra.decide(empty, NOW + next, 1), Decision::Conform(_)), "{gcra:?}");
            if next > 0 {
                assert_eq!(gcra.decide(empty, NOW + next - 1, 1), Decision::Exceed, "{gcra:?}");
            }
            let full = NOW + spent.full.as_nanos() as u64;
            assert_eq!(fill(gcra, empty, full).full, Duration::ZERO);
            assert!(fill(gcra, empty, full - 1).full > Duration::ZERO, "{gcra:?}");
        }
    }

    /// A word that is too far ahead of the clock counts as lost. The next packet finds the bucket
    /// empty, and it takes its full time to refill.
    #[test]
    fn a_word_that_is_lost_is_empty() {
        let gcra = Rate::per_second(10).bucket(5, 1).unwrap();
        let lost = fill(gcra, gcra.fresh(NOW + 3_600 * SECOND), NOW);
        assert_eq!((lost.used, lost.full), (5, Duration::from_millis(500)));
    }
}
