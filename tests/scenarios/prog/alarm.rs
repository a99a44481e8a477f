//! The alarm of a CPU, by which it refuses without reading the clock: timers of the kernel, in real time.

use std::{
    thread,
    time::{Duration, Instant},
};

use aya::programs::loaded_programs;
use limiter_common::{alarm::Alarm, refused::Refused};
use limiter_tests::program::{Clock, SMALL, TestProgram, Verdict, monotonic, pin_to_cpu, two_cpus};
use limiter_userspace::policy::Builtin;

use super::{per_second, policy, udp};

const A: [u8; 4] = [10, 0, 0, 1];

/// How long something may take that happens at once, but for what else the machine does.
const PATIENCE: Duration = Duration::from_secs(20);

/// Packets of `A` come every 10 ms, one at a time.
const APART: Duration = Duration::from_millis(10);

/// A program on one CPU, with a source that is at its limit, and the number of the CPU.
fn refusing() -> (TestProgram, usize) {
    let cpu = two_cpus().unwrap()[0];
    pin_to_cpu(cpu).unwrap();
    let policy = policy(&[(Builtin::Source, per_second(100, 1))]);
    (TestProgram::new(SMALL, &policy, Clock::Monotonic).unwrap(), cpu)
}

/// Has the program believe that so many were refused in this moment that an alarm is worth setting, and offers packets of
/// `A` until one is set and has not gone off.
fn offer_until_set(program: &mut TestProgram, cpu: usize) {
    let start = Instant::now();
    while program.alarm(cpu).unwrap().before == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", program.alarm(cpu).unwrap());
        let (since, refusals) = (monotonic(), Alarm::WORTH);
        program.stop_alarm(cpu, Alarm { since, refusals, ..Alarm::default() }).unwrap();
        program.run_many(&udp(A), 4).unwrap();
    }
}

#[test]
fn it_is_set_in_a_flood_and_goes_off() {
    let (mut program, cpu) = refusing();
    for _ in 0..5 {
        offer_until_set(&mut program, cpu);
        let start = Instant::now();
        while program.alarm(cpu).unwrap().before != 0 {
            assert!(start.elapsed() < PATIENCE, "{:?}", program.alarm(cpu).unwrap());
            thread::yield_now();
        }
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
fn one_that_never_goes_off_is_not_believed() {
    let (mut program, cpu) = refusing();
    for _ in 0..5 {
        offer_until_set(&mut program, cpu);
        let alarm = program.alarm(cpu).unwrap();
        // Often enough for it to be trusted.
        program.run_many(&udp(A), 2 * Refused::TRUST).unwrap();
        program.stop_alarm(cpu, alarm).unwrap();
        // Longer than the source is refused for, and than two ticks of a kernel that has 100 in a second.
        thread::sleep(4 * APART);
        assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass, "the source rested");
    }
    program.check_accounts().unwrap();
    program.close().unwrap();
}

#[test]
fn one_that_is_late_refuses_few_that_conform() {
    let (mut program, cpu) = refusing();
    let rest = APART.as_nanos() as u64 / Clock::Monotonic.tick() + 1;
    let start = Instant::now();
    loop {
        offer_until_set(&mut program, cpu);
        // Often enough for it to be trusted.
        program.run_many(&udp(A), 2 * Refused::TRUST).unwrap();
        let alarm = program.alarm(cpu).unwrap();
        // As if it had been set when the source has rested, for anybody.
        let late = Alarm { before: 1, tick: alarm.tick + rest, ..alarm };
        program.stop_alarm(cpu, late).unwrap();
        thread::sleep(APART);
        let mut is_refused = |_: &u32| program.run(&udp(A)).unwrap() == Verdict::Drop;
        let refused = (0..Refused::TRUST).take_while(&mut is_refused).count() as u32;
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
    offer_until_set(&mut program, cpu);
    program.close().unwrap();
}

/// A timer keeps the program that set it last, which may be that of another interface.
#[test]
fn the_program_of_an_interface_that_is_detached_is_not_kept() {
    let (mut program, cpu) = refusing();
    let mut neighbour = program.neighbour(1).unwrap();
    let id = neighbour.info().unwrap().id();
    let is_loaded = || loaded_programs().flatten().any(|info| info.id() == id);
    let start = Instant::now();
    while program.alarm(cpu).unwrap().times == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", program.alarm(cpu).unwrap());
        // So many are repeated by the kernel, one right after the other.
        neighbour.run_many(&udp(A), 20_000).unwrap();
    }
    drop(neighbour);
    assert!(is_loaded(), "the timer does not keep it");
    program.detach(1).unwrap();
    let start = Instant::now();
    while is_loaded() {
        assert!(start.elapsed() < PATIENCE, "program {id} is left over");
        thread::sleep(Duration::from_millis(10));
    }
    offer_until_set(&mut program, cpu);
    program.close().unwrap();
}
