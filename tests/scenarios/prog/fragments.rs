//! Later fragments are charged like the first fragment of their datagram.

use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason};
use limiter_tests::{
    packet::{ACK, Extension, Frame, SYN},
    program::{TestProgram, Verdict},
};
use limiter_userspace::{
    policy::{Policy, document},
    query::{self, Inquiry, frame::Sighting},
};

use super::{NOW, counted, modes::tally, most, program};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1];
/// A port that matches no limit here.
const FREE: u16 = 9_999;
/// The time in which notes about datagrams have one age, in nanoseconds.
const WINDOW: u64 = 16 * SECOND;

/// Limits per source that admit 10,000 packets, by port, type or flags.
const EACH: &str = "
- {name: dns, match: {protocol: udp, ports: 53}, key: source, rate: 10000/h, burst: 10k}
- {name: quic, match: {protocol: udp, ports: 443}, key: source, rate: 10000/h, burst: 10k}
- {name: ssh, match: {protocol: tcp, ports: 22}, key: source, rate: 10000/h, burst: 10k}
- {name: ping, match: {protocol: [icmp, icmpv6], icmp_type: [8, 128]}, key: source, rate: 10000/h, burst: 10k}
- {name: syn, match: {protocol: tcp}, key: source, count: syns, rate: 10000/h, burst: 10k}
";
const NAMES: [&str; 5] = ["dns", "quic", "ssh", "ping", "syn"];

fn written(limits: &str) -> Policy {
    let text = format!("version: 1\nlimits: {limits}");
    document::parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
}

/// A program with [`EACH`], at the start of a window.
fn each() -> TestProgram {
    let mut program = program(&written(EACH));
    program.at(NOW / WINDOW * WINDOW).unwrap();
    program
}

fn udp(to: u16) -> Frame {
    Frame::udp(A, B, 5_000, to).payload(64)
}

fn udp6(to: u16) -> Frame {
    Frame::udp(A6, B6, 5_000, to).payload(64)
}

fn first(frame: Frame, identification: u32) -> Vec<u8> {
    frame.fragment(identification, 0, true).build()
}

/// A later fragment between the two hosts, over IPv4.
fn later(protocol: u8, identification: u32) -> Vec<u8> {
    Frame::ip(A, B, protocol).payload(64).fragment(identification, 9, true).build()
}

fn later6(protocol: u8, identification: u32) -> Vec<u8> {
    Frame::ip(A6, B6, protocol).payload(64).fragment(identification, 9, true).build()
}

/// The limits that a frame is charged to; it has to pass.
fn charges(program: &mut TestProgram, frame: &[u8]) -> Vec<&'static str> {
    let charged = |program: &TestProgram| NAMES.map(|name| tally(program, name).0);
    let before = charged(program);
    assert_eq!(program.run(frame).unwrap(), Verdict::Pass);
    let after = charged(program);
    (0..NAMES.len()).filter(|at| after[*at] > before[*at]).map(|at| NAMES[at]).collect()
}

/// The verdict of the inquiry on a frame, at the start of the first window.
fn asked(program: &TestProgram, frame: &[u8]) -> query::Verdict {
    let now = NOW / WINDOW * WINDOW;
    let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
    inquiry.verdict(&Sighting::whole(frame), 0, now).unwrap()
}

#[test]
fn a_limit_of_bytes_holds_for_all_fragments_of_a_datagram() {
    let dns = "[{name: dns, match: {protocol: udp, ports: 53}, key: source, count: bytes, \
               rate: 1kbit/s, burst: 20kB}]";
    for of in [udp as fn(u16) -> Frame, udp6] {
        let mut program = program(&written(dns));
        let mut passed = |to: u16, size: usize, ids: std::ops::Range<u32>| {
            let parts = ids.flat_map(|id| of(to).payload(30_000).fragments(id, size));
            let mut pass = |part: &Vec<u8>| program.run(part).unwrap() == Verdict::Pass;
            let parts: Vec<_> = parts.collect();
            let all: usize = parts.iter().map(Vec::len).sum();
            (parts.iter().filter(|part| pass(part)).map(Vec::len).sum::<usize>(), all)
        };
        let (to_dns, _) = passed(53, 1_480, 0..10);
        // Part of a token is enough for one packet.
        assert!((18_000..=20_000 + 1_514).contains(&to_dns), "{to_dns} bytes");
        let (elsewhere, sent) = passed(FREE, 1_480, 20..30);
        assert_eq!(elsewhere, sent, "the datagrams of others are whole");
        // Later fragments follow a first one that was refused, too.
        let (to_dns, _) = passed(53, 1_480, 30..40);
        assert!(to_dns < 1_600, "{to_dns} bytes more");
    }
}

#[test]
fn one_whose_first_was_not_seen_counts_for_each_limit_that_it_could_be_of() {
    let mut program = each();
    for id in 0..3 {
        assert_eq!(charges(&mut program, &later(17, id)), ["dns", "quic"]);
        assert_eq!(charges(&mut program, &later(6, id)), ["ssh"]);
        assert_eq!(charges(&mut program, &later(1, id)), ["ping"]);
        assert_eq!(charges(&mut program, &later(47, id)), [""; 0]);
        // In IPv6, only the first fragment tells the protocol.
        for protocol in [17, 6, 47, 60] {
            let charged = charges(&mut program, &later6(protocol, id));
            assert_eq!(charged, ["dns", "quic", "ssh", "ping"], "{protocol}");
        }
    }
    program.check_accounts().unwrap();
}

#[test]
fn one_whose_first_was_seen_counts_as_that() {
    let mut program = each();
    let tcp = |to, flags| Frame::tcp(A, B, 5_000, to, flags).payload(64);
    for (id, frame, protocol, expected) in [
        (1, udp(53), 17, &["dns"][..]),
        (2, udp(443), 17, &["quic"]),
        (3, udp(FREE), 17, &[]),
        (1, tcp(22, ACK), 6, &["ssh"]),
        (2, tcp(80, ACK), 6, &[]),
        (1, Frame::echo(A, B, 1, 1).payload(64), 1, &["ping"]),
        (2, Frame::ip(A, B, 1).bytes(&[0; 64]), 1, &[]),
        (1, Frame::ip(A, B, 47).payload(64), 47, &[]),
    ] {
        assert_eq!(charges(&mut program, &first(frame, id)), expected);
        for _ in 0..3 {
            assert_eq!(charges(&mut program, &later(protocol, id)), expected, "{protocol} {id}");
        }
    }
    // An identification is valid for one protocol and one pair of hosts.
    assert_eq!(charges(&mut program, &later(6, 3)), ["ssh"]);
    let other = Frame::ip(A, [198, 51, 100, 2], 17).payload(64).fragment(3, 9, true).build();
    assert_eq!(charges(&mut program, &other), ["dns", "quic"]);
    // A SYN is counted by itself.
    assert_eq!(charges(&mut program, &first(tcp(22, SYN), 9)), ["ssh", "syn"]);
    assert_eq!(charges(&mut program, &later(6, 9)), ["ssh"]);
    program.check_accounts().unwrap();
}

#[test]
fn in_ipv6_the_fragment_header_is_found_behind_others() {
    let mut program = each();
    let behind = |frame: Frame, id, offset| {
        let frame = frame.extension(Extension::hop_by_hop(0)).extension(Extension::routing(1));
        frame.fragment(id, offset, true)
    };
    let wide = 0x0102_0304;
    for (id, to, expected) in
        [(1, 53, &["dns"][..]), (wide, 443, &["quic"]), (wide & 0xffff, FREE, &[])]
    {
        let first = behind(udp6(to), id, 0).extension(Extension::destination_options(1)).build();
        assert_eq!(charges(&mut program, &first), expected);
        for protocol in [60, 17, 59] {
            let later = behind(Frame::ip(A6, B6, protocol).payload(64), id, 9).build();
            assert_eq!(charges(&mut program, &later), expected, "{id:x}");
            assert_eq!(charges(&mut program, &later6(protocol, id)), expected, "{id:x}");
        }
    }
    // An atomic fragment is a whole datagram and says nothing about others with the same identification.
    let atomic = udp6(53).fragment(77, 0, false).build();
    assert_eq!(charges(&mut program, &atomic), ["dns"]);
    assert_eq!(charges(&mut program, &later6(17, 77)), ["dns", "quic", "ssh", "ping"]);
}

#[test]
fn what_a_first_one_said_is_known_for_two_windows_at_most() {
    let start = NOW / WINDOW * WINDOW;
    for (made, times) in [
        (0, [(0, true), (15_900, true), (16_000, true), (31_999, true), (32_000, false)]),
        (15_900, [(15_900, true), (16_000, true), (31_800, true), (31_999, true), (32_000, false)]),
    ] {
        let mut program = each();
        program.at(start + made * 1_000_000).unwrap();
        program.run(&first(udp(53), 5)).unwrap();
        for (at, follows) in times {
            program.at(start + at * 1_000_000).unwrap();
            let expected = if follows { &["dns"][..] } else { &["dns", "quic"] };
            assert_eq!(charges(&mut program, &later(17, 5)), expected, "{made} ms, {at} ms");
        }
    }
}

/// An attacker who sends one first fragment for the limiter and another for the host gets the datagram to
/// neither.
#[test]
fn a_first_one_that_contradicts_another_is_dropped() {
    let start = NOW / WINDOW * WINDOW;
    let tcp = |to| Frame::tcp(A, B, 5_000, to, ACK).payload(64);
    for (free, limited, protocol, later) in [
        (udp(FREE), udp(53), 17, later as fn(u8, u32) -> Vec<u8>),
        (udp6(FREE), udp6(53), 17, later6),
        (Frame::ip(A6, B6, 50).payload(64), udp6(53), 17, later6),
        (tcp(80), tcp(22), 6, later),
    ] {
        let part = |id| later(protocol, id);
        let mut program = each();
        // The host drops the first fragment that was meant for the limiter, for example for its checksum. The
        // other one comes last.
        program.run(&first(free.clone(), 5)).unwrap();
        assert_eq!(charges(&mut program, &part(5)), [""; 0]);
        assert_eq!(asked(&program, &first(limited.clone(), 5)).reason, Reason::Overlap);
        assert_eq!(asked(&program, &part(5)).charged, [""; 0], "it follows what the program knows");
        assert_eq!(program.run(&first(limited.clone(), 5)).unwrap(), Verdict::Drop);
        program.at(start + 2 * WINDOW + WINDOW / 2).unwrap();
        assert_eq!(program.run(&first(limited.clone(), 5)).unwrap(), Verdict::Drop);
        assert_eq!(counted(&program, Reason::Overlap), 2);
        // The other way round.
        let expected = charges(&mut program, &first(limited.clone(), 6));
        assert_eq!(expected.len(), 1);
        assert_eq!(program.run(&first(free.clone(), 6)).unwrap(), Verdict::Drop);
        assert_eq!(charges(&mut program, &part(6)), expected);
        // A fragment that is cut short hides its ports.
        let cut = first(Frame::ip(A, B, 6).payload(8), 7);
        if protocol == 6 {
            program.run(&first(free.clone(), 7)).unwrap();
            assert_eq!(program.run(&cut).unwrap(), Verdict::Drop);
        }
        // After three windows, an identification that is used again belongs to another datagram.
        program.at(start + 6 * WINDOW).unwrap();
        assert_eq!(charges(&mut program, &first(limited, 5)), expected);
        assert_eq!(charges(&mut program, &part(5)), expected);
        program.check_accounts().unwrap();
    }
}

#[test]
fn an_identification_that_is_used_again_for_the_same_port_is_no_contradiction() {
    let keyed =
        "[{name: dns, match: {protocol: udp, ports: 53}, key: connection, rate: 1/h, burst: 3}]";
    let mut program = program(&written(keyed));
    for from in 1..9 {
        let datagram = Frame::udp(A, B, from, 53).payload(64);
        assert_eq!(program.run(&first(datagram, 5)).unwrap(), Verdict::Pass);
        // They belong to the connection of the newest first fragment.
        assert_eq!(program.run_many(&later(17, 5), 5).unwrap(), 2, "{from}");
    }
    assert_eq!(counted(&program, Reason::Overlap), 0);
}

#[test]
fn contradictions_drop_nothing_where_nothing_is_asked_of_them_or_nothing_is_dropped() {
    let source = "[{name: a, key: source, rate: 10000/h, burst: 10k}]";
    let mut plain = program(&written(source));
    let mut monitored = program(&written(&format!("{EACH}\nmode: monitor")));
    for to in [53, 54, 55] {
        for program in [&mut plain, &mut monitored] {
            assert_eq!(program.run(&first(udp(to), 5)).unwrap(), Verdict::Pass);
        }
    }
    let counts = |program: &TestProgram| {
        [Reason::Fragment, Reason::Monitor, Reason::Overlap].map(|reason| counted(program, reason))
    };
    assert_eq!(counts(&plain), [3, 0, 0]);
    assert_eq!(counts(&monitored), [1, 2, 0]);
}

/// A flood of first fragments overwrites the notes of other datagrams. Their later fragments are then charged
/// to more limits, not to fewer.
#[test]
fn a_flood_of_first_ones_lets_no_later_one_off() {
    let mut program = each();
    program.run(&first(udp(FREE), 5)).unwrap();
    assert_eq!(charges(&mut program, &later(17, 5)), [""; 0]);
    let mut left = most(200_000);
    'flood: for source in 0.. {
        let mut frame = first(Frame::udp([10, 9, 0, source], B, 1, FREE).payload(8), 0);
        for id in 0..=u16::MAX {
            frame[18..20].copy_from_slice(&id.to_be_bytes());
            program.run(&frame).unwrap();
            left -= 1;
            if left == 0 {
                break 'flood;
            }
        }
    }
    if most(200_000) == 200_000 {
        assert_eq!(charges(&mut program, &later(17, 5)), ["dns", "quic"]);
    }
    program.check_accounts().unwrap();
}

#[test]
fn later_fragments_follow_the_source_port_of_their_first() {
    let answers = "[{name: answers, match: {protocol: udp, source_ports: 53}, key: source, rate: 10000/h, burst: 10k}]";
    let mut program = program(&written(answers));
    program.at(NOW / WINDOW * WINDOW).unwrap();
    let from = |port| Frame::udp(A, B, port, FREE).payload(64);
    let mut charged = |frame: &[u8]| {
        let before = tally(&program, "answers").0;
        let verdict = program.run(frame).unwrap();
        (verdict, tally(&program, "answers").0 - before)
    };
    assert_eq!(charged(&later(17, 1)), (Verdict::Pass, 1), "whose first was not seen");
    for (id, port, expected) in [(2, 53, 1), (3, FREE, 0)] {
        assert_eq!(charged(&first(from(port), id)), (Verdict::Pass, expected));
        assert_eq!(charged(&later(17, id)), (Verdict::Pass, expected));
        // Again, it says the same. Another source port is a contradiction, as the limit asks for it.
        assert_eq!(charged(&first(from(port), id)), (Verdict::Pass, expected));
        assert_eq!(charged(&first(from(port + 1), id)).0, Verdict::Drop);
        assert_eq!(charged(&later(17, id)), (Verdict::Pass, expected));
    }
    assert_eq!(counted(&program, Reason::Overlap), 2);
    program.check_accounts().unwrap();
    // Where none asks for source ports, it is none.
    let mut program = each();
    assert_eq!(program.run(&first(from(53), 2)).unwrap(), Verdict::Pass);
    assert_eq!(program.run(&first(from(54), 2)).unwrap(), Verdict::Pass);
}
