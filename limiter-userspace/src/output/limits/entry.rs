//! Limits, as `limit list` and `limit get` print them.

use std::io::Write;

use serde::Serialize;
use serde_json::Number;

use super::{NOTHING, overrides_cell, shown_mode, written, written_cells};
use crate::{
    output::{
        stream::{Output, OutputError},
        table::{Cell, Column, Table},
        tone::Tone,
    },
    policy::{
        document::match_name,
        model::{Allowance, Count, Limit, Mode, name_of_layer},
        units::rate_per_second,
    },
};

/// The JSON schema of several limits.
const SCHEMA: &str = "limiter.limits/1";

/// The JSON schema of one limit.
pub const OF_ONE: &str = "limiter.limit/1";

/// A limit, as `limit list -j` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct LimitEntry {
    /// Its name.
    pub name: String,
    /// What it is about, as a policy writes it without braces; empty for all packets.
    #[serde(rename = "match")]
    pub matching: String,
    /// The key of its state, as a policy writes it.
    pub key: String,
    /// The rate of its first layer, in units per second; `None` without a layer or a rate.
    pub rate_per_second: Option<Number>,
    /// The burst of its first layer, in the unit that it counts; `None` without a layer.
    pub burst: Option<u64>,
    /// The unit that it counts: packets or bytes, for example.
    pub count: &'static str,
    /// The algorithm of its first layer; `None` without a layer.
    pub algorithm: Option<&'static str>,
    /// The mode of the limit. Monitor mode of the policy or the instance is not considered.
    pub mode: Mode,
    /// The layers, of which a packet has to conform to all. Empty if the limit is off.
    pub layers: Vec<LayerEntry>,
    /// The overrides, in the order of the table.
    pub overrides: Vec<OverrideEntry>,
}

/// A layer of a limit.
#[derive(Clone, Debug, Serialize)]
pub struct LayerEntry {
    /// The key of its state, as a policy writes it.
    pub key: String,
    /// The algorithm, as a policy writes it.
    pub algorithm: &'static str,
    /// The rate, in units per second; `None` for a limit on open connections.
    pub rate_per_second: Option<Number>,
    /// The burst, in the unit that the limit counts; the number of connections for a limit on
    /// those.
    pub burst: u64,
    /// The rate and the burst, as an operator writes them.
    #[serde(skip)]
    pub written: [String; 2],
}

/// The setting of a limit for some sources.
#[derive(Clone, Debug, Serialize)]
pub struct OverrideEntry {
    /// The sources, as a policy writes them.
    pub src: String,
    /// The rate of the first layer, in units per second; `None` if the limit is off for these
    /// sources.
    pub rate_per_second: Option<Number>,
    /// The burst of the first layer, in the unit that the limit counts; `None` if the limit is off
    /// for these sources.
    pub burst: Option<u64>,
    /// The layers that replace those of the limit. Empty if the limit is off for these sources.
    pub layers: Vec<LayerEntry>,
}

impl LimitEntry {
    /// Makes the entry of a limit from its layers and overrides.
    pub fn new(
        limit: &Limit,
        key: String,
        layers: Vec<LayerEntry>,
        overrides: Vec<OverrideEntry>,
    ) -> Self {
        let first = layers.first();
        Self {
            name: limit.name.clone(),
            matching: match_name(&limit.matching),
            key,
            rate_per_second: first.and_then(|first| first.rate_per_second.clone()),
            burst: first.map(|first| first.burst),
            count: limit.count.name(),
            algorithm: first.map(|first| first.algorithm),
            mode: limit.mode,
            layers,
            overrides,
        }
    }

    /// Whether the limit is off for all sources.
    const fn is_off(&self) -> bool {
        self.layers.is_empty() && self.overrides.is_empty() && !matches!(self.mode, Mode::Drop)
    }
}

impl LayerEntry {
    /// Makes the entry of a layer with this key.
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
    /// Makes the entry of an override.
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
/// [`OutputError`], if they cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, limits: &[LimitEntry]) -> Result<(), OutputError> {
    if output.is_json() {
        return output.entries(SCHEMA, "limits", limits);
    }
    let modes = limits.iter().any(|limit| limit.mode != Mode::Enforce);
    let matches = limits.iter().any(|limit| !limit.matching.is_empty());
    let mut columns = vec![
        Column::left("LIMIT"),
        Column::left("PER"),
        Column::left("COUNTS"),
        Column::right("RATE"),
        Column::right("BURST"),
        Column::right("OVERRIDES"),
    ];
    columns.extend(modes.then(|| Column::left("MODE")));
    columns.extend(matches.then(|| Column::left("MATCH")));
    let mut table = Table::new(columns);
    for limit in limits {
        let mode = || shown_mode(limit.mode, limit.is_off());
        for (place, name) in rows(&limit.name, &limit.layers) {
            let layer = limit.layers.get(place);
            let [rate, burst] = match limit.mode {
                Mode::Drop => NOTHING.map(Cell::from),
                _ => written_cells(layer.map(|layer| layer.written.clone())),
            };
            let key = layer.map_or(&limit.key, |layer| &layer.key);
            let is_first = place == 0;
            let overrides = if is_first { limit.overrides.len() } else { 0 };
            let [count, matching] =
                [limit.count, &limit.matching].map(|text| if is_first { text } else { "" });
            let mut cells = vec![
                Cell::new(name, Tone::Strong),
                key.as_str().into(),
                count.into(),
                rate,
                burst,
                overrides_cell(overrides),
            ];
            cells.extend(modes.then(mode));
            cells.extend(matches.then(|| matching.into()));
            table.row(cells);
        }
        for entry in &limit.overrides {
            for (place, name) in rows(&entry.src, &entry.layers) {
                let layer = entry.layers.get(place);
                let [rate, burst] = written_cells(layer.map(|layer| layer.written.clone()));
                table.row([format!("  {name}").into(), "".into(), "".into(), rate, burst]);
            }
        }
    }
    output.table(&table)
}

/// The place and the name of the row of each layer. A limit without layers has one row.
fn rows(name: &str, layers: &[LayerEntry]) -> impl Iterator<Item = (usize, String)> {
    (0..layers.len().max(1)).map(move |place| (place, name_of_layer(name, place)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        output::stream::printed,
        policy::{Bucket, Builtin, units::parse_rate},
    };

    fn layer(key: &str, rate: &str, burst: u64) -> LayerEntry {
        let bucket = Bucket::new(parse_rate(rate).unwrap(), burst).unwrap();
        LayerEntry::new(key.into(), &Count::Packets, bucket.into())
    }

    fn limits() -> [LimitEntry; 2] {
        let [syn, source] = [Builtin::Syn, Builtin::Source].map(Builtin::limit);
        let one = OverrideEntry::new("203.0.113.0/24".into(), vec![layer("source", "30/min", 5)]);
        let live = vec![layer("source", "1kpps", 2_000)];
        let entry = |limit: &Limit, layers, overrides| {
            LimitEntry::new(limit, "source".into(), layers, overrides)
        };
        [entry(&syn, vec![], vec![]), entry(&source, live, vec![one])]
    }

    fn text(json: bool) -> String {
        text_of(json, &limits())
    }

    fn text_of(json: bool, limits: &[LimitEntry]) -> String {
        printed(json, false, |output| print(output, limits))
    }

    #[test]
    fn json_is_the_shape_that_scripts_rely_on() {
        assert_eq!(
            text(true),
            concat!(
                r#"{"schema":"limiter.limits/1","limits":[{"name":"syn","match":"","key":"source","rate_per_second":null,"burst":null,"#,
                r#""count":"syns","algorithm":null,"mode":"enforce","layers":[],"overrides":[]},"#,
                r#"{"name":"source","match":"","key":"source","rate_per_second":1000,"burst":2000,"#,
                r#""count":"packets","algorithm":"token_bucket","mode":"enforce","layers":"#,
                r#"[{"key":"source","algorithm":"token_bucket","rate_per_second":1000,"burst":2000}],"#,
                r#""overrides":[{"src":"203.0.113.0/24","rate_per_second":0.5,"burst":5,"layers":"#,
                r#"[{"key":"source","algorithm":"token_bucket","rate_per_second":0.5,"burst":5}]}]}]}"#,
                "\n"
            )
        );
    }

    #[test]
    fn overrides_are_below_their_limit() {
        assert_eq!(
            text(false),
            "\
LIMIT             PER     COUNTS     RATE  BURST  OVERRIDES
syn               source  syns        off
source            source  packets  1 kpps  2,000          1
  203.0.113.0/24                   30/min      5
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
LIMIT                       PER                         COUNTS     RATE  BURST  OVERRIDES
source                      source                      packets  1 kpps  2,000          1
source (layer 2)            [source, destination_port]            100/h     20
  203.0.113.0/24                                                 30/min      5
  203.0.113.0/24 (layer 2)                                          5/h      3
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
LIMIT   PER     COUNTS     RATE  BURST  OVERRIDES  MODE
syn     source  syns        off                    off
source  source  packets  1 kpps  2,000             monitor
"
        );
        assert!(text_of(true, &limits).contains(r#""mode":"monitor""#));
    }

    #[test]
    fn what_limits_are_about_is_shown_when_it_is_not_all_packets() {
        let mut limits = limits();
        limits[1].overrides.clear();
        limits[1].matching = "protocol: tcp, ports: 22".to_owned();
        assert_eq!(
            text_of(false, &limits),
            "\
LIMIT   PER     COUNTS     RATE  BURST  OVERRIDES  MATCH
syn     source  syns        off
source  source  packets  1 kpps  2,000             protocol: tcp, ports: 22
"
        );
    }

    #[test]
    fn open_connections_are_no_rate() {
        let open = Allowance::Concurrent { limit: 20, idle: 60_000_000_000 };
        let entry = LayerEntry::new("source".into(), &Count::Connections, open);
        assert_eq!(entry.written, ["20 open".to_owned(), String::new()]);
        assert_eq!((entry.rate_per_second, entry.burst), (None, 20));
    }
}
