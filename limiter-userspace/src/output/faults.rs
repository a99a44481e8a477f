//! Errors and faults of documents, in JSON.

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    error::Error,
    policy::document::{Fault, Unsaved},
};

/// A fault or a warning, as JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct FaultEntry {
    /// The document or file.
    pub file: String,
    /// The line, from 1 on; `None` if the fault is in the file as a whole.
    pub line: Option<usize>,
    /// The column in characters, from 1 on; `None` without a line.
    pub column: Option<usize>,
    /// The fault, with the object that has it.
    pub message: String,
    /// The remedy, if one is known.
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

/// Converts faults or warnings for JSON.
pub fn entries(faults: &[Fault]) -> Vec<FaultEntry> {
    faults.iter().map(FaultEntry::from).collect()
}

/// An error in JSON.
pub fn described(error: &Error) -> Value {
    let mut described = json!({ "message": error.to_string(), "hint": error.remedy() });
    let unsaved = || error.failure().map(|Unsaved(faults)| faults);
    if let Some(faults) = error.failure().or_else(unsaved) {
        described["faults"] = json!(entries(faults.list()));
        described["message"] = json!(counted(faults.total()));
    }
    described
}

/// How many errors a document has.
fn counted(errors: usize) -> String {
    format!("the document has {errors} error{}", if errors == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document::parse;

    #[test]
    fn an_error_in_json_says_how_many_a_document_has() {
        for (document, message) in [
            ("version: 2", "the document has 1 error"),
            ("version: 1\nallow: [x, y]", "the document has 2 errors"),
        ] {
            let faults = parse("policy", document.as_bytes(), &mut |_| unreachable!("no files"));
            let described = described(&faults.unwrap_err().into());
            assert_eq!(described["message"], message);
        }
    }
}
