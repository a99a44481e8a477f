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

/// Sources on probation in a set; a power of two.
pub const PROBATION_SLOTS: usize = 2;

/// Sources that have sent a single packet, see [probation](crate::table::probation). Packets read or write
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

/// The state of a source: two cache lines. The first one has what a packet needs that conforms to two limits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// See [`Binding`](crate::algorithm::binding::Binding); 0 for an entry that was never used.
    pub binding: u64,
    /// Whose it is. It changes only after the binding, which is locked until it is changed.
    pub address: Address,
    /// Packets when it was last asked to make room, the low bits of their number.
    pub known: u32,
    /// The words of the inline limits at the first places.
    pub words: [u64; ENTRY_PLACES],
    /// What passed and is not in the totals yet, a [`PendingTally`].
    pub pending: u64,
    /// A [`Block`](crate::policy::penalty::Block) because it stayed over a limit: the longest that its
    /// [`Offence`](crate::policy::penalty::Offence)s say, of limits with penalties that are about it under the policy that it is bound
    /// to.
    pub blocked: u64,
    /// What was dropped.
    pub dropped: Tally,
    /// What passed.
    pub passed: Tally,
    /// The time in which it is over its limits, an [`Episode`](crate::memory::event::Episode).
    pub episode: u64,
    /// The scales of the words.
    pub scales: [u64; ENTRY_PLACES],
    /// The [`limit_ids`](crate::policy::limit::Limit::limit_id) of the limits that they are of.
    pub limit_ids: [u32; ENTRY_PLACES],
}

/// The inline limits that an entry of a source has room for.
pub const ENTRY_PLACES: usize = 2;

/// The state of the inline limits of a source at further places than its entry has.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FurtherLimits {
    /// As [`Source::words`].
    pub words: [u64; INLINE - ENTRY_PLACES],
    /// As [`Source::scales`].
    pub scales: [u64; INLINE - ENTRY_PLACES],
    /// As [`Source::limit_ids`].
    pub limit_ids: [u32; INLINE - ENTRY_PLACES],
    /// 0.
    pub reserved: u64,
}

/// The word of an inline limit of a source, what it is measured in, and of which limit it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitState {
    /// The word.
    pub word: u64,
    /// The scale of the word.
    pub scale: u64,
    /// See [`Limit::limit_id`](crate::policy::limit::Limit::limit_id).
    pub limit_id: u32,
}

/// All that the tables have of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WholeSource {
    /// Its entry.
    pub entry: Source,
    /// The limits that are not there.
    pub further: FurtherLimits,
}

impl WholeSource {
    /// The state of the inline limit at a place.
    pub const fn limit(&self, place: usize) -> LimitState {
        let Self { entry, further } = self;
        if place < ENTRY_PLACES {
            LimitState {
                word: entry.words[place],
                scale: entry.scales[place],
                limit_id: entry.limit_ids[place],
            }
        } else {
            let place = place - ENTRY_PLACES;
            LimitState {
                word: further.words[place],
                scale: further.scales[place],
                limit_id: further.limit_ids[place],
            }
        }
    }

    /// Sets the state of the inline limit at a place.
    pub const fn set_limit(&mut self, place: usize, state: LimitState) {
        let Self { entry, further } = self;
        if place < ENTRY_PLACES {
            entry.words[place] = state.word;
            entry.scales[place] = state.scale;
            entry.limit_ids[place] = state.limit_id;
        } else {
            let place = place - ENTRY_PLACES;
            further.words[place] = state.word;
            further.scales[place] = state.scale;
            further.limit_ids[place] = state.limit_id;
        }
    }

    /// The words of all inline limits, by place.
    pub fn words(&self) -> [u64; INLINE] {
        core::array::from_fn(|place| self.limit(place).word)
    }

    /// The same with all that passed in one place.
    pub const fn settled(self) -> Self {
        Self { entry: self.entry.settled(), ..self }
    }
}

impl Source {
    /// The same with all that passed in one place.
    pub const fn settled(mut self) -> Self {
        self.passed = self.passed.plus(PendingTally(self.pending).tally());
        self.pending = 0;
        self
    }
}

/// What is known of all sources without an entry. Its fields are where those of a [`Source`] were before layout 30, as
/// layouts share the map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntrackedTotals {
    /// Of older layouts.
    reserved: [u64; 13],
    /// Until when any source is blocked, or was, in nanoseconds.
    pub blocked: u64,
    /// What was dropped.
    pub dropped: Tally,
    /// What passed.
    pub passed: Tally,
    /// Of older layouts.
    reserved_after: [u64; 14],
}
