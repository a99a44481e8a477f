//! One agent at a time sees to an instance.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::MetadataExt as _,
};

use super::{bpffs::Pins, sys};
use crate::error::{Error, Result};

/// The claim of an agent to an instance, until it is dropped or the process ends. It is a lock on the
/// directory of programs: the [rights](super::lock::Right) of commands are locks on others.
#[derive(Debug)]
pub(crate) struct Claim {
    directory: File,
}

impl Claim {
    /// Takes the claim; `None` when there is no instance.
    ///
    /// # Errors
    /// [`Error::OtherAgent`], or what the system says.
    pub(crate) fn take(pins: &Pins) -> Result<Option<Self>> {
        let path = pins.programs();
        let failed = |error| Error::system(format!("lock {}", path.display()), error);
        let directory = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            directory => directory.map_err(failed)?,
        };
        match sys::try_lock(&directory).map_err(failed)? {
            true => Ok(Some(Self { directory })),
            false => Err(Error::OtherAgent { directory: pins.directory().to_path_buf() }),
        }
    }

    /// Whether it is about the instance that is there now: another one has another directory.
    pub(crate) fn holds(&self, pins: &Pins) -> bool {
        let (Ok(own), Ok(now)) = (self.directory.metadata(), fs::metadata(pins.programs())) else {
            return false;
        };
        (own.dev(), own.ino()) == (now.dev(), now.ino())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_has_it_and_the_other_gets_it_when_that_one_is_gone() {
        let folder = std::env::temp_dir().join(format!("limiter-claim-{}", std::process::id()));
        let pins = Pins::new(&folder);
        assert!(Claim::take(&pins).unwrap().is_none());
        fs::create_dir_all(pins.programs()).unwrap();
        let first = Claim::take(&pins).unwrap().unwrap();
        assert!(matches!(Claim::take(&pins), Err(Error::OtherAgent { .. })));
        assert!(first.holds(&pins));
        drop(first);
        let second = Claim::take(&pins).unwrap().unwrap();
        fs::remove_dir(pins.programs()).unwrap();
        assert!(!second.holds(&pins));
        fs::create_dir(pins.programs()).unwrap();
        // The new directory is another one.
        assert!(Claim::take(&pins).unwrap().is_some());
        fs::remove_dir_all(folder).unwrap();
    }
}
