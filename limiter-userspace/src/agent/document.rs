//! Files that are followed as they change: a policy document, and others.
//!
//! They are looked at now and then instead of being watched: a look costs a few calls, and misses nothing
//! that there is to miss, whether editors rename files, a volume exchanges links, or a file system tells
//! nobody of changes.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::{Error, Result},
    policy::{Policy, document::Warnings, reading, shadowed::FromFiles},
};

/// For how long files have to stay as they are: nobody is about to write more of them then.
const SETTLED: Duration = Duration::from_millis(900);
/// How long files may be in the making at the start: tries, and the time between them.
const TRIES: (usize, Duration) = (20, Duration::from_millis(100));

/// Files that are read together, and how they were then.
#[derive(Debug)]
pub(crate) struct Followed {
    /// All files that were read last.
    files: Vec<PathBuf>,
    /// How they were at the last look, and since when they are so.
    seen: Vec<Stamp>,
    since: Instant,
    /// How they were when they were read.
    read: Option<Vec<Stamp>>,
    /// Whether they are to be read in any case.
    wanted: bool,
}

/// What of a file changes with it; nothing if there is none.
type Stamp = Option<[i64; 7]>;

impl Followed {
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        Self { files, seen: Vec::new(), since: Instant::now(), read: None, wanted: true }
    }

    /// Has the files read, if one changed since they were read, and all have settled. If they `must` be, and the first time,
    /// they are read in any case. `read` names each file to its argument before it opens it.
    pub(crate) fn look<T>(
        &mut self,
        must: bool,
        read: impl FnOnce(&mut dyn FnMut(&Path)) -> T,
    ) -> Option<T> {
        self.wanted |= must;
        self.see();
        let is_due = self.read.as_ref() != Some(&self.seen) && self.since.elapsed() >= SETTLED;
        if !is_due && !self.wanted {
            return None;
        }
        let (mut files, mut before) = (Vec::new(), Vec::new());
        let result = read(&mut |file| {
            before.push(stamp(file));
            files.push(file.to_owned());
        });
        self.files = files;
        self.see();
        // What was written meanwhile may be in part of what was read.
        if self.seen != before {
            return None;
        }
        (self.read, self.wanted) = (Some(before), false);
        Some(result)
    }

    /// Has the files read at the start, when they may be in the making.
    ///
    /// # Errors
    /// They change all the time.
    pub(crate) fn first<T>(
        &mut self,
        mut read: impl FnMut(&mut dyn FnMut(&Path)) -> T,
    ) -> io::Result<T> {
        let (tries, pause) = TRIES;
        for _ in 0..tries {
            if let Some(result) = self.look(true, &mut read) {
                return Ok(result);
            }
            thread::sleep(pause);
        }
        Err(io::Error::other("it changes all the time"))
    }

    /// Sees how the files are.
    fn see(&mut self) {
        let stamps: Vec<Stamp> = self.files.iter().map(|file| stamp(file)).collect();
        if self.seen != stamps {
            (self.seen, self.since) = (stamps, Instant::now());
        }
    }
}

/// A policy document, and the files that it takes sets from.
#[derive(Debug)]
pub(crate) struct Document {
    path: PathBuf,
    followed: Followed,
}

/// The policy of a document, what of it is hardly meant so, and the sets and tenants that have files.
pub(crate) type Read = (Policy, Warnings, FromFiles);

impl Document {
    pub(crate) fn new(path: PathBuf) -> Self {
        let followed = Followed::new(vec![path.clone()]);
        Self { path, followed }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it, if it changed since it was read, as [`Followed::look`] says. `now` is in seconds of Unix time.
    ///
    /// # Errors
    /// As [`reading::read_with_files`].
    pub(crate) fn look(&mut self, now: u64, must: bool) -> Option<Result<Read>> {
        let Self { path, followed } = self;
        followed.look(must, |each| reading::read_with_files(path, now, &mut |file| each(file)))
    }

    /// Reads it at the start, at a time that `unix` tells.
    ///
    /// # Errors
    /// As [`reading::read_with_files`], or it changes all the time.
    pub(crate) fn first(&mut self, unix: fn() -> u64) -> Result<Read> {
        let Self { path, followed } = self;
        let read =
            followed.first(|each| reading::read_with_files(path, unix(), &mut |file| each(file)));
        read.map_err(|error| Error::system(format!("read {}", path.display()), error))?
    }
}

fn stamp(file: &Path) -> Stamp {
    let it = fs::metadata(file).ok()?;
    let [device, inode, size] = [it.dev(), it.ino(), it.len()].map(u64::cast_signed);
    Some([device, inode, size, it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()])
}
