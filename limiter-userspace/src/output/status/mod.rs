//! What the limiter did so far: `limiter.status/1`, and the same as text.

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

/// The name of this shape.
pub const SCHEMA: &str = "limiter.status/1";

/// The statistics of an instance as `status -j` prints them.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// [`SCHEMA`], or that of what it is part of.
    pub schema: &'static str,
    /// Whether anything is dropped: `enforce`, or `monitor` by the switch or the policy.
    pub mode: GlobalMode,
    /// The attached interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// Every frame, under the one reason that it was counted for.
    pub reasons: Reasons,
    /// Every limit, narrow before wide.
    pub limits: Vec<LimitStatus>,
    /// How full the state is.
    #[serde(flatten)]
    pub tables: Tables,
}

/// An attached interface.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// How the program runs: `native`, `generic` or `hardware`.
    pub mode: &'static str,
    /// Whether the interface is there, in this network namespace.
    pub present: bool,
    /// Whether it is there, in any network namespace: packets that come in by it are decided about.
    pub exists: bool,
    /// Where it is, if it is not here.
    #[serde(skip)]
    pub absence: Option<&'static str>,
    /// Packets by verdict.
    pub packets: Verdicts,
    /// Bytes by verdict.
    pub bytes: Verdicts,
}

/// A quantity by verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verdicts {
    /// Of what passed.
    pub passed: u64,
    /// Of what was dropped.
    pub dropped: u64,
}

/// Frames by [`Reason::index`]; in JSON the packets by [`Reason::name`].
#[derive(Clone, Copy, Debug)]
pub struct Reasons(pub [Tally; REASONS]);

/// What a limit admitted and refused.
#[derive(Clone, Debug, Serialize)]
pub struct LimitStatus {
    /// Its name.
    pub name: String,
    /// Packets that were charged to it.
    pub conform: u64,
    /// Packets that it refused.
    pub exceed: u64,
    /// Packets that it would have refused; it, or everything, is only monitored.
    pub exceed_monitor: u64,
    /// Packets of those that were charged to it that left it [near](limiter_common::algorithm::near).
    pub near: u64,
    /// Bytes that were charged to it.
    pub conform_bytes: u64,
    /// Bytes that it refused.
    pub exceed_bytes: u64,
    /// Bytes that it would have refused.
    pub exceed_monitor_bytes: u64,
    /// Bytes that left it near.
    pub near_bytes: u64,
}

/// How full the state of an instance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tables {
    /// Sources.
    pub sources: Occupancy,
    /// State by other keys than the source.
    pub buckets: Occupancy,
    /// Packets of sources that found no room and shared an entry, since the instance was made.
    pub shared_packets: u64,
    /// Packets of these that were dropped.
    pub shared_dropped: u64,
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
    /// The statistics in a snapshot.
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
/// Those of the serialiser.
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

/// What happens to frames of a reason, in a word.
pub const fn verdict(reason: Reason) -> &'static str {
    if reason.drops() { "dropped" } else { "passed" }
}
