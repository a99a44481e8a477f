//! Faults and warnings of a document, all of which are reported at once.

use std::fmt;

use super::source::{Excerpt, Place, Source, excerpt};
use crate::{
    error::{Failure, INVALID},
    policy::units::ValueError,
};

/// The most faults and the most warnings that are kept; others are only counted, so that a hostile document
/// has a bounded answer.
const KEPT: usize = 200;

/// A fault or a warning, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name of the document or of the file of a set, safe to print on a terminal.
    pub file: String,
    /// The line, from 1; `None` for the whole file.
    pub line: Option<usize>,
    /// The column in characters, from 1; 0 for the whole file.
    pub column: usize,
    /// What is wrong, with the object that it is in.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
    excerpt: Option<Excerpt>,
    /// The message with text of the file, for users who may read it.
    quoted: Option<Box<Quoted>>,
    /// Whether the fault does not keep the document from being used.
    warning: bool,
    /// 0 for the document, then 1 and up for files in the order in which they were read.
    rank: usize,
}

/// A message that quotes the file of a set. The path may lead to a file that the reader of a log must not
/// see, so the quote is only printed on request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quoted {
    message: String,
    remedy: String,
    excerpt: Excerpt,
}

/// What is wrong with a line of a file: in general terms, and with a quote of the line.
pub(super) struct InLine {
    pub(super) message: String,
    pub(super) remedy: String,
    pub(super) quoted_message: String,
    pub(super) quoted_remedy: String,
}

impl InLine {
    /// A message that quotes nothing of the line.
    pub(super) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        Self { quoted_message: message.clone(), quoted_remedy: remedy.clone(), message, remedy }
    }
}

impl From<&ValueError> for InLine {
    fn from(error: &ValueError) -> Self {
        Self {
            message: error.unquoted(),
            remedy: error.examples().to_owned(),
            quoted_message: error.to_string(),
            quoted_remedy: error.remedy(),
        }
    }
}

/// All faults of a document; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    list: Vec<Fault>,
    total: usize,
}

/// The warnings of a document: what is valid and probably a mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    list: Vec<Fault>,
    total: usize,
}

impl Warnings {
    /// The warnings in the order of their lines, at most 200.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }

    /// The number of warnings, with those beyond the list.
    pub const fn total(&self) -> usize {
        self.total
    }
}

impl Faults {
    /// The faults in the order of their lines, those of the document first; at most 200.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }

    /// The number of faults, with those beyond the list.
    pub const fn total(&self) -> usize {
        self.total
    }

    /// The same faults with quotes of set files, for a user who may read those.
    #[must_use]
    pub fn quoting(mut self) -> Self {
        for fault in &mut self.list {
            if let Some(quoted) = fault.quoted.take() {
                let Quoted { message, remedy, excerpt } = *quoted;
                fault.message = message;
                fault.remedy = some(remedy);
                fault.excerpt = Some(excerpt);
            }
        }
        self
    }

    /// A fault of a whole file.
    pub(super) fn of_file(file: &str, message: String, remedy: Option<String>) -> Self {
        let (file, line, column) = (crate::policy::units::printable(file, 256), None, 0);
        Self {
            list: vec![Fault {
                file,
                line,
                column,
                message,
                remedy,
                excerpt: None,
                quoted: None,
                warning: false,
                rank: 0,
            }],
            total: 1,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}:{}: ", self.file, self.column)?,
            None => write!(f, "{}: ", self.file)?,
        }
        let kind = if self.warning { "warning" } else { "error" };
        writeln!(f, "{kind}: {}", self.message)?;
        if let (Some(line), Some(Excerpt { text, indent, width })) = (self.line, &self.excerpt) {
            let number = format!("{line:>4}");
            let gutter = number.len();
            writeln!(f, "{number} | {text}")?;
            writeln!(f, "{:gutter$} | {:indent$}{:^>width$}", "", "", "")?;
        }
        match &self.remedy {
            Some(remedy) => writeln!(f, "  help: {remedy}"),
            None => Ok(()),
        }
    }
}

impl Failure for Faults {
    fn exit_code(&self) -> u8 {
        INVALID
    }
}

/// The policy in force gives a document that cannot be read back, for these faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was saved, as the document of the policy in force cannot be read back:\n{0}")]
pub struct Unsaved(pub Faults);

impl Failure for Unsaved {
    fn exit_code(&self) -> u8 {
        INVALID
    }

    fn remedy(&self) -> Option<String> {
        Some("change the policy in force so that it can be read back, and save it then".to_owned())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.list {
            write!(f, "{fault}")?;
        }
        if self.total > self.list.len() {
            writeln!(f, "{} more are not shown", self.total - self.list.len())?;
        }
        write!(f, "{} error{}", self.total, if self.total == 1 { "" } else { "s" })
    }
}

impl fmt::Display for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.list {
            write!(f, "{warning}")?;
        }
        if self.total > self.list.len() {
            writeln!(f, "{} more warnings are not shown", self.total - self.list.len())?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The faults and warnings that were found so far.
pub(super) struct Findings<'t> {
    source: &'t Source<'t>,
    /// The object that is being read, such as "limit `web`"; it begins the message of a fault.
    pub(super) object: Option<String>,
    /// The time at which the document is read, in seconds of Unix time.
    pub(super) now: u64,
    list: Vec<Fault>,
    total: usize,
    warnings: Warnings,
    files: usize,
}

impl<'t> Findings<'t> {
    pub(super) const fn new(source: &'t Source<'t>) -> Self {
        Self::at(0, source)
    }

    pub(super) const fn at(now: u64, source: &'t Source<'t>) -> Self {
        let warnings = Warnings { list: Vec::new(), total: 0 };
        Self { source, object: None, now, list: Vec::new(), total: 0, warnings, files: 0 }
    }

    /// Adds a fault at a place of the document.
    pub(super) fn add(&mut self, at: Place, message: impl Into<String>, remedy: impl Into<String>) {
        self.total += 1;
        if self.is_full() {
            return;
        }
        let (line, column) = self.source.position(at);
        let fault = Fault {
            file: crate::policy::units::printable(self.source.name, 256),
            line: Some(line),
            column,
            message: self.told(message.into()),
            remedy: some(remedy.into()),
            excerpt: Some(self.source.excerpt(at)),
            quoted: None,
            warning: false,
            rank: 0,
        };
        self.list.push(fault);
    }

    /// Adds a warning at a place of the document.
    pub(super) fn warn(
        &mut self,
        at: Place,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.warnings.total += 1;
        if self.warnings.list.len() >= KEPT {
            return;
        }
        let (line, column) = self.source.position(at);
        self.warnings.list.push(Fault {
            file: crate::policy::units::printable(self.source.name, 256),
            line: Some(line),
            column,
            message: self.told(message.into()),
            remedy: Some(remedy.into()),
            excerpt: Some(self.source.excerpt(at)),
            quoted: None,
            warning: true,
            rank: 0,
        });
    }

    /// Counts another file; returns its [`Fault::rank`].
    pub(super) fn next_file(&mut self) -> usize {
        self.files += 1;
        self.files
    }

    /// Adds a fault in the file of a set: its name and rank, the number (from 1) and text of the line, and
    /// the bytes of the line that are wrong.
    pub(super) fn add_in_file(
        &mut self,
        (file, rank): (&str, usize),
        (line, text): (usize, &str),
        at: Place,
        wrong: InLine,
    ) {
        self.total += 1;
        if self.is_full() {
            return;
        }
        let InLine { message, remedy, quoted_message, quoted_remedy } = wrong;
        let before = text.get(..at.start).unwrap_or_default();
        let fault = Fault {
            file: crate::policy::units::printable(file, 256),
            line: Some(line),
            column: before.chars().count() + 1,
            message: self.told(message),
            remedy: some(remedy),
            excerpt: None,
            quoted: Some(Box::new(Quoted {
                message: self.told(quoted_message),
                remedy: quoted_remedy,
                excerpt: excerpt(text, at.start, at.end),
            })),
            warning: false,
            rank,
        };
        self.list.push(fault);
    }

    /// The message, after the object that is being read.
    fn told(&self, message: String) -> String {
        match &self.object {
            Some(object) => format!("{object}: {message}"),
            None => message,
        }
    }

    /// The line of a place, from 1.
    pub(super) fn line(&self, at: Place) -> usize {
        self.source.line(at.start)
    }

    /// Whether further faults are only counted.
    pub(super) const fn is_full(&self) -> bool {
        self.list.len() >= KEPT
    }

    /// The number of faults.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    /// Takes the warnings, in the order of the document.
    pub(super) fn take_warnings(&mut self) -> Warnings {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.list.sort_by_key(|warning| (warning.line, warning.column));
        warnings
    }

    /// The faults, in the order of the document and its files; `None` if there are none.
    pub(super) fn into_faults(self) -> Option<Faults> {
        let Self { mut list, total, .. } = self;
        list.sort_by_key(|fault| (fault.rank, fault.line, fault.column));
        (total > 0).then_some(Faults { list, total })
    }
}

/// `None` for an empty text.
fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
