//! The maps; their names and layouts are the contract in `limiter_common::contract`.
//!
//! Sizes given here are those of the smallest instance. The loader sets the real ones.

use aya_ebpf::{
    Global,
    bindings::BPF_F_MMAPABLE,
    btf_maps::{ArrayOfMaps, LpmTrie},
    macros::{btf_map, map},
    maps::{Array, LruHashMap, PerCpuArray},
};
use limiter_common::{
    address::Address,
    contract::{Connection, ConnectionKey, Counters, Head, INTERFACES, Source, shared},
    plan::Plan,
    refused::Refused,
};

use crate::datapath::Subject;

/// Mapped by the controller, which changes the epoch by one store.
#[map]
pub(crate) static HEAD: Array<Head> = Array::with_max_entries(1, BPF_F_MMAPABLE);

#[map]
pub(crate) static PLANS: Array<Plan> = Array::with_max_entries(2, 0);

/// A policy comes with a trie of its own, so none is ever emptied or half filled while in use.
#[btf_map]
pub(crate) static OVERRIDES: ArrayOfMaps<LpmTrie<Address, u32, 1>, 2> = ArrayOfMaps::new();

/// LRU, because sources come and go without telling.
#[map]
pub(crate) static SOURCES: LruHashMap<Address, Source> = LruHashMap::with_max_entries(1, 0);

#[map]
pub(crate) static CONNECTIONS: LruHashMap<ConnectionKey, Connection> =
    LruHashMap::with_max_entries(1, 0);

#[map]
pub(crate) static SHARED_SOURCES: Array<Source> = Array::with_max_entries(shared::LEN, 0);

/// Of each CPU its own, so that an over-limit source is refused without a word that CPUs share.
#[map]
pub(crate) static REFUSED: PerCpuArray<Refused> = PerCpuArray::with_max_entries(Refused::SLOTS, 0);

#[map]
pub(crate) static COUNTERS: PerCpuArray<Counters> = PerCpuArray::with_max_entries(INTERFACES, 0);

#[map]
pub(crate) static SUBJECT: PerCpuArray<Subject> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static TEST_CLOCK: Array<u64> = Array::with_max_entries(1, 0);

/// See `limiter_common::contract::global::SLOT`.
#[unsafe(no_mangle)]
pub(crate) static SLOT: Global<u32> = Global::new(0);

/// See `limiter_common::contract::global::TEST_CLOCK_ENABLED`.
#[unsafe(no_mangle)]
pub(crate) static TEST_CLOCK_ENABLED: Global<u32> = Global::new(0);
