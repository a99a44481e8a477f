//! Reads from the data source what the view shows.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    controls::{Controls, Effect},
    pace::Pace,
    view::{Reading, View},
    wake::Pressed,
};
use crate::{datapath::survey::Search, watch::data_source::DataSource};

/// How many times the first reading is tried again if the cause of its failure passes, and the
/// pause before each try.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// What is to be done on the terminal after keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Draw the changes.
    Show,
    /// Draw the whole screen anew.
    Redraw,
    /// Give the terminal back to the shell, and stop the process.
    Stop,
    /// End the watch.
    Leave,
}

/// The data source, and the view of it.
pub(super) struct Observer<S> {
    source: S,
    pace: Pace,
    /// The pace of reading the details of the opened source. With many states of keyed limits that
    /// takes long.
    details: Pace,
    /// The state of the watch.
    pub(super) view: View,
}

impl<S: DataSource> Observer<S> {
    /// Makes the first reading, with a scan.
    pub(super) fn begin(mut source: S, interval: Duration, colour: bool) -> Result<Self, S::Error> {
        let search = Controls::default().search(interval);
        let mut start = Instant::now();
        let mut reading = source.read(Some(&search));
        for _ in 0..TRIES {
            if !reading.as_ref().is_err_and(S::passes) {
                break;
            }
            thread::sleep(PAUSE);
            start = Instant::now();
            reading = source.read(Some(&search));
        }
        let view = View::new(reading?, interval, colour);
        let mut pace = Pace::default();
        pace.scanned(Instant::now(), start.elapsed());
        Ok(Self { source, pace, details: Pace::default(), view })
    }

    /// Makes a regular reading, with a scan if one is due, or if this is the `last` reading.
    /// Returns false if it failed for a cause that passes; the picture then stays as it is.
    pub(super) fn read(&mut self, last: bool) -> Result<bool, S::Error> {
        let is_due = last || self.pace.is_due(Instant::now());
        let search = is_due.then(|| self.view.search());
        let Some(reading) = self.ask(search.as_ref())? else { return Ok(false) };
        self.view.update(reading);
        self.stand(true);
        self.drops();
        if self.details.is_due(Instant::now()) {
            self.detail();
        }
        Ok(true)
    }

    /// Handles keys that were read together. Keys after Ctrl-Z are dropped. If the process cannot
    /// be stopped, Ctrl-Z does nothing.
    pub(super) fn press(&mut self, pressed: Pressed, can_stop: bool) -> Result<Next, S::Error> {
        let mut next = Next::Show;
        let mut last = None;
        for (event, at) in pressed {
            match self.view.press(&event, at) {
                Effect::Leave => return Ok(Next::Leave),
                Effect::Stop if can_stop => {
                    next = Next::Stop;
                    break;
                }
                Effect::Redraw => next = Next::Redraw,
                Effect::Stop | Effect::Nothing => {}
                effect @ Effect::Act(_) => self.follow(&effect)?,
                Effect::Freeze => {
                    // A key before belongs to the picture that is frozen.
                    if let Some(before) = last.take() {
                        self.follow(&before)?;
                    }
                    self.follow(&Effect::Freeze)?;
                }
                // Several such keys need one reading.
                effect => last = Some(effect),
            }
        }
        if let Some(effect) = last {
            self.follow(&effect)?;
        }
        Ok(next)
    }

    /// Does what a key asks for.
    fn follow(&mut self, effect: &Effect) -> Result<(), S::Error> {
        match effect {
            Effect::Search => {
                let search = self.view.search();
                match self.ask(Some(&search))? {
                    Some(reading) => self.view.look(reading),
                    None => self.pace = Pace::default(),
                }
            }
            Effect::Freeze => {
                // A frozen picture needs no readings, so their failure does not matter.
                self.view.late = None;
                self.complete();
            }
            Effect::Read => {
                // The order or the filter may have changed since the latest scan.
                (self.pace, self.details) = (Pace::default(), Pace::default());
                self.read(false)?;
            }
            Effect::Open => self.detail(),
            Effect::Drops => self.drops(),
            Effect::Act(action) => {
                let said = self.source.act(action);
                self.view.controls.tell(said);
                // A frozen picture is not mixed with new readings.
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

    /// Reads the standings of the sources on the screen: always if `all`, else only if one of them
    /// is missing.
    pub(super) fn stand(&mut self, all: bool) {
        let shown = self.view.shown();
        if self.view.controls.frozen || shown.is_empty() {
            return;
        }
        if !all && shown.iter().all(|source| self.view.standings.contains_key(source)) {
            return;
        }
        match self.source.standings(&shown) {
            Ok(standings) => self.view.stand(shown, standings),
            Err(error) => self.view.controls.tell(Err(error)),
        }
    }

    /// Reads dropped packets if they are shown.
    fn drops(&mut self) {
        let wanted = self.view.controls.drops;
        if !wanted && self.view.drops.is_none() {
            return;
        }
        match self.source.drops(wanted) {
            Ok(packets) if wanted => self.view.drops.get_or_insert_default().record(packets),
            Ok(_) => self.view.drops = None,
            Err(error) => {
                self.view.controls.drops = false;
                self.view.drops = None;
                self.view.controls.tell(Err(error));
            }
        }
    }

    /// Reads the missing standings of all sources that a frozen picture can show.
    fn complete(&mut self) {
        let missing = self.view.not_standing();
        match self.source.standings(&missing) {
            Ok(standings) => self.view.complete(missing, standings),
            Err(error) => self.view.controls.tell(Err(error)),
        }
    }

    /// Reads the details of the opened source.
    fn detail(&mut self) {
        let Some(source) = self.view.controls.open else { return };
        let start = Instant::now();
        match self.source.details(source) {
            Ok(details) => self.view.open(source, details),
            Err(error) => {
                self.view.controls.open = None;
                self.view.controls.tell(Err(error));
            }
        }
        self.details.scanned(Instant::now(), start.elapsed());
    }

    /// Makes a reading. Returns `None` if it failed for a cause that passes.
    fn ask(&mut self, search: Option<&Search>) -> Result<Option<Reading>, S::Error> {
        let start = Instant::now();
        match self.source.read(search) {
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

#[cfg(test)]
mod tests {
    use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
    use ipnet::IpNet;

    use super::*;
    use crate::{
        query::dropped::Dropped,
        watch::{action::Action, opened::Details, screen::example, standing::Standing},
    };

    /// A made-up limiter that records the calls.
    #[derive(Default)]
    struct Example {
        asked: Vec<&'static str>,
        fails: bool,
    }

    impl DataSource for Example {
        type Error = &'static str;

        fn passes(_: &&'static str) -> bool {
            true
        }

        fn read(&mut self, search: Option<&Search>) -> Result<Reading, &'static str> {
            self.asked.push(if search.is_some() { "look" } else { "read" });
            if self.fails {
                return Err("the policy changes");
            }
            Ok(example::reading(Instant::now(), Duration::from_secs(5), search.is_some()))
        }

        fn standings(&mut self, sources: &[IpNet]) -> Result<Vec<Standing>, String> {
            self.asked.push("standings");
            Ok(example::standings(sources))
        }

        fn details(&mut self, _: IpNet) -> Result<Details, String> {
            Err("no source is open".to_owned())
        }

        fn drops(&mut self, wanted: bool) -> Result<Vec<Dropped>, String> {
            self.asked.push(if wanted { "drops" } else { "no drops" });
            if self.fails { Err("another process reads them".to_owned()) } else { Ok(Vec::new()) }
        }

        fn act(&mut self, _: &Action) -> Result<String, String> {
            Err("nothing is changed".to_owned())
        }
    }

    const INTERVAL: Duration = Duration::from_secs(1);

    fn begun() -> Observer<Example> {
        let mut watch = Observer::begin(Example::default(), INTERVAL, false).unwrap();
        watch.source.asked.clear();
        watch
    }

    /// Presses keys at once; `^` stands for Ctrl-Z.
    fn press(watch: &mut Observer<Example>, keys: &str, can_stop: bool) -> Next {
        let key = |key| match key {
            '^' => KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL),
            key => KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE),
        };
        let pressed = keys.chars().map(|it| (Event::Key(key(it)), Instant::now())).collect();
        watch.press(pressed, can_stop).unwrap()
    }

    #[test]
    fn a_picture_that_stands_still_is_complete_and_stays() {
        // From a moving picture, and from a frozen one.
        for (first, keys, asked) in [
            ("", "p", &["standings"][..]),
            ("", "sp", &["look", "standings"]),
            ("", "spp", &["look", "standings", "look"]),
            ("p", "  ", &["look", "standings"]),
            ("p", "s", &[]),
        ] {
            let mut watch = begun();
            press(&mut watch, first, true);
            watch.source.asked.clear();
            assert_eq!(press(&mut watch, keys, true), Next::Show);
            assert_eq!(watch.source.asked, asked, "{first} {keys}");
            if watch.view.controls.frozen {
                assert!(watch.view.not_standing().is_empty(), "{first} {keys}");
            }
        }
    }

    #[test]
    fn dropped_packets_are_read_while_they_are_shown() {
        let mut watch = begun();
        let asked = |watch: &mut Observer<Example>| {
            watch.read(false).unwrap();
            let asked = std::mem::take(&mut watch.source.asked);
            asked.into_iter().filter(|it| it.contains("drops")).collect::<Vec<_>>()
        };
        assert_eq!(asked(&mut watch), [""; 0]);
        press(&mut watch, "x", true);
        assert_eq!(asked(&mut watch), ["drops", "drops"]);
        assert_eq!(asked(&mut watch), ["drops"]);
        press(&mut watch, "x", true);
        assert_eq!(asked(&mut watch), ["no drops"]);
        assert_eq!(asked(&mut watch), [""; 0]);
        // Another process may read them.
        watch.source.fails = true;
        press(&mut watch, "x", true);
        assert!(!watch.view.controls.drops && watch.view.drops.is_none());
        assert!(watch.view.controls.message.as_ref().unwrap().failed);
    }

    #[test]
    fn a_picture_that_stands_still_is_not_late() {
        let mut watch = begun();
        watch.source.fails = true;
        assert!(!watch.read(false).unwrap() && watch.view.late.is_some());
        press(&mut watch, "p", true);
        assert!(watch.view.late.is_none());
        // A moving picture is.
        press(&mut watch, "p", true);
        assert!(watch.view.late.is_some());
        press(&mut watch, "sp", true);
        assert!(watch.view.late.is_none());
    }

    #[test]
    fn keys_stop_a_watch_once_or_not_at_all() {
        let mut watch = begun();
        assert_eq!(press(&mut watch, "s^^pq", true), Next::Stop);
        assert_eq!((&watch.source.asked[..], watch.view.controls.frozen), (&["look"][..], false));
        assert_eq!(press(&mut watch, "^^p", false), Next::Show);
        assert!(watch.view.controls.frozen);
        assert_eq!(press(&mut watch, "^q", false), Next::Leave);
    }
}
