//! Questions about single sources and packets, answered from the maps of a running instance.
//!
//! Nothing here changes any state. What decides is the core that runs in the kernel, on copies of
//! what the program would find in its maps.

pub mod blocked;
pub mod capture;
mod conditions;
mod decide;
mod entries;
pub mod error;
pub mod explain;
mod fill;
pub mod fragments;
pub mod frame;
mod keys;
pub mod limit;
pub mod lists;
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

/// How often a question is asked anew because the policy changed meanwhile.
const TRIES: usize = 8;

/// Nanoseconds of the clock that packets go by.
pub fn now() -> u64 {
    lookup::now()
}

/// An instance that is asked.
pub struct Inquiry<'a> {
    maps: &'a Maps,
    tables: Tables<'a>,
    entries: Entries,
}

/// What would become of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The reason that it would be counted under, which says whether it passes.
    pub reason: Reason,
    /// What the reason would be if packets were dropped.
    pub enforced: Reason,
    /// The limit that refuses it.
    pub limit: Option<String>,
    /// The limits that would refuse it if they were enforced.
    pub exceeded: Vec<String>,
    /// The limits that it would be charged to.
    pub charged: Vec<String>,
}

impl<'a> Inquiry<'a> {
    /// Asks an instance at a time, in nanoseconds of the clock that its packets go by.
    ///
    /// # Errors
    /// What the system says, or why the policy cannot be read.
    pub fn new(maps: &'a Maps, now: u64) -> Result<Self> {
        Ok(Self { maps, tables: Tables::at(maps, now)?, entries: Entries::read(maps)? })
    }

    /// What would become of a frame that came in by the interface in a slot.
    ///
    /// # Errors
    /// What the system says, or [`InquiryError::Changing`].
    pub fn verdict(&mut self, frame: &Sighting<'_>, slot: u32, now: u64) -> Result<Verdict> {
        self.verdict_after(&Fragments::default(), now, frame, slot, now)
    }

    /// The same after other frames, of which the first fragments are known. It came in `at` a time, in nanoseconds, as far
    /// as these go.
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

    /// Asks until the policy was the same from the beginning of an answer to its end, and so was
    /// whether anything is dropped. An answer of nothing says that it was not.
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
