//! What each key does.

use std::time::Instant;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{Asking, Choice, Controls, DEFAULT_TIME, Focus, Line, READING};
use crate::{
    datapath::survey::{Filter, Order},
    policy::{
        List,
        model::Mode,
        units::{parse_prefix, parse_time},
    },
    watch::action::Action,
};

/// What is to be done for a key, beside drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// End the watch.
    Leave,
    /// Give the terminal back to the shell, and stop the process.
    Stop,
    /// Draw the whole screen anew.
    Redraw,
    /// Scan the sources now, with the new search.
    Search,
    /// Read the standings that the picture lacks, as it is frozen from now on.
    Freeze,
    /// Make a reading now, as the picture is not frozen any more.
    Read,
    /// Read the details of the source that is open now.
    Open,
    /// Begin to read dropped packets, or end it.
    Drops,
    /// Change the policy in force. The user has confirmed it.
    Act(Action),
}

impl Controls {
    /// Handles an event of the terminal.
    pub fn press(&mut self, event: &Event, choice: Choice<'_>, now: Instant) -> Effect {
        match event {
            Event::Key(key) if key.kind == KeyEventKind::Press => self.key(*key, choice, now),
            // Pasted text never counts as keys.
            Event::Paste(text) => {
                if let Asking::Filter(line) | Asking::Time { line, .. } = &mut self.asking {
                    line.insert(text);
                }
                Effect::Nothing
            }
            _ => Effect::Nothing,
        }
    }

    fn key(&mut self, key: KeyEvent, choice: Choice<'_>, now: Instant) -> Effect {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c' | 'd') => return Effect::Leave,
                KeyCode::Char('z') => return Effect::Stop,
                KeyCode::Char('l') => return Effect::Redraw,
                _ => {}
            }
        }
        let is_typing = matches!(self.asking, Asking::Filter(_) | Asking::Time { .. });
        if !is_typing && key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return Effect::Nothing;
        }
        match std::mem::take(&mut self.asking) {
            Asking::Nothing => self.command(key, choice, now),
            Asking::Help { first } => {
                self.help_key(key, first);
                Effect::Nothing
            }
            Asking::Filter(line) => self.filter(line, key),
            Asking::Time { list, source, mut line } => {
                self.asking = match key.code {
                    KeyCode::Esc => Asking::Nothing,
                    KeyCode::Enter => {
                        let text = if line.text().is_empty() { DEFAULT_TIME } else { line.text() };
                        match parse_time(text) {
                            Ok(time) => {
                                let action = Action::Put { list, source, time };
                                Asking::Confirm { action, since: now, is_shown: false }
                            }
                            Err(error) => {
                                line.fault = Some(error.to_string());
                                Asking::Time { list, source, line }
                            }
                        }
                    }
                    _ => {
                        line.press(key);
                        Asking::Time { list, source, line }
                    }
                };
                Effect::Nothing
            }
            Asking::Confirm { action, since, is_shown } => match key.code {
                KeyCode::Char('y' | 'Y') if now.saturating_duration_since(since) >= READING => {
                    Effect::Act(action)
                }
                KeyCode::Char('y' | 'Y') => {
                    self.asking = Asking::Confirm { action, since, is_shown };
                    Effect::Nothing
                }
                _ => {
                    self.tell(Ok("Nothing was changed.".to_owned()));
                    Effect::Nothing
                }
            },
        }
    }

    fn command(&mut self, key: KeyEvent, choice: Choice<'_>, now: Instant) -> Effect {
        match key.code {
            KeyCode::Char('q' | 'Q') => return Effect::Leave,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.asking = Asking::Help { first: 0 },
            KeyCode::Char('/') => self.asking = Asking::Filter(Line::default()),
            KeyCode::Char('p' | 'P' | ' ') => {
                self.frozen = !self.frozen;
                return if self.frozen { Effect::Freeze } else { Effect::Read };
            }
            KeyCode::Char('s') => return self.sort(1),
            KeyCode::Char('S') => return self.sort(Order::LIVE.len() - 1),
            KeyCode::Char('x' | 'X') if self.open.is_none() => {
                self.drops = !self.drops;
                return Effect::Drops;
            }
            KeyCode::Esc => return self.back(),
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = match self.focus {
                    Focus::Sources => Focus::Limits,
                    Focus::Limits => Focus::Sources,
                };
                // A selection shows which table has the focus.
                let none = match self.focus {
                    Focus::Sources => self.source(choice).is_none(),
                    Focus::Limits => self.limit(choice).is_none(),
                };
                if none {
                    return self.step(0, choice);
                }
            }
            KeyCode::Down | KeyCode::Char('j') => return self.step(1, choice),
            KeyCode::Up | KeyCode::Char('k') => return self.step(-1, choice),
            KeyCode::PageDown => return self.step(self.page(), choice),
            KeyCode::PageUp => return self.step(-self.page(), choice),
            KeyCode::Home => return self.step(isize::MIN, choice),
            KeyCode::End => return self.step(isize::MAX, choice),
            KeyCode::Enter
                if self.focus == Focus::Sources && self.open.is_none() && !self.drops =>
            {
                match self.source(choice) {
                    Some(row) => self.open = Some(row.net()),
                    None => self.tell(Err(SELECT_SOURCE.to_owned())),
                }
                return Effect::Open;
            }
            KeyCode::Char('d' | 'a' | 'm') if self.read_only => {
                self.tell(Err(READ_ONLY.to_owned()));
            }
            KeyCode::Char('d') => self.ask_time(List::Deny, choice),
            KeyCode::Char('a') => self.ask_time(List::Allow, choice),
            KeyCode::Char('m') => self.ask_mode(choice, now),
            _ => {}
        }
        Effect::Nothing
    }

    fn filter(&mut self, mut line: Line, key: KeyEvent) -> Effect {
        match key.code {
            KeyCode::Esc => return Effect::Nothing,
            KeyCode::Enter if line.text().is_empty() => self.filter = None,
            KeyCode::Enter => match filter(line.text()) {
                Ok(filter) => self.filter = Some(filter),
                Err(fault) => {
                    line.fault = Some(fault);
                    self.asking = Asking::Filter(line);
                    return Effect::Nothing;
                }
            },
            _ => {
                line.press(key);
                self.asking = Asking::Filter(line);
                return Effect::Nothing;
            }
        }
        self.focus = Focus::Sources;
        self.sources = super::Rows { page: self.sources.page, ..Default::default() };
        Effect::Search
    }

    /// Scrolls the help, where it is longer than the screen. Any other key closes it.
    fn help_key(&mut self, key: KeyEvent, first: usize) {
        let [hidden, page] = self.help;
        let first = match key.code {
            _ if hidden == 0 => return,
            KeyCode::Down | KeyCode::Char('j') => first.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => first.saturating_add(page),
            KeyCode::PageUp => first.saturating_sub(page),
            KeyCode::Home => 0,
            KeyCode::End => hidden,
            _ => return,
        };
        self.asking = Asking::Help { first: first.min(hidden) };
    }

    fn sort(&mut self, by: usize) -> Effect {
        let place = Order::LIVE.iter().position(|order| *order == self.order).unwrap_or(0);
        self.order = Order::LIVE[(place + by) % Order::LIVE.len()];
        self.sources.first = 0;
        Effect::Search
    }

    /// Goes one step back: from the opened source, from the filter, or from the selection.
    fn back(&mut self) -> Effect {
        if self.open.take().is_some() {
            self.focus = Focus::Sources;
            return Effect::Nothing;
        }
        if std::mem::take(&mut self.drops) {
            return Effect::Drops;
        }
        if self.filter.take().is_some() {
            return Effect::Search;
        }
        self.sources.selected = None;
        self.sources.first = 0;
        self.limits.selected = None;
        self.limits.first = 0;
        self.focus = Focus::Sources;
        Effect::Nothing
    }

    fn page(&self) -> isize {
        let page = match self.focus {
            Focus::Sources => self.sources.page,
            Focus::Limits => self.limits.page,
        };
        isize::try_from(page.max(1)).unwrap_or(isize::MAX)
    }

    fn step(&mut self, by: isize, choice: Choice<'_>) -> Effect {
        let Choice { sources, limits } = choice;
        if self.focus == Focus::Limits {
            self.limits.step(by, limits.len(), |place| limits[place].name.clone());
            return Effect::Nothing;
        }
        self.sources.step(by, sources.len(), |place| sources[place].net());
        if self.open.is_none() {
            return Effect::Nothing;
        }
        // The next or previous source is opened.
        self.open = self.source(choice).map(super::Ranked::net).or(self.open);
        Effect::Open
    }

    fn ask_time(&mut self, list: List, choice: Choice<'_>) {
        let selected = self.source(choice).filter(|_| self.focus == Focus::Sources);
        match self.open.or_else(|| selected.map(super::Ranked::net)) {
            Some(source) => self.asking = Asking::Time { list, source, line: Line::default() },
            None => self.tell(Err(SELECT_SOURCE.to_owned())),
        }
    }

    fn ask_mode(&mut self, choice: Choice<'_>, now: Instant) {
        match self.limit(choice).filter(|_| self.focus == Focus::Limits) {
            Some(row) if row.candidate => self.tell(Err(CANDIDATE.to_owned())),
            Some(row) if row.mode == Mode::Drop => self.tell(Err(DROPS.to_owned())),
            Some(row) => {
                let mode = match row.mode {
                    Mode::Monitor => Mode::Enforce,
                    Mode::Enforce | Mode::Drop | Mode::Off => Mode::Monitor,
                };
                let action = Action::Switch { limit: row.limit.clone(), mode };
                self.asking = Asking::Confirm { action, since: now, is_shown: false };
            }
            None => self.tell(Err("Select a limit first: Tab, then the arrow keys.".to_owned())),
        }
    }
}

/// The sources that a text asks for: a prefix, or else a part of their addresses.
fn filter(text: &str) -> Result<Filter, String> {
    let is_of_address = |it: u8| it.is_ascii_hexdigit() || matches!(it, b'.' | b':');
    match parse_prefix(text) {
        Ok(prefix) => Ok(Filter::Prefix(prefix)),
        Err(_) if text.bytes().all(is_of_address) => Ok(Filter::Part(text.to_ascii_lowercase())),
        Err(error) => Err(error.to_string()),
    }
}

/// The message for a key that would change the policy.
pub const READ_ONLY: &str = "nothing is changed from a watch with --read-only";
const DROPS: &str =
    "This limit drops all that it is about: `limiter limit set NAME --action off` ends that.";
const CANDIDATE: &str = "A candidate only counts: select the limit that it is one for.";
const SELECT_SOURCE: &str = "Select a source first, with the arrow keys.";
