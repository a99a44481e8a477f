//! The file that keeps the run-time lists of an instance over a restart of the machine.
//!
//! The kernel has the lists that hold; the file is a copy of them. A command that changes the lists writes it,
//! and the agent does where the two differ. The lists are read back when an instance is made.
//!
//! Whoever writes holds `Writing`, an flock(2) on the folder of the file, and reads what is in force after it has
//! that: so the file never goes back to older lists. No right to change the instance is held meanwhile, as a disk may
//! take any time.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::sys::{self, SignalsDeferred};
use crate::{
    error::{Error, Result},
    output::file,
    policy::{RunTime, run_time::Readable},
};

/// The version of the file.
const VERSION: u32 = 2;
/// The oldest that is read: it has prefixes as texts.
const OLDEST: u32 = 1;

/// How often a lock that another process has is tried.
const PERIOD: Duration = Duration::from_millis(5);

/// Bytes of a file that is read, at most.
const LONGEST: u64 = 256 << 20;

/// What is in the file. Times are of the wall clock.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept<E> {
    version: u32,
    entries: E,
}

/// The lists in a file without the entries that are over at `now`, in seconds of Unix time; none if there is no
/// file.
///
/// # Errors
/// [`Error::State`], or what the system says.
pub fn read(path: &Path, now: u64) -> Result<RunTime> {
    let text = read_text(path)?;
    let mut lists: RunTime = parse(path, text.as_deref())?.unwrap_or_default();
    lists.drop_over(now);
    Ok(lists)
}

/// What is in a file; `None` if there is none.
fn read_text(path: &Path) -> Result<Option<Vec<u8>>> {
    let failed = |error| Error::system(format!("read {}", path.display()), error);
    // Who may write to the folder is not to have another file read, or wait for a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Error::NoFile { path: path.to_path_buf() });
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// The entries of a file with this text; `None` without one.
///
/// # Errors
/// [`Error::State`].
fn parse<'de, E: Deserialize<'de>>(path: &Path, text: Option<&'de [u8]>) -> Result<Option<E>> {
    let Some(text) = text else { return Ok(None) };
    // Its text may repeat any part of the file.
    let broken = |cause: String| Error::State { path: path.to_path_buf(), cause };
    let at = |error: serde_json::Error| {
        broken(format!("line {} is not as it was written", error.line()))
    };
    #[derive(Deserialize)]
    struct Header {
        version: u32,
    }
    let Header { version } = serde_json::from_slice(text).map_err(at)?;
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(broken(format!(
            "it is of version {version}, and this limiter reads {VERSION}"
        )));
    }
    let Kept { entries, .. } = serde_json::from_slice::<Kept<E>>(text).map_err(at)?;
    Ok(Some(entries))
}

/// The right to write a file, until it is dropped.
#[must_use]
pub(super) struct Writing<'a> {
    path: &'a Path,
    // In this order: what would stop the process comes when it has no lock any more.
    _folder: File,
    _deferred: SignalsDeferred,
}

impl<'a> Writing<'a> {
    /// Waits for the right to write lists to a file. The folder of the file is made if it is not there. What killed writers
    /// left there is removed.
    ///
    /// # Errors
    /// That others have it for longer than is waited, or what the system says.
    pub(super) fn take(path: &'a Path, patience: Duration) -> Result<Self> {
        let failed = |error| Error::system(format!("write {}", path.display()), error);
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY);
        let opened = match options.open(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(folder).and_then(|()| options.open(folder))
            }
            opened => opened,
        };
        let (file, begun) = (opened.map_err(failed)?, Instant::now());
        loop {
            // Who only waits may be stopped.
            let deferred = SignalsDeferred::stops();
            if sys::try_lock(&file).map_err(failed)? {
                file::remove_left_beside(path);
                return Ok(Self { path, _folder: file, _deferred: deferred });
            }
            drop(deferred);
            if begun.elapsed() > patience {
                let cause = "another process has been writing there for too long";
                return Err(failed(io::Error::new(ErrorKind::TimedOut, cause)));
            }
            thread::sleep(PERIOD);
        }
    }

    /// Has these lists in the file, where it has others. One that is broken is put aside.
    ///
    /// # Errors
    /// What the system says. A file that cannot be read for another reason than what is in it stays.
    pub(super) fn put(&self, lists: &RunTime) -> Result<()> {
        let (there, text) = (read_text(self.path)?, text_of(self.path, lists)?);
        if there.as_deref() == text.as_deref() {
            return Ok(());
        }
        // To read the entries would take as long as all else.
        self.unless_broken(parse::<Readable>(self.path, there.as_deref()))?;
        write_text(self.path, text.as_deref())
    }

    /// Adds lists to those in the file that are not over at `now`, in the place of what it has of the same
    /// prefixes.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(super) fn add(&self, lists: &RunTime, now: u64) -> Result<()> {
        let mut all = self.unless_broken(read(self.path, now).map(Some))?.unwrap_or_default();
        all.extend(lists);
        write(self.path, &all)
    }

    /// What is in the file; nothing if it was broken, and is put aside.
    fn unless_broken<T>(&self, read: Result<Option<T>>) -> Result<Option<T>> {
        match read {
            Err(Error::State { .. }) => put_aside(self.path).map(|_aside| None),
            read => read,
        }
    }
}

/// Writes lists to a file, so that at any time, also after a crash, it has those before or these. The file
/// belongs to the owner of its folder. Without entries, there is no file.
///
/// # Errors
/// What the system says.
pub fn write(path: &Path, lists: &RunTime) -> Result<()> {
    write_text(path, text_of(path, lists)?.as_deref())
}

/// The text of a file with these lists; `None` if there is none.
fn text_of(path: &Path, lists: &RunTime) -> Result<Option<Vec<u8>>> {
    if lists.is_empty() {
        return Ok(None);
    }
    let kept = Kept { version: VERSION, entries: lists };
    let mut text = serde_json::to_vec(&kept).map_err(|error| {
        Error::system(format!("write {}", path.display()), io::Error::other(error))
    })?;
    text.push(b'\n');
    Ok(Some(text))
}

fn write_text(path: &Path, text: Option<&[u8]>) -> Result<()> {
    let Some(text) = text else {
        return match fs::remove_file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed
                .and_then(|()| File::open(file::folder_of(path))?.sync_all())
                .map_err(|error| Error::system(format!("remove {}", path.display()), error)),
        };
    };
    file::replace_in_place(path, text)
}

/// Puts a file aside that cannot be read, so that the next one does not take its place.
///
/// # Errors
/// What the system says.
pub fn put_aside(path: &Path) -> Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".unread");
    let aside = PathBuf::from(aside);
    fs::rename(path, &aside)
        .map_err(|error| Error::system(format!("rename {}", path.display()), error))?;
    Ok(aside)
}

#[cfg(test)]
mod tests;
