//! Link headers do not hide a packet from the lists and limits of its source. Packets other than IP have a
//! budget if the policy sets one; protocols of the link are exempt.

use std::net::IpAddr;

use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason};
use limiter_tests::{
    packet::{Extension, Frame, SYN},
    program::{TestProgram, Verdict},
};

use super::{
    NOW,
    control::{kinds, policy, run},
    counted, program,
};

const FROM: [u8; 4] = [192, 0, 2, 9];
const FROM6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 7];
const TO: [u8; 4] = [198, 51, 100, 1];
const TO6: [u16; 8] = [0x2001, 0xdb8, 1, 0, 0, 0, 0, 1];

type Framing = (&'static str, fn(Frame) -> Frame);

const FRAMINGS: [Framing; 9] = [
    ("nothing", |frame| frame),
    ("a session", Frame::pppoe),
    ("a session with a short protocol", Frame::compressed_pppoe),
    ("a tag and a session", |frame| frame.tag(0x8100, 7).pppoe()),
    ("a label", |frame| frame.labels(1)),
    ("two labels", |frame| frame.labels(2)),
    ("a tag and three labels", |frame| frame.tag(0x88a8, 7).labels(3)),
    ("four labels", |frame| frame.labels(4)),
    ("a session and a label", |frame| frame.pppoe().labels(1)),
];

fn packets() -> Vec<Frame> {
    let options = Extension::destination_options(1);
    vec![
        Frame::udp(FROM, TO, 1_000, 53).payload(18),
        Frame::tcp(FROM, TO, 1_000, 443, SYN),
        Frame::udp(FROM, TO, 1_000, 53).options(&[1; 8]).payload(8),
        Frame::udp(FROM, TO, 1_000, 53).payload(24).fragment(1, 3, true),
        Frame::udp(FROM6, TO6, 1_000, 53).payload(18),
        Frame::tcp(FROM6, TO6, 1_000, 443, SYN).extension(options),
        Frame::udp(FROM6, TO6, 1_000, 53).payload(24).fragment(1, 3, true),
    ]
}

#[test]
fn a_denied_source_is_denied_in_a_session_and_behind_labels() {
    let mut program = program(&policy("deny: [192.0.2.9, '2001:db8::/64']"));
    let mut denied = 0;
    for (name, framed) in FRAMINGS {
        for packet in packets() {
            assert_eq!(run(&mut program, &framed(packet.clone()), 2, NOW), 0, "{name}: {packet:?}");
            denied += 2;
        }
    }
    // A wrong length in the PPPoE header does not change the source.
    for length in [22, 30, 47, 49, 1_500] {
        let lies = Frame::udp(FROM, TO, 1, 2).payload(18).pppoe().pppoe_length(length);
        assert_eq!(run(&mut program, &lies, 1, NOW), 0, "{length}");
        denied += 1;
    }
    assert_eq!(counted(&program, Reason::Deny), denied);
    for labels in 5..=8 {
        assert_eq!(run(&mut program, &packets()[0].clone().labels(labels), 3, NOW), 0);
        assert_eq!(run(&mut program, &packets()[4].clone().pppoe().labels(labels), 3, NOW), 0);
    }
    assert_eq!(counted(&program, Reason::TooDeep), 24);
    // The source cannot be read, so these packets share the limits of all unreadable frames.
    let cut = Frame::udp(FROM, TO, 1, 2).payload(18).pppoe();
    for length in [0, 1, 2, 21] {
        assert_eq!(run(&mut program, &cut.clone().pppoe_length(length), 1, NOW), 1, "{length}");
    }
    assert_eq!(counted(&program, Reason::Unreadable), 4);
    assert_eq!(counted(&program, Reason::NonIp), 0);
    program.check_accounts().unwrap();
}

/// Frames captured on an uplink: three packets in a session, and one behind a label.
#[test]
fn captured_frames_of_a_session_are_denied_and_limited() {
    const DATAGRAM: &str = "4500002e0001400040114e82c6336407c00002019c400035001a0000\
        787878787878787878787878787878787878";
    const ADDRESSES: &str = "020000000001020000000002";
    let bytes = |header: &str| -> Vec<u8> {
        let digits = [ADDRESSES, header, DATAGRAM].concat();
        let pairs = digits.as_bytes().chunks_exact(2).map(|pair| str::from_utf8(pair).unwrap());
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    };
    let session = bytes("88641100000100300021");
    let label = bytes("884700010140");
    let passed = |text: &str| {
        let mut program = program(&policy(text));
        [&session, &session, &session, &label].map(|it| program.run(it).unwrap() == Verdict::Pass)
    };
    assert_eq!(passed(""), [true; 4]);
    assert_eq!(passed("deny: [198.51.100.7]"), [false; 4]);
    let limit = "limits: [{name: it, key: source, rate: 1/min, burst: 2}]";
    assert_eq!(passed(limit), [true, true, false, false]);
    let port =
        "limits: [{name: it, match: {protocol: udp, ports: 53}, key: all, rate: 1/min, burst: 3}]";
    assert_eq!(passed(port), [true, true, true, false]);
}

#[test]
fn a_source_has_one_limit_whatever_its_packets_are_framed_in() {
    let limit = "limits: [{name: it, key: source, rate: 1/min, burst: 5}]";
    let mut program = program(&policy(limit));
    for from in [(IpAddr::from(FROM), IpAddr::from(TO)), (FROM6.into(), TO6.into())] {
        let mut passed = 0;
        for (_, framed) in FRAMINGS {
            let frame = framed(Frame::udp(from.0, from.1, 1_000, 53).payload(18));
            passed += run(&mut program, &frame, 2, NOW);
        }
        assert_eq!(passed, 5, "{from:?}");
    }
    program.check_accounts().unwrap();
}

/// Routers also send control traffic inside PPPoE sessions, with the same hop limits.
#[test]
fn control_traffic_is_that_in_a_session_too() {
    let mut program = program(&policy("deny: ['::/0', 0.0.0.0/0]"));
    let mut expected = 0;
    let [link, far] = kinds();
    for frame in link.iter().chain(&far) {
        for framed in [Frame::pppoe, Frame::compressed_pppoe, |it: Frame| it.labels(1)] {
            assert_eq!(run(&mut program, &framed(frame.clone()), 1, NOW), 1, "{frame:?}");
            expected += 1;
        }
    }
    // All except DHCP, which is the last, require a hop limit.
    for frame in &link[..link.len() - 1] {
        assert_eq!(run(&mut program, &frame.clone().ttl(2).pppoe(), 1, NOW), 0, "{frame:?}");
    }
    assert_eq!(counted(&program, Reason::Control), expected);
}

/// Frames that are neither IP nor of a protocol of the link.
fn others() -> Vec<Frame> {
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], &[0x45; 40]].concat();
    vec![
        Frame::other(48, snap).padded(),
        Frame::other(0x9200, [0, 1, 8, 0, 0x45]).padded(),
        Frame::other(0x9300, [0, 1, 8, 0, 0x45]).padded(),
        Frame::other(0x88b5, [0; 46]),
        Frame::other(0x88b5, [0; 46]).tag(0x8100, 7),
        Frame::other(0x8847, [0, 1, 1, 64, 0, 0, 0, 0]).padded(),
        // PPP protocols for compressed datagrams and for a fragment of one.
        Frame::other(0x00fd, [0; 40]).pppoe(),
        Frame::other(0x003d, [0; 40]).pppoe(),
    ]
}

/// A frame of each protocol of the link.
fn of_link() -> Vec<Frame> {
    let types = [
        0x0806, 0x8035, 0x88cc, 0x888e, 0x88c7, 0x8809, 0x8808, 0x88e5, 0x88f5, 0x88f6, 0x22ea,
        0x8902, 0x88f7, 0x88e3, 0x88fb, 0x8863,
    ];
    let plain = types.map(|ether_type| Frame::other(ether_type, [0; 46]));
    let ppp = [0xc021, 0xc023, 0xc223, 0x8021, 0x8057];
    let ppp = ppp.map(|protocol| Frame::other(protocol, [1, 1, 0, 4]).pppoe().padded());
    let tree = Frame::other(38, [0x42, 0x42, 3]).padded();
    let tree = tree.macs([2, 0, 0, 0, 0, 1], [0x01, 0x80, 0xc2, 0, 0, 0]);
    let router = Frame::other(48, [0xfe, 0xfe, 3]).padded();
    let tagged = Frame::other(0x0806, [0; 46]).tag(0x8100, 7);
    plain.into_iter().chain(ppp).chain([tree, router, tagged]).collect()
}

const BUDGET: &str = "non_ip: {rate: 1/s, burst: 3}";

#[test]
fn what_is_not_ip_has_a_budget_to_the_packet() {
    let mut program = program(&policy(BUDGET));
    let frames = others();
    // All protocols share one budget.
    let passed: u32 = frames.iter().map(|frame| run(&mut program, frame, 2, NOW)).sum();
    assert_eq!(passed, 3);
    let offered = 2 * frames.len() as u64;
    let reasons = |program: &TestProgram| {
        [Reason::NonIp, Reason::NonIpExceed].map(|reason| counted(program, reason))
    };
    assert_eq!(reasons(&program), [3, offered - 3]);
    for (after, passes) in [(SECOND, 1), (3 * SECOND, 2), (60 * SECOND, 3)] {
        program.at(NOW + after).unwrap();
        assert_eq!(run(&mut program, &frames[0], 8, NOW + after), passes, "{after}");
    }
    // Another interface has a budget of its own.
    let now = NOW + 60 * SECOND;
    let mut neighbour = program.neighbour(1).unwrap();
    let frame = frames[0].build();
    let verdicts = (0..8).filter(|_| neighbour.run(&frame).unwrap() == Verdict::Pass).count();
    assert_eq!(verdicts, 3);
    drop(neighbour);

    // In monitor mode, the frames that would be dropped are counted.
    program.split().unwrap().1.switch_monitor(true).unwrap();
    assert_eq!(run(&mut program, &frames[0], 5, now), 5);
    assert_eq!(counted(&program, Reason::Monitor), 5);
    program.split().unwrap().1.switch_monitor(false).unwrap();
    program.apply(&policy(&format!("mode: monitor\n{BUDGET}"))).unwrap();
    assert_eq!(run(&mut program, &frames[0], 5, now), 5);
    assert_eq!(counted(&program, Reason::Monitor), 10);

    // A policy without a budget limits none of them. A budget that comes back has the state it had.
    let before = reasons(&program);
    program.apply(&policy("deny: [0.0.0.0/0, '::/0']\ncontrol: off")).unwrap();
    for frame in &frames {
        assert_eq!(run(&mut program, frame, 20, now), 20, "{frame:?}");
    }
    program.apply(&policy(BUDGET)).unwrap();
    assert_eq!(run(&mut program, &frames[0], 5, now), 0);
    let all = 20 * frames.len() as u64;
    assert_eq!(reasons(&program), [before[0] + all, before[1] + 5]);
    program.check_accounts().unwrap();
}

#[test]
fn protocols_of_the_link_and_ip_are_under_no_budget_of_what_is_not_ip() {
    for text in [BUDGET, "control: off\nnon_ip: {rate: 1/h, burst: 1}"] {
        let mut program = program(&policy(text));
        assert!(run(&mut program, &others()[0], 5, NOW) < 5, "it is used up");
        let frames = of_link();
        for frame in &frames {
            assert_eq!(run(&mut program, frame, 20, NOW), 20, "{frame:?}");
        }
        for (_, framed) in FRAMINGS {
            let frame = framed(Frame::udp(FROM, TO, 1_000, 53).payload(18));
            assert_eq!(run(&mut program, &frame, 20, NOW), 20);
        }
        let passed = counted(&program, Reason::NonIp);
        assert!(passed >= 20 * frames.len() as u64);
        program.check_accounts().unwrap();
    }
}
