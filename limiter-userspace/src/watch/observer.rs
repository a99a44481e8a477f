//! Asking what is watched, for what a view shows.

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

/// How often the first reading is tried, where what is in its way passes, and how long it waits before each.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// What is to be done on the terminal for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Draw what changed.
    Show,
    /// Draw all of the screen anew.
    Redraw,
    /// Give it back to the shell, and stop.
    Stop,
    /// End the watch.
    Leave,
}

/// What is watched, and what is known of it.
pub(super) struct Observer<S> {
    source: S,
    pace: Pace,
    /// Of a source with state by many other keys, all of these are looked at.
    details: Pace,
    /// What is known of it.
    pub(super) view: View,
}

impl<S: DataSource> Observer<S> {
    /// Makes the first reading.
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

    /// Takes in keys that came together, and does what they ask for. Those after one that stops are for
    /// nobody; where it cannot be stopped, such a key does nothing.
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
                    // What was asked for before belongs to the picture that stands still.
                    if let Some(before) = last.take() {
                        self.follow(&before)?;
                    }
                    self.follow(&Effect::Freeze)?;
                }
                // They ask for one look.
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
                // Nothing is read for it any more.
                self.view.late = None;
                self.complete();
            }
            Effect::Read => {
                // What is shown may be sorted or filtered in another way than what was found.
                (self.pace, self.details) = (Pace::default(), Pace::default());
                self.read()?;
            }
            Effect::Open => self.detail(),
            Effect::Act(action) => {
                let said = self.source.act(action);
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
        match self.source.standings(&shown) {
            Ok(standings) => self.view.stand(shown, standings),
            Err(error) => self.view.controls.tell(Err(error)),
        }
    }

    /// Asks the same of all sources that can come to be shown of a picture that stands still.
    fn complete(&mut self) {
        let missing = self.view.not_standing();
        match self.source.standings(&missing) {
            Ok(standings) => self.view.complete(missing, standings),
            Err(error) => self.view.controls.tell(Err(error)),
        }
    }

    /// Asks for all about the source that is open.
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

    /// Makes a reading, but for what passes by itself.
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
    use crate::watch::{action::Action, opened::Details, screen::example, standing::Standing};

    /// A made-up limiter, and what it was asked.
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
        // From what moves, and from what stands still already.
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
    fn a_picture_that_stands_still_is_not_late() {
        let mut watch = begun();
        watch.source.fails = true;
        assert!(!watch.read().unwrap() && watch.view.late.is_some());
        press(&mut watch, "p", true);
        assert!(watch.view.late.is_none());
        // What moves is.
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
