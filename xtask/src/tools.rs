//! Programs that the user has installed.

use crate::workspace;
use std::path::PathBuf;

/// The bpf-linker on the `PATH`; `None` if there is none.
pub(crate) fn on_path() -> Option<PathBuf> {
    workspace::find_program("bpf-linker")
}
