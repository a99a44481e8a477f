//! The report on a source, as it is printed.

use std::{io::Write, time::Duration};

use limiter_common::base::tally::Tally;
use serde_json::{Value, json};

use super::{
    explanation::lists_json,
    monitoring,
    number::{Amounts, duration, grouped},
    setting::{
        fill_cells, fill_json, kept_cells, limit_json, origin, setting_cells, until, until_json,
    },
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::{
    bridge::answer::RequestFill,
    policy::model::{Allowance, Count},
    query::{
        explain::ListReport,
        source::{KeyedReport, SourceReport},
    },
};

/// The JSON schema.
const SCHEMA: &str = "limiter.source/1";

/// Prints the report on a source: as JSON if that was asked for, otherwise as text.
///
/// # Errors
/// [`OutputError`], if it cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, report: &SourceReport) -> Result<(), OutputError> {
    if output.is_json() {
        return output.json(&json(report));
    }
    let mut facts = Table::new([Column::left("SOURCE"), Column::left(report.name())]);
    for (name, value, tone) in facts_of(report, output.amounts()) {
        facts.row([Cell::new(name, Tone::Faint), Cell::new(value, tone)]);
    }
    output.table(&facts)?;
    if let Some(said) = monitoring::said(report.monitoring) {
        writeln!(output, "{said}")?;
    }
    writeln!(output)?;
    if report.limits.is_empty() {
        return writeln!(output, "No limit applies to it.");
    }
    output.table(&limits(report))?;
    if report.states.is_empty() {
        return Ok(());
    }
    writeln!(output)?;
    output.table(&states(report))?;
    match report.total - report.states.len() {
        0 => Ok(()),
        more => writeln!(output, "and {} more, less full", grouped(more as u64)),
    }
}

/// Prints the report on a source, and what limits on requests have left for it, if that is known.
///
/// # Errors
/// As [`print()`].
pub fn print_with_requests<W: Write>(
    output: &mut Output<W>,
    report: &SourceReport,
    requests: Option<&[RequestFill]>,
) -> Result<(), OutputError> {
    if output.is_json() {
        let mut shape = json(report);
        if let Some(shape) = shape.as_object_mut() {
            shape.insert("requests".to_owned(), json!(requests));
        }
        return output.json(&shape);
    }
    print(output, report)?;
    match requests {
        None | Some([]) => Ok(()),
        Some(requests) => {
            writeln!(output)?;
            output.table(&request_fills(requests))
        }
    }
}

/// The table of what limits on requests have left. A narrow screen leaves out the columns of the highest ranks first.
pub(crate) fn request_fills(requests: &[RequestFill]) -> Table {
    let mut table = Table::new([
        Column::left("LIMIT ON REQUESTS"),
        Column::left("PER").rank(3),
        Column::left("MODE").rank(1),
        Column::right("AT ONCE").rank(2),
        Column::right("LEFT"),
        Column::right("PASSES IN"),
        Column::right("FULL IN").rank(4),
    ]);
    let seconds = |seconds: f64| {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        if time.is_zero() { Cell::default() } else { duration(time).into() }
    };
    for it in requests {
        table.row([
            Cell::new(it.name.as_str(), Tone::Strong),
            it.key.as_str().into(),
            it.mode.as_str().into(),
            grouped(it.quota).into(),
            grouped(it.left).into(),
            it.wait.map_or("never".into(), seconds),
            seconds(it.refills),
        ]);
    }
    table
}

fn facts_of(report: &SourceReport, amounts: Amounts) -> Vec<(&'static str, String, Tone)> {
    let packets = |tally: Tally| {
        format!("{} packets, {}", grouped(tally.packets), amounts.traffic(tally.bytes))
    };
    let lists = &report.lists;
    let origin = |list: &str| {
        let listed = report
            .listed
            .iter()
            .find(|it| it.list == list && !["limit", "push"].contains(&it.layer));
        listed.map_or_else(String::new, ListReport::origin)
    };
    let facts = [
        report.tenant.as_ref().map(|tenant| ("tenant", tenant.clone(), Tone::Plain)),
        Some(("passed", packets(report.passed), Tone::Plain)),
        Some(("dropped", packets(report.dropped), Tone::of_drops(report.dropped.packets))),
        lists.allowed.map(|it| ("allowed", until(it) + &origin("allow"), Tone::Passed)),
        lists.denied.map(|it| ("denied", until(it) + &origin("deny"), Tone::Dropped)),
        lists.blocked.map(|it| {
            ("blocked", format!("by hand, {}{}", until(it), origin("penalty")), Tone::Dropped)
        }),
        lists
            .penalty
            .as_ref()
            .map(|it| ("penalty", format!("{it}, {}", until(it.until)), Tone::Dropped)),
    ];
    facts.into_iter().flatten().collect()
}

fn limits(report: &SourceReport) -> Table {
    let mut table = Table::new([
        Column::left("LIMIT"),
        Column::left("PER"),
        Column::left("ALGORITHM"),
        Column::left("MODE"),
        Column::right("RATE"),
        Column::right("BURST"),
        Column::right("USED"),
        Column::right("LEFT"),
        Column::right("PASSES IN"),
        Column::right("FULL IN"),
        Column::left(""),
    ]);
    for limit in &report.limits {
        let [rate, burst] = setting_cells(limit);
        let [used, left, next, full] = kept_cells(limit);
        table.row([
            Cell::new(limit.name.as_str(), Tone::Strong),
            limit.key.as_str().into(),
            limit.allowance.map_or("", Allowance::algorithm).into(),
            limit.mode.into(),
            rate,
            burst,
            used,
            left,
            next,
            full,
            Cell::new(origin(&limit.origin), Tone::Faint),
        ]);
    }
    table
}

/// The table of the states of keyed limits.
pub(crate) fn states(report: &SourceReport) -> Table {
    let mut table = Table::new([
        Column::left("LIMIT"),
        Column::left("KEY"),
        Column::right("USED"),
        Column::right("LEFT").rank(1),
        Column::right("PASSES IN").rank(2),
        Column::right("FULL IN").rank(3),
    ]);
    for KeyedReport { limit, key, fill } in &report.states {
        let of = report.limits.iter().find(|report| report.name == *limit);
        let count = of.map_or(&Count::Packets, |report| &report.count);
        let [used, left, next, full] = fill_cells(fill.as_ref(), count);
        let name = Cell::new(limit.as_str(), Tone::Strong);
        table.row([name, key.as_str().into(), used, left, next, full]);
    }
    table
}

fn json(report: &SourceReport) -> Value {
    let tally = |tally: Tally| json!({ "packets": tally.packets, "bytes": tally.bytes });
    let states: Vec<Value> = report
        .states
        .iter()
        .map(|state| {
            let fill = state.fill.as_ref().map(fill_json);
            json!({ "limit": state.limit, "key": state.key, "state": fill })
        })
        .collect();
    let penalty = report.lists.penalty.as_ref();
    json!({
        "schema": SCHEMA,
        "source": report.name(),
        "known": report.known,
        "mode": report.monitoring.mode(),
        "tenant": report.tenant,
        "passed": tally(report.passed),
        "dropped": tally(report.dropped),
        "allowed": until_json(report.lists.allowed),
        "denied": until_json(report.lists.denied),
        "blocked": until_json(report.lists.blocked),
        "lists": lists_json(&report.listed),
        "penalty": until_json(penalty.map(|block| block.until)),
        "pushed": penalty.is_some_and(|block| block.pushed),
        "penalty_limit": penalty.and_then(|block| block.limit.as_ref()),
        "blocks": penalty.map_or(0, |block| block.blocks),
        "limits": report.limits.iter().map(limit_json).collect::<Vec<_>>(),
        "states": states,
        "states_total": report.total,
    })
}
