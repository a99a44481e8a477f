//! What each built-in limit matches, in which order limits are checked, and what is counted.

use std::net::IpAddr;

use limiter_common::{
    base::tally::Tally,
    packet::reason::Reason,
    policy::limit::{BucketKey, INLINE},
};
use limiter_tests::{
    packet::{ACK, Extension, FIN, Frame, PSH, RST, SYN, kinds},
    program::{TestProgram, Verdict},
    reference::reference,
};
use limiter_userspace::policy::{Builtin, Policy, document};

use super::{connection_key, counted, policy, program, state, syn, tallies, tokens, udp};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1];

#[test]
fn a_syn_is_what_opens_a_connection_or_might() {
    const ECN: u8 = 0xc0;
    let tcp = |flags| Frame::tcp(A, B, 1, 2, flags);
    let tcp6 = |flags| Frame::tcp(A6, B6, 1, 2, flags);
    let options = |frame: Frame| frame.extension(Extension::destination_options(0));
    let opening = [
        tcp(SYN),
        tcp(SYN | ECN),
        tcp(SYN | PSH).payload(100),
        tcp(SYN | FIN),
        tcp(SYN).options(&[1; 40]),
        tcp(SYN).tag(0x88a8, 1).tag(0x8100, 2),
        tcp(SYN).payload(8).fragment(1, 0, true),
        // The flags are in another fragment, or this fragment can overwrite them.
        Frame::ip(A, B, 6).payload(8).fragment(1, 0, true),
        tcp(ACK).fragment(1, 1, false),
        tcp(ACK).declared_length(33),
        tcp6(SYN),
        options(tcp6(SYN)),
    ];
    let other = [
        tcp(SYN | ACK),
        tcp(ACK),
        tcp(RST),
        tcp(FIN | ACK),
        tcp(0),
        tcp(ACK).fragment(1, 2, false),
        Frame::udp(A, B, 1, 2),
        Frame::echo(A, B, 1, 2),
        Frame::ip(A, B, 50).payload(40),
        tcp6(SYN | ACK),
        options(tcp6(RST)),
        Frame::udp(A6, B6, 1, 2),
    ];
    let mut program = program(&policy(&[(Builtin::Syn, tokens(3))]));
    for (frames, passed) in [(&opening[..], 3), (&other[..], 10)] {
        for frame in frames {
            program.forget().unwrap();
            assert_eq!(program.run_many(&frame.build(), 10).unwrap(), passed, "{frame:?}");
        }
    }
}

#[test]
fn a_connection_is_a_source_a_destination_two_ports_and_a_protocol() {
    let mut program = program(&policy(&[(Builtin::Connection, tokens(4))]));
    let other = [198, 51, 100, 2];
    let connections = [
        Frame::udp(A, B, 1, 2),
        Frame::udp([10, 0, 0, 2], B, 1, 2),
        Frame::udp(A, other, 1, 2),
        Frame::udp(A, B, 3, 2),
        Frame::udp(A, B, 1, 3),
        Frame::udp(A, B, 2, 1),
        Frame::tcp(A, B, 1, 2, ACK),
        Frame::sctp(A, B, 1, 2),
        Frame::udp(A6, B6, 1, 2),
        Frame::udp(A6, [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2], 1, 2),
        // The source is a /64; a connection has the whole address.
        Frame::udp([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2], B6, 1, 2),
    ];
    for frame in &connections {
        assert_eq!(program.run_many(&frame.build(), 9).unwrap(), 4, "{frame:?}");
    }
    // These belong to the connections above.
    for frame in [
        Frame::udp(A, B, 1, 2).payload(300).tag(0x8100, 1),
        Frame::udp(A, B, 1, 2).options(&[1; 8]),
        Frame::udp(A, B, 1, 2).payload(8).fragment(1, 0, true),
        Frame::tcp(A, B, 1, 2, SYN),
        Frame::udp(A6, B6, 1, 2).extension(Extension::routing(1)),
    ] {
        assert_eq!(program.run_many(&frame.build(), 9).unwrap(), 0, "{frame:?}");
    }
    // Later fragments belong to the connection of their first one.
    let fragment = |of, offset| Frame::ip(A, B, 17).payload(8).fragment(of, offset, true).build();
    assert_eq!(program.run_many(&fragment(1, 2), 9).unwrap(), 0);
    // Without ports, all packets between two addresses with one protocol are one connection.
    let echo = |number| Frame::echo(A, B, number, number).build();
    for frames in [[fragment(2, 2), fragment(3, 3)], [echo(1), echo(2)]] {
        assert_eq!(program.run_many(&frames[0], 3).unwrap(), 3);
        assert_eq!(program.run_many(&frames[1], 9).unwrap(), 1);
    }
}

/// Limits of the source are asked before those of its connections, and among them, those of fewer packets.
#[test]
fn a_packet_that_several_limits_refuse_is_counted_under_the_first() {
    let limits = [(Builtin::Connection, 2), (Builtin::Syn, 3), (Builtin::Source, 5)];
    let mut program = program(&policy(&limits.map(|(limit, burst)| (limit, tokens(burst)))));
    let port = |port| Frame::tcp(A, B, port, 2, SYN).build();
    assert_eq!(program.run_many(&port(1), 4).unwrap(), 2);
    assert_eq!(tallies(&program), [(2, 0), (2, 0), (2, 2)]);
    assert_eq!(program.run_many(&port(2), 4).unwrap(), 1);
    assert_eq!(tallies(&program), [(3, 3), (3, 0), (3, 2)]);
    assert_eq!(program.run_many(&udp(A), 4).unwrap(), 2);
    assert_eq!(tallies(&program), [(3, 3), (5, 2), (5, 2)]);
    assert_eq!(program.run_many(&Frame::udp(A, B, 9, 9).build(), 4).unwrap(), 0);
    assert_eq!(tallies(&program), [(3, 3), (5, 6), (5, 2)]);
    // All limits are exceeded now.
    assert_eq!(program.run_many(&port(1), 1).unwrap(), 0);
    assert_eq!(program.run_many(&port(3), 1).unwrap(), 0);
    assert_eq!(tallies(&program), [(3, 5), (5, 6), (5, 2)]);
    // A refused packet is counted as refused once, whichever limit refuses it.
    let reasons = [Reason::Conform, Reason::Exceed];
    assert_eq!(reasons.map(|reason| counted(&program, reason)), [5, 5 + 6 + 2]);
    program.check_accounts().unwrap();
}

/// The words of the inline limits of a source, and the word of one of its connections.
fn words(program: &TestProgram, connection: &BucketKey) -> ([u64; INLINE], Option<u64>) {
    let source = program.whole_source(&connection.source()).unwrap().unwrap();
    (source.words(), state(program, connection).map(|connection| connection.word))
}

#[test]
fn a_refused_packet_is_charged_nowhere() {
    for small in Builtin::ALL {
        let bursts = Builtin::ALL.map(|limit| (limit, tokens(if limit == small { 4 } else { 40 })));
        let mut program = program(&policy(&bursts));
        assert_eq!(program.run_many(&syn(A), 4).unwrap(), 4);
        let key = connection_key(&program, A.into(), [40_000, 443]);
        let before = words(&program, &key);
        assert!(before.1.is_some(), "{small:?}");
        assert_eq!(program.run_many(&syn(A), 1_000).unwrap(), 0);
        assert_eq!(words(&program, &key), before, "{small:?}");
        let mut expected = [(4, 0); 3];
        expected[small as usize].1 = 1_000;
        assert_eq!(tallies(&program), expected);

        // A connection of which no packet was admitted takes no bucket.
        if small != Builtin::Connection {
            let frame = Frame::tcp(A, B, 7, 7, SYN).build();
            assert_eq!(program.run_many(&frame, 10).unwrap(), 0);
            assert_eq!(program.buckets().unwrap().len(), 1);
            let refused = connection_key(&program, A.into(), [7, 7]);
            assert_eq!(state(&program, &refused), None);
            assert_eq!(words(&program, &key), before);
        }
    }
}

#[test]
fn sources_are_told_apart_and_ranked_by_what_was_dropped() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(5))]));
    let address = |number: u8| IpAddr::from([10, 9, 0, number]);
    for number in 0..200 {
        for times in 0..u32::from(number) {
            let expected = if times < 5 { Verdict::Pass } else { Verdict::Drop };
            let frame = Frame::udp(address(number), B, 1, 2).payload(usize::from(number)).build();
            assert_eq!(program.run(&frame).unwrap(), expected);
        }
    }
    let (talkers, occupancy) = program.maps().talkers(50).unwrap();
    assert_eq!(occupancy.tracked, 199);
    assert_eq!(talkers.len(), 50);
    for (talker, number) in talkers.iter().zip((0..200_u8).rev()) {
        let tally = |packets| Tally { packets, bytes: packets * (42 + u64::from(number)) };
        assert_eq!(talker.address, address(number));
        assert_eq!(talker.prefix, 32);
        assert_eq!(talker.passed, tally(5));
        assert_eq!(talker.dropped, tally(u64::from(number) - 5));
    }
    program.check_accounts().unwrap();
}

#[test]
fn without_limits_everything_passes() {
    let mut program = program(&Policy::default());
    for (name, frame) in kinds() {
        let passed = if reference(&frame).reason() == "too_deep" { 0 } else { 1_000 };
        assert_eq!(program.run_many(&frame, 1_000).unwrap(), passed, "{name}");
    }
    assert_eq!(tallies(&program), [(0, 0); 3]);
    let dropped =
        Reason::ALL.iter().filter(|reason| reason.drops() && counted(&program, **reason) > 0);
    assert_eq!(dropped.collect::<Vec<_>>(), [&Reason::TooDeep]);
    assert_eq!(program.maps().buckets().unwrap().tracked, 0);
    // Sources are listed nevertheless.
    assert_eq!(program.maps().talkers(9).unwrap().0.len(), 3);
    program.check_accounts().unwrap();
}

/// Later fragments are limited like the datagram they belong to, or may belong to.
#[test]
fn the_example_of_a_dns_server_holds_against_fragments() {
    let text = include_bytes!("../../../packaging/examples/dns-server.yaml");
    let policy = document::parse("dns-server", text, &mut |_| unreachable!("no files")).unwrap();
    let mut program = program(&policy);
    for known in [false, true] {
        program.forget().unwrap();
        if known {
            let first = Frame::udp(A, B, 5_000, 53).payload(1_400).fragment(9, 0, true).build();
            assert_eq!(program.run(&first).unwrap(), Verdict::Pass);
        }
        let later = Frame::ip(A, B, 17).payload(1_400).fragment(9, 185, true).build();
        let passes = |_: &u64| program.run(&later).unwrap() == Verdict::Pass;
        // The burst of queries of a network.
        assert_eq!((0..2_500).filter(passes).count(), 2_000 - usize::from(known));
    }
    // Answers to queries of the server itself.
    let answer = Frame::udp(A, B, 53, 5_000).payload(1_400).fragment(10, 0, true).build();
    let later = Frame::ip(A, B, 17).payload(1_400).fragment(10, 185, true).build();
    assert_eq!(program.run(&answer).unwrap(), Verdict::Pass);
    assert_eq!(program.run_many(&later, 2_500).unwrap(), 2_500);
}
