//! Parses the files of sets and tenants.

use ipnet::IpNet;

use super::{
    fault::{Findings, InLine},
    source::Place,
};
use crate::policy::{
    list_text::{ListText, without_mark},
    model::Policy,
};

/// Faulty lines of a file that are reported before the rest is skipped.
const BAD_LINES: usize = 20;
/// The longest line of a file, in bytes, with its comment.
const LINE_BYTES: usize = 1024;

/// The file of a set.
pub(super) struct SetFile {
    name: String,
    rank: usize,
    text: Vec<u8>,
    /// The prefixes, each with its line, from 1.
    prefixes: Vec<(IpNet, usize)>,
}

/// Parses a line, and adds its prefixes to those of the lines before.
fn entry(
    line: &[u8],
    list: &mut ListText,
    prefixes: &mut Vec<IpNet>,
) -> Result<(), (Place, InLine)> {
    if line.len() > LINE_BYTES {
        let message = format!("the line is longer than {LINE_BYTES} bytes");
        return Err((Place::default(), InLine::new(message, "write one prefix on each line")));
    }
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => {
            let start = error.valid_up_to();
            let remedy = "store the file as UTF-8 text with a prefix on each line";
            let quoted = format!("byte {:#04x} is not UTF-8", line.get(start).unwrap_or(&0));
            let wrong =
                InLine { quoted_message: quoted, ..InLine::new("a byte is not UTF-8", remedy) };
            return Err((Place { start, end: start + 1 }, wrong));
        }
    };
    list.line(text, prefixes)
        .map_err(|bad| (Place { start: bad.at.start, end: bad.at.end }, InLine::from(&bad.error)))
}

const fn shifted(at: Place, by: usize) -> Place {
    Place { start: at.start + by, end: at.end + by }
}

impl SetFile {
    /// Parses the prefixes of a file. `name` is its path in the document, and `rank` its number among the files.
    pub(super) fn read(
        name: String,
        rank: usize,
        text: Vec<u8>,
        findings: &mut Findings<'_>,
    ) -> Self {
        let mut file = Self { name, rank, text, prefixes: Vec::new() };
        file.prefixes = file.parse(findings);
        file
    }

    /// The path as in the document.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The prefixes, each with its line, from 1.
    pub(super) fn prefixes(&self) -> &[(IpNet, usize)] {
        &self.prefixes
    }

    /// Parses the prefixes; stops one after the most that a policy may have.
    fn parse(&self, findings: &mut Findings<'_>) -> Vec<(IpNet, usize)> {
        let (mut list, mut of_line, mut prefixes) = (ListText::default(), Vec::new(), Vec::new());
        let text = without_mark(&self.text);
        let (mut start, mut bad) = (self.text.len() - text.len(), 0);
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            if let Err((at, wrong)) = entry(line, &mut list, &mut of_line) {
                self.fault(number, shifted(at, start), wrong, findings);
                bad += 1;
            }
            prefixes.extend(of_line.drain(..).map(|prefix| (prefix, number)));
            if bad == BAD_LINES {
                let message = "the rest of the file was not read, for all that is wrong before it";
                let at = shifted(Place::default(), start);
                self.fault(number, at, InLine::new(message, ""), findings);
                break;
            }
            if prefixes.len() > Policy::MOST_PREFIXES {
                break;
            }
            start += line.len() + 1;
        }
        prefixes
    }

    fn fault(&self, number: usize, at: Place, wrong: InLine, findings: &mut Findings<'_>) {
        let begin = self.text.get(..at.start).unwrap_or_default();
        let begin = begin.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let line = self.text.get(begin..).unwrap_or_default();
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        // If a line is very long, or not text, its beginning is enough.
        let line = line.get(..line.len().min(at.end - begin + 200)).unwrap_or_default();
        let at = Place { start: at.start - begin, end: at.end - begin };
        let text = String::from_utf8_lossy(line);
        let file = (self.name.as_str(), self.rank);
        findings.add_in_file(file, (number, &text), at, wrong);
    }
}
