//! Limits on new connections: which SYNs count, and which belong to a connection that was admitted.

use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    memory::handshake::Handshake,
};
use limiter_tests::{
    packet::{ACK, Frame, SYN},
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Policy,
    model::{Allowance, Count, KeyPart, Limit, Mode},
};

use super::{
    NOW,
    define::{in_mode, limit, policy_of},
    modes::tally,
    program, tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];
const OTHER: [u8; 4] = [10, 0, 0, 2];
const B: [u8; 4] = [198, 51, 100, 1];
const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
const B6: [u16; 8] = [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1];

/// A limit of `most` new connections. It is a leaky bucket, so that part of a token is not enough for one
/// more.
fn connections(name: &str, parts: &[KeyPart], most: u64) -> Limit {
    let rate = Rate { packets: 1, period: 86_400 * SECOND };
    let allowance = Allowance::LeakyBucket { rate, depth: most };
    Limit { count: Count::Connections, ..limit(name, parts, allowance) }
}

fn syn(port: u16, sequence: u32) -> Frame {
    Frame::tcp(A, B, port, 22, SYN).sequence(sequence)
}

/// Runs frames `seconds` after the start and returns which of them pass.
fn pass(program: &mut TestProgram, seconds: u64, frames: &[Frame]) -> Vec<bool> {
    program.at(NOW + seconds * SECOND).unwrap();
    frames.iter().map(|frame| program.run(&frame.build()).unwrap() == Verdict::Pass).collect()
}

#[test]
fn a_repeated_syn_is_of_the_connection_that_was_admitted() {
    let mut program = program(&Policy::default());
    for parts in [&[KeyPart::Source][..], &[KeyPart::DestinationPort], &[]] {
        program.forget().unwrap();
        program.apply(&policy_of([connections("new", parts, 3)])).unwrap();
        let before = tally(&program, "new");
        // Three connections that differ in one field each, with the retransmissions of a Linux client.
        let three = [syn(40_000, 1), syn(40_000, 2), syn(40_001, 1)];
        for seconds in [0, 1, 2, 3] {
            assert_eq!(pass(&mut program, seconds, &three), [true; 3], "{parts:?} {seconds}");
        }
        let (conform, exceed) = tally(&program, "new");
        assert_eq!((conform - before.0, exceed - before.1), (3, 0), "{parts:?}");
        // There is no room for a fourth connection, nor for one of the three to begin again.
        let further = [syn(40_002, 1), syn(40_000, 1), syn(40_001, 1)];
        assert_eq!(pass(&mut program, 4, &further), [false; 3], "{parts:?}");
        // Packets that open no connection are not counted.
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass);
        let ack = Frame::tcp(A, B, 40_002, 22, ACK).build();
        assert_eq!(program.run(&ack).unwrap(), Verdict::Pass);
    }
    program.check_accounts().unwrap();
}

/// No client repeats a SYN so soon or so late.
#[test]
fn the_same_syn_on_and_on_is_limited() {
    let mut program = program(&policy_of([connections("new", &[KeyPart::Source], 2)]));
    let frame = syn(40_000, 1).build();
    assert_eq!(program.run_many(&frame, 1_000).unwrap(), 2);
    program.at(NOW + Handshake::STEP - 1).unwrap();
    assert_eq!(program.run_many(&frame, 10).unwrap(), 0);
    program.at(NOW + Handshake::STEP).unwrap();
    assert_eq!(program.run_many(&frame, 10).unwrap(), 1);
    program.at(NOW + Handshake::SPAN).unwrap();
    assert_eq!(program.run_many(&frame, 10).unwrap(), 2);
    assert_eq!(tally(&program, "new").0, 2);
}

#[test]
fn a_syn_that_was_refused_counts_when_it_comes_again() {
    let mut program = program(&policy_of([connections("new", &[KeyPart::Source], 1)]));
    assert_eq!(pass(&mut program, 0, &[syn(1, 1), syn(2, 1)]), [true, false]);
    assert_eq!(pass(&mut program, 1, &[syn(1, 1), syn(2, 1)]), [true, false]);
    // A day later a token is refilled.
    let day = 86_401;
    assert_eq!(pass(&mut program, day, &[syn(2, 1)]), [true]);
    assert_eq!(pass(&mut program, day + 1, &[syn(2, 1)]), [true]);
    assert_eq!(tally(&program, "new").0, 2);
}

/// Only a SYN uses up a retransmission, not another packet with the same sequence number.
#[test]
fn what_opens_nothing_uses_up_no_repetition() {
    let mut program = program(&policy_of([connections("new", &[], 1)]));
    assert_eq!(pass(&mut program, 0, &[syn(1, 1)]), [true]);
    for flags in [ACK, ACK | SYN, 0x01, 0x04] {
        let other = Frame::tcp(A, B, 1, 22, flags).sequence(1);
        assert_eq!(pass(&mut program, 1, &vec![other; 10]), [true; 10]);
    }
    for seconds in [1, 2, 3] {
        assert_eq!(pass(&mut program, seconds, &[syn(1, 1)]), [true], "{seconds}");
    }
}

/// Connections differ by address and port in both families, and are remembered over a change of policy. A
/// packet that is decided twice because of such a change counts as one retransmission.
#[test]
fn connections_are_told_apart_and_outlive_a_policy() {
    let new = |most| policy_of([connections("new", &[], most)]);
    let mut program = program(&new(6));
    let frames = [
        syn(1, 1),
        Frame::tcp(OTHER, B, 1, 22, SYN),
        Frame::tcp(A, OTHER, 1, 22, SYN),
        Frame::tcp(A, B, 1, 23, SYN),
        Frame::tcp(A6, B6, 1, 22, SYN),
        Frame::tcp(A6, A6, 1, 22, SYN),
    ];
    assert_eq!(pass(&mut program, 0, &frames), [true; 6]);
    assert_eq!(tally(&program, "new").0, 6);
    for seconds in [1, 2, 3] {
        program.apply(&new(6 + seconds)).unwrap();
        assert_eq!(pass(&mut program, seconds, &frames), [true; 6], "{seconds}");
        assert_eq!(tally(&program, "new").0, 6);
    }
}

/// Each limit counts as if it were alone: a limit on SYNs counts each of them, and neither a candidate nor a
/// monitored limit changes the result of an enforced one.
#[test]
fn a_limit_of_connections_is_none_of_another_ones_business() {
    let syns = Limit { count: Count::Syns, ..limit("syns", &[KeyPart::Source], tokens(100)) };
    let frames = [syn(1, 1), syn(2, 1), syn(3, 1)];
    let tallies = |others: &[Limit]| {
        let new = connections("new", &[KeyPart::Source], 2);
        let mut program = program(&policy_of([&[new, syns.clone()], others].concat()));
        for seconds in [0, 1, 2] {
            assert_eq!(pass(&mut program, seconds, &frames), [true, true, false], "{others:?}");
        }
        assert_eq!((tally(&program, "new"), tally(&program, "syns").0), ((2, 3), 6), "{others:?}");
        program.check_accounts().unwrap();
        others.iter().map(|other| tally(&program, &other.name)).collect::<Vec<_>>()
    };
    assert_eq!(tallies(&[]), []);
    // `new` admits two connections. `strict` has room for one of them, and is charged again with each
    // retransmission of the other.
    let strict = in_mode(Mode::Monitor, connections("strict", &[KeyPart::DestinationPort], 1));
    assert_eq!(tallies(&[strict]), [(1, 3)]);
    let mut lax = in_mode(Mode::Monitor, connections("lax", &[KeyPart::DestinationPort], 9));
    assert_eq!(tallies(std::slice::from_ref(&lax)), [(2, 0)]);
    lax.mode = Mode::Enforce;
    assert_eq!(tallies(&[lax]), [(2, 0)]);
}

#[test]
fn a_limit_that_monitors_sees_what_it_would_if_it_were_enforced() {
    let mut counted = Vec::new();
    for mode in [Mode::Enforce, Mode::Monitor] {
        let mut program = program(&policy_of([in_mode(mode, connections("new", &[], 2))]));
        for seconds in [0, 1, 2, 5] {
            let frames = [syn(1, 1), syn(2, 1), syn(3, 1)];
            let enforced = [true, true, mode == Mode::Monitor];
            assert_eq!(pass(&mut program, seconds, &frames), enforced, "{seconds}");
        }
        counted.push(tally(&program, "new"));
        program.check_accounts().unwrap();
    }
    assert_eq!(counted, [(2, 4), (2, 4)]);
}
