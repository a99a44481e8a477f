//! The sources of the latest scan.

use std::{cmp::Reverse, collections::HashMap, time::Instant};

use ipnet::IpNet;
use limiter_common::base::address::Address;

use crate::datapath::{
    snapshot::Talker,
    survey::{Filter, Order, Sighting, rank},
};

/// A source, with its rates.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The source and its counts.
    pub talker: Talker,
    /// Packets per second since the scan before, passed and dropped; `None` at the first scan.
    pub rates: Option<[f64; 2]>,
    /// The change of its rate since the scan before; `None` if that did not find it.
    pub trend: Option<Trend>,
}

/// The change of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// Up, by a quarter or more.
    Up,
    /// Neither up nor down by that much.
    Even,
    /// Down, to four fifths or less.
    Down,
}

impl Trend {
    fn of(before: f64, now: f64) -> Self {
        if now * 4.0 >= before * 5.0 && now > before {
            Self::Up
        } else if now * 5.0 <= before * 4.0 && now < before {
            Self::Down
        } else {
            Self::Even
        }
    }

    /// The sign for it.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Up => "↑",
            Self::Even => "=",
            Self::Down => "↓",
        }
    }
}

impl Ranked {
    /// Its dropped packets per second; 0 if not known.
    pub fn drop_rate(&self) -> f64 {
        self.rates.map_or(0.0, |[_, dropped]| dropped)
    }

    /// The source, as a prefix.
    pub fn net(&self) -> IpNet {
        let Talker { address, prefix, .. } = self.talker;
        IpNet::new(address, prefix).unwrap_or_else(|_| address.into())
    }
}

/// The sources of the latest scan, in the order of the search.
#[derive(Clone, Debug, Default)]
pub struct Talkers {
    taken: Option<Instant>,
    rows: Vec<Ranked>,
    /// All sources of the scan, while `rows` has them sorted or filtered in another way.
    found: Option<Vec<Ranked>>,
}

impl Talkers {
    /// Takes in the result of a scan.
    pub fn update(&mut self, found: Vec<Sighting>, taken: Instant) {
        let before: HashMap<IpNet, f64> = self
            .rows
            .iter()
            .filter_map(|row| Some((row.net(), row.rates?.iter().sum::<f64>())))
            .collect();
        let ranked = |Sighting { talker, rates }: Sighting| {
            let rates = rates.map(|rates| rates.map(f64::from));
            let mut row = Ranked { talker, rates, trend: None };
            let before = before.get(&row.net());
            row.trend = rates.zip(before).map(|(now, before)| Trend::of(*before, now.iter().sum()));
            row
        };
        self.rows = found.into_iter().map(ranked).collect();
        (self.taken, self.found) = (Some(taken), None);
    }

    /// Sorts and filters the sources of the latest scan, without another scan.
    pub fn arrange(&mut self, order: Order, within: Option<&Filter>) {
        let found = self.found.get_or_insert_with(|| std::mem::take(&mut self.rows));
        let is_within = |net: IpNet| within.is_none_or(|within| within.includes(net));
        let rows = found.iter().filter(|row| is_within(row.net()));
        self.rows = rows.cloned().collect();
        self.rows.sort_by_cached_key(|row| {
            let Talker { address, passed, dropped, .. } = row.talker;
            let address = Address::from(address);
            #[expect(clippy::cast_possible_truncation, reason = "it was one before")]
            let rates = row.rates.map(|rates| rates.map(|rate| rate as f32));
            Reverse((rank(order, address, [passed, dropped], rates), Reverse(address)))
        });
    }

    /// The number of sources of the scan, while they are sorted or filtered in another way.
    pub fn among(&self) -> Option<usize> {
        self.found.as_ref().map(Vec::len)
    }

    /// The sources, ranked.
    pub fn rows(&self) -> &[Ranked] {
        &self.rows
    }

    /// When the latest scan was made.
    pub const fn taken(&self) -> Option<Instant> {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use limiter_common::base::tally::Tally;

    use super::*;

    fn sighting(address: &str, rates: Option<[f32; 2]>) -> Sighting {
        let (passed, dropped) = Default::default();
        let _: Tally = passed;
        let talker = Talker { address: address.parse().unwrap(), prefix: 32, passed, dropped };
        Sighting { talker, rates }
    }

    #[test]
    fn a_trend_is_of_what_was_there_before() {
        let mut talkers = Talkers::default();
        let mut trends = |rates: [Option<[f32; 2]>; 4]| {
            let found = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].into_iter().zip(rates);
            let found = found.map(|(address, rates)| sighting(address, rates)).collect();
            talkers.update(found, Instant::now());
            talkers.rows().iter().map(|row| row.trend.map(Trend::sign)).collect::<Vec<_>>()
        };
        let first = [None, None, None, None];
        assert_eq!(trends(first), [None; 4]);
        let then = [Some([0.0, 100.0]), Some([90.0, 10.0]), Some([0.0, 0.0]), Some([0.0, 0.0])];
        assert_eq!(trends(then), [None; 4]);
        let last = [Some([50.0, 75.0]), Some([70.0, 10.0]), Some([0.0, 0.0]), Some([0.0, 1.0])];
        assert_eq!(trends(last), [Some("↑"), Some("↓"), Some("="), Some("↑")]);
    }

    #[test]
    fn a_source_is_told_by_its_prefix() {
        let mut talkers = Talkers::default();
        talkers.update(vec![sighting("192.0.2.1", Some([1.0, 2.0]))], Instant::now());
        let row = &talkers.rows()[0];
        assert_eq!((row.net().to_string().as_str(), row.drop_rate()), ("192.0.2.1/32", 2.0));
    }
}
