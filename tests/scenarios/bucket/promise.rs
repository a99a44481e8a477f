//! The number of packets that a limit promises, at any load.

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_tests::model::{Bucket, Exact as _, Flow, Model};

use super::{
    Kind, MINUTE, Random, Run, Stated, Subject, any_rate, any_rate_of_bytes, seed, start, step,
};

/// The denominator of [`bound`].
const UNIT: i128 = 10_000_000;

/// The largest error of the rate for packets of a cost, in parts of [`UNIT`]: that of the interval, as
/// [`Rate::bucket`] promises, and a packet that takes 2^-10 ns less than it should.
fn bound(rate: Rate, cost: u64) -> i128 {
    let fast = rate.packets / 250_000_000 > rate.period / SECOND;
    match (fast, cost) {
        (false, _) => 1_230,
        (true, 1) => 5_000,
        (true, _) => {
            let [packets, period, cost] = [rate.packets, rate.period, cost].map(i128::from);
            1_230 + UNIT * packets / (period * cost * 1_024) + 1
        }
    }
}

/// However packets come, a rate admits at least what the exact rate just below it does, and at most what that
/// just above it does. These differ by the error of the interval.
#[test]
fn any_rate_is_between_its_neighbours() {
    let seed = seed();
    for run in 0..800 {
        let mut random = Random::of(seed, run);
        let bytes = run % 2 == 1;
        let rate = if bytes { any_rate_of_bytes(&mut random) } else { any_rate(&mut random) };
        let cost = if bytes { random.between(60, 1_514) } else { 1 };
        let kind = random.pick(&[Kind::TokenBucket, Kind::Gcra]);
        let size = random.magnitude(1, 1 << if bytes { 30 } else { 20 });
        let stated = Stated { kind, rate, size, dearest: cost };
        let gcra = stated.gcra();
        let mut now = random.magnitude(1, 1 << 53);
        let _run = Run { seed, run, of: &(stated, now) };
        let mut subject = Subject::new(gcra, now);
        let neighbour = |error: i128| {
            let packets = i128::from(rate.packets) * (UNIT + error);
            let mut model = stated.model(Flow::exact(packets, i128::from(rate.period) * UNIT), now);
            // For bytes, the rounding also admits a little more at once.
            if let Model::Bucket(bucket) = &mut model
                && bytes
                && error > 0
            {
                let more = size + (i128::from(size) * error / UNIT) as u64 + 1;
                let flow = Flow::exact(packets, i128::from(rate.period) * UNIT);
                *bucket = Bucket::of(flow, more, cost, now);
            }
            model
        };
        let error = bound(rate, cost);
        let [mut slow, mut fast] = [neighbour(-error), neighbour(error)];
        let [mut slower, mut admitted, mut faster] = [0_u64; 3];
        for _ in 0..2_500 {
            admitted += u64::from(subject.admit(now, cost));
            slower += u64::from(slow.take(now, cost));
            faster += u64::from(fast.take(now, cost));
            assert!(slower <= admitted && admitted <= faster, "{slower} {admitted} {faster}");
            now = step(&mut random, &gcra, now).max(now);
        }
    }
}

/// Packets of a cost, offered at hundredths of the rate.
#[derive(Clone, Copy, Debug)]
struct Load {
    cost: u64,
    hundredths: u64,
    packets: u64,
}

/// Offers packets evenly, or each late by up to two distances, and checks the count against the promise after
/// every packet.
fn hold_to_promise(rate: Rate, burst: u64, load: Load, random: &mut Random) {
    let Load { cost, hundredths, packets } = load;
    let begin = random.magnitude(1, 1 << 53);
    let mut subject = Subject::new(rate.bucket(burst, cost).unwrap(), begin);
    let flow = Flow::exact(rate.packets.into(), rate.period.into());
    let mut model = Bucket::of(flow, burst, cost, begin);
    let [mut admitted, mut exact] = [0_u64; 2];
    let distance = |packet: u64| {
        let time = u128::from(packet * cost) * u128::from(rate.period) * 100;
        (time / (u128::from(rate.packets) * u128::from(hundredths))) as u64
    };
    let late = distance(random.between(0, 1));
    // In fractions of a packet: `whole` fractions make one packet.
    let whole = i128::from(rate.period) * UNIT * i128::from(cost);
    let bucket = i128::from(rate.period) * UNIT * i128::from(burst);
    let error = bound(rate, cost);
    // The burst is exact for packets of cost 1.
    let more = if cost == 1 { 0 } else { (bucket + whole) / UNIT * error };
    let mut latest = 0;
    for packet in 0..packets {
        let elapsed = distance(packet) + random.between(0, late);
        admitted += u64::from(subject.admit(begin + elapsed, cost));
        exact += u64::from(model.take(begin + elapsed, cost));
        latest = latest.max(elapsed);

        let count = i128::from(admitted) * whole;
        let tokens = i128::from(latest) * i128::from(rate.packets);
        let most = bucket + whole + more + tokens * (UNIT + error);
        assert!(count < most, "{admitted} at {elapsed} ns is more than the promise");
        // A full bucket gains nothing, so uneven packets may get less than the rate.
        if late == 0 {
            let promised = bucket + tokens * UNIT;
            let promised = promised.min(i128::from(packet + 1) * whole);
            let least = promised - (promised / 1_000).max(whole);
            assert!(count >= least, "{admitted} at {elapsed} ns is less than the promise");
        }
        // With so few tokens, uneven packets may leave the bucket full, and a nanosecond decides about a
        // packet.
        if late == 0 || burst >= 10 * cost {
            let off = admitted.abs_diff(exact);
            assert!(off <= (exact / 1_000).max(1), "{admitted} of {exact} at {elapsed} ns");
        }
    }
}

/// `burst + rate * t` at any load: less than one packet more, and at most 0.1 % or one packet less.
#[test]
fn the_promise_is_kept_at_any_load() {
    let seed = seed();
    let per_minute = [1, 7, 50].map(|packets| Rate { packets, period: MINUTE });
    let per_second = [1, 3, 10, 1_000, 9_999, 10_000, 333_333, 1_000_000, 7_777_777, 10_000_000];
    // A nanosecond, the resolution of the clock, is a large part of their intervals.
    let fast = [123_456_789, 250_000_000, 700_000_000, 999_999_999, 1_000_000_000];
    let per_second = per_second.into_iter().chain(fast).map(Rate::per_second);
    let rates = per_minute.into_iter().chain(per_second);
    for (run, rate) in (0..).zip(rates) {
        for hundredths in [50, 90, 99, 100, 101, 110, 150, 199, 200, 250, 1_000, 10_000] {
            for burst in [1, 2, 3, 10, 1_000, 1_000_000] {
                let load = Load { cost: 1, hundredths, packets: 20_000 };
                let _run = Run { seed, run, of: &(rate, burst, load) };
                hold_to_promise(rate, burst, load, &mut Random::of(seed, run));
            }
        }
    }
    let load = Load { cost: 1, hundredths: 200, packets: 2_200_000 };
    hold_to_promise(Rate::per_second(10_000_000), 1_000_000, load, &mut Random::of(seed, 0));
}

/// The same for bytes, from 8 kbit/s to 1 Tbit/s: with the largest frames, and the smallest whose rounding
/// stays within 0.1 %.
#[test]
fn the_promise_is_kept_of_bytes() {
    let seed = seed();
    let rates =
        [1_000, 125_000, 1_234_567, 125_000_000, 299_999_999, 1_250_000_000, 125_000_000_000];
    for (run, rate) in (0..).zip(rates.map(Rate::per_second)) {
        for cost in [60, 590, 1_514, 9_014] {
            if rate.packets > 100_000_000_000 && cost < 1_514 {
                continue;
            }
            for hundredths in [50, 99, 100, 101, 150, 200, 1_000] {
                for burst in [20_000, 1_000_000, 100_000_000] {
                    let load = Load { cost, hundredths, packets: 6_000 };
                    let _run = Run { seed, run, of: &(rate, burst, load) };
                    hold_to_promise(rate, burst, load, &mut Random::of(seed, run));
                }
            }
        }
    }
}

/// At one time, a full bucket admits exactly its burst.
#[test]
fn a_full_bucket_gives_exactly_its_burst_at_once() {
    let seed = seed();
    for run in 0..300 {
        let mut random = Random::of(seed, run);
        let (rate, burst) = (any_rate(&mut random), random.magnitude(1, 1 << 17));
        let gcra = rate.bucket(burst, 1).unwrap();
        let now = start(&mut random, &gcra);
        let _run = Run { seed, run, of: &(rate, burst, now) };
        let mut subject = Subject::new(gcra, now);
        assert!((0..burst).all(|_| subject.admit(now, 1)), "less than the burst");
        assert!((0..9).all(|_| !subject.admit(now, 1)), "more than the burst");
    }
}
