//! What the kernel half and the user half agree on: the layout of map keys and values, and names.

use core::mem::{offset_of, size_of};

use crate::{
    address::{Address, Mask},
    limit::LIMITS,
    reason::REASONS,
};

/// Version of everything in this module and of the meaning of the words in it. Pinned maps of
/// another version are never used.
pub const LAYOUT_VERSION: u32 = 2;

/// Names of the maps, as pins in the BPF file system. All but the
/// controller's own are in the object file too.
pub mod map {
    /// Array of one [`Head`](super::Head), which can be mapped into memory.
    pub const HEAD: &str = "HEAD";
    /// Array of [`Plan`](crate::plan::Plan), at [`plan_slot`](super::plan_slot).
    pub const PLANS: &str = "PLANS";
    /// Array of LPM tries of overrides, at `epoch & 1`: [`Address`](super::Address) to plan.
    pub const OVERRIDES: &str = "OVERRIDES";
    /// LRU hash of [`Source`](super::Source) by [`Address`](super::Address).
    pub const SOURCES: &str = "SOURCES";
    /// LRU hash of [`Connection`](super::Connection) by [`ConnectionKey`](super::ConnectionKey).
    pub const CONNECTIONS: &str = "CONNECTIONS";
    /// Array of [`Source`](super::Source), at the constants of [`shared`](super::shared).
    pub const SHARED_SOURCES: &str = "SHARED_SOURCES";
    /// Per-CPU array of [`Refused`](crate::refused::Refused), at its
    /// [`slot`](crate::refused::Refused::slot).
    pub const REFUSED: &str = "REFUSED";
    /// Per-CPU array of [`Counters`](super::Counters), at the slot of the interface.
    pub const COUNTERS: &str = "COUNTERS";
    /// Array of one `u64`: the time in ns that a program loaded for tests reads instead of the clock.
    pub const TEST_CLOCK: &str = "TEST_CLOCK";
    /// The controller's: array of [`Interface`](super::Interface), at the slot of the interface.
    pub const INTERFACES: &str = "INTERFACES";
    /// The controller's: hash of the policy document in chunks, at `[epoch & 1, number]`.
    pub const DOCUMENT: &str = "DOCUMENT";
}

/// Constants of the object file that the loader sets.
pub mod global {
    /// `u32`: the slot of the interface that the program is for.
    pub const SLOT: &str = "SLOT";
    /// `u32`: 1 to take the time from [`map::TEST_CLOCK`](super::map::TEST_CLOCK).
    pub const TEST_CLOCK_ENABLED: &str = "TEST_CLOCK_ENABLED";
}

/// Programs in the object file.
pub mod program {
    /// For drivers that hand over packets in one piece.
    pub const LINEAR: &str = "limiter";
    /// For interfaces whose packets may lie in several pieces (kernel 5.18).
    pub const FRAGS: &str = "limiter_frags";
}

/// Entries of [`map::SHARED_SOURCES`].
pub mod shared {
    /// Frames whose source cannot be read.
    pub const UNREADABLE: u32 = 0;
    /// Sources for which no entry could be made.
    pub const OVERFLOW: u32 = 1;
    /// Number of entries.
    pub const LEN: u32 = 2;
}

/// Interfaces that can be attached at once.
pub const INTERFACES: u32 = 64;

/// Bytes of the policy document in one entry of [`map::DOCUMENT`].
pub const CHUNK: usize = 4096;

/// Where plan number `plan` of `epoch` is in [`map::PLANS`]: even and odd epochs take turns, so
/// that the next policy is written beside the one in force.
#[inline(always)]
pub const fn plan_slot(epoch: u32, plan: u32) -> u32 {
    plan * 2 + (epoch & 1)
}

/// What every packet reads first: which policy is in force.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The epoch in force, from 1 on, in the low 32 bits, and [`LAYOUT_VERSION`] in the high ones; 0
    /// before the first policy. Changed by one store.
    pub epoch: u64,
    /// What holds under it, at `epoch & 1`.
    pub settings: [Settings; 2],
}

/// What holds for every packet under a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What of an address makes a source.
    pub mask: Mask,
    /// Whether there are overrides, 0 or 1.
    pub overrides: u32,
    /// Whether any source has a limit, 0 or 1.
    pub limits: u32,
}

/// Packets and bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the Ethernet header on.
    pub bytes: u64,
}

/// The state of a source.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// See [`Binding`](crate::binding::Binding).
    pub binding: u64,
    /// The words of the `syn` and the `source` bucket.
    pub words: [u64; 2],
    /// Their scales.
    pub scales: [u64; 2],
    /// What passed.
    pub passed: Tally,
    /// What was dropped.
    pub dropped: Tally,
}

impl Source {
    /// A source that was not bound yet.
    pub const NEW: Self = Self {
        binding: 0,
        words: [0; 2],
        scales: [0; 2],
        passed: Tally { packets: 0, bytes: 0 },
        dropped: Tally { packets: 0, bytes: 0 },
    };
}

/// A 5-tuple.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    /// The source address.
    pub source: Address,
    /// The destination address, of the same family, in network order as it lies in memory.
    pub destination: [u32; 4],
    /// The source port in the high and the destination port in the low 16 bits.
    pub ports: u32,
    /// The protocol number.
    pub protocol: u32,
}

/// The state of a connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// See [`Binding`](crate::binding::Binding).
    pub binding: u64,
    /// The word of the `connection` bucket.
    pub word: u64,
    /// Its scale.
    pub scale: u64,
}

impl Connection {
    /// A connection that was not bound yet.
    pub const NEW: Self = Self { binding: 0, word: 0, scale: 0 };
}

/// What a limit admitted and refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitTally {
    /// Packets that were charged to it.
    pub conform: Tally,
    /// Packets that were dropped because of it.
    pub exceed: Tally,
}

/// The counters of an interface, on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Every frame, once, at [`Reason::index`](crate::reason::Reason::index).
    pub reasons: [Tally; REASONS],
    /// By limit, at [`Limit::index`](crate::limit::Limit::index).
    pub limits: [LimitTally; LIMITS],
}

/// An attached interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Inode of the network namespace that it was attached in; 0 for a free slot.
    pub namespace: u64,
    /// Its index when it was attached.
    pub index: u32,
    /// How it is attached: 0 generic, 1 native.
    pub mode: u32,
    /// Its name when it was attached, padded with zeros.
    pub name: [u8; 16],
}

const _: () = {
    assert!(size_of::<Address>() == 20);
    assert!(size_of::<Settings>() == 28);
    assert!(size_of::<Head>() == 64);
    assert!(size_of::<crate::gcra::Gcra>() == 24);
    assert!(size_of::<crate::plan::Plan>() == 80);
    assert!(size_of::<crate::refused::Refused>() == 64);
    assert!(size_of::<Source>() == 72);
    assert!(offset_of!(Source, words) == 8);
    assert!(offset_of!(Source, passed) == 40);
    assert!(size_of::<ConnectionKey>() == 44);
    assert!(size_of::<Connection>() == 24);
    assert!(size_of::<Counters>() == 16 * REASONS + 32 * LIMITS);
    assert!(size_of::<Interface>() == 32);
};
