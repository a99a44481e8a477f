//! Reading a policy that is to be applied.

use std::path::Path;

use super::{Assignment, Context, Policy, compile, shadowed::FromFiles, units::printable};
use crate::{
    error::{Error, Result},
    policy::document::{self, Warnings},
};

/// Reads the policy in a document, which has to be one that can be applied at a time of Unix, in
/// seconds, and what of it is hardly meant so. `opened` is told of each file before it
/// is opened, the document first.
///
/// # Errors
/// All that is wrong with it, or [`Error::Impossible`].
pub fn read(path: &Path, now: u64, opened: &mut dyn FnMut(&Path)) -> Result<(Policy, Warnings)> {
    read_with_files(path, now, opened).map(|(policy, warnings, _)| (policy, warnings))
}

/// As [`read`], with the sets and tenants that have files.
///
/// # Errors
/// As [`read`].
pub fn read_with_files(
    path: &Path,
    now: u64,
    opened: &mut dyn FnMut(&Path),
) -> Result<(Policy, Warnings, FromFiles)> {
    let (policy, warnings, files) = document::read_with_files(path, now, opened)?;
    // For no interface and on no state, all that is impossible shows as well.
    let context = Context { unix: now, ..Context::default() };
    compile(&policy, &Assignment::default(), &context)
        .and_then(|_| document::check_length(&policy))
        .map_err(|error| Error::Impossible { file: name(path), error: Box::new(error) })?;
    Ok((policy, warnings, files))
}

/// The name of a file, fit for a terminal.
pub fn name(path: &Path) -> String {
    printable(&path.display().to_string(), 256)
}
