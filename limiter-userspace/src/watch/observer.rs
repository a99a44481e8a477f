//! Asking what is watched, for what a view shows.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    controls::{Controls, Effect},
    pace::Pace,
    subject::Subject,
    view::{Reading, View},
};
use crate::datapath::survey::Search;

/// How often the first reading is tried, where what is in its way passes, and how long it waits before each.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// What is watched, and what is known of it.
pub(super) struct Observer<S> {
    subject: S,
    pace: Pace,
    /// Of a source with state by many other keys, all of these are looked at.
    details: Pace,
    /// What is known of it.
    pub(super) view: View,
}

impl<S: Subject> Observer<S> {
    /// Makes the first reading.
    pub(super) fn begin(
        mut subject: S,
        interval: Duration,
        colour: bool,
    ) -> Result<Self, S::Error> {
        let search = Controls::default().search(interval);
        let mut start = Instant::now();
        let mut reading = subject.read(Some(&search));
        for _ in 0..TRIES {
            if !reading.as_ref().is_err_and(S::passes) {
                break;
            }
            thread::sleep(PAUSE);
            start = Instant::now();
            reading = subject.read(Some(&search));
        }
        let view = View::new(reading?, interval, colour);
        let mut pace = Pace::default();
        pace.scanned(Instant::now(), start.elapsed());
        Ok(Self { subject, pace, details: Pace::default(), view })
    }

    /// Makes a reading, with a look over all sources when one is due. Whether it could: if not, the picture
    /// stays as it is.
    pub(super) fn read(&mut self) -> Result<bool, S::Error> {
        let search = self.pace.is_due(Instant::now()).then(|| self.view.search());
        let Some(reading) = self.ask(search.as_ref())? else { return Ok(false) };
        self.view.update(reading);
        self.stand(true);
        if self.details.is_due(Instant::now()) {
            self.detail();
        }
        Ok(true)
    }

    /// Does what a key asks for.
    pub(super) fn follow(&mut self, effect: &Effect) -> Result<(), S::Error> {
        match effect {
            Effect::Search => {
                let search = self.view.search();
                match self.ask(Some(&search))? {
                    Some(reading) => self.view.look(reading),
                    None => self.pace = Pace::default(),
                }
            }
            Effect::Freeze => self.complete(),
            Effect::Read => {
                // What is shown may be sorted or filtered in another way than what was found.
                (self.pace, self.details) = (Pace::default(), Pace::default());
                self.read()?;
            }
            Effect::Open => self.detail(),
            Effect::Act(action) => {
                let said = self.subject.act(action);
                self.view.controls.tell(said);
                // A picture that stands still is not mixed with what is so now.
                if !self.view.controls.frozen
                    && let Some(reading) = self.ask(None)?
                {
                    self.view.look(reading);
                    self.stand(true);
                }
                self.detail();
            }
            Effect::Nothing | Effect::Redraw | Effect::Stop | Effect::Leave => {}
        }
        Ok(())
    }

    /// Asks how the sources that are shown stand to the policy: all of them, or if that is not known
    /// of one.
    pub(super) fn stand(&mut self, all: bool) {
        let shown = self.view.shown();
        if self.view.controls.frozen || shown.is_empty() {
            return;
        }
        if !all && shown.iter().all(|source| self.view.standings.contains_key(source)) {
            return;
        }
        match self.subject.standings(&shown) {
            Ok(standings) => self.view.stand(shown, standings),
            Err(error) => self.view.controls.tell(Err(error)),
        }
    }

    /// Asks the same of all sources that can come to be shown of a picture that stands still.
    fn complete(&mut self) {
        let missing = self.view.not_standing();
        match self.subject.standings(&missing) {
            Ok(standings) => self.view.complete(missing, standings),
            Err(error) => self.view.controls.tell(Err(error)),
        }
    }

    /// Asks for all about the source that is open.
    fn detail(&mut self) {
        let Some(source) = self.view.controls.open else { return };
        let start = Instant::now();
        match self.subject.details(source) {
            Ok(details) => self.view.open(source, details),
            Err(error) => {
                self.view.controls.open = None;
                self.view.controls.tell(Err(error));
            }
        }
        self.details.scanned(Instant::now(), start.elapsed());
    }

    /// Makes a reading, but for what passes by itself.
    fn ask(&mut self, search: Option<&Search>) -> Result<Option<Reading>, S::Error> {
        let start = Instant::now();
        match self.subject.read(search) {
            Ok(reading) => {
                if search.is_some() {
                    self.pace.scanned(Instant::now(), start.elapsed());
                }
                self.view.late = None;
                Ok(Some(reading))
            }
            Err(error) if S::passes(&error) => {
                self.view.fail(error.to_string(), Instant::now());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
