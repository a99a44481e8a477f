//! A policy document that is followed as it changes.
//!
//! It is looked at now and then instead of being watched: a look costs a few calls, and misses nothing
//! that there is to miss, whether editors rename files, a volume exchanges links, or a file system tells
//! nobody of changes.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    error::Result,
    policy::{Policy, document::Warnings, reading, shadowed::FromFiles},
};

/// For how long files have to stay as they are: nobody is about to write more of them then.
const SETTLED: Duration = Duration::from_millis(900);

/// A document, and the files that it takes sets from.
#[derive(Debug)]
pub(crate) struct Document {
    path: PathBuf,
    /// All files that it was read from last.
    files: Vec<PathBuf>,
    /// How they were at the last look, and since when they are so.
    seen: Vec<Stamp>,
    since: Instant,
    /// How they were when they were read.
    read: Option<Vec<Stamp>>,
    /// Whether it is to be read in any case.
    wanted: bool,
}

/// The policy of a document, what of it is hardly meant so, and the sets and tenants that have files.
pub(crate) type Read = (Policy, Warnings, FromFiles);

/// What of a file changes with it; nothing if there is none.
type Stamp = Option<[i64; 7]>;

impl Document {
    pub(crate) fn new(path: PathBuf) -> Self {
        let files = vec![path.clone()];
        Self { path, files, seen: Vec::new(), since: Instant::now(), read: None, wanted: true }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it, if it changed since it was read, and has settled. If it `must` be, and the first time, it
    /// is read in any case.
    ///
    /// # Errors
    /// As [`reading::read_with_files`].
    pub(crate) fn look(&mut self, now: u64, must: bool) -> Option<Result<Read>> {
        self.wanted |= must;
        self.see();
        let is_due = self.read.as_ref() != Some(&self.seen) && self.since.elapsed() >= SETTLED;
        if !is_due && !self.wanted {
            return None;
        }
        let (mut files, mut before) = (Vec::new(), Vec::new());
        let result = reading::read_with_files(&self.path, now, &mut |file| {
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

    /// Sees how the files are.
    fn see(&mut self) {
        let stamps: Vec<Stamp> = self.files.iter().map(|file| stamp(file)).collect();
        if self.seen != stamps {
            (self.seen, self.since) = (stamps, Instant::now());
        }
    }
}

fn stamp(file: &Path) -> Stamp {
    let it = fs::metadata(file).ok()?;
    let [device, inode, size] = [it.dev(), it.ino(), it.len()].map(u64::cast_signed);
    Some([device, inode, size, it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()])
}
