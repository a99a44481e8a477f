//! Runs each algorithm on two CPUs at once: together they are admitted what the limit admits, once.

use std::sync::atomic::{AtomicBool, Ordering};

use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason};
use limiter_tests::{
    model::{Exact as _, Model},
    packet::{Frame, SYN},
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Policy,
    model::{Allowance, Count, KeyPart, Limit},
};

use super::{
    super::{
        NOW, Run, counted,
        cpus::on_two_cpus,
        define::{is_inline, limit, policy_of},
        mutation::Random,
        part, program, seed, syn,
    },
    Any, FIXED_WINDOW, GCRA, LEAKY_BUCKET, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, exact, pace,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];
/// All algorithms whose state is a word or a log.
const ALL: [Any; 6] = [TOKEN_BUCKET, LEAKY_BUCKET, GCRA, FIXED_WINDOW, SLIDING_WINDOW, SLIDING_LOG];
/// More packets than any limit here admits at once.
const OFFER: u32 = 150;

fn any_of(random: &mut Random, any: Any) -> Allowance {
    let size = 1 + random.below(100) as u64;
    any(random, size)
}

/// The number of packets that the exact model admits at one time, however many are offered.
fn drain(model: &mut Model, now: u64) -> u64 {
    (0..).take_while(|_| model.take(now, 1)).count() as u64
}

/// Offers packets on two CPUs, then on one, for the tokens left by packets that were dropped as contended.
fn offer(program: &mut TestProgram, frame: &[u8]) -> u64 {
    let before = program.passed().unwrap();
    on_two_cpus(program, |runner, _| {
        for _ in 0..OFFER {
            runner.run(frame).unwrap();
        }
    });
    program.run_many(frame, OFFER).unwrap();
    program.passed().unwrap() - before
}

/// At each of many times, both CPUs take all that the limit admits.
#[test]
fn two_cpus_are_given_what_the_limit_admits() {
    let seed = seed();
    for (number, any) in (0..).zip(ALL) {
        let mut program = program(&Policy::default());
        let mut random = Random::new(seed, number);
        for run in 0..part(12) {
            let allowance = any_of(&mut random, any);
            let parts = *random.pick(&[[KeyPart::Source], [KeyPart::Destination]]);
            let limit = limit(&format!("limit-{run}"), &parts, allowance);
            let _run = Run { seed, run, of: &limit.clone() };
            program.apply(&policy_of([limit.clone()])).unwrap();
            let [unit, all] = pace(allowance);
            let mut now = NOW + random.below(1 << 40) as u64;
            let mut model = exact(allowance, 1, now);
            for round in 0..part(12) {
                program.at(now).unwrap();
                let (passed, expected) = (offer(&mut program, &syn(A)), drain(&mut model, now));
                assert_eq!(passed, expected, "round {round} at {now}");
                now += match random.below(4) {
                    0 => all + 1,
                    1 => unit,
                    _ => random.below(all as usize) as u64,
                };
            }
            let tally = program.tally(&limit.name).unwrap();
            let contended = counted(&program, Reason::Contended);
            println!("{} {tally:?}, {contended} undecided", allowance.algorithm());
        }
        program.check_accounts().unwrap();
    }
}

/// Two limits, of which either may admit less: a charge to one is refunded when the other refuses the packet.
#[test]
fn two_limits_admit_the_lesser_of_both() {
    let seed = seed();
    for (number, any) in (0..).zip(ALL) {
        let mut program = program(&Policy::default());
        for run in 0..part(10) {
            let mut random = Random::new(seed, number << 32 | run);
            let allowance = |random: &mut Random, packets| loop {
                let allowance = any(random, packets);
                // A limit that would admit packets while time stands still is not used.
                if pace(allowance)[0] > 0 {
                    break allowance;
                }
            };
            let least = 20 + random.below(80) as u64;
            let [narrow, wide] = *random.pick(&[[least, least + 1], [least + 1, least]]);
            let names = [format!("narrow-{run}"), format!("wide-{run}")];
            let limits = [
                limit(&names[0], &[KeyPart::Source], allowance(&mut random, narrow)),
                limit(&names[1], &[], allowance(&mut random, wide)),
            ];
            let _run = Run { seed, run, of: &limits.clone() };
            let is_log = matches!(limits[0].layers[0].allowance, Allowance::SlidingLog { .. });
            let inline = is_inline(&limits[0]);
            program.apply(&policy_of(limits)).unwrap();
            let passed = offer(&mut program, &syn(A));
            // In a log, a refunded charge stays used up if another charge followed it.
            let expected = if is_log { 1..=least } else { least..=least };
            assert!(expected.contains(&passed), "{passed} of {least}, inline: {inline}");
            let charged = names.map(|name| program.tally(name).unwrap().conform.packets);
            assert_eq!(charged, [passed; 2]);
        }
        program.check_accounts().unwrap();
    }
}

/// Two CPUs open connections, some of which are the same.
#[test]
fn two_cpus_open_as_many_connections_as_the_limit_admits() {
    const IDLE: u64 = 60 * SECOND;
    const PORTS: u16 = 200;
    let seed = seed();
    let mut program = program(&Policy::default());
    for run in 0..part(40) {
        let mut random = Random::new(seed, run);
        let most = 1 + random.below(128) as u64;
        let parts = *random.pick(&[&[KeyPart::Source][..], &[KeyPart::Destination], &[]]);
        let allowance = Allowance::Concurrent { limit: most, idle: IDLE };
        let limit =
            Limit { count: Count::Connections, ..limit(&format!("few-{run}"), parts, allowance) };
        let _run = Run { seed, run, of: &limit.clone() };
        program.apply(&policy_of([limit])).unwrap();
        for round in 0..4 {
            program.at(NOW + round * 2 * IDLE).unwrap();
            let admitted: Vec<AtomicBool> = (0..PORTS).map(|_| AtomicBool::new(false)).collect();
            let opens = |port: u16| Frame::tcp(A, B, port, 443, SYN).build();
            on_two_cpus(&mut program, |runner, cpu| {
                for number in 0..PORTS {
                    // Both CPUs begin with the same connections and go on with different ones.
                    let port = if number < 20 || cpu == 0 { number } else { PORTS - 1 - number };
                    if runner.run(&opens(port)).unwrap() == Verdict::Pass {
                        admitted[usize::from(port)].store(true, Ordering::Relaxed);
                    }
                }
            });
            for port in 0..PORTS {
                if program.run(&opens(port)).unwrap() == Verdict::Pass {
                    admitted[usize::from(port)].store(true, Ordering::Relaxed);
                }
            }
            let open = admitted.iter().filter(|admitted| admitted.load(Ordering::Relaxed)).count();
            assert_eq!(open as u64, most, "round {round}");
        }
    }
    program.check_accounts().unwrap();
}
