//! What the datapath did so far, as plain values.

use std::{net::IpAddr, time::Instant};

use limiter_common::{abi::counters::LimitTally, base::tally::Tally, packet::reason::REASONS};

use super::{mode::Mode, monitoring::Monitoring};

/// The statistics of an instance at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was taken.
    pub taken: Instant,
    /// Whether anything is dropped.
    pub monitoring: Monitoring,
    /// The attached interfaces, in the order of their slots.
    pub interfaces: Vec<InterfaceStatistics>,
    /// Frames of all interfaces by [`Reason::index`](limiter_common::packet::reason::Reason::index); their
    /// sum is all that was received.
    pub reasons: [Tally; REASONS],
    /// What each limit admitted and refused on all interfaces, in the order in which limits are
    /// listed; those that are not set have nothing.
    pub limits: Vec<LimitStatistics>,
}

/// What a limit, a further layer of it, or its candidate admitted and refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitStatistics {
    /// Its name.
    pub name: String,
    /// What it did since it was set.
    pub tally: LimitTally,
}

impl InterfaceStatistics {
    /// Where it is, if it is not here.
    pub const fn absence(&self) -> Option<&'static str> {
        match (self.present, self.exists) {
            (true, _) => None,
            (false, true) => Some("in another network namespace"),
            (false, false) => Some("gone"),
        }
    }
}

impl Snapshot {
    /// What a limit did; nothing for one that is not there.
    pub fn tally(&self, name: impl AsRef<str>) -> LimitTally {
        let of = |limit: &&LimitStatistics| limit.name == name.as_ref();
        self.limits.iter().find(of).map_or(LimitTally::default(), |limit| limit.tally)
    }
}

/// The statistics of one interface.
#[derive(Clone, Debug)]
pub struct InterfaceStatistics {
    /// The number of its link, which tells that two readings are of the same one. Those that are gone, or
    /// elsewhere, may have had the same name, it may have another one by now, and its slot may be that of
    /// another that was detached.
    pub link: u32,
    /// Its name; the one it had when it was attached, if it is gone or elsewhere.
    pub name: String,
    /// How the program runs.
    pub mode: Mode,
    /// Whether the interface is there, in this network namespace.
    pub present: bool,
    /// Whether it is there, in any network namespace: packets that come in by it are decided about.
    pub exists: bool,
    /// Whether its dispatcher finds no main program, so that all its packets pass.
    pub unloaded: bool,
    /// What passed.
    pub passed: Tally,
    /// What was dropped.
    pub dropped: Tally,
}

/// A source and what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talker {
    /// The address of the source, or of its prefix.
    pub address: IpAddr,
    /// The prefix length that makes a source of its family.
    pub prefix: u8,
    /// What passed.
    pub passed: Tally,
    /// What was dropped.
    pub dropped: Tally,
}
