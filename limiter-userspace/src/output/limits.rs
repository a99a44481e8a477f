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
use crate::policy::{
    model::{Allowance, Count, Limit, Mode, name_of_layer},
    units::rate_per_second,
};

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
        shown_mode(self.mode, self.rate.is_none() && self.overrides == 0)
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

/// What a limit admits as an operator writes it: its rate, or how many may be open, and its burst.
pub fn written(count: &Count, allowance: Allowance) -> [String; 2] {
    let burst = allowance.bucket().burst;
    match allowance.rate() {
        None => [format!("{} open", grouped(burst)), String::new()],
        Some(rate) if *count == Count::Bytes => [count.rate(rate), count.amount(burst)],
        Some(rate) => [count.rate(rate), grouped(burst)],
    }
}

/// A limit as `limit list -j` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct LimitEntry {
    /// Its name.
    pub name: String,
    /// What has a state of its own, in the words of a document.
    pub key: String,
    /// The rate of its first layer; nothing if it has none.
    pub rate_per_second: Option<Number>,
    /// The burst of its first layer in what it counts; nothing if it has none.
    pub burst: Option<u64>,
    /// What it counts.
    pub count: &'static str,
    /// The algorithm of its first layer; nothing if it has none.
    pub algorithm: Option<&'static str>,
    /// Whether it drops.
    pub mode: Mode,
    /// All that it admits at once; nothing if it is off.
    pub layers: Vec<LayerEntry>,
    /// Its overrides, in the order in which they are shown.
    pub overrides: Vec<OverrideEntry>,
}

/// A layer of a limit.
#[derive(Clone, Debug, Serialize)]
pub struct LayerEntry {
    /// What has a state of its own, in the words of a document.
    pub key: String,
    /// By which algorithm.
    pub algorithm: &'static str,
    /// Its rate; nothing for open connections.
    pub rate_per_second: Option<Number>,
    /// Its burst in what the limit counts.
    pub burst: u64,
    /// The rate and the burst as an operator writes them.
    #[serde(skip)]
    pub written: [String; 2],
}

/// The setting of a limit for the sources in a prefix.
#[derive(Clone, Debug, Serialize)]
pub struct OverrideEntry {
    /// The prefix.
    pub src: String,
    /// The rate of the first layer; nothing if the limit is off for these sources.
    pub rate_per_second: Option<Number>,
    /// The burst of the first layer in what the limit counts; nothing if it is off for these sources.
    pub burst: Option<u64>,
    /// What it admits instead of each layer of the limit; nothing if it is off for these sources.
    pub layers: Vec<LayerEntry>,
}

impl LimitEntry {
    /// A limit that admits so much, and this to some instead.
    pub fn new(
        limit: &Limit,
        key: String,
        mode: Mode,
        layers: Vec<LayerEntry>,
        overrides: Vec<OverrideEntry>,
    ) -> Self {
        let first = layers.first();
        Self {
            name: limit.name.clone(),
            key,
            rate_per_second: first.and_then(|first| first.rate_per_second.clone()),
            burst: first.map(|first| first.burst),
            count: limit.count.name(),
            algorithm: first.map(|first| first.algorithm),
            mode,
            layers,
            overrides,
        }
    }

    /// Whether nobody is limited.
    const fn is_off(&self) -> bool {
        self.layers.is_empty() && self.overrides.is_empty()
    }
}

impl LayerEntry {
    /// What is admitted to each of a key.
    pub fn new(key: String, count: &Count, allowance: Allowance) -> Self {
        Self {
            key,
            algorithm: allowance.algorithm(),
            rate_per_second: allowance.rate().map(rate_per_second),
            burst: allowance.bucket().burst,
            written: written(count, allowance),
        }
    }
}

impl OverrideEntry {
    /// Admitted instead, to these sources.
    pub fn new(src: String, layers: Vec<LayerEntry>) -> Self {
        let first = layers.first();
        Self {
            src,
            rate_per_second: first.and_then(|first| first.rate_per_second.clone()),
            burst: first.map(|first| first.burst),
            layers,
        }
    }
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
        let mode = || shown_mode(limit.mode, limit.is_off());
        for (place, name) in rows(&limit.name, &limit.layers) {
            let layer = limit.layers.get(place);
            let [rate, burst] = written_cells(layer);
            let key = layer.map_or(&limit.key, |layer| &layer.key);
            let overrides = if place == 0 { limit.overrides.len() } else { 0 };
            table.row([
                Cell::new(name, Tone::Strong),
                key.as_str().into(),
                rate,
                burst,
                overrides_cell(overrides),
                mode(),
            ]);
        }
        for entry in &limit.overrides {
            for (place, name) in rows(&entry.src, &entry.layers) {
                let [rate, burst] = written_cells(entry.layers.get(place));
                table.row([format!("  {name}").into(), "".into(), rate, burst]);
            }
        }
    }
    output.table(&table)
}

/// The place and the name of a row for each layer, and of one if there is none.
fn rows(name: &str, layers: &[LayerEntry]) -> impl Iterator<Item = (usize, String)> {
    (0..layers.len().max(1)).map(move |place| (place, name_of_layer(name, place)))
}

fn rate_cell(rate: Option<&str>) -> Cell {
    rate.map_or_else(|| Cell::new("off", Tone::Faint), Cell::from)
}

fn written_cells(layer: Option<&LayerEntry>) -> [Cell; 2] {
    let Some(LayerEntry { written: [rate, burst], .. }) = layer else {
        return [rate_cell(None), Cell::default()];
    };
    [rate_cell(Some(rate)), burst.clone().into()]
}

/// The mode as it is shown: what limits nobody drops nothing.
fn shown_mode(mode: Mode, is_off: bool) -> Cell {
    let mode = if is_off { Mode::Off } else { mode };
    let tone = match mode {
        Mode::Enforce => Tone::Plain,
        Mode::Off => Tone::Faint,
        Mode::Monitor => Tone::Strong,
    };
    Cell::new(mode.name(), tone)
}

fn overrides_cell(overrides: usize) -> Cell {
    if overrides == 0 { Cell::default() } else { grouped(overrides as u64).into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Bucket, Builtin, units::parse_rate};

    fn layer(key: &str, rate: &str, burst: u64) -> LayerEntry {
        let bucket = Bucket::new(parse_rate(rate).unwrap(), burst).unwrap();
        LayerEntry::new(key.into(), &Count::Packets, bucket.into())
    }

    fn limits() -> [LimitEntry; 2] {
        let [syn, source] = [Builtin::Syn, Builtin::Source].map(Builtin::limit);
        let one = OverrideEntry::new("203.0.113.0/24".into(), vec![layer("source", "30/min", 5)]);
        let live = vec![layer("source", "1kpps", 2_000)];
        let entry = |limit: &Limit, layers, overrides| {
            LimitEntry::new(limit, "source".into(), Mode::Enforce, layers, overrides)
        };
        [entry(&syn, vec![], vec![]), entry(&source, live, vec![one])]
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
                r#""count":"syns","algorithm":null,"mode":"enforce","layers":[],"overrides":[]},"#,
                r#"{"name":"source","key":"source","rate_per_second":1000,"burst":2000,"#,
                r#""count":"packets","algorithm":"token_bucket","mode":"enforce","layers":"#,
                r#"[{"key":"source","algorithm":"token_bucket","rate_per_second":1000,"burst":2000}],"#,
                r#""overrides":[{"src":"203.0.113.0/24","rate_per_second":0.5,"burst":5,"layers":"#,
                r#"[{"key":"source","algorithm":"token_bucket","rate_per_second":0.5,"burst":5}]}]}]"#,
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
source            source  1 kpps  2,000          1
  203.0.113.0/24          30/min      5
"
        );
    }

    #[test]
    fn each_layer_has_a_row() {
        let [_, mut limit] = limits();
        limit.layers.push(layer("[source, destination_port]", "100/h", 20));
        limit.overrides[0].layers.push(layer("[source, destination_port]", "5/h", 3));
        assert_eq!(
            text_of(false, &[limit]),
            "\
LIMIT                       PER                           RATE  BURST  OVERRIDES
source                      source                      1 kpps  2,000          1
source (layer 2)            [source, destination_port]   100/h     20
  203.0.113.0/24                                        30/min      5
  203.0.113.0/24 (layer 2)                                 5/h      3
"
        );
    }

    #[test]
    fn modes_are_shown_when_not_all_limits_are_enforced() {
        let mut limits = limits();
        limits[1].mode = Mode::Monitor;
        limits[1].overrides.clear();
        assert_eq!(
            text_of(false, &limits),
            "\
LIMIT   PER       RATE  BURST  OVERRIDES  MODE
syn     source     off                    off
source  source  1 kpps  2,000             monitor
"
        );
        assert!(text_of(true, &limits).contains(r#""mode":"monitor""#));
    }

    #[test]
    fn open_connections_are_no_rate() {
        let open = Allowance::Concurrent { limit: 20, idle: 60_000_000_000 };
        let entry = LayerEntry::new("source".into(), &Count::Connections, open);
        assert_eq!(entry.written, ["20 open".to_owned(), String::new()]);
        assert_eq!((entry.rate_per_second, entry.burst), (None, 20));
    }
}
