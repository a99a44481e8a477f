//! Control traffic of the link has budgets, and no limit or list applies to it. Packets that are nested too
//! deep are dropped whatever limits and lists say. A packet that declares no length is charged by the headers
//! that are present.

use std::collections::{BTreeMap, BTreeSet};

use limiter_common::{
    algorithm::rate::SECOND,
    packet::{control::Protocol, headers::Packet, parse::parse as parse_frame, reason::Reason},
    policy::control,
};
use limiter_tests::{
    packet::{ACK, Extension, Frame, PSH, SYN},
    program::{TestProgram, Verdict},
};
use limiter_userspace::{
    policy::{Policy, document::parse},
    query::{Inquiry, frame::Sighting},
};

use super::{NOW, counted, program};

const LOCAL: [u16; 8] = [0xfe80, 0, 0, 0, 0, 0, 0, 0xbad];
const UNSPECIFIED: [u16; 8] = [0; 8];
const GLOBAL: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 7];
const NEIGHBOUR: [u8; 4] = [192, 0, 2, 9];

pub(super) fn policy(text: &str) -> Policy {
    let text = format!("version: 1\n{text}");
    parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
}

fn solicitation(from: [u16; 8]) -> Frame {
    Frame::ip(from, [0xff02, 0, 0, 0, 0, 1, 0xff00, 1], 58).bytes(&[135]).payload(27).ttl(255)
}

/// One packet of each protocol that only a neighbour can send, and one of each that a remote host may send.
pub(super) fn kinds() -> [Vec<Frame>; 2] {
    let group6 = |last| [0xff02, 0, 0, 0, 0, 0, 0, last];
    let report = Frame::ip(LOCAL, group6(0x16), 58).bytes(&[143]).payload(27).ttl(1);
    let link = [
        solicitation(LOCAL),
        report.extension(Extension::router_alert(0)),
        Frame::ip(NEIGHBOUR, [224, 0, 0, 22], 2).payload(16).ttl(1),
        Frame::ip(NEIGHBOUR, [224, 0, 0, 18], 112).payload(20).ttl(255),
        Frame::udp(NEIGHBOUR, [192, 0, 2, 1], 49_152, 3784).payload(24).ttl(255),
        Frame::ip(LOCAL, group6(5), 89).payload(36).ttl(1),
        Frame::udp(LOCAL, [0xff02, 0, 0, 0, 0, 0, 1, 2], 546, 547).payload(40),
    ];
    let far = [
        Frame::ip(NEIGHBOUR, [192, 0, 2, 1], 89).payload(36).ttl(1),
        Frame::udp([203, 0, 113, 5], [192, 0, 2, 1], 67, 68).payload(240),
    ];
    [link.into(), far.into()]
}

/// Runs a frame `times` times, and compares each verdict with that of the inquiry. Returns how many passed.
pub(super) fn run(program: &mut TestProgram, frame: &Frame, times: u32, now: u64) -> u32 {
    let frame = frame.build();
    let mut passed = 0;
    for _ in 0..times {
        let before = program.counters().unwrap().reasons;
        let told = {
            let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
            inquiry.verdict(&Sighting::whole(&frame), 0, now).unwrap().reason
        };
        passed += u32::from(program.run(&frame).unwrap() == Verdict::Pass);
        let counted = program.counters().unwrap().reasons[told.index()].packets;
        assert_eq!(counted, before[told.index()].packets + 1, "the inquiry says {told:?}");
    }
    passed
}

/// A program by whose seed no two sources of these frames share a word of the budgets. One in some 60 seeds of an instance has
/// two of a dozen sources share one.
fn program_of_unshared(policy: &Policy, frames: &[&Frame]) -> TestProgram {
    let mut others = Vec::new();
    loop {
        let program = program(policy);
        let seed = program.maps().in_force().unwrap().held.seed();
        let mut places = BTreeMap::new();
        for frame in frames {
            let mut packet = Packet::UNREADABLE;
            parse_frame(frame.build().as_slice(), &mut packet).unwrap();
            let protocol = Protocol::of(&packet).unwrap();
            if let Some(place) = control::place(&packet, protocol, seed) {
                let sources: &mut BTreeSet<_> = places.entry(place).or_default();
                sources.insert((packet.source.words, protocol as u64));
            }
        }
        if places.values().all(|sources| sources.len() == 1) {
            return program;
        }
        // Another test takes it: it is not given back before there is one.
        others.push(program);
    }
}

#[test]
fn control_traffic_has_budgets_and_no_list_is_about_it() {
    const TEXT: &str = "deny: ['::/0', 0.0.0.0/0]\ncontrol: {budget: {rate: 1/s, burst: 12}, \
        per_source: {rate: 1/s, burst: 5}, far: {rate: 1/s, burst: 2}";
    let [link, far] = kinds();
    let unspecified = solicitation(UNSPECIFIED);
    let gateway = solicitation([0xfe80, 0, 0, 0, 0, 0, 0, 1]);
    // Anyone can forge packets from the unspecified address to a global one, so they have the budget `far`.
    let relayed = Frame::udp([0; 4], [192, 0, 2, 1], 68, 67).payload(240);
    let ospf = Frame::ip([0; 4], [192, 0, 2, 1], 89).payload(36).ttl(1);
    let frames: Vec<_> =
        link.iter().chain(&far).chain([&unspecified, &gateway, &relayed, &ospf]).collect();
    let mut program = program_of_unshared(&policy(&format!("{TEXT}}}")), &frames);
    let echo = Frame::echo(LOCAL, GLOBAL, 1, 1);
    assert_eq!(run(&mut program, &echo, 3, NOW), 0, "ordinary packets are denied");
    for (frames, burst) in [(&link, 5), (&far, 2)] {
        for frame in frames {
            assert_eq!(run(&mut program, frame, 8, NOW), burst, "{frame:?}");
        }
    }
    let passed = u64::from(7 * 5 + 2 * 2_u32);
    assert_eq!(
        [Reason::Control, Reason::ControlExceed, Reason::Deny].map(|it| counted(&program, it)),
        [passed, 72 - passed, 3]
    );
    // Each source has a budget of its own, all sources without an address share one, and all together have
    // that of the link.
    assert_eq!(run(&mut program, &unspecified, 8, NOW), 5);
    assert_eq!(run(&mut program, &gateway, 8, NOW), 2);
    assert_eq!([relayed, ospf].map(|frame| run(&mut program, &frame, 8, NOW)), [2, 2]);
    // Clients that ask for an address have only what is left of the budget of the link.
    let asks = Frame::udp([0; 4], [255; 4], 68, 67).payload(240);
    assert_eq!(run(&mut program, &asks, 12, NOW), 7);
    program.at(NOW + 2 * SECOND).unwrap();
    assert_eq!(run(&mut program, &unspecified, 8, NOW + 2 * SECOND), 2);
    // A packet that one budget refuses is not charged to the other. That of the link is used up, that of the
    // source is not.
    assert_eq!(run(&mut program, &link[0], 4, NOW + 2 * SECOND), 0);
    program.at(NOW + 4 * SECOND).unwrap();
    assert_eq!(run(&mut program, &link[0], 4, NOW + 4 * SECOND), 2);

    // The operator's switch stops all drops.
    program.split().unwrap().1.switch_monitor(true).unwrap();
    let monitored = counted(&program, Reason::Monitor);
    assert_eq!(run(&mut program, &link[0], 4, NOW + 4 * SECOND), 4);
    assert_eq!(counted(&program, Reason::Monitor), monitored + 4);
    program.split().unwrap().1.switch_monitor(false).unwrap();

    // Protocols that the policy declares ordinary, or that a limit names, are denied like any packet.
    let now = NOW + 60 * SECOND;
    program.at(now).unwrap();
    program.apply(&policy(&format!("{TEXT}, ordinary: [ospf, mld]}}"))).unwrap();
    for (place, expected) in [(0, 1), (1, 0), (5, 0), (6, 1)] {
        assert_eq!(run(&mut program, &link[place], 1, now), expected, "{place}");
    }
    let limit = "limits: [{name: it, match: {protocol: vrrp}, key: source, rate: 1/s}]";
    program.apply(&policy(&format!("{TEXT}}}\n{limit}"))).unwrap();
    assert_eq!([3, 5].map(|place| run(&mut program, &link[place], 1, now)), [0, 1]);
    program.apply(&policy("deny: ['::/0', 0.0.0.0/0]\ncontrol: off")).unwrap();
    for frame in link.iter().chain(&far) {
        assert_eq!(run(&mut program, frame, 1, now), 0, "{frame:?}");
    }
    program.check_accounts().unwrap();
}

#[test]
fn control_traffic_is_charged_to_no_limit() {
    let limit = "limits: [{name: it, key: source, rate: 1/min, burst: 4, \
                 penalty: {after: 1ms, block: 1h, unproven: block}}]";
    let mut program = program(&policy(limit));
    // A neighbour exceeds the limit of its /64 and is blocked.
    let other = Frame::udp([0xfe80, 0, 0, 0, 0, 0, 0, 2], GLOBAL, 1_000, 9).payload(18);
    assert_eq!(run(&mut program, &other, 8, NOW), 4);
    let now = NOW + SECOND / 5;
    for now in [NOW + SECOND / 10, now] {
        program.at(now).unwrap();
        // Part of a token is enough for one packet.
        assert!(run(&mut program, &other, 4, now) <= 1);
    }
    assert!(counted(&program, Reason::Penalty) > 0);
    // The gateway in the same /64 still announces itself, and a hundred hosts without an address ask for one.
    assert_eq!(run(&mut program, &solicitation([0xfe80, 0, 0, 0, 0, 0, 0, 1]), 200, now), 200);
    for client in 0..100 {
        let asks = Frame::udp([0; 4], [255; 4], 68, 67).macs([2, 0, 0, 0, 0, client], [255; 6]);
        assert_eq!(program.run(&asks.payload(240).build()).unwrap(), Verdict::Pass);
    }
    assert_eq!(counted(&program, Reason::Control), 300);
    assert!(counted(&program, Reason::Conform) <= 6, "no more was charged");
}

#[test]
fn what_is_nested_too_deep_is_dropped_whatever_limits_and_lists_say() {
    let tags = |frame: Frame, count| (0..count).fold(frame, |frame, _| frame.tag(0x8100, 0));
    let udp = Frame::udp(NEIGHBOUR, [192, 0, 2, 1], 1_024, 5_000).payload(18);
    let udp6 = Frame::udp(GLOBAL, LOCAL, 1_024, 5_000).payload(18);
    let options = |count| {
        (0..count).fold(udp6.clone(), |it, _| it.extension(Extension::destination_options(0)))
    };
    let policies = [
        "deny: [192.0.2.9, '2001:db8::/64']",
        "limits: [{name: it, key: source, rate: 1/min, burst: 3}]",
        "allow: [192.0.2.9, '2001:db8::/64']",
        "mode: enforce",
    ];
    let mut program = program(&policy(policies[0]));
    for text in policies {
        program.apply(&policy(text)).unwrap();
        let before = counted(&program, Reason::TooDeep);
        for frame in [tags(udp.clone(), 5), tags(udp.clone(), 8), tags(udp6.clone(), 5), options(9)]
        {
            assert_eq!(run(&mut program, &frame, 5, NOW), 0, "{text}: {frame:?}");
        }
        assert_eq!(counted(&program, Reason::TooDeep), before + 20);
        for frame in [tags(udp.clone(), 4), options(8)] {
            let passes = !text.starts_with("deny");
            assert_eq!(run(&mut program, &frame, 1, NOW), u32::from(passes), "{text}: {frame:?}");
        }
    }
    program.apply(&policy("mode: monitor")).unwrap();
    assert_eq!(run(&mut program, &tags(udp, 5), 5, NOW), 5);
    assert_eq!(counted(&program, Reason::Monitor), 5);
    program.check_accounts().unwrap();
}

#[test]
fn a_segment_that_declares_no_length_is_no_syn_and_for_one_port() {
    let limits = "limits:\n- {name: syns, match: {protocol: tcp}, key: source, count: syns, rate: 1/min, burst: 1}\n\
        - {name: ssh, match: {protocol: tcp, ports: ssh}, key: source, rate: 1/min, burst: 1}\n\
        - {name: bytes, match: {protocol: tcp}, key: all, count: bytes, rate: 1MB/s, burst: 10MB}";
    let mut program = program(&policy(limits));
    for (from, to) in [
        (NEIGHBOUR.into(), [192, 0, 2, 1].into()),
        (std::net::IpAddr::from(GLOBAL), std::net::IpAddr::from(LOCAL)),
    ] {
        let segment = |flags| Frame::tcp(from, to, 40_000, 443, flags).declared_length(0);
        let data = segment(PSH | ACK).payload(1_400);
        assert_eq!(run(&mut program, &data, 50, NOW), 50);
        assert_eq!(run(&mut program, &segment(SYN), 3, NOW), 1, "a SYN is one");
    }
    assert_eq!(program.tally("ssh").unwrap().conform.packets, 0);
    let bytes = program.tally("bytes").unwrap().conform.bytes;
    assert!(bytes > 100 * 1_400, "charged with the length of the frame, {bytes}");
    assert_eq!(counted(&program, Reason::Conform), 102);
}
