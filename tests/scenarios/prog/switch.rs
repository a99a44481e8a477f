//! The operator's switch, set and reset between two packets: while it is on, nothing is dropped under any
//! policy, and what would be dropped is counted.

use std::{net::IpAddr, time::Duration};

use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason};
use limiter_tests::program::{TestProgram, Verdict, monotonic};
use limiter_userspace::{
    datapath::monitoring::Monitoring,
    policy::{
        Policy,
        model::{GlobalMode, KeyPart, Limit, Listed, Penalty, Unproven, Whom},
        units::parse_prefix,
    },
    query::{Inquiry, frame::Sighting},
};

use super::{
    counted,
    define::{limit, policy_of},
    modes::tally,
    program,
    swap::swap_under_load,
    tokens, udp,
};

const SOURCE: [u8; 4] = [10, 0, 0, 1];
const DENIED: [u8; 4] = [10, 0, 0, 66];

fn throw(program: &mut TestProgram, on: bool) {
    program.split().unwrap().1.switch_monitor(on).unwrap();
    assert_eq!(program.maps().monitoring().unwrap().switch, on);
}

/// A policy with one limit of five packets and one denied source.
fn five(name: &str) -> Policy {
    let mut policy = policy_of([limit(name, &[KeyPart::Source], tokens(5))]);
    let whom = Whom::Prefix(parse_prefix("10.0.0.66").unwrap());
    policy.deny.push(Listed { whom, until: None });
    policy
}

#[test]
fn it_holds_from_one_packet_to_the_next_and_all_is_counted_as_before() {
    let mut program = program(&five("source"));
    let (frame, denied) = (udp(SOURCE), udp(DENIED));
    assert_eq!(program.run_many(&frame, 20).unwrap(), 5);
    for round in 1..=3_u64 {
        throw(&mut program, true);
        assert_eq!(program.run_many(&frame, 10).unwrap(), 10);
        assert_eq!(program.run(&denied).unwrap(), Verdict::Pass);
        throw(&mut program, false);
        assert_eq!(program.run_many(&frame, 10).unwrap(), 0);
        assert_eq!(program.run(&denied).unwrap(), Verdict::Drop);
        assert_eq!(tally(&program, "source"), (5, 15 + 20 * round));
        assert_eq!(counted(&program, Reason::Monitor), 11 * round);
        assert_eq!(counted(&program, Reason::Exceed), 15 + 10 * round);
        assert_eq!(counted(&program, Reason::Deny), round);
    }
    let source = program.source(&IpAddr::from(SOURCE).into()).unwrap().unwrap();
    assert_eq!((source.passed.packets, source.dropped.packets), (35, 45));
    program.check_accounts().unwrap();
}

/// The switch is independent of `mode: monitor` in a policy.
#[test]
fn no_change_of_the_policy_touches_it_in_either_half() {
    let mut program = program(&five("one"));
    let frame = udp(SOURCE);
    throw(&mut program, true);
    // Both halves of the policy maps, twice, with another limit and with the same.
    for name in ["two", "three", "three", "two"] {
        program.apply(&five(name)).unwrap();
        assert_eq!(program.run_many(&frame, 10).unwrap(), 10, "{name}");
        assert_eq!(program.maps().policy().unwrap(), five(name), "the document is its own");
    }
    let policy = Policy { mode: GlobalMode::Monitor, ..five("two") };
    program.apply(&policy).unwrap();
    let monitoring = Monitoring { switch: true, policy: GlobalMode::Monitor };
    assert_eq!(program.maps().monitoring().unwrap(), monitoring);
    throw(&mut program, false);
    assert_eq!(program.run_many(&frame, 10).unwrap(), 10, "the policy says so itself");
    program.apply(&five("two")).unwrap();
    assert_eq!(program.run_many(&frame, 10).unwrap(), 0);
    throw(&mut program, true);
    assert_eq!(program.run_many(&frame, 10).unwrap(), 10);
    assert_eq!(counted(&program, Reason::Exceed), 10);
    program.check_accounts().unwrap();
}

#[test]
fn it_holds_before_and_after_a_policy_is_taken_back() {
    let start = monotonic();
    let mut program = program(&five("before"));
    let frame = udp(SOURCE);
    let passes = |program: &mut TestProgram, now, times| {
        program.at(now).unwrap();
        program.run_many(&frame, times).unwrap()
    };
    assert_eq!(passes(&mut program, start, 10), 5);
    let time = Duration::from_secs(3_600);
    program.split().unwrap().1.apply_for(&five("tried"), Some(time)).unwrap();
    let later = start + 2 * 3_600 * SECOND;
    throw(&mut program, true);
    assert_eq!(passes(&mut program, start, 20), 20);
    assert_eq!(tally(&program, "tried"), (5, 15));
    assert!(program.maps().unconfirmed().unwrap().is_some(), "it is as it was");
    // By the clock of the program, the time to confirm is over, so the previous policy is in force.
    assert_eq!(passes(&mut program, later, 20), 20);
    throw(&mut program, false);
    assert_eq!(passes(&mut program, later, 20), 0);
    throw(&mut program, true);
    assert_eq!(passes(&mut program, later, 20), 20);
    program.split().unwrap().1.revert().unwrap();
    assert_eq!(passes(&mut program, later, 20), 20);
    assert!(program.maps().monitoring().unwrap().switch);
    throw(&mut program, false);
    assert_eq!(passes(&mut program, later, 20), 0);
    program.check_accounts().unwrap();
}

#[test]
fn who_is_over_a_limit_meanwhile_is_not_blocked_for_it() {
    let penalty = Penalty {
        backoff: 2,
        max: 600 * SECOND,
        unproven: Unproven::Block,
        ..Penalty::new(SECOND, 60 * SECOND)
    };
    let strict = Limit {
        penalty: Some(penalty),
        ..limit("strict", &[KeyPart::Source], super::per_second(5, 5))
    };
    let mut program = program(&policy_of([strict]));
    let frame = udp(SOURCE);
    let mut now = super::NOW;
    throw(&mut program, true);
    for _ in 0..40 {
        now += SECOND / 10;
        program.at(now).unwrap();
        assert_eq!(program.run_many(&frame, 10).unwrap(), 10);
    }
    throw(&mut program, false);
    now += 10 * SECOND;
    program.at(now).unwrap();
    assert_eq!(program.run_many(&frame, 10).unwrap(), 5, "it is limited, and not blocked");
    assert_eq!(counted(&program, Reason::Penalty), 0);
    for _ in 0..40 {
        now += SECOND / 10;
        program.at(now).unwrap();
        program.run_many(&frame, 10).unwrap();
    }
    let blocked = counted(&program, Reason::Penalty);
    assert!(blocked > 0);
    // While the switch is on, packets of a blocked source pass too.
    throw(&mut program, true);
    assert_eq!(program.run_many(&frame, 10).unwrap(), 10);
    assert_eq!(counted(&program, Reason::Penalty), blocked);
    program.check_accounts().unwrap();
}

#[test]
fn nothing_is_dropped_while_policies_are_swapped_under_load() {
    let mut program = program(&five("one"));
    throw(&mut program, true);
    let frames = [udp(SOURCE), udp(DENIED), udp([10, 0, 0, 2])];
    swap_under_load(&mut program, &frames, 20, &[five("one"), five("two")], 50);
    program.check_accounts().unwrap();
    for reason in Reason::ALL.into_iter().filter(|reason| reason.drops()) {
        assert_eq!(counted(&program, reason), 0, "{reason:?}");
    }
    assert!(counted(&program, Reason::Monitor) > 0);
}

#[test]
fn the_inquiry_says_what_the_program_does() {
    let mut program = program(&five("source"));
    let frame = udp(SOURCE);
    program.run_many(&frame, 20).unwrap();
    let mut before = Vec::new();
    for on in [false, true, false] {
        throw(&mut program, on);
        let mut inquiry = Inquiry::new(program.maps(), super::NOW).unwrap();
        let said = inquiry.verdict(&Sighting::whole(&frame), 0, super::NOW).unwrap();
        let report = inquiry.source(IpAddr::from(SOURCE).into(), super::NOW).unwrap();
        assert_eq!((report.monitoring.is_on(), report.limits[0].mode), (on, "enforce"));
        let expected = if on { Reason::Monitor } else { Reason::Exceed };
        assert_eq!((said.reason, said.enforced), (expected, Reason::Exceed));
        assert_eq!(said.limit.as_deref(), Some("source"));
        let verdict = if on { Verdict::Pass } else { Verdict::Drop };
        assert_eq!(program.run(&frame).unwrap(), verdict);
        before.push(counted(&program, Reason::Monitor));
    }
    assert_eq!(before, [0, 1, 1]);
}
