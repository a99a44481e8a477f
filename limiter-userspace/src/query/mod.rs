//! Questions about single sources and packets, answered from the maps of a running instance.
//!
//! No query changes any state. The decisions come from `limiter-common`, the code that also runs in
//! the kernel, applied to copies of the map values that the program would find.

pub mod blocked;
pub mod capture;
mod conditions;
mod decide;
pub mod dropped;
mod entries;
pub mod error;
pub mod explain;
mod fill;
pub mod fragments;
pub mod frame;
mod keys;
pub mod limit;
pub mod lists;
pub mod request;
pub mod sample;
pub mod source;
mod spread;
mod standing;
mod state;
mod tables;
pub mod target;
mod thinned;
mod wide;
pub mod words;

use limiter_common::packet::reason::Reason;

use self::{
    decide::{Ruling, decide},
    entries::Entries,
    fragments::Fragments,
    frame::Sighting,
    tables::Tables,
};
pub use self::{error::InquiryError, fill::Fill};
use crate::{
    datapath::{lookup, maps::Maps},
    error::Result,
};

/// How many times a question is asked again because the policy changed during the answer.
const TRIES: usize = 8;

/// Reads the monotonic clock that the datapath uses, in nanoseconds.
pub fn now() -> u64 {
    lookup::now()
}

/// A running instance, and what was read of its policy.
pub struct Inquiry<'a> {
    maps: &'a Maps,
    tables: Tables<'a>,
    entries: Entries,
}

/// What the datapath would do with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The reason that the packet would be counted under; it says whether the packet passes.
    pub reason: Reason,
    /// The reason if the instance were not in monitor mode.
    pub enforced: Reason,
    /// The limit that refuses the packet; `None` if no limit does.
    pub limit: Option<String>,
    /// The limits that the packet exceeds, and that only monitor.
    pub exceeded: Vec<String>,
    /// The limits that the packet would be charged to.
    pub charged: Vec<String>,
}

impl<'a> Inquiry<'a> {
    /// Reads the policy that is in force at `now`, in nanoseconds of the [datapath's clock](now).
    ///
    /// # Errors
    /// Fails if a map cannot be read, or if the stored policy cannot be read back.
    pub fn new(maps: &'a Maps, now: u64) -> Result<Self> {
        Ok(Self { maps, tables: Tables::at(maps, now)?, entries: Entries::read(maps)? })
    }

    /// Returns the verdict on a frame that comes in at `now` by the interface in `slot`. Frames
    /// that were asked about before do not count.
    ///
    /// # Errors
    /// Fails if a map cannot be read, and with [`InquiryError::Changing`] if the policy changed
    /// during every attempt.
    pub fn verdict(&mut self, frame: &Sighting<'_>, slot: u32, now: u64) -> Result<Verdict> {
        self.verdict_after(&Fragments::default(), now, frame, slot, now)
    }

    /// Like [`verdict`](Self::verdict), for a frame that follows other frames, whose first
    /// fragments are noted in `fragments`. `at` is the time at which the frame came in, in
    /// nanoseconds of the datapath's clock; fragments expire by it. All other state is read as of
    /// `now`.
    ///
    /// # Errors
    /// As [`verdict`](Self::verdict).
    pub fn verdict_after(
        &mut self,
        fragments: &Fragments,
        at: u64,
        frame: &Sighting<'_>,
        slot: u32,
        now: u64,
    ) -> Result<Verdict> {
        self.steadily(now, |inquiry| {
            let ruling = decide(&inquiry.tables, Some((fragments, at)), frame, slot, now)?;
            Ok(ruling.map(|ruling| inquiry.verdict_of(&ruling)))
        })
    }

    fn verdict_of(&self, ruling: &Ruling) -> Verdict {
        let names = |set: u64| -> Vec<String> {
            self.entries.iter().filter(|it| it.bit & set != 0).map(|it| it.name.clone()).collect()
        };
        Verdict {
            reason: ruling.reason,
            enforced: ruling.enforced,
            limit: names(ruling.refused).pop(),
            exceeded: names(ruling.exceeded),
            charged: names(ruling.charged),
        }
    }

    /// Asks until one policy and one setting of the monitor switch were in force during the whole
    /// answer, at most [`TRIES`] times. `ask` returns `None` when it saw an entry that is locked, or
    /// that is bound to a newer policy.
    fn steadily<T>(&mut self, now: u64, ask: impl Fn(&Self) -> Result<Option<T>>) -> Result<T> {
        for _ in 0..TRIES {
            let current = |inquiry: &Self| -> Result<bool> {
                let Tables { epoch, monitoring, .. } = inquiry.tables;
                Ok(inquiry.maps.monitoring_at(now)? == (epoch, monitoring))
            };
            if current(self)?
                && let Some(answer) = ask(self)?
                && current(self)?
            {
                return Ok(answer);
            }
            *self = Self::new(self.maps, now)?;
        }
        Err(InquiryError::Changing.into())
    }
}
