//! Where an instance is in the BPF file system.

mod owner;
pub(crate) mod sides;
mod state;

use std::{
    ffi::{CString, OsStr},
    fs,
    io::{self, ErrorKind},
    os::{
        fd::BorrowedFd,
        unix::{ffi::OsStrExt as _, fs::DirBuilderExt as _},
    },
    path::{self, Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use self::{sides::Side, state::file_of};
use super::{loader::Loader, sys};
use crate::{
    datapath::holder::Holder,
    error::{Error, Result},
};

/// The directory of the instance that commands are about unless told otherwise.
pub const DEFAULT: &str = "/sys/fs/bpf/limiter";

const MAGIC: u64 = 0xcafe_4a11;

/// The pins of an instance: maps by name, links and programs by the slot of their interface.
#[derive(Clone, Debug)]
pub struct Pins {
    directory: PathBuf,
    /// The file that keeps the run-time lists over a restart of the machine.
    state: PathBuf,
    /// How long a process waits for a lock.
    patience: Duration,
    /// Tells of a process that is waited for.
    waiting: Option<fn(&Holder)>,
    /// Which directory of maps these are about; `None` for the one in use at the moment.
    side: Option<Side>,
    /// The process that loads programs for this one, if another one does.
    loader: Option<Arc<Loader>>,
}

/// How long a command waits for others that get on: for many, as where each bans a source.
const PATIENCE: Duration = Duration::from_secs(60);

impl Pins {
    /// The pins below `directory`, which may be relative to the working directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let directory = path::absolute(&directory).unwrap_or(directory);
        let state = file_of(&directory);
        Self { state, directory, patience: PATIENCE, waiting: None, side: None, loader: None }
    }

    /// The same with another file that keeps the run-time lists.
    #[must_use]
    pub fn with_state(self, state: impl Into<PathBuf>) -> Self {
        let state = state.into();
        Self { state: path::absolute(&state).unwrap_or(state), ..self }
    }

    /// The file that keeps the run-time lists over a restart of the machine.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The same, for a process that waits for a lock no longer than this.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same, for a process that tells which other one it waits for, if that takes long; or that does not.
    #[must_use]
    pub fn telling_of(self, waiting: Option<fn(&Holder)>) -> Self {
        Self { waiting, ..self }
    }

    /// The same, for a process that has its programs loaded by another one.
    #[must_use]
    pub(crate) fn loading_by(self, loader: Loader) -> Self {
        Self { loader: Some(Arc::new(loader)), ..self }
    }

    /// The process that loads programs for this one, if another one does.
    pub(crate) fn loader(&self) -> Option<&Loader> {
        self.loader.as_deref()
    }

    /// Checks that the process that loads programs for this one is there, if another one does.
    ///
    /// # Errors
    /// [`Error::NoLoader`], or what the system says.
    pub(crate) fn check_loader(&self) -> Result<()> {
        self.loader().map_or(Ok(()), Loader::check)
    }

    /// How long a lock is waited for.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Tells of a process that is waited for.
    pub(crate) fn tell_waiting(&self, holder: &Holder) {
        if let Some(tell) = self.waiting {
            tell(holder);
        }
    }

    /// The directory of the instance.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The pin of a map.
    pub fn map(&self, name: &str) -> PathBuf {
        self.maps().join(name)
    }

    /// The pin of the link of a slot.
    pub fn link(&self, slot: u32) -> PathBuf {
        self.links().join(slot.to_string())
    }

    /// The directory of the links.
    pub(crate) fn links(&self) -> PathBuf {
        self.directory.join("links")
    }

    /// The pin of the program of a slot. A link holds its program too, but gives only its number, which takes
    /// more rights to look at than a pin.
    pub(crate) fn program(&self, slot: u32) -> PathBuf {
        self.programs().join(slot.to_string())
    }

    /// Where the programs are pinned.
    pub(crate) fn programs(&self) -> PathBuf {
        self.directory.join("programs")
    }

    /// The directory of maps that is there as long as the instance is, whichever is in use.
    pub(crate) fn first_maps(&self) -> PathBuf {
        self.directory.join(Side::First.name())
    }

    /// Where the maps are pinned: those in use, unless these pins are about others.
    pub fn maps(&self) -> PathBuf {
        // Where that cannot be told, whoever opens the maps is told why.
        let in_use = || self.in_use().ok().and_then(|pins| pins.side);
        self.directory.join(self.side.or_else(in_use).unwrap_or(Side::First).name())
    }

    /// Whether there is anything of an instance.
    ///
    /// # Errors
    /// What the system says when that cannot be told.
    pub fn exist(&self) -> Result<bool> {
        // Directories that were given away are there without anything in them.
        let given = self.given_to()?.is_some();
        for directory in self.directories() {
            let is_empty = || fs::read_dir(&directory).is_ok_and(|mut pins| pins.next().is_none());
            if exists(&directory)? && !(given && is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pins an object in the place of another one, or of none. It has its owner when it has its name.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn pin(&self, object: BorrowedFd<'_>, path: &Path) -> Result<()> {
        // A name in that file system has no dot.
        let mut new = path.as_os_str().to_owned();
        new.push("-new");
        // What somebody left who was ended in the middle.
        unpin(Path::new(&new))?;
        let failed = |error| Error::system(format!("pin {}", path.display()), error);
        sys::pin(object, &c_path(&new)?).map_err(failed)?;
        self.hand_over(Path::new(&new))?;
        fs::rename(&new, path).map_err(failed)
    }

    /// Makes the directories, for one user alone: who can write to a map decides what passes. That is the
    /// user whom root gave the directories of pins to, if it did, as to a service that is not root.
    ///
    /// # Errors
    /// [`Error::NotBpffs`], [`Error::Unsafe`], or what the system says.
    pub fn make(&self) -> Result<()> {
        self.check()?;
        // A command that detaches the last interface may take away what was just made.
        let mut tries = 100;
        loop {
            match self.try_make() {
                Err(Error::System { source, .. })
                    if source.kind() == ErrorKind::NotFound && tries > 0 =>
                {
                    tries -= 1;
                    thread::sleep(Duration::from_millis(1));
                }
                made => return made,
            }
        }
    }

    fn try_make(&self) -> Result<()> {
        let [links, programs, maps, _] = self.directories();
        for directory in [&self.directory, &maps, &programs, &links] {
            self.make_directory(directory)?;
        }
        self.check_owners()
    }

    /// Makes the directory of these maps, if it is not there.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub(crate) fn make_maps(&self) -> Result<()> {
        self.make_directory(&self.maps())?;
        self.check_owners()
    }

    fn make_directory(&self, directory: &Path) -> Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => self.hand_over(directory),
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(Error::system(format!("make {}", directory.display()), error))
            }
            Err(_) => Ok(()),
        }
    }

    /// Removes every pin.
    ///
    /// # Errors
    /// [`Error::Unsafe`], or what the system says when one cannot be removed.
    pub fn clear(&self) -> Result<()> {
        self.check_owners()?;
        self.directories().iter().try_for_each(|it| Self::clear_directory(it))
    }

    fn clear_directory(directory: &Path) -> Result<()> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries
                .map_err(|error| Error::system(format!("read {}", directory.display()), error))?,
        };
        entries.flatten().try_for_each(|entry| unpin(&entry.path()))
    }

    /// Removes every pin and the directories; a directory that is a mount point or holds something
    /// else stays, and so do those which root gave to somebody, who could not make them.
    ///
    /// # Errors
    /// What the system says when a pin cannot be removed.
    pub fn remove(&self) -> Result<()> {
        self.clear()?;
        if self.given_to()?.is_none() {
            for directory in self.directories().iter().chain([&self.directory]) {
                let _: io::Result<()> = fs::remove_dir(directory);
            }
        }
        Ok(())
    }

    /// Links go before the maps that their programs use.
    fn directories(&self) -> [PathBuf; 4] {
        let [first, second] = Side::BOTH.map(Side::name);
        ["links", "programs", first, second].map(|name| self.directory.join(name))
    }

    /// Whether the directory is, or would be, on a BPF file system.
    ///
    /// # Errors
    /// [`Error::NotBpffs`], or what the system says.
    pub fn check(&self) -> Result<()> {
        let existing = self.directory.ancestors().find(|path| path.exists());
        let path = existing.unwrap_or_else(|| Path::new("/"));
        let magic = sys::file_system(&c_path(path.as_os_str())?)
            .map_err(|error| Error::system(format!("look at {}", path.display()), error))?;
        if magic == MAGIC { Ok(()) } else { Err(self.not_bpffs()) }
    }

    fn not_bpffs(&self) -> Error {
        let standard = Path::new("/sys/fs/bpf");
        let mount = if self.directory.starts_with(standard) { standard } else { &self.directory };
        Error::NotBpffs { directory: self.directory.clone(), mount: mount.to_path_buf() }
    }

    /// Mounts a BPF file system where the directory needs one, for this user alone, and says where.
    ///
    /// # Errors
    /// What the system says.
    pub fn mount(&self) -> Result<Option<PathBuf>> {
        let Err(Error::NotBpffs { mount, .. }) = self.check() else { return Ok(None) };
        fs::create_dir_all(&mount)
            .map_err(|error| Error::system(format!("make {}", mount.display()), error))?;
        sys::mount_bpf(&c_path(mount.as_os_str())?).map_err(|error| {
            Error::system(format!("mount a BPF file system on {}", mount.display()), error)
        })?;
        Ok(Some(mount))
    }
}

/// Unmounts what [`Pins::mount`] mounted.
pub(crate) fn unmount(mount: &Path) {
    if let Ok(path) = c_path(mount.as_os_str()) {
        let _: io::Result<()> = sys::unmount(&path);
    }
    // One that was there before holds something else, or is the standard one.
    let _: io::Result<()> = fs::remove_dir(mount);
}

/// Whether there is something at a path; not being allowed to know is an error.
pub(crate) fn exists(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|error| Error::system(format!("look at {}", path.display()), error))
}

/// Removes a pin; the object goes when nothing else refers to it.
pub(crate) fn unpin(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::system(format!("remove the pin {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// A path for the kernel.
pub(crate) fn c_path(path: &OsStr) -> Result<CString> {
    CString::new(path.as_bytes()).map_err(|_nul| {
        let error = io::Error::from(ErrorKind::InvalidInput);
        Error::system(format!("use the path {}", path.display()), error)
    })
}
