//! The debug messages of a build with the feature `datapath-log`; see Cargo.toml.

use std::{thread, time::Instant};

use limiter_common::{abi::layout::program as name, packet::reason::Reason};
use limiter_tests::{
    packet::Frame,
    program::{Clock, SMALL, TestProgram, Verdict, pin_to_cpu, two_cpus},
};
use limiter_userspace::policy::{Builtin, Policy};

use super::{NOW, counted, kernel::check_loaded, policy, tokens, udp};

/// Instructions that a kernel may verify until it accepts a program with messages, which is for builds to find faults with.
const BUDGET: u32 = 250_000;

const TARGET: [u8; 4] = [198, 51, 100, 1];

/// Makes a small instance with messages, whose clock is at [`NOW`].
fn program(policy: &Policy) -> TestProgram {
    let mut program = TestProgram::with_messages(SMALL, policy, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    program
}

#[test]
fn both_programs_with_messages_load_within_the_budget() {
    for clock in [Clock::Monotonic, Clock::Test] {
        let (start, none) = (Instant::now(), Policy::default());
        let loaded = TestProgram::with_messages(SMALL, &none, clock).unwrap();
        check_loaded(name::LINEAR, clock, loaded, start, BUDGET).close().unwrap();
        let start = Instant::now();
        let loaded = TestProgram::with_frags_and_messages(SMALL, &none, clock).unwrap();
        check_loaded(name::FRAGS, clock, loaded, start, BUDGET).close().unwrap();
    }
}

/// Runs a frame and returns the messages about it.
fn told(program: &mut TestProgram, frame: &[u8]) -> Vec<String> {
    program.run(frame).unwrap();
    program.messages().unwrap()
}

/// Asserts that there is one message: a number above 0 between `begin` and `end`.
#[track_caller]
fn assert_numbered(messages: &[String], begin: &str, end: &str) {
    let number = |message: &String| -> Option<u64> {
        message.strip_prefix(begin)?.strip_suffix(end)?.parse().ok()
    };
    let numbers: Vec<_> = messages.iter().map(number).collect();
    assert!(matches!(numbers[..], [Some(1..)]), "{messages:?}");
}

#[test]
fn a_binding_and_a_refusal_are_told_and_packets_that_conform_are_not() {
    // A refusal is cached by one CPU, so the test stays on one.
    let [cpu, _] = two_cpus().unwrap();
    let work = || {
        pin_to_cpu(cpu).unwrap();
        check_limited();
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap());
}

fn check_limited() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(2))]));
    for (frame, source) in [
        (udp([192, 0, 2, 7]), "192.0.2.7"),
        (udp([0x2001, 0xdb8, 0, 1, 0, 0, 0, 7]), "2001:db8:0:1::"),
    ] {
        let bound = told(&mut program, &frame);
        assert_numbered(&bound, &format!("{source}: bound to profile 0 of epoch "), "");
        assert_eq!(told(&mut program, &frame), [""; 0]);
        // Part of the next token is enough for one packet.
        program.at(NOW + 1).unwrap();
        assert_eq!(told(&mut program, &frame), [""; 0]);
        program.at(NOW + 2).unwrap();
        assert_eq!(program.run(&frame).unwrap(), Verdict::Drop);
        let reason = Reason::Exceed.index();
        let begin = format!("{source}: over limit 0x1: reason {reason}, for ");
        assert_numbered(&program.messages().unwrap(), &begin, " ns");
        // The refusal is cached, so there is no second message.
        assert_eq!(told(&mut program, &frame), [""; 0]);
        program.at(NOW).unwrap();
    }
    program.close().unwrap();
}

#[test]
fn what_cannot_be_read_is_told() {
    let mut program = program(&Policy::default());
    let frame = Frame::ip([192, 0, 2, 7], TARGET, 17).payload(4).build();
    let malformed = told(&mut program, &frame);
    assert_eq!(malformed[0], format!("192.0.2.7: malformed: {} bytes", frame.len()));
    let unreadable = told(&mut program, &frame[..24]);
    assert_eq!(unreadable[0], "unreadable: 24 bytes");
    assert_eq!([Reason::Malformed, Reason::Unreadable].map(|it| counted(&program, it)), [1, 1]);
    program.close().unwrap();
}
