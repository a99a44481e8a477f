//! The screen of a watch: a function of its [`View`].
//!
//! From top to bottom: the interfaces and the time; the traffic; the limits; the reasons; the
//! sources; a question or the keys. A wide terminal shows the sources beside the rest. A small
//! terminal leaves out blank lines first, then the columns and reasons that matter less. An opened
//! source, or the help, replaces everything below the first line.
//!
//! The selection is marked by a sign too, and words say all that colours say.

mod ascii;
mod drops;
#[cfg(test)]
pub(super) mod example;
mod footer;
mod header;
mod help;
mod source;
mod sources;
mod tables;
#[cfg(test)]
mod tests;
mod theme;
mod totals;

use std::ops::Range;

use ratatui::{
    buffer::Buffer,
    layout::{Alignment, Rect},
    style::Modifier,
    text::Line,
    widgets::{Paragraph, Widget},
};
use theme::{Theme, fitted};
use totals::Traffic;

use super::{
    controls::{Asking, Drawn},
    view::View,
};
use crate::output::{table::Table, tone::Tone};

/// The width from which on the sources are beside the rest.
const TWO_COLUMNS: usize = 2 * tables::WIDTH + 2;

/// Draws a watch. Returns the size of its tables on the screen.
pub fn render(view: &View, area: Rect, buffer: &mut Buffer) -> Drawn {
    let drawn = draw(view, area, buffer);
    if view.ascii {
        ascii::reduce(area, buffer);
    }
    drawn
}

fn draw(view: &View, area: Rect, buffer: &mut Buffer) -> Drawn {
    let mut page = Page::new(view, area, buffer);
    page.footer();
    page.header();
    if let Asking::Help { first } = view.controls.asking {
        return Drawn { help: page.help(first), ..view.drawn() };
    }
    if let Some(opened) = &view.opened {
        page.gap();
        page.source(opened);
        return view.drawn();
    }
    page.monitoring();
    page.gap();
    if view.controls.drops {
        page.drops(view.drops.as_ref());
        return view.drawn();
    }
    page.totals();
    page.gap();
    if usize::from(page.rest.width) >= TWO_COLUMNS {
        page.two_columns();
    } else {
        page.one_column();
    }
    page.drawn
}

/// A picture that is being drawn.
struct Page<'a> {
    view: &'a View,
    theme: Theme,
    /// Whether there is room for blank lines.
    roomy: bool,
    /// Rows of each curve of the traffic.
    curve: u16,
    /// The area that is still free.
    rest: Rect,
    drawn: Drawn,
    buffer: &'a mut Buffer,
}

impl<'a> Page<'a> {
    fn new(view: &'a View, area: Rect, buffer: &'a mut Buffer) -> Self {
        // The left margin has the sign of the selection.
        let [left, right] = [40, 60].map(|width| u16::from(area.width >= width));
        let rest = Rect { x: area.x + left, width: area.width - left - right, ..area };
        let curve = match area.height {
            0..30 => 1,
            30..45 => 4,
            _ => 6,
        };
        let theme = Theme { colour: view.colour };
        let drawn = Drawn::default();
        Self { view, theme, roomy: area.height >= 20, curve, rest, drawn, buffer }
    }

    /// Takes rows from the top of the free area, or as many as there are.
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
        self.lines(self.theme.table(table, self.rest.width));
    }

    fn lines(&mut self, lines: Vec<Line<'_>>) {
        let area = self.take(lines.len());
        self.paragraph(area, lines);
    }

    /// Draws lines, each cut to the width of the area.
    fn paragraph(&mut self, area: Rect, lines: Vec<Line<'_>>) {
        let lines: Vec<_> = lines.into_iter().map(|line| fitted(line, area.width)).collect();
        Paragraph::new(lines).render(area, self.buffer);
    }

    /// Draws a table in which a row may be selected.
    fn selectable(&mut self, table: &Table, selected: Option<usize>) {
        let top = self.rest.y;
        self.table(table);
        let Some(row) = selected else { return };
        // The first line has the titles.
        let Ok(row) = u16::try_from(row + 1) else { return };
        let area = Rect { y: top + row, height: 1, ..self.rest };
        if area.y >= self.rest.y {
            return;
        }
        self.buffer.set_style(area, Modifier::REVERSED);
        if area.x > 0 {
            self.buffer[(area.x - 1, area.y)].set_symbol(">");
        }
    }

    /// Draws a text, wrapped to the width.
    fn text(&mut self, tone: Tone, text: &str) {
        self.lines(self.theme.wrapped(tone, text, self.rest.width));
    }

    /// Draws two texts at both ends of a line; the second one only if it fits.
    fn ends(&mut self, area: Rect, left: Line<'_>, right: Line<'_>) {
        let fits = left.width() + right.width() + 2 <= usize::from(area.width);
        self.paragraph(area, vec![left]);
        if fits {
            Paragraph::new(right).alignment(Alignment::Right).render(area, self.buffer);
        }
    }

    /// Draws the help, from its line `first` on if it is longer than the screen. Returns how many
    /// lines there was no room for, and how many are shown.
    fn help(&mut self, first: usize) -> [usize; 2] {
        self.gap();
        let read_only = self.view.controls.read_only;
        let lines = help::lines(self.theme, read_only, self.rest.width);
        let closing = self.theme.wrapped(Tone::Plain, help::closing(read_only), self.rest.width);
        let (all, room) = (lines.len(), usize::from(self.rest.height));
        if all + closing.len() <= room {
            self.lines(lines);
            self.take(usize::from(all + closing.len() < room));
            self.lines(closing);
            return [0, all];
        }
        // The last line says which part is shown.
        let page = room.saturating_sub(1).max(1);
        let shown = part(first, page, all);
        let (from, to) = (shown.start + 1, shown.end);
        self.lines(lines.into_iter().skip(shown.start).take(shown.len()).collect());
        self.text(Tone::Faint, &format!("{from}-{to} of {all}  ↑↓ scroll, other keys close"));
        [all.saturating_sub(page), page]
    }

    fn totals(&mut self) {
        let area = self.take(usize::from(2 * self.curve));
        Traffic::of_all(self.view).render(self.theme, area, self.buffer);
    }

    fn one_column(&mut self) {
        // At most a third of the space, so that many limits leave room for sources.
        self.limits(usize::from(self.rest.height / 3).max(3));
        self.gap();
        let gap = usize::from(self.roomy);
        // A title line and four sources are kept free.
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
        self.limits(usize::from(self.rest.height).saturating_sub(8).max(3));
        self.gap();
        self.reasons(usize::MAX);
        self.rest = right;
        self.sources();
    }

    fn limits(&mut self, most: usize) {
        if let Some(lines) = self.view.limits.how_to_set() {
            for text in lines {
                self.text(Tone::Plain, text);
            }
            return;
        }
        let [_, first] = self.view.controls.first();
        let [_, selected] = self.view.controls.places(self.view.choice());
        let shown = part(first, most, self.view.limits.rows.len());
        let table = tables::limits(self.view, self.rest.width, &shown);
        self.drawn.limits = shown.len();
        self.selectable(&table, selected.and_then(|place| place.checked_sub(shown.start)));
    }

    fn reasons(&mut self, most: usize) {
        let table = tables::reasons(self.view, most);
        self.table(&table);
    }

    fn sources(&mut self) {
        let [first, _] = self.view.controls.first();
        let [selected, _] = self.view.controls.places(self.view.choice());
        let (rows, room) = (self.view.talkers.rows().len(), self.rest.height.saturating_sub(1));
        let shown = part(first, room.into(), rows);
        let table = sources::table(self.view, &shown);
        self.drawn.sources = room.into();
        self.selectable(&table, selected.and_then(|place| place.checked_sub(shown.start)));
        if rows == 0 && self.view.controls.filter.is_some() {
            self.text(Tone::Plain, "No source is in the filter. Esc shows all.");
        } else if rows == 0 {
            self.text(Tone::Faint, "No source has been seen yet.");
        }
    }
}

/// The range of `most` places from `first` on, moved back where it would go beyond `all`.
fn part(first: usize, most: usize, all: usize) -> Range<usize> {
    let first = first.min(all.saturating_sub(most));
    first..all.min(first + most)
}
