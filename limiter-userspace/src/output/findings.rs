//! The findings of `limiter doctor`, as they are printed.

use std::io::Write;

use serde::Serialize;

use super::{
    stream::{Output, OutputError},
    table::{Cell, Column, Table},
    tone::Tone,
};
use crate::doctor::{Finding, Verdict};

const SCHEMA: &str = "limiter.doctor/1";

/// What `doctor -j` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// The name and version of the schema.
    schema: &'static str,
    /// The worst verdict.
    verdict: Verdict,
    findings: &'a [Finding],
}

impl Verdict {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    const fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Plain,
            Self::Note | Self::Warn => Tone::Strong,
            Self::Fail => Tone::Dropped,
        }
    }
}

/// Prints findings: as JSON if that was asked for, otherwise as a table with the remedies below it.
///
/// # Errors
/// [`OutputError`], if they cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, findings: &[Finding]) -> Result<(), OutputError> {
    if output.is_json() {
        let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
        return output.json(&Report { schema: SCHEMA, verdict, findings });
    }
    let mut table = Table::new([
        Column::left("VERDICT"),
        Column::left("ABOUT"),
        Column::left("CHECK"),
        Column::left("FOUND"),
    ]);
    for finding in findings {
        table.row([
            Cell::new(finding.verdict.name(), finding.verdict.tone()),
            about(finding).into(),
            finding.check.into(),
            finding.found.as_str().into(),
        ]);
    }
    output.table(&table)?;
    let mut remedies = findings.iter().filter_map(|it| Some((it, it.remedy.as_ref()?))).peekable();
    if remedies.peek().is_some() {
        writeln!(output, "\nWhat to do:")?;
    }
    for (finding, remedy) in remedies {
        writeln!(output, "  {} {}: {remedy}", about(finding), finding.check)?;
    }
    Ok(())
}

fn about(finding: &Finding) -> &str {
    finding.interface.as_deref().unwrap_or("host")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: bool) -> String {
        let of =
            |interface: Option<&str>, check, verdict, found: &str, remedy: Option<&str>| Finding {
                interface: interface.map(str::to_owned),
                check,
                verdict,
                found: found.to_owned(),
                remedy: remedy.map(str::to_owned),
            };
        let findings = [
            of(None, "kernel", Verdict::Ok, "6.12.1", None),
            of(
                Some("eth0"),
                "merging",
                Verdict::Warn,
                "rx-lro: …",
                Some("ethtool -K eth0 lro off"),
            ),
        ];
        let mut written = Vec::new();
        let mut output = Output::new(&mut written, json, false);
        print(&mut output, &findings).unwrap();
        output.flush().unwrap();
        drop(output);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn findings_line_up_and_remedies_follow() {
        assert_eq!(
            text(false),
            "VERDICT  ABOUT  CHECK    FOUND\n\
             ok       host   kernel   6.12.1\n\
             warn     eth0   merging  rx-lro: …\n\
             \n\
             What to do:\n  \
             eth0 merging: ethtool -K eth0 lro off\n"
        );
    }

    #[test]
    fn json_has_the_worst_verdict() {
        assert_eq!(
            text(true),
            "{\"schema\":\"limiter.doctor/1\",\"verdict\":\"warn\",\"findings\":[{\"interface\":null,\"check\":\"kernel\",\"verdict\":\"ok\",\"found\":\"6.12.1\",\
             \"remedy\":null},{\"interface\":\"eth0\",\"check\":\"merging\",\"verdict\":\"warn\",\
             \"found\":\"rx-lro: …\",\"remedy\":\"ethtool -K eth0 lro off\"}]}\n"
        );
    }
}
