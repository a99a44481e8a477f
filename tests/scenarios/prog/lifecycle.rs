//! An instance without an interface leaves nothing behind, and a pooled program remembers nothing.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use aya::programs::loaded_programs;

use limiter_common::base::address::Address;
use limiter_tests::{
    leak::map_ids,
    program::{Clock, SMALL, TestProgram, Verdict},
};
use limiter_userspace::policy::Builtin;

use super::{NOW, leased::TICK, per_second, policy, program, set_override, udp};

#[test]
fn closing_leaves_nothing() {
    let mut policy = policy(&[(Builtin::Source, per_second(10, 1))]);
    set_override(&mut policy, Builtin::Source, "10.1.0.0/16", per_second(10, 2));
    let mut program = program(&policy);
    assert_eq!(program.run(&udp([10, 0, 0, 1])).unwrap(), Verdict::Pass);
    program.close().unwrap();
}

/// Dropping everything, as the end of the process does.
#[test]
fn dropping_leaves_nothing() {
    let policy = policy(&[(Builtin::Source, per_second(10, 1))]);
    let mut program = TestProgram::fresh(SMALL, &policy, Clock::Test).unwrap();
    let info = program.info().unwrap();
    let maps: BTreeSet<u32> = info.map_ids().unwrap().unwrap().into_iter().collect();
    assert!(maps.len() >= 14, "{maps:?}");
    drop(program);
    let start = Instant::now();
    loop {
        let programs = loaded_programs().flatten().any(|other| other.id() == info.id());
        let left: Vec<_> = map_ids().intersection(&maps).copied().collect();
        if !programs && left.is_empty() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(3), "left over: {programs} {left:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Without this, CPU caches and the start of the last tick would be those of the previous test.
#[test]
fn a_program_that_is_used_again_remembers_nothing() {
    let policy = policy(&[(Builtin::Source, per_second(10_000, 20_000))]);
    let said = |mut program: TestProgram, now| {
        let (source, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let last = NOW + 10 * TICK + TICK / 2;
        for (now, source) in [(NOW, source), (NOW, other), (now, other), (last, source)] {
            program.at(now).unwrap();
            program.run(&udp(source)).unwrap();
        }
        program.whole_source(&Address::v4(source)).unwrap().unwrap().words()
    };
    let fresh = || TestProgram::fresh(SMALL, &policy, Clock::Ticking(TICK)).unwrap();
    let used = || TestProgram::new(SMALL, &policy, Clock::Ticking(TICK)).unwrap();
    let begin = NOW + 10 * TICK;
    let [early, late] = [begin, begin + TICK / 4].map(|now| said(fresh(), now));
    assert_ne!(early, late, "packets go by when the tick began");
    for (now, words) in [(begin, early), (begin + TICK / 4, late)].repeat(3) {
        assert_eq!(said(used(), now), words);
    }
}
