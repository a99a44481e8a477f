//! The lists and limits that decide about packets of a kind, as they are printed.

use std::io::Write;

use serde_json::{Value, json};

use super::{
    monitoring,
    setting::{kept_cells, limit_json, origin, setting_cells, until, until_json},
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
    verdict,
};
use crate::query::{
    explain::{Explanation, ListReport, Standing},
    source::source_name,
};

/// The JSON schema.
const SCHEMA: &str = "limiter.explanation/1";

/// Prints an explanation: as JSON if that was asked for, otherwise as text.
///
/// # Errors
/// [`OutputError`], if it cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, it: &Explanation) -> Result<(), OutputError> {
    if output.is_json() {
        return output.json(&json(it));
    }
    writeln!(output, "source {}", source_name(it.source))?;
    if let Some(said) = monitoring::said(it.monitoring) {
        writeln!(output, "{said}")?;
    }
    for line in facts(it) {
        writeln!(output, "{line}")?;
    }
    if it.limits.is_empty() {
        writeln!(output, "no limit is set")?;
    } else {
        writeln!(output)?;
        output.table(&limits(it))?;
    }
    if let Some(ruling) = &it.verdict {
        writeln!(output)?;
        write!(output, "now: ")?;
        output.toned(verdict::tone(ruling), &verdict::line(ruling))?;
        writeln!(output)?;
    }
    Ok(())
}

/// A line each for the control protocol, the lists and the tenant of the source.
pub(crate) fn facts(it: &Explanation) -> Vec<String> {
    let lists = it.lists.iter().enumerate().map(|(place, it)| {
        let ListReport { list, entry, until: time, .. } = it;
        let origin = it.origin();
        let effect = if *list == "allow" { "passes" } else { "is dropped" };
        let asked = if place == 0 {
            format!("{effect} here, and no limit is asked")
        } else {
            "is not asked".to_owned()
        };
        format!("{list} {entry}{origin}, {}: {asked}", until(*time))
    });
    let tenant = it.tenant.as_ref().map(|(name, prefix)| {
        let by = prefix.map_or_else(String::new, |prefix| format!(", by {prefix}"));
        format!("tenant {name}{by}")
    });
    let control = it.control.map(|protocol| {
        format!("control traffic of the link ({protocol}): it has a budget, and no list or limit is asked")
    });
    control.into_iter().chain(lists).chain(tenant).collect()
}

/// The table of limits. A narrow screen leaves out the columns of the highest ranks first.
pub(crate) fn limits(it: &Explanation) -> Table {
    let mut table = Table::new([
        Column::left("LIMIT"),
        Column::left("PER").rank(5),
        Column::left("MODE").rank(1),
        Column::left("MATCHES").rank(3),
        Column::right("RATE").rank(2),
        Column::right("BURST").rank(6),
        Column::right("USED"),
        Column::right("LEFT").rank(4),
        Column::right("PASSES IN"),
        Column::right("FULL IN").rank(7),
        Column::left("").rank(8),
    ]);
    for (report, standing) in &it.limits {
        let (matches, tone) = match standing {
            Standing::Applies => ("yes".to_owned(), Tone::Strong),
            Standing::Depends(words) => (format!("if {}", words.join(", ")), Tone::Plain),
            Standing::Not(word) => (format!("no: {word}"), Tone::Faint),
        };
        let [rate, burst] = setting_cells(report);
        let [used, left, next, full] = kept_cells(report);
        table.row([
            Cell::new(report.name.as_str(), Tone::Strong),
            report.key.as_str().into(),
            report.mode.into(),
            Cell::new(matches, tone),
            rate,
            burst,
            used,
            left,
            next,
            full,
            Cell::new(origin(&report.origin), Tone::Faint),
        ]);
    }
    table
}

/// The entries of lists, in the order in which they are asked.
pub(super) fn lists_json(lists: &[ListReport]) -> Vec<Value> {
    let of = |list: &ListReport| {
        let left = until_json(Some(list.until));
        json!({
            "list": list.list,
            "entry": list.entry,
            "layer": list.layer,
            "reason": list.reason,
            "seconds_left": left["seconds_left"],
        })
    };
    lists.iter().map(of).collect()
}

fn json(it: &Explanation) -> Value {
    let limits: Vec<Value> = it
        .limits
        .iter()
        .map(|(report, standing)| {
            let mut value = limit_json(report);
            let (matches, why) = match standing {
                Standing::Applies => ("yes", json!([])),
                Standing::Depends(words) => ("depends", json!(words)),
                Standing::Not(word) => ("no", json!([word])),
            };
            value["matches"] = matches.into();
            value["conditions"] = why;
            value
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "source": source_name(it.source),
        "mode": it.monitoring.mode(),
        "lists": lists_json(&it.lists),
        "control": it.control,
        "tenant": it.tenant.as_ref().map(|(name, _)| name),
        "limits": limits,
        "verdict": it.verdict.as_ref().map(verdict::json),
    })
}
