//! The maps; their names and layouts are the contract in `limiter_common::contract`.
//!
//! Sizes given here are those of the smallest instance. The loader sets the real ones.

use aya_ebpf::{
    Global,
    bindings::BPF_F_MMAPABLE,
    btf_maps::{ArrayOfMaps, LpmTrie},
    macros::{btf_map, map},
    maps::{Array, LruHashMap, PerCpuArray, RingBuf},
};
use limiter_common::{
    address::Address,
    cache::Cached,
    class::place,
    contract::{
        Ages, Bucket, Counters, Head, INTERFACES, Ledger, LimitTally, NOTICE_BYTES, Offence,
        OffenceKey, Opening, Profile, Set, Source, TALLIES as TALLY_COUNT, Ticked, Turnover,
        shared, turnover,
    },
    control::{self, Budgets},
    ending::Ending,
    limit::{BucketKey, LIMITS as LIMIT_COUNT, Limit},
    meter::{Measure, Meter},
    notice::Notices,
};

use crate::subject::Subject;

/// Mapped by the controller, which changes the epoch by one store.
#[map]
pub(crate) static HEAD: Array<Head> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static LIMITS: Array<Limit> = Array::with_max_entries(2 * LIMIT_COUNT, 0);

#[map]
pub(crate) static CLASSES: Array<u64> = Array::with_max_entries(2 * place::COUNT, 0);

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
pub(crate) static AGES: Array<Ages> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CREDITS: Array<u64> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static SOURCES: Array<Source> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static BUCKETS: Array<Bucket> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static MEASURES: Array<Measure> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static LEDGERS: LruHashMap<BucketKey, Ledger> = LruHashMap::with_max_entries(1, 0);

/// LRU, because a connection that is over may be needed by several ledgers.
#[map]
pub(crate) static ENDINGS: LruHashMap<u32, Ending> = LruHashMap::with_max_entries(1, 0);

#[map]
pub(crate) static OFFENCES: LruHashMap<OffenceKey, Offence> = LruHashMap::with_max_entries(1, 0);

/// LRU, because nobody tells that a connection is over.
#[map]
pub(crate) static OPENINGS: LruHashMap<u64, Opening> = LruHashMap::with_max_entries(1, 0);

#[map]
pub(crate) static SHARED_SOURCES: Array<Source> = Array::with_max_entries(shared::LEN, 0);

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
pub(crate) static COUNTERS: PerCpuArray<Counters> = PerCpuArray::with_max_entries(INTERFACES, 0);

#[map]
pub(crate) static TALLIES: PerCpuArray<LimitTally> = PerCpuArray::with_max_entries(TALLY_COUNT, 0);

#[map]
pub(crate) static TURNOVER: PerCpuArray<Turnover> = PerCpuArray::with_max_entries(turnover::LEN, 0);

#[map]
pub(crate) static NOTICES: RingBuf = RingBuf::with_byte_size(NOTICE_BYTES, 0);

#[map]
pub(crate) static NOTICED: PerCpuArray<Notices> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static SUBJECT: PerCpuArray<Subject> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static TICKED: Array<Ticked> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static TEST_CLOCK: Array<u64> = Array::with_max_entries(1, 0);

/// See `limiter_common::contract::global::SLOT`.
#[unsafe(no_mangle)]
pub(crate) static SLOT: Global<u32> = Global::new(0);

/// See `limiter_common::contract::global::TICK`.
#[unsafe(no_mangle)]
pub(crate) static TICK: Global<u64> = Global::new(0);

/// See `limiter_common::contract::global::TEST_CLOCK_ENABLED`.
#[unsafe(no_mangle)]
pub(crate) static TEST_CLOCK_ENABLED: Global<u32> = Global::new(0);
