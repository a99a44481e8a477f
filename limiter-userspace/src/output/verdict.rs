//! Verdicts on packets, as they are printed.

use std::{collections::BTreeMap, io::Write};

use limiter_common::packet::reason::Reason;
use serde_json::{Value, json};

use super::{
    number::grouped,
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::query::Verdict;

/// The JSON schema of one verdict.
const SCHEMA: &str = "limiter.verdict/1";

/// The JSON schema of the counts of many verdicts.
const SUMMARY: &str = "limiter.verdicts/1";

/// `pass` or `drop`.
pub(super) const fn word(verdict: &Verdict) -> &'static str {
    if verdict.reason.drops() { "drop" } else { "pass" }
}

/// Writes a verdict on one line: pass or drop, the reason, and the limits.
pub(crate) fn line(verdict: &Verdict) -> String {
    let mut line = format!("{} ({}", word(verdict), verdict.reason.name());
    if verdict.enforced != verdict.reason {
        line.push_str(&format!("; if enforced, it would be {}", verdict.enforced.name()));
    }
    if let Some(limit) = &verdict.limit {
        line.push_str(&format!("; limit {limit}"));
    }
    line.push(')');
    for (what, limits) in
        [("charged to", &verdict.charged), ("over, but not enforced:", &verdict.exceeded)]
    {
        if !limits.is_empty() {
            line.push_str(&format!("; {what} {}", limits.join(", ")));
        }
    }
    line
}

/// The tone of a verdict.
pub(crate) const fn tone(verdict: &Verdict) -> Tone {
    if verdict.reason.drops() { Tone::Dropped } else { Tone::Passed }
}

/// A verdict in JSON.
pub(super) fn json(verdict: &Verdict) -> Value {
    json!({
        "verdict": word(verdict),
        "reason": verdict.reason.name(),
        "enforced_reason": verdict.enforced.name(),
        "limit": verdict.limit,
        "charged": verdict.charged,
        "exceeded": verdict.exceeded,
    })
}

/// Prints the verdict on a packet. For a packet of a file, `number` is its place in the file, from
/// 1 on.
///
/// # Errors
/// [`OutputError`], if it cannot be written.
pub fn print<W: Write>(
    output: &mut Output<W>,
    number: Option<u64>,
    verdict: &Verdict,
) -> Result<(), OutputError> {
    if output.is_json() {
        let mut value = json(verdict);
        if let (Some(number), Some(members)) = (number, value.as_object_mut()) {
            members.insert("packet".to_owned(), number.into());
        }
        return output.shape(SCHEMA, &value);
    }
    if let Some(number) = number {
        write!(output, "{number}: ")?;
    }
    output.toned(tone(verdict), &line(verdict))?;
    writeln!(output)
}

/// The counts of the verdicts on many packets.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    packets: u64,
    bytes: u64,
    /// Packets and bytes by reason, and by the limit that refused them.
    counts: BTreeMap<(usize, Option<String>), (u64, u64)>,
    /// Packets over a limit that only monitors, by its name.
    exceeded: BTreeMap<String, u64>,
}

impl Summary {
    /// Counts the verdict on a packet of this many bytes.
    pub fn add(&mut self, verdict: &Verdict, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
        let key = (verdict.reason.index(), verdict.limit.clone());
        let count = self.counts.entry(key).or_default();
        (count.0, count.1) = (count.0 + 1, count.1 + bytes);
        for limit in &verdict.exceeded {
            *self.exceeded.entry(limit.clone()).or_default() += 1;
        }
    }

    /// The number of packets.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    fn rows(&self) -> impl Iterator<Item = (Reason, Option<&String>, u64, u64)> {
        self.counts.iter().map(|((reason, limit), (packets, bytes))| {
            (Reason::ALL[*reason], limit.as_ref(), *packets, *bytes)
        })
    }

    /// Prints the counts: as JSON if that was asked for, otherwise as text.
    ///
    /// # Errors
    /// [`OutputError`], if they cannot be written.
    pub fn print<W: Write>(&self, output: &mut Output<W>) -> Result<(), OutputError> {
        if output.is_json() {
            return output.shape(SUMMARY, &self.json());
        }
        let mut table = Table::new([
            Column::left("VERDICT"),
            Column::left("REASON"),
            Column::left("LIMIT"),
            Column::right("PACKETS"),
            Column::right("BYTES"),
        ]);
        for (reason, limit, packets, bytes) in self.rows() {
            let (verdict, tone) = match reason.drops() {
                true => ("drop", Tone::Dropped),
                false => ("pass", Tone::Passed),
            };
            table.row([
                Cell::new(verdict, tone),
                reason.name().into(),
                limit.map_or("", String::as_str).into(),
                grouped(packets).into(),
                grouped(bytes).into(),
            ]);
        }
        output.table(&table)?;
        for (limit, packets) in &self.exceeded {
            writeln!(output, "{} over {limit}, which is not enforced", grouped(*packets))?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        let counts: Vec<Value> = self
            .rows()
            .map(|(reason, limit, packets, bytes)| {
                let verdict = if reason.drops() { "drop" } else { "pass" };
                json!({
                    "verdict": verdict,
                    "reason": reason.name(),
                    "limit": limit,
                    "packets": packets,
                    "bytes": bytes,
                })
            })
            .collect();
        json!({
            "packets": self.packets,
            "bytes": self.bytes,
            "verdicts": counts,
            "exceeded": self.exceeded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::stream::printed;

    fn verdict(reason: Reason, limit: Option<&str>) -> Verdict {
        Verdict {
            reason,
            enforced: if reason == Reason::Monitor { Reason::Deny } else { reason },
            limit: limit.map(str::to_owned),
            exceeded: limit.map(|_| "tried".to_owned()).into_iter().collect(),
            charged: Vec::new(),
        }
    }

    #[test]
    fn a_verdict_is_a_line() {
        for (verdict, number, line) in [
            (verdict(Reason::Conform, None), None, "pass (conform)\n"),
            (
                verdict(Reason::Exceed, Some("web")),
                Some(3),
                "3: drop (exceed; limit web); over, but not enforced: tried\n",
            ),
            (
                verdict(Reason::Monitor, None),
                None,
                "pass (monitor; if enforced, it would be deny)\n",
            ),
        ] {
            assert_eq!(printed(false, false, |output| print(output, number, &verdict)), line);
        }
    }

    #[test]
    fn a_summary_counts_by_verdict_reason_and_limit() {
        let mut summary = Summary::default();
        for (reason, limit, bytes) in [
            (Reason::Exceed, Some("web"), 100),
            (Reason::Conform, None, 60),
            (Reason::Exceed, Some("web"), 200),
            (Reason::Exceed, Some("dns"), 1_000),
        ] {
            summary.add(&verdict(reason, limit), bytes);
        }
        assert_eq!(
            printed(false, false, |output| summary.print(output)),
            "\
VERDICT  REASON   LIMIT  PACKETS  BYTES
pass     conform               1     60
drop     exceed   dns          1  1,000
drop     exceed   web          2    300
3 over tried, which is not enforced
"
        );
        let json: Value =
            serde_json::from_str(&printed(true, false, |output| summary.print(output))).unwrap();
        assert_eq!((&json["packets"], &json["bytes"]), (&4.into(), &1_360.into()));
        assert_eq!(json["verdicts"][2]["limit"], "web");
    }
}
