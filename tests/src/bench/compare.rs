//! An earlier run beside this one.
//!
//! Two runs are compared by ratios taken within each: nanoseconds are those of a machine and its
//! mood, but what a packet costs against another packet of the same run is the program's.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_userspace::output::table::{Cell, Column, Table};
use serde_json::Value;

use super::{
    case::REFERENCE,
    contest::Contest,
    report::{Report, SCHEMA},
    text::lines,
};

/// A change of a ratio that is less than this part of it is that of the code's place in memory.
const NOISE: f64 = 0.1;

/// What to do about a file that is not what it should be.
const REMEDY: &str = "give --compare a file that an earlier run wrote with --json";

/// The figures of an earlier run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Earlier {
    /// When it was, and on what.
    run: String,
    /// Nanoseconds over the baseline.
    costs: BTreeMap<String, Entry>,
    /// Frames per second.
    rates: BTreeMap<String, Entry>,
}

/// A case of a run, which is found by its id.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    figure: f64,
}

/// The same cases of two runs.
struct Part<'a> {
    before: &'a BTreeMap<String, Entry>,
    /// In the order of the report.
    now: Vec<(&'a str, Entry)>,
    /// The id of the case that the others of a run are compared with.
    reference: &'static str,
    /// Whether more of the figure is more time.
    time: bool,
}

impl Earlier {
    /// Reads what `--json` wrote.
    ///
    /// # Errors
    /// The file cannot be read, or is not such a report.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => bail!("cannot read the report {name}: {error}; {REMEDY}"),
        };
        let report = match serde_json::from_str(&text) {
            Ok(report) => report,
            Err(error) => bail!("the report {name} is not JSON: {error}; {REMEDY}"),
        };
        match Self::of(&report) {
            Ok(earlier) => Ok(earlier),
            Err(error) => bail!("{name} is not a report to compare with: {error}; {REMEDY}"),
        }
    }

    fn of(report: &Value) -> Result<Self> {
        let schema = &report["schema"];
        ensure!(!schema.is_null(), "it has no `schema`");
        ensure!(schema == SCHEMA, "its schema is {schema}, and this is limiter for \"{SCHEMA}\"");
        let part = |part: &str, figure: &str, reference: &str| -> Result<BTreeMap<_, _>> {
            let entries = report[part].as_array().with_context(|| format!("it has no `{part}`"))?;
            let read = |entry: &Value| {
                let name = entry["name"].as_str()?.to_owned();
                let figure = entry[figure]["median"].as_f64()?;
                Some((entry["id"].as_str()?.to_owned(), Entry { name, figure }))
            };
            let found: Option<BTreeMap<_, _>> = entries.iter().map(read).collect();
            let found = found.with_context(|| format!("an entry of `{part}` has no figure"))?;
            ensure!(
                found.get(reference).is_some_and(|entry| entry.figure > 0.0),
                "its `{part}` has no `{reference}`, to which the others are compared"
            );
            Ok(found)
        };
        let fact = |name: &str| report["machine"][name].as_str().unwrap_or("unknown").to_owned();
        Ok(Self {
            run: format!("{}, {}, Linux {}", fact("date"), fact("cpu"), fact("kernel")),
            costs: part("cost", "over_nop_ns", REFERENCE)?,
            rates: part("live", "packets_per_second", Contest::Drop.id())?,
        })
    }

    /// The comparison with a run, as text.
    pub(crate) fn beside(&self, report: &Report) -> String {
        let entry = |name: &str, figure| Entry { name: name.to_owned(), figure };
        let costs =
            report.cost.costs.iter().map(|at| (&*at.case.id, entry(&at.case.name, at.over.median)));
        let live = report
            .live
            .iter()
            .map(|at| (at.contest.id(), entry(at.contest.name(), at.rate.median)));
        let costs =
            Part { before: &self.costs, now: costs.collect(), reference: REFERENCE, time: true };
        let reference = Contest::Drop.id();
        let rates = Part { before: &self.rates, now: live.collect(), reference, time: false };
        let mut parts = vec![
            format!("compared with the run of {}", self.run),
            costs.table("cost of a packet, as a ratio"),
            rates.table("frames over a wire, as a ratio"),
        ];
        let strays: Vec<_> = [&costs, &rates].into_iter().flat_map(Part::strays).collect();
        parts.extend((!strays.is_empty()).then(|| strays.join("\n")));
        parts.join("\n\n") + "\n" + NOTES
    }
}

impl Part<'_> {
    /// A row for each case that both runs have.
    fn table(&self, title: &'static str) -> String {
        let mut table = Table::new([
            Column::left(title),
            Column::right("before"),
            Column::right("now"),
            Column::left("change"),
        ]);
        for (entry, before, now) in self.ratios() {
            let change = self.change(before, now);
            let [before, now] = [before, now].map(|ratio| Cell::from(format!("{ratio:.2}")));
            table.row([Cell::from(entry.name.as_str()), before, now, change.into()]);
        }
        lines(&table)
    }

    /// The cases that both runs have, but for the one that makes the ratios, with the two of them.
    fn ratios(&self) -> impl Iterator<Item = (&Entry, f64, f64)> {
        let unit_before = self.before.get(self.reference).map_or(f64::NAN, |entry| entry.figure);
        let unit = self.now.iter().find(|(id, _)| *id == self.reference);
        let unit = unit.map_or(f64::NAN, |(_, entry)| entry.figure);
        let both = self.now.iter().filter(|(id, _)| *id != self.reference);
        both.filter_map(move |(id, now)| {
            let before = self.before.get(*id)?;
            Some((now, before.figure / unit_before, now.figure / unit))
        })
    }

    /// How much faster or slower it became, if that is more than noise.
    fn change(&self, before: f64, now: f64) -> String {
        let change = now / before - 1.0;
        if !change.is_finite() {
            return "not comparable".to_owned();
        }
        if change.abs() < NOISE {
            return "same".to_owned();
        }
        let what = if (change > 0.0) == self.time { "slower" } else { "faster" };
        format!("{:.0} % {what}", 100.0 * change.abs())
    }

    /// What is said of the cases that only one run has.
    fn strays(&self) -> Vec<String> {
        let gone = self.before.iter().filter(|(id, _)| !self.now.iter().any(|(now, _)| now == id));
        let gone = gone.map(|(_, entry)| format!("only before: {}", entry.name));
        let new = self.now.iter().filter(|(id, _)| !self.before.contains_key(*id));
        gone.chain(new.map(|(_, entry)| format!("only now: {}", entry.name))).collect()
    }
}

const NOTES: &str = "\
Costs are ratios to `known source, one limit`, frames over a wire to bare XDP_DROP, each of its own
run. Same: it differs by less than a tenth, which the place of the code in memory does as well.";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entries(figures: &[(&'static str, f64)]) -> Vec<(&'static str, Entry)> {
        let entry = |id: &str, figure| Entry { name: format!("the {id}"), figure };
        figures.iter().map(|(id, figure)| (*id, entry(id, *figure))).collect()
    }

    fn earlier(figures: &[(&'static str, f64)]) -> BTreeMap<String, Entry> {
        entries(figures).into_iter().map(|(id, entry)| (id.to_owned(), entry)).collect()
    }

    fn report() -> Value {
        let entry = |id: &str, figure: &str, median: f64| json!({"id": id, "name": format!("the {id}"), figure: {"median": median}});
        json!({
            "schema": SCHEMA,
            "machine": {"date": "2026-01-02T03:04:05Z", "cpu": "Any", "kernel": "6.1"},
            "cost": [entry(REFERENCE, "over_nop_ns", 80.5)],
            "live": [entry("xdp_drop", "packets_per_second", 1e7)],
        })
    }

    #[test]
    fn a_report_is_read() {
        let read = Earlier::of(&report()).unwrap();
        assert_eq!(read.run, "2026-01-02T03:04:05Z, Any, Linux 6.1");
        assert_eq!(read.costs, earlier(&[(REFERENCE, 80.5)]));
        assert_eq!(read.rates, earlier(&[("xdp_drop", 1e7)]));
    }

    #[test]
    fn what_is_no_such_report_is_told_why() {
        let other =
            "its schema is \"limiter.status/1\", and this is limiter for \"limiter.bench/1\"";
        for (key, value, expected) in [
            ("schema", json!(null), "it has no `schema`"),
            ("schema", json!("limiter.status/1"), other),
            ("cost", json!(null), "it has no `cost`"),
            (
                "cost",
                json!([]),
                "its `cost` has no `known_source`, to which the others are compared",
            ),
            ("live", json!([{"id": "xdp_drop"}]), "an entry of `live` has no figure"),
        ] {
            let mut other = report();
            other[key] = value;
            assert_eq!(Earlier::of(&other).unwrap_err().to_string(), expected);
        }
        let missing = Earlier::read(Path::new("/nowhere/report.json")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the report /nowhere/report.json: "), "{missing}");
        assert!(missing.ends_with(REMEDY), "{missing}");
        let other = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let other = Earlier::read(other).unwrap_err().to_string();
        assert!(other.contains("Cargo.toml is not JSON: "), "{other}");
        assert!(other.ends_with(REMEDY), "{other}");
    }

    #[test]
    fn ratios_are_compared_and_noise_is_not_told() {
        let figures = [("one", 50.0), ("two", 100.0), ("gone", 1.0), ("three", 200.0)];
        let before = earlier(&figures);
        let now = entries(&[("one", 100.0), ("two", 210.0), ("new", 1.0), ("three", 800.0)]);
        for (time, word) in [(true, "slower"), (false, "faster")] {
            let part = Part { before: &before, now: now.clone(), reference: "one", time };
            let text = part.table("ratio");
            let rows: Vec<_> = text.lines().skip(1).map(|row| row.split_whitespace()).collect();
            let rows: Vec<String> =
                rows.into_iter().map(|row| row.collect::<Vec<_>>().join(" ")).collect();
            let three = format!("the three 4.00 8.00 100 % {word}");
            assert_eq!(rows, ["the two 2.00 2.10 same".to_owned(), three]);
            assert_eq!(part.strays(), ["only before: the gone", "only now: the new"]);
        }
    }
}
