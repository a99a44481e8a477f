//! A line for each reading, for pipes: columns of text, or JSON. In text, the begin and the end of
//! monitor mode have a line of their own.

use std::{
    borrow::Cow,
    io::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use limiter_common::packet::reason::REASONS;
use serde::{Serialize, Serializer};

use super::{
    history::{Flow, LimitRate, Rates, Split},
    talkers::Ranked,
    view::View,
};
use crate::{
    datapath::monitoring::Monitoring,
    output::{
        monitoring,
        number::{bit_rate, scaled},
        status::{Status, by_reason},
        stream::{Output, OutputError},
        table::{Cell, Column, GAP, Table},
        timestamp::utc,
        top::{self, RateEntry, rounded},
    },
};

/// The most sources in a line of JSON.
const TOP: usize = 10;

/// Prints readings.
#[derive(Debug, Default)]
pub struct Lines {
    titled: bool,
    /// Whether anything was dropped, at the last line.
    monitoring: Monitoring,
    /// Whether the message on failed readings was printed.
    late: bool,
}

impl Lines {
    /// Prints the latest reading with the time `now`, and flushes the output. The first line of
    /// text follows a line of titles.
    ///
    /// # Errors
    /// [`OutputError`], if it cannot be written.
    pub fn print<W: Write>(
        &mut self,
        output: &mut Output<W>,
        view: &View,
        now: SystemTime,
    ) -> Result<(), OutputError> {
        if output.is_json() {
            output.json(&Record::new(view, now))?;
        } else {
            let monitoring = view.history.latest().monitoring;
            if monitoring != self.monitoring {
                let said = monitoring::said(monitoring).unwrap_or(monitoring::OVER);
                for line in textwrap::wrap(said, output.columns().unwrap_or(usize::MAX)) {
                    writeln!(output, "{line}")?;
                }
                self.monitoring = monitoring;
            }
            let lines = table(view, now, output.columns()).layout(usize::MAX);
            for line in lines.iter().skip(usize::from(self.titled)) {
                let texts: Vec<_> = line.iter().map(|cell| cell.text.as_str()).collect();
                writeln!(output, "{}", cut(&texts.join(GAP), output.columns()))?;
            }
            self.titled = true;
        }
        self.late = false;
        output.flush()
    }

    /// The message on readings that fail, once in each series: such readings have no line.
    pub fn late(&mut self, view: &View) -> Option<String> {
        let said = view.late.as_ref()?.said().filter(|_| !self.late)?;
        self.late = true;
        Some(said)
    }
}

/// The width of a line with all columns and an IPv4 address in the last one.
const ALL_COLUMNS: usize = 110;
/// The same without the date and bits.
const WITH_LIMIT: usize = 78;
/// The same without the limit besides. A narrower terminal has neither packets that passed: the source is what is looked for.
const WITH_PASSED: usize = 56;

/// A row for the latest reading, with as many columns as a terminal of this width has room for.
fn table(view: &View, now: SystemTime, width: Option<usize>) -> Table {
    let [all, limit, passes] = [ALL_COLUMNS, WITH_LIMIT, WITH_PASSED]
        .map(|least| width.is_none_or(|width| width >= least));
    let mut columns = vec![Column::left("TIME").width(if all { 20 } else { 9 })];
    let titles = ["PASSED/S", "DROPPED/S"].into_iter().skip(usize::from(!passes));
    columns.extend(titles.map(|title| Column::right(title).width(9)));
    if all {
        columns.extend(["PASSED", "DROPPED"].map(|title| Column::right(title).width(11)));
    }
    if limit {
        columns.push(Column::left("TOP EXCEEDED LIMIT").width(20));
    }
    columns.push(Column::left("TOP DROPPED SOURCE"));
    let mut table = Table::new(columns);
    let time = utc(now);
    let of_day = time.split_once('T').map_or(&*time, |(_, time)| time);
    let mut row: Vec<Cell> = vec![if all { &*time } else { of_day }.into()];
    if let Some(Rates { total: Split { passed, dropped }, limits, .. }) = view.history.rates() {
        let flows = [passed, dropped].into_iter().skip(usize::from(!passes));
        row.extend(flows.map(|flow| scaled(flow.packets).into()));
        if all {
            row.extend([passed, dropped].map(|flow| bit_rate(flow.bytes).into()));
        }
        if limit {
            row.push(most_exceeded(limits).into());
        }
        row.push(worst(view).into());
    }
    table.row(row);
    table
}

/// A line cut to the width of a terminal. One that is cut ends in `~`: such a terminal may have no `…`.
fn cut(line: &str, width: Option<usize>) -> Cow<'_, str> {
    match width {
        Some(width) if line.chars().count() > width => {
            let kept: String = line.chars().take(width.saturating_sub(1)).collect();
            format!("{kept}~").into()
        }
        _ => line.into(),
    }
}

fn most_exceeded(limits: &[LimitRate]) -> String {
    let over = |limit: &LimitRate| limit.over().packets;
    let exceeds = |limit: &&LimitRate| over(limit) > 0.0;
    let most = limits.iter().filter(exceeds).max_by(|a, b| over(a).total_cmp(&over(b)));
    most.map_or_else(|| "-".to_owned(), |limit| format!("{} {}/s", limit.name, scaled(over(limit))))
}

fn worst(view: &View) -> String {
    let first = view.talkers.rows().first().filter(|row| row.drop_rate() > 0.0);
    first.map_or_else(
        || "-".to_owned(),
        |row| format!("{} {}/s", top::source(&row.talker), scaled(row.drop_rate())),
    )
}

/// The JSON schema of a line.
const SCHEMA: &str = "limiter.watch/1";

/// A reading as a line of JSON: the members of `status`, with rates.
#[derive(Serialize)]
struct Record {
    #[serde(flatten)]
    status: Status,
    /// Seconds since 1970, UTC.
    time: f64,
    rates: Option<RatesRecord>,
    top: Vec<RateEntry>,
    /// Seconds from the latest scan to this reading.
    top_age: f64,
}

/// Rates per second.
#[derive(Serialize)]
struct RatesRecord {
    /// The time over which the rates were measured, in seconds.
    seconds: f64,
    passed: FlowRecord,
    dropped: FlowRecord,
    interfaces: Vec<InterfaceRecord>,
    reasons: ReasonRecord,
    limits: Vec<LimitRecord>,
}

#[derive(Serialize)]
struct InterfaceRecord {
    name: String,
    passed: Option<FlowRecord>,
    dropped: Option<FlowRecord>,
}

#[derive(Serialize)]
struct FlowRecord {
    packets: f64,
    bytes: f64,
}

#[derive(Serialize)]
struct LimitRecord {
    name: String,
    conform: f64,
    exceed: f64,
    exceed_monitor: f64,
    near: f64,
}

/// Packets per second, by the name of the reason.
struct ReasonRecord([Flow; REASONS]);

impl Record {
    fn new(view: &View, now: SystemTime) -> Self {
        let snapshot = view.history.latest();
        let entry = |row: &Ranked| RateEntry::new(&row.talker, row.rates);
        let names = || snapshot.interfaces.iter().map(|interface| interface.name.clone());
        Self {
            status: Status { schema: SCHEMA, ..Status::new(snapshot, view.tables) },
            time: rounded(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()),
            rates: view.history.rates().map(|rates| RatesRecord::new(rates, names())),
            top: view.talkers.rows().iter().take(TOP).map(entry).collect(),
            top_age: rounded(view.scan_age().as_secs_f64()),
        }
    }
}

impl RatesRecord {
    fn new(rates: &Rates, names: impl Iterator<Item = String>) -> Self {
        let interface = |(name, split): (String, &Option<Split>)| InterfaceRecord {
            name,
            passed: split.map(|split| split.passed.into()),
            dropped: split.map(|split| split.dropped.into()),
        };
        let limit = |limit: &LimitRate| LimitRecord {
            name: limit.name.clone(),
            conform: rounded(limit.conform.packets),
            exceed: rounded(limit.exceed.packets),
            exceed_monitor: rounded(limit.monitored.packets),
            near: rounded(limit.near.packets),
        };
        Self {
            seconds: rounded(rates.elapsed.as_secs_f64()),
            passed: rates.total.passed.into(),
            dropped: rates.total.dropped.into(),
            interfaces: names.zip(&rates.interfaces).map(interface).collect(),
            reasons: ReasonRecord(rates.reasons),
            limits: rates.limits.iter().map(limit).collect(),
        }
    }
}

impl From<Flow> for FlowRecord {
    fn from(flow: Flow) -> Self {
        Self { packets: rounded(flow.packets), bytes: rounded(flow.bytes) }
    }
}

impl Serialize for ReasonRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        by_reason(serializer, |reason| rounded(self.0[reason.index()].packets))
    }
}

#[cfg(test)]
mod tests;
