//! A source that is looked at closely.

use std::collections::VecDeque;

use ipnet::IpNet;

use super::history::{Flow, History, SHORTEST, Split};
use crate::{
    output::limits::LimitRow,
    query::{explain::Explanation, source::SourceReport},
};

/// All that is known of a source, and what decides about its packets.
#[derive(Clone, Debug)]
pub struct Details {
    /// What is known of it.
    pub report: SourceReport,
    /// What decides.
    pub explanation: Explanation,
}

/// A source that is looked at closely, and how fast it was since that began.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The source.
    pub source: IpNet,
    /// What is known of it now.
    pub details: Details,
    /// The settings of the limits that there are for it, in their order.
    pub limits: Vec<LimitRow>,
    samples: VecDeque<Split>,
}

impl Opened {
    /// A source that one begins to look at.
    pub fn new(source: IpNet, details: Details) -> Self {
        Self { source, details, limits: Vec::new(), samples: VecDeque::new() }
    }

    /// Takes in what is known of it later. Its rates go by when it was counted: other sources may have
    /// been looked at for long before that.
    pub fn record(&mut self, details: Details) {
        let (before, now) = (&self.details.report, &details.report);
        let elapsed = now.counted.saturating_duration_since(before.counted);
        if elapsed < SHORTEST {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        let split = Split {
            passed: Flow::between(before.passed, now.passed, seconds),
            dropped: Flow::between(before.dropped, now.dropped, seconds),
        };
        if self.samples.len() == History::SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(split);
        self.details = details;
    }

    /// Takes in the settings of all limits.
    pub fn set(&mut self, all: &[LimitRow]) {
        let its = self.details.explanation.limits.iter();
        let row = |name: &str| all.iter().find(|row| row.name == name).cloned();
        self.limits = its.filter_map(|(limit, _)| row(&limit.name)).collect();
    }

    /// Its rates, one per reading since it was opened, the latest first.
    pub fn samples(&self) -> impl Iterator<Item = Split> {
        self.samples.iter().rev().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::watch::screen::example;

    #[test]
    fn a_rate_is_over_the_time_between_two_counts_of_the_source() {
        let source = "203.0.113.1/32".parse().unwrap();
        let start = Instant::now();
        let at = |milliseconds| {
            let time = Duration::from_millis(milliseconds);
            example::details(source, start + time, time)
        };
        let mut opened = Opened::new(source, at(0));
        // As often as every second, but after looks of different lengths.
        for milliseconds in [1_000, 2_700, 3_050, 4_900, 5_000] {
            opened.record(at(milliseconds));
        }
        let rates: Vec<_> = opened.samples().map(|split| split.dropped.packets.round()).collect();
        assert_eq!(rates, [20_000.0; 5]);
        opened.record(at(5_000));
        assert_eq!(opened.samples().count(), 5, "no time went by");
    }
}
