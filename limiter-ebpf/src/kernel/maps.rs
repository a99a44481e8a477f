//! The maps; their names and layouts are the contract in `limiter_common::abi::layout`.
//!
//! Sizes given here are those of the smallest instance. The loader sets the real ones.

use aya_ebpf::{
    Global,
    bindings::{BPF_F_INNER_MAP, BPF_F_MMAPABLE},
    btf_maps::{self, ArrayOfMaps, LpmTrie, LruHashMap},
    macros::{btf_map, map},
    maps::{Array, PerCpuArray, ProgramArray, RingBuf},
};
use limiter_common::{
    abi::{
        counters::{LimitTally, SlotCounters, TableStats},
        description::OldTables,
        layout::{EVENT_BYTES, SAMPLE_BYTES, TALLIES as TALLY_COUNT, shared, table_stats},
        policy::{Head, Profile},
        state::{Bucket, OffenceRecord, SynSet, WideState},
        table::{Debts, FurtherLimits, JiffyClock, Set, Source, UntrackedTotals},
    },
    algorithm::meter::{Measure, Meter},
    base::{address::Address, tally::Tally},
    memory::{
        cache::Cached, ending::Ending, event::EventStats, fragment, refused_syn::RefusedSyn,
        sample::Sampling,
    },
    policy::{
        control::{self, Budgets},
        limit::{INTERFACES, LIMITS as LIMIT_COUNT, Limit},
        matching::offset,
    },
};

/// A map that the controller makes when a policy first needs it. The kernel takes one of any size in its place.
type Optional<K, V> = ArrayOfMaps<LruHashMap<K, V, 1>, 1>;

/// The same of an array. The flag lets it have any size.
type OptionalArray<V> = ArrayOfMaps<btf_maps::Array<V, 1, { BPF_F_INNER_MAP as usize }>, 1>;

/// Mapped by the controller, which changes the epoch by one store.
#[map]
pub(crate) static HEAD: Array<Head> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static LIMITS: Array<Limit> = Array::with_max_entries(2 * LIMIT_COUNT, 0);

#[map]
pub(crate) static MATCHING: Array<u64> = Array::with_max_entries(2 * offset::COUNT, 0);

#[map]
pub(crate) static PROFILES: Array<Profile> = Array::with_max_entries(2, 0);

#[map]
pub(crate) static METERS: Array<Meter> = Array::with_max_entries(2, 0);

/// A policy comes with tries of its own, so none is ever emptied or half filled while in use.
#[btf_map]
pub(crate) static PREFIXES: ArrayOfMaps<LpmTrie<Address, u32, 1>, 2> = ArrayOfMaps::new();

#[btf_map]
pub(crate) static DESTINATIONS: ArrayOfMaps<LpmTrie<Address, [u32; 2], 1>, 2> = ArrayOfMaps::new();

/// What can be mapped into memory begins at a page, and so is aligned to the lines of the cache.
#[map]
pub(crate) static SETS: Array<Set> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static DEBTS: Array<Debts> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static UNTRACKED: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static SOURCES: Array<Source> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static FURTHER_LIMITS: Array<FurtherLimits> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static BUCKETS: Array<Bucket> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static MEASURES: Array<Measure> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[btf_map]
pub(crate) static WIDE_STATE_REF: OptionalArray<WideState> = ArrayOfMaps::new();

/// LRU, because a connection that is over may be needed by several wide states.
#[btf_map]
pub(crate) static ENDINGS_REF: Optional<u32, Ending> = ArrayOfMaps::new();

#[btf_map]
pub(crate) static OFFENCES_REF: OptionalArray<OffenceRecord> = ArrayOfMaps::new();

/// LRU, because most of them are followed by nothing, as forged ones are.
#[btf_map]
pub(crate) static REFUSED_SYNS_REF: Optional<u64, RefusedSyn> = ArrayOfMaps::new();

/// No LRU, which takes locks for each new connection. Mapped for alignment, as [`SETS`] is.
#[map]
pub(crate) static SYN_DEDUP: Array<SynSet> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// No LRU, which takes a lock for each first fragment: a newer datagram takes the word of any other at its place.
#[map]
pub(crate) static FRAGMENTS: Array<u64> = Array::with_max_entries(fragment::WORDS, 0);

/// A map of its own, so that tables can be exchanged while CPUs add to the totals in it.
#[map]
pub(crate) static SHARED_SOURCES: Array<UntrackedTotals> =
    Array::with_max_entries(shared::UNTRACKED + 1, 0);

/// Of each CPU its own, so that most packets are decided without a word that CPUs share.
#[map]
pub(crate) static CACHE: PerCpuArray<Cached> = PerCpuArray::with_max_entries(Cached::SLOTS, 0);

/// Nobody is about to write the half of the policy in force.
#[map]
pub(crate) static CONTROL: Array<Budgets> = Array::with_max_entries(2 * INTERFACES, 0);

#[map]
pub(crate) static CONTROL_LINKS: Array<[u64; control::ROWS]> =
    Array::with_max_entries(INTERFACES, 0);

#[map]
pub(crate) static CONTROL_SOURCES: Array<u64> = Array::with_max_entries(control::SOURCES + 1, 0);

#[map]
pub(crate) static COUNTERS: PerCpuArray<SlotCounters> =
    PerCpuArray::with_max_entries(INTERFACES, 0);

#[map]
pub(crate) static TALLIES: PerCpuArray<LimitTally> = PerCpuArray::with_max_entries(TALLY_COUNT, 0);

#[map]
pub(crate) static TABLE_STATS: PerCpuArray<TableStats> =
    PerCpuArray::with_max_entries(table_stats::LEN, 0);

#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(EVENT_BYTES, 0);

#[map]
pub(crate) static EVENT_STATS: PerCpuArray<EventStats> = PerCpuArray::with_max_entries(1, 0);

/// Mapped by the reader of samples, which moves the time on by one store.
#[map]
pub(crate) static SAMPLING: Array<Sampling> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static SAMPLES: RingBuf = RingBuf::with_byte_size(SAMPLE_BYTES, 0);

#[map]
pub(crate) static JIFFY_CLOCK: Array<JiffyClock> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static TICK_LAG: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static TEST_CLOCK: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static PROGRAM: ProgramArray = ProgramArray::with_max_entries(1, 0);

#[map]
pub(crate) static PROGRAM_FRAGS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// A map of its own: the scratch is laid out anew in each build, and dispatchers outlive a build.
#[map]
pub(crate) static PACKET_SLOT: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// The slot of the interface that the packet came in by, as its dispatcher wrote it.
#[inline(always)]
pub(crate) fn packet_slot() -> u32 {
    // The map has this entry; without it, no interface would be that of the packet.
    PACKET_SLOT.get(0).copied().unwrap_or(INTERFACES)
}

#[map]
pub(crate) static UNLOADED: PerCpuArray<Tally> = PerCpuArray::with_max_entries(INTERFACES, 0);

/// The tables that this one takes the place of, by the names of their maps behind `OLD_`. Their values may be longer than
/// here.
#[map]
pub(crate) static OLD_SETS: Array<Set> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static OLD_SOURCES: Array<Source> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static OLD_FURTHER_LIMITS: Array<FurtherLimits> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static OLD_BUCKETS: Array<Bucket> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static OLD_MEASURES: Array<Measure> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static OLD_WIDE_STATE: Array<WideState> = Array::with_max_entries(1, 0);

/// See `limiter_common::abi::layout::global::OLD_TABLES`. It is read field by field.
#[unsafe(no_mangle)]
pub(crate) static OLD_TABLES: Global<OldTables> = Global::new({
    // SAFETY: it is made of integers and arrays of them, which may be 0.
    unsafe { core::mem::zeroed() }
});

/// See `limiter_common::abi::layout::global::HAS_FURTHER`.
#[unsafe(no_mangle)]
pub(crate) static HAS_FURTHER: Global<u32> = Global::new(1);

/// See `limiter_common::abi::layout::global::SLOT`. Only dispatchers read it.
#[unsafe(no_mangle)]
pub(crate) static SLOT: Global<u32> = Global::new(0);

/// See `limiter_common::abi::layout::global::TICK`.
#[unsafe(no_mangle)]
pub(crate) static TICK: Global<u64> = Global::new(0);

/// See `limiter_common::abi::layout::global::TELLS_LENGTH`.
#[unsafe(no_mangle)]
pub(crate) static TELLS_LENGTH: Global<u32> = Global::new(0);

/// See `limiter_common::abi::layout::global::TEST_CLOCK_ENABLED`.
#[unsafe(no_mangle)]
pub(crate) static TEST_CLOCK_ENABLED: Global<u32> = Global::new(0);
