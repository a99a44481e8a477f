//! The entries of the lists `allow`, `deny` and `penalty`, as they are printed.

use std::{io::Write, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    number::{duration, grouped},
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::{
    policy::{
        self, Layered,
        document::format_instant,
        model::{Listed, Whom},
        run_time::Entry,
    },
    query::{blocked::Blocked, source::source_name},
};

/// The JSON schema of `allow list` and `deny list`.
const SCHEMA: &str = "limiter.list/1";

/// The JSON schema of `penalty list`.
const PENALTIES: &str = "limiter.penalties/1";

/// An entry of a list, as `list -j` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ListEntry {
    /// The prefix, or the name of the set.
    pub src: String,
    /// When it ends, in UTC (RFC 3339); `None` for never.
    pub until: Option<String>,
    /// The seconds until then; 0 if it has ended.
    pub seconds_left: Option<u64>,
    /// Whether it has ended. The next edit of the list drops it.
    pub gone: bool,
    /// Where it comes from: `document`, `set` for a set of the document, `run_time` for a command,
    /// `limit` for a block by a limit, or `push` for one that was pushed.
    pub layer: &'static str,
    /// Whether it takes the sources off the document's list, instead of putting them on.
    pub exception: bool,
    /// Whether it is in force. A run-time entry is not while its prefix is narrower than a source.
    pub in_force: bool,
    /// The reason that was given with the command.
    pub reason: Option<String>,
    /// The set of run-time entries that it belongs to.
    pub set: Option<String>,
    /// The user who set it.
    pub set_by: Option<String>,
    /// When it was set, in UTC.
    pub since: Option<String>,
}

/// A list with its entries, as JSON has it.
#[derive(Serialize)]
struct List<'a> {
    list: &'a str,
    entries: &'a [ListEntry],
}

/// All blocked sources, as `penalty list -j` prints them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PenaltyList", deny_unknown_fields)]
pub struct Penalties {
    /// `limiter.penalties/1`.
    pub schema: &'static str,
    /// The blocks: those by hand, then those by limits and pushes.
    pub entries: Vec<PenaltyEntry>,
}

/// A blocked source, as `penalty list -j` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PenaltyEntry {
    /// The source, with the end of the block.
    #[serde(flatten)]
    pub entry: ListEntry,
    /// `hand` for a block by a command or the document, `limit` for a block by a limit, `push` for one that was pushed.
    pub by: &'static str,
    /// The limit; `None` if it is not known any more, or for a block by hand.
    pub limit: Option<String>,
    /// How many blocks by that limit, this one included, came without a rest between them.
    pub blocks: Option<u64>,
}

impl ListEntry {
    /// Makes an entry of the document, as of `now` in Unix time.
    pub fn of_document(listed: &Listed, now: Duration) -> Self {
        let (src, layer) = match &listed.whom {
            Whom::Set(name) => (name.clone(), "set"),
            Whom::Prefix(prefix) => (prefix.to_string(), "document"),
        };
        Self::new(src, layer, listed.until, now)
    }

    /// Makes an entry of the run-time list, as of `now` in Unix time.
    pub fn of_run_time(entry: &Entry, layered: Layered<'_>, now: Duration) -> Self {
        let Entry { prefix, until, exception, .. } = *entry;
        let text = |of: &Option<Arc<str>>| of.as_deref().map(str::to_owned);
        Self {
            exception,
            in_force: layered.policy.key_prefix.check_source(prefix).is_ok(),
            reason: text(&entry.reason),
            set: text(&entry.set),
            set_by: text(&entry.by),
            since: entry.since.map(format_instant),
            ..Self::new(prefix.to_string(), "run_time", until, now)
        }
    }

    /// The entries of a list, those of the document first.
    pub fn all(layered: Layered<'_>, list: policy::List, now: Duration) -> Vec<Self> {
        let of_document = layered.policy.list(list).iter().map(|it| Self::of_document(it, now));
        let of_run_time =
            layered.run_time.list(list).map(|entry| Self::of_run_time(entry, layered, now));
        of_document.chain(of_run_time).collect()
    }

    fn new(src: String, layer: &'static str, until: Option<u64>, now: Duration) -> Self {
        Self {
            src,
            until: until.map(format_instant),
            seconds_left: until.map(|until| seconds_left(until, now)),
            gone: until.is_some_and(|until| until <= now.as_secs()),
            layer,
            exception: false,
            in_force: true,
            reason: None,
            set: None,
            set_by: None,
            since: None,
        }
    }

    /// The words of the column SET BY.
    fn set_by(&self) -> String {
        let mut said = match (self.layer, &self.set_by) {
            ("run_time", Some(user)) => format!("run time, {user}"),
            ("run_time", None) => "run time".to_owned(),
            _ => "document".to_owned(),
        };
        if let Some(set) = &self.set {
            said = format!("{said}: set {set}");
        }
        if self.exception {
            said = format!("{said}: exception to the document's list");
        }
        if !self.in_force {
            said = format!("{said}: not in force, narrower than a source");
        }
        said
    }

    fn cells(&self) -> [Cell; 3] {
        let src = if self.layer == "set" { format!("set {}", self.src) } else { self.src.clone() };
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

impl From<Vec<PenaltyEntry>> for Penalties {
    fn from(entries: Vec<PenaltyEntry>) -> Self {
        Self { schema: PENALTIES, entries }
    }
}

impl PenaltyEntry {
    /// All blocks: those by hand, then those by limits and pushes.
    pub fn all(layered: Layered<'_>, blocked: &[Blocked], now: Duration) -> Vec<Self> {
        let by_hand = ListEntry::all(layered, policy::List::Penalty, now).into_iter();
        let by_limit = blocked.iter().map(|blocked| Self::by_limit(blocked, now));
        by_hand.map(Self::by_hand).chain(by_limit).collect()
    }

    /// Makes an entry for a block by hand.
    pub const fn by_hand(entry: ListEntry) -> Self {
        Self { entry, by: "hand", limit: None, blocks: None }
    }

    /// Makes an entry for a block by a limit or a push, as of `now` in Unix time.
    pub fn by_limit(blocked: &Blocked, now: Duration) -> Self {
        let Blocked { source, pushed, limit, left, blocks } = blocked;
        let by = if *pushed { "push" } else { "limit" };
        // Rounded up, so that a block in its last second does not show 0 s.
        let until = rounded_up(now.saturating_add(*left));
        let entry = ListEntry {
            seconds_left: Some(rounded_up(*left)),
            // A block that is listed has time left, even if that rounds to an end at `now`.
            gone: false,
            ..ListEntry::new(source_name(*source), by, Some(until), now)
        };
        Self { entry, by, limit: limit.clone(), blocks: (!pushed).then_some(*blocks) }
    }
}

/// The seconds until an entry ends, which is at a whole second of Unix time. A command rounds the end of a time up to one,
/// so an entry for 60 s has up to 61 s: rounded down, it shows what was asked for. In its last second it shows 1 s.
pub(crate) fn seconds_left(until: u64, now: Duration) -> u64 {
    match until.saturating_sub(now.as_secs()) {
        0 => 0,
        _ => until.saturating_sub(rounded_up(now)).max(1),
    }
}

/// Whole seconds, rounded up.
fn rounded_up(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// Prints the entries of a list: as JSON if that was asked for, otherwise as a table.
///
/// # Errors
/// [`OutputError`], if they cannot be written.
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
    let reasons = entries.iter().any(|entry| entry.reason.is_some());
    let mut columns = vec![
        Column::left("SOURCE"),
        Column::left("UNTIL"),
        Column::right("LEFT"),
        Column::left("SET BY"),
    ];
    columns.extend(reasons.then(|| Column::left("REASON")));
    let mut table = Table::new(columns);
    for entry in entries {
        let mut cells = entry.cells().to_vec();
        cells.push(entry.set_by().into());
        cells.extend(reasons.then(|| Cell::from(entry.reason.clone().unwrap_or_default())));
        table.row(cells);
    }
    output.table(&table)
}

/// Prints the blocked sources: as JSON if that was asked for, otherwise as a table.
///
/// # Errors
/// [`OutputError`], if they cannot be written.
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
    let reasons = entries.iter().any(|it| it.entry.reason.is_some());
    let mut columns = vec![
        Column::left("SOURCE"),
        Column::left("UNTIL"),
        Column::right("LEFT"),
        Column::left("BY"),
        Column::right("BLOCKS"),
    ];
    columns.extend(reasons.then(|| Column::left("REASON")));
    let mut table = Table::new(columns);
    for PenaltyEntry { entry, by, limit, blocks } in entries {
        let mut cells = entry.cells().to_vec();
        cells.push(match (*by, limit) {
            (by, Some(name)) => format!("{by} {name}").into(),
            ("hand", None) => format!("hand: {}", entry.set_by()).into(),
            (by, None) => by.into(),
        });
        cells.push(blocks.map(grouped).unwrap_or_default().into());
        cells.extend(reasons.then(|| Cell::from(entry.reason.clone().unwrap_or_default())));
        table.row(cells);
    }
    output.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::stream::printed, policy::Policy};

    /// 2027-01-15T08:00:00Z.
    const NOW: u64 = 1_800_000_000;
    const AT: Duration = Duration::from_secs(NOW);

    fn listed(whom: &str, until: Option<u64>) -> ListEntry {
        let whom = whom.parse().map_or_else(|_| Whom::Set(whom.into()), Whom::Prefix);
        ListEntry::of_document(&Listed { whom, until }, AT)
    }

    fn set(entry: &Entry) -> ListEntry {
        ListEntry::of_run_time(entry, (&Policy::default()).into(), AT)
    }

    fn entry(prefix: &str) -> Entry {
        Entry::new(policy::List::Deny, prefix.parse().unwrap())
    }

    fn text(json: bool, entries: &[ListEntry]) -> String {
        printed(json, false, |output| print(output, "deny", entries))
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
SOURCE          UNTIL                   LEFT  SET BY
set cdn         for ever                      document
203.0.113.0/24  2027-01-15T09:01:40Z  1h 01m  document
2001:db8::/48   2027-01-15T08:00:00Z    gone  document
"
        );
        assert_eq!(
            text(true, &entries[1..2]),
            concat!(
                r#"{"schema":"limiter.list/1","list":"deny","entries":[{"src":"203.0.113.0/24","#,
                r#""until":"2027-01-15T09:01:40Z","seconds_left":3700,"#,
                r#""gone":false,"layer":"document","exception":false,"in_force":true,"#,
                r#""reason":null,"set":null,"set_by":null,"since":null}]}"#,
                "\n"
            )
        );
        assert_eq!(text(false, &[]), "deny is empty.\n");
        let empty = "{\"schema\":\"limiter.list/1\",\"list\":\"deny\",\"entries\":[]}\n";
        assert_eq!(text(true, &[]), empty);
    }

    #[test]
    fn entries_say_who_set_them_and_why() {
        let by = |it: Entry| Entry { by: Some("alice".into()), since: Some(NOW), ..it };
        let entries = [
            listed("192.0.2.0/24", None),
            set(&by(Entry { reason: Some("sshd".into()), ..entry("203.0.113.9/32") })),
            set(&Entry { exception: true, ..entry("192.0.2.0/24") }),
            set(&entry("2001:db8::1/128")),
            set(&by(Entry { set: Some("feed".into()), ..entry("198.51.100.7/32") })),
        ];
        assert_eq!(
            text(false, &entries),
            "\
SOURCE           UNTIL     LEFT  SET BY                                          REASON
192.0.2.0/24     for ever        document
203.0.113.9/32   for ever        run time, alice                                 sshd
192.0.2.0/24     for ever        run time: exception to the document's list
2001:db8::1/128  for ever        run time: not in force, narrower than a source
198.51.100.7/32  for ever        run time, alice: set feed
"
        );
        let json: serde_json::Value = serde_json::from_str(&text(true, &entries)).unwrap();
        let set = &json["entries"][1];
        assert_eq!((&set["layer"], &set["set_by"]), (&"run_time".into(), &"alice".into()));
        assert_eq!(
            (&set["reason"], &set["since"]),
            (&"sshd".into(), &"2027-01-15T08:00:00Z".into())
        );
        assert_eq!(json["entries"][2]["exception"], true);
        assert_eq!(json["entries"][3]["in_force"], false);
        assert_eq!(json["entries"][4]["set"], "feed");
    }

    #[test]
    fn an_entry_shows_the_time_that_was_asked_for() {
        let listed = Listed { whom: Whom::Set("cdn".into()), until: Some(NOW + 61) };
        let left = |milliseconds| {
            let entry = ListEntry::of_document(&listed, AT + Duration::from_millis(milliseconds));
            (entry.seconds_left.unwrap(), entry.cells()[2].text.clone())
        };
        // It was set for 60 s, 1 ms before.
        assert_eq!(left(301), (60, "1m 00s".to_owned()));
        assert_eq!(left(1_000), (60, "1m 00s".to_owned()));
        assert_eq!(left(1_001), (59, "59s".to_owned()));
        assert_eq!(left(60_999), (1, "1s".to_owned()));
        assert_eq!(left(61_000), (0, "gone".to_owned()));
    }

    #[test]
    fn a_block_by_a_limit_ends_when_its_time_is_over() {
        let (source, left) = ("198.51.100.7/32".parse().unwrap(), Duration::from_secs(60));
        let blocked = Blocked { source, pushed: false, limit: None, left, blocks: 1 };
        let entry = PenaltyEntry::by_limit(&blocked, AT + Duration::from_millis(900)).entry;
        assert_eq!(entry.seconds_left, Some(60));
        assert_eq!(entry.until.as_deref(), Some("2027-01-15T08:01:01Z"));
    }

    #[test]
    fn blocks_say_whose_they_are() {
        let (source, limit) = ("198.51.100.7/24".parse().unwrap(), Some("web".into()));
        let left = Duration::from_millis(41_500);
        let entries = [
            PenaltyEntry::by_hand(set(&Entry { until: Some(NOW + 60), ..entry("203.0.113.9/32") })),
            PenaltyEntry::by_limit(&Blocked { source, pushed: false, limit, left, blocks: 3 }, AT),
        ];
        let text = |json| printed(json, false, |output| print_penalties(output, &entries));
        assert_eq!(
            text(false),
            "\
SOURCE           UNTIL                   LEFT  BY              BLOCKS
203.0.113.9/32   2027-01-15T08:01:00Z  1m 00s  hand: run time
198.51.100.7/24  2027-01-15T08:00:42Z     42s  limit web            3
"
        );
        assert!(text(true).starts_with(r#"{"schema":"limiter.penalties/1","entries":[{"src":"#));
        assert!(
            text(true).ends_with(concat!(
                r#"{"src":"198.51.100.7/24","until":"2027-01-15T08:00:42Z","seconds_left":42,"#,
                r#""gone":false,"layer":"limit","exception":false,"in_force":true,"reason":null,"#,
                r#""set":null,"set_by":null,"since":null,"by":"limit","limit":"web","blocks":3}]}"#,
                "\n"
            )),
            "{}",
            text(true)
        );
    }
}
