//! What a bridge leaves to the next one beside the state of keys: the offences of peers, and the requests that may be sent again.
//!
//! It is read at the start from a file beside that of the state, and belongs to its seed. It is written at the end, and while the
//! bridge runs if something changed, at most each [`PAUSE`]. So one that is killed loses what came after that. Times in it are absolute:
//! what is old in it is over.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
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
    output::file::{remove_left_beside, replace_private},
};

/// How long is waited at least after the file was written.
const PAUSE: Duration = Duration::from_secs(2);
/// The file is written in at most one part of so many of the time.
const SHARE: u32 = 50;

/// The most bytes of a file that is read. All records take a third of it.
const MOST: u64 = 64 << 20;

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
    path.push(".handover");
    path.into()
}

/// Writes the file.
pub(super) struct Writer {
    path: PathBuf,
    in_force: Arc<InForce>,
    pusher: Arc<Pusher>,
    /// How often offences and repeats had changed when it was written.
    written: [u64; 2],
    /// When it may be written again.
    due: Instant,
    /// Whether that failed last.
    fails: bool,
}

impl Writer {
    /// Writes the file beside that of the state. What was taken from it is in it.
    pub(super) fn new(state: &Path, in_force: &Arc<InForce>, pusher: &Arc<Pusher>) -> Self {
        let path = beside(state);
        // A file of megabytes, which would stay in memory.
        remove_left_beside(&path);
        Self {
            path,
            in_force: Arc::clone(in_force),
            pusher: Arc::clone(pusher),
            written: [0; 2],
            due: Instant::now(),
            fails: false,
        }
    }

    /// Writes the file if something changed and it is time. A decision waits for it no longer than for a set of a table to be copied.
    ///
    /// # Errors
    /// What the system says, the first time.
    pub(super) fn keep(&mut self) -> Result<()> {
        let begin = Instant::now();
        let changes = [self.pusher.offences.changes(), self.in_force.repeat_changes()];
        if begin < self.due || changes == self.written {
            return Ok(());
        }
        let result = self.write();
        self.due = begin + PAUSE.max(begin.elapsed() * SHARE);
        match result {
            Ok(()) => (self.written, self.fails) = (changes, false),
            Err(_) if self.fails => {}
            Err(error) => {
                self.fails = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the file, as nothing changes any more.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn write(&self) -> Result<()> {
        let handover = Handover {
            seed: self.in_force.seed(),
            offences: self.pusher.offences.stored(),
            repeats: self.in_force.repeats(sys::monotonic()),
        };
        let failed = |error| Error::system(format!("write {}", self.path.display()), error);
        let content = serde_json::to_vec(&handover).map_err(|error| failed(error.into()))?;
        replace_private(&self.path, &content)
    }
}

/// Takes over what the process before left, if it had the same seed.
///
/// # Errors
/// What the system says, or a file that no bridge has written.
pub(super) fn take(state: &Path, in_force: &InForce, pusher: &Pusher) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{bridge::table::Table, policy::Policy};

    fn parts() -> (Arc<InForce>, Arc<Pusher>) {
        let in_force = InForce::new(Policy::default(), Table::in_memory(1 << 10)).unwrap();
        let pusher = Pusher::new(in_force.seed()).0;
        (Arc::new(in_force), Arc::new(pusher))
    }

    /// The file with all that there is room for, which is far less than may be read.
    #[test]
    fn the_file_is_bounded_and_written_after_a_change() {
        let folder = std::env::temp_dir().join(format!("limiter-handover-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let state = folder.join("state");
        let (in_force, pusher) = parts();
        // One that was killed while it wrote left the first of these.
        let others = ["state.handover.1x.new", "state.handover..new", "state.1.new"];
        for name in ["state.handover.1234.new"].iter().chain(&others) {
            fs::write(folder.join(name), "").unwrap();
        }
        let mut writer = Writer::new(&state, &in_force, &pusher);
        assert!(!folder.join("state.handover.1234.new").exists());
        assert!(others.iter().all(|name| folder.join(name).exists()));
        writer.keep().unwrap();
        assert!(!beside(&state).exists(), "nothing changed");
        let until = sys::monotonic() + (1 << 60);
        let repeats = |number: u64| [u64::MAX - number, u64::MAX - number, until, 3];
        in_force.restore_repeats(&(0..1 << 17).map(repeats).collect::<Vec<_>>());
        pusher.offences.fill(1 << 15);
        writer.keep().unwrap();
        let size = fs::metadata(beside(&state)).unwrap().len();
        assert!((10 << 20..MOST / 3).contains(&size), "{size}");
        let begin = Instant::now();
        writer.write().unwrap();
        println!("{size} bytes in {:?}", begin.elapsed());
        pusher.offences.fill(1);
        fs::remove_file(beside(&state)).unwrap();
        writer.keep().unwrap();
        assert!(!beside(&state).exists(), "it was written just before");
        writer.due = Instant::now();
        writer.keep().unwrap();
        let (other, taken) = parts();
        take(&state, &other, &taken).unwrap();
        assert!(taken.offences.stored().is_empty(), "it is of another seed");
        let taken = Pusher::new(in_force.seed()).0;
        take(&state, &in_force, &taken).unwrap();
        assert_eq!(taken.offences.stored().len(), pusher.offences.stored().len());
        fs::remove_dir_all(&folder).unwrap();
    }
}
