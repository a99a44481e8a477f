//! The lists and limits that decide about a request, as they are printed.

use std::io::Write;

use serde_json::{Value, json};

use super::{
    number::grouped,
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::{
    policy::{
        List,
        document::override_conditions,
        model::{Allowance, Mode},
        units::{format_request_rate, printable, rate_per_second},
    },
    query::request::{CountedBy, RequestExplanation, RequestRow, RequestStanding, Sent},
};

/// The JSON schema.
const SCHEMA: &str = "limiter.request/1";

/// The most characters of a value of the request that are shown.
const SHOWN: usize = 48;

/// Prints an explanation of a request: as JSON if that was asked for, otherwise as text.
///
/// # Errors
/// [`OutputError`], if it cannot be written.
pub fn print<W: Write>(
    output: &mut Output<W>,
    sent: &Sent,
    it: &RequestExplanation<'_>,
) -> Result<(), OutputError> {
    if output.is_json() {
        return output.shape(SCHEMA, &json(sent, it));
    }
    let source = sent.source.map_or_else(|| "any source".to_owned(), |it| it.to_string());
    let [method, path] = [&sent.method, &sent.path].map(|text| printable(text, SHOWN));
    writeln!(output, "request {method} {path} from {source}")?;
    if it.is_monitored {
        writeln!(output, "monitor mode: nothing is refused (`mode: monitor` in the policy)")?;
    }
    for (place, (list, entry)) in it.lists.iter().enumerate() {
        let effect = match (place, list) {
            (1.., _) => "is not asked",
            (0, List::Allow) => "passes here, and no limit is asked",
            (0, List::Deny | List::Penalty) => "is refused here, and no limit is asked",
        };
        writeln!(output, "{} {entry}: {effect}", list.name())?;
    }
    if let Some(tenant) = it.tenant {
        writeln!(output, "tenant {tenant}")?;
    }
    if it.rows.is_empty() {
        return writeln!(output, "no limit is on requests");
    }
    writeln!(output)?;
    output.table(&table(it))
}

fn table(it: &RequestExplanation<'_>) -> Table {
    let mut table = Table::new([
        Column::left("LIMIT"),
        Column::left("MODE").rank(2),
        Column::left("MATCHES"),
        Column::left("COUNTED BY").rank(1),
        Column::right("RATE"),
        Column::right("BURST").rank(4),
        Column::right("COST").rank(3),
        Column::left("").rank(5),
    ]);
    for row in &it.rows {
        let is_about = matches!(
            row.standing,
            RequestStanding::Counts | RequestStanding::Depends | RequestStanding::RefusesLack(_)
        );
        let (matches, tone) = match &row.standing {
            RequestStanding::Counts => ("yes".to_owned(), Tone::Strong),
            RequestStanding::Depends => ("if source".to_owned(), Tone::Plain),
            RequestStanding::Not(why) => (format!("no: {why}"), Tone::Faint),
            RequestStanding::Lacks(what) => (format!("no: lacks {}", what.join(", ")), Tone::Faint),
            RequestStanding::RefusesLack(what) => {
                (format!("refused: lacks {}", what.join(", ")), Tone::Dropped)
            }
        };
        let (rate, burst) = match row.allowance {
            Some(Allowance::Concurrent { limit, .. }) => {
                (format!("{} open", grouped(limit)), String::new())
            }
            Some(allowance) => {
                let bucket = allowance.bucket();
                (format_request_rate(bucket.rate), grouped(bucket.burst))
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        let counted_by = row.counted_by.iter().map(counted_by).collect::<Vec<_>>().join(" ");
        let counted_by = match counted_by.is_empty() {
            true if is_about && row.mode != Mode::Drop => row.key.clone(),
            _ => counted_by,
        };
        let by = row.by.map(|by| format!("for {}", override_conditions(by))).unwrap_or_default();
        table.row([
            Cell::new(row.name.as_str(), Tone::Strong),
            row.mode.name().into(),
            Cell::new(matches, tone),
            counted_by.into(),
            rate.into(),
            burst.into(),
            grouped(row.cost.into()).into(),
            Cell::new(by, Tone::Faint),
        ]);
    }
    table
}

fn counted_by(CountedBy { part, value }: &CountedBy) -> String {
    let value = value.as_ref().map_or_else(|| "(digest)".to_owned(), |it| printable(it, SHOWN));
    format!("{part}={value}")
}

fn json(sent: &Sent, it: &RequestExplanation<'_>) -> Value {
    let lists: Vec<Value> = it
        .lists
        .iter()
        .map(|(list, entry)| json!({ "list": list.name(), "entry": entry }))
        .collect();
    json!({
        "method": sent.method,
        "path": sent.path,
        "host": sent.host,
        "source": sent.source,
        "mode": if it.is_monitored { "monitor" } else { "enforce" },
        "lists": lists,
        "tenant": it.tenant,
        "limits": it.rows.iter().map(row_json).collect::<Vec<_>>(),
    })
}

fn row_json(row: &RequestRow<'_>) -> Value {
    let nothing: &[String] = &[];
    let (matches, conditions, missing) = match &row.standing {
        RequestStanding::Counts => ("yes", json!([]), nothing),
        RequestStanding::Depends => ("depends", json!(["source"]), nothing),
        RequestStanding::Not(why) => ("no", json!([why]), nothing),
        RequestStanding::Lacks(what) => ("no", json!(what), what.as_slice()),
        RequestStanding::RefusesLack(what) => ("refused", json!(what), what.as_slice()),
    };
    let counted_by: Vec<Value> = row
        .counted_by
        .iter()
        .map(|CountedBy { part, value }| {
            json!({ "part": part, "value": value, "digest": value.is_none() })
        })
        .collect();
    let rate = row.allowance.and_then(Allowance::rate);
    json!({
        "name": row.name,
        "key": row.key,
        "mode": row.mode.name(),
        "matches": matches,
        "conditions": conditions,
        "missing": missing,
        "counted_by": counted_by,
        "algorithm": row.allowance.map(Allowance::algorithm),
        "rate_per_second": rate.map(rate_per_second),
        "burst": row.allowance.map(|it| it.bucket().burst),
        "cost": row.cost,
        "override": row.by.map(override_conditions),
    })
}
