//! The help: what the keys do, and what the signs mean.

use crate::output::{
    table::{Cell, Column, Table},
    tone::Tone,
};

/// The keys, with what they do.
const KEYS: [(&str, &str); 11] = [
    ("↑ ↓ PgUp PgDn Home End", "select a source, or a limit"),
    ("Tab", "go to the other table"),
    ("Enter", "look closely at a source; then ↑ ↓: the next one"),
    ("s S", "sort by dropped/s, passed/s, bytes, packets, address"),
    ("/", "show only sources in a prefix, found among all"),
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

/// The table of the keys and the signs. A read-only watch has no keys that change the policy.
pub(super) fn table(read_only: bool) -> Table {
    let mut table = Table::new([Column::left("KEY").width(22), Column::left("")]);
    for (key, what) in KEYS.iter().filter(|(key, _)| !(read_only && CHANGES.contains(key))) {
        table.row([Cell::new(*key, Tone::Strong), (*what).into()]);
    }
    table.row([Cell::new("STATE", Tone::Faint)]);
    for (sign, what) in SIGNS {
        table.row([Cell::new(sign, Tone::Strong), what.into()]);
    }
    table
}

/// The text below the table.
pub(super) const fn closing(read_only: bool) -> &'static str {
    if read_only {
        "With --read-only, no key changes anything. Any key closes this."
    } else {
        "What changes something asks first. Any key closes this."
    }
}
