//! The sources with the most drops, as they are printed.

use std::{io::Write, net::IpAddr};

use serde::Serialize;

use super::{
    number::grouped,
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::datapath::snapshot::Talker;

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
        return writeln!(output, "No source has been seen yet.");
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
