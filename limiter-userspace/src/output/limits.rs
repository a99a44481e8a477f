//! Limits as they are set.

use std::io::Write;

use serde::Serialize;
use serde_json::Number;

use super::{
    number::grouped,
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::policy::model::Mode;

/// What is said when no limit is set, in two lines.
pub const HOW_TO_SET: [&str; 2] = [
    "No limit is set, so every packet passes.",
    "Set one: limiter limit set source --rate 1kpps --burst 2k",
];

/// The setting of a limit in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// Its name.
    pub name: String,
    /// Its rate as an operator writes it; nothing if it is off.
    pub rate: Option<String>,
    /// Its burst as an operator writes it; nothing if it is off.
    pub burst: Option<String>,
    /// How many prefixes have a setting of their own.
    pub overrides: usize,
    /// Whether it drops.
    pub mode: Mode,
}

impl LimitRow {
    /// A limit that is off.
    pub fn off(name: impl Into<String>) -> Self {
        let mode = Mode::Enforce;
        Self { name: name.into(), rate: None, burst: None, overrides: 0, mode }
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

    /// Whether it drops.
    pub fn mode_cell(&self) -> Cell {
        mode_cell(self.mode)
    }
}

/// Whether there is more to say of modes than that all limits are enforced.
pub fn has_modes(limits: &[LimitRow]) -> bool {
    limits.iter().any(|row| row.mode != Mode::Enforce)
}

/// Whether no limit is set, not even for a prefix.
pub fn none_set(limits: &[LimitRow]) -> bool {
    limits.iter().all(|row| row.rate.is_none() && row.overrides == 0)
}

/// A limit as `limit list -j` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct LimitEntry {
    /// Its name.
    pub name: String,
    /// What has a bucket of its own.
    pub key: String,
    /// Its rate; nothing if it is off.
    pub rate_per_second: Option<Number>,
    /// Its burst in what it counts; nothing if it is off.
    pub burst: Option<u64>,
    /// What it counts.
    pub count: &'static str,
    /// By which algorithm; nothing if it is off.
    pub algorithm: Option<&'static str>,
    /// Whether it drops.
    pub mode: Mode,
    /// The rate and the burst as an operator writes them.
    #[serde(skip)]
    pub written: Option<[String; 2]>,
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
    /// The burst in what the limit counts; nothing if it is off for these sources.
    pub burst: Option<u64>,
    /// The rate and the burst as an operator writes them.
    #[serde(skip)]
    pub written: Option<[String; 2]>,
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
    let modes = limits.iter().any(|limit| limit.mode != Mode::Enforce);
    let mut columns = vec![
        Column::left("LIMIT"),
        Column::left("PER"),
        Column::right("RATE"),
        Column::right("BURST"),
        Column::right("OVERRIDES"),
    ];
    columns.extend(modes.then(|| Column::left("MODE")));
    let mut table = Table::new(columns);
    for limit in limits {
        let [rate, burst] = written_cells(limit.written.as_ref());
        table.row([
            Cell::new(limit.name.as_str(), Tone::Strong),
            limit.key.as_str().into(),
            rate,
            burst,
            overrides_cell(limit.overrides.len()),
            mode_cell(limit.mode),
        ]);
        for entry in &limit.overrides {
            let [rate, burst] = written_cells(entry.written.as_ref());
            table.row([format!("  {}", entry.src).into(), "".into(), rate, burst]);
        }
    }
    output.table(&table)
}

fn rate_cell(rate: Option<&str>) -> Cell {
    rate.map_or_else(|| Cell::new("off", Tone::Faint), Cell::from)
}

fn written_cells(written: Option<&[String; 2]>) -> [Cell; 2] {
    let [rate, burst] = written.map_or([None, None], |[rate, burst]| [Some(rate), Some(burst)]);
    [rate_cell(rate.map(String::as_str)), burst.cloned().unwrap_or_default().into()]
}

fn mode_cell(mode: Mode) -> Cell {
    let tone = if mode == Mode::Enforce { Tone::Plain } else { Tone::Strong };
    Cell::new(mode.name(), tone)
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
                name: "syn".into(),
                key: "source".into(),
                rate_per_second: None,
                burst: None,
                count: "syns",
                algorithm: None,
                mode: Mode::Enforce,
                written: None,
                overrides: Vec::new(),
            },
            LimitEntry {
                name: "source".into(),
                key: "source".into(),
                rate_per_second: Some(1000.into()),
                burst: Some(2000),
                count: "packets",
                algorithm: Some("token_bucket"),
                mode: Mode::Enforce,
                written: Some(["1kpps".into(), "2,000".into()]),
                overrides: vec![OverrideEntry {
                    src: "203.0.113.0/24".into(),
                    rate_per_second: Number::from_f64(0.5),
                    burst: Some(5),
                    written: Some(["30/min".into(), "5".into()]),
                }],
            },
        ]
    }

    fn text(json: bool) -> String {
        text_of(json, &limits())
    }

    fn text_of(json: bool, limits: &[LimitEntry]) -> String {
        let mut written = Vec::new();
        let mut output = Output::new(&mut written, json, false);
        print(&mut output, limits).unwrap();
        output.flush().unwrap();
        drop(output);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn json_is_the_shape_that_scripts_rely_on() {
        assert_eq!(
            text(true),
            concat!(
                r#"[{"name":"syn","key":"source","rate_per_second":null,"burst":null,"#,
                r#""count":"syns","algorithm":null,"mode":"enforce","overrides":[]},"#,
                r#"{"name":"source","key":"source","rate_per_second":1000,"burst":2000,"#,
                r#""count":"packets","algorithm":"token_bucket","mode":"enforce","overrides":"#,
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

    #[test]
    fn modes_are_shown_when_not_all_limits_are_enforced() {
        let mut limits = limits();
        limits[0].mode = Mode::Monitor;
        limits[1].overrides.clear();
        assert_eq!(
            text_of(false, &limits),
            "\
LIMIT   PER      RATE  BURST  OVERRIDES  MODE
syn     source    off                    monitor
source  source  1kpps  2,000             enforce
"
        );
        assert!(text_of(true, &limits).contains(r#""mode":"monitor""#));
    }
}
