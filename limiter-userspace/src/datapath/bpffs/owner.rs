//! Whose an instance is: of the user who made it, or of the one that root gave its directory to, as to a
//! service that is not root. What root does to that one stays usable for its owner.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown},
    path::Path,
};

use super::{Pins, exists};
use crate::{
    datapath::sys,
    error::{Error, Result},
};

const ROOT: u32 = 0;

impl Pins {
    /// The user and group that root gave the directory of the instance to, if this process is root's.
    /// Nobody else can have done that where only root may write.
    pub(super) fn given_to(&self) -> Result<Option<(u32, u32)>> {
        if sys::user() != ROOT {
            return Ok(None);
        }
        let directory = look_at(&self.directory)?;
        if directory.uid() == ROOT || !is_dir_of(&directory, directory.uid()) {
            return Ok(None);
        }
        let around = look_at(self.directory.parent().unwrap_or_else(|| Path::new("/")))?;
        Ok(is_dir_of(&around, ROOT).then(|| (directory.uid(), directory.gid())))
    }

    /// Refuses directories that others made or may change. In the one around those of pins, others may only
    /// have things of their own.
    pub(super) fn check_owners(&self) -> Result<()> {
        let owner = self.given_to()?.map_or_else(sys::user, |(user, _)| user);
        let top = fs::metadata(&self.directory).map_err(|error| {
            Error::system(format!("look at {}", self.directory.display()), error)
        })?;
        let is_shared = top.permissions().mode() & 0o022 != 0;
        let is_sticky = top.permissions().mode() & 0o1000 != 0;
        if ![owner, ROOT].contains(&top.uid()) || is_shared && !is_sticky {
            return Err(Error::Unsafe { directory: self.directory.clone() });
        }
        for directory in self.directories() {
            if !is_dir_of(&look_at(&directory)?, owner) {
                return Err(Error::Unsafe { directory });
            }
        }
        Ok(())
    }

    /// Gives what root just made to the user who has the instance.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn hand_over(&self, path: &Path) -> Result<()> {
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
        let [_, _, maps] = self.directories();
        let failed = |error| Error::system(format!("read {}", maps.display()), error);
        for entry in fs::read_dir(&maps).map_err(failed)? {
            self.hand_over(&entry.map_err(failed)?.path())?;
        }
        Ok(())
    }

    /// Whether this process can do without the rights of root over files of other users.
    pub(crate) fn are_own(&self) -> Result<bool> {
        Ok(!exists(&self.directory)? || self.given_to()?.is_none())
    }
}

fn look_at(path: &Path) -> Result<fs::Metadata> {
    fs::symlink_metadata(path)
        .map_err(|error| Error::system(format!("look at {}", path.display()), error))
}

/// Whether it is a directory that only this user may write to.
fn is_dir_of(metadata: &fs::Metadata, user: u32) -> bool {
    metadata.is_dir() && metadata.uid() == user && metadata.permissions().mode() & 0o022 == 0
}
