//! The entries of the lists: who is allowed, denied or blocked, and until when.

use std::{io::Write, time::Duration};

use serde::Serialize;

use super::{
    number::{duration, grouped},
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::{
    inquiry::{blocked::Blocked, source::source_name},
    policy::{
        model::{Listed, Whom},
        spec::format_instant,
    },
};

/// The shape of the JSON of `allow` and `deny`.
const SCHEMA: &str = "limiter.list/1";

/// The shape of that of the penalties.
const PENALTIES: &str = "limiter.penalties/1";

/// An entry as `list -j` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListEntry {
    /// The prefix, or the name of the set.
    pub src: String,
    /// Until when it holds, in UTC; nothing for ever.
    pub until: Option<String>,
    /// Seconds until then.
    pub seconds_left: Option<u64>,
    /// Whether it holds no more; the next edit drops it.
    pub gone: bool,
    /// Whether it is a set.
    #[serde(skip)]
    pub set: bool,
}

/// The entries of a list.
#[derive(Serialize)]
struct List<'a> {
    list: &'a str,
    entries: &'a [ListEntry],
}

/// A blocked source as `penalty list -j` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PenaltyEntry {
    /// Who is blocked, and until when.
    #[serde(flatten)]
    pub entry: ListEntry,
    /// `hand`, or `limit` for a source that stayed over a limit.
    pub by: &'static str,
    /// The limit, if it is known still.
    pub limit: Option<String>,
    /// How many blocks by that limit came without a rest between them.
    pub blocks: Option<u64>,
}

impl ListEntry {
    /// An entry at a time of Unix, in seconds.
    pub fn new(listed: &Listed, now: u64) -> Self {
        let (src, set) = match &listed.whom {
            Whom::Set(name) => (name.clone(), true),
            Whom::Prefix(prefix) => (prefix.to_string(), false),
        };
        Self {
            src,
            until: listed.until.map(format_instant),
            seconds_left: listed.until.map(|until| until.saturating_sub(now)),
            gone: listed.is_over(now),
            set,
        }
    }

    fn cells(&self) -> [Cell; 3] {
        let src = if self.set { format!("set {}", self.src) } else { self.src.clone() };
        let tone = if self.gone { Tone::Faint } else { Tone::Strong };
        let left = match self.seconds_left {
            _ if self.gone => Cell::new("gone", Tone::Faint),
            Some(seconds) => duration(Duration::from_secs(seconds)).into(),
            None => Cell::default(),
        };
        let until = self.until.clone().map_or_else(|| "for ever".into(), Cell::from);
        [Cell::new(src, tone), until, left]
    }
}

impl PenaltyEntry {
    /// A source that was blocked by hand.
    pub fn by_hand(listed: &Listed, now: u64) -> Self {
        Self { entry: ListEntry::new(listed, now), by: "hand", limit: None, blocks: None }
    }

    /// A source that a limit blocks.
    pub fn by_limit(blocked: &Blocked, now: u64) -> Self {
        let Blocked { source, limit, left, blocks } = blocked;
        // What is left of a second counts as one, so that nothing seems over that is not.
        let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let entry = ListEntry {
            src: source_name(*source),
            until: Some(format_instant(now.saturating_add(seconds))),
            seconds_left: Some(seconds),
            gone: false,
            set: false,
        };
        Self { entry, by: "limit", limit: limit.clone(), blocks: Some(*blocks) }
    }
}

/// Prints the entries of a list: as JSON if that was asked for, otherwise as a table.
///
/// # Errors
/// [`OutputError`].
pub fn print<W: Write>(
    output: &mut Output<W>,
    name: &str,
    entries: &[ListEntry],
) -> Result<(), OutputError> {
    if output.is_json() {
        return output.shape(SCHEMA, &List { list: name, entries });
    }
    if entries.is_empty() {
        return writeln!(output, "{name} is empty.");
    }
    let mut table =
        Table::new([Column::left("SOURCE"), Column::left("UNTIL"), Column::right("LEFT")]);
    for entry in entries {
        table.row(entry.cells());
    }
    output.table(&table)
}

/// Prints who is blocked: as JSON if that was asked for, otherwise as a table.
///
/// # Errors
/// [`OutputError`].
pub fn print_penalties<W: Write>(
    output: &mut Output<W>,
    entries: &[PenaltyEntry],
) -> Result<(), OutputError> {
    if output.is_json() {
        return output.entries(PENALTIES, "entries", entries);
    }
    if entries.is_empty() {
        return writeln!(output, "No source is blocked.");
    }
    let mut table = Table::new([
        Column::left("SOURCE"),
        Column::left("UNTIL"),
        Column::right("LEFT"),
        Column::left("BY"),
        Column::right("BLOCKS"),
    ]);
    for PenaltyEntry { entry, by, limit, blocks } in entries {
        let mut cells = entry.cells().to_vec();
        cells.push(
            limit.as_ref().map_or_else(|| (*by).into(), |name| format!("{by} {name}").into()),
        );
        cells.push(blocks.map(grouped).unwrap_or_default().into());
        table.row(cells);
    }
    output.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::stream::printed;

    /// 2027-01-15T08:00:00Z.
    const NOW: u64 = 1_800_000_000;

    fn listed(whom: &str, until: Option<u64>) -> Listed {
        let whom = whom.parse().map_or_else(|_| Whom::Set(whom.into()), Whom::Prefix);
        Listed { whom, until }
    }

    fn text(json: bool, entries: &[Listed]) -> String {
        let entries: Vec<_> = entries.iter().map(|listed| ListEntry::new(listed, NOW)).collect();
        printed(json, false, |output| print(output, "deny", &entries))
    }

    #[test]
    fn entries_say_until_when_and_what_is_gone() {
        let entries = [
            listed("cdn", None),
            listed("203.0.113.0/24", Some(NOW + 3_700)),
            listed("2001:db8::/48", Some(NOW)),
        ];
        assert_eq!(
            text(false, &entries),
            "\
SOURCE          UNTIL                   LEFT
set cdn         for ever
203.0.113.0/24  2027-01-15T09:01:40Z  1h 01m
2001:db8::/48   2027-01-15T08:00:00Z    gone
"
        );
        assert_eq!(
            text(true, &entries[1..]),
            concat!(
                r#"{"schema":"limiter.list/1","list":"deny","entries":[{"src":"203.0.113.0/24","#,
                r#""until":"2027-01-15T09:01:40Z","seconds_left":3700,"#,
                r#""gone":false},{"src":"2001:db8::/48","until":"2027-01-15T08:00:00Z","#,
                r#""seconds_left":0,"gone":true}]}"#,
                "\n"
            )
        );
        assert_eq!(text(false, &[]), "deny is empty.\n");
        let empty = "{\"schema\":\"limiter.list/1\",\"list\":\"deny\",\"entries\":[]}\n";
        assert_eq!(text(true, &[]), empty);
    }

    #[test]
    fn blocks_say_whose_they_are() {
        let (source, limit) = ("198.51.100.7/24".parse().unwrap(), Some("web".into()));
        let left = Duration::from_millis(41_500);
        let entries = [
            PenaltyEntry::by_hand(&listed("203.0.113.9/32", Some(NOW + 60)), NOW),
            PenaltyEntry::by_limit(&Blocked { source, limit, left, blocks: 3 }, NOW),
        ];
        let text = |json| printed(json, false, |output| print_penalties(output, &entries));
        assert_eq!(
            text(false),
            "\
SOURCE           UNTIL                   LEFT  BY         BLOCKS
203.0.113.9/32   2027-01-15T08:01:00Z  1m 00s  hand
198.51.100.7/24  2027-01-15T08:00:42Z     42s  limit web       3
"
        );
        assert!(text(true).starts_with(r#"{"schema":"limiter.penalties/1","entries":[{"src":"#));
        assert!(
            text(true).ends_with(concat!(
                r#"{"src":"198.51.100.7/24","until":"2027-01-15T08:00:42Z","seconds_left":42,"#,
                r#""gone":false,"by":"limit","limit":"web","blocks":3}]}"#,
                "\n"
            )),
            "{}",
            text(true)
        );
    }
}
