//! Reports on a source and on a kind of packets, under a policy that has one of everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{TestProgram, monotonic},
};
use limiter_userspace::{
    policy::{
        Policy,
        model::{
            Allowance, Count, KeyPart, Layer, Limit, Listed, Match, Mode, Override, OverrideWhom,
            Penalty, Unproven, Whom,
        },
        units::parse_prefix,
    },
    query::{
        Inquiry,
        explain::{Explanation, Question, Standing},
        limit::{Kept, Origin},
        lists::{Block, Until},
        source::SourceReport,
    },
};

use super::super::{define, program};

const FRIEND: [u8; 4] = [198, 51, 100, 1];
const FOE: [u8; 4] = [198, 51, 100, 66];
const TENANT: [u8; 4] = [203, 0, 113, 5];
const OTHER: [u8; 4] = [192, 0, 2, 1];
const TO: [u8; 4] = [192, 0, 2, 99];

fn bucket(burst: u64) -> Allowance {
    Allowance::TokenBucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst }
}

fn limit(name: &str, parts: &[KeyPart], burst: u64) -> Limit {
    define::limit(name, parts, bucket(burst))
}

fn policy() -> Policy {
    let prefix = |text: &str| Whom::Prefix(parse_prefix(text).unwrap());
    let penalty = Penalty {
        backoff: 2,
        max: 600 * SECOND,
        unproven: Unproven::Block,
        ..Penalty::new(SECOND / 100, 30 * SECOND)
    };
    let tenant =
        Override { whom: OverrideWhom::Tenant("acme".into()), layers: Some(vec![bucket(40)]) };
    let ssh = Match { protocols: vec![6], ports: vec![22..=22], ..Match::default() };
    let small = Match { length: Some(0..=100), ..Match::default() };
    let theirs = Match { sources: vec![Whom::Set("partners".into())], ..Match::default() };
    let there = Match { destinations: vec![prefix("10.0.0.0/8")], ..Match::default() };
    Policy {
        sets: BTreeMap::from([("partners".into(), vec![parse_prefix("198.51.100.0/28").unwrap()])]),
        tenants: BTreeMap::from([("acme".into(), vec![parse_prefix("203.0.113.0/24").unwrap()])]),
        allow: vec![Listed { whom: Whom::Set("partners".into()), until: None }],
        deny: vec![Listed { whom: prefix("198.51.100.64/26"), until: None }],
        limits: vec![
            Limit {
                penalty: Some(penalty),
                overrides: vec![tenant],
                candidate: Some(bucket(2)),
                ..limit("source", &[KeyPart::Source], 10)
            },
            limit("ports", &[KeyPart::Source, KeyPart::DestinationPort], 25),
            Limit { mode: Mode::Monitor, ..limit("budget", &[KeyPart::Tenant], 30) },
            Limit { matching: ssh, ..limit("ssh", &[KeyPart::Source], 3) },
            Limit { matching: small, ..limit("small", &[], 1_000) },
            Limit { matching: theirs, ..limit("partner", &[KeyPart::Source], 5) },
            Limit { matching: there, ..limit("inside", &[KeyPart::Destination], 5) },
            Limit { mode: Mode::Off, ..limit("idle", &[KeyPart::Source], 5) },
        ],
        ..Policy::default()
    }
}

fn udp(source: [u8; 4], port: u16) -> Vec<u8> {
    Frame::udp(source, TO, 5_000, port).payload(200).build()
}

fn source(program: &TestProgram, address: [u8; 4], now: u64) -> SourceReport {
    let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
    inquiry.source(IpAddr::from(address).into(), now).unwrap()
}

fn explain(program: &TestProgram, question: &Question, now: u64) -> Explanation {
    Inquiry::new(program.maps(), now).unwrap().explain(question, now).unwrap()
}

/// Each limit, and how much of it is used.
fn used(report: &SourceReport) -> Vec<(&str, Option<u64>)> {
    let limits = report.limits.iter();
    limits.map(|limit| (limit.name.as_str(), limit.fill().map(|fill| fill.used))).collect()
}

fn started() -> (TestProgram, u64) {
    // List entries end by the clock of the machine.
    let (mut program, now) = (program(&policy()), monotonic());
    program.at(now).unwrap();
    (program, now)
}

#[test]
fn each_limit_of_a_source_is_told_with_its_state() {
    let (mut program, now) = started();
    for port in 0..30 {
        for _ in 0..=port % 3 {
            program.run(&udp(TENANT, 1_000 + port)).unwrap();
        }
    }
    let report = source(&program, TENANT, now);
    assert_eq!(report.tenant.as_deref(), Some("acme"));
    // 60 packets, of which the limits admit 40.
    assert_eq!((report.passed.packets, report.dropped.packets), (40, 20));
    assert_eq!(
        used(&report),
        [
            ("ports", None),
            ("ssh", Some(0)),
            ("source (candidate)", Some(2)),
            ("source", Some(40)),
            ("budget", Some(30)),
            ("inside", None),
            ("small", Some(0)),
        ]
    );
    let origin = |name: &str| &report.limits.iter().find(|it| it.name == name).unwrap().origin;
    assert_eq!(origin("source"), &Origin::Tenant("acme".into()));
    assert_eq!(origin("source (candidate)"), &Origin::Candidate);
    assert_eq!(origin("ssh"), &Origin::Default);
    let modes: Vec<_> = report.limits.iter().map(|limit| limit.mode).collect();
    let expected = ["enforce", "enforce", "candidate", "enforce", "monitor", "enforce", "enforce"];
    assert_eq!(modes, expected);

    // Ports 1000 to 1020 got one to three packets each from the first 40. The report lists the fullest 20.
    assert_eq!((report.total, report.states.len()), (21, 20));
    let told: Vec<_> =
        report.states.iter().map(|state| (state.key.as_str(), state.fill.unwrap().used)).collect();
    assert_eq!(told[0], ("203.0.113.5 port 1002/udp", 3));
    assert!(told.is_sorted_by(|one, other| one.1 >= other.1), "the fullest first: {told:?}");
    assert_eq!(told[19].1, 1);
}

/// A tenant is still found when another tenant is inserted before it.
#[test]
fn a_tenant_is_told_by_its_name_after_another_one_came() {
    let (mut program, now) = started();
    program.run(&udp(TENANT, 1_000)).unwrap();
    let mut policy = policy();
    policy.tenants.insert("aaa".into(), vec![parse_prefix("192.0.2.0/24").unwrap()]);
    let whom = OverrideWhom::Tenant("aaa".into());
    let override_ = Override { whom, layers: Some(vec![bucket(15)]) };
    policy.limits[0].overrides.insert(0, override_);
    policy.limits.push(limit("both", &[KeyPart::Tenant, KeyPart::DestinationPort], 7));
    program.apply(&policy).unwrap();
    for _ in 0..2 {
        program.run(&udp(TENANT, 1_000)).unwrap();
    }
    for (address, name, burst) in [(TENANT, "acme", 40), (OTHER, "aaa", 15)] {
        let report = source(&program, address, now);
        assert_eq!(report.tenant.as_deref(), Some(name));
        let own = report.limits.iter().find(|limit| limit.name == "source").unwrap();
        assert_eq!(own.origin, Origin::Tenant(name.into()));
        assert_eq!((own.allowance, own.fill().unwrap().most), (Some(bucket(burst)), burst));
        let it = explain(&program, &Question::of(address.into()), now);
        assert_eq!(it.tenant.unwrap().0, name);
    }
    let states = source(&program, TENANT, now).states;
    let keys: Vec<_> = states.iter().map(|state| state.key.as_str()).collect();
    assert!(keys.contains(&"tenant acme port 1000/udp"), "{keys:?}");
}

#[test]
fn of_many_states_the_fullest_are_told() {
    let (mut program, now) = started();
    program.at(now).unwrap();
    for port in 0..40 {
        program.run(&udp(TENANT, 1_000 + port)).unwrap();
    }
    let report = source(&program, TENANT, now);
    assert_eq!((report.total, report.states.len()), (40, 20));
    let stranger = source(&program, OTHER, now);
    assert_eq!((stranger.total, stranger.known), (0, false), "the state of others is theirs");
}

/// Open connections and logs are reported like buckets: of one key, and of each of several.
#[test]
fn open_connections_are_told_with_the_times_until_places_are_free() {
    let of = |name: &str, parts: &[KeyPart], allowance| Limit {
        count: Count::Connections,
        layers: vec![Layer { allowance, key: None }],
        ..limit(name, parts, 1)
    };
    let by_port = [KeyPart::Source, KeyPart::DestinationPort];
    let open = |limit| Allowance::Concurrent { limit, idle: 60 * SECOND };
    let log = Allowance::SlidingLog { limit: 2, window: 60 * SECOND };
    let opened = |limits: Vec<Limit>| {
        let policy = Policy { limits, ..Policy::default() };
        let (mut program, mut now) = (program(&policy), monotonic());
        for (port, from) in [(80, 5_000), (80, 5_001), (443, 5_000), (25, 5_000)] {
            program.at(now).unwrap();
            program.run(&Frame::tcp(OTHER, TO, from, port, SYN).build()).unwrap();
            now += SECOND;
        }
        (program, now)
    };
    let limits = vec![of("open", &[KeyPart::Source], open(4)), of("ports", &by_port, open(3))];
    let (program, now) = opened(limits);
    let report = source(&program, OTHER, now);
    let own = report.limits.iter().find(|limit| limit.name == "open").unwrap();
    let fill = own.fill().unwrap();
    assert_eq!((fill.most, fill.used, own.key.as_str()), (4, 4, "source"));
    let (next, full) = (fill.next.unwrap(), fill.full);
    assert!(full > next && next > Duration::from_secs(55), "{next:?} {full:?}");
    assert!(full < Duration::from_secs(70), "{full:?}");
    let later = source(&program, OTHER, now + full.as_nanos() as u64);
    let own = later.limits.iter().find(|limit| limit.name == "open").unwrap();
    assert_eq!((own.fill().unwrap().used, own.fill().unwrap().full), (0, Duration::ZERO));

    let (logged, at) = opened(vec![of("logged", &by_port, log)]);
    for (name, report) in [("ports", &report), ("logged", &source(&logged, OTHER, at))] {
        let told = report.states.iter().map(|state| {
            assert_eq!(state.limit, name);
            (state.key.as_str(), state.fill.unwrap().used)
        });
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        let expected = [
            ("192.0.2.1 port 25/tcp", 1),
            ("192.0.2.1 port 443/tcp", 1),
            ("192.0.2.1 port 80/tcp", 2),
        ];
        assert_eq!(told, expected, "{name}");
        assert_eq!(report.total, 3);
    }
    let stranger = source(&program, TENANT, now);
    assert_eq!(stranger.total, 0);
}

#[test]
fn a_block_is_told_with_what_is_left_of_it() {
    let (mut program, mut now) = started();
    for _ in 0..40 {
        program.run(&udp(OTHER, 53)).unwrap();
        now += SECOND / 1_000;
        program.at(now).unwrap();
    }
    let report = source(&program, OTHER, now);
    let Some(Block { until: Until::For(left), limit, blocks, pushed: false }) =
        report.lists.penalty
    else {
        unreachable!("it is blocked: {report:?}");
    };
    assert!(left > Duration::from_secs(29) && left < Duration::from_secs(30), "{left:?}");
    assert_eq!((limit.as_deref(), blocks), (Some("source"), 1));
    let explanation = explain(&program, &Question::of(OTHER.into()), now);
    assert_eq!(explanation.lists[0].list, "penalty");
    assert!(explanation.lists[0].entry.contains("block 1"), "{explanation:?}");
    assert_eq!(explanation.verdict.unwrap().reason.name(), "penalty");
    let later = now + 31 * SECOND;
    assert_eq!(source(&program, OTHER, later).lists.penalty, None, "it ends by itself");
}

#[test]
fn lists_are_told_in_their_order_with_their_entries() {
    let (program, now) = started();
    for (address, list, entry, reason) in [
        (FRIEND, "allow", "198.51.100.0/28 in the set partners", "allow"),
        (FOE, "deny", "198.51.100.64/26", "deny"),
    ] {
        let it = explain(&program, &Question::of(address.into()), now);
        let told: Vec<_> =
            it.lists.iter().map(|it| (it.list, it.entry.as_str(), it.until)).collect();
        assert_eq!(told, [(list, entry, Until::Forever)]);
        assert_eq!(it.verdict.unwrap().reason.name(), reason);
    }
    let mut policy = policy();
    policy.deny[0].whom = Whom::Prefix(parse_prefix("198.51.100.0/24").unwrap());
    let mut program = program;
    program.apply(&policy).unwrap();
    let it = explain(&program, &Question::of(FRIEND.into()), now);
    let lists: Vec<_> = it.lists.iter().map(|it| it.list).collect();
    assert_eq!(lists, ["allow", "deny"], "the first decides");
    assert_eq!(it.verdict.unwrap().reason.name(), "allow");
}

/// How each limit applies to a kind of packets, in words.
fn standings(it: &Explanation) -> Vec<String> {
    let limits = it.limits.iter();
    limits
        .map(|(report, standing)| match standing {
            Standing::Applies => format!("{}: yes", report.name),
            Standing::Depends(words) => format!("{}: if {}", report.name, words.join(", ")),
            Standing::Not(word) => format!("{}: no, {word}", report.name),
        })
        .collect()
}

#[test]
fn a_limit_that_is_not_about_a_packet_names_one_condition() {
    let (mut program, now) = started();
    program.run(&Frame::tcp(OTHER, TO, 5_000, 22, SYN).build()).unwrap();
    let any = Question::of(OTHER.into());
    assert_eq!(
        standings(&explain(&program, &any, now)),
        [
            "ports: yes",
            "ssh: if protocol, port",
            "partner: no, source",
            "source (candidate): yes",
            "source: yes",
            "budget: no, tenant",
            "inside: if destination",
            "small: if length",
            "idle: no, off",
        ]
    );
    let ssh = Question {
        protocol: Some(6),
        port: Some(22),
        length: Some(64),
        destination: Some(TO.into()),
        ..any.clone()
    };
    let it = explain(&program, &ssh, now);
    let told = standings(&it);
    assert_eq!((told[1].as_str(), told[6].as_str()), ("ssh: yes", "inside: no, destination"));
    assert_eq!(told[7], "small: yes");
    let used = |name: &str| {
        let (report, _) = it.limits.iter().find(|(report, _)| report.name == name).unwrap();
        report.fill().map(|fill| fill.used)
    };
    assert_eq!((used("ports"), used("ssh"), used("small")), (Some(1), Some(1), Some(1)));
    let verdict = it.verdict.unwrap();
    assert_eq!(verdict.reason.name(), "conform");
    assert_eq!(verdict.charged, ["ports", "ssh", "source (candidate)", "source", "small"]);

    let long = Question { length: Some(1_000), port: Some(443), ..ssh.clone() };
    let told = standings(&explain(&program, &long, now));
    assert_eq!((told[1].as_str(), told[7].as_str()), ("ssh: no, port", "small: no, length"));
    let echo = Question { protocol: Some(1), port: None, icmp: Some(8), ..ssh };
    assert_eq!(standings(&explain(&program, &echo, now))[1], "ssh: no, protocol");
    // A limit whose key is not known has a state for each key.
    let it = explain(&program, &any, now);
    assert!(matches!(it.limits[0].0.kept, Kept::Many) && it.verdict.is_none());
}

#[test]
fn a_limit_with_one_state_for_all_is_told_without_a_source() {
    let window = SECOND * 60;
    let log = Allowance::SlidingLog { limit: 40, window };
    let theirs = Match {
        sources: vec![Whom::Prefix(parse_prefix("10.1.0.0/16").unwrap())],
        ..Match::default()
    };
    let policy = Policy {
        limits: vec![
            limit("source", &[KeyPart::Source], 1_000),
            limit("ports", &[KeyPart::DestinationPort], 1_000),
            limit("all", &[], 200),
            Limit { matching: theirs, ..define::limit("log", &[], log) },
        ],
        ..Policy::default()
    };
    let (mut program, now) = (program(&policy), monotonic());
    program.at(now).unwrap();
    let told = |program: &TestProgram| -> Vec<(String, u64, u64, u64)> {
        let shared = Inquiry::new(program.maps(), now).unwrap().shared(now).unwrap();
        let told = shared.into_iter().map(|(name, it)| (name, it.used, it.most, it.percent()));
        told.collect::<BTreeSet<_>>().into_iter().collect()
    };
    let fresh = [("all".to_owned(), 0, 200, 0), ("log".to_owned(), 0, 40, 0)];
    assert_eq!(told(&program), fresh);
    for (source, packets) in [([10, 1, 0, 1], 10), ([10, 2, 0, 1], 90)] {
        let frame = Frame::udp(source, TO, 1, 2).build();
        assert_eq!(program.run_many(&frame, packets).unwrap(), u64::from(packets));
    }
    assert_eq!(told(&program), [("all".to_owned(), 100, 200, 50), ("log".to_owned(), 10, 40, 25)]);
}
