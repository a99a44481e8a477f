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
    talkers::{Ranked, Talkers},
};
use crate::{
    datapath::{
        snapshot::Snapshot,
        survey::{Search, Sighting},
    },
    output::{limits::LimitRows, number::duration, status::Tables},
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

/// Readings that failed, one after the other.
#[derive(Clone, Debug)]
pub struct Late {
    since: Instant,
    lasts: Duration,
    why: String,
}

impl Late {
    /// So long may pass what passes by itself, before it is told.
    pub const LASTING: Duration = Duration::from_secs(2);

    /// What is to be told of it, if it lasts.
    pub fn said(&self) -> Option<String> {
        let Self { lasts, why, .. } = self;
        let seconds = Duration::from_secs(lasts.as_secs());
        let said = || format!("no reading for {}: {why}; it is tried again", duration(seconds));
        (*lasts >= Self::LASTING).then(said)
    }
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
    /// Why the picture is not as new as it should be.
    pub late: Option<Late>,
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
            late: None,
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

    /// Takes in that a reading failed, and why.
    pub fn fail(&mut self, why: String, now: Instant) {
        let since = self.late.as_ref().map_or(now, |late| late.since);
        self.late = Some(Late { since, lasts: now.saturating_duration_since(since), why });
    }

    /// Takes in how those sources stand to the policy that are shown; the others are forgotten.
    pub fn stand(&mut self, sources: Vec<IpNet>, standings: Vec<Standing>) {
        self.standings = sources.into_iter().zip(standings).collect();
    }

    /// The sources of which it is not known how they stand.
    pub fn not_standing(&self) -> Vec<IpNet> {
        let all = self.talkers.rows().iter().map(Ranked::net);
        all.filter(|source| !self.standings.contains_key(source)).collect()
    }

    /// Takes in how further sources stand.
    pub fn complete(&mut self, sources: Vec<IpNet>, standings: Vec<Standing>) {
        self.standings.extend(sources.into_iter().zip(standings));
    }

    /// Takes in what is known of a source that is open.
    pub fn open(&mut self, source: IpNet, details: Details) {
        match &mut self.opened {
            Some(opened) if opened.source == source => opened.record(details),
            _ => self.opened = Some(Opened::new(source, details)),
        }
        if let Some(opened) = &mut self.opened {
            opened.set(&self.limits.rows);
        }
        self.settle();
    }

    /// Takes in an event of the terminal.
    pub fn press(&mut self, event: &Event, now: Instant) -> Effect {
        self.now = self.now.max(now);
        let choice = choice(&self.talkers, &self.limits, self.opened.as_ref());
        let mut effect = self.controls.press(event, choice, now);
        if effect == Effect::Search && self.controls.frozen {
            // What is there now is no part of a picture that stands still.
            self.talkers.arrange(self.controls.order, self.controls.filter);
            self.matching = self.talkers.rows().len() as u64;
            effect = Effect::Nothing;
        }
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
        choice(&self.talkers, &self.limits, self.opened.as_ref())
    }

    /// The sources that are wanted now.
    pub fn search(&self) -> Search {
        self.controls.search(self.interval)
    }

    /// The sources that are shown.
    pub fn shown(&self) -> Vec<IpNet> {
        let [first, _] = self.controls.first();
        let rows = self.talkers.rows().iter().skip(first).take(self.drawn.sources);
        rows.map(Ranked::net).collect()
    }

    /// How long it has been watching.
    pub fn watched(&self) -> Duration {
        self.history.latest().taken.saturating_duration_since(self.started)
    }

    /// How old the picture is: a source is counted when it is opened.
    pub fn age(&self) -> Duration {
        let opened = self.opened.as_ref().map(|opened| opened.details.report.counted);
        self.now.saturating_duration_since(opened.unwrap_or(self.history.latest().taken))
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
        let choice = choice(&self.talkers, &self.limits, self.opened.as_ref());
        self.controls.settle(choice, self.drawn);
    }
}

/// What there is to choose from: where a source is open, its limits.
fn choice<'a>(
    talkers: &'a Talkers,
    limits: &'a LimitRows,
    opened: Option<&'a Opened>,
) -> Choice<'a> {
    let limits = opened.map_or(&limits.rows, |opened| &opened.limits);
    Choice { sources: talkers.rows(), limits }
}
