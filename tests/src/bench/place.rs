//! Where programs are attached while they run.
//!
//! In its turn a program is attached to an interface that is down: the kernel has a table of jumps to
//! attached programs, and would otherwise change it twice, and wait for all CPUs, for every batch.

use anyhow::{Context as _, Result};
use aya::programs::{
    Xdp, XdpMode,
    xdp::{XdpLink, XdpLinkId},
};
use limiter_userspace::datapath::interface::Interface;

/// An interface for the program whose turn it is.
pub(crate) struct Place {
    index: u32,
    /// It goes from program to program, because one that is closed may live on for a moment: any
    /// process that lists the links of the machine holds them.
    link: Option<XdpLink>,
}

impl Place {
    /// The interface of this name, in the network namespace of the thread.
    pub(crate) fn new(interface: &str) -> Result<Self> {
        Ok(Self { index: Interface::find(interface)?.index, link: None })
    }

    /// Attaches a program.
    pub(crate) fn take(&mut self, program: &mut Xdp) -> Result<XdpLinkId> {
        let held = match self.link.take() {
            Some(link) => program.attach_to_link(link),
            None => program.attach_to_if_index(self.index, XdpMode::Driver),
        };
        held.context("cannot attach a program to an interface that is down")
    }

    /// Keeps the link for the next one.
    pub(crate) fn leave(&mut self, program: &mut Xdp, held: XdpLinkId) -> Result<()> {
        self.link = Some(program.take_link(held)?);
        Ok(())
    }
}
