//! The version of the layout, names of maps, constants and programs, and sizes.

use core::mem::{offset_of, size_of};

use crate::{
    abi::{
        counters::{LimitTally, SlotCounters, TableStats},
        interface::Interface,
        policy::{Head, Profile, Settings},
        state::{Bucket, OffenceHead, OffenceKey, OffenceRecord, SLOTS, SynSet, WideState},
        table::{Debts, FurtherLimits, Set, Source, UntrackedTotals, WAYS},
    },
    algorithm::{gcra::Gcra, meter::Measure},
    base::address::Address,
    memory::handshake,
    packet::reason::DECIDED,
    policy::{
        limit::{BucketKey, LIMITS},
        penalty::Offence,
    },
};

/// Version of everything in this module and of the meaning of the words in it. Pinned maps of another version are never
/// used, but the state of older ones is [carried over](crate::abi::description).
pub const LAYOUT_VERSION: u32 = 31;

/// Names of the maps, as pins in the BPF file system. All but the
/// controller's own are in the object file too.
pub mod map {
    /// Array of one [`Head`](crate::abi::policy::Head), which can be mapped into memory.
    pub const HEAD: &str = "HEAD";
    /// Array of [`Limit`](crate::policy::limit::Limit), at [`half`](crate::abi::policy::half) of its
    /// [`row`](crate::policy::limit::Limit::row).
    pub const LIMITS: &str = "LIMITS";
    /// Array of sets of limits, at [`half`](crate::abi::policy::half) of a [`place`](crate::policy::matching::offset).
    pub const MATCHING: &str = "MATCHING";
    /// Array of [`Profile`](crate::abi::policy::Profile), at [`half`](crate::abi::policy::half) of its number.
    pub const PROFILES: &str = "PROFILES";
    /// Array of [`Meter`](crate::algorithm::meter::Meter), at [`half`](crate::abi::policy::half) of its number.
    pub const METERS: &str = "METERS";
    /// Array of LPM tries of sources, at `epoch & 1`: [`Address`](crate::abi::layout::Address) to the number of
    /// a profile.
    pub const PREFIXES: &str = "PREFIXES";
    /// Array of LPM tries of destinations, at `epoch & 1`: [`Address`](crate::abi::layout::Address) to a set of
    /// limits, its low half first.
    pub const DESTINATIONS: &str = "DESTINATIONS";
    /// Array of [`Set`](crate::abi::table::Set): whose the entries of [`SOURCES`] are, and after those, whose the entries of
    /// [`BUCKETS`] are: first of limits whose state is a word, then of those with a [`WIDE_STATE`].
    pub const SETS: &str = "SETS";
    /// Array of [`Debts`](crate::abi::table::Debts), of each set.
    pub const DEBTS: &str = "DEBTS";
    /// Array of [`UntrackedAllowance`](crate::table::untracked::UntrackedAllowance), of each set of sources.
    pub const UNTRACKED: &str = "UNTRACKED";
    /// Array of [`Source`](crate::abi::table::Source): the [`shared`](crate::abi::layout::shared) entries, and behind them
    /// [`WAYS`](crate::abi::table::WAYS) for each set, in order.
    pub const SOURCES: &str = "SOURCES";
    /// Array of [`FurtherLimits`](crate::abi::table::FurtherLimits): of each entry of [`SOURCES`], or a single one if no
    /// policy has asked for them.
    pub const FURTHER_LIMITS: &str = "FURTHER_LIMITS";
    /// Array of [`Bucket`](crate::abi::state::Bucket): [`WAYS`](crate::abi::table::WAYS) for each set, in order, and after those one for
    /// each limit, at its [`tally`](crate::policy::limit::Limit::tally), that the keys without an entry share.
    pub const BUCKETS: &str = "BUCKETS";
    /// Array of [`Measure`](crate::algorithm::meter::Measure): what the words of [`BUCKETS`] are measured in.
    pub const MEASURES: &str = "MEASURES";
    /// Array of [`WideState`](crate::abi::state::WideState): of the entries of [`BUCKETS`] from
    /// [`first_wide`](crate::abi::policy::Settings::first_wide) on, the shared ones included.
    pub const WIDE_STATE: &str = "WIDE_STATE";
    /// Array of one map: [`WIDE_STATE`], if it was made.
    pub const WIDE_STATE_REF: &str = "WIDE_STATE_REF";
    /// LRU hash of [`Ending`](crate::memory::ending::Ending) by the [tag](crate::algorithm::concurrent::Concurrent::tag) of the
    /// connection.
    pub const ENDINGS: &str = "ENDINGS";
    /// Array of one map: [`ENDINGS`], if it was made.
    pub const ENDINGS_REF: &str = "ENDINGS_REF";
    /// Array of [`OffenceRecord`](crate::abi::state::OffenceRecord), in [sets](crate::memory::offence) that each begin with an
    /// [`OffenceHead`](crate::abi::state::OffenceHead).
    pub const OFFENCES: &str = "OFFENCES";
    /// Array of one map: [`OFFENCES`], if it was made.
    pub const OFFENCES_REF: &str = "OFFENCES_REF";
    /// LRU hash of [`RefusedSyn`](crate::memory::refused_syn::RefusedSyn) by its
    /// [`key`](crate::memory::refused_syn::RefusedSyn::key).
    pub const REFUSED_SYNS: &str = "REFUSED_SYNS";
    /// Array of one map: [`REFUSED_SYNS`], if it was made.
    pub const REFUSED_SYNS_REF: &str = "REFUSED_SYNS_REF";
    /// Array of [`SynSet`](crate::abi::state::SynSet): the set is that of a connection's [`key`](crate::memory::handshake::key).
    pub const SYN_DEDUP: &str = "SYN_DEDUP";
    /// Array of the words of [fragments](crate::memory::fragment), at the
    /// [`place`](crate::memory::fragment::Datagram::place) of their datagram.
    pub const FRAGMENTS: &str = "FRAGMENTS";
    /// Array of [`UntrackedTotals`](crate::abi::table::UntrackedTotals), of which the entry at
    /// [`UNTRACKED`](crate::abi::layout::shared::UNTRACKED) is used: the last one. Layouts before 29 have all shared entries
    /// here.
    pub const SHARED_SOURCES: &str = "SHARED_SOURCES";
    /// Per-CPU array of [`Cached`](crate::memory::cache::Cached), at its [`slot`](crate::memory::cache::Cached::slot).
    pub const CACHE: &str = "CACHE";
    /// Array of [`Budgets`](crate::policy::control::Budgets), at [`half`](crate::abi::policy::half) of the slot of the interface.
    pub const CONTROL: &str = "CONTROL";
    /// Array of the words of what control traffic may send: at the slot of the interface, one for each
    /// [`Protocol`](crate::packet::control::Protocol), and one for what is [not IP](crate::policy::control::NON_IP_ROW).
    pub const CONTROL_LINKS: &str = "CONTROL_LINKS";
    /// Array of the words of what sources of control traffic may send, at their
    /// [`place`](crate::policy::control::place).
    pub const CONTROL_SOURCES: &str = "CONTROL_SOURCES";
    /// Per-CPU array of [`SlotCounters`](crate::abi::counters::SlotCounters), at the slot of the interface.
    pub const COUNTERS: &str = "COUNTERS";
    /// Per-CPU array of [`LimitTally`](crate::abi::counters::LimitTally), at [`tally`](crate::policy::limit::Limit::tally).
    pub const TALLIES: &str = "TALLIES";
    /// Per-CPU array of [`TableStats`](crate::abi::counters::TableStats), at the constants of [`table_stats`](crate::abi::layout::table_stats).
    pub const TABLE_STATS: &str = "TABLE_STATS";
    /// Ring of [`SourceEvent`](crate::memory::event::SourceEvent), of which one process at a time is to read.
    pub const EVENTS: &str = "EVENTS";
    /// Per-CPU array of one [`EventStats`](crate::memory::event::EventStats).
    pub const EVENT_STATS: &str = "EVENT_STATS";
    /// Array of one [`Sampling`](crate::memory::sample::Sampling), which can be mapped into memory.
    pub const SAMPLING: &str = "SAMPLING";
    /// Ring of [`Sample`](crate::memory::sample::Sample), of which one process at a time is to read.
    pub const SAMPLES: &str = "SAMPLES";
    /// Array of one [`JiffyClock`](crate::abi::table::JiffyClock).
    pub const JIFFY_CLOCK: &str = "JIFFY_CLOCK";
    /// Array of one `u64`: the longest time in ns by which a tick of the kernel was late since the instance was made, or its
    /// tables were exchanged; see [`lag`](crate::memory::jiffy::lag).
    pub const TICK_LAG: &str = "TICK_LAG";
    /// Array of one `u64`: the time in ns that a program loaded for tests reads instead of the clock.
    pub const TEST_CLOCK: &str = "TEST_CLOCK";
    /// Program array with the main program for packets in one piece, which dispatchers call. An array of programs keeps them
    /// while it is pinned or open.
    pub const PROGRAM: &str = "PROGRAM";
    /// The same for packets in several pieces: a kernel wants the programs of an array to agree on that.
    pub const PROGRAM_FRAGS: &str = "PROGRAM_FRAGS";
    /// Per-CPU array of one `u32`: the slot of the interface whose packet this CPU decides about. The dispatcher writes it,
    /// the main program reads it.
    pub const PACKET_SLOT: &str = "PACKET_SLOT";
    /// Per-CPU array of [`Tally`](crate::base::tally::Tally), at the slot of the interface: packets that the dispatcher passed
    /// because its array had no program.
    pub const UNLOADED: &str = "UNLOADED";
    /// The controller's: array of [`Build`](crate::abi::build::Build): at 0 of the program in [`PROGRAM`], at 1 of that in
    /// [`PROGRAM_FRAGS`].
    pub const BUILDS: &str = "BUILDS";
    /// The controller's: array of [`Interface`](crate::abi::interface::Interface), at the slot of the interface.
    pub const INTERFACES: &str = "INTERFACES";
    /// The controller's: array of one [`Description`](crate::abi::description::Description).
    pub const LAYOUT: &str = "LAYOUT";
    /// The controller's: hash of the policy document in chunks, at `[epoch & 1, number]`.
    pub const DOCUMENT: &str = "DOCUMENT";
}

/// Constants of the object file that the loader sets.
pub mod global {
    /// [`OldTables`](crate::abi::description::OldTables): the tables that state is carried over from.
    pub const OLD_TABLES: &str = "OLD_TABLES";
    /// `u32`: 1 if [`map::FURTHER_LIMITS`](crate::abi::layout::map::FURTHER_LIMITS) are there.
    pub const HAS_FURTHER: &str = "HAS_FURTHER";
    /// `u32`: the slot of the interface that the dispatcher is for.
    pub const SLOT: &str = "SLOT";
    /// `u32`: 1 to take the time from [`map::TEST_CLOCK`](crate::abi::layout::map::TEST_CLOCK).
    pub const TEST_CLOCK_ENABLED: &str = "TEST_CLOCK_ENABLED";
    /// `u64`: nanoseconds from one tick of the kernel to the next; 0 to read the clock for every packet
    /// that has limits.
    pub const TICK: &str = "TICK";
    /// `u32`: 1 if the kernel tells the length of a frame (`bpf_xdp_get_buff_len`, Linux 5.18).
    pub const TELLS_LENGTH: &str = "TELLS_LENGTH";
}

/// Programs in the object file.
pub mod program {
    /// The main program, for packets in one piece.
    pub const LINEAR: &str = "limiter";
    /// The main program, for packets that may lie in several pieces (kernel 5.18).
    pub const FRAGS: &str = "limiter_frags";
    /// The dispatcher of interfaces whose drivers hand over packets in one piece.
    pub const DISPATCH: &str = "limiter_link";
    /// The dispatcher of interfaces whose packets may lie in several pieces. The kernel keeps 15 bytes of a name.
    pub const DISPATCH_FRAGS: &str = "limiter_link_f";
    /// That carries state over from old tables; no interface runs it.
    pub const CARRY: &str = "limiter_carry";
    /// That blocks a source, or ends that; no interface runs it.
    pub const PUSH: &str = "limiter_push";
}

/// Entries of [`map::SOURCES`] before those of the table.
pub mod shared {
    use crate::abi::table::WAYS;

    /// Frames whose source cannot be read.
    pub const UNREADABLE: u32 = 0;
    /// The entry of [`map::SHARED_SOURCES`](super::map::SHARED_SOURCES) with the totals of sources that have no entry any
    /// more, or none yet. In [`map::SOURCES`](super::map::SOURCES) it is not used.
    pub const UNTRACKED: u32 = 1;
    /// The first of [`OVERFLOWS`] overflow entries. Sources share one when their set has no room for an entry.
    pub const OVERFLOW: u32 = 2;
    /// Number of overflow entries; a power of two.
    pub const OVERFLOWS: u32 = 64;
    /// Number of entries.
    pub const LEN: u32 = OVERFLOW + OVERFLOWS;

    /// The overflow entry of a set.
    #[inline(always)]
    pub const fn overflow(set: u32) -> u32 {
        OVERFLOW + (set & (OVERFLOWS - 1))
    }

    /// The entry of a way of the table.
    #[inline(always)]
    pub const fn entry(set: u32, way: usize) -> u32 {
        LEN + set * WAYS as u32 + way as u32
    }
}

/// Entries of [`map::TABLE_STATS`].
pub mod table_stats {
    /// Of the sources.
    pub const SOURCES: u32 = 0;
    /// Of the buckets.
    pub const BUCKETS: u32 = 1;
    /// Of the offences.
    pub const OFFENCES: u32 = 2;
    /// Number of entries.
    pub const LEN: u32 = 3;
}

/// Entries of [`map::BUILDS`].
pub const BUILDS: u32 = 2;

/// Bytes of the policy document in one entry of [`map::DOCUMENT`].
pub const CHUNK: usize = 4096;

/// Bytes of [`map::EVENTS`]: room for some thousands.
pub const EVENT_BYTES: u32 = 1 << 18;

/// Bytes of [`map::SAMPLES`]: room for some hundreds.
pub const SAMPLE_BYTES: u32 = 1 << 16;

/// Entries of [`map::TALLIES`]: those of the policy in force and of the one before.
pub const TALLIES: u32 = 2 * LIMITS;

const _: () = {
    assert!(size_of::<Address>() == 20);
    assert!(size_of::<Settings>() == 1024);
    assert!(size_of::<Head>() == 2072);
    assert!(size_of::<Gcra>() == 40);
    assert!(size_of::<crate::algorithm::meter::Meter>() == 64);
    assert!(size_of::<crate::policy::limit::Limit>() == 168);
    assert!(size_of::<BucketKey>() == 48 && offset_of!(Bucket, key) == 16);
    assert!(size_of::<crate::memory::cache::Cached>() == 128);
    assert!(size_of::<crate::policy::control::Budgets>() == 168);
    assert!(size_of::<Profile>() == 128);
    assert!(size_of::<Set>() == 64 && size_of::<Debts>() == 64);
    assert!(size_of::<Source>() == 128 && size_of::<FurtherLimits>() == 128);
    assert!(offset_of!(Source, address) == 8 && offset_of!(Source, words) == 32);
    assert!(offset_of!(Source, pending) == 48 && offset_of!(Source, dropped) == 64);
    assert!(size_of::<UntrackedTotals>() == 256 && offset_of!(UntrackedTotals, blocked) == 104);
    assert!(size_of::<SynSet>() == 64);
    assert!(size_of::<crate::memory::ending::Ending>() == 40);
    assert!(size_of::<OffenceKey>() == 24);
    assert!(size_of::<Offence>() == 40);
    assert!(size_of::<OffenceRecord>() == 64 && size_of::<OffenceHead>() == 64);
    assert!(size_of::<crate::memory::refused_syn::RefusedSyn>() == 32);
    assert!(size_of::<Bucket>() == 64 && size_of::<Measure>() == 16);
    assert!(size_of::<WideState>() == 1024);
    assert!(
        SLOTS == crate::algorithm::sliding_log::SlidingLog::MOST
            && SLOTS == crate::algorithm::concurrent::Concurrent::MOST
    );
    assert!(size_of::<LimitTally>() == 64 && size_of::<TableStats>() == 32);
    assert!(size_of::<SlotCounters>() == 16 * DECIDED);
    assert!(DECIDED == 16 && crate::policy::matching::offset::COUNT == 197_451);
    assert!(crate::memory::fragment::WORDS == 16_384);
    assert!(size_of::<Interface>() == 32 && size_of::<crate::abi::build::Build>() == 16);
    assert!(handshake::WAYS * handshake::SETS_PER_BUCKET_SET as usize == WAYS);
};
