//! The screen of a watch: a function of its [`View`].
//!
//! From top to bottom: interfaces and time; what passes and what is dropped; the limits; the
//! reasons; the sources that are dropped most. A wide terminal has the sources beside the rest. A
//! small one does without blank lines first, then without the less important columns and reasons.

#[cfg(test)]
pub(super) mod example;
mod tables;
#[cfg(test)]
mod tests;
mod theme;
mod totals;

use ratatui::{
    buffer::Buffer,
    layout::{Alignment, Rect},
    text::Line,
    widgets::{Paragraph, Widget, Wrap},
};
use theme::Theme;

use super::view::View;
use crate::output::{
    monitoring,
    number::{duration, grouped, memory},
    status::Tables,
    table::Table,
    tone::Tone,
};

/// Columns from which on the sources have a column of their own.
const TWO_COLUMNS: usize = 2 * tables::WIDTH + 2;

/// Draws a watch.
pub fn render(view: &View, area: Rect, buffer: &mut Buffer) {
    let mut page = Page::new(view, area, buffer);
    page.footer();
    page.header();
    page.monitoring();
    page.gap();
    page.totals();
    page.gap();
    if usize::from(page.rest.width) >= TWO_COLUMNS {
        page.two_columns();
    } else {
        page.one_column();
    }
}

/// What is being drawn.
struct Page<'a> {
    view: &'a View,
    theme: Theme,
    /// Whether there is room for blank lines.
    roomy: bool,
    /// Rows of a curve.
    curve: u16,
    /// Where nothing is yet.
    rest: Rect,
    buffer: &'a mut Buffer,
}

impl<'a> Page<'a> {
    fn new(view: &'a View, area: Rect, buffer: &'a mut Buffer) -> Self {
        let margin = u16::from(area.width >= 60);
        let rest = Rect { x: area.x + margin, width: area.width - 2 * margin, ..area };
        let curve = match area.height {
            0..30 => 1,
            30..45 => 4,
            _ => 6,
        };
        let theme = Theme { colour: view.colour };
        Self { view, theme, roomy: area.height >= 20, curve, rest, buffer }
    }

    /// Takes rows from the top of what is left, or as many as there are.
    fn take(&mut self, rows: usize) -> Rect {
        let rows = u16::try_from(rows).unwrap_or(u16::MAX).min(self.rest.height);
        let area = Rect { height: rows, ..self.rest };
        self.rest.y += rows;
        self.rest.height -= rows;
        area
    }

    fn gap(&mut self) {
        self.take(usize::from(self.roomy));
    }

    fn table(&mut self, table: &Table) {
        let lines = self.theme.table(table, self.rest.width);
        let area = self.take(lines.len());
        Paragraph::new(lines).render(area, self.buffer);
    }

    /// A text, broken into lines where it has to be.
    fn text(&mut self, tone: Tone, text: &'static str) {
        let rows = text.len().div_ceil(usize::from(self.rest.width.max(1)));
        let area = self.take(rows);
        let paragraph = Paragraph::new(self.theme.span(tone, text));
        paragraph.wrap(Wrap { trim: true }).render(area, self.buffer);
    }

    /// Two texts at both ends of a line; the second only if it fits.
    fn ends(&mut self, area: Rect, left: Line<'_>, right: Line<'_>) {
        let fits = left.width() + right.width() + 2 <= usize::from(area.width);
        Paragraph::new(left).render(area, self.buffer);
        if fits {
            Paragraph::new(right).alignment(Alignment::Right).render(area, self.buffer);
        }
    }

    fn header(&mut self) {
        let mut times = Line::default();
        if self.view.paused {
            times.push_span(self.theme.span(Tone::Strong, "paused  "));
        }
        let (watched, interval) = (duration(self.view.watched()), duration(self.view.interval));
        let text = format!("watching {watched}, every {interval}");
        times.push_span(self.theme.span(Tone::Faint, text));
        let area = self.take(1);
        let room = usize::from(area.width).saturating_sub(times.width() + 2);
        self.ends(area, self.interfaces(room), times);
    }

    /// That nothing is dropped, if that is so.
    fn monitoring(&mut self) {
        if let Some(said) = monitoring::said(self.view.history.latest().monitoring) {
            self.text(Tone::Strong, said);
        }
    }

    /// The interfaces, as many as there is room for, but at least one.
    fn interfaces(&self, room: usize) -> Line<'static> {
        let mut line = Line::from(self.theme.span(Tone::Strong, "limiter"));
        let interfaces = &self.view.history.latest().interfaces;
        if interfaces.is_empty() {
            line.push_span("  no interface is attached: limiter attach IFACE");
        }
        for (place, interface) in interfaces.iter().enumerate() {
            let state = tables::state(interface);
            let more = format!("  and {} more", interfaces.len() - place);
            let width = line.width() + 3 + interface.name.len() + state.len();
            let last = place + 1 == interfaces.len();
            if place > 0 && width + if last { 0 } else { more.len() } > room {
                line.push_span(self.theme.span(Tone::Faint, more));
                break;
            }
            line.push_span(format!("  {} ", interface.name));
            line.push_span(self.theme.span(Tone::Faint, state));
        }
        line
    }

    fn footer(&mut self) {
        if self.rest.height < 8 {
            return;
        }
        let area = Rect { y: self.rest.bottom() - 1, height: 1, ..self.rest };
        self.rest.height -= 1 + u16::from(self.roomy);
        let keys = if self.view.paused { "q leave  p go on" } else { "q leave  p pause" };
        let left = Line::from(self.theme.span(Tone::Faint, keys));
        let Tables { sources, buckets, memory_bytes, .. } = self.view.tables;
        let mut right = String::new();
        for part in [
            format!("{} of {} sources", grouped(sources.tracked), grouped(sources.capacity)),
            format!("  {} of {} buckets", grouped(buckets.tracked), grouped(buckets.capacity)),
            format!("  {}", memory(memory_bytes)),
        ] {
            if left.width() + 2 + right.len() + part.len() > usize::from(area.width) {
                break;
            }
            right += &part;
        }
        self.ends(area, left, self.theme.span(Tone::Faint, right).into());
    }

    fn totals(&mut self) {
        let area = self.take(usize::from(2 * self.curve));
        totals::render(self.view, self.theme, area, self.buffer);
    }

    fn one_column(&mut self) {
        self.limits();
        self.gap();
        let gap = usize::from(self.roomy);
        // A title and a few sources come before more reasons.
        let room = usize::from(self.rest.height).saturating_sub(1 + 4 + 1 + gap);
        if room > 0 {
            self.reasons(room);
            self.gap();
        }
        self.sources();
    }

    fn two_columns(&mut self) {
        let width = (self.rest.width - 4) / 2;
        let right = Rect { x: self.rest.right() - width, width, ..self.rest };
        self.rest.width = width;
        let interfaces = tables::interfaces(self.view);
        self.table(&interfaces);
        self.gap();
        self.limits();
        self.gap();
        self.reasons(usize::MAX);
        self.rest = right;
        self.sources();
    }

    fn limits(&mut self) {
        if let Some(lines) = self.view.limits.how_to_set() {
            for text in lines {
                self.text(Tone::Plain, text);
            }
        } else {
            let table = tables::limits(self.view, self.rest.width);
            self.table(&table);
        }
    }

    fn reasons(&mut self, most: usize) {
        let table = tables::reasons(self.view, most);
        self.table(&table);
    }

    fn sources(&mut self) {
        let table = tables::sources(self.view, usize::from(self.rest.height).saturating_sub(1));
        self.table(&table);
        if self.view.talkers.rows().is_empty() {
            self.text(Tone::Faint, "No source has been seen yet.");
        }
    }
}
