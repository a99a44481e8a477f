//! A source that is looked at closely.

use std::{collections::VecDeque, time::Instant};

use ipnet::IpNet;

use super::history::{Flow, History, SHORTEST, Split};
use crate::inquiry::{explain::Explanation, source::SourceReport};

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
    taken: Instant,
    samples: VecDeque<Split>,
}

impl Opened {
    /// A source that one begins to look at.
    pub fn new(source: IpNet, details: Details, taken: Instant) -> Self {
        Self { source, details, taken, samples: VecDeque::new() }
    }

    /// Takes in what is known of it later.
    pub fn record(&mut self, details: Details, taken: Instant) {
        let elapsed = taken.saturating_duration_since(self.taken);
        if elapsed < SHORTEST {
            return;
        }
        let (before, now, seconds) = (&self.details.report, &details.report, elapsed.as_secs_f64());
        let split = Split {
            passed: Flow::between(before.passed, now.passed, seconds),
            dropped: Flow::between(before.dropped, now.dropped, seconds),
        };
        if self.samples.len() == History::SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(split);
        (self.details, self.taken) = (details, taken);
    }

    /// Its rates, one per reading since it was opened, the latest first.
    pub fn samples(&self) -> impl Iterator<Item = Split> {
        self.samples.iter().rev().copied()
    }
}
