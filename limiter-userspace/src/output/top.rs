//! The sources with the most drops, as they are printed.

use std::{io::Write, net::IpAddr};

use serde::Serialize;

use super::{
    number::{grouped, scaled},
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::datapath::{snapshot::Talker, survey::Sighting};

/// What is said where there is nothing to list.
const NONE: &str = "No source has been seen yet.";

/// The JSON schema.
const SCHEMA: &str = "limiter.top/1";

/// A source, as `top -j` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopEntry {
    /// Its address, or its prefix if that counts as one source.
    pub source: String,
    /// Packets that passed.
    pub passed: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Bytes that passed.
    pub passed_bytes: u64,
    /// Bytes that were dropped.
    pub dropped_bytes: u64,
}

impl From<&Talker> for TopEntry {
    fn from(talker: &Talker) -> Self {
        Self {
            source: source(talker),
            passed: talker.passed.packets,
            dropped: talker.dropped.packets,
            passed_bytes: talker.passed.bytes,
            dropped_bytes: talker.dropped.bytes,
        }
    }
}

/// A source with its rates, as `top --by rate -j` and `watch -j` print it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateEntry {
    #[serde(flatten)]
    entry: TopEntry,
    passed_per_second: Option<f64>,
    dropped_per_second: Option<f64>,
}

impl RateEntry {
    /// A source, and its packets per second, passed and dropped; `None` if they are not known.
    pub fn new(talker: &Talker, rates: Option<[f64; 2]>) -> Self {
        Self {
            entry: TopEntry::from(talker),
            passed_per_second: rates.map(|[passed, _]| rounded(passed)),
            dropped_per_second: rates.map(|[_, dropped]| rounded(dropped)),
        }
    }
}

/// Rounds to three decimals; rates are not more exact.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The name of a source: its address, or its prefix if that counts as one source.
pub fn source(talker: &Talker) -> String {
    name(talker.address, talker.prefix)
}

/// Writes an address, with the prefix length if that is shorter than the address.
pub fn name(address: IpAddr, prefix: u8) -> String {
    let bits = match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    if prefix >= bits { address.to_string() } else { format!("{address}/{prefix}") }
}

/// Prints sources in the given order: as JSON if that was asked for, otherwise as a table.
///
/// # Errors
/// [`OutputError`], if they cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, talkers: &[Talker]) -> Result<(), OutputError> {
    if output.is_json() {
        let entries: Vec<_> = talkers.iter().map(TopEntry::from).collect();
        return output.entries(SCHEMA, "sources", &entries);
    }
    if talkers.is_empty() {
        return writeln!(output, "{NONE}");
    }
    let mut table = Table::new([
        Column::left("SOURCE"),
        Column::right("DROPPED"),
        Column::right("BYTES"),
        Column::right("PASSED"),
        Column::right("BYTES"),
    ]);
    let amounts = output.amounts();
    for talker in talkers {
        let Talker { passed, dropped, .. } = talker;
        let tone = Tone::of_drops(dropped.packets);
        table.row([
            Cell::new(source(talker), Tone::Strong),
            Cell::new(grouped(dropped.packets), tone),
            Cell::new(amounts.traffic(dropped.bytes), tone),
            grouped(passed.packets).into(),
            amounts.traffic(passed.bytes).into(),
        ]);
    }
    output.table(&table)
}

/// Prints sources with their rates in the given order: as JSON if that was asked for, otherwise as
/// a table.
///
/// # Errors
/// [`OutputError`], if they cannot be written.
pub fn print_rates<W: Write>(
    output: &mut Output<W>,
    found: &[Sighting],
) -> Result<(), OutputError> {
    let rates = |it: &Sighting| it.rates.map(|rates| rates.map(f64::from));
    if output.is_json() {
        let entries: Vec<_> =
            found.iter().map(|it| RateEntry::new(&it.talker, rates(it))).collect();
        return output.entries(SCHEMA, "sources", &entries);
    }
    if found.is_empty() {
        return writeln!(output, "{NONE}");
    }
    let mut table = Table::new([
        Column::left("SOURCE"),
        Column::right("DROPPED/S"),
        Column::right("PASSED/S"),
        Column::right("DROPPED"),
        Column::right("PASSED"),
    ]);
    for it in found {
        let Talker { passed, dropped, .. } = it.talker;
        let rate = |side: usize| rates(it).map_or_else(|| "-".into(), |both| scaled(both[side]));
        let dropping = rates(it).is_some_and(|[_, dropped]| dropped > 0.0);
        let tone = if dropping { Tone::Dropped } else { Tone::Plain };
        table.row([
            Cell::new(source(&it.talker), Tone::Strong),
            Cell::new(rate(1), tone),
            rate(0).into(),
            Cell::new(grouped(dropped.packets), Tone::of_drops(dropped.packets)),
            grouped(passed.packets).into(),
        ]);
    }
    output.table(&table)
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use limiter_common::base::tally::Tally;

    use super::*;
    use crate::output::stream::printed;

    fn talker(address: &str, prefix: u8, passed: u64, dropped: u64) -> Talker {
        let tally = |packets| Tally { packets, bytes: packets * 60 };
        let (passed, dropped) = (tally(passed), tally(dropped));
        Talker { address: address.parse().unwrap(), prefix, passed, dropped }
    }

    fn text(json: bool) -> String {
        let mut talkers = [
            talker("192.0.2.1", 32, 9_000, 0),
            talker("2001:db8:1:2::", 64, 10, 1_234_567),
            talker("203.0.113.0", 24, 5, 7),
            talker("198.51.100.1", 32, 6, 7),
            talker("2001:db8::1", 128, 1, 1),
        ];
        talkers.sort_unstable_by_key(|talker| {
            Reverse((talker.dropped.packets, talker.passed.packets))
        });
        printed(json, false, |output| print(output, &talkers))
    }

    #[test]
    fn sources_come_by_drops_and_then_by_what_passed() {
        assert_eq!(
            text(false),
            "\
SOURCE               DROPPED   BYTES  PASSED  BYTES
2001:db8:1:2::/64  1,234,567  74.1MB      10   600B
198.51.100.1               7    420B       6   360B
203.0.113.0/24             7    420B       5   300B
2001:db8::1                1     60B       1    60B
192.0.2.1                  0      0B   9,000  540kB
"
        );
    }

    #[test]
    fn rates_come_before_counts() {
        let sighting = |talker, rates| Sighting { talker, rates };
        let found = [
            sighting(talker("192.0.2.7", 32, 9_000, 1_234), Some([1_000.0, 2_500_000.0])),
            sighting(talker("192.0.2.8", 32, 5, 0), Some([2.5, 0.0])),
            sighting(talker("2001:db8:1:2::", 64, 5, 7), None),
        ];
        assert_eq!(
            printed(false, false, |output| print_rates(output, &found)),
            "\
SOURCE             DROPPED/S  PASSED/S  DROPPED  PASSED
192.0.2.7              2.50M     1.00k    1,234   9,000
192.0.2.8                  0       2.5        0       5
2001:db8:1:2::/64          -         -        7       5
"
        );
        let json = printed(true, false, |output| print_rates(output, &found[1..2]));
        assert!(json.contains(r#""passed_per_second":2.5,"dropped_per_second":0.0}]}"#), "{json}");
    }

    #[test]
    fn json_is_the_shape_that_scripts_rely_on() {
        let text = text(true);
        assert!(
            text.starts_with(concat!(
                r#"{"schema":"limiter.top/1","sources":[{"source":"2001:db8:1:2::/64","passed":10,"dropped":1234567,"#,
                r#""passed_bytes":600,"dropped_bytes":74074020},{"source":"198.51.100.1","#
            )),
            "{text}"
        );
    }
}
