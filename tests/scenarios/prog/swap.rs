//! A policy is exchanged while packets are decided: each packet is decided by the old policy or by the new
//! one, never by parts of both.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use limiter_common::packet::reason::Reason;
use limiter_tests::{
    packet::Frame,
    program::{Clock, SMALL, TestProgram, pin_to_cpu, two_cpus},
};
use limiter_userspace::policy::{
    Policy,
    model::{KeyPart, Limit, Listed, Match, Whom},
    units::prefix::parse_prefix,
};

use super::{
    counted,
    define::{limit, policy_of},
    keeps_time, part, per_second,
};

const CHANGES: u64 = 1_000;
const SOURCES: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];
const PORTS: [u16; 2] = [80, 8_080];
const LOW: RangeInclusive<u16> = 0..=1_999;
const HIGH: RangeInclusive<u16> = 2_000..=u16::MAX;

/// Each packet matches one of two limits, unless its source is denied. The policies exchange the ports of the
/// limits and the denied source. So a packet that is decided by parts of both may match both limits, or none.
fn policy([one, other]: [RangeInclusive<u16>; 2], bursts: [u64; 2], denied: &str) -> Policy {
    let about = |ports, limit| Limit {
        matching: Match { ports: vec![ports], ..Match::default() },
        ..limit
    };
    let [by_source, by_connection] = bursts.map(|burst| per_second(1_000, burst));
    let mut policy = policy_of([
        about(one, limit("one", &[KeyPart::Source], by_source)),
        about(other, limit("other", &[KeyPart::Connection], by_connection)),
    ]);
    let whom = Whom::Prefix(parse_prefix(denied).unwrap());
    policy.deny.push(Listed { whom, until: None });
    policy
}

/// Applies the policies in turn, starting with the second, while two CPUs run each frame `times` times, again
/// and again.
pub(super) fn swap_under_load(
    program: &mut TestProgram,
    frames: &[Vec<u8>],
    times: u32,
    policies: &[Policy],
    changes: usize,
) {
    let cpus = two_cpus().unwrap();
    let done = AtomicBool::new(false);
    let (runner, maps) = program.split().unwrap();
    thread::scope(|scope| {
        for cpu in cpus {
            let (runner, done) = (&runner, &done);
            scope.spawn(move || {
                pin_to_cpu(cpu).unwrap();
                while !done.load(Ordering::Relaxed) {
                    for frame in frames {
                        runner.run_many(frame, times).unwrap();
                    }
                }
            });
        }
        let applied =
            (1..=changes).try_for_each(|change| maps.apply(&policies[change % policies.len()]));
        done.store(true, Ordering::Relaxed);
        applied.unwrap();
    });
}

#[test]
fn each_packet_is_decided_by_the_old_policy_or_the_new_one() {
    let policies = [
        policy([LOW, HIGH], [400, 3_000], "10.0.0.2/32"),
        policy([HIGH, LOW], [900, 70], "10.0.0.3/32"),
    ];
    let frames: Vec<_> = SOURCES
        .into_iter()
        .flat_map(|source| PORTS.map(|port| (source, port)))
        .map(|(source, port)| Frame::udp(source, [198, 51, 100, 1], 40_000, port).build())
        .collect();
    let mut program = TestProgram::new(SMALL, &policies[0], Clock::Monotonic).unwrap();
    swap_under_load(&mut program, &frames, 20, &policies, part(CHANGES) as usize);
    program.check_accounts().unwrap();

    let undecided = counted(&program, Reason::Contended);
    let denied = counted(&program, Reason::Deny);
    let limited = ["one", "other"]
        .map(|limit| program.tally(limit).unwrap())
        .map(|tally| tally.conform.packets + tally.exceed.packets)
        .iter()
        .sum::<u64>();
    let reasons = program.counters().unwrap().reasons;
    let received: u64 = reasons.iter().map(|tally| tally.packets).sum();
    println!(
        "{} changes: of {received} packets, {denied} denied, {limited} limited, {undecided} undecided",
        part(CHANGES)
    );
    assert_eq!(denied + limited + undecided, received);
    assert!(denied > 0 && limited > 0);
    // At most one packet of each CPU is contended by a change.
    assert!(undecided <= 2 * part(CHANGES) || !keeps_time(), "{undecided} of {received} undecided");
}
