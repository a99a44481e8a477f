//! Tones, as styles of the screen.

use std::borrow::Cow;

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};
use textwrap::{Options, WordSplitter};

use crate::output::{
    table::{Cell, GAP, Table},
    tone::Tone,
};

/// A text in lines of at most `width` columns. Only a word that is longer than a line is broken.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<Cow<'_, str>> {
    textwrap::wrap(text, Options::new(width.max(1)).word_splitter(WordSplitter::NoHyphenation))
}

/// A line of at most `width` columns. One that is cut ends in `…`.
pub(super) fn fitted(mut line: Line<'_>, width: u16) -> Line<'_> {
    if line.width() <= width.into() {
        return line;
    }
    let mut left = usize::from(width.saturating_sub(1));
    for span in &mut line.spans {
        let kept: String = span.content.chars().take(left).collect();
        left -= kept.chars().count();
        span.content = kept.into();
    }
    line.push_span("…");
    line
}

/// The styles of tones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    /// Whether colours may be used.
    pub(super) colour: bool,
}

impl Theme {
    /// The style of a tone.
    pub(super) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        match tone {
            Tone::Plain => plain,
            Tone::Strong => plain.add_modifier(Modifier::BOLD),
            Tone::Faint => plain.add_modifier(Modifier::DIM),
            Tone::Passed if self.colour => plain.fg(Color::Green),
            Tone::Dropped if self.colour => plain.fg(Color::Red),
            Tone::Passed | Tone::Dropped => plain,
        }
    }

    /// A text in a tone.
    pub(super) fn span(self, tone: Tone, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(tone))
    }

    /// A text in a tone, in lines of at most `width` columns. Only a word that is longer than a line
    /// is broken.
    pub(super) fn wrapped(self, tone: Tone, text: &str, width: u16) -> Vec<Line<'static>> {
        let lines = wrapped(text, width.into());
        lines.into_iter().map(|line| self.span(tone, line).into()).collect()
    }

    /// A table in at most `width` columns.
    pub(super) fn table(self, table: &Table, width: u16) -> Vec<Line<'static>> {
        table.layout(width.into()).into_iter().map(|cells| self.line(cells)).collect()
    }

    fn line(self, cells: Vec<Cell>) -> Line<'static> {
        let mut line = Line::default();
        for cell in cells {
            if !line.spans.is_empty() {
                line.push_span(GAP);
            }
            line.push_span(self.span(cell.tone, cell.text));
        }
        line
    }
}
