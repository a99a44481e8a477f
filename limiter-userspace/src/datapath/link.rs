//! Attaching programs to interfaces.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use super::{bpffs::c_path, interface::Interface, mode::Mode, sys};
use crate::error::{Error, Result};

/// A link between an interface and a program; it lives as long as it is pinned or open.
pub(crate) struct Link(OwnedFd);

/// Why an interface does not take a program.
pub(crate) enum Refusal {
    /// Not in this mode; another may do.
    Mode(io::Error),
    /// Not at all.
    Final(Error),
}

impl Mode {
    const fn flags(self) -> u32 {
        match self {
            Self::Generic => 1 << 1,
            Self::Native => 1 << 2,
            Self::Hardware => 1 << 3,
        }
    }
}

impl Link {
    /// Attaches a program.
    pub(crate) fn create(
        program: std::os::fd::BorrowedFd<'_>,
        interface: &Interface,
        mode: Mode,
    ) -> Result<Self, Refusal> {
        sys::create_xdp_link(program, interface.index, mode.flags()).map(Self).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST) => Refusal::Final(Error::ForeignProgram {
                    interface: interface.name.clone(),
                    program: interface.program(),
                }),
                Some(libc::EPERM | libc::EACCES | libc::ENODEV | libc::ENOMEM) => {
                    Refusal::Final(Error::system(format!("attach to {}", interface.name), error))
                }
                _ => Refusal::Mode(error),
            }
        })
    }

    /// Opens a pinned link.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        sys::open(&c_path(path.as_os_str())?)
            .map(Self)
            .map_err(|error| Error::system(format!("open the link {}", path.display()), error))
    }

    pub(crate) fn pin(&self, path: &Path) -> Result<()> {
        sys::pin(self.0.as_fd(), &c_path(path.as_os_str())?)
            .map_err(|error| Error::system(format!("pin the link {}", path.display()), error))
    }

    /// The index of the interface; `None` once it is gone.
    pub(crate) fn interface(&self) -> Result<Option<u32>> {
        let (_, index) = self.info()?;
        Ok((index != 0).then_some(index))
    }

    /// Puts another program in the place of the one that runs, between two packets.
    pub(crate) fn replace(&self, program: std::os::fd::BorrowedFd<'_>) -> Result<()> {
        let failed = |error| Error::system("replace the program of a link", error);
        let (old, _) = self.info()?;
        let old = sys::program(old).map_err(failed)?;
        sys::update_link(self.0.as_fd(), program, old.as_fd()).map_err(failed)
    }

    /// Detaches the program at once. An interface that is gone has none.
    pub(crate) fn detach(&self) -> Result<()> {
        match sys::detach_link(self.0.as_fd()) {
            Err(error) if self.interface()?.is_some() => {
                Err(Error::system("detach a program", error))
            }
            _ => Ok(()),
        }
    }

    fn info(&self) -> Result<(u32, u32)> {
        sys::xdp_link(self.0.as_fd()).map_err(|error| Error::system("look at a link", error))
    }
}
