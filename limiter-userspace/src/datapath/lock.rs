//! Who may change an instance: two locks, so that no change of the policy or of a list waits for a program to
//! be verified.
//!
//! Each is an flock(2) on a directory of pins, which ends with the process that has it.
//!
//! * `Right::Attach`, on `links`: to attach, replace and detach programs, and to make and remove the maps. It
//!   is held while the kernel verifies programs, for seconds where there are many interfaces.
//! * `Right::Change`, on `maps`: to change the policy and the lists. It is held for as long as it takes to
//!   write the half of the tables that no packet reads, and to switch to it. Nothing is waited for meanwhile but
//!   the kernel: no input, no output, no network. The [file of the lists](super::kept) is written afterwards, under a
//!   lock of its own; only the lists of an older version are written before an instance of it is removed. Signals
//!   that would stop the process come after it.
//!
//! The order: who needs both takes `Attach` first. That is so for
//!
//! * making an instance: `Attach`, and `Change` while the maps are made. Changes see no instance before its
//!   first link is pinned; no other attach removes maps without links meanwhile, as that takes `Attach`.
//! * attaching: a program is verified under `Attach` alone. It has nothing of a policy in it, but reads the epoch
//!   for each packet, so any number of policies may come meanwhile. Its maps stay: removing them takes `Attach`.
//!   Then the record and the link are pinned, and under `Change` the policy is compiled again if what is
//!   attached is not what it was compiled for. A change that read the records before is seen by that comparison,
//!   as it had `Change` before; one that reads them later sees the new record.
//! * detaching: a change that still takes the interface for attached writes tables for a slot by which no packet
//!   comes; the attach that takes the slot next compares.
//! * removing an instance: both, so that no change writes to maps that are not pinned any more.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use super::{
    bpffs::Pins,
    sys::{self, SignalsDeferred},
};
use crate::{
    datapath::holder::Holder,
    error::{Error, Result},
};

/// How often a lock that another process has is tried.
const PERIOD: Duration = Duration::from_millis(5);
/// How often it is looked at who has it.
const LOOK: Duration = Duration::from_millis(250);
/// After this time it is told who is waited for.
const WORTH_TELLING: Duration = Duration::from_secs(1);
/// A process that has a lock and got no CPU for so long is not waited for any more: it was stopped, or hangs.
const STUCK: Duration = Duration::from_secs(3);

/// What a lock gives the right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// To attach and to detach.
    Attach,
    /// To change the policy and the lists.
    Change,
}

impl Right {
    /// Where its lock is taken: a directory that nobody else can open.
    fn directory(self, pins: &Pins) -> PathBuf {
        match self {
            Self::Attach => pins.links(),
            Self::Change => pins.first_maps(),
        }
    }
}

/// A right, held until it is dropped or the process ends. It is a lock on a directory of the instance that is
/// open to nobody else.
#[derive(Debug)]
pub(crate) struct Lock {
    right: Right,
    // In this order: what would stop the process comes when it has no lock any more.
    _directory: File,
    _deferred: Option<SignalsDeferred>,
}

impl Lock {
    /// Takes the lock for a right; `None` when there is no instance.
    ///
    /// # Errors
    /// [`Error::Busy`] when another process has it and gets nowhere, or for longer than is waited; or what the
    /// system says.
    pub(crate) fn take(pins: &Pins, right: Right) -> Result<Option<Self>> {
        let path = &right.directory(pins);
        let failed = |error| Error::system(format!("lock {}", path.display()), error);
        let mut waiting = Waiting::new();
        loop {
            let directory = match File::open(path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                directory => directory.map_err(failed)?,
            };
            let locked = directory.metadata().map_err(failed)?;
            let mut deferred = (right == Right::Change).then(SignalsDeferred::stops);
            while !sys::try_lock(&directory).map_err(failed)? {
                // Who only waits may be stopped.
                drop(deferred.take());
                waiting.go_on(pins, &locked)?;
                deferred = (right == Right::Change).then(SignalsDeferred::stops);
            }
            // The command that had it may have removed the directory, and another may have made it
            // anew; the lock of the old one is worth nothing.
            if fs::metadata(path)
                .is_ok_and(|now| (now.dev(), now.ino()) == (locked.dev(), locked.ino()))
            {
                return Ok(Some(Self { right, _directory: directory, _deferred: deferred }));
            }
        }
    }

    /// Takes the lock for a right if nobody has it; `None` when somebody does, or when there is no instance.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn try_take(pins: &Pins, right: Right) -> Result<Option<Self>> {
        match Self::take(&pins.clone().telling_of(None).with_patience(Duration::ZERO), right) {
            Err(Error::Busy { .. }) => Ok(None),
            taken => taken,
        }
    }

    /// What it gives the right to.
    pub(crate) const fn right(&self) -> Right {
        self.right
    }
}

/// Waiting for a lock.
struct Waiting {
    begun: Instant,
    /// When it was looked at who has it.
    looked: Option<Instant>,
    /// Who had it then, and since when this process has seen it there without progress.
    holder: Option<(Holder, Instant)>,
    /// The process that was told of.
    told: Option<u32>,
}

impl Waiting {
    fn new() -> Self {
        Self { begun: Instant::now(), looked: None, holder: None, told: None }
    }

    /// Waits a moment.
    ///
    /// # Errors
    /// [`Error::Busy`], when that was long enough.
    fn go_on(&mut self, pins: &Pins, locked: &fs::Metadata) -> Result<()> {
        let now = Instant::now();
        if self.looked.is_none_or(|last| now.duration_since(last) >= LOOK) {
            self.looked = Some(now);
            self.see(Holder::of(locked), now);
            let news = self.holder.as_ref().filter(|(holder, _)| self.told != Some(holder.process));
            if let Some((holder, _)) = news
                && now.duration_since(self.begun) >= WORTH_TELLING
            {
                self.told = Some(holder.process);
                pins.tell_waiting(holder);
            }
        }
        let stuck =
            self.holder.as_ref().is_some_and(|(_, since)| now.duration_since(*since) >= STUCK);
        if stuck || now.duration_since(self.begun) > pins.patience() {
            let holder = self.holder.take().map(|(holder, _)| (holder.process, holder.to_string()));
            return Err(Error::Busy { directory: pins.directory().to_path_buf(), holder });
        }
        thread::sleep(PERIOD);
        Ok(())
    }

    /// Notes who has the lock now.
    fn see(&mut self, holder: Option<Holder>, now: Instant) {
        let since = match (&self.holder, &holder) {
            (Some((before, since)), Some(it))
                if (before.process, before.time) == (it.process, it.time) =>
            {
                *since
            }
            _ => now,
        };
        self.holder = holder.map(|holder| (holder, since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::holder::holder_in;

    #[test]
    fn who_has_a_lock_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:2a:99 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 8 00:2b:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 00:2a:99 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE -1 00:2a:98 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 10 00:2a:99 0 EOF\n5:";
        let device = libc::makedev(0, 0x2a);
        assert_eq!(holder_in(locks, device, 99), Some(10));
        assert_eq!(holder_in(locks, device, 98), None, "it is in another namespace");
        assert_eq!(holder_in(locks, device, 9), None);
        assert_eq!(holder_in(locks, libc::makedev(0, 0x2b), 99), Some(8));
    }

    #[test]
    fn a_process_is_told_by_its_command_line() {
        let folder = std::env::temp_dir().join(format!("limiter-lock-{}", std::process::id()));
        let process = folder.join("12");
        fs::create_dir_all(&process).unwrap();
        let write = |state: &str| {
            let stat = format!("12 (a) b (c)) {state} 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0");
            fs::write(process.join("stat"), stat).unwrap();
        };
        write("S");
        fs::write(process.join("cmdline"), "limiter\0policy\0apply\0a\x1b[1m\0").unwrap();
        let running = Holder::read(&folder, 12).unwrap();
        assert_eq!((running.process, running.time, running.is_stopped), (12, 42, false));
        assert!(running.command.starts_with("limiter policy apply a"), "{running}");
        assert!(!running.command.contains('\x1b'), "{running}");
        write("T");
        let stopped = Holder::read(&folder, 12).unwrap();
        assert!(stopped.to_string().ends_with("`, stopped)"), "{stopped}");
        assert_eq!(Holder::read(&folder, 13), None);
        // An agent waits for its loader, which works.
        fs::create_dir_all(process.join("task/12")).unwrap();
        fs::write(process.join("task/12/children"), "14 15 ").unwrap();
        fs::create_dir_all(folder.join("14")).unwrap();
        fs::write(folder.join("14/stat"), "14 (l) R 12 2 3 4 5 6 7 8 9 10 100 1 0 0").unwrap();
        assert_eq!(Holder::read(&folder, 12).unwrap().time, 42 + 101);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn who_makes_progress_is_waited_for() {
        let begun = Instant::now();
        let holder = |process, time| {
            Some(Holder { process, command: String::new(), is_stopped: false, time })
        };
        let mut waiting = Waiting::new();
        let mut since = |seconds, holder| {
            waiting.see(holder, begun + Duration::from_secs(seconds));
            waiting.holder.as_ref().map(|(_, since)| since.duration_since(begun).as_secs())
        };
        assert_eq!(since(0, holder(1, 5)), Some(0));
        assert_eq!(since(2, holder(1, 5)), Some(0));
        assert_eq!(since(3, holder(1, 6)), Some(3), "it had CPU time");
        assert_eq!(since(4, holder(2, 6)), Some(4), "another one has it");
        assert_eq!(since(5, None), None);
        assert_eq!(since(6, holder(2, 6)), Some(6));
    }
}
