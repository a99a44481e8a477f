//! What a bridge that ends leaves to the next one beside the state of keys: the offences of peers, and the requests that may be
//! sent again.
//!
//! It is written at the end and read at the start, in a file beside that of the state, and belongs to its seed. One that is killed
//! leaves nothing of it: penalties and repeats begin anew.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    in_force::InForce,
    push::{Pusher, Stored},
    table::open_file,
};
use crate::{
    datapath::sys,
    error::{Error, Result},
    output::file::replace_private,
};

/// The content of the file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Handover {
    seed: [u64; 2],
    offences: Vec<Stored>,
    repeats: Vec<[u64; 4]>,
}

/// The file beside that of the state.
fn beside(state: &Path) -> PathBuf {
    let mut path = state.as_os_str().to_owned();
    path.push(".ended");
    path.into()
}

/// Leaves what is known to the next process.
///
/// # Errors
/// What the system says.
pub(super) fn leave(state: &Path, in_force: &InForce, pusher: &Pusher) -> Result<()> {
    let handover = Handover {
        seed: in_force.seed(),
        offences: pusher.offences.stored(),
        repeats: in_force.repeats(sys::monotonic()),
    };
    let path = beside(state);
    let failed = |error| Error::system(format!("write {}", path.display()), error);
    replace_private(&path, &serde_json::to_vec(&handover).map_err(|error| failed(error.into()))?)
}

/// Takes over what the process before left, if it had the same seed.
///
/// # Errors
/// What the system says, or a file that no bridge has written.
pub(super) fn take(state: &Path, in_force: &InForce, pusher: &Pusher) -> Result<()> {
    /// Far more than all records take, in bytes.
    const MOST: u64 = 64 << 20;
    let path = beside(state);
    if !path.try_exists().unwrap_or(true) {
        return Ok(());
    }
    let failed = |error| Error::system(format!("read {}", path.display()), error);
    let mut content = Vec::new();
    open_file(&path, false)?.take(MOST).read_to_end(&mut content).map_err(failed)?;
    let handover: Handover =
        serde_json::from_slice(&content).map_err(|error| failed(error.into()))?;
    if handover.seed == in_force.seed() {
        pusher.offences.restore(handover.offences);
        in_force.restore_repeats(&handover.repeats);
    }
    Ok(())
}

/// Removes what the process before left. It is stale once this one answers.
pub(super) fn forget(state: &Path) {
    // What cannot be removed is overwritten at the end.
    let _: io::Result<()> = fs::remove_file(beside(state));
}
