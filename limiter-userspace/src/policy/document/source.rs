//! A text, and places in it.

use crate::policy::units::printable;

/// The most characters of a line that an excerpt shows.
const SHOWN: usize = 96;
/// The most of those before the part that is wrong.
const BEFORE: usize = 40;

/// A range of bytes in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A text with its name and the starts of its lines.
pub(super) struct Source<'t> {
    pub(super) name: &'t str,
    text: &'t str,
    lines: Vec<usize>,
}

/// A line of a text with the part that is wrong. It is safe to print on a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    pub(super) text: String,
    /// The number of columns before the underlined part.
    pub(super) indent: usize,
    /// The number of underlined columns, at least 1.
    pub(super) width: usize,
}

impl<'t> Source<'t> {
    pub(super) fn new(name: &'t str, text: &'t str) -> Self {
        let after = |(at, _)| at + 1;
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(after)).collect();
        Self { name, text, lines }
    }

    /// The line of a byte, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|&start| start <= at).max(1)
    }

    /// The line of a place, and its column in characters, both from 1.
    pub(super) fn position(&self, place: Place) -> (usize, usize) {
        let line = self.line(place.start);
        let start = self.start_of(line);
        let before = self.text.get(start..place.start.min(self.text.len())).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    /// The line of a place, with the part of the place on that line.
    pub(super) fn excerpt(&self, place: Place) -> Excerpt {
        let start = self.start_of(self.line(place.start));
        let line = self.text.get(start..).unwrap_or_default();
        let line = line.split('\n').next().unwrap_or_default().trim_end_matches('\r');
        excerpt(line, place.start.saturating_sub(start), place.end.saturating_sub(start))
    }

    fn start_of(&self, line: usize) -> usize {
        self.lines.get(line - 1).copied().unwrap_or_default()
    }
}

/// The bytes `start..end` of a line with some of the text around them.
pub(super) fn excerpt(line: &str, start: usize, end: usize) -> Excerpt {
    let start = floor(line, start);
    let end = floor(line, end).max(start);
    let (before, marked, after) = (&line[..start], &line[start..end], &line[end..]);
    let long = line.len() > SHOWN && line.chars().count() > SHOWN;
    let skipped = if long { before.chars().count().saturating_sub(BEFORE) } else { 0 };
    let cut = if skipped > 0 { "…" } else { "" };
    let before: String = before.chars().skip(skipped).collect();
    let indent = format!("{cut}{}", visible(before.trim_start_matches('\u{feff}')));
    let mut marked = visible(&cut_short(marked, SHOWN - BEFORE));
    if marked.is_empty() && after.is_empty() {
        // Something is missing at the end of the line; underline one column there.
        marked.push(' ');
    }
    let width = marked.chars().count().max(1);
    let left = SHOWN.saturating_sub(indent.chars().count() + width);
    let rest = if long { cut_short(after, left) } else { after.to_owned() };
    let text = format!("{indent}{marked}{}", visible(&rest));
    Excerpt { text: text.trim_end().to_owned(), indent: indent.chars().count(), width }
}

fn floor(line: &str, at: usize) -> usize {
    let at = at.min(line.len());
    (0..=at).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0)
}

fn cut_short(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    end.map_or_else(|| text.to_owned(), |end| format!("{}…", &text[..end]))
}

/// A text with all characters escaped that a terminal may act on; quotes stay as they are.
fn visible(text: &str) -> String {
    let mut buffer = [0; 4];
    text.chars().fold(String::with_capacity(text.len()), |mut shown, letter| {
        match letter {
            '"' | '\'' | '\\' => shown.push(letter),
            letter => shown.push_str(&printable(letter.encode_utf8(&mut buffer), 1)),
        }
        shown
    })
}

/// A name or a value in backquotes, cut to 48 characters and safe to print on a terminal.
pub(super) fn ticked(text: &str) -> String {
    let shown = cut_short(text, 48);
    format!("`{}`", visible(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_underlined_and_harmless() {
        let source = Source::new("f", "a: 1\nrate: \x1b[2J\u{202e}é\r\nb");
        let at = Place { start: 11, end: 16 };
        assert_eq!(source.position(at), (2, 7));
        let Excerpt { text, indent, width } = source.excerpt(at);
        assert_eq!(text, "rate: \\u{1b}[2J\\u{202e}é");
        assert_eq!((indent, width), (6, 9));
        assert_eq!(source.position(Place { start: 99, end: 99 }).0, 3);
    }

    #[test]
    fn long_lines_are_cut() {
        let line = "x".repeat(1 << 20);
        let Excerpt { text, indent, width } = excerpt(&line, 1 << 19, (1 << 19) + 5);
        assert_eq!((indent, width), (BEFORE + 1, 5));
        assert!(text.chars().count() <= SHOWN + 2);
        assert!(excerpt(&line, 0, 1 << 20).text.chars().count() <= SHOWN + 2);
    }
}
