//! The table of sources, as it lies in memory.

use crate::{
    base::{address::Address, tally::Tally},
    memory::pending::PendingTally,
    policy::limit::INLINE,
};

/// Entries of a set.
pub const WAYS: usize = 16;

/// A set of the table of sources, which is all in one cache line that it takes to tell that a source is
/// not known, and to admit its first packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The [`tags`](crate::table::set::Place::tag) of its ways; 0 for those that are free.
    pub tags: [u8; WAYS],
    /// Sources that have no entry yet, and the lock of the set.
    pub probation: Probation,
}

/// What is noted of the entries of a set; see [`DebtUntil`](crate::table::set::DebtUntil).
pub type Debts = [u32; WAYS];

/// The words of a [`JiffyClock`](crate::memory::jiffy::JiffyClock).
pub type JiffyClock = [u64; 2];

/// Probation of a set; a power of two.
pub const PROBATION_SLOTS: usize = 2;

/// Sources that have sent a single packet, see [`newcomer`](crate::table::probation). Packets read or write
/// anything here but the state under the lock of the set alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probation {
    /// See [`SetState`](crate::table::probation::SetState).
    pub state: u64,
    /// When their packets came, in nanoseconds.
    pub times: [u64; PROBATION_SLOTS],
    /// The first two words of their addresses, which have no others.
    pub sources: [[u32; 2]; PROBATION_SLOTS],
    /// See [`ProbationFacts`](crate::table::probation::ProbationFacts).
    pub facts: [u32; PROBATION_SLOTS],
}

/// The state of a source. What every packet needs is in the first two of four cache lines, with what a refused one
/// needs beside that at the beginning of the third.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// See [`Binding`](crate::algorithm::binding::Binding); 0 for an entry that was never used.
    pub binding: u64,
    /// Whose it is. It changes only after the binding, which is locked until it is changed.
    pub address: Address,
    /// Packets when it was last asked to make room, the low bits of their number.
    pub known: u32,
    /// The words of the inline limits.
    pub words: [u64; INLINE],
    /// What passed and is not in the totals yet, a [`PendingTally`].
    pub pending: u64,
    /// A [`Block`](crate::policy::penalty::Block) because it stayed over a limit: the longest that its
    /// [`Offence`](crate::abi::state::Offence)s say, of limits with penalties that are about it under the policy that it is bound
    /// to. That of [`shared::UNTRACKED`](crate::abi::layout::shared::UNTRACKED) is until when any source is blocked, or was, in nanoseconds.
    pub blocked: u64,
    /// What was dropped.
    pub dropped: Tally,
    /// What passed.
    pub passed: Tally,
    /// When it was refused last, see [`Episode::last`](crate::memory::event::Episode::last).
    pub refused: u64,
    /// When that was told last, see [`Episode::told`](crate::memory::event::Episode::told).
    pub told: u64,
    /// The scales of the words.
    pub scales: [u64; INLINE],
    /// The [`limit_ids`](crate::policy::limit::Limit::limit_id) of the limits that they are of.
    pub limit_ids: [u32; INLINE],
}

impl Source {
    /// The same with all that passed in one place.
    pub const fn settled(mut self) -> Self {
        let recent = PendingTally(self.pending);
        let Tally { packets, bytes } = recent.tally();
        self.passed.packets = self.passed.packets.wrapping_add(packets);
        self.passed.bytes = self.passed.bytes.wrapping_add(bytes);
        self.pending = 0;
        self
    }

    /// A source that was not bound yet.
    pub const NEW: Self = Self {
        binding: 0,
        address: Address::NONE,
        known: 0,
        words: [0; INLINE],
        pending: 0,
        passed: Tally { packets: 0, bytes: 0 },
        dropped: Tally { packets: 0, bytes: 0 },
        blocked: 0,
        scales: [0; INLINE],
        limit_ids: [0; INLINE],
        refused: 0,
        told: 0,
    };
}
