//! Limits as they are set.

use std::io::Write;

use limiter_common::limit::Limit;
use serde::Serialize;
use serde_json::Number;

use super::{
    number::grouped,
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};

/// What is said when no limit is set, in two lines.
pub const HOW_TO_SET: [&str; 2] = [
    "No limit is set, so every packet passes.",
    "Set one: limiter limit set source --rate 1kpps --burst 2k",
];

/// The setting of a limit in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// The limit.
    pub limit: Limit,
    /// Its rate as an operator writes it; nothing if it is off.
    pub rate: Option<String>,
    /// Its burst as an operator writes it; nothing if it is off.
    pub burst: Option<String>,
    /// How many prefixes have a setting of their own.
    pub overrides: usize,
}

impl LimitRow {
    /// A limit that is off.
    pub const fn off(limit: Limit) -> Self {
        Self { limit, rate: None, burst: None, overrides: 0 }
    }

    /// Its rate, or that it is off.
    pub fn rate_cell(&self) -> Cell {
        rate_cell(self.rate.as_deref())
    }

    /// Its burst.
    pub fn burst_cell(&self) -> Cell {
        self.burst.clone().unwrap_or_default().into()
    }

    /// How many overrides it has; nothing if none.
    pub fn overrides_cell(&self) -> Cell {
        overrides_cell(self.overrides)
    }
}

/// Whether no limit is set, not even for a prefix.
pub fn none_set(limits: &[LimitRow]) -> bool {
    limits.iter().all(|row| row.rate.is_none() && row.overrides == 0)
}

/// A limit as `limit list -j` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct LimitEntry {
    /// Its name.
    pub name: &'static str,
    /// What has a bucket of its own.
    pub key: String,
    /// Its rate; nothing if it is off.
    pub rate_per_second: Option<Number>,
    /// Its burst in packets; nothing if it is off.
    pub burst: Option<u64>,
    /// The rate as an operator writes it.
    #[serde(skip)]
    pub rate: Option<String>,
    /// Its overrides, in the order in which they are shown.
    pub overrides: Vec<OverrideEntry>,
}

/// The setting of a limit for the sources in a prefix.
#[derive(Clone, Debug, Serialize)]
pub struct OverrideEntry {
    /// The prefix.
    pub src: String,
    /// The rate; nothing if the limit is off for these sources.
    pub rate_per_second: Option<Number>,
    /// The burst in packets; nothing if the limit is off for these sources.
    pub burst: Option<u64>,
    /// The rate as an operator writes it.
    #[serde(skip)]
    pub rate: Option<String>,
}

/// Prints limits: as JSON if that was asked for, otherwise as a table with the overrides below
/// their limit.
///
/// # Errors
/// [`OutputError`].
pub fn print<W: Write>(output: &mut Output<W>, limits: &[LimitEntry]) -> Result<(), OutputError> {
    if output.is_json() {
        return output.json(&limits);
    }
    let mut table = Table::new([
        Column::left("LIMIT"),
        Column::left("PER"),
        Column::right("RATE"),
        Column::right("BURST"),
        Column::right("OVERRIDES"),
    ]);
    for limit in limits {
        table.row([
            Cell::new(limit.name, Tone::Strong),
            limit.key.as_str().into(),
            rate_cell(limit.rate.as_deref()),
            burst_cell(limit.burst),
            overrides_cell(limit.overrides.len()),
        ]);
        for entry in &limit.overrides {
            table.row([
                format!("  {}", entry.src).into(),
                "".into(),
                rate_cell(entry.rate.as_deref()),
                burst_cell(entry.burst),
            ]);
        }
    }
    output.table(&table)
}

fn rate_cell(rate: Option<&str>) -> Cell {
    rate.map_or_else(|| Cell::new("off", Tone::Faint), Cell::from)
}

fn burst_cell(burst: Option<u64>) -> Cell {
    burst.map(grouped).unwrap_or_default().into()
}

fn overrides_cell(overrides: usize) -> Cell {
    if overrides == 0 { Cell::default() } else { grouped(overrides as u64).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> [LimitEntry; 2] {
        [
            LimitEntry {
                name: "syn",
                key: "source".into(),
                rate_per_second: None,
                burst: None,
                rate: None,
                overrides: Vec::new(),
            },
            LimitEntry {
                name: "source",
                key: "source".into(),
                rate_per_second: Some(1000.into()),
                burst: Some(2000),
                rate: Some("1kpps".into()),
                overrides: vec![OverrideEntry {
                    src: "203.0.113.0/24".into(),
                    rate_per_second: Number::from_f64(0.5),
                    burst: Some(5),
                    rate: Some("30/min".into()),
                }],
            },
        ]
    }

    fn text(json: bool) -> String {
        let mut written = Vec::new();
        let mut output = Output::new(&mut written, json, false);
        print(&mut output, &limits()).unwrap();
        output.flush().unwrap();
        drop(output);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn json_is_the_shape_that_scripts_rely_on() {
        assert_eq!(
            text(true),
            concat!(
                r#"[{"name":"syn","key":"source","rate_per_second":null,"burst":null,"overrides":[]},"#,
                r#"{"name":"source","key":"source","rate_per_second":1000,"burst":2000,"overrides":"#,
                r#"[{"src":"203.0.113.0/24","rate_per_second":0.5,"burst":5}]}]"#,
                "\n"
            )
        );
    }

    #[test]
    fn overrides_are_below_their_limit() {
        assert_eq!(
            text(false),
            "\
LIMIT             PER       RATE  BURST  OVERRIDES
syn               source     off
source            source   1kpps  2,000          1
  203.0.113.0/24          30/min      5
"
        );
    }
}
