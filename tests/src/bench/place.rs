//! Interfaces to which programs are attached while they run.
//!
//! A program is attached to an interface that is down for its whole turn. Otherwise the kernel would change
//! its dispatcher for XDP programs twice for every batch, and wait for all CPUs each time.

use anyhow::{Context as _, Result};
use aya::programs::{
    Xdp, XdpMode,
    xdp::{XdpLink, XdpLinkId},
};
use limiter_userspace::datapath::interface::Interface;

/// An interface for the program that is running.
pub(crate) struct Place {
    index: u32,
    /// The link moves from program to program. A closed link may live on for a moment, because any process
    /// that lists the links of the machine holds references to them.
    link: Option<XdpLink>,
}

impl Place {
    /// Finds the interface in the network namespace of the thread.
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

    /// Takes the link back from the program, for the next one.
    pub(crate) fn leave(&mut self, program: &mut Xdp, held: XdpLinkId) -> Result<()> {
        self.link = Some(program.take_link(held)?);
        Ok(())
    }
}
