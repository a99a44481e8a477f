//! New connections: what of their SYNs is counted, and what belongs to one that was admitted.

use limiter_common::{opening::Opening, rate::SECOND};
use limiter_tests::{
    packet::{ACK, Frame, SYN},
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Policy,
    model::{Count, KeyPart, Limit, Mode},
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

/// A limit of so many new connections while the time stands still.
fn connections(name: &str, parts: &[KeyPart], most: u64) -> Limit {
    Limit { count: Count::Connections, ..limit(name, parts, tokens(most)) }
}

fn syn(port: u16, sequence: u32) -> Frame {
    Frame::tcp(A, B, port, 22, SYN).sequence(sequence)
}

/// Runs frames, and tells how many of each passed.
fn passed(program: &mut TestProgram, frames: &[Frame], times: u64) -> Vec<u64> {
    let run = |frame: &Frame| program.run_many(&frame.build(), times as u32).unwrap();
    frames.iter().map(run).collect()
}

#[test]
fn a_repeated_syn_is_of_the_connection_that_was_admitted() {
    let mut program = program(&Policy::default());
    for parts in [&[KeyPart::Source][..], &[KeyPart::DestinationPort], &[]] {
        program.forget().unwrap();
        program.apply(&policy_of([connections("new", parts, 3)])).unwrap();
        let before = tally(&program, "new").0;
        let each = 1 + Opening::REPEATS;
        // A first one and its repetitions, of connections that differ by one thing each.
        let three = [syn(40_000, 1), syn(40_000, 2), syn(40_001, 1)];
        assert_eq!(passed(&mut program, &three, each), [each; 3], "{parts:?}");
        assert_eq!(tally(&program, "new").0 - before, 3, "{parts:?}");
        // There is no room for a fourth, nor for those to begin anew.
        let further = [syn(40_002, 1), syn(40_000, 1), syn(40_001, 1)];
        assert_eq!(passed(&mut program, &further, 2), [0; 3], "{parts:?}");
        // What opens nothing is not counted.
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass);
        let ack = Frame::tcp(A, B, 40_002, 22, ACK).build();
        assert_eq!(program.run(&ack).unwrap(), Verdict::Pass);
    }
    program.check_accounts().unwrap();
}

#[test]
fn the_same_syn_on_and_on_is_limited() {
    let mut program = program(&policy_of([connections("new", &[KeyPart::Source], 2)]));
    let each = 1 + Opening::REPEATS;
    assert_eq!(passed(&mut program, &[syn(40_000, 1)], 1_000), [2 * each]);
    assert_eq!(tally(&program, "new"), (2, 1_000 - 2 * each));
}

#[test]
fn a_syn_that_was_refused_counts_when_it_comes_again() {
    let mut program = program(&policy_of([connections("new", &[KeyPart::Source], 1)]));
    assert_eq!(passed(&mut program, &[syn(1, 1), syn(2, 1)], 2), [2, 0]);
    // With the next token.
    program.at(NOW + 120 * SECOND).unwrap();
    assert_eq!(passed(&mut program, &[syn(2, 1)], 3), [3]);
    assert_eq!(tally(&program, "new").0, 2);
}

#[test]
fn a_syn_is_repeated_for_a_time() {
    let mut program = program(&policy_of([connections("new", &[], 2)]));
    assert_eq!(passed(&mut program, &[syn(1, 1)], 1), [1]);
    program.at(NOW + Opening::SPAN).unwrap();
    assert_eq!(passed(&mut program, &[syn(1, 1)], 1), [1]);
    assert_eq!(tally(&program, "new").0, 1);
    program.at(NOW + Opening::SPAN + SECOND).unwrap();
    assert_eq!(passed(&mut program, &[syn(1, 1)], 1), [1]);
    assert_eq!(tally(&program, "new").0, 2);
}

/// Addresses of either family, ports, and whatever policy is in force by then.
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
    assert_eq!(passed(&mut program, &frames, 2), [2; 6]);
    assert_eq!(tally(&program, "new").0, 6);
    program.apply(&new(7)).unwrap();
    assert_eq!(passed(&mut program, &frames, 2), [2; 6]);
    assert_eq!(tally(&program, "new").0, 6);
}

/// Limits of SYNs count all of them, and one that only monitors sees what it would see if it were
/// enforced.
#[test]
fn syns_are_counted_each_and_monitors_see_what_they_would() {
    let syns = Limit { count: Count::Syns, ..limit("syns", &[KeyPart::Source], tokens(100)) };
    for mode in [Mode::Enforce, Mode::Monitor] {
        let new = in_mode(mode, connections("new", &[], 2));
        let mut program = program(&policy_of([syns.clone(), new]));
        let dropped = if mode == Mode::Enforce { 0 } else { 3 };
        let frames = [syn(1, 1), syn(2, 1), syn(3, 1)];
        assert_eq!(passed(&mut program, &frames, 3), [3, 3, dropped]);
        assert_eq!(tally(&program, "new"), (2, 3));
        assert_eq!(tally(&program, "syns").0, 6 + dropped);
        program.check_accounts().unwrap();
    }
}
