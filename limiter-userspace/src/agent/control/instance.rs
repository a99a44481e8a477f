//! The instance that is asked about, as it is opened.

use crate::{
    datapath::{bpffs::Pins, link::exists, maps::Maps, program::Clock, pushes::Pusher},
    error::{Error, Result},
    output::{
        lists::{Penalties, PenaltyEntry},
        source,
        stream::Output,
    },
    query::{self, Inquiry},
};
use std::{
    fmt,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The maps of an instance, and the program that pushes blocks. Both stay open, and are opened anew where the instance is another
/// one.
pub(in crate::agent) struct Opened {
    pins: Pins,
    maps: Option<Maps>,
    pusher: Option<Pusher>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("pins", &self.pins).finish_non_exhaustive()
    }
}

impl Opened {
    pub(in crate::agent) const fn new(pins: Pins) -> Self {
        Self { pins, maps: None, pusher: None }
    }

    /// The maps.
    ///
    /// # Errors
    /// [`Error::NoInstance`], or as [`Maps::open`].
    fn maps(&mut self) -> Result<&Maps> {
        let is_current = match &self.maps {
            Some(maps) => maps.are_pinned(&self.pins.in_use()?)?,
            None => false,
        };
        if !is_current {
            self.maps = None;
            if !exists(&self.pins)? {
                return Err(self.none());
            }
        }
        match &mut self.maps {
            Some(maps) => Ok(maps),
            none => Ok(none.insert(Maps::open(&self.pins)?)),
        }
    }

    /// The program that pushes blocks.
    ///
    /// # Errors
    /// [`Error::NoInstance`], or as [`Pusher::open`].
    pub(in crate::agent) fn pusher(&mut self) -> Result<&mut Pusher> {
        self.pusher_by(Pusher::open)
    }

    /// The program that pushes blocks, opened like this unless it is.
    fn pusher_by(
        &mut self,
        open: impl FnOnce(&Pins, Clock) -> Result<Option<Pusher>>,
    ) -> Result<&mut Pusher> {
        let is_current = match &self.pusher {
            Some(pusher) => pusher.maps().are_pinned(&self.pins.in_use()?)?,
            None => false,
        };
        if !is_current {
            self.pusher = None;
        }
        if self.pusher.is_none() && exists(&self.pins)? {
            self.pusher = open(&self.pins, Clock::Monotonic)?;
        }
        let none = self.none();
        self.pusher.as_mut().ok_or(none)
    }

    fn none(&self) -> Error {
        Error::NoInstance { directory: self.pins.directory().to_path_buf() }
    }

    /// The program that pushes blocks, where the policy in force has a row for them: without it, none was pushed. No other policy
    /// is put in force.
    ///
    /// # Errors
    /// As [`maps`](Self::maps), or as [`Pusher::load`].
    pub(in crate::agent) fn lifter(&mut self) -> Result<Option<&mut Pusher>> {
        if !self.maps()?.take_pushes()? {
            return Ok(None);
        }
        self.pusher_by(|pins, clock| Pusher::load(pins, clock).map(Some)).map(Some)
    }

    /// What `limiter get ADDRESS -j` prints; `None` if nothing is known of the source.
    ///
    /// # Errors
    /// As [`maps`](Self::maps), or as [`Inquiry::source`].
    pub(super) fn source(&mut self, address: IpAddr) -> Result<Option<Vec<u8>>> {
        let (maps, now) = (self.maps()?, query::now());
        let report = Inquiry::new(maps, now)?.source(address.into(), now)?;
        let is_known = report.known || report.lists.penalty.is_some();
        is_known.then(|| printed(|output| source::print(output, &report))).transpose()
    }

    /// What `limiter penalty list -j` prints.
    ///
    /// # Errors
    /// As [`maps`](Self::maps).
    pub(super) fn penalties(&mut self) -> Result<Penalties> {
        let (maps, at) = (self.maps()?, query::now());
        let blocked = Inquiry::new(maps, at)?.blocked(at)?;
        Ok(PenaltyEntry::all(maps.in_force()?.layered(), &blocked, unix()).into())
    }
}

/// Unix time.
fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What is printed in JSON.
fn printed(
    print: impl FnOnce(&mut Output<&mut Vec<u8>>) -> Result<(), crate::output::stream::OutputError>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut output = Output::new(&mut bytes, true, false);
    print(&mut output)?;
    output.flush()?;
    drop(output);
    Ok(bytes)
}
