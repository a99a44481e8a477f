//! What the kernel half and the user half agree on: the layout of map keys and values, and names.

use core::mem::{offset_of, size_of};

use crate::{
    address::{Address, Mask},
    gcra::Gcra,
    limit::{BucketKey, COLUMNS, INLINE, LIMITS},
    meter::Measure,
    reason::{REASONS, Reason},
    recent::Recent,
    table::WAYS,
};

/// Version of everything in this module and of the meaning of the words in it. Pinned maps of
/// another version are never used.
pub const LAYOUT_VERSION: u32 = 21;

/// Names of the maps, as pins in the BPF file system. All but the
/// controller's own are in the object file too.
pub mod map {
    /// Array of one [`Head`](super::Head), which can be mapped into memory.
    pub const HEAD: &str = "HEAD";
    /// Array of [`Limit`](crate::limit::Limit), at [`half`](super::half) of its
    /// [`row`](crate::limit::Limit::row).
    pub const LIMITS: &str = "LIMITS";
    /// Array of sets of limits, at [`half`](super::half) of a [`place`](crate::class::place).
    pub const CLASSES: &str = "CLASSES";
    /// Array of [`Profile`](super::Profile), at [`half`](super::half) of its number.
    pub const PROFILES: &str = "PROFILES";
    /// Array of [`Meter`](crate::meter::Meter), at [`half`](super::half) of its number.
    pub const METERS: &str = "METERS";
    /// Array of LPM tries of sources, at `epoch & 1`: [`Address`](super::Address) to the number of
    /// a profile.
    pub const PREFIXES: &str = "PREFIXES";
    /// Array of LPM tries of destinations, at `epoch & 1`: [`Address`](super::Address) to a set of
    /// limits, its low half first.
    pub const DESTINATIONS: &str = "DESTINATIONS";
    /// Array of [`Set`](super::Set): whose the entries of [`SOURCES`] are, and after those, whose the entries of
    /// [`BUCKETS`] are.
    pub const SETS: &str = "SETS";
    /// Array of [`Ages`](super::Ages), of each set.
    pub const AGES: &str = "AGES";
    /// Array of [`Credit`](crate::credit::Credit), of each set of sources.
    pub const CREDITS: &str = "CREDITS";
    /// Array of [`Source`](super::Source): [`WAYS`](crate::table::WAYS) for each set, in order.
    pub const SOURCES: &str = "SOURCES";
    /// Array of [`Bucket`](super::Bucket): [`WAYS`](crate::table::WAYS) for each set, in order, and after those one for
    /// each limit, at its [`row`](crate::limit::Limit::row), that the keys without an entry share.
    pub const BUCKETS: &str = "BUCKETS";
    /// Array of [`Measure`](crate::meter::Measure): what the words of [`BUCKETS`] are measured in.
    pub const MEASURES: &str = "MEASURES";
    /// LRU hash of [`Ledger`](super::Ledger) by [`BucketKey`](crate::limit::BucketKey).
    pub const LEDGERS: &str = "LEDGERS";
    /// LRU hash of [`Ending`](crate::ending::Ending) by the [tag](crate::lease::Leases::tag) of the
    /// connection.
    pub const ENDINGS: &str = "ENDINGS";
    /// LRU hash of [`Offence`](super::Offence) by [`OffenceKey`](super::OffenceKey).
    pub const OFFENCES: &str = "OFFENCES";
    /// LRU hash of [`Opening`](super::Opening) by its [`key`](crate::opening::key).
    pub const OPENINGS: &str = "OPENINGS";
    /// Array of [`Source`](super::Source), at the constants of [`shared`](super::shared).
    pub const SHARED_SOURCES: &str = "SHARED_SOURCES";
    /// Per-CPU array of [`Cached`](crate::cache::Cached), at its [`slot`](crate::cache::Cached::slot).
    pub const CACHE: &str = "CACHE";
    /// Array of [`Budgets`](crate::control::Budgets), at [`half`](super::half) of the slot of the interface.
    pub const CONTROL: &str = "CONTROL";
    /// Array of the words of what control traffic may send: at the slot of the interface, one for each
    /// [`Protocol`](crate::control::Protocol).
    pub const CONTROL_LINKS: &str = "CONTROL_LINKS";
    /// Array of the words of what sources of control traffic may send, at their
    /// [`place`](crate::control::place).
    pub const CONTROL_SOURCES: &str = "CONTROL_SOURCES";
    /// Per-CPU array of [`Counters`](super::Counters), at the slot of the interface.
    pub const COUNTERS: &str = "COUNTERS";
    /// Per-CPU array of [`LimitTally`](super::LimitTally), at [`tally`](crate::limit::Limit::tally).
    pub const TALLIES: &str = "TALLIES";
    /// Per-CPU array of [`Turnover`](super::Turnover), at the constants of [`turnover`](super::turnover).
    pub const TURNOVER: &str = "TURNOVER";
    /// Ring of [`Notice`](crate::notice::Notice), of which one process at a time is to read.
    pub const NOTICES: &str = "NOTICES";
    /// Per-CPU array of one [`Notices`](crate::notice::Notices).
    pub const NOTICED: &str = "NOTICED";
    /// Array of one [`Ticked`](super::Ticked).
    pub const TICKED: &str = "TICKED";
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
    /// `u64`: nanoseconds from one tick of the kernel to the next; 0 to read the clock for every packet
    /// that has limits.
    pub const TICK: &str = "TICK";
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
    /// Sources that have no entry any more, or none yet, for their totals alone.
    pub const NOBODY: u32 = 2;
    /// Number of entries.
    pub const LEN: u32 = 3;
}

/// Entries of [`map::TURNOVER`].
pub mod turnover {
    /// Of the sources.
    pub const SOURCES: u32 = 0;
    /// Of the buckets.
    pub const BUCKETS: u32 = 1;
    /// Number of entries.
    pub const LEN: u32 = 2;
}

/// Interfaces that can be attached at once.
pub const INTERFACES: u32 = 64;

/// Bytes of the policy document in one entry of [`map::DOCUMENT`].
pub const CHUNK: usize = 4096;

/// Bytes of [`map::NOTICES`]: room for some thousands.
pub const NOTICE_BYTES: u32 = 1 << 18;

/// Where entry `number` of the tables of `epoch` is: even and odd epochs take turns, so that the next
/// policy is written beside the one in force.
#[inline(always)]
pub const fn half(epoch: u32, number: u32) -> u32 {
    number * 2 + (epoch & 1)
}

/// What every packet reads first: which policy is in force.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The epoch in force, from 1 on, in the low 32 bits, and [`LAYOUT_VERSION`] in the high ones; 0
    /// before the first policy. Changed by one store.
    pub epoch: u64,
    /// See [`Revert`].
    pub revert: Revert,
    /// 1 while the operator has nothing dropped, whatever the policy says; what would be is counted.
    /// No change of the policy touches it.
    pub monitor: u64,
    /// What holds under it, at `epoch & 1`.
    pub settings: [Settings; 2],
}

/// When the policy that was in force before an epoch is to be so again: its tables are those of the
/// next epoch, which is in force from then on. Nobody has to do anything for that.
///
/// The epoch that it is about is part of it, so that it can be written before that epoch is in force.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revert(pub u64);

impl Revert {
    /// Never.
    pub const NEVER: Self = Self(0);
    const EPOCH_BITS: u32 = 16;

    /// After `epoch`, from the monotonic time `at` on, in nanoseconds; up to 65 µs earlier.
    #[inline(always)]
    pub const fn new(epoch: u32, at: u64) -> Self {
        Self(at >> Self::EPOCH_BITS << Self::EPOCH_BITS | epoch as u64 & 0xffff)
    }

    /// When, in nanoseconds, if it is about this epoch.
    #[inline(always)]
    pub const fn at(self, epoch: u32) -> Option<u64> {
        if self.0 != 0 && (self.0 ^ epoch as u64) & 0xffff == 0 {
            Some(self.0 >> Self::EPOCH_BITS << Self::EPOCH_BITS)
        } else {
            None
        }
    }
}

/// By what sources and connections are hashed: random, and the same as long as the instance is there.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub [u64; 4]);

impl Seed {
    /// The key of the hash of connections.
    #[inline(always)]
    pub const fn key(self) -> [u64; 2] {
        let [.., a, b] = self.0;
        [a, b]
    }
}

/// What holds for every packet under a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What of an address makes a source.
    pub mask: Mask,
    /// Constants of [`flag`], or-ed.
    pub flags: u32,
    /// The properties of packets that limits ask about: constants of
    /// [`section`](crate::class::section), or-ed.
    pub sections: u32,
    /// Sets of sources.
    pub sets: u32,
    /// Sets of buckets.
    pub bucket_sets: u32,
    /// 0, so that what follows is aligned.
    pub unused: [u32; 3],
    /// By what sources and connections are hashed.
    pub seed: Seed,
    /// The limits that are enforced, as bits.
    pub enforced: u64,
    /// The limits by which every packet costs 1, as bits.
    pub unit: u64,
    /// The limits that are kept by keys of their own, as bits.
    pub keyed: u64,
    /// Those of them whose state is in the table of buckets, as bits.
    pub buckets_by_key: u64,
    /// Those of these that the source tells by itself, and by which every packet costs 1, as bits: token buckets, leaky
    /// buckets and GCRA.
    pub buckets_of_source: u64,
    /// The limits that are enforced and have a penalty, as bits.
    pub penalties: u64,
    /// The limits that count new connections, as bits.
    pub connections: u64,
    /// The limits that can be charged with the packet of a [`newcomer`](crate::newcomer) later, as bits:
    /// inline ones by which a packet costs 1 or its bytes.
    pub newcomers: u64,
    /// The limits that accept a destination that no prefix is about, as bits.
    pub elsewhere: u64,
    /// The limits of the first profile that are about some packets only, as bits, where others are about all: those
    /// packets of known sources the fast path leaves alone, as several limits are about them.
    pub beside: u64,
    /// The bits of the limits whose state is in the entry of the source; 0 where there is none.
    pub inline: [u64; INLINE],
    /// Their [`stamps`](crate::limit::Limit::stamp).
    pub stamps: [u32; INLINE],
    /// Their places among the tallies.
    pub tallies: [u32; INLINE],
    /// The first profile, which most sources have, so that it need not be looked up.
    pub first: Profile,
    /// The buckets of its inline limits, likewise, for the fast path and for newcomers.
    pub buckets: [Gcra; INLINE],
    /// 0, as in [`Profile::reserved`].
    pub reserved: [[u64; 12]; 3],
}

impl Settings {
    /// The places of inline limits, as bits, whose limits were there under an epoch in the past, which was
    /// never taken back.
    #[inline(always)]
    pub const fn there_since(&self, epoch: u32) -> u32 {
        let mut there = 0;
        let mut place = 0;
        while place < INLINE {
            // A stamp tells the epoch that its limit came in, and wraps.
            let came = self.stamps[place].wrapping_sub(1) / LIMITS * LIMITS;
            let since = epoch.wrapping_mul(LIMITS).wrapping_sub(came) as i32;
            there |= ((since >= 0) as u32) << place;
            place += 1;
        }
        there
    }

    /// The places of inline limits, as bits, that are the same limit's under other settings.
    #[inline(always)]
    pub const fn kept(&self, before: &Self) -> u32 {
        let mut kept = 0;
        let mut place = 0;
        while place < INLINE {
            kept |= ((self.stamps[place] == before.stamps[place]) as u32) << place;
            place += 1;
        }
        kept
    }
}

/// Bits of [`Settings::flags`].
pub mod flag {
    /// There are prefixes of sources with profiles of their own.
    pub const PREFIXES: u32 = 1;
    /// Some source may be refused something, whether or not that is dropped.
    pub const LIMITS: u32 = 2;
    /// Nothing is dropped by this policy, whatever [`Head::monitor`](super::Head::monitor) is; what
    /// would be is counted.
    pub const MONITOR: u32 = 4;
    /// Some packets of sources of the first profile can be told to conform by the fast path.
    pub const FAST: u32 = 8;
    /// These take the clock while nothing is spent, so most do: the fast path reads it before the entry.
    pub const CLOCK: u32 = 16;
    /// A limit asks about destinations, which the fast path does not look at.
    pub const DESTINATIONS: u32 = 32;
}

/// What holds for the sources of a prefix.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The limits that are about them, as bits.
    pub limits: u64,
    /// The limits, as bits, that packets are [leased](crate::cache) from; 0 where none are.
    pub leased_of: u64,
    /// How many are leased at once, at most.
    pub lease: u64,
    /// The tenant that they are of, from 1 on; 0 for none.
    pub tenant: u32,
    /// 1 when `allowed`, `denied` or `blocked` is not 0.
    pub listed: u32,
    /// The meters of the inline limits, and of others at their
    /// [`column`](crate::limit::Limit::column).
    pub meters: [u32; COLUMNS],
    /// How many packets of such sources without an entry a set admits on [credit](crate::credit) in a tick.
    pub credit: u64,
    /// Until when they are allowed, in nanoseconds of the monotonic clock; [`u64::MAX`] for ever, 0
    /// if they are not.
    pub allowed: u64,
    /// Until when they are denied, likewise.
    pub denied: u64,
    /// Until when they are blocked by hand, likewise.
    pub blocked: u64,
    /// 0: an index is multiplied by the size of what it is of, which is a shift by a power of two.
    pub reserved: [u64; 2],
}

impl Profile {
    /// What becomes of their packets at `now`, in nanoseconds, by what was said of them by hand.
    #[inline(always)]
    pub const fn listing(&self, now: u64) -> Option<Reason> {
        if now < self.allowed {
            Some(Reason::Allow)
        } else if now < self.denied {
            Some(Reason::Deny)
        } else if now < self.blocked {
            Some(Reason::Penalty)
        } else {
            None
        }
    }

    /// The same if it takes no clock to tell, as it is so at any time.
    #[inline(always)]
    pub const fn listing_for_ever(&self) -> Option<Reason> {
        if self.allowed == u64::MAX {
            Some(Reason::Allow)
        } else if self.allowed == 0 && self.denied == u64::MAX {
            Some(Reason::Deny)
        } else if self.allowed | self.denied == 0 && self.blocked == u64::MAX {
            Some(Reason::Penalty)
        } else {
            None
        }
    }
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

/// A set of the table of sources, which is all in one cache line that it takes to tell that a source is
/// not known, and to admit its first packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The [`tags`](crate::table::Place::tag) of its ways; 0 for those that are free.
    pub tags: [u8; WAYS],
    /// Sources that have no entry yet, and the lock of the set.
    pub newcomers: Newcomers,
}

/// What is noted of the entries of a set; see [`Age`](crate::table::Age).
pub type Ages = [u32; WAYS];

/// The words of a [`Ticked`](crate::tick::Ticked).
pub type Ticked = [u64; 2];

/// Newcomers of a set; a power of two.
pub const NEWCOMERS: usize = 2;

/// Sources that have sent a single packet, see [`newcomer`](crate::newcomer). Packets read or write
/// anything here but the state under the lock of the set alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newcomers {
    /// See [`State`](crate::newcomer::State).
    pub state: u64,
    /// When their packets came, in nanoseconds.
    pub times: [u64; NEWCOMERS],
    /// The first two words of their addresses, which have no others.
    pub sources: [[u32; 2]; NEWCOMERS],
    /// See [`Facts`](crate::newcomer::Facts).
    pub facts: [u32; NEWCOMERS],
}

/// The state of a source. What every packet needs is in the first two of four cache lines, with what a refused one
/// needs beside that at the beginning of the third.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// See [`Binding`](crate::binding::Binding); 0 for an entry that was never used.
    pub binding: u64,
    /// Whose it is. It changes only after the binding, which is locked until it is changed.
    pub address: Address,
    /// Packets when it was last asked to make room, the low bits of their number.
    pub known: u32,
    /// The words of the inline limits.
    pub words: [u64; INLINE],
    /// What passed and is not in the totals yet, a [`Recent`].
    pub recent: u64,
    /// A [`Block`](crate::penalty::Block) because it stayed over a limit: the longest that its
    /// [`Offence`]s say, of limits with penalties that are about it under the policy that it is bound
    /// to. That of [`shared::NOBODY`] is until when any source is blocked, or was, in nanoseconds.
    pub blocked: u64,
    /// What was dropped.
    pub dropped: Tally,
    /// What passed.
    pub passed: Tally,
    /// When it was refused last, see [`Episode::last`](crate::notice::Episode::last).
    pub refused: u64,
    /// When that was told last, see [`Episode::told`](crate::notice::Episode::told).
    pub told: u64,
    /// The scales of the words.
    pub scales: [u64; INLINE],
    /// The [`stamps`](crate::limit::Limit::stamp) of the limits that they are of.
    pub stamps: [u32; INLINE],
}

impl Source {
    /// The same with all that passed in one place.
    pub const fn settled(mut self) -> Self {
        let recent = Recent(self.recent);
        let Tally { packets, bytes } = recent.tally();
        self.passed.packets = self.passed.packets.wrapping_add(packets);
        self.passed.bytes = self.passed.bytes.wrapping_add(bytes);
        self.recent = 0;
        self
    }

    /// A source that was not bound yet.
    pub const NEW: Self = Self {
        binding: 0,
        address: Address::NONE,
        known: 0,
        words: [0; INLINE],
        recent: 0,
        passed: Tally { packets: 0, bytes: 0 },
        dropped: Tally { packets: 0, bytes: 0 },
        blocked: 0,
        scales: [0; INLINE],
        stamps: [0; INLINE],
        refused: 0,
        told: 0,
    };
}

/// A new connection that was admitted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// See [`opening::Opening`](crate::opening::Opening).
    pub word: u64,
    /// The epoch that it was admitted under.
    pub epoch: u64,
    /// The limits of new connections that it was charged to, as bits under that epoch.
    pub charged: u64,
}

/// What the offence of a source is found by.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OffenceKey {
    /// The source.
    pub source: Address,
    /// See [`Penalty::limit`](crate::penalty::Penalty::limit).
    pub limit: u32,
}

/// What is known of a source that was over a limit with a penalty, see
/// [`penalty::Offence`](crate::penalty::Offence).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offence {
    /// When it began, in nanoseconds; 0 when it did not.
    pub began: u64,
    /// When it was last over the limit.
    pub last: u64,
    /// Since when it is blocked for that, or was.
    pub since: u64,
    /// Until when, by the penalty that it was blocked under.
    pub blocked: u64,
    /// How many blocks came without a rest between them.
    pub blocks: u64,
}

impl Offence {
    /// One that nothing is known of.
    pub const NEW: Self = Self { began: 0, last: 0, since: 0, blocked: 0, blocks: 0 };
}

/// The state of a limit for one key, in one cache line. What its word is measured in is at the same place of
/// [`map::MEASURES`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// See [`Binding`](crate::binding::Binding); of the number of the meter instead of a profile.
    pub binding: u64,
    /// The word.
    pub word: u64,
    /// Whose it is. It changes only after the binding, which is locked until it is changed.
    pub key: BucketKey,
}

/// The state of a limit that takes more than a word, for one key; all zero at first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The control word of a [`Log`](crate::log::Log).
    pub control: u64,
    /// The slots of a [`Log`](crate::log::Log) or of [`Leases`](crate::lease::Leases).
    pub slots: [u64; SLOTS],
}

/// Slots of a [`Ledger`].
pub const SLOTS: usize = 128;

impl Ledger {
    /// One that nothing is written in.
    pub const NEW: Self = Self { control: 0, slots: [0; SLOTS] };
}

impl Default for Ledger {
    fn default() -> Self {
        Self::NEW
    }
}

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
    /// Of those that were charged to it, the ones that left it [near](crate::near).
    pub near: Tally,
}

impl LimitTally {
    /// Packets that were over it, dropped or not.
    pub const fn over(&self) -> Tally {
        Tally {
            packets: self.exceed.packets.wrapping_add(self.monitored.packets),
            bytes: self.exceed.bytes.wrapping_add(self.monitored.bytes),
        }
    }
}

/// Who came into the table of sources, or of buckets, and who had to go, on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Entries that were given to sources, or keys, without one.
    pub entries: u64,
    /// Packets of sources that were admitted as [newcomers](crate::newcomer), without an entry; or that were charged to
    /// the bucket that the keys without an entry share.
    pub newcomers: u64,
    /// Entries of these that were taken from another, which owed nothing.
    pub idle: u64,
    /// The same from one that owed, for a single packet, or only to limits that are gone or changed since; and
    /// newcomers that took the place of another, which owed.
    pub owing: u64,
}

/// The counters of an interface, on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Every frame, once, at [`Reason::index`](crate::reason::Reason::index).
    pub reasons: [Tally; REASONS],
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

/// Entries of [`map::TALLIES`]: those of the policy in force and of the one before.
pub const TALLIES: u32 = 2 * LIMITS;

const _: () = {
    assert!(size_of::<Address>() == 20);
    assert!(size_of::<Settings>() == 1024);
    assert!(size_of::<Head>() == 2072);
    assert!(size_of::<Gcra>() == 40);
    assert!(size_of::<crate::meter::Meter>() == 64);
    assert!(size_of::<crate::limit::Limit>() == 160);
    assert!(size_of::<BucketKey>() == 48 && offset_of!(Bucket, key) == 16);
    assert!(size_of::<crate::cache::Cached>() == 128);
    assert!(size_of::<crate::control::Budgets>() == 128);
    assert!(size_of::<Profile>() == 128);
    assert!(size_of::<Set>() == 64 && size_of::<Ages>() == 64);
    assert!(size_of::<Source>() == 256);
    assert!(offset_of!(Source, address) == 8 && offset_of!(Source, words) == 32);
    assert!(offset_of!(Source, recent) == 96);
    assert!(offset_of!(Source, dropped) == 112 && offset_of!(Source, refused) == 144);
    assert!(size_of::<Opening>() == 24);
    assert!(size_of::<crate::ending::Ending>() == 40);
    assert!(size_of::<OffenceKey>() == 24);
    assert!(size_of::<Offence>() == 40);
    assert!(size_of::<Bucket>() == 64 && size_of::<Measure>() == 16);
    assert!(size_of::<Ledger>() == 1032);
    assert!(SLOTS == crate::log::Log::MOST && SLOTS == crate::lease::Leases::MOST);
    assert!(size_of::<LimitTally>() == 64 && size_of::<Turnover>() == 32);
    assert!(size_of::<Counters>() == 16 * REASONS);
    assert!(size_of::<Interface>() == 32);
};
