//! Rates, from the difference of two readings.

use std::{collections::VecDeque, time::Duration};

use limiter_common::{base::tally::Tally, packet::reason::REASONS};

use crate::datapath::snapshot::{LimitStatistics, Snapshot};

/// Two readings closer together than this give no rate, which would be too coarse.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// A rate in packets and bytes per second, for display.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Packets per second.
    pub packets: f64,
    /// Bytes per second.
    pub bytes: f64,
}

impl Flow {
    /// The rate at which a tally grew in this many seconds. A tally that went back, because its
    /// interface was detached or attached again, gives 0 until the next reading.
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub fn between(before: Tally, now: Tally, seconds: f64) -> Self {
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        Self { packets: rate(before.packets, now.packets), bytes: rate(before.bytes, now.bytes) }
    }

    fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }
}

/// The rates of passed and of dropped traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Split {
    /// Traffic that passed.
    pub passed: Flow,
    /// Traffic that was dropped.
    pub dropped: Flow,
}

impl Split {
    fn plus(self, other: Self) -> Self {
        Self { passed: self.passed.plus(other.passed), dropped: self.dropped.plus(other.dropped) }
    }
}

/// The rates of a limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitRate {
    /// The name of the limit, layer or candidate.
    pub name: String,
    /// Packets charged to it.
    pub conform: Flow,
    /// Packets that it refused.
    pub exceed: Flow,
    /// Packets that exceeded it and were not dropped for it, as it, the policy or the instance only
    /// monitors.
    pub monitored: Flow,
    /// Packets charged to it that left it near.
    pub near: Flow,
}

impl LimitRate {
    /// Packets that exceeded it, dropped or not.
    pub fn over(&self) -> Flow {
        self.exceed.plus(self.monitored)
    }
}

/// The rates between two readings.
#[derive(Clone, Debug)]
pub struct Rates {
    /// The time between the readings.
    pub elapsed: Duration,
    /// All interfaces together.
    pub total: Split,
    /// The interfaces of the later reading, in its order; `None` for an interface that the earlier
    /// one does not have.
    pub interfaces: Vec<Option<Split>>,
    /// Frames by [`Reason::index`](limiter_common::packet::reason::Reason::index).
    pub reasons: [Flow; REASONS],
    /// The limits of the later reading, in its order.
    pub limits: Vec<LimitRate>,
}

impl Rates {
    fn between(before: &Snapshot, now: &Snapshot, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        let interfaces: Vec<_> = now
            .interfaces
            .iter()
            .map(|interface| {
                let before = before.interfaces.iter().find(|it| it.link == interface.link)?;
                Some(Split {
                    passed: Flow::between(before.passed, interface.passed, seconds),
                    dropped: Flow::between(before.dropped, interface.dropped, seconds),
                })
            })
            .collect();
        Self {
            elapsed,
            total: interfaces.iter().flatten().fold(Split::default(), |sum, next| sum.plus(*next)),
            interfaces,
            reasons: std::array::from_fn(|place| {
                Flow::between(before.reasons[place], now.reasons[place], seconds)
            }),
            limits: now.limits.iter().map(|now| limit(before, now, seconds)).collect(),
        }
    }

    /// The rates of a limit, layer or candidate.
    pub fn limit(&self, name: &str) -> Option<&LimitRate> {
        self.limits.iter().find(|limit| limit.name == name)
    }
}

fn limit(before: &Snapshot, now: &LimitStatistics, seconds: f64) -> LimitRate {
    let (before, after) = (before.tally(&now.name), now.tally);
    LimitRate {
        name: now.name.clone(),
        conform: Flow::between(before.conform, after.conform, seconds),
        exceed: Flow::between(before.exceed, after.exceed, seconds),
        monitored: Flow::between(before.monitored, after.monitored, seconds),
        near: Flow::between(before.near, after.near, seconds),
    }
}

/// The latest reading, the rates up to it, and samples of earlier rates.
#[derive(Clone, Debug)]
pub struct History {
    latest: Snapshot,
    rates: Option<Rates>,
    samples: VecDeque<Split>,
}

impl History {
    /// The most samples that are kept: more than a terminal has columns.
    pub const SAMPLES: usize = 1024;

    /// Makes a history from the first reading.
    pub fn new(first: Snapshot) -> Self {
        Self { latest: first, rates: None, samples: VecDeque::with_capacity(Self::SAMPLES) }
    }

    /// Adds a reading. One that is less than a millisecond later than the latest is ignored.
    pub fn record(&mut self, snapshot: Snapshot) {
        let elapsed = snapshot.taken.saturating_duration_since(self.latest.taken);
        if elapsed < SHORTEST {
            return;
        }
        let rates = Rates::between(&self.latest, &snapshot, elapsed);
        if self.samples.len() == Self::SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(rates.total);
        self.rates = Some(rates);
        self.latest = snapshot;
    }

    /// The latest reading.
    pub const fn latest(&self) -> &Snapshot {
        &self.latest
    }

    /// The rates up to the latest reading; `None` before the second one.
    pub const fn rates(&self) -> Option<&Rates> {
        self.rates.as_ref()
    }

    /// The rates of all interfaces together, one for each reading after the first, the latest
    /// first.
    pub fn samples(&self) -> impl Iterator<Item = Split> {
        self.samples.iter().rev().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use limiter_common::packet::reason::Reason;

    use super::*;
    use crate::datapath::{mode::Mode, monitoring::Monitoring, snapshot::InterfaceStatistics};

    fn tally(packets: u64) -> Tally {
        Tally { packets, bytes: packets * 100 }
    }

    fn interface(name: &str, passed: u64, dropped: u64) -> InterfaceStatistics {
        let (passed, dropped) = (tally(passed), tally(dropped));
        let link = u32::from(name.as_bytes()[0]);
        InterfaceStatistics {
            link,
            name: name.into(),
            mode: Mode::Native,
            present: true,
            exists: true,
            unloaded: false,
            passed,
            dropped,
        }
    }

    fn snapshot(taken: Instant, interfaces: &[InterfaceStatistics]) -> Snapshot {
        let mut reasons = [Tally::default(); REASONS];
        for interface in interfaces {
            reasons[Reason::Conform.index()].packets += interface.passed.packets;
            reasons[Reason::Exceed.index()].packets += interface.dropped.packets;
        }
        let limits = Vec::new();
        let (monitoring, interfaces) = (Monitoring::default(), interfaces.to_vec());
        Snapshot { taken, monitoring, interfaces, reasons, limits }
    }

    fn pps(history: &History) -> (f64, f64) {
        let total = history.rates().unwrap().total;
        (total.passed.packets, total.dropped.packets)
    }

    #[test]
    fn rates_are_per_second_of_the_time_that_passed() {
        let start = Instant::now();
        let mut history = History::new(snapshot(start, &[interface("a", 1_000, 0)]));
        assert!(history.rates().is_none());
        let at = |ms| start + Duration::from_millis(ms);
        history.record(snapshot(at(500), &[interface("a", 1_500, 10)]));
        assert_eq!(pps(&history), (1_000.0, 20.0));
        assert_eq!(history.rates().unwrap().total.passed.bytes, 100_000.0);
        history.record(snapshot(at(4_500), &[interface("a", 9_500, 10)]));
        assert_eq!(pps(&history), (2_000.0, 0.0));
        assert_eq!(history.rates().unwrap().reasons[Reason::Conform.index()].packets, 2_000.0);
        let passed: Vec<_> = history.samples().map(|sample| sample.passed.packets).collect();
        assert_eq!(passed, [2_000.0, 1_000.0]);
    }

    #[test]
    fn a_reading_at_the_same_moment_changes_nothing() {
        let start = Instant::now();
        let mut history = History::new(snapshot(start, &[interface("a", 0, 0)]));
        history.record(snapshot(start, &[interface("a", 1_000_000, 0)]));
        assert!(history.rates().is_none());
        history.record(snapshot(start + Duration::from_secs(1), &[interface("a", 10, 0)]));
        assert_eq!(pps(&history), (10.0, 0.0));
    }

    #[test]
    fn counters_that_go_back_make_no_spike() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut history = History::new(snapshot(start, &[interface("a", 5_000_000, 7_000_000)]));
        history.record(snapshot(at(1), &[interface("a", 30, 5)]));
        assert_eq!(pps(&history), (0.0, 0.0));
        assert_eq!(history.rates().unwrap().reasons, [Flow::default(); REASONS]);
        history.record(snapshot(at(2), &[interface("a", 130, 15)]));
        assert_eq!(pps(&history), (100.0, 10.0));
    }

    #[test]
    fn interfaces_that_come_and_go_leave_the_others_alone() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut history = History::new(snapshot(start, &[interface("a", 100, 0)]));
        history.record(snapshot(at(1), &[interface("b", 9_000_000, 0), interface("a", 200, 0)]));
        assert_eq!(pps(&history), (100.0, 0.0));
        assert_eq!(history.rates().unwrap().interfaces[0], None);
        history.record(snapshot(at(2), &[interface("b", 9_000_050, 3), interface("a", 300, 0)]));
        assert_eq!(pps(&history), (150.0, 3.0));
        history.record(snapshot(at(3), &[interface("a", 400, 0)]));
        assert_eq!(pps(&history), (100.0, 0.0));
        history.record(snapshot(at(4), &[]));
        assert_eq!(pps(&history), (0.0, 0.0));
    }

    #[test]
    fn interfaces_of_the_same_name_are_told_apart() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let of = |link, name: &str, present, passed| {
            let it = interface(name, passed, 0);
            InterfaceStatistics { link, present, ..it }
        };
        // Interfaces 0 and 1 had the name of interface 2, and are elsewhere now. Interface 3 is
        // renamed.
        let mut history = History::new(snapshot(
            at(0),
            &[
                of(0, "a", false, 5_000_000),
                of(1, "a", false, 70),
                of(2, "a", true, 900),
                of(3, "b", true, 40),
            ],
        ));
        history.record(snapshot(
            at(1),
            &[
                of(0, "a", false, 5_000_001),
                of(1, "a", false, 72),
                of(2, "a", true, 904),
                of(3, "c", true, 48),
            ],
        ));
        assert_eq!(pps(&history), (15.0, 0.0));
        // Interface 2 moves elsewhere, and is still counted.
        history.record(snapshot(
            at(2),
            &[
                of(0, "a", false, 5_000_001),
                of(1, "a", false, 72),
                of(2, "a", false, 920),
                of(3, "c", true, 48),
            ],
        ));
        assert_eq!(pps(&history), (16.0, 0.0));
    }

    #[test]
    fn a_slot_that_another_interface_took_has_no_rate_yet() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let of =
            |link, name: &str, passed| [InterfaceStatistics { link, ..interface(name, passed, 0) }];
        let mut history = History::new(snapshot(at(0), &of(7, "eth0", 100)));
        history.record(snapshot(at(1), &of(8, "wan", 500_000)));
        assert_eq!(pps(&history), (0.0, 0.0));
        assert_eq!(history.rates().unwrap().interfaces, [None]);
        // The interface has a rate from its second reading on, whatever its name.
        history.record(snapshot(at(2), &of(8, "lan", 500_030)));
        assert_eq!(pps(&history), (30.0, 0.0));
    }

    #[test]
    fn old_samples_make_room() {
        let start = Instant::now();
        let mut history = History::new(snapshot(start, &[]));
        for second in 1..=History::SAMPLES as u64 + 10 {
            history.record(snapshot(start + Duration::from_secs(second), &[]));
        }
        assert_eq!(history.samples().count(), History::SAMPLES);
    }
}
