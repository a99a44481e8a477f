//! The state of a watch. The screen and the lines are functions of it.

use std::{
    collections::HashMap,
    time::{Duration, Instant, SystemTime},
};

use crossterm::event::Event;
use ipnet::IpNet;

use super::{
    controls::{Choice, Controls, Drawn, Effect},
    drops::Drops,
    history::History,
    limit_order::LimitOrder,
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

/// A reading of a limiter.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The counters.
    pub snapshot: Snapshot,
    /// The settings of all limits.
    pub limits: LimitRows,
    /// The scan of the sources, if one was asked for.
    pub scan: Option<Scan>,
}

/// The result of a scan over all sources.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The sources that were searched for.
    pub found: Vec<Sighting>,
    /// The number of sources that match the search, also beyond those found.
    pub matching: u64,
    /// How full the tables are.
    pub tables: Tables,
}

/// A series of failed readings.
#[derive(Clone, Debug)]
pub struct Late {
    since: Instant,
    lasts: Duration,
    why: String,
}

impl Late {
    /// How long readings may fail before the user is told. Most causes pass within this time.
    pub const LASTING: Duration = Duration::from_secs(2);

    /// The message for the user, once readings have failed for [`LASTING`](Self::LASTING).
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
    /// The latest counters, and their rates.
    pub history: History,
    /// The settings of the limits.
    pub limits: LimitRows,
    /// The sources of the latest scan.
    pub talkers: Talkers,
    /// The number of sources that matched the search of the latest scan.
    pub matching: u64,
    /// How full the tables were at the latest scan.
    pub tables: Tables,
    /// The standings of the sources that are shown.
    pub standings: HashMap<IpNet, Standing>,
    /// The source that is open: shown in detail.
    pub opened: Option<Opened>,
    /// The dropped packets, while they are asked for.
    pub drops: Option<Drops>,
    /// The failed readings since the latest good one, if there are any.
    pub late: Option<Late>,
    /// The state that keys change.
    pub controls: Controls,
    /// The time between two readings.
    pub interval: Duration,
    /// When the first reading was taken.
    pub started: Instant,
    /// The time of drawing. It goes on while the picture is frozen.
    pub now: Instant,
    /// The time of day at the time of drawing.
    pub clock: SystemTime,
    /// The name of this host; empty if it is not known.
    pub host: String,
    /// Whether colours may be used.
    pub colour: bool,
    /// Whether only ASCII may be drawn.
    pub ascii: bool,
    limit_order: LimitOrder,
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
            drops: None,
            late: None,
            controls: Controls::default(),
            interval,
            started,
            now: started,
            clock: SystemTime::UNIX_EPOCH,
            host: String::new(),
            colour,
            ascii: false,
            limit_order: LimitOrder::default(),
            drawn: Drawn::default(),
        };
        view.arrange();
        view.scanned(scan, started);
        view
    }

    /// Takes in a regular reading.
    pub fn update(&mut self, reading: Reading) {
        let Reading { snapshot, limits, scan } = reading;
        self.now = snapshot.taken;
        self.scanned(scan, snapshot.taken);
        self.history.record(snapshot);
        self.limits = limits;
        self.arrange();
    }

    /// Takes in a reading that a key asked for: its sources and settings. Counters and rates stay
    /// those of the latest regular reading.
    pub fn look(&mut self, reading: Reading) {
        let Reading { snapshot, limits, scan } = reading;
        self.now = snapshot.taken;
        self.scanned(scan, snapshot.taken);
        self.limits = limits;
        self.arrange();
    }

    /// Notes a failed reading, with the reason.
    pub fn fail(&mut self, why: String, now: Instant) {
        let since = self.late.as_ref().map_or(now, |late| late.since);
        self.late = Some(Late { since, lasts: now.saturating_duration_since(since), why });
    }

    /// Replaces the standings with those of the sources that are shown, in the same order.
    pub fn stand(&mut self, sources: Vec<IpNet>, standings: Vec<Standing>) {
        self.standings = sources.into_iter().zip(standings).collect();
    }

    /// The sources whose standing is not known.
    pub fn not_standing(&self) -> Vec<IpNet> {
        let all = self.talkers.rows().iter().map(Ranked::net);
        all.filter(|source| !self.standings.contains_key(source)).collect()
    }

    /// Adds the standings of more sources, in the same order.
    pub fn complete(&mut self, sources: Vec<IpNet>, standings: Vec<Standing>) {
        self.standings.extend(sources.into_iter().zip(standings));
    }

    /// Takes in the details of the source that is open.
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

    /// Handles an event of the terminal. Returns what is to be done for it, beside drawing.
    pub fn press(&mut self, event: &Event, now: Instant) -> Effect {
        self.now = self.now.max(now);
        let choice = choice(&self.talkers, &self.limits, self.opened.as_ref());
        let mut effect = self.controls.press(event, choice, now);
        if effect == Effect::Search && self.controls.frozen {
            // A frozen picture is sorted and filtered without a new scan.
            self.talkers.arrange(self.controls.order, self.controls.filter.as_ref());
            self.matching = self.talkers.rows().len() as u64;
            effect = Effect::Nothing;
        }
        if self.controls.open.is_none() {
            self.opened = None;
        }
        self.settle();
        effect
    }

    /// Notes the size of the tables on the screen. Returns whether it has changed.
    pub fn drew(&mut self, drawn: Drawn) -> bool {
        let news = self.drawn != drawn;
        self.drawn = drawn;
        self.settle();
        news
    }

    /// The size of the tables on the screen.
    pub const fn drawn(&self) -> Drawn {
        self.drawn
    }

    /// The rows that can be selected.
    pub fn choice(&self) -> Choice<'_> {
        choice(&self.talkers, &self.limits, self.opened.as_ref())
    }

    /// The search for the next scan.
    pub fn search(&self) -> Search {
        self.controls.search(self.interval)
    }

    /// The sources in the rows that are shown.
    pub fn shown(&self) -> Vec<IpNet> {
        let [first, _] = self.controls.first();
        let rows = self.talkers.rows().iter().skip(first).take(self.drawn.sources);
        rows.map(Ranked::net).collect()
    }

    /// The time from the first reading to the latest.
    pub fn watched(&self) -> Duration {
        self.history.latest().taken.saturating_duration_since(self.started)
    }

    /// The age of the picture. While a source is open, that of its counts.
    pub fn age(&self) -> Duration {
        let opened = self.opened.as_ref().map(|opened| opened.details.report.counted);
        self.now.saturating_duration_since(opened.unwrap_or(self.history.latest().taken))
    }

    /// The time from the latest scan to the latest reading.
    pub fn scan_age(&self) -> Duration {
        let latest = self.history.latest().taken;
        self.talkers.taken().map_or(Duration::ZERO, |taken| latest.saturating_duration_since(taken))
    }

    /// Puts the limits that refuse packets first, and those that are off last.
    fn arrange(&mut self) {
        self.limit_order.note(self.history.rates(), self.now);
        self.limit_order.arrange(&mut self.limits.rows, self.now);
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

/// The rows that can be selected. While a source is open, the limits are those that were explained
/// for it.
fn choice<'a>(
    talkers: &'a Talkers,
    limits: &'a LimitRows,
    opened: Option<&'a Opened>,
) -> Choice<'a> {
    let limits = opened.map_or(&limits.rows, |opened| &opened.limits);
    Choice { sources: talkers.rows(), limits }
}
