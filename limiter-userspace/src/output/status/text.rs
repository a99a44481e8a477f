//! The statistics of an instance, as text.

use std::io::Write;

use limiter_common::{base::tally::Tally, packet::reason::Reason};

use super::{InterfaceStatus, LimitStatus, Occupancy, Reasons, Status, Tables, verdict};
use crate::output::{
    limits::LimitRows,
    number::{Amounts, grouped},
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};

impl Status {
    /// Prints the statistics: as JSON if that was asked for, otherwise as text beside the settings
    /// of the limits. The text leaves out reasons that no frame was counted under.
    ///
    /// # Errors
    /// [`OutputError`], if they cannot be written.
    pub fn print<W: Write>(
        &self,
        output: &mut Output<W>,
        limits: &LimitRows,
    ) -> Result<(), OutputError> {
        if output.is_json() {
            return output.json(self);
        }
        self.print_interfaces(output)?;
        for interface in self.interfaces.iter().filter(|it| it.unloaded) {
            writeln!(output, "{}", unloaded(&interface.name))?;
        }
        writeln!(output)?;
        self.print_limits(output, limits)?;
        if let Some(reasons) = self.reasons.table(output.amounts()) {
            writeln!(output)?;
            output.table(&reasons)?;
        }
        writeln!(output)?;
        output.table(&self.tables.table(output.amounts()))
    }

    fn print_interfaces<W: Write>(&self, output: &mut Output<W>) -> Result<(), OutputError> {
        if self.interfaces.is_empty() {
            return writeln!(output, "No interface is attached: limiter attach IFACE");
        }
        let mut table = Table::new([
            Column::left("INTERFACE"),
            Column::left("MODE"),
            Column::right("PASSED"),
            Column::right("BYTES"),
            Column::right("DROPPED"),
            Column::right("BYTES"),
            Column::left(""),
        ]);
        let amounts = output.amounts();
        for interface in &self.interfaces {
            let InterfaceStatus { packets, bytes, .. } = interface;
            let tone = Tone::of_drops(packets.dropped);
            table.row([
                Cell::new(interface.name.as_str(), Tone::Strong),
                interface.mode.into(),
                grouped(packets.passed).into(),
                amounts.traffic(bytes.passed).into(),
                Cell::new(grouped(packets.dropped), tone),
                Cell::new(amounts.traffic(bytes.dropped), tone),
                interface.absence.unwrap_or_default().into(),
            ]);
        }
        output.table(&table)
    }

    fn print_limits<W: Write>(
        &self,
        output: &mut Output<W>,
        limits: &LimitRows,
    ) -> Result<(), OutputError> {
        let mut columns = vec![
            Column::left("LIMIT"),
            Column::right("RATE"),
            Column::right("BURST"),
            Column::right("OVERRIDES"),
            Column::right("CONFORM"),
            Column::right("EXCEED"),
        ];
        columns.extend(limits.have_modes().then(|| Column::left("MODE")));
        let mut table = Table::new(columns);
        for row in &limits.rows {
            let of = |limit: &&LimitStatus| limit.name == row.name;
            let counted = |limit: &LimitStatus| {
                (limit.conform, limit.exceed.wrapping_add(limit.exceed_monitor))
            };
            let (conform, exceed) = self.limits.iter().find(of).map_or((0, 0), counted);
            table.row([
                Cell::new(row.name.as_str(), Tone::Strong),
                row.rate_cell(),
                row.burst_cell(),
                row.overrides_cell(),
                grouped(conform).into(),
                Cell::new(grouped(exceed), Tone::of_drops(exceed)),
                row.mode_cell(),
            ]);
        }
        output.table(&table)?;
        if let Some(lines) = limits.how_to_set() {
            writeln!(output, "{}", lines.join("\n"))?;
        }
        Ok(())
    }
}

/// The notice about an interface whose packets find no main program.
fn unloaded(interface: &str) -> String {
    format!(
        "{interface}: all packets pass, as no main program is loaded: limiter attach {interface} --replace"
    )
}

impl Reasons {
    fn table(&self, amounts: Amounts) -> Option<Table> {
        let mut table = Table::new([
            Column::left("REASON"),
            Column::left("VERDICT"),
            Column::right("PACKETS"),
            Column::right("BYTES"),
        ]);
        let mut any = false;
        for reason in Reason::ALL {
            let Tally { packets, bytes } = self.0[reason.index()];
            if packets == 0 {
                continue;
            }
            any = true;
            let tone = if reason.drops() { Tone::Dropped } else { Tone::Plain };
            table.row([
                Cell::new(reason.name(), Tone::Strong),
                verdict(reason).into(),
                Cell::new(grouped(packets), tone),
                Cell::new(amounts.traffic(bytes), tone),
            ]);
        }
        any.then_some(table)
    }
}

impl Tables {
    fn table(&self, amounts: Amounts) -> Table {
        let mut table = Table::new([
            Column::left("TABLE"),
            Column::right("TRACKED"),
            Column::right("CAPACITY"),
            Column::right("MEMORY"),
        ]);
        for (name, Occupancy { tracked, capacity }) in
            [("sources", self.sources), ("buckets", self.buckets)]
        {
            let cells = [grouped(tracked), grouped(capacity)].map(Cell::from);
            let [tracked, capacity] = cells;
            table.row([Cell::new(name, Tone::Strong), tracked, capacity]);
        }
        if self.shared_packets != 0 {
            let packets = format!("{} packets", grouped(self.shared_packets));
            let dropped = format!("{} dropped", grouped(self.shared_dropped));
            table.row([
                Cell::new("no room", Tone::Strong),
                packets.into(),
                Cell::new(dropped, Tone::Dropped),
            ]);
        }
        if self.unrecorded_offences != 0 {
            let packets = format!("{} packets", grouped(self.unrecorded_offences));
            table.row([
                Cell::new("no block", Tone::Strong),
                packets.into(),
                "penalties are full".into(),
            ]);
        }
        let memory = amounts.memory(self.memory_bytes);
        table.row([Cell::new("all", Tone::Strong), "".into(), "".into(), memory.into()]);
        table
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use limiter_common::{abi::counters::LimitTally, packet::reason::REASONS};

    use super::*;
    use crate::{
        datapath::{
            mode::Mode,
            monitoring::Monitoring,
            snapshot::{InterfaceStatistics, LimitStatistics, Snapshot},
        },
        output::{limits::LimitRow, stream::printed},
        policy::Builtin,
    };

    fn status() -> Status {
        let tally = |packets, bytes| Tally { packets, bytes };
        let mut snapshot = Snapshot {
            taken: Instant::now(),
            monitoring: Monitoring::default(),
            interfaces: vec![
                InterfaceStatistics {
                    link: 1,
                    name: "eth0".into(),
                    mode: Mode::Native,
                    present: true,
                    exists: true,
                    unloaded: false,
                    passed: tally(12_345_678, 987_654_321),
                    dropped: tally(1_000, 60_000),
                },
                InterfaceStatistics {
                    link: 2,
                    name: "eth1".into(),
                    mode: Mode::Generic,
                    present: false,
                    exists: true,
                    unloaded: false,
                    passed: tally(0, 0),
                    dropped: tally(0, 0),
                },
            ],
            reasons: [Tally::default(); REASONS],
            limits: Builtin::LISTED
                .map(|limit| LimitStatistics {
                    name: limit.name().into(),
                    tally: LimitTally::default(),
                })
                .into(),
        };
        snapshot.reasons[Reason::Conform.index()] = tally(12_345_678, 987_654_321);
        snapshot.reasons[Reason::Exceed.index()] = tally(1_000, 60_000);
        snapshot.limits[2].tally = LimitTally {
            conform: tally(12_345_678, 987_654_321),
            exceed: tally(1_000, 60_000),
            near: tally(12, 720),
            ..LimitTally::default()
        };
        Status::new(
            &snapshot,
            Tables {
                sources: Occupancy { tracked: 42, capacity: 1_048_576 },
                buckets: Occupancy { tracked: 7, capacity: 262_144 },
                shared_packets: 0,
                unrecorded_offences: 0,
                shared_dropped: 0,
                memory_bytes: 171_966_464,
            },
        )
    }

    #[test]
    fn packets_that_shared_an_entry_are_told_of() {
        let Status { tables, .. } = status();
        let tables = Tables { shared_packets: 1_234, shared_dropped: 567, ..tables };
        let text = printed(false, false, |output| output.table(&tables.table(Amounts::Rounded)));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "TABLE          TRACKED     CAPACITY  MEMORY",
                "sources             42    1,048,576",
                "buckets              7      262,144",
                "no room  1,234 packets  567 dropped",
                "all                                  164MiB",
            ]
        );
    }

    #[test]
    fn refusals_without_a_record_are_told_of() {
        let Status { tables, .. } = status();
        let tables = Tables { unrecorded_offences: 1_234, ..tables };
        let text = printed(false, false, |output| output.table(&tables.table(Amounts::Rounded)));
        assert!(text.contains("\nno block  1,234 packets  penalties are full\n"), "{text}");
    }

    fn text(json: bool, limits: &[LimitRow]) -> String {
        text_of(json, &LimitRows { rows: limits.to_vec(), lists: false })
    }

    fn text_of(json: bool, limits: &LimitRows) -> String {
        printed(json, false, |output| status().print(output, limits))
    }

    #[test]
    fn json_is_the_shape_that_scripts_rely_on() {
        assert_eq!(
            text(true, &[]),
            concat!(
                r#"{"schema":"limiter.status/1","mode":"enforce","interfaces":["#,
                r#"{"name":"eth0","mode":"native","present":true,"exists":true,"unloaded":false,"#,
                r#""packets":{"passed":12345678,"dropped":1000},"#,
                r#""bytes":{"passed":987654321,"dropped":60000}},"#,
                r#"{"name":"eth1","mode":"generic","present":false,"exists":true,"unloaded":false,"#,
                r#""packets":{"passed":0,"dropped":0},"bytes":{"passed":0,"dropped":0}}],"#,
                r#""reasons":{"conform":12345678,"fragment":0,"malformed":0,"unreadable":0,"#,
                r#""non_ip":0,"control":0,"allow":0,"monitor":0,"#,
                r#""exceed":1000,"deny":0,"penalty":0,"too_deep":0,"control_exceed":0,"non_ip_exceed":0,"overlap":0,"contended":0,"unloaded":0},"limits":["#,
                r#"{"name":"connection","conform":0,"exceed":0,"exceed_monitor":0,"near":0,"#,
                r#""conform_bytes":0,"exceed_bytes":0,"exceed_monitor_bytes":0,"near_bytes":0},"#,
                r#"{"name":"syn","conform":0,"exceed":0,"exceed_monitor":0,"near":0,"#,
                r#""conform_bytes":0,"exceed_bytes":0,"exceed_monitor_bytes":0,"near_bytes":0},"#,
                r#"{"name":"source","conform":12345678,"exceed":1000,"exceed_monitor":0,"near":12,"#,
                r#""conform_bytes":987654321,"exceed_bytes":60000,"exceed_monitor_bytes":0,"near_bytes":720}],"#,
                r#""sources":{"tracked":42,"capacity":1048576},"#,
                r#""buckets":{"tracked":7,"capacity":262144},"shared_packets":0,"shared_dropped":0,"unrecorded_offences":0,"#,
                r#""memory_bytes":171966464}"#,
                "\n"
            )
        );
    }

    #[test]
    fn text_is_aligned_and_leaves_out_what_did_not_happen() {
        let mut limits = Builtin::LISTED.map(|limit| LimitRow::off(limit.name()));
        limits[2].rate = Some("1kpps".into());
        limits[2].burst = Some("2k".into());
        assert_eq!(
            text(false, &limits),
            "\
INTERFACE  MODE         PASSED  BYTES  DROPPED   BYTES
eth0       native   12,345,678  988MB    1,000  60.0kB
eth1       generic           0     0B        0      0B  in another network namespace

LIMIT        RATE  BURST  OVERRIDES     CONFORM  EXCEED
connection    off                             0       0
syn           off                             0       0
source      1kpps     2k             12,345,678   1,000

REASON   VERDICT     PACKETS   BYTES
conform  passed   12,345,678   988MB
exceed   dropped       1,000  60.0kB

TABLE    TRACKED   CAPACITY  MEMORY
sources       42  1,048,576
buckets        7    262,144
all                          164MiB
"
        );
    }

    #[test]
    fn an_interface_without_a_main_program_is_told_with_the_remedy() {
        let mut status = status();
        status.interfaces[0].unloaded = true;
        let rows = LimitRows { rows: Vec::new(), lists: false };
        let text = printed(false, false, |output| status.print(output, &rows));
        let line = text.lines().nth(3).unwrap();
        assert!(line.starts_with("eth0: all packets pass, "), "{text}");
        assert!(line.ends_with(": limiter attach eth0 --replace"), "{text}");
        let json = printed(true, false, |output| status.print(output, &rows));
        assert!(json.contains(
            r#""name":"eth0","mode":"native","present":true,"exists":true,"unloaded":true"#
        ));
    }

    #[test]
    fn without_limits_it_says_how_to_set_one() {
        let rows = Builtin::LISTED.map(|limit| LimitRow::off(limit.name())).to_vec();
        let said = |lists| text_of(false, &LimitRows { rows: rows.clone(), lists });
        for (lists, first) in [
            (false, "so every packet passes."),
            (true, "the lists alone decide: limiter deny list"),
        ] {
            let text = said(lists);
            assert!(text.contains(first), "{text}");
            assert!(text.contains("limiter limit set source --rate"), "{text}");
        }
    }

    #[test]
    fn modes_are_shown_when_not_all_limits_are_enforced() {
        let mut limits = Builtin::LISTED.map(|limit| LimitRow::off(limit.name()));
        let source = &mut limits[2];
        (source.rate, source.mode) = (Some("9 pps".into()), crate::policy::model::Mode::Monitor);
        let text = text(false, &limits);
        let lines: Vec<&str> = text.lines().skip(4).take(4).collect();
        assert_eq!(
            lines,
            [
                "LIMIT        RATE  BURST  OVERRIDES     CONFORM  EXCEED  MODE",
                "connection    off                             0       0  off",
                "syn           off                             0       0  off",
                "source      9 pps                    12,345,678   1,000  monitor",
            ]
        );
    }
}
