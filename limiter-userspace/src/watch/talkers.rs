//! The sources that are dropped most at the moment.

use std::{collections::HashMap, net::IpAddr, time::Instant};

use super::history::{Flow, Split};
use crate::datapath::snapshot::Talker;

/// A source, and how fast it is.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The source and its counts.
    pub talker: Talker,
    /// Its rates since the scan before; nothing if it was not in that.
    pub rate: Option<Split>,
}

impl Ranked {
    /// Packets of it that are dropped per second, 0 if that is not known.
    pub fn drop_rate(&self) -> f64 {
        self.rate.map_or(0.0, |rate| rate.dropped.packets)
    }
}

/// The sources that the latest scan found, the one that is dropped most per second first, and among
/// equals the one that was dropped most.
#[derive(Clone, Debug, Default)]
pub struct Talkers {
    taken: Option<Instant>,
    rows: Vec<Ranked>,
}

impl Talkers {
    /// Takes in a scan.
    pub fn update(&mut self, talkers: Vec<Talker>, taken: Instant) {
        let seconds =
            self.taken.map_or(0.0, |before| taken.saturating_duration_since(before).as_secs_f64());
        let before: HashMap<(IpAddr, u8), &Talker> =
            self.rows.iter().map(|Ranked { talker, .. }| (key(talker), talker)).collect();
        let rate = |talker: &Talker| {
            let before = before.get(&key(talker)).filter(|_| seconds > 0.0)?;
            Some(Split {
                passed: Flow::between(before.passed, talker.passed, seconds),
                dropped: Flow::between(before.dropped, talker.dropped, seconds),
            })
        };
        let mut rows: Vec<_> =
            talkers.into_iter().map(|talker| Ranked { rate: rate(&talker), talker }).collect();
        rows.sort_by(|a, b| {
            let count = |row: &Ranked| (row.talker.dropped.packets, row.talker.passed.packets);
            b.drop_rate()
                .total_cmp(&a.drop_rate())
                .then_with(|| count(b).cmp(&count(a)))
                .then_with(|| a.talker.address.cmp(&b.talker.address))
        });
        self.rows = rows;
        self.taken = Some(taken);
    }

    /// The sources, ranked.
    pub fn rows(&self) -> &[Ranked] {
        &self.rows
    }

    /// When they were scanned.
    pub const fn taken(&self) -> Option<Instant> {
        self.taken
    }
}

const fn key(talker: &Talker) -> (IpAddr, u8) {
    (talker.address, talker.prefix)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use limiter_common::contract::Tally;

    use super::*;

    fn talker(address: &str, dropped: u64) -> Talker {
        let dropped = Tally { packets: dropped, bytes: 0 };
        let passed = Tally::default();
        Talker { address: address.parse().unwrap(), prefix: 32, passed, dropped }
    }

    fn order(talkers: &Talkers) -> Vec<(String, Option<f64>)> {
        let rate = |row: &Ranked| row.rate.map(|rate| rate.dropped.packets);
        talkers.rows().iter().map(|row| (row.talker.address.to_string(), rate(row))).collect()
    }

    #[test]
    fn the_fastest_comes_first_and_strangers_have_no_rate() {
        let start = Instant::now();
        let mut talkers = Talkers::default();
        talkers.update(vec![talker("192.0.2.1", 10), talker("192.0.2.2", 1_000)], start);
        assert_eq!(order(&talkers), [("192.0.2.2".into(), None), ("192.0.2.1".into(), None)]);
        talkers.update(
            vec![
                talker("192.0.2.1", 210),
                talker("192.0.2.2", 1_000),
                talker("192.0.2.3", 5_000),
                talker("192.0.2.4", 5_000),
            ],
            start + Duration::from_secs(2),
        );
        assert_eq!(
            order(&talkers),
            [
                ("192.0.2.1".into(), Some(100.0)),
                ("192.0.2.3".into(), None),
                ("192.0.2.4".into(), None),
                ("192.0.2.2".into(), Some(0.0)),
            ]
        );
    }

    #[test]
    fn a_source_that_was_forgotten_in_between_is_not_negative() {
        let start = Instant::now();
        let mut talkers = Talkers::default();
        talkers.update(vec![talker("192.0.2.1", 10_000)], start);
        talkers.update(vec![talker("192.0.2.1", 5)], start + Duration::from_secs(1));
        assert_eq!(order(&talkers), [("192.0.2.1".into(), Some(0.0))]);
        talkers.update(vec![talker("192.0.2.1", 9)], start + Duration::from_secs(1));
        assert_eq!(order(&talkers), [("192.0.2.1".into(), None)]);
    }
}
