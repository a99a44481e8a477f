//! The help: what the keys do, and what the signs mean.

use ratatui::text::Line;

use super::theme::{Theme, wrapped};
use crate::output::{table::GAP, tone::Tone};

/// The keys, with what they do.
const KEYS: [(&str, &str); 11] = [
    ("↑ ↓ PgUp PgDn Home End", "select a source, or a limit"),
    ("Tab, x", "go to the other table, or to dropped packets"),
    ("Enter", "look closely at a source; then ↑ ↓: the next one"),
    ("s S", "sort by dropped/s, passed/s, bytes, packets, address"),
    ("/", "show only a prefix, or addresses with a part of one"),
    ("p space", "freeze the picture, and let it go on"),
    ("d", "deny the source, for a time"),
    ("a", "allow the source, for a time"),
    ("m", "switch a limit between monitor and enforce"),
    ("Esc", "one step back: from a source, a filter, a selection"),
    ("q Ctrl-C, Ctrl-Z", "end, or stop until `fg`; limiting goes on"),
];

/// The keys that change the policy.
const CHANGES: [&str; 3] = ["d", "a", "m"];

/// The signs, with what they mean.
const SIGNS: [(&str, &str); 5] = [
    ("↑ = ↓", "it sends more than a look before, as much, less"),
    ("source 42%", "so much is used of the limit of it that is fullest"),
    ("over source", "no packet of it passes that limit now"),
    ("monitor: source", "the same, but that limit only counts"),
    ("allowed denied blocked", "by a list or a penalty, for so long"),
];

/// Widths of the column of the keys, on a wide and on a narrow screen.
const KEY: [usize; 2] = [22, 12];
/// The least width of a wide screen.
const WIDE: u16 = 60;

/// The lines about the keys and the signs, in at most `width` columns. A read-only watch has no
/// keys that change the policy.
pub(super) fn lines(theme: Theme, read_only: bool, width: u16) -> Vec<Line<'static>> {
    let [wide, narrow] = KEY;
    let left = if width >= WIDE { wide } else { narrow };
    let right = usize::from(width).saturating_sub(left + GAP.len()).max(1);
    let mut lines = vec![theme.span(Tone::Faint, "KEY").into()];
    let is_offered = |key: &str| !(read_only && CHANGES.contains(&key));
    for (key, what) in KEYS.iter().filter(|(key, _)| is_offered(key)) {
        lines.extend(row(theme, [key, what], [left, right]));
    }
    lines.push(theme.span(Tone::Faint, "STATE").into());
    for (sign, what) in &SIGNS {
        lines.extend(row(theme, [sign, what], [left, right]));
    }
    lines
}

/// Two texts beside each other, each wrapped to its width.
fn row(theme: Theme, texts: [&str; 2], widths: [usize; 2]) -> impl Iterator<Item = Line<'static>> {
    let [left, right] = [0, 1].map(|side| wrapped(texts[side], widths[side]).into_iter());
    let [mut left, mut right] = [left, right].map(|lines| lines.map(String::from));
    std::iter::from_fn(move || {
        let (key, what) = match (left.next(), right.next()) {
            (None, None) => return None,
            (key, what) => (key.unwrap_or_default(), what.unwrap_or_default()),
        };
        let key = theme.span(Tone::Strong, format!("{key:<width$}{GAP}", width = widths[0]));
        Some(Line::from_iter([key, theme.span(Tone::Plain, what)]))
    })
}

/// The text below the table.
pub(super) const fn closing(read_only: bool) -> &'static str {
    if read_only {
        "With --read-only, no key changes anything. Any key closes this."
    } else {
        "What changes something asks first. Any key closes this."
    }
}
