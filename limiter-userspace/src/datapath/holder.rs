//! A process that has a lock of an instance.

use crate::policy::units::printable;
use std::{fmt, fs, os::unix::fs::MetadataExt as _, path::Path};

/// A process that has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// Its command line, fit for a terminal.
    pub command: String,
    /// Whether it was stopped.
    pub is_stopped: bool,
    /// Ticks of CPU time that it and its children had: it may wait for one that works for it, as an agent does for its loader.
    pub(super) time: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, command, is_stopped, .. } = self;
        let stopped = if *is_stopped { ", stopped" } else { "" };
        write!(f, "process {process} (`{command}`{stopped})")
    }
}

impl Holder {
    /// The process that has the lock of a file or directory; nothing where that cannot be seen.
    pub(super) fn of(locked: &fs::Metadata) -> Option<Self> {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        Self::read(Path::new("/proc"), holder_in(&locks, locked.dev(), locked.ino())?)
    }

    /// What `/proc` tells of a process.
    pub(super) fn read(processes: &Path, process: u32) -> Option<Self> {
        const LONGEST: usize = 120;
        let folder = processes.join(process.to_string());
        let (is_stopped, time) = state_and_time(&folder)?;
        // Those that its first thread started. Not every kernel tells them.
        let children = fs::read_to_string(folder.join(format!("task/{process}/children")));
        let of_children: u64 = children
            .unwrap_or_default()
            .split_ascii_whitespace()
            .filter_map(|child| Some(state_and_time(&processes.join(child))?.1))
            .sum();
        let command = fs::read(folder.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
        Some(Self {
            process,
            command: printable(&command, LONGEST),
            is_stopped,
            time: time.saturating_add(of_children),
        })
    }
}

/// Whether the process of a folder in `/proc` is stopped, and the ticks of CPU time that it had.
fn state_and_time(folder: &Path) -> Option<(bool, u64)> {
    let status = fs::read_to_string(folder.join("stat")).ok()?;
    // The name before may have any characters in it.
    let mut fields = status.get(status.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    // The fields 14 and 15, of which the state is the third.
    let time = fields.skip(10).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some((matches!(state, "T" | "t"), time))
}

/// The process that has the lock of a file, in the text of `/proc/locks` (proc_locks(5)).
pub(super) fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let has = fields.next() == Some("FLOCK");
        let process = fields.nth(2)?;
        let is_it = has && fields.next() == Some(file.as_str());
        is_it.then(|| process.parse().ok()).flatten()
    })
}
