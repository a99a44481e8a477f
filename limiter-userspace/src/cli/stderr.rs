//! Messages on standard error, apart from the output of a command: text, or a line of JSON each if
//! JSON was asked for. An error of writing them is ignored.

use std::{
    fmt::Display,
    io::{self, Write as _},
};

use serde_json::json;

use crate::{
    datapath::holder::Holder,
    error::Error,
    output::{
        faults::{described, entries},
        stream::Output,
    },
    policy::document::{Faults, Warnings},
};

/// Prints an error and its remedy.
pub(super) fn complain(error: &Error, output: &Output) {
    if output.is_json() {
        tell(json!({ "error": described(error) }));
        return;
    }
    match error.failure::<Faults>() {
        // Each fault begins with its place in the document, as editors and other tools expect it.
        Some(faults) => tell(faults),
        None => tell(format_args!("error: {error}")),
    }
    if let Some(remedy) = error.remedy() {
        tell(format_args!("hint: {remedy}"));
    }
}

/// Prints a warning.
pub(super) fn warn(message: &str, output: &Output) {
    if output.is_json() {
        tell(json!({ "warning": { "message": message } }));
    } else {
        tell(format_args!("warning: {message}"));
    }
}

/// Prints an error as a warning; `why` says why the command goes on.
pub(super) fn warn_of_error(error: &Error, why: &str, output: &Output) {
    if output.is_json() {
        tell(json!({ "warning": { "message": why, "cause": described(error) } }));
    } else {
        tell(format_args!("{error}\nwarning: {why}"));
    }
}

/// Warns that an exchange which another process began could not be finished, and says what finishes it.
pub(super) fn warn_of_unfinished(error: &Error, output: &Output) {
    warn_of_error(error, &unfinished(error), output);
}

/// The warning of that, for those who have the error already.
pub(super) fn unfinished(error: &Error) -> String {
    let remedy = error.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
    format!("the command was done all the same{remedy}")
}

/// Prints the warnings of a document.
pub(super) fn warn_of_document(warnings: &Warnings, output: &Output) {
    if !output.is_json() {
        let _: io::Result<()> = write!(io::stderr().lock(), "{warnings}");
        return;
    }
    for warning in entries(warnings.list()) {
        tell(json!({ "warning": warning }));
    }
    if let Some(more) = more_than(warnings.list().len(), warnings.total()) {
        warn(&format!("{more} more warnings are not shown"), output);
    }
}

/// Warns that the policy was put in force, but nothing is dropped, as the monitor switch is on.
pub(super) fn warn_of_switch(output: &Output) {
    warn(SWITCHED, output);
}

/// The warning that nothing is dropped.
pub(super) const SWITCHED: &str = "nothing is dropped until `limiter monitor off`";

/// The most warnings of a kind that are printed.
const TOLD: usize = 5;

/// Warns of interfaces that limits name and that are not attached. Of many, only the first ones are
/// named.
pub(super) fn warn_of_absent(interfaces: &[String], output: &Output) {
    for name in interfaces.iter().take(TOLD) {
        warn(&format!("a limit is about {name}, but no interface {name} is attached"), output);
    }
    if let Some(more) = more_than(TOLD, interfaces.len()) {
        warn(&format!("{more} more interfaces that limits are about are not attached"), output);
    }
}

/// Warns of entries that are shadowed by others. Of many, only the first ones are printed.
pub(super) fn warn_of_shadowed(shadowed: &[String], output: &Output) {
    for shadowed in shadowed.iter().take(TOLD) {
        warn(shadowed, output);
    }
    if let Some(more) = more_than(TOLD, shadowed.len()) {
        warn(&format!("{more} more entries are shadowed"), output);
    }
}

/// Returns the function that warns of a process whose lock a command waits for.
pub(super) const fn teller_of_waiting(json: bool) -> fn(&Holder) {
    if json {
        |holder| {
            let (message, process) = (waiting_for(holder), holder.process);
            tell(json!({ "warning": { "message": message, "process": process } }));
        }
    } else {
        |holder| tell(format_args!("warning: {}", waiting_for(holder)))
    }
}

fn waiting_for(holder: &Holder) -> String {
    format!("waiting for {holder}, which has the lock of this instance")
}

/// The number of warnings that were not printed; `None` for 0.
fn more_than(told: usize, total: usize) -> Option<usize> {
    total.checked_sub(told).filter(|more| *more > 0)
}

fn tell(line: impl Display) {
    let _: io::Result<()> = writeln!(io::stderr().lock(), "{line}");
}
