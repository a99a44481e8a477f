//! A made-up limiter to draw.

use std::time::{Duration, Instant};

use limiter_common::{
    contract::{LimitTally, Tally},
    reason::{REASONS, Reason},
};

use crate::{
    datapath::{
        mode::Mode,
        monitoring::Monitoring,
        snapshot::{InterfaceStatistics, LimitStatistics, Snapshot, Talker},
    },
    output::{
        limits::{LimitRow, LimitRows},
        status::{Occupancy, Tables},
    },
    policy::Builtin,
    watch::view::{Reading, Scan},
};

/// What it did after `time` under a flood that comes and goes every 20 s.
pub(crate) fn reading(taken: Instant, time: Duration, scan: bool) -> Reading {
    let seconds = time.as_secs_f64();
    let ordinary = tally(2_000_000 + grown(seconds, 48_000.0), 420);
    let phase = std::f64::consts::TAU / 20.0;
    let flood = 1_250_000.0 * (seconds - (seconds * phase).sin() / phase);
    let flood = tally(300_000_000 + grown(1.0, flood), 60);
    let syns = tally(grown(seconds, 812.0), 60);
    let other = tally(1_234, 42);
    let mut snapshot = Snapshot {
        taken,
        monitoring: Monitoring::default(),
        interfaces: vec![
            interface("veth0", Mode::Native, [ordinary, flood]),
            interface("eth1", Mode::Generic, [other, syns]),
        ],
        reasons: [Tally::default(); REASONS],
        limits: vec![
            statistics(Builtin::Connection, tally(0, 0), tally(0, 0)),
            statistics(Builtin::Syn, tally(grown(seconds, 50.0), 60), syns),
            statistics(Builtin::Source, ordinary, flood),
        ],
    };
    for (reason, tally) in
        [(Reason::Conform, ordinary), (Reason::NonIp, other), (Reason::Exceed, sum(syns, flood))]
    {
        snapshot.reasons[reason.index()] = tally;
    }
    let rows = vec![
        LimitRow::off(Builtin::Connection.name()),
        limit(Builtin::Syn, "50/s", "50", 0),
        limit(Builtin::Source, "1kpps", "200", 2),
    ];
    let limits = LimitRows { rows, lists: false };
    Reading { snapshot, limits, scan: scan.then(|| scanned(flood, ordinary)) }
}

/// The same without a limit.
pub(crate) fn unlimited(taken: Instant) -> Reading {
    let rows = Builtin::ALL.map(|limit| LimitRow::off(limit.name())).into();
    Reading { limits: LimitRows { rows, lists: false }, ..reading(taken, Duration::ZERO, true) }
}

fn scanned(flood: Tally, ordinary: Tally) -> Scan {
    let talkers = (1..=60_u8).map(|place| Talker {
        address: if place.is_multiple_of(3) {
            [0x2001, 0xdb8, 0x1000 + u16::from(place), 0xfeed, 0, 0, 0, 0].into()
        } else {
            [203, 0, 113, place].into()
        },
        prefix: if place.is_multiple_of(3) { 64 } else { 32 },
        passed: part(ordinary, 60),
        dropped: part(flood, u64::from(place) * 4),
    });
    Scan {
        talkers: talkers.collect(),
        tables: Tables {
            sources: Occupancy { tracked: 12_345, capacity: 1_048_576 },
            buckets: Occupancy { tracked: 9_876, capacity: 262_144 },
            shared_packets: 0,
            memory_bytes: 171_966_464,
        },
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made up")]
fn grown(seconds: f64, rate: f64) -> u64 {
    (seconds * rate) as u64
}

const fn tally(packets: u64, length: u64) -> Tally {
    Tally { packets, bytes: packets * length }
}

const fn sum(one: Tally, other: Tally) -> Tally {
    Tally { packets: one.packets + other.packets, bytes: one.bytes + other.bytes }
}

const fn part(tally: Tally, parts: u64) -> Tally {
    Tally { packets: tally.packets / parts, bytes: tally.bytes / parts }
}

fn interface(name: &str, mode: Mode, [passed, dropped]: [Tally; 2]) -> InterfaceStatistics {
    InterfaceStatistics { name: name.into(), mode, present: true, passed, dropped }
}

fn statistics(limit: Builtin, conform: Tally, exceed: Tally) -> LimitStatistics {
    LimitStatistics {
        name: limit.name().into(),
        tally: LimitTally { conform, exceed, ..LimitTally::default() },
    }
}

fn limit(limit: Builtin, rate: &str, burst: &str, overrides: usize) -> LimitRow {
    let [rate, burst] = [rate, burst].map(|text| Some(text.to_owned()));
    LimitRow { rate, burst, overrides, ..LimitRow::off(limit.name()) }
}
