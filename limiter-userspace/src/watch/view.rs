//! All that a watch knows: what is drawn and printed is a function of it.

use std::time::{Duration, Instant};

use super::{history::History, talkers::Talkers};
use crate::{
    datapath::snapshot::{Snapshot, Talker},
    output::{limits::LimitRows, status::Tables},
};

/// What a watch reads at once.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The counters.
    pub snapshot: Snapshot,
    /// The settings of all limits.
    pub limits: LimitRows,
    /// The sources, if they were asked for.
    pub scan: Option<Scan>,
}

/// What a scan of the sources found.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The sources with the most drops, in any order; more than are shown, as they are ranked by
    /// how fast they are dropped.
    pub talkers: Vec<Talker>,
    /// How full the state is.
    pub tables: Tables,
}

/// The state of a watch.
#[derive(Clone, Debug)]
pub struct View {
    /// Counters and rates.
    pub history: History,
    /// The settings of the limits.
    pub limits: LimitRows,
    /// The sources of the latest scan.
    pub talkers: Talkers,
    /// How full the state was at the latest scan.
    pub tables: Tables,
    /// The time between two readings.
    pub interval: Duration,
    /// When the first reading was taken.
    pub started: Instant,
    /// Whether readings are suspended.
    pub paused: bool,
    /// Whether colours may be used.
    pub colour: bool,
}

impl View {
    /// The state after the first reading.
    pub fn new(first: Reading, interval: Duration, colour: bool) -> Self {
        let Reading { snapshot, limits, scan } = first;
        let started = snapshot.taken;
        let mut view = Self {
            history: History::new(snapshot),
            limits,
            talkers: Talkers::default(),
            tables: Tables::default(),
            interval,
            started,
            paused: false,
            colour,
        };
        view.scanned(scan, started);
        view
    }

    /// Takes in a reading.
    pub fn update(&mut self, reading: Reading) {
        let Reading { snapshot, limits, scan } = reading;
        self.scanned(scan, snapshot.taken);
        self.history.record(snapshot);
        self.limits = limits;
    }

    /// How long it has been watching.
    pub fn watched(&self) -> Duration {
        self.history.latest().taken.saturating_duration_since(self.started)
    }

    /// How much older than the latest reading the sources are.
    pub fn scan_age(&self) -> Duration {
        let latest = self.history.latest().taken;
        self.talkers.taken().map_or(Duration::ZERO, |taken| latest.saturating_duration_since(taken))
    }

    fn scanned(&mut self, scan: Option<Scan>, taken: Instant) {
        if let Some(Scan { talkers, tables }) = scan {
            self.talkers.update(talkers, taken);
            self.tables = tables;
        }
    }
}
