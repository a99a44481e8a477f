//! A source that is shown in detail.

use std::collections::VecDeque;

use ipnet::IpNet;

use super::history::{Flow, History, SHORTEST, Split};
use crate::{
    bridge::answer::RequestFill,
    output::limits::LimitRow,
    query::{explain::Explanation, source::SourceReport},
};

/// The details of a source: the report on it, and the explanation of its limits.
#[derive(Clone, Debug)]
pub struct Details {
    /// The counts, lists and limits of the source.
    pub report: SourceReport,
    /// The lists and limits that decide about its packets.
    pub explanation: Explanation,
    /// What limits on requests have left for the source; empty if no bridge answers.
    pub requests: Vec<RequestFill>,
}

/// A source that is shown in detail, with its rates since it was opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The source.
    pub source: IpNet,
    /// The latest details.
    pub details: Details,
    /// The settings of the limits in the explanation, in its order.
    pub limits: Vec<LimitRow>,
    samples: VecDeque<Split>,
}

impl Opened {
    /// Opens a source.
    pub fn new(source: IpNet, details: Details) -> Self {
        Self { source, details, limits: Vec::new(), samples: VecDeque::new() }
    }

    /// Takes in later details. The rates use the time at which the counts were read: the rest of
    /// the details may take long.
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

    /// Takes the settings of the explained limits from those of all limits.
    pub fn set(&mut self, all: &[LimitRow]) {
        let its = self.details.explanation.limits.iter();
        let row = |name: &str| all.iter().find(|row| row.name == name).cloned();
        self.limits = its.filter_map(|(limit, _)| row(&limit.name)).collect();
    }

    /// The rates of the source, one for each reading since it was opened, the latest first.
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
        // Readings once a second, whose details take different times.
        for milliseconds in [1_000, 2_700, 3_050, 4_900, 5_000] {
            opened.record(at(milliseconds));
        }
        let rates: Vec<_> = opened.samples().map(|split| split.dropped.packets.round()).collect();
        assert_eq!(rates, [20_000.0; 5]);
        opened.record(at(5_000));
        assert_eq!(opened.samples().count(), 5, "no time went by");
    }
}
