//! What is told beside the output of a command: on the standard error output, if that is still there,
//! and in a line of JSON each if JSON was asked for.

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
    policy::document::Warnings,
};

/// Tells an error and what to do about it.
pub(super) fn complain(error: &Error, output: &Output) {
    if output.is_json() {
        tell(json!({ "error": described(error) }));
        return;
    }
    match error {
        // Each begins with its place, as editors and other tools expect it.
        Error::Faults(faults) => tell(faults),
        error => tell(format_args!("error: {error}")),
    }
    if let Some(remedy) = error.remedy() {
        tell(format_args!("hint: {remedy}"));
    }
}

/// Warns of what does not keep a command from being done.
pub(super) fn warn(message: &str, output: &Output) {
    if output.is_json() {
        tell(json!({ "warning": { "message": message } }));
    } else {
        tell(format_args!("warning: {message}"));
    }
}

/// Warns of an error, and says why it does not keep a command from being done.
pub(super) fn warn_of_error(error: &Error, why: &str, output: &Output) {
    if output.is_json() {
        tell(json!({ "warning": { "message": why, "cause": described(error) } }));
    } else {
        tell(format_args!("{error}\nwarning: {why}"));
    }
}

/// Warns of what is hardly meant so in a document.
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

/// Warns, where a policy was put in force, that nothing is dropped all the same.
pub(super) fn warn_of_switch(output: &Output) {
    warn(SWITCHED, output);
}

/// That nothing is dropped all the same.
pub(super) const SWITCHED: &str = "nothing is dropped until `limiter monitor off`";

/// Of so many of a kind each is told.
const TOLD: usize = 5;

/// Warns of interfaces that a policy asks for and that are not attached; of many, of the first only.
pub(super) fn warn_of_absent(interfaces: &[String], output: &Output) {
    for name in interfaces.iter().take(TOLD) {
        warn(&format!("a limit is about {name}, but no interface {name} is attached"), output);
    }
    if let Some(more) = more_than(TOLD, interfaces.len()) {
        warn(&format!("{more} more interfaces that limits are about are not attached"), output);
    }
}

/// Warns of entries that decide nothing; of many, of the first only.
pub(super) fn warn_of_shadowed(shadowed: &[String], output: &Output) {
    for shadowed in shadowed.iter().take(TOLD) {
        warn(shadowed, output);
    }
    if let Some(more) = more_than(TOLD, shadowed.len()) {
        warn(&format!("{more} more entries are shadowed"), output);
    }
}

/// What tells of a process that has a lock which a command waits for.
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

/// How many there are more than were told.
fn more_than(told: usize, total: usize) -> Option<usize> {
    total.checked_sub(told).filter(|more| *more > 0)
}

fn tell(line: impl Display) {
    let _: io::Result<()> = writeln!(io::stderr().lock(), "{line}");
}
