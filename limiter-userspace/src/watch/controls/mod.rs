//! The state that the keys of a watch change: the selection, the filter, open questions.
//!
//! Nothing here draws, reads or changes a policy. [`Controls::press`] handles a key and returns
//! what is to be done for it; [`Controls::settle`] takes in the rows that can be selected.

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
    datapath::survey::{Filter, Order, Search},
    output::limits::LimitRow,
    policy::List,
};

/// A confirmation sooner than this after the question was shown does not count: it was pasted, or
/// meant for the screen before the question.
pub const READING: Duration = Duration::from_millis(300);

/// The most sources that can be selected.
const SELECTABLE: usize = 1000;

/// How long a list entry lasts if the user gives no time.
pub const DEFAULT_TIME: &str = "10m";

/// A table in which rows can be selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// The table of the sources.
    #[default]
    Sources,
    /// The table of the limits.
    Limits,
}

/// The question on the screen, or the help.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// No question.
    #[default]
    Nothing,
    /// No question; the help is shown.
    Help {
        /// The first line of it on the screen.
        first: usize,
    },
    /// Which sources are to be shown?
    Filter(Line),
    /// How long is a source to be on a list?
    Time {
        /// The list.
        list: List,
        /// The source.
        source: IpNet,
        /// The answer so far.
        line: Line,
    },
    /// Is the policy to be changed?
    Confirm {
        /// The change.
        action: Action,
        /// When the question was asked, or first drawn.
        since: Instant,
        /// Whether the question was drawn.
        is_shown: bool,
    },
}

/// A message that is shown until the next key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The message, of one line.
    pub text: String,
    /// Whether it says that something failed.
    pub failed: bool,
}

/// A selected row. It is identified by its source or limit, so that the selection follows a row
/// that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Selected<T> {
    it: T,
    /// The place of the row, when it was last there.
    place: usize,
}

/// The selection and the scroll position of a table.
#[derive(Clone, Debug, Default)]
struct Rows<T> {
    selected: Option<Selected<T>>,
    /// The number of rows that fit on the screen.
    page: usize,
    /// The place of the first row on the screen.
    first: usize,
}

/// The rows that can be selected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// The sources, in the order of the screen.
    pub sources: &'a [Ranked],
    /// The limits, in the order of the screen.
    pub limits: &'a [LimitRow],
}

/// The state of the keys.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    /// The table that keys select in.
    pub focus: Focus,
    /// The order of the sources.
    pub order: Order,
    /// The sources that are shown; `None` for all sources.
    pub filter: Option<Filter>,
    /// Whether the picture is frozen.
    pub frozen: bool,
    /// The source that is open: shown in detail.
    pub open: Option<IpNet>,
    /// Whether dropped packets are shown.
    pub drops: bool,
    /// Whether keys cannot change the policy.
    pub read_only: bool,
    /// The question on the screen.
    pub asking: Asking,
    /// The message on the screen.
    pub message: Option<Message>,
    sources: Rows<IpNet>,
    limits: Rows<String>,
    /// Lines of the help that there was no room for, and lines that there was room for.
    help: [usize; 2],
}

/// The size of the tables on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Rows that there is room for in the table of the sources.
    pub sources: usize,
    /// Rows that were drawn of the table of the limits.
    pub limits: usize,
    /// Lines of the help that there was no room for, and lines that there was room for.
    pub help: [usize; 2],
}

impl Controls {
    /// Notes that the question was drawn at `now`. Answers count from [`READING`] later on.
    pub fn shown(&mut self, now: Instant) {
        if let Asking::Confirm { since, is_shown: is_shown @ false, .. } = &mut self.asking {
            (*since, *is_shown) = (now, true);
        }
    }

    /// Takes in the rows that can be selected now, and the size of the tables on the screen.
    pub fn settle(&mut self, choice: Choice<'_>, drawn: Drawn) {
        let place = |it: &IpNet| choice.sources.iter().position(|row| row.net() == *it);
        self.sources.settle(place, choice.sources.len(), drawn.sources);
        let place = |it: &String| choice.limits.iter().position(|row| row.name == *it);
        self.limits.settle(place, choice.limits.len(), drawn.limits);
        self.help = drawn.help;
        if let Asking::Help { first } = &mut self.asking {
            *first = (*first).min(drawn.help[0]);
        }
    }

    /// The places of the first source and of the first limit on the screen.
    pub const fn first(&self) -> [usize; 2] {
        [self.sources.first, self.limits.first]
    }

    /// The selected source, if it is still among the rows.
    pub fn source<'a>(&self, choice: Choice<'a>) -> Option<&'a Ranked> {
        let selected = self.sources.selected.as_ref()?;
        choice.sources.iter().find(|row| row.net() == selected.it)
    }

    /// The selected limit, if it is still among the rows.
    pub fn limit<'a>(&self, choice: Choice<'a>) -> Option<&'a LimitRow> {
        let selected = self.limits.selected.as_ref()?;
        choice.limits.iter().find(|row| row.name == selected.it)
    }

    /// The places of the selected source and of the selected limit. Only the table with the focus
    /// has one.
    pub fn places(&self, choice: Choice<'_>) -> [Option<usize>; 2] {
        let of = |focus, place: Option<usize>| place.filter(|_| self.focus == focus);
        let source = self.sources.selected.as_ref();
        let source = source.and_then(|at| choice.sources.iter().position(|row| row.net() == at.it));
        let limit = self.limits.selected.as_ref();
        let limit = limit.and_then(|at| choice.limits.iter().position(|row| row.name == at.it));
        [of(Focus::Sources, source), of(Focus::Limits, limit)]
    }

    /// The search for the next scan, of a watch that reads at this interval.
    pub fn search(&self, interval: Duration) -> Search {
        let (within, order) = (self.filter.clone(), self.order);
        Search { within, order, most: SELECTABLE, apart: interval / 2 }
    }

    /// Shows a message until the next key.
    pub fn tell(&mut self, said: Result<String, String>) {
        let failed = said.is_err();
        let text = said.unwrap_or_else(|error| error);
        self.message = Some(Message { text, failed });
    }
}

impl<T> Rows<T> {
    /// Scrolls so that the selected row is on the screen, if it is still there.
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

    /// Moves the selection by this many rows. Without a selection, it selects the first row, or for
    /// [`isize::MAX`] the last.
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
