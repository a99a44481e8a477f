//! Reads and writes the amounts of allowances, whose keys and units depend on the algorithm and the count.

use limiter_common::algorithm::{concurrent::Concurrent, rate::Rate};

use super::{
    fault::Findings,
    names::{self, Algorithm},
    scalar,
    tree::Node,
    unit::Unit,
};
use crate::policy::{
    model::{Allowance, Count},
    units::{Burst, format_duration},
};

/// The keys of allowances; each algorithm has some of them.
pub(super) const KEYS: [&str; 7] =
    ["rate", "burst", "depth", "tolerance", "limit", "window", "idle"];

/// The keys of an algorithm.
pub(super) const fn keys_of(algorithm: Algorithm) -> &'static [&'static str] {
    match algorithm {
        Algorithm::TokenBucket => &["rate", "burst"],
        Algorithm::LeakyBucket => &["rate", "depth"],
        Algorithm::Gcra => &["rate", "tolerance"],
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
            &["rate", "limit", "window"]
        }
        Algorithm::Concurrent => &["limit", "idle"],
    }
}

/// What the meaning of an allowance's keys depends on.
#[derive(Clone, Copy)]
pub(super) struct Terms<'c> {
    pub(super) algorithm: Algorithm,
    pub(super) unit: Unit<'c>,
    /// The shortest period among the layers of a limit or override, in nanoseconds; `None` for a single one.
    pub(super) shortest: Option<u64>,
}

impl<'c> Terms<'c> {
    /// Of a limit on packets.
    pub(super) const fn new(algorithm: Algorithm, count: &'c Count) -> Self {
        Self::of(algorithm, Unit::Packets(count))
    }

    pub(super) const fn of(algorithm: Algorithm, unit: Unit<'c>) -> Self {
        Self { algorithm, unit, shortest: None }
    }

    pub(super) fn rate(self, node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Rate> {
        scalar::value(node, |text| self.unit.parse_rate(text), findings)
    }

    pub(super) fn amount(self, node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Burst> {
        scalar::value(node, |text| self.unit.parse_burst(text), findings)
    }

    /// The burst of a rate that was written without one. Among several layers, one with a longer period than
    /// another has room for its whole period: with less it would always refuse first, and the other layer
    /// never.
    pub(super) fn default_burst(self, rate: Rate) -> u64 {
        let usual = self.unit.default_burst(rate);
        if self.shortest.is_some_and(|shortest| rate.period > shortest) {
            usual.max(rate.packets.min(largest_burst(rate)))
        } else {
            usual
        }
    }

    /// The least that has to be admitted at once for the dearest packet or request to pass.
    pub(super) fn dearest(self) -> u64 {
        self.unit.room()
    }

    /// The algorithm as it is written.
    pub(super) fn algorithm_name(self) -> &'static str {
        names::word_for(&self.algorithm, &names::ALGORITHMS).unwrap_or_default()
    }

    pub(super) fn rate_name(self, rate: Rate) -> String {
        self.unit.rate(rate)
    }

    fn amount_name(self, amount: u64) -> String {
        self.unit.amount(amount)
    }

    /// An allowance as keys and values, without its algorithm.
    pub(super) fn written(self, allowance: &Allowance) -> Vec<(&'static str, String)> {
        match *allowance {
            Allowance::TokenBucket { rate, burst } => {
                vec![("rate", self.rate_name(rate)), ("burst", self.amount_name(burst))]
            }
            Allowance::LeakyBucket { rate, depth } => {
                vec![("rate", self.rate_name(rate)), ("depth", self.amount_name(depth))]
            }
            Allowance::Gcra { rate, tolerance } => {
                let tolerance = match tolerance {
                    0 if self.unit.is_bytes() => "1B".to_owned(),
                    0 => "1".to_owned(),
                    time => format_duration(time),
                };
                vec![("rate", self.rate_name(rate)), ("tolerance", tolerance)]
            }
            Allowance::FixedWindow { limit, window }
            | Allowance::SlidingWindow { limit, window }
            | Allowance::SlidingLog { limit, window } => {
                vec![("rate", self.rate_name(Rate { packets: limit, period: window }))]
            }
            Allowance::Concurrent { limit, idle } => {
                vec![("limit", limit.to_string()), ("idle", format_duration(idle))]
            }
        }
    }
}

/// The number of packets that a rate with a tolerance in nanoseconds admits at once.
pub(super) fn at_once(rate: Rate, tolerance: u64) -> u64 {
    let count = u128::from(tolerance) * u128::from(rate.packets);
    u64::try_from(count / u128::from(rate.period).max(1)).unwrap_or(u64::MAX).saturating_add(1)
}

/// The largest burst that a bucket can hold at this rate.
pub(super) fn largest_burst(rate: Rate) -> u64 {
    let (mut fits, mut too_long) = (1, u64::MAX);
    while too_long - fits > 1 {
        let middle = fits + (too_long - fits) / 2;
        if rate.bucket(middle, 1).is_ok() { fits = middle } else { too_long = middle }
    }
    fits
}

/// The algorithm of an allowance.
pub(super) const fn algorithm_of(allowance: &Allowance) -> Algorithm {
    match allowance {
        Allowance::TokenBucket { .. } => Algorithm::TokenBucket,
        Allowance::LeakyBucket { .. } => Algorithm::LeakyBucket,
        Allowance::Gcra { .. } => Algorithm::Gcra,
        Allowance::FixedWindow { .. } => Algorithm::FixedWindow,
        Allowance::SlidingWindow { .. } => Algorithm::SlidingWindow,
        Allowance::SlidingLog { .. } => Algorithm::SlidingLog,
        Allowance::Concurrent { .. } => Algorithm::Concurrent,
    }
}

/// Reads `idle` in nanoseconds: the time without packets after which a connection counts as closed, and that after which a
/// request does whose end nobody told.
pub(super) fn idle_time(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    let idle = scalar::duration(node, findings)?;
    let message = match idle {
        ..Concurrent::SHORTEST => "`idle` is 1 s at least",
        Concurrent::SHORTEST..=Concurrent::LONGEST => return Some(idle),
        _ => "`idle` is at most 30 days",
    };
    findings.add(node.at, message, "give 1s to 30d, such as `idle: 5m`");
    None
}
