//! The alarm of a CPU, by which it refuses without reading the clock: timers of the kernel, in real time.

use std::{
    thread,
    time::{Duration, Instant},
};

use aya::programs::loaded_programs;
use limiter_common::{alarm::Alarm, refused::Refused};
use limiter_tests::program::{Clock, SMALL, TestProgram, Verdict, monotonic, pin_to_cpu, two_cpus};
use limiter_userspace::policy::{Builtin, Policy, model::KeyPart};

use super::{
    define::{limit, policy_of},
    per_second, policy, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];

/// How long something may take that happens at once, but for what else the machine does.
const PATIENCE: Duration = Duration::from_secs(20);

/// Packets of `A` come every 10 ms, one at a time.
pub(super) const APART: Duration = Duration::from_millis(10);

/// More than a source may send while an alarm is believed.
pub(super) const BURST: u64 = 20;

/// Stays on one CPU, and gives its number.
fn stay() -> usize {
    let cpu = two_cpus().unwrap()[0];
    pin_to_cpu(cpu).unwrap();
    cpu
}

fn program(policy: &Policy) -> TestProgram {
    TestProgram::new(SMALL, policy, Clock::Monotonic).unwrap()
}

/// A program on one CPU, with a limit that such packets come to, and the number of the CPU.
fn refusing() -> (TestProgram, usize) {
    let cpu = stay();
    (program(&policy(&[(Builtin::Source, per_second(100, BURST))])), cpu)
}

/// Has a program offer some packets of `A`, and believe that so many were refused in this moment that an alarm is worth
/// setting, until one is set and has not gone off.
fn set_by(program: &mut TestProgram, cpu: usize, mut offer: impl FnMut(&mut TestProgram)) -> Alarm {
    let start = Instant::now();
    loop {
        let alarm = program.alarm(cpu).unwrap();
        if alarm.before != 0 {
            return alarm;
        }
        assert!(start.elapsed() < PATIENCE, "{alarm:?}");
        let (since, refusals) = (monotonic(), Alarm::WORTH);
        program.stop_alarm(cpu, Alarm { since, refusals, ..Alarm::default() }).unwrap();
        offer(program);
    }
}

/// The same by the program itself.
pub(super) fn set(program: &mut TestProgram, cpu: usize) -> Alarm {
    set_by(program, cpu, |program| {
        program.run_many(&udp(A), 4).unwrap();
    })
}

/// Has so many packets of `A` refused that an alarm is trusted to tell of it.
fn offer_many(program: &mut TestProgram) {
    program.run_many(&udp(A), Refused::TRUST + 8).unwrap();
}

#[test]
fn it_is_set_in_a_flood_and_goes_off() {
    let (mut program, cpu) = refusing();
    for _ in 0..5 {
        set(&mut program, cpu);
        let start = Instant::now();
        while program.alarm(cpu).unwrap().before != 0 {
            assert!(start.elapsed() < PATIENCE, "{:?}", program.alarm(cpu).unwrap());
            thread::yield_now();
        }
        assert_ne!(program.alarm(cpu).unwrap().late, 0, "nobody knows how late it was");
        thread::sleep(APART);
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass, "the source rested");
    }
    program.check_accounts().unwrap();
    program.close().unwrap();
}

#[test]
fn none_is_set_where_few_packets_come() {
    let (mut program, cpu) = refusing();
    for _ in 0..100 {
        program.run_many(&udp(A), 10).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(program.alarm(cpu).unwrap().times, 0);
    program.close().unwrap();
}

#[test]
fn none_is_set_where_a_token_could_be_lost_if_it_were_late() {
    // It is full in less than eight of the shortest ticks, and a source refused for longer than an alarm is set for at
    // least.
    let shallow = per_second(500, 1);
    let deep = limit("source", &[KeyPart::Source], per_second(100, BURST));
    let beside = policy_of([deep, limit("all", &[], shallow)]);
    let cpu = stay();
    for policy in [policy(&[(Builtin::Source, shallow)]), beside] {
        let mut program = program(&policy);
        let start = Instant::now();
        // Longer than it takes the one beside to admit more than the deep one.
        while start.elapsed() < Duration::from_millis(200) {
            program.run_many(&udp(A), 100).unwrap();
        }
        for _ in 0..100 {
            let (since, refusals) = (monotonic(), Alarm::WORTH);
            program.stop_alarm(cpu, Alarm { since, refusals, ..Alarm::default() }).unwrap();
            offer_many(&mut program);
            let alarm = program.alarm(cpu).unwrap();
            assert_eq!((alarm.times, alarm.refusals), (0, Alarm::WORTH), "{policy:?}");
        }
        program.close().unwrap();
    }
}

#[test]
fn one_that_never_goes_off_is_not_believed_and_costs_no_token() {
    let (mut program, cpu) = refusing();
    for _ in 0..5 {
        let alarm = set(&mut program, cpu);
        offer_many(&mut program);
        program.stop_alarm(cpu, alarm).unwrap();
        // Longer than the source is refused for, and than two ticks of a kernel that has 100 in a second.
        thread::sleep(4 * APART);
        for token in 0..4 {
            assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass, "token {token}");
        }
    }
    program.check_accounts().unwrap();
    program.close().unwrap();
}

#[test]
fn one_that_is_late_refuses_few_that_conform() {
    let (mut program, cpu) = refusing();
    let tick = Clock::Monotonic.tick();
    let start = Instant::now();
    loop {
        let alarm = set(&mut program, cpu);
        let begin = monotonic();
        offer_many(&mut program);
        thread::sleep(APART);
        // As if it had been set in this moment, when the source has rested.
        let tick = alarm.tick + (monotonic() - begin) / tick;
        program.stop_alarm(cpu, Alarm { before: 1, tick, ..alarm }).unwrap();
        let is_refused = |_: &u32| program.run(&udp(A)).unwrap() == Verdict::Drop;
        let refused = (0..Refused::TRUST).take_while(is_refused).count() as u32;
        assert!(refused < Refused::TRUST, "{refused} packets of a source that rested");
        if refused > 0 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "it was never believed");
    }
    assert_eq!(program.alarm(cpu).unwrap().before, 0, "the clock found it out");
    program.check_accounts().unwrap();
    program.close().unwrap();
}

#[test]
fn what_is_closed_while_one_is_set_leaves_nothing() {
    let (mut program, cpu) = refusing();
    set(&mut program, cpu);
    program.close().unwrap();
}

/// A timer keeps the program that set it last, which may be that of another interface.
#[test]
fn the_program_of_an_interface_that_is_detached_is_not_kept() {
    let (mut program, cpu) = refusing();
    let mut neighbour = program.neighbour(1).unwrap();
    let id = neighbour.info().unwrap().id();
    let is_loaded = || loaded_programs().flatten().any(|info| info.id() == id);
    set_by(&mut program, cpu, |_| neighbour.run_many(&udp(A), 4).unwrap());
    drop(neighbour);
    assert!(is_loaded(), "the timer does not keep it");
    program.detach(1).unwrap();
    let start = Instant::now();
    while is_loaded() {
        assert!(start.elapsed() < PATIENCE, "program {id} is left over");
        thread::sleep(Duration::from_millis(10));
    }
    set(&mut program, cpu);
    program.close().unwrap();
}
