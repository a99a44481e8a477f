//! One command at a time changes an instance.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    thread,
    time::{Duration, Instant},
};

use super::{bpffs::Pins, sys};
use crate::error::{Error, Result};

/// How long a command waits for another: for many, as at boot, each of which loads its programs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The right to change an instance, held until it is dropped or the process ends. It is a lock on a
/// directory of the instance that is open to nobody else.
#[derive(Debug)]
pub(crate) struct Lock {
    _directory: File,
}

impl Lock {
    /// Takes the lock; `None` when there is no instance.
    ///
    /// # Errors
    /// [`Error::Busy`] when another command has it for long, or what the system says.
    pub(crate) fn take(pins: &Pins) -> Result<Option<Self>> {
        let path = &pins.lock();
        let failed = |error| Error::system(format!("lock {}", path.display()), error);
        let start = Instant::now();
        loop {
            let directory = match File::open(path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                directory => directory.map_err(failed)?,
            };
            while !sys::try_lock(&directory).map_err(failed)? {
                if start.elapsed() > PATIENCE {
                    return Err(Error::Busy { directory: pins.directory().to_path_buf() });
                }
                thread::sleep(Duration::from_millis(5));
            }
            // The command that had it may have removed the directory, and another may have made it
            // anew; the lock of the old one is worth nothing.
            let locked = directory.metadata().map_err(failed)?;
            if fs::metadata(path)
                .is_ok_and(|now| (now.dev(), now.ino()) == (locked.dev(), locked.ino()))
            {
                return Ok(Some(Self { _directory: directory }));
            }
        }
    }
}
