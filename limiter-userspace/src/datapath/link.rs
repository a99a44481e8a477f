//! Attaching programs to interfaces.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use limiter_common::policy::limit::INTERFACES;

use super::{
    bpffs::{Pins, c_path},
    interface::Interface,
    mode::Mode,
    sys,
};
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
    /// The `XDP_FLAGS_*` for it.
    pub(super) const fn flags(self) -> u32 {
        match self {
            Self::Generic => 1 << 1,
            Self::Native => 1 << 2,
        }
    }
}

impl Link {
    /// Attaches a program.
    pub(crate) fn create(
        program: BorrowedFd<'_>,
        interface: &Interface,
        mode: Mode,
    ) -> Result<Self, Refusal> {
        sys::create_xdp_link(program, interface.index, mode.flags()).map(Self).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST) => match interface.program() {
                    Some(program) => Refusal::Final(Error::ForeignProgram {
                        interface: interface.name.clone(),
                        program,
                    }),
                    // The driver is busy with something else.
                    None => Refusal::Mode(error),
                },
                Some(libc::EPERM | libc::EACCES | libc::ENODEV | libc::ENOMEM) => {
                    Refusal::Final(Error::system(format!("attach to {}", interface.name), error))
                }
                _ => Refusal::Mode(error),
            }
        })
    }

    /// Opens a pinned link; `None` when there is none.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        match sys::open(&c_path(path.as_os_str())?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            link => link
                .map(|link| Some(Self(link)))
                .map_err(|error| Error::system(format!("open the link {}", path.display()), error)),
        }
    }

    /// Pins it as that of a slot.
    pub(crate) fn pin(&self, pins: &Pins, slot: u32) -> Result<()> {
        pins.pin(self.0.as_fd(), &pins.link(slot))
    }

    /// The index of the interface; `None` once it is gone.
    pub(crate) fn interface(&self) -> Result<Option<u32>> {
        let index = self.look()?.interface;
        Ok((index != 0).then_some(index))
    }

    /// The number of its program.
    pub(crate) fn program(&self) -> Result<u32> {
        Ok(self.look()?.program)
    }

    /// Its own number, which no other link gets for a long time.
    pub(crate) fn id(&self) -> Result<u32> {
        Ok(self.look()?.id)
    }

    fn look(&self) -> Result<sys::XdpLink> {
        sys::xdp_link(self.0.as_fd()).map_err(|error| Error::system("look at a link", error))
    }

    /// Puts another program in the place of the one that runs, between two packets.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>) -> Result<()> {
        sys::update_link(self.0.as_fd(), program)
            .map_err(|error| Error::system("replace the program of a link", error))
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
}

/// Whether there is an instance: one has the link of an interface, even of one that is gone. Maps
/// alone are what an attach has made so far, or left.
///
/// # Errors
/// What the system says.
pub(crate) fn exists(pins: &Pins) -> Result<bool> {
    Ok(pinned_links(pins)?.next().is_some())
}

/// The links that are pinned, with their slots.
///
/// # Errors
/// What the system says.
pub(super) fn pinned_links(pins: &Pins) -> Result<impl Iterator<Item = (u32, Link)> + use<>> {
    let mut links = Vec::new();
    for slot in 0..INTERFACES {
        if let Some(link) = Link::open(&pins.link(slot))? {
            links.push((slot, link));
        }
    }
    Ok(links.into_iter())
}
