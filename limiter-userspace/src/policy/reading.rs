//! Reading a document whose policy is about to be applied.

use std::path::Path;

use super::{Assignment, Context, Policy, compile, shadowed::FromFiles, units::printable};
use crate::{
    error::{Error, Result},
    policy::document::{self, Warnings, document_name},
};

/// Reads the policy in a document and compiles it once, to show that it can be applied. Returns it with
/// warnings. `now` is in seconds of Unix time: entries that ended before are warned of. `opened` is called
/// with the path of each file before it is opened, the document first.
///
/// # Errors
/// [`Faults`](document::Faults) with everything that is wrong in the document, or [`Error::Impossible`] if it does not
/// compile or is too long when it is written back.
pub fn read(path: &Path, now: u64, opened: &mut dyn FnMut(&Path)) -> Result<(Policy, Warnings)> {
    read_with_files(path, now, opened).map(|(policy, warnings, _)| (policy, warnings))
}

/// Like [`read`], and returns which sets and tenants have files.
pub fn read_with_files(
    path: &Path,
    now: u64,
    opened: &mut dyn FnMut(&Path),
) -> Result<(Policy, Warnings, FromFiles)> {
    let (policy, warnings, files) = document::read_with_files(path, now, opened)?;
    // Without interfaces and without earlier state, compiling fails for the same policies.
    let context = Context { unix: now, ..Context::default() };
    compile(&policy, &Assignment::default(), &context)
        .and_then(|_| document::check_length(&policy))
        .map_err(|error| Error::Impossible { file: name(path), error: Box::new(error) })?;
    Ok((policy, warnings, files))
}

/// The path of a document as text that is safe to print on a terminal, at most 256 characters.
pub fn name(path: &Path) -> String {
    printable(&document_name(path), 256)
}
