//! A made-up limiter, for tests.

use std::time::{Duration, Instant};

use ipnet::IpNet;
use limiter_common::{
    abi::counters::LimitTally,
    base::tally::Tally,
    packet::reason::{REASONS, Reason},
};

use crate::{
    datapath::{
        mode::Mode,
        monitoring::Monitoring,
        snapshot::{InterfaceStatistics, LimitStatistics, Snapshot, Talker},
        survey::Sighting,
    },
    output::{
        limits::{LimitRow, LimitRows},
        status::{Occupancy, Tables},
    },
    policy::{Bucket, Builtin, model::Count, units::parse_rate},
    query::{
        Fill, Verdict,
        explain::{Explanation, ListReport, Standing as Matches},
        limit::{Kept, LimitReport, Origin},
        lists::{Lists, Until},
        source::{KeyedReport, SourceReport},
    },
    watch::{
        opened::Details,
        standing::Standing,
        view::{Reading, Scan},
    },
};

/// A reading after `time`, under a flood that comes and goes every 20 s.
pub(crate) fn reading(taken: Instant, time: Duration, scan: bool) -> Reading {
    let seconds = time.as_secs_f64();
    let ordinary = tally(2_000_000 + grown(seconds, 48_000.0), 420);
    let flood = tally(300_000_000 + flooded(seconds), 60);
    let syns = tally(grown(seconds, 812.0), 60);
    let other = tally(1_234, 42);
    let mut snapshot = Snapshot {
        taken,
        monitoring: Monitoring::default(),
        interfaces: vec![
            interface(0, "veth0", Mode::Native, [ordinary, flood]),
            interface(1, "eth1", Mode::Generic, [other, syns]),
        ],
        reasons: [Tally::default(); REASONS],
        limits: vec![
            statistics(Builtin::Connection, tally(0, 0), tally(0, 0)),
            statistics(Builtin::Syn, tally(grown(seconds, 50.0), 60), syns),
            statistics(Builtin::Source, ordinary, flood),
        ],
    };
    for (reason, tally) in
        [(Reason::Conform, ordinary), (Reason::NonIp, other), (Reason::Exceed, syns.plus(flood))]
    {
        snapshot.reasons[reason.index()] = tally;
    }
    let rows = vec![
        LimitRow::off(Builtin::Connection.name()),
        limit(Builtin::Syn, "50/s", "50", 0),
        limit(Builtin::Source, "1kpps", "200", 2),
    ];
    let limits = LimitRows { rows, lists: false };
    Reading { snapshot, limits, scan: scan.then(|| scanned(seconds, flood, ordinary)) }
}

/// The standings of its sources, by their places.
pub(crate) fn standings(sources: &[IpNet]) -> Vec<Standing> {
    let limit = || Builtin::Source.name().to_owned();
    let of = |place: usize| match place {
        0..=2 => Standing::Over { limit: limit(), enforced: true },
        3 => Standing::Listed("denied", Until::For(Duration::from_secs(541))),
        4 => Standing::Over { limit: limit(), enforced: false },
        5 => Standing::Listed("allowed", Until::Forever),
        _ => Standing::Within { fullest: Some((limit(), 42)), by_more: None },
    };
    (0..sources.len()).map(of).collect()
}

/// The details of one of its sources after `time`, counted at `counted`.
pub(crate) fn details(source: IpNet, counted: Instant, time: Duration) -> Details {
    let seconds = time.as_secs_f64();
    let bucket = Bucket::new(parse_rate("1kpps").unwrap(), 200).unwrap();
    let fill = |used, next| {
        let full = Duration::from_millis(used);
        Fill { most: 200, used, next: Some(Duration::from_micros(next)), full }
    };
    let limit = |name: &str, key: &str, kept| LimitReport {
        name: name.into(),
        key: key.into(),
        count: Count::Packets,
        mode: "enforce",
        allowance: Some(bucket.into()),
        origin: Origin::Default,
        kept,
    };
    let limits = vec![
        limit("connection", "connection", Kept::Many),
        limit("source", "source", Kept::One(Some(fill(200, 640)))),
    ];
    let state = KeyedReport {
        limit: "connection".into(),
        key: "203.0.113.1:4000 > 198.51.100.1:9/udp".into(),
        fill: Some(fill(120, 0)),
    };
    let report = SourceReport {
        source,
        known: true,
        monitoring: Monitoring::default(),
        tenant: Some("gold".into()),
        passed: tally(grown(seconds, 1_000.0), 420),
        dropped: tally(grown(seconds, 20_000.0), 60),
        counted,
        lists: Lists::default(),
        listed: Vec::new(),
        limits: limits.clone(),
        states: vec![state],
        total: 3,
    };
    let [connection, of_source] = <[LimitReport; 2]>::try_from(limits).unwrap();
    let limits = vec![
        (connection, Matches::Depends(vec!["destination", "port"])),
        (of_source, Matches::Applies),
    ];
    let verdict = Verdict {
        reason: Reason::Deny,
        enforced: Reason::Deny,
        limit: None,
        exceeded: vec![],
        charged: vec![],
    };
    let entry = "203.0.112.0/23".to_owned();
    let until = Until::For(Duration::from_secs(541));
    Details {
        report,
        explanation: Explanation {
            source,
            monitoring: Monitoring::default(),
            lists: vec![ListReport { list: "deny", entry, layer: "document", reason: None, until }],
            control: None,
            tenant: Some(("gold".into(), None)),
            limits,
            verdict: Some(verdict),
        },
        requests: Vec::new(),
    }
}

/// A reading of a limiter without limits.
pub(crate) fn unlimited(taken: Instant) -> Reading {
    let rows = Builtin::LISTED.map(|limit| LimitRow::off(limit.name())).into();
    Reading { limits: LimitRows { rows, lists: false }, ..reading(taken, Duration::ZERO, true) }
}

fn scanned(seconds: f64, flood: Tally, ordinary: Tally) -> Scan {
    let talker = |place: u8| Talker {
        address: if place.is_multiple_of(3) {
            [0x2001, 0xdb8, 0x1000 + u16::from(place), 0xfeed, 0, 0, 0, 0].into()
        } else {
            [203, 0, 113, place].into()
        },
        prefix: if place.is_multiple_of(3) { 64 } else { 32 },
        passed: part(ordinary, 60),
        dropped: part(flood, u64::from(place) * 4),
    };
    // Rates over the last second.
    #[expect(clippy::cast_precision_loss, reason = "made up")]
    let rate = (flooded(seconds) - flooded((seconds - 1.0).max(0.0))) as f32 / 4.0;
    let rates = |place: u8| (seconds > 0.0).then(|| [800.0, rate / f32::from(place)]);
    let found = (1..=60).map(|place| Sighting { talker: talker(place), rates: rates(place) });
    Scan {
        found: found.collect(),
        matching: 60,
        tables: Tables {
            sources: Occupancy { tracked: 12_345, capacity: 1_048_576 },
            buckets: Occupancy { tracked: 9_876, capacity: 262_144 },
            shared_packets: 0,
            shared_dropped: 0,
            unrecorded_offences: 0,
            memory_bytes: 171_966_464,
        },
    }
}

/// Packets of a flood that comes and goes every 20 s, after this many seconds.
fn flooded(seconds: f64) -> u64 {
    let phase = std::f64::consts::TAU / 20.0;
    grown(1.0, 1_250_000.0 * (seconds - (seconds * phase).sin() / phase))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made up")]
fn grown(seconds: f64, rate: f64) -> u64 {
    (seconds * rate) as u64
}

const fn tally(packets: u64, length: u64) -> Tally {
    Tally { packets, bytes: packets * length }
}

const fn part(tally: Tally, parts: u64) -> Tally {
    Tally { packets: tally.packets / parts, bytes: tally.bytes / parts }
}

fn interface(
    link: u32,
    name: &str,
    mode: Mode,
    [passed, dropped]: [Tally; 2],
) -> InterfaceStatistics {
    InterfaceStatistics {
        link,
        name: name.into(),
        mode,
        present: true,
        exists: true,
        unloaded: false,
        passed,
        dropped,
    }
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
