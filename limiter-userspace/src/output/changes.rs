//! The differences between two policies, as they are printed.

use std::io::Write;

use serde::Serialize;

use super::{
    stream::{Output, OutputError},
    tone::Tone,
};
use crate::policy::document::Change;

/// The line that is printed if there is no difference.
pub const NO_DIFFERENCE: &str = "no difference";

/// A change, as JSON has it.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeEntry {
    /// `+` for an addition, `-` for a removal, `~` for a change of a value.
    pub sign: char,
    /// The place in the document.
    pub path: String,
    /// The new value, or the value that was removed; may be empty.
    pub what: String,
}

impl From<&Change> for ChangeEntry {
    fn from(Change { sign, path, what }: &Change) -> Self {
        Self { sign: *sign, path: path.clone(), what: what.clone() }
    }
}

/// Converts changes for JSON.
pub fn entries(changes: &[Change]) -> Vec<ChangeEntry> {
    changes.iter().map(ChangeEntry::from).collect()
}

/// Prints a line for each change, or that there is none.
///
/// # Errors
/// [`OutputError`], if they cannot be written.
pub fn print<W: Write>(output: &mut Output<W>, changes: &[Change]) -> Result<(), OutputError> {
    if changes.is_empty() {
        return writeln!(output, "{NO_DIFFERENCE}");
    }
    for change in changes {
        let tone = match change.sign {
            '+' => Tone::Passed,
            '-' => Tone::Dropped,
            _ => Tone::Plain,
        };
        output.toned(tone, &change.to_string())?;
        writeln!(output)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::stream::printed;

    fn text(changes: &[Change], colour: bool) -> String {
        printed(false, colour, |output| print(output, changes))
    }

    #[test]
    fn each_change_has_a_line_and_a_colour() {
        let change = |sign, what: &str| Change { sign, path: "deny".into(), what: what.into() };
        let changes = [change('-', "203.0.113.9"), change('+', "192.0.2.1"), change('~', "")];
        assert_eq!(text(&changes, false), "- deny: 203.0.113.9\n+ deny: 192.0.2.1\n~ deny\n");
        assert_eq!(
            text(&changes, true),
            "\x1b[31m- deny: 203.0.113.9\x1b[0m\n\x1b[32m+ deny: 192.0.2.1\x1b[0m\n~ deny\n"
        );
        assert_eq!(text(&[], true), "no difference\n");
    }
}
