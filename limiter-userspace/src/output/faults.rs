//! What is wrong with a document, for scripts.

use serde::Serialize;

use crate::policy::spec::Fault;

/// A fault or a warning as JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct FaultEntry {
    /// The document or file.
    pub file: String,
    /// The line, from 1; nothing when it is about the whole file.
    pub line: Option<usize>,
    /// The column in characters, from 1; nothing without a line.
    pub column: Option<usize>,
    /// What is wrong, with the object it is about.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl From<&Fault> for FaultEntry {
    fn from(fault: &Fault) -> Self {
        Self {
            file: fault.file.clone(),
            line: fault.line,
            column: fault.line.map(|_| fault.column),
            message: fault.message.clone(),
            hint: fault.remedy.clone(),
        }
    }
}

/// Faults or warnings as JSON has them.
pub fn entries(faults: &[Fault]) -> Vec<FaultEntry> {
    faults.iter().map(FaultEntry::from).collect()
}
