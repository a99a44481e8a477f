//! Attaching an interface by the programs for packets in several pieces.

use std::os::fd::AsFd as _;

use super::{Attached, Instance, create, refused};
use crate::{
    datapath::{
        interface::{self, Interface},
        link::Link,
        main_program,
        mode::Mode,
        program::Program,
        sys::{self, SignalsDeferred},
    },
    error::{Error, Result},
};

impl Instance {
    /// Attaches in native mode by the programs for packets in several pieces, or says why the interface does not take them.
    pub(super) fn try_frags(
        &self,
        slot: u32,
        interface: &Interface,
    ) -> Result<Result<(Link, Program), std::io::Error>> {
        let passing = match sys::load_passing_program(true) {
            Ok(passing) => passing,
            Err(error) => return Ok(Err(error)),
        };
        match create(passing.as_fd(), interface, Mode::Native)? {
            Ok(link) => Ok(Ok(self.put_behind(link, slot, true)?)),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Attaches an interface again, by the programs for packets in several pieces: veth says how large its MTU may be only when
    /// it gets its first program. All packets pass for the moment between the two links.
    ///
    /// # Errors
    /// Why it cannot be; the programs for packets in one piece are attached again then. [`Error::Detached`] if they cannot be
    /// either.
    pub(super) fn attach_anew(&self, link: &Link, attached: &Attached) -> Result<()> {
        let slot = attached.slot;
        let Some(interface) = interface::list()?.into_iter().find(|it| it.index == attached.index)
        else {
            return self.replace_by(link, slot, true);
        };
        main_program::ensure(&self.pins, true)?;
        let mut kinds = [
            Program::load_dispatcher(&self.pins, slot, true)?,
            Program::load_dispatcher(&self.pins, slot, false)?,
        ];
        let detached = |cause| {
            let interface = interface.name.clone();
            Error::Detached { interface, source: Box::new(cause) }
        };
        // A process that ended in between would leave the interface without limits.
        let _deferred = SignalsDeferred::stops_and_ends();
        // Its pin stays until that of the new link takes its place: what has no link is no instance, and the next attach would
        // remove its policy and state.
        link.detach()?;
        let mut failure = None;
        for dispatcher in &mut kinds {
            // While nothing is attached, the driver can be asked why.
            let created = dispatcher.with_fd(|fd| create(fd, &interface, Mode::Native));
            let link = created.and_then(|created| {
                created?.map_err(|reason| refused(&interface, Mode::Native, reason))
            });
            match link {
                Ok(link) => {
                    // Before anything else can fail, as the program is detached with the last reference to its link.
                    link.pin(&self.pins, slot).map_err(detached)?;
                    dispatcher.pin(&self.pins, slot)?;
                    return failure.map_or(Ok(()), Err);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), |cause| Err(detached(cause)))
    }
}
