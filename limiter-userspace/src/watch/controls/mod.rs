//! What the keys of a watch are about: which row is selected, what is asked, what is shown.
//!
//! Nothing here draws or changes anything else. [`Controls::press`] takes in a key and says what is
//! to be done for it, [`Controls::settle`] what there is to choose from.

mod line;
mod press;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use ipnet::IpNet;

pub use self::{
    line::Line,
    press::{Effect, READ_ONLY},
};
use super::{action::Action, talkers::Ranked};
use crate::{
    datapath::survey::{Order, Search},
    output::limits::LimitRow,
    policy::List,
};

/// What is pressed sooner after a question than this is no answer to it: nobody has read it by then,
/// it was pasted, or meant for what was there before.
pub const READING: Duration = Duration::from_millis(300);

/// Sources that can be selected, at most.
const SELECTABLE: usize = 1000;

/// For how long a source is put on a list where nothing else is said.
pub const DEFAULT_TIME: &str = "10m";

/// A table in which rows can be selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// That of the sources.
    #[default]
    Sources,
    /// That of the limits.
    Limits,
}

/// What is asked, or told above all else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// Nothing.
    #[default]
    Nothing,
    /// Nothing; the keys are told.
    Help,
    /// Which sources are to be shown.
    Filter(Line),
    /// For how long a source is to be put on a list.
    Time {
        /// The list.
        list: List,
        /// The source.
        source: IpNet,
        /// What was typed.
        line: Line,
    },
    /// Whether this is really to be done.
    Confirm {
        /// What.
        action: Action,
        /// Since when that is asked.
        since: Instant,
        /// Whether it is to be seen.
        is_shown: bool,
    },
}

/// What is told until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// In a line.
    pub text: String,
    /// Whether something was not done.
    pub failed: bool,
}

/// A row that is selected: by what it is about, so that it stays the same where rows move.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selected<T> {
    it: T,
    /// Where it was last.
    place: usize,
}

/// The rows of a table.
#[derive(Clone, Debug, Default)]
struct Rows<T> {
    selected: Option<Selected<T>>,
    /// How many are shown at once.
    page: usize,
    /// The first one that is shown.
    first: usize,
}

/// What there is to choose from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// The sources, in the order in which they are shown.
    pub sources: &'a [Ranked],
    /// The limits.
    pub limits: &'a [LimitRow],
}

/// The state of the keys.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    /// The table that keys are for.
    pub focus: Focus,
    /// Which sources come first.
    pub order: Order,
    /// Which sources are shown; all without one.
    pub filter: Option<IpNet>,
    /// Whether the picture stands still.
    pub frozen: bool,
    /// The source that is looked at closely.
    pub open: Option<IpNet>,
    /// Whether no key changes anything.
    pub read_only: bool,
    /// What is asked.
    pub asking: Asking,
    /// What is told.
    pub message: Option<Message>,
    sources: Rows<IpNet>,
    limits: Rows<String>,
}

/// How many rows of each table were drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Of that of the sources.
    pub sources: usize,
    /// Of that of the limits.
    pub limits: usize,
}

impl Controls {
    /// Notes that what is asked is to be seen from now on.
    pub fn shown(&mut self, now: Instant) {
        if let Asking::Confirm { since, is_shown: is_shown @ false, .. } = &mut self.asking {
            (*since, *is_shown) = (now, true);
        }
    }

    /// Takes in what there is to choose from now, and how much of it can be shown.
    pub fn settle(&mut self, choice: Choice<'_>, drawn: Drawn) {
        let place = |it: &IpNet| choice.sources.iter().position(|row| row.net() == *it);
        self.sources.settle(place, choice.sources.len(), drawn.sources);
        let place = |it: &String| choice.limits.iter().position(|row| row.name == *it);
        self.limits.settle(place, choice.limits.len(), drawn.limits);
    }

    /// The first source and the first limit that are shown.
    pub const fn first(&self) -> [usize; 2] {
        [self.sources.first, self.limits.first]
    }

    /// The source that is selected, if it is there.
    pub fn source<'a>(&self, choice: Choice<'a>) -> Option<&'a Ranked> {
        let selected = self.sources.selected.as_ref()?;
        choice.sources.iter().find(|row| row.net() == selected.it)
    }

    /// The limit that is selected, if it is there.
    pub fn limit<'a>(&self, choice: Choice<'a>) -> Option<&'a LimitRow> {
        let selected = self.limits.selected.as_ref()?;
        choice.limits.iter().find(|row| row.name == selected.it)
    }

    /// The place of the selected row among the sources and among the limits: only one of them has
    /// the keys.
    pub fn places(&self, choice: Choice<'_>) -> [Option<usize>; 2] {
        let of = |focus, place: Option<usize>| place.filter(|_| self.focus == focus);
        let source = self.sources.selected.as_ref();
        let source = source.and_then(|at| choice.sources.iter().position(|row| row.net() == at.it));
        let limit = self.limits.selected.as_ref();
        let limit = limit.and_then(|at| choice.limits.iter().position(|row| row.name == at.it));
        [of(Focus::Sources, source), of(Focus::Limits, limit)]
    }

    /// The sources that are wanted of a watch that reads at this interval.
    pub fn search(&self, interval: Duration) -> Search {
        let (within, order) = (self.filter, self.order);
        Search { within, order, most: SELECTABLE, apart: interval / 2 }
    }

    /// Tells something until the next key.
    pub fn tell(&mut self, said: Result<String, String>) {
        let failed = said.is_err();
        let text = said.unwrap_or_else(|error| error);
        self.message = Some(Message { text, failed });
    }
}

impl<T> Rows<T> {
    /// Keeps the selected row in sight, where it is still there.
    fn settle(&mut self, place: impl Fn(&T) -> Option<usize>, rows: usize, page: usize) {
        self.page = page;
        if let Some(selected) = &mut self.selected
            && let Some(place) = place(&selected.it)
        {
            selected.place = place;
            let last = place.saturating_sub(page.saturating_sub(1));
            self.first = self.first.clamp(last, place);
        }
        self.first = self.first.min(rows.saturating_sub(page));
    }

    /// Selects another row: so far from the selected one, or the first one if none is.
    fn step(&mut self, by: isize, rows: usize, at: impl Fn(usize) -> T) {
        let Some(last) = rows.checked_sub(1) else { return };
        let place = match &self.selected {
            Some(selected) => selected.place.saturating_add_signed(by).min(last),
            None if by == isize::MAX => last,
            None => 0,
        };
        self.selected = Some(Selected { it: at(place), place });
    }
}
