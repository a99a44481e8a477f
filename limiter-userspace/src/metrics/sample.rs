//! The metrics of the tables: how full they are, and how full the limits are, by a sample of their
//! states.

use limiter_common::abi::counters::TableStats;

use super::family::{Family, Kind, Value::Whole};
use crate::{
    datapath::{maps::Maps, sources::SharedPackets},
    error::Result,
    query::sample::{Looked, SHARES, Sample, WAITS},
};

/// How full the limits are, in the sampled states.
pub(super) fn limits(sample: &Sample) -> [Family; 2] {
    let [mut used, mut refusing] = [
        (
            "limiter_limit_sampled_states",
            "Sampled states by the share of the burst that is used, from `used` up to the next value; 1 refuses.",
        ),
        (
            "limiter_limit_sampled_refusing_states",
            "Sampled states that refuse, by the seconds until a packet passes, from `wait` up to the next value.",
        ),
    ]
    .map(|(name, help)| Family::new(name, Kind::Gauge, help));
    for it in &sample.limits {
        let layer = layer(it.layer, it.candidate);
        let own = [("limit", it.limit.as_str()), ("layer", layer.as_str())];
        for ((from, _), number) in SHARES.iter().zip(it.spread.used) {
            used.push([own[0], own[1], ("used", from)], Whole(number));
        }
        for ((from, _), number) in WAITS.iter().zip(it.spread.waits) {
            refusing.push([own[0], own[1], ("wait", from)], Whole(number));
        }
    }
    [used, refusing]
}

/// The counts of sources that got an entry in the source table and of sources that lost theirs.
pub(super) fn table_stats(table_stats: TableStats) -> [Family; 2] {
    let TableStats {
        inserted: entries,
        untracked: newcomers,
        evicted_idle: idle,
        evicted_owing: owing,
    } = table_stats;
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    [
        counter(
            "limiter_sources_admitted_total",
            "Sources that were given an entry of the table (entry). Packets of sources without an entry that passed, as \
             the set of their source was full (newcomer): first ones, those of the untracked allowance, and those that \
             no limit is about. Those that a list allowed are left out.",
        )
        .with([("as", "entry")], Whole(entries))
        .with([("as", "newcomer")], Whole(newcomers)),
        counter(
            "limiter_sources_evicted_total",
            "Sources that lost their entry to another one, as they owed nothing (idle). Those that lost their entry or \
             their probation slot though they owed for a single packet, or to limits that are gone or changed since \
             (owing).",
        )
        .with([("state", "idle")], Whole(idle))
        .with([("state", "owing")], Whole(owing)),
    ]
}

/// The counts of keys that got an entry in the bucket table and of keys that lost theirs.
pub(super) fn bucket_stats(table_stats: TableStats) -> [Family; 2] {
    let TableStats { inserted, untracked, evicted_idle, evicted_owing } = table_stats;
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    [
        counter(
            "limiter_buckets_admitted_total",
            "Keys other than a source that were given an entry of the table (entry), and packets of keys that found \
             no room and share one bucket of their limit (shared).",
        )
        .with([("as", "entry")], Whole(inserted))
        .with([("as", "shared")], Whole(untracked)),
        counter(
            "limiter_buckets_evicted_total",
            "Keys that lost their entry to another one, as they owed nothing (idle), or no more than a packet, or only \
             to limits that are gone (owing).",
        )
        .with([("state", "idle")], Whole(evicted_idle))
        .with([("state", "owing")], Whole(evicted_owing)),
    ]
}

/// The counts of offences that got a record and of offences that lost theirs.
pub(super) fn offence_stats(table_stats: TableStats) -> [Family; 2] {
    let TableStats { inserted, untracked, evicted_idle, evicted_owing } = table_stats;
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    [
        counter(
            "limiter_offences_admitted_total",
            "Offences against limits with penalties that were given a record (entry), and refused packets that counted \
             towards no block, as all records of their set were of sources that are blocked (lost).",
        )
        .with([("as", "entry")], Whole(inserted))
        .with([("as", "lost")], Whole(untracked)),
        counter(
            "limiter_offences_evicted_total",
            "Offences that lost their record to another one after a rest (idle), or before it was over (owing). None \
             does while its source is blocked.",
        )
        .with([("state", "idle")], Whole(evicted_idle))
        .with([("state", "owing")], Whole(evicted_owing)),
    ]
}

/// How full the tables are.
///
/// # Errors
/// A map cannot be read.
pub(super) fn tables(maps: &Maps, sample: &Sample) -> Result<[Family; 9]> {
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut entries = gauge("limiter_table_entries", "Entries in a table.");
    let mut capacity = gauge(
        "limiter_table_capacity",
        "Entries that a table has room for, of buckets also before a policy needs them.",
    );
    let mut sampled = gauge("limiter_table_sampled_entries", "Sampled entries of a table.");
    let mut owing = gauge(
        "limiter_table_sampled_owing_entries",
        "Sampled entries that owe: a limit of theirs is not full again.",
    );
    let room = maps.sizes()?;
    for (table, room, looked) in [
        ("sources", room.sources, sample.sources),
        ("buckets", room.buckets, sample.buckets),
        ("wide_states", room.wide_states, sample.wide_states),
    ] {
        let Looked { entries: number, sampled: of_those, owing: of_these } = looked;
        entries.push([("table", table)], Whole(number));
        capacity.push([("table", table)], Whole(room.into()));
        sampled.push([("table", table)], Whole(of_those));
        owing.push([("table", table)], Whole(of_these));
    }
    let SharedPackets { passed, dropped } = maps.shared_packets()?;
    Ok([
        entries,
        capacity,
        sampled,
        owing,
        gauge("limiter_table_sets", "Sets of the source table, of 16 entries each.")
            .with([], Whole(sample.occupancy.sets)),
        gauge("limiter_table_full_sets", "Sets of the source table without a free entry.")
            .with([], Whole(sample.occupancy.full_sets)),
        gauge(
            "limiter_newcomers",
            "The last sources that sent one packet to a full set, and have no entry.",
        )
        .with([], Whole(sample.occupancy.newcomers)),
        Family::new(
            "limiter_shared_packets_total",
            Kind::Counter,
            "Packets of sources that found no room in the table, shared an entry, and passed or were dropped.",
        )
        .with([("verdict", "passed")], Whole(passed))
        .with([("verdict", "dropped")], Whole(dropped)),
        gauge("limiter_memory_bytes", "Kernel memory of all maps; of an agent, but of the tables of prefixes where it may not open them.").with([], Whole(maps.memory()?)),
    ])
}

/// The value of the label `layer`: a number from 1 on, or `candidate`.
pub(crate) fn layer(number: usize, candidate: bool) -> String {
    match candidate {
        true => "candidate".to_owned(),
        false => (number + 1).to_string(),
    }
}
