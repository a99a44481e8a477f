//! Asking what is watched, for what a view shows.

use std::time::{Duration, Instant};

use super::{
    controls::{Controls, Effect},
    pace::Pace,
    subject::Subject,
    view::View,
};

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
        let start = Instant::now();
        let search = Controls::default().search(interval);
        let view = View::new(subject.read(Some(&search))?, interval, colour);
        let mut pace = Pace::default();
        pace.scanned(Instant::now(), start.elapsed());
        Ok(Self { subject, pace, details: Pace::default(), view })
    }

    /// Makes a reading, with a look over all sources when one is due.
    pub(super) fn read(&mut self) -> Result<(), S::Error> {
        let start = Instant::now();
        let search = self.pace.is_due(start).then(|| self.view.search());
        let reading = self.subject.read(search.as_ref())?;
        if search.is_some() {
            self.pace.scanned(Instant::now(), start.elapsed());
        }
        self.view.update(reading);
        self.stand(true);
        if self.details.is_due(Instant::now()) {
            self.detail();
        }
        Ok(())
    }

    /// Does what a key asks for.
    pub(super) fn follow(&mut self, effect: &Effect) -> Result<(), S::Error> {
        match effect {
            Effect::Search => {
                let start = Instant::now();
                let reading = self.subject.read(Some(&self.view.search()))?;
                self.pace.scanned(Instant::now(), start.elapsed());
                self.view.look(reading);
            }
            Effect::Read => self.read()?,
            Effect::Open => self.detail(),
            Effect::Act(action) => {
                let said = self.subject.act(action);
                self.view.controls.tell(said);
                let reading = self.subject.read(None)?;
                self.view.look(reading);
                self.stand(true);
                self.detail();
            }
            Effect::Nothing | Effect::Redraw | Effect::Leave => {}
        }
        Ok(())
    }

    /// Asks how the sources that are shown stand to the policy: all of them, or if that is not known
    /// of one.
    pub(super) fn stand(&mut self, all: bool) {
        let shown = self.view.shown();
        if shown.is_empty() {
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
}
