//! The statistics of an instance: as JSON of the schema `limiter.status/1`, and as text.

mod text;

use limiter_common::{
    abi::counters::LimitTally,
    base::tally::Tally,
    packet::reason::{REASONS, Reason},
};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    datapath::snapshot::{InterfaceStatistics, LimitStatistics, Snapshot},
    policy::model::GlobalMode,
};

/// The JSON schema.
pub const SCHEMA: &str = "limiter.status/1";

/// The statistics of an instance, as `status -j` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// [`SCHEMA`], or the schema of the object that contains this one.
    pub schema: &'static str,
    /// `enforce`, or `monitor` if the switch or the policy is in monitor mode.
    pub mode: GlobalMode,
    /// The attached interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// Frames by the reason that each was counted under.
    pub reasons: Reasons,
    /// Every limit, layer and candidate.
    pub limits: Vec<LimitStatus>,
    /// How full the tables are.
    #[serde(flatten)]
    pub tables: Tables,
}

/// An attached interface.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// The XDP mode: `native`, `generic` or `hardware`.
    pub mode: &'static str,
    /// Whether the interface exists in this network namespace.
    pub present: bool,
    /// Whether the interface exists in any network namespace, so that its packets are limited.
    pub exists: bool,
    /// Whether its packets find no main program, so that all of them pass.
    pub unloaded: bool,
    /// The words for where the interface is, if it is not in this network namespace.
    #[serde(skip)]
    pub absence: Option<&'static str>,
    /// Packets by verdict.
    pub packets: Verdicts,
    /// Bytes by verdict.
    pub bytes: Verdicts,
}

/// A number of packets or bytes, by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// The part that passed.
    pub passed: u64,
    /// The part that was dropped.
    pub dropped: u64,
}

/// Frames by [`Reason::index`]; in JSON the packets by [`Reason::name`].
#[derive(Clone, Copy, Debug)]
pub struct Reasons(pub [Tally; REASONS]);

/// The packets that a limit admitted and refused, since the instance was made.
#[derive(Clone, Debug, Serialize)]
pub struct LimitStatus {
    /// The name of the limit, layer or candidate.
    pub name: String,
    /// Packets that were charged to it.
    pub conform: u64,
    /// Packets that it refused.
    pub exceed: u64,
    /// Packets that exceeded it and were not dropped for it, as the limit, the policy or the
    /// instance only monitors.
    pub exceed_monitor: u64,
    /// Packets charged to it that left it [near](limiter_common::algorithm::near).
    pub near: u64,
    /// Bytes that were charged to it.
    pub conform_bytes: u64,
    /// Bytes that it refused.
    pub exceed_bytes: u64,
    /// Bytes that exceeded it and were not dropped for it.
    pub exceed_monitor_bytes: u64,
    /// Bytes charged to it that left it near.
    pub near_bytes: u64,
}

/// How full the tables of an instance are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tables {
    /// The source table.
    pub sources: Occupancy,
    /// The bucket table.
    pub buckets: Occupancy,
    /// Packets of sources that found no room in the source table, since the instance was made.
    pub shared_packets: u64,
    /// The dropped ones of these packets.
    pub shared_dropped: u64,
    /// Refused packets that counted towards no block, as all records of the set of their offence were of blocked sources.
    pub unrecorded_offences: u64,
    /// Kernel memory of all maps, in bytes.
    pub memory_bytes: u64,
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    /// Entries in it.
    pub tracked: u64,
    /// Entries that it has room for.
    pub capacity: u64,
}

impl Status {
    /// Makes the statistics from a snapshot.
    pub fn new(snapshot: &Snapshot, tables: Tables) -> Self {
        Self {
            schema: SCHEMA,
            mode: snapshot.monitoring.mode(),
            interfaces: snapshot.interfaces.iter().map(InterfaceStatus::new).collect(),
            reasons: Reasons(snapshot.reasons),
            limits: snapshot.limits.iter().map(LimitStatus::new).collect(),
            tables,
        }
    }
}

impl InterfaceStatus {
    fn new(interface: &InterfaceStatistics) -> Self {
        let InterfaceStatistics { passed, dropped, .. } = *interface;
        Self {
            name: interface.name.clone(),
            mode: interface.mode.name(),
            present: interface.present,
            exists: interface.exists,
            unloaded: interface.unloaded,
            absence: interface.absence(),
            packets: Verdicts { passed: passed.packets, dropped: dropped.packets },
            bytes: Verdicts { passed: passed.bytes, dropped: dropped.bytes },
        }
    }
}

impl LimitStatus {
    fn new(limit: &LimitStatistics) -> Self {
        let LimitTally { conform, exceed, monitored, near } = limit.tally;
        Self {
            name: limit.name.clone(),
            conform: conform.packets,
            exceed: exceed.packets,
            exceed_monitor: monitored.packets,
            near: near.packets,
            conform_bytes: conform.bytes,
            exceed_bytes: exceed.bytes,
            exceed_monitor_bytes: monitored.bytes,
            near_bytes: near.bytes,
        }
    }
}

impl Serialize for Reasons {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        by_reason(serializer, |reason| self.0[reason.index()].packets)
    }
}

/// Serialises a value of every reason, by its name, in the order of [`Reason::ALL`].
///
/// # Errors
/// The errors of the serialiser.
pub fn by_reason<S: Serializer, V: Serialize>(
    serializer: S,
    value: impl Fn(Reason) -> V,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(REASONS))?;
    for reason in Reason::ALL {
        map.serialize_entry(reason.name(), &value(reason))?;
    }
    map.end()
}

/// The verdict on frames of a reason, in a word.
pub const fn verdict(reason: Reason) -> &'static str {
    if reason.drops() { "dropped" } else { "passed" }
}
