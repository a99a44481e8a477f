//! What is counted, on each CPU.

use crate::{
    base::tally::Tally,
    packet::reason::{DECIDED, REASONS, Reason},
};

/// What a limit admitted and refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitTally {
    /// Packets that were charged to it.
    pub conform: Tally,
    /// Packets that it refused: they were dropped.
    pub exceed: Tally,
    /// Packets that it would have refused; it, or everything, is only monitored.
    pub monitored: Tally,
    /// Of those that were charged to it, the ones that left it [near](crate::algorithm::near).
    pub near: Tally,
}

impl LimitTally {
    /// Packets that were over it, dropped or not.
    pub const fn over(&self) -> Tally {
        self.exceed.plus(self.monitored)
    }
}

/// Who came into the table of sources, of buckets or of offences, and who had to go, on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Entries that were given to sources, or keys, without one.
    pub inserted: u64,
    /// Packets of sources that were admitted as [newcomers](crate::table::probation), without an entry; or that were charged to
    /// the bucket that the keys without an entry share; or whose offence found no room.
    pub untracked: u64,
    /// Entries of these that were taken from another, which owed nothing.
    pub evicted_idle: u64,
    /// The same from one that owed, for a single packet, or only to limits that are gone or changed since; and
    /// newcomers that took the place of another, which owed.
    pub evicted_owing: u64,
}

/// The counters that the main program keeps of an interface, on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounters {
    /// Every frame that was decided about, once, at [`Reason::index`].
    pub reasons: [Tally; DECIDED],
}

/// The counters of an interface: those of the main program and of the dispatcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Every frame, once, at [`Reason::index`].
    pub reasons: [Tally; REASONS],
}

impl Counters {
    /// Adds what one CPU counted.
    pub fn add(&mut self, decided: &SlotCounters, unloaded: Tally) {
        let more = decided.reasons.into_iter().chain([unloaded]);
        for (sum, more) in self.reasons.iter_mut().zip(more) {
            *sum = sum.plus(more);
        }
    }
}

const _: () = assert!(Reason::Unloaded.index() + 1 == REASONS);
