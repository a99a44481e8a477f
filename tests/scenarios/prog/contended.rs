//! A word that another CPU moves all the time.

use std::thread;

use limiter_common::{
    algorithm::{policer::Policer as _, rate::SECOND},
    base::address::Address,
    memory::cache::Cached,
    packet::reason::Reason,
};
use limiter_tests::{
    packet::{Frame, SYN},
    program::{Clock, MovingWord, SMALL, TestProgram, pin_to_cpu, two_cpus},
};
use limiter_userspace::policy::model::{Count, KeyPart, Limit, Mode};

use super::{
    NOW, counted,
    define::{in_mode, limit, policy_of},
    part, per_second, program,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];

fn flow(port: u16) -> Vec<u8> {
    Frame::tcp(A, B, port, 443, SYN).build()
}

/// Sends packets of so many flows on one CPU while the other one moves a word, and asserts that each is counted. How many lose all
/// races depends on the host: mostly some dozens.
fn send(program: &mut TestProgram, word: &MovingWord, flows: u64, packets: u32) {
    let [mover, sender] = two_cpus().unwrap();
    let runner = program.runner().unwrap();
    let send = || {
        pin_to_cpu(sender).unwrap();
        for number in 0..part(flows) {
            runner.run_many(&flow(number as u16), packets).unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_cpu(mover).unwrap();
            word.move_during(send);
        });
    });
    println!("{} given up", counted(program, Reason::Contended));
    program.check_accounts().unwrap();
}

#[test]
fn a_packet_that_loses_all_races_is_counted() {
    let bytes = per_second(1_000_000_000, 1_000_000_000);
    let limit = Limit { count: Count::Bytes, ..limit("all", &[KeyPart::Source], bytes) };
    let mut program = program(&policy_of([limit]));
    program.run_many(&flow(0), 100).unwrap();
    let word = program.moving_word(&Address::v4(A), 0).unwrap();
    send(&mut program, &word, 80, 20_000);
}

/// A packet that is charged for several, and loses all races, is charged alone.
#[test]
fn a_packet_that_loses_all_races_for_a_lease_is_counted() {
    let ample = || per_second(10_000_000, 10_000_000);
    let limits = [("flow", KeyPart::Connection), ("all", KeyPart::Source)];
    let limits = limits.map(|(name, key)| limit(name, &[key], ample()));
    let clock = Clock::Ticking(SECOND / 250);
    let mut program = TestProgram::new(SMALL, &policy_of(limits), clock).unwrap();
    program.at(NOW).unwrap();
    program.run_many(&flow(0), 100).unwrap();
    let word = program.moving_word(&Address::v4(A), 0).unwrap();
    send(&mut program, &word, 400, 50_000);
}

/// Where a limit that is only counted loses its races, the limit beside it is charged for what passed, and for no lease.
#[test]
fn a_limit_that_is_left_out_costs_the_others_nothing() {
    let bucket = per_second(10_000_000, 10_000_000);
    let all = in_mode(Mode::Monitor, limit("all", &[], bucket));
    let policy = policy_of([limit("own", &[KeyPart::Source], bucket), all]);
    let mut program = TestProgram::new(SMALL, &policy, Clock::Ticking(SECOND / 250)).unwrap();
    program.at(NOW).unwrap();
    program.run_many(&flow(0), 100).unwrap();
    let gcra = bucket.rate.bucket(bucket.burst, 1).unwrap();
    let charged = |program: &TestProgram| {
        let word = program.whole_source(&Address::v4(A)).unwrap().unwrap().words()[0];
        word.wrapping_sub(gcra.fresh(NOW)) / gcra.units(1)
    };
    let word = program.moving_bucket().unwrap();
    send(&mut program, &word, 400, 50_000);
    let (passed, charged) = (program.passed().unwrap(), charged(&program));
    assert!((passed..=passed + Cached::MOST_LEASED).contains(&charged), "{charged} for {passed}");
}
