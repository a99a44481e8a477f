//! Shows what a limit admits over time: the burst, and the rate multiplied by the time.

use std::net::IpAddr;

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_tests::{
    model::{self, Exact as _},
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::{Builtin, Policy};

use super::{Case, NOW, bucket, is_run, policy, program, syn};

const MINUTE: u64 = 60 * SECOND;
/// Packets offered to a bucket after its burst.
const PACKETS: u64 = 2_500;
/// Offered loads, in hundredths of the rate.
const LOADS: [u64; 7] = [50, 90, 101, 150, 200, 1_000, 10_000];
const BURSTS: [u64; 5] = [1, 2, 10, 1_000, 1_000_000];

fn per_minute(packets: u64) -> Rate {
    Rate { packets, period: MINUTE }
}

/// The frame of a source that no earlier case has used. It is a SYN, so it counts for every limit.
fn next_source(number: &mut u32) -> Vec<u8> {
    *number += 1;
    syn(IpAddr::from((0x0a00_0000 + *number).to_be_bytes()))
}

/// The time of packet number `packet` at this load, in nanoseconds.
fn time(rate: Rate, load: u64, packet: u64) -> u64 {
    let hundredths = u128::from(packet) * u128::from(rate.period) * 100;
    (hundredths / (u128::from(rate.packets) * u128::from(load))) as u64
}

/// The promise to a source: `burst` and the rate, or all that it offered if that is less.
struct Promise {
    rate: Rate,
    burst: u64,
}

impl Promise {
    /// Asserts that a count keeps the promise: less than one packet more, because part of a token is enough
    /// for a packet, and at most 0.1 % or one packet less.
    fn check(&self, admitted: u64, offered: u64, elapsed: u64) {
        // The largest error of a rate, BOUND / UNIT: the interval of a bucket is rounded to a fraction of a
        // nanosecond.
        const UNIT: u128 = 10_000_000;
        const BOUND: u128 = 1_230;
        let Self { rate, burst } = *self;
        // In fractions of a packet: `whole` fractions make one packet.
        let whole = u128::from(rate.period) * UNIT;
        let tokens = u128::from(elapsed) * u128::from(rate.packets);
        let count = u128::from(admitted) * whole;
        let most = u128::from(burst + 1) * whole + tokens * (UNIT + BOUND);
        assert!(count < most, "{admitted} of {offered} after {elapsed} ns is more than promised");
        let promised = u128::from(burst) * whole + tokens * UNIT;
        let promised = promised.min(u128::from(offered) * whole);
        let least = promised - promised.min((promised / 1_000).max(whole));
        assert!(count >= least, "{admitted} of {offered} after {elapsed} ns is less than promised");
    }
}

/// Asserts that a count differs from that of an exact bucket by at most 0.1 % or one packet.
fn check_exact(admitted: u64, exact: u64) {
    let off = admitted.abs_diff(exact);
    assert!(off <= (exact / 1_000).max(1), "{admitted} where {exact} is exact");
}

/// A source with a full bucket offers packets evenly. It is admitted its burst and its rate, or all that it
/// offered.
fn from_full(program: &mut TestProgram, frame: &[u8], rate: Rate, burst: u64, load: u64) {
    let [mut admitted, mut exact] = [0; 2];
    let mut model = model::Bucket::new(rate.packets.into(), rate.period.into(), burst, NOW);
    for packet in 0..PACKETS {
        let elapsed = time(rate, load, packet);
        program.at(NOW + elapsed).unwrap();
        admitted += u64::from(program.run(frame).unwrap() == Verdict::Pass);
        exact += u64::from(model.admit(NOW + elapsed));
        Promise { rate, burst }.check(admitted, packet + 1, elapsed);
        check_exact(admitted, exact);
    }
}

/// A source that has just spent its burst offers packets in clumps. It is admitted its rate, or all that it
/// offered.
fn from_empty(program: &mut TestProgram, frame: &[u8], rate: Rate, burst: u64, load: u64) {
    program.at(NOW).unwrap();
    assert_eq!(program.run_many(frame, burst as u32 + 9).unwrap(), burst, "{rate:?}");
    let clump = burst.min(10);
    let [mut admitted, mut exact] = [0; 2];
    let mut model = model::Bucket::new(rate.packets.into(), rate.period.into(), burst, NOW);
    model.lose(NOW);
    for number in 1..=PACKETS / clump {
        let elapsed = time(rate, load, number * clump);
        program.at(NOW + elapsed).unwrap();
        admitted += program.run_many(frame, clump as u32).unwrap();
        exact += (0..clump).filter(|_| model.admit(NOW + elapsed)).count() as u64;
        Promise { rate, burst: 0 }.check(admitted, number * clump, elapsed);
        check_exact(admitted, exact);
    }
}

fn hold(limit: Builtin, rates: impl IntoIterator<Item = Rate>, bursts: &[u64]) {
    let mut program = program(&Policy::default());
    let mut source = 0;
    let mut case = 0;
    for rate in rates {
        for burst in bursts {
            program.apply(&policy(&[(limit, bucket(rate, *burst))])).unwrap();
            for load in LOADS {
                case += 1;
                if !is_run(case) {
                    continue;
                }
                let _case = Case(&(limit, rate, burst, load));
                from_full(&mut program, &next_source(&mut source), rate, *burst, load);
                from_empty(&mut program, &next_source(&mut source), rate, *burst, load);
            }
        }
    }
    program.check_accounts().unwrap();
}

#[test]
fn slow_rates_of_a_source() {
    hold(Builtin::Source, [per_minute(1), per_minute(7), per_minute(50)], &BURSTS);
    hold(Builtin::Source, [1, 3, 10].map(Rate::per_second), &BURSTS);
}

#[test]
fn fast_rates_of_a_source() {
    let rates = [1_000, 9_999, 333_333, 1_000_000, 7_777_777, 10_000_000];
    hold(Builtin::Source, rates.map(Rate::per_second), &BURSTS);
}

#[test]
fn rates_of_syns_and_of_connections() {
    for limit in [Builtin::Syn, Builtin::Connection] {
        let rates = [per_minute(1), Rate::per_second(50), Rate::per_second(10_000_000)];
        hold(limit, rates, &[1, 20, 3_000]);
    }
}
