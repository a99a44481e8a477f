//! The report about the clients.

use std::{collections::BTreeMap, io::Write, net::IpAddr, time::Duration};

use anyhow::{Context as _, Result};
use limiter_userspace::output::{
    number::grouped,
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};

use super::clients::{Client, Manner, Tally};
use crate::stage::Stage;

/// The results of all clients.
pub(super) struct Report {
    lines: Vec<Line>,
}

/// The result of one client.
struct Line {
    name: &'static str,
    address: IpAddr,
    manner: Manner,
    tally: Tally,
    /// When the bridge told that the client is blocked, since the clients began.
    blocked: Option<Duration>,
    /// Packets of it that the kernel dropped.
    dropped: u64,
}

impl Report {
    /// Puts together what the clients saw, what the bridge told, and what the kernel counted.
    pub(super) fn new(
        stage: &Stage,
        clients: &[Client],
        tallies: Vec<Tally>,
        blocked: &BTreeMap<IpAddr, Duration>,
    ) -> Result<Self> {
        let lines = clients.iter().zip(tallies).map(|(client, tally)| {
            let address = IpAddr::from(client.address);
            let told = stage.limiter.run(&format!("get {address} -j")).json()?;
            let dropped = told["dropped"]["packets"].as_u64();
            Ok(Line {
                name: client.name,
                address,
                manner: client.manner,
                tally,
                blocked: blocked.get(&address).copied(),
                dropped: dropped.context("`limiter get -j` tells no dropped packets")?,
            })
        });
        Ok(Self { lines: lines.collect::<Result<_>>()? })
    }

    /// Whether the client that ignored 429 was blocked, and no other one lost anything.
    pub(super) fn is_exact(&self) -> bool {
        self.lines.iter().all(|line| line.fault().is_none())
    }

    /// Prints the results as a table, with a sentence below.
    pub(super) fn print<W: Write>(&self, output: &mut Output<W>) -> Result<(), OutputError> {
        let mut table = Table::new([
            Column::left("CLIENT"),
            Column::left("FROM"),
            Column::right("REQUESTS"),
            Column::right("200"),
            Column::right("429"),
            Column::right("NO ANSWER"),
            Column::right("BLOCKED AFTER"),
            Column::right("DROPPED"),
            Column::left("VERDICT"),
        ]);
        for line in &self.lines {
            table.row(line.cells());
        }
        writeln!(output)?;
        output.table(&table)?;
        let sentence = if self.is_exact() {
            "The client that ignored 429 was blocked in the kernel, and the others lost no packet. DROPPED counts\n\
             packets, as `limiter get ADDRESS -j` tells. The clients counted their requests themselves."
        } else {
            "Not every client got what the policy promises."
        };
        writeln!(output, "\n{sentence}")
    }
}

impl Line {
    /// What differs from what the policy promises to such a client.
    fn fault(&self) -> Option<&'static str> {
        let Tally { refused, refused_again, unanswered, .. } = self.tally;
        let is_blocked = self.blocked.is_some();
        match self.manner {
            Manner::Ignores if !is_blocked => Some("not blocked"),
            Manner::Ignores if self.dropped == 0 || unanswered == 0 => Some("nothing dropped"),
            Manner::Ignores => None,
            _ if is_blocked => Some("blocked"),
            _ if unanswered > 0 || self.dropped > 0 => Some("lost packets"),
            Manner::BacksOff if refused_again > 0 => Some("refused after it waited"),
            Manner::StaysBelow if refused > 0 => Some("refused below its limit"),
            Manner::BacksOff | Manner::StaysBelow => None,
        }
    }

    fn verdict(&self) -> &'static str {
        self.fault().unwrap_or(match self.manner {
            Manner::Ignores => "blocked in the kernel",
            Manner::BacksOff => "held to its limit",
            Manner::StaysBelow => "untouched",
        })
    }

    fn cells(&self) -> [Cell; 9] {
        let Tally { requests, passed, refused, unanswered, .. } = self.tally;
        let blocked =
            self.blocked.map_or("-".to_owned(), |after| format!("{:.1} s", after.as_secs_f64()));
        let tone = if self.fault().is_none() { Tone::Passed } else { Tone::Dropped };
        [
            Cell::new(self.name, Tone::Strong),
            self.address.to_string().into(),
            grouped(requests).into(),
            Cell::new(grouped(passed), Tone::Passed),
            grouped(refused).into(),
            Cell::new(grouped(unanswered), Tone::of_drops(unanswered)),
            blocked.into(),
            Cell::new(grouped(self.dropped), Tone::of_drops(self.dropped)),
            Cell::new(self.verdict(), tone),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(manner: Manner, counts: [u64; 3], blocked: Option<u64>, dropped: u64) -> Line {
        let [refused, refused_again, unanswered] = counts;
        let tally = Tally { requests: 1_000, passed: 9, refused, refused_again, unanswered };
        let blocked = blocked.map(Duration::from_secs);
        let address = IpAddr::from([192, 0, 2, 1]);
        Line { name: "client", address, manner, tally, blocked, dropped }
    }

    #[test]
    fn one_is_to_be_blocked_and_the_others_are_to_lose_nothing() {
        use Manner::{BacksOff, Ignores, StaysBelow};
        let good = || {
            vec![
                line(Ignores, [99, 0, 20], Some(2), 90),
                line(BacksOff, [9, 0, 0], None, 0),
                line(StaysBelow, [0; 3], None, 0),
            ]
        };
        assert!(Report { lines: good() }.is_exact());
        for bad in [
            line(Ignores, [99, 0, 20], None, 90),
            line(Ignores, [99, 0, 20], Some(2), 0),
            line(Ignores, [99, 0, 0], Some(2), 90),
            line(BacksOff, [9, 1, 0], None, 0),
            line(BacksOff, [9, 0, 1], None, 0),
            line(BacksOff, [9, 0, 0], Some(2), 0),
            line(StaysBelow, [1, 0, 0], None, 0),
            line(StaysBelow, [0; 3], None, 1),
        ] {
            let verdict = bad.verdict();
            let mut lines = good();
            lines.push(bad);
            let report = Report { lines };
            assert!(!report.is_exact(), "{verdict}");
            let mut written = Vec::new();
            let mut output = Output::new(&mut written, false, false);
            report.print(&mut output).unwrap();
            output.flush().unwrap();
            drop(output);
            let text = String::from_utf8(written).unwrap();
            assert!(text.contains(verdict) && text.contains("Not every client"), "{text}");
        }
    }
}
