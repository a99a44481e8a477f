//! What is wrong with a document, all of it at once.

use std::fmt;

use super::source::{Excerpt, Place, Source, excerpt};
use crate::policy::units::ValueError;

/// Faults that are kept; more are only counted, so that a hostile document has a bounded answer.
const KEPT: usize = 200;

/// Something that is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The document or file, safe to print on a terminal.
    pub file: String,
    /// The line, from 1; `None` when it is about the whole file.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong, with the object it is about.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
    excerpt: Option<Excerpt>,
    /// What is told instead to who may read the file.
    quoted: Option<Box<Quoted>>,
    /// Whether the document is used all the same.
    warning: bool,
    /// The document first, then files in the order in which they were read.
    rank: usize,
}

/// What quotes the file of a set. It may be a link to what the reader of a log may not read, so it is only
/// told where that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Quoted {
    message: String,
    remedy: String,
    excerpt: Excerpt,
}

/// What is wrong with a line of a file: by its kind alone, and with what it has.
pub(super) struct InLine {
    pub(super) message: String,
    pub(super) remedy: String,
    pub(super) quoted_message: String,
    pub(super) quoted_remedy: String,
}

impl InLine {
    /// What says nothing of the line.
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

/// All that is wrong with a document; at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    list: Vec<Fault>,
    total: usize,
}

/// What of a document is as it may be, but hardly meant so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    list: Vec<Fault>,
    total: usize,
}

impl Warnings {
    /// The warnings in the order of the document, at most 200.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }

    /// How many there are, with those that are not in the list.
    pub const fn total(&self) -> usize {
        self.total
    }
}

impl Faults {
    /// The faults in the order of the document, at most 200.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }

    /// How many there are, with those that are not in the list.
    pub const fn total(&self) -> usize {
        self.total
    }

    /// The same with lines of files of sets, for who may read these.
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

/// Faults while they are found.
pub(super) struct Findings<'t> {
    source: &'t Source<'t>,
    /// The object that is being read, such as a limit with its name.
    pub(super) object: Option<String>,
    /// Seconds of Unix time, of when the document is read.
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

    /// Something is wrong at a place of the document.
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

    /// Something at a place of the document is hardly meant so.
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

    /// A value was refused.
    pub(super) fn value(&mut self, at: Place, error: &ValueError) {
        self.add(at, error.to_string(), super::scalar::remedy(error));
    }

    /// Begins the faults of another file; gives its rank.
    pub(super) fn next_file(&mut self) -> usize {
        self.files += 1;
        self.files
    }

    /// Something is wrong with bytes of a line, from 1, of another file.
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

    /// A message with the object that it is about.
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

    /// Whether more would only be counted.
    pub(super) const fn is_full(&self) -> bool {
        self.list.len() >= KEPT
    }

    /// How many there are.
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    /// The warnings, in the order of the document.
    pub(super) fn take_warnings(&mut self) -> Warnings {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.list.sort_by_key(|warning| (warning.line, warning.column));
        warnings
    }

    /// What was found, in the order of the document; `None` for nothing.
    pub(super) fn into_faults(self) -> Option<Faults> {
        let Self { mut list, total, .. } = self;
        list.sort_by_key(|fault| (fault.rank, fault.line, fault.column));
        (total > 0).then_some(Faults { list, total })
    }
}

/// A text, if there is any.
fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
