//! Compares a run with an earlier one.
//!
//! The comparison uses ratios to a reference case of the same run. Nanoseconds depend on the machine and on
//! its load; the ratio of two cases of one run depends on the program.

mod part;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use self::part::{Entry, Part};
use super::{case::REFERENCE, contest::Contest, json::SCHEMA, report::Report};

/// The advice in messages about an unusable file.
const REMEDY: &str = "give --compare a file that an earlier run wrote with --json";

/// The figures of an earlier run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Earlier {
    /// Date and machine of the run, for the report.
    run: String,
    /// Nanoseconds per packet over the baseline, by the id of the case.
    costs: BTreeMap<String, Entry>,
    /// Frames per second, by the id of the contest.
    rates: BTreeMap<String, Entry>,
}

impl Earlier {
    /// Reads a report that `--json` wrote.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not such a report.
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

    /// The comparison with `report`, as text.
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

const NOTES: &str = "\
Costs are ratios to `known source, one limit`, frames over a wire to bare XDP_DROP, each of its own
run. Same: it differs by less than a tenth, which the place of the code in memory does as well.";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        let figures = |entries: &BTreeMap<String, Entry>| {
            let figure = |(id, at): (&String, &Entry)| (id.clone(), at.name.clone(), at.figure);
            entries.iter().map(figure).collect::<Vec<_>>()
        };
        let expected = |id: &str, figure| vec![(id.to_owned(), format!("the {id}"), figure)];
        assert_eq!(figures(&read.costs), expected(REFERENCE, 80.5));
        assert_eq!(figures(&read.rates), expected("xdp_drop", 1e7));
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
}
