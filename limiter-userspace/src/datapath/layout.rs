//! What pinned maps must look like to be used.
//!
//! A map that another version, or another program, pinned would be read and written with the wrong
//! sizes; the library that opens pins does not look. So every pin is compared first, and all
//! differences are told at once.

use std::mem::size_of;

use aya::maps::{MapData, MapType};
use aya_obj::{
    Map,
    generated::{BPF_F_INNER_MAP, bpf_map_type},
};
use limiter_common::{
    abi::{
        build::Build,
        counters::{LimitTally, SlotCounters, TableStats},
        description::Description,
        interface::Interface,
        layout::{BUILDS, CHUNK, EVENT_BYTES, SAMPLE_BYTES, TALLIES, map, table_stats},
        policy::{Head, Profile},
        state::{Bucket, OffenceRecord, SynSet, WideState},
        table::{Debts, FurtherLimits, JiffyClock, Set, Source, UntrackedTotals},
    },
    algorithm::meter::{Measure, Meter},
    base::tally::Tally,
    memory::{
        cache::Cached, ending::Ending, event::EventStats, fragment, refused_syn::RefusedSyn,
        sample::Sampling,
    },
    policy::{
        control::{self, Budgets},
        limit::{INTERFACES, LIMITS, Limit},
        matching::offset,
    },
    table::untracked::UntrackedAllowance,
};

use super::object::object;
use crate::error::Result;

/// The shape of a map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    kind: MapType,
    key: usize,
    value: usize,
    /// Entries; `None` when they are the operator's choice, or were more in older layouts.
    entries: Option<u32>,
}

const fn shape<K, V>(name: &'static str, kind: MapType, entries: Option<u32>) -> Shape {
    Shape { name, kind, key: size_of::<K>(), value: size_of::<V>(), entries }
}

/// Every map that each instance has.
pub(crate) const SHAPES: [Shape; 43] = [
    shape::<u32, Head>(map::HEAD, MapType::Array, Some(1)),
    shape::<u32, Limit>(map::LIMITS, MapType::Array, Some(2 * LIMITS)),
    shape::<u32, u64>(map::MATCHING, MapType::Array, Some(2 * offset::COUNT)),
    shape::<u32, Profile>(map::PROFILES, MapType::Array, None),
    shape::<u32, Meter>(map::METERS, MapType::Array, None),
    shape::<u32, u32>(map::PREFIXES, MapType::ArrayOfMaps, Some(2)),
    shape::<u32, u32>(map::DESTINATIONS, MapType::ArrayOfMaps, Some(2)),
    shape::<u32, Set>(map::SETS, MapType::Array, None),
    shape::<u32, Debts>(map::DEBTS, MapType::Array, None),
    shape::<u32, UntrackedAllowance>(map::UNTRACKED, MapType::Array, None),
    shape::<u32, Source>(map::SOURCES, MapType::Array, None),
    shape::<u32, FurtherLimits>(map::FURTHER_LIMITS, MapType::Array, None),
    shape::<u32, Bucket>(map::BUCKETS, MapType::Array, None),
    shape::<u32, Measure>(map::MEASURES, MapType::Array, None),
    shape::<u32, u32>(map::WIDE_STATE_REF, MapType::ArrayOfMaps, Some(1)),
    shape::<u32, u32>(map::ENDINGS_REF, MapType::ArrayOfMaps, Some(1)),
    shape::<u32, u32>(map::OFFENCES_REF, MapType::ArrayOfMaps, Some(1)),
    shape::<u32, u32>(map::REFUSED_SYNS_REF, MapType::ArrayOfMaps, Some(1)),
    shape::<u32, SynSet>(map::SYN_DEDUP, MapType::Array, None),
    shape::<u32, u64>(map::FRAGMENTS, MapType::Array, Some(fragment::WORDS)),
    shape::<u32, UntrackedTotals>(map::SHARED_SOURCES, MapType::Array, None),
    shape::<u32, Cached>(map::CACHE, MapType::PerCpuArray, Some(Cached::SLOTS)),
    shape::<u32, Budgets>(map::CONTROL, MapType::Array, Some(2 * INTERFACES)),
    shape::<u32, [u64; control::ROWS]>(map::CONTROL_LINKS, MapType::Array, Some(INTERFACES)),
    shape::<u32, u64>(map::CONTROL_SOURCES, MapType::Array, Some(control::SOURCES + 1)),
    shape::<u32, SlotCounters>(map::COUNTERS, MapType::PerCpuArray, Some(INTERFACES)),
    shape::<u32, LimitTally>(map::TALLIES, MapType::PerCpuArray, Some(TALLIES)),
    shape::<u32, TableStats>(map::TABLE_STATS, MapType::PerCpuArray, Some(table_stats::LEN)),
    shape::<(), ()>(map::EVENTS, MapType::RingBuf, Some(EVENT_BYTES)),
    shape::<u32, EventStats>(map::EVENT_STATS, MapType::PerCpuArray, Some(1)),
    shape::<u32, Sampling>(map::SAMPLING, MapType::Array, Some(1)),
    shape::<(), ()>(map::SAMPLES, MapType::RingBuf, Some(SAMPLE_BYTES)),
    shape::<u32, JiffyClock>(map::JIFFY_CLOCK, MapType::Array, Some(1)),
    shape::<u32, u64>(map::TICK_LAG, MapType::Array, Some(1)),
    shape::<u32, u64>(map::TEST_CLOCK, MapType::Array, Some(1)),
    shape::<u32, u32>(map::PROGRAM, MapType::ProgramArray, Some(1)),
    shape::<u32, u32>(map::PROGRAM_FRAGS, MapType::ProgramArray, Some(1)),
    shape::<u32, u32>(map::PACKET_SLOT, MapType::PerCpuArray, Some(1)),
    shape::<u32, Tally>(map::UNLOADED, MapType::PerCpuArray, Some(INTERFACES)),
    shape::<u32, Build>(map::BUILDS, MapType::Array, Some(BUILDS)),
    shape::<u32, Interface>(map::INTERFACES, MapType::Array, Some(INTERFACES)),
    shape::<u32, Description>(map::LAYOUT, MapType::Array, Some(1)),
    shape::<[u32; 2], [u8; CHUNK]>(map::DOCUMENT, MapType::Hash, None),
];

/// The maps that are made when a policy first needs them: arrays, which are found by arrays of maps, and LRU hashes.
pub(super) const OPTIONAL: [Optional; 4] = [
    Optional {
        shape: shape::<u32, WideState>(map::WIDE_STATE, MapType::Array, None),
        reference: map::WIDE_STATE_REF,
    },
    Optional {
        shape: shape::<u32, Ending>(map::ENDINGS, MapType::LruHash, None),
        reference: map::ENDINGS_REF,
    },
    Optional {
        shape: shape::<u32, OffenceRecord>(map::OFFENCES, MapType::Array, None),
        reference: map::OFFENCES_REF,
    },
    Optional {
        shape: shape::<u64, RefusedSyn>(
            map::REFUSED_SYNS,
            MapType::LruHash,
            Some(RefusedSyn::ENTRIES),
        ),
        reference: map::REFUSED_SYNS_REF,
    },
];

/// A map that is made when a policy first needs it.
pub(super) struct Optional {
    pub(super) shape: Shape,
    /// The array that the programs find it by.
    pub(super) reference: &'static str,
}

/// The shape of a map.
pub(crate) fn shape_of(name: &str) -> Option<&'static Shape> {
    let optional = OPTIONAL.iter().map(|optional| &optional.shape);
    SHAPES.iter().chain(optional).find(|shape| shape.name == name)
}

impl Shape {
    /// Makes an optional map of this shape.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn create(&self, entries: u32) -> Result<MapData> {
        // An array of maps takes a hash map of any size, and an array only with this flag.
        let (kind, flags) = match self.kind {
            MapType::Array => (bpf_map_type::BPF_MAP_TYPE_ARRAY, BPF_F_INNER_MAP),
            _ => (bpf_map_type::BPF_MAP_TYPE_LRU_HASH, 0),
        };
        let (key, value) = (self.key as u32, self.value as u32);
        let definition = Map::new_from_params(kind as u32, key, value, entries, flags);
        MapData::create(definition, self.name, None)
            .map_err(|error| object(format!("make the map {}", self.name), &error))
    }

    /// Whether a map could be this one.
    pub(crate) fn fits(&self, map: &MapData) -> bool {
        self.differences(map).is_empty()
    }

    /// How a map differs from this shape, in words.
    pub(crate) fn differences(&self, map: &MapData) -> Vec<String> {
        let info = match map.info() {
            Ok(info) => info,
            Err(error) => return vec![format!("{} tells nothing of itself: {error}", self.name)],
        };
        let kind = info.map_type().ok();
        let mut differences = Vec::new();
        let mut differ = |what: &str, is: String, expected: String| {
            if is != expected {
                differences.push(format!("{} has {what} {is} instead of {expected}", self.name));
            }
        };
        differ(
            "type",
            kind.map_or_else(|| "unknown".to_owned(), |kind| format!("{kind:?}")),
            format!("{:?}", self.kind),
        );
        differ("key size", info.key_size().to_string(), self.key.to_string());
        differ("value size", info.value_size().to_string(), self.value.to_string());
        if let Some(entries) = self.entries {
            differ("entries", info.max_entries().to_string(), entries.to_string());
        }
        differences
    }
}
