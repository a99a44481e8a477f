//! State that is kept by keys of its own, and what is remembered of sources and connections.

use crate::{
    base::address::Address,
    memory::{handshake, offence},
    policy::{limit::BucketKey, penalty::Offence},
};

/// A set of records of new connections that were admitted, in one cache line.
pub type SynSet = [handshake::Record; handshake::WAYS];

/// What the offence of a source is found by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OffenceKey {
    /// The source.
    pub source: Address,
    /// See [`Penalty::limit`](crate::policy::penalty::Penalty::limit).
    pub limit: u32,
}

impl OffenceKey {
    /// Words of 32 bits in it.
    pub const WORDS: usize = size_of::<Self>() / size_of::<u32>();
}

/// The offence of a source against a limit, in one line of the [table](crate::memory::offence). All bits are zero where there
/// is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffenceRecord {
    /// Whose it is.
    pub key: OffenceKey,
    /// What is known. Of a block that was pushed, two words are its [`Ends`](super::push::Ends).
    pub offence: Offence,
}

/// The first line of a set of [records](OffenceRecord).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffenceHead {
    /// 1 while a CPU makes or changes a record of the set, otherwise 0.
    pub lock: u64,
    /// The tags of the lines; that of this one is 0.
    pub tags: [u16; offence::LINES as usize],
    /// Until when no room is looked for, as all blocks of the set run, in nanoseconds; see
    /// [`is_full`](offence::is_full).
    pub full_until: u64,
    /// 0, so that it is as long as a record.
    pub unused: [u64; 2],
}

/// The state of a limit for one key, in one cache line. What its word is measured in is at the same place of
/// [`map::MEASURES`](crate::abi::layout::map::MEASURES).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// See [`Binding`](crate::algorithm::binding::Binding); of the number of the meter instead of a profile.
    pub binding: u64,
    /// The word. Of a key with a [`WideState`], the control word of its
    /// [`SlidingLog`](crate::algorithm::sliding_log::SlidingLog), or the [stamp](crate::algorithm::concurrent::Concurrent::stamp)
    /// of its connections.
    pub word: u64,
    /// Whose it is. It changes only after the binding, which is locked until it is changed.
    pub key: BucketKey,
}

/// What the state of a limit that takes more than a word has beside its [`Bucket`], for one key; all zero at first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideState {
    /// The slots of a [`SlidingLog`](crate::algorithm::sliding_log::SlidingLog) or of [`Concurrent`](crate::algorithm::concurrent::Concurrent).
    pub slots: [u64; SLOTS],
}

impl Default for WideState {
    fn default() -> Self {
        Self { slots: [0; SLOTS] }
    }
}

/// Slots of a [`WideState`].
pub const SLOTS: usize = 128;
