//! All that a watch knows: what is drawn and printed is a function of it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crossterm::event::Event;
use ipnet::IpNet;

use super::{
    controls::{Choice, Controls, Drawn, Effect},
    history::History,
    opened::{Details, Opened},
    standing::Standing,
    talkers::Talkers,
};
use crate::{
    datapath::{
        snapshot::Snapshot,
        survey::{Search, Sighting},
    },
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

/// What a look over all sources found.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The sources that were wanted.
    pub found: Vec<Sighting>,
    /// How many there are of those, shown or not.
    pub matching: u64,
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
    /// The sources of the latest look.
    pub talkers: Talkers,
    /// How many sources there were of those that were wanted.
    pub matching: u64,
    /// How full the state was at the latest look.
    pub tables: Tables,
    /// How sources stand to the policy, of those that are shown.
    pub standings: HashMap<IpNet, Standing>,
    /// The source that is looked at closely.
    pub opened: Option<Opened>,
    /// What the keys are about.
    pub controls: Controls,
    /// The time between two readings.
    pub interval: Duration,
    /// When the first reading was taken.
    pub started: Instant,
    /// The present, which goes on while the picture stands still.
    pub now: Instant,
    /// Whether colours may be used.
    pub colour: bool,
    drawn: Drawn,
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
            matching: 0,
            tables: Tables::default(),
            standings: HashMap::new(),
            opened: None,
            controls: Controls::default(),
            interval,
            started,
            now: started,
            colour,
            drawn: Drawn::default(),
        };
        view.scanned(scan, started);
        view
    }

    /// Takes in a reading.
    pub fn update(&mut self, reading: Reading) {
        let Reading { snapshot, limits, scan } = reading;
        self.now = snapshot.taken;
        self.scanned(scan, snapshot.taken);
        self.history.record(snapshot);
        self.limits = limits;
    }

    /// Takes in of a reading what was asked for by a key, and leaves the rest of the picture.
    pub fn look(&mut self, reading: Reading) {
        let Reading { snapshot, limits, scan } = reading;
        self.now = snapshot.taken;
        self.scanned(scan, snapshot.taken);
        self.limits = limits;
    }

    /// Takes in how those sources stand to the policy that are shown; the others are forgotten.
    pub fn stand(&mut self, sources: Vec<IpNet>, standings: Vec<Standing>) {
        self.standings = sources.into_iter().zip(standings).collect();
    }

    /// Takes in what is known of a source that is open.
    pub fn open(&mut self, source: IpNet, details: Details) {
        match &mut self.opened {
            Some(opened) if opened.source == source => opened.record(details),
            _ => self.opened = Some(Opened::new(source, details)),
        }
    }

    /// Takes in an event of the terminal.
    pub fn press(&mut self, event: &Event, now: Instant) -> Effect {
        self.now = self.now.max(now);
        let choice = Choice { sources: self.talkers.rows(), limits: &self.limits.rows };
        let effect = self.controls.press(event, choice, now);
        if self.controls.open.is_none() {
            self.opened = None;
        }
        self.settle();
        effect
    }

    /// Takes in how much was drawn, and says whether that is news.
    pub fn drew(&mut self, drawn: Drawn) -> bool {
        let news = self.drawn != drawn;
        self.drawn = drawn;
        self.settle();
        news
    }

    /// How much was drawn.
    pub const fn drawn(&self) -> Drawn {
        self.drawn
    }

    /// What there is to choose from.
    pub fn choice(&self) -> Choice<'_> {
        Choice { sources: self.talkers.rows(), limits: &self.limits.rows }
    }

    /// The sources that are wanted now.
    pub fn search(&self) -> Search {
        self.controls.search(self.interval)
    }

    /// The sources that are shown.
    pub fn shown(&self) -> Vec<IpNet> {
        let [first, _] = self.controls.first();
        let rows = self.talkers.rows().iter().skip(first).take(self.drawn.sources);
        rows.map(super::talkers::Ranked::net).collect()
    }

    /// How long it has been watching.
    pub fn watched(&self) -> Duration {
        self.history.latest().taken.saturating_duration_since(self.started)
    }

    /// How old the picture is.
    pub fn age(&self) -> Duration {
        self.now.saturating_duration_since(self.history.latest().taken)
    }

    /// How much older than the latest reading the sources are.
    pub fn scan_age(&self) -> Duration {
        let latest = self.history.latest().taken;
        self.talkers.taken().map_or(Duration::ZERO, |taken| latest.saturating_duration_since(taken))
    }

    fn scanned(&mut self, scan: Option<Scan>, taken: Instant) {
        if let Some(Scan { found, matching, tables }) = scan {
            self.talkers.update(found, taken);
            self.matching = matching;
            self.tables = tables;
        }
        self.settle();
    }

    fn settle(&mut self) {
        let choice = Choice { sources: self.talkers.rows(), limits: &self.limits.rows };
        self.controls.settle(choice, self.drawn);
    }
}
