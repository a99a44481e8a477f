//! What is left of an instance without an interface.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use aya::{maps::loaded_maps, programs::loaded_programs};

use limiter_tests::program::{Clock, SMALL, TestProgram, Verdict};
use limiter_userspace::policy::Builtin;

use super::{per_second, policy, program, set_override, udp};

#[test]
fn closing_leaves_nothing() {
    let mut policy = policy(&[(Builtin::Source, per_second(10, 1))]);
    set_override(&mut policy, Builtin::Source, "10.1.0.0/16", per_second(10, 2));
    let mut program = program(&policy);
    assert_eq!(program.run(&udp([10, 0, 0, 1])).unwrap(), Verdict::Pass);
    program.close().unwrap();
}

/// As when the process dies.
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
        let left: Vec<_> = loaded_maps().flatten().filter(|map| maps.contains(&map.id())).collect();
        if !programs && left.is_empty() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(3), "left over: {programs} {left:?}");
        thread::sleep(Duration::from_millis(10));
    }
}
