//! A million random packets, each decided by the program in the kernel and by an independent model with exact
//! buckets. Every verdict and every count has to be the same.

use std::net::IpAddr;

use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    packet::reason::Reason,
};
use limiter_tests::{
    model::LOST,
    packet::{kinds, set_source},
    reference::{control, reference},
};
use limiter_userspace::policy::{Bucket, Builtin, KeyPrefix, Policy};

use super::{
    Run, bucket,
    exact::{Model, Sample},
    mutation::Random,
    naive::{List, Naive},
    part, program, seed,
};

const RUNS: u64 = 300;
const STEPS: u32 = 3_600;
const HOUR: u64 = 3_600 * SECOND;

/// A random rate whose interval is a whole number of the units that the program counts in, so that nothing is
/// rounded.
pub(super) fn any_rate(random: &mut Random) -> Rate {
    match random.below(3) {
        0 => Rate { packets: *random.pick(&[1, 2, 3, 6, 60, 6_000]), period: 60 * SECOND },
        1 => Rate::per_second(10_u64.pow(random.below(10) as u32)),
        _ => Rate::per_second(5_u64.pow(random.below(10) as u32) << random.below(10)),
    }
}

fn any_bucket(random: &mut Random) -> Bucket {
    let bits = random.below(9);
    bucket(any_rate(random), 1 + random.below(1 << bits) as u64)
}

/// Random addresses from few networks, so that sources and prefixes contain each other.
fn any_address(random: &mut Random) -> IpAddr {
    let few = |random: &mut Random| *random.pick(&[0_u8, 1, 0xff]);
    if random.below(2) == 0 {
        IpAddr::from([10, few(random) & 1, few(random) & 1, few(random)])
    } else {
        let [a, b, c] = std::array::from_fn(|_| u16::from(few(random)));
        IpAddr::from([0x2001, 0xdb8, a & 1, b, 0, 0, 0, c])
    }
}

/// A random prefix length that does not split a source.
fn any_length(random: &mut Random, key_prefix: KeyPrefix, address: IpAddr) -> u8 {
    let most = if address.is_ipv4() { key_prefix.ipv4 } else { key_prefix.ipv6 };
    random.below(usize::from(most) + 1) as u8
}

fn any_policy(random: &mut Random) -> Naive {
    let (ipv4, ipv6) = *random.pick(&[(32, 64), (32, 128), (24, 48), (16, 56), (0, 0)]);
    let mut policy = Naive::default();
    policy.key_prefix = KeyPrefix { ipv4, ipv6 };
    policy.monitor = random.below(8) == 0;
    for list in List::ALL {
        for _ in 0..random.below(12) / 10 {
            let address = any_address(random);
            let length = any_length(random, policy.key_prefix, address);
            policy.list(list, address, length);
        }
    }
    for limit in Builtin::ALL {
        if random.below(5) > 0 {
            policy.set_default(limit, any_bucket(random));
        }
        for _ in 0..random.below(4) {
            let address = any_address(random);
            let length = any_length(random, policy.key_prefix, address);
            policy.set_override(limit, address, length, any_bucket(random));
        }
    }
    policy
}

/// Frames of every kind from some addresses.
fn any_samples(random: &mut Random, kinds: &[(&str, Vec<u8>)]) -> Vec<Sample> {
    let sources: Vec<_> = (0..6).map(|_| any_address(random)).collect();
    let samples = (0..40).map(|_| {
        let (_, kind) = random.pick(kinds);
        let mut frame = kind.clone();
        // A frame of the other family is left as it is.
        let _: bool = set_source(&mut frame, *random.pick(&sources));
        if random.below(16) == 0 {
            // Too short for most frames to contain a source.
            frame.truncate(24);
        }
        let what = reference(&frame);
        Sample { frame, what }
    });
    // The state of the budgets of control traffic is not modelled, and time goes back here.
    samples.filter(|sample| control(&sample.frame).is_none()).collect()
}

/// The time of the next packet: at once, about when the next token is there, after a rest, or earlier, as
/// after a clock that went back.
fn step(random: &mut Random, bucket: Bucket, now: u64) -> u64 {
    let Bucket { rate, burst } = bucket;
    let interval = rate.period / rate.packets;
    let refill = (interval * burst).min(HOUR);
    let mut below = |most: u64| random.below(most as usize + 1) as u64;
    match below(99) {
        0..40 => now,
        40..62 => now + below(2 * interval),
        62..76 => now + interval + below(2) - 1,
        76..84 => now + below(refill),
        84..88 => now + (refill + below(4)).saturating_sub(2),
        88..90 => now + below(HOUR),
        90..94 => now.saturating_sub(below(interval)),
        94..97 => now.saturating_sub(below(2 * LOST)),
        97 => now.saturating_sub(below(HOUR)),
        98 => now.saturating_sub(LOST + below(4) - 2),
        _ => now.saturating_sub(2 * refill + LOST + below(4) - 2),
    }
}

/// The start of a run: a random time, or a time near the wrap of a word or of half its span.
fn begin(random: &mut Random) -> u64 {
    let shift = random.below(11);
    match random.below(4) {
        0 => random.below(1_000) as u64,
        1 => (u64::MAX >> shift).min(u64::MAX >> 2) - random.below(1 << 45) as u64,
        _ => random.below(1 << 53) as u64,
    }
}

#[test]
fn every_verdict_is_the_exact_one() {
    let seed = seed();
    let kinds = kinds();
    let mut program = program(&Policy::default());
    let mut reasons = [0; Reason::ALL.len()];
    for run in 0..part(RUNS) {
        let mut random = Random::new(seed, run);
        let policy = any_policy(&mut random);
        let samples = any_samples(&mut random, &kinds);
        let pace: Vec<_> =
            Builtin::ALL.iter().filter_map(|limit| policy.bucket(*limit, None)).collect();
        let any = bucket(Rate::per_second(10), 1);
        let mut now = begin(&mut random);
        let _run = Run { seed, run, of: &(&policy, now) };
        program.forget().unwrap();
        program.apply(&policy.policy()).unwrap();
        let mut model = Model::new(policy.clone(), &program);
        for number in 0..STEPS {
            if number == STEPS / 2 && run.is_multiple_of(4) {
                // A change elsewhere that gives some profiles other numbers.
                let mut policy = policy.clone();
                let elsewhere = "203.0.113.0".parse().unwrap();
                if policy.key_prefix.ipv4 >= 24 {
                    policy.set_override(Builtin::Source, elsewhere, 24, any);
                }
                program.apply(&policy.policy()).unwrap();
            }
            let sample = random.pick(&samples);
            program.at(now).unwrap();
            // Each fragment belongs to a datagram of its own.
            program.forget_fragment(&sample.frame).unwrap();
            let verdict = program.run(&sample.frame).unwrap();
            assert_eq!(
                verdict,
                model.decide(sample, now, verdict),
                "step {number} at {now}: {:?}",
                sample.what
            );
            if number % 64 == 0 {
                model.check_counts(&program, &format!("step {number} at {now}"));
            }
            let pace = *pace.get(random.below(3)).unwrap_or(&any);
            now = step(&mut random, pace, now);
        }
        model.check(&program);
        reasons = Reason::ALL.map(|reason| model.counters.reasons[reason.index()].packets);
    }
    program.check_accounts().unwrap();
    println!("{reasons:?}");
    // If the runs stopped reaching a case, their number would prove nothing.
    assert!(reasons.iter().sum::<u64>() >= part(1_000_000));
    for reason in Reason::ALL {
        let packets = reasons[reason.index()];
        let never = [
            Reason::Contended,
            Reason::Control,
            Reason::ControlExceed,
            Reason::NonIpExceed,
            Reason::Overlap,
            Reason::Unloaded,
        ];
        let none = never.contains(&reason);
        assert!(if none { packets == 0 } else { packets > part(400) }, "{reason:?}: {packets}");
    }
}
