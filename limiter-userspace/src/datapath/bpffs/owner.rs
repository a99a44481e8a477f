//! Whose an instance is: of the user who made it, or of one to whom root gave its directories of pins, as to
//! a service that is not root.
//!
//! What root does to an instance that was given away stays usable for its owner. The directory around those
//! of pins is root's, so that nobody can put others, or links to others, in their place: whatever root does
//! in them is done there.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown},
    path::Path,
};

use super::Pins;
use crate::{
    datapath::sys,
    error::{Error, Result},
};

const ROOT: u32 = 0;

impl Pins {
    /// The user and group that root gave the directories of pins to, if this process is root's.
    pub(super) fn given_to(&self) -> Result<Option<(u32, u32)>> {
        if sys::user() != ROOT {
            return Ok(None);
        }
        let Some(pins) = look_at(&self.first_maps())? else { return Ok(None) };
        if pins.uid() == ROOT || !is_dir_of(&pins, pins.uid()) {
            return Ok(None);
        }
        // Nobody else can have given them where only root may write.
        let around = [Some(self.directory.as_path()), self.directory.parent()];
        for directory in around.into_iter().flatten() {
            if !look_at(directory)?.is_some_and(|it| is_dir_of(&it, ROOT)) {
                return Ok(None);
            }
        }
        Ok(Some((pins.uid(), pins.gid())))
    }

    /// Refuses directories that others made or may change. In the one around those of pins, others may only
    /// have things of their own.
    pub(crate) fn check_owners(&self) -> Result<()> {
        let owner = self.given_to()?.map_or_else(sys::user, |(user, _)| user);
        let top = match fs::metadata(&self.directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            top => top.map_err(|error| {
                Error::system(format!("look at {}", self.directory.display()), error)
            })?,
        };
        let is_shared = top.permissions().mode() & 0o022 != 0;
        let is_sticky = top.permissions().mode() & 0o1000 != 0;
        if ![owner, ROOT].contains(&top.uid()) || is_shared && !is_sticky {
            return Err(Error::Unsafe { directory: self.directory.clone() });
        }
        for directory in self.directories() {
            if look_at(&directory)?.is_some_and(|it| !is_dir_of(&it, owner)) {
                return Err(Error::Unsafe { directory });
            }
        }
        Ok(())
    }

    /// Gives what root just made to the user who has the instance.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn hand_over(&self, path: &Path) -> Result<()> {
        match self.given_to()? {
            Some((user, group)) => lchown(path, Some(user), Some(group))
                .map_err(|error| Error::system(format!("give {} away", path.display()), error)),
            None => Ok(()),
        }
    }

    /// Gives all maps that root just made to the user who has the instance.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn hand_over_maps(&self) -> Result<()> {
        let maps = self.maps();
        let failed = |error| Error::system(format!("read {}", maps.display()), error);
        for entry in fs::read_dir(&maps).map_err(failed)? {
            self.hand_over(&entry.map_err(failed)?.path())?;
        }
        Ok(())
    }

    /// Whether this process can do without the rights of root over files of other users.
    pub(crate) fn are_own(&self) -> Result<bool> {
        let folder = self.state().parent().and_then(|folder| fs::metadata(folder).ok());
        let is_others = folder.is_some_and(|folder| folder.uid() != sys::user());
        Ok(self.given_to()?.is_none() && !is_others)
    }
}

/// What is at a path itself; nothing if there is nothing.
fn look_at(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found
            .map(Some)
            .map_err(|error| Error::system(format!("look at {}", path.display()), error)),
    }
}

/// Whether it is a directory that only this user may write to.
fn is_dir_of(metadata: &fs::Metadata, user: u32) -> bool {
    metadata.is_dir() && metadata.uid() == user && metadata.permissions().mode() & 0o022 == 0
}
