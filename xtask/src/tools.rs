//! Programs that the user has.

use crate::workspace;
use std::path::PathBuf;

/// The bpf-linker that the user has.
pub(crate) fn on_path() -> Option<PathBuf> {
    workspace::find_program("bpf-linker")
}
