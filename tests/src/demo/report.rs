//! The report at the end of the demonstration.

use std::io::Write;

use anyhow::{Context as _, Result};
use limiter_tests::traffic::{Sender, Sent};
use limiter_userspace::output::{
    number::grouped,
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use serde_json::Value;

use crate::{
    senders::Actor,
    stage::{Run, Stage},
};

/// The results of all senders.
pub(crate) struct Report {
    lines: Vec<Line>,
    /// Frames that the wire lost before they reached the limiter.
    lost: u64,
}

/// The result of one sender.
struct Line {
    name: &'static str,
    place: String,
    limit: &'static str,
    offered: u64,
    passed: u64,
    expected: u64,
    dropped: u64,
    /// Frames that limiter counted as passed and as dropped.
    counted: (u64, u64),
    /// Frames that the wire lost, of all senders: at most so many of this one.
    lost: u64,
}

impl Report {
    /// Compares the frames that arrived with the limits in force and with the counters of the limiter.
    pub(crate) fn new(stage: &Stage, senders: &[(Actor, Sender)], run: &Run) -> Result<Self> {
        let limits = stage.limiter.run("limit list -j").json()?["limits"].take();
        let top = stage.limiter.run("top -j -n 1000").json()?["sources"].take();
        let lines = senders.iter().zip(&run.sent).map(|((actor, _), sent)| {
            let offered = sent.packets;
            let expected = match actor.limit {
                Some(limit) => expected(&limits, limit.name(), sent)?,
                None => offered,
            };
            let passed = run.arrivals.sum(|flow| actor.sent(flow)).packets;
            Ok(Line {
                name: actor.name,
                place: actor.place.clone(),
                limit: actor.limit.map_or("source", |limit| limit.name()),
                offered,
                passed,
                expected,
                dropped: offered.saturating_sub(passed),
                counted: counted(&top, &actor.source)?,
                lost: run.lost,
            })
        });
        Ok(Self { lines: lines.collect::<Result<_>>()?, lost: run.lost })
    }

    /// Whether every sender got what its limit admits, but for what the wire lost.
    pub(crate) fn is_exact(&self) -> bool {
        self.lines.iter().all(Line::is_exact)
    }

    /// Prints the results as a table, with a sentence below.
    pub(crate) fn print<W: Write>(&self, output: &mut Output<W>) -> Result<(), OutputError> {
        let mut table = Table::new([
            Column::left("SENDER"),
            Column::left("FROM"),
            Column::left("LIMIT"),
            Column::right("OFFERED"),
            Column::right("PASSED"),
            Column::right("EXPECTED"),
            Column::right("DROPPED"),
            Column::left("VERDICT"),
        ]);
        for line in &self.lines {
            table.row(line.cells());
        }
        writeln!(output)?;
        output.table(&table)?;
        writeln!(output)?;
        if self.is_exact() {
            writeln!(
                output,
                "Each sender got what its limit admits, to within 1 %. PASSED was counted on the \
                 wire behind limiter,\nwhose own counters say the same to the packet."
            )?;
        } else {
            writeln!(output, "Not every sender got what its limit admits.")?;
        }
        if self.lost > 0 {
            let lost = grouped(self.lost);
            let frames = if self.lost == 1 { "frame" } else { "frames" };
            writeln!(
                output,
                "Note: the wire lost {lost} {frames} before limiter, as this machine was busy. They are in OFFERED."
            )?;
        }
        Ok(())
    }
}

impl Line {
    /// The accepted difference between `passed` and `expected`, in packets.
    fn tolerance(&self) -> u64 {
        (self.expected / 100).max(2)
    }

    /// Whether it got what its limit admits. Frames that were lost may be missing.
    fn is_expected(&self) -> bool {
        let least = self.expected.saturating_sub(self.tolerance() + self.lost);
        (least..=self.expected + self.tolerance()).contains(&self.passed)
    }

    /// Whether limiter counted the same. It has not seen frames that were lost.
    fn is_counted(&self) -> bool {
        let (passed, dropped) = self.counted;
        let least = self.dropped.saturating_sub(self.lost);
        passed == self.passed && (least..=self.dropped).contains(&dropped)
    }

    fn is_exact(&self) -> bool {
        self.is_expected() && self.is_counted()
    }

    fn verdict(&self) -> String {
        if !self.is_expected() {
            let word = if self.passed > self.expected { "over" } else { "under" };
            format!("{} {word}", grouped(self.passed.abs_diff(self.expected)))
        } else if !self.is_counted() {
            let (passed, dropped) = self.counted;
            format!("limiter counted {} passed, {} dropped", grouped(passed), grouped(dropped))
        } else if self.dropped == 0 {
            "untouched".to_owned()
        } else {
            "held".to_owned()
        }
    }

    fn cells(&self) -> [Cell; 8] {
        let tone = if self.is_exact() { Tone::Passed } else { Tone::Dropped };
        [
            Cell::new(self.name, Tone::Strong),
            self.place.as_str().into(),
            self.limit.into(),
            grouped(self.offered).into(),
            Cell::new(grouped(self.passed), Tone::Passed),
            grouped(self.expected).into(),
            Cell::new(grouped(self.dropped), Tone::of_drops(self.dropped)),
            Cell::new(self.verdict(), tone),
        ]
    }
}

/// The number of packets that the limit in force admits of those that were sent.
fn expected(limits: &Value, name: &str, sent: &Sent) -> Result<u64> {
    let limit = limits.as_array().into_iter().flatten().find(|limit| limit["name"] == name);
    let rate = limit.and_then(|limit| limit["rate_per_second"].as_f64());
    let burst = limit.and_then(|limit| limit["burst"].as_u64());
    let (rate, burst) = rate.zip(burst).with_context(|| format!("limit {name} is not listed"))?;
    Ok(sent.admitted(rate, burst))
}

/// The counters of the limiter for a source: passed and dropped.
fn counted(top: &Value, source: &str) -> Result<(u64, u64)> {
    let entry = top.as_array().into_iter().flatten().find(|entry| entry["source"] == source);
    let passed = entry.and_then(|entry| entry["passed"].as_u64());
    let dropped = entry.and_then(|entry| entry["dropped"].as_u64());
    passed.zip(dropped).with_context(|| format!("limiter does not list the source {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(passed: u64, counted: (u64, u64), lost: u64) -> Line {
        Line {
            name: "flood",
            place: "192.0.2.1".into(),
            limit: "source",
            offered: 10_000,
            passed,
            expected: 1_000,
            dropped: 10_000 - passed,
            counted,
            lost,
        }
    }

    #[test]
    fn a_frame_that_the_wire_lost_is_no_failure() {
        assert!(line(1_000, (1_000, 9_000), 0).is_exact());
        // One was lost, and would have been dropped, or would have passed.
        assert!(line(1_000, (1_000, 8_999), 1).is_exact());
        assert!(line(989, (989, 9_010), 1).is_exact());
        for off in [
            line(1_000, (1_000, 8_999), 0),
            line(1_000, (1_000, 8_998), 1),
            line(1_000, (1_000, 9_001), 1),
            line(1_011, (1_011, 8_989), 5),
            line(988, (988, 9_011), 1),
        ] {
            assert!(!off.is_exact(), "{}", off.verdict());
        }
        let report = |lost| Report { lines: vec![line(1_000, (1_000, 9_000 - lost), lost)], lost };
        let printed = |report: &Report| {
            let mut written = Vec::new();
            let mut output = Output::new(&mut written, false, false);
            report.print(&mut output).unwrap();
            output.flush().unwrap();
            drop(output);
            String::from_utf8(written).unwrap()
        };
        assert!(!printed(&report(0)).contains("Note: "));
        let text = printed(&report(1));
        assert!(report(1).is_exact() && text.contains("Note: the wire lost 1 frame "), "{text}");
        assert!(text.contains("Each sender got what its limit admits"), "{text}");
    }
}
