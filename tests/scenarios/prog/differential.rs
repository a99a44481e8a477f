//! A million random packets, each decided by the program in the kernel and by a model of exact
//! buckets that was written apart from it: every verdict and every count must be the same.

use std::{collections::HashMap, net::IpAddr};

use limiter_common::{
    address::Address,
    contract::{Counters, Tally},
    limit::{LIMITS, Limit},
    rate::{Rate, SECOND},
    reason::Reason,
};
use limiter_tests::{
    model::{self, LOST},
    packet::{kinds, set_source},
    program::{TestProgram, Verdict},
    reference::{Reference, reference},
};
use limiter_userspace::policy::{Bucket, KeyPrefix, Policy};

use super::{Run, bucket, mutation::Random, naive::Naive, part, program, seed};

const RUNS: u64 = 300;
const STEPS: u32 = 3_600;
const HOUR: u64 = 3_600 * SECOND;

/// A rate whose interval is a whole number of the parts of a nanosecond that the program counts in:
/// what it does is exact then.
fn any_rate(random: &mut Random) -> Rate {
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

/// Addresses of few networks, so that sources and prefixes contain each other.
fn any_address(random: &mut Random) -> IpAddr {
    let few = |random: &mut Random| *random.pick(&[0_u8, 1, 0xff]);
    if random.below(2) == 0 {
        IpAddr::from([10, few(random) & 1, few(random) & 1, few(random)])
    } else {
        let [a, b, c] = std::array::from_fn(|_| u16::from(few(random)));
        IpAddr::from([0x2001, 0xdb8, a & 1, b, 0, 0, 0, c])
    }
}

fn any_policy(random: &mut Random) -> Naive {
    let (ipv4, ipv6) = *random.pick(&[(32, 64), (32, 128), (24, 48), (16, 56), (0, 0)]);
    let mut policy = Naive::default();
    policy.key_prefix = KeyPrefix { ipv4, ipv6 };
    for limit in Limit::ALL {
        if random.below(5) > 0 {
            policy.set_default(limit, any_bucket(random));
        }
        for _ in 0..random.below(4) {
            let address = any_address(random);
            let most = if address.is_ipv4() { ipv4 } else { ipv6 };
            let length = random.below(usize::from(most) + 1) as u8;
            policy.set_override(limit, address, length, any_bucket(random));
        }
    }
    policy
}

/// A frame, and what it is by the reference.
struct Sample {
    frame: Vec<u8>,
    what: Reference,
}

/// Frames of every kind from some addresses.
fn any_samples(random: &mut Random, kinds: &[(&str, Vec<u8>)]) -> Vec<Sample> {
    let sources: Vec<_> = (0..6).map(|_| any_address(random)).collect();
    let samples = (0..40).map(|_| {
        let (_, kind) = random.pick(kinds);
        let mut frame = kind.clone();
        // One of the other family stays as it is.
        let _: bool = set_source(&mut frame, *random.pick(&sources));
        let what = reference(&frame);
        Sample { frame, what }
    });
    samples.collect()
}

type Connection = (IpAddr, IpAddr, (u16, u16), u8);

/// What the program must be doing.
struct Model {
    policy: Naive,
    /// The buckets of sources; `None` for those that cannot be read.
    sources: HashMap<Option<IpAddr>, Source>,
    /// The buckets of connections that were admitted.
    connections: HashMap<Option<Connection>, model::Bucket>,
    counters: Counters,
}

struct Source {
    buckets: [Option<model::Bucket>; LIMITS],
    passed: Tally,
    dropped: Tally,
}

fn add(tally: &mut Tally, bytes: u64) {
    tally.packets += 1;
    tally.bytes += bytes;
}

fn full(bucket: Bucket, now: u64) -> model::Bucket {
    let Bucket { rate, burst } = bucket;
    model::Bucket::new(rate.packets.into(), rate.period.into(), burst, now)
}

impl Model {
    fn new(policy: Naive, counters: Counters) -> Self {
        Self { policy, sources: HashMap::new(), connections: HashMap::new(), counters }
    }

    fn decide(&mut self, sample: &Sample, now: u64) -> Verdict {
        let bytes = sample.frame.len() as u64;
        let name = sample.what.reason();
        let conform = Reason::ALL.into_iter().find(|reason| reason.name() == name).unwrap();
        let (source, connection, may_open) = match sample.what {
            Reference::NonIp => {
                add(&mut self.counters.reasons[conform.index()], bytes);
                return Verdict::Pass;
            }
            Reference::Unreadable => (None, None, true),
            Reference::Ip { source, destination, ports, protocol, may_open, .. } => {
                let connection = (source, destination, ports, protocol);
                (Some(self.policy.key(source)), Some(connection), may_open)
            }
        };
        let stated = Limit::ALL.map(|limit| self.policy.bucket(limit, source));
        let source = self.sources.entry(source).or_insert_with(|| Source {
            buckets: stated.map(|bucket| bucket.map(|bucket| full(bucket, now))),
            passed: Tally::default(),
            dropped: Tally::default(),
        });
        let mut plan = model::Plan { buckets: source.buckets.clone() };
        let known = self.connections.get(&connection).cloned();
        let exists = known.is_some();
        let place = Limit::Connection.index();
        plan.buckets[place] =
            stated[place].map(|bucket| known.unwrap_or_else(|| full(bucket, now)));

        let applies = Limit::ALL.map(|limit| limit != Limit::Syn || may_open);
        let decision = plan.admit(applies, now);
        // One that was never admitted is not remembered.
        if let Some(bucket) = &plan.buckets[place]
            && (exists || decision.is_ok())
        {
            self.connections.insert(connection, bucket.clone());
        }
        source.buckets = plan.buckets;
        let (reason, verdict) = match decision {
            Ok(()) => {
                add(&mut source.passed, bytes);
                for place in (0..LIMITS).filter(|place| applies[*place] && stated[*place].is_some())
                {
                    add(&mut self.counters.limits[place].conform, bytes);
                }
                (conform, Verdict::Pass)
            }
            Err(place) => {
                add(&mut source.dropped, bytes);
                add(&mut self.counters.limits[place].exceed, bytes);
                (Reason::exceed(Limit::ALL[place]), Verdict::Drop)
            }
        };
        add(&mut self.counters.reasons[reason.index()], bytes);
        verdict
    }

    /// Compares every count.
    fn check(&self, program: &TestProgram) {
        assert_eq!(program.counters().unwrap(), self.counters);
        for (key, source) in &self.sources {
            let entry = match key {
                Some(key) => program.source(&Address::from(*key)).unwrap().unwrap(),
                None => program.unreadable().unwrap(),
            };
            assert_eq!((entry.passed, entry.dropped), (source.passed, source.dropped), "{key:?}");
        }
        let sources = self.sources.keys().flatten().count();
        assert_eq!(program.maps().talkers(0).unwrap().1.tracked, sources as u64);
        let connections = self.connections.len();
        assert_eq!(program.maps().connections().unwrap().tracked, connections as u64);
    }
}

/// The time of the next packet: at once, about when the next token is there, after a rest, or by a
/// clock that went back.
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

/// Where a run begins: anywhere, or where a word or half of it comes to its end.
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
            Limit::ALL.iter().filter_map(|limit| policy.bucket(*limit, None)).collect();
        let any = bucket(Rate::per_second(10), 1);
        let mut now = begin(&mut random);
        let _run = Run { seed, run, of: &(&policy, now) };
        program.forget().unwrap();
        program.apply(&policy.policy()).unwrap();
        let mut model = Model::new(policy.clone(), program.counters().unwrap());
        for number in 0..STEPS {
            if number == STEPS / 2 && run.is_multiple_of(4) {
                // A change elsewhere, which gives some plans other numbers.
                let mut policy = policy.clone();
                let elsewhere = "203.0.113.0".parse().unwrap();
                if policy.key_prefix.ipv4 >= 24 {
                    policy.set_override(Limit::Source, elsewhere, 24, any);
                }
                program.apply(&policy.policy()).unwrap();
            }
            let sample = random.pick(&samples);
            program.at(now).unwrap();
            let verdict = program.run(&sample.frame).unwrap();
            assert_eq!(
                verdict,
                model.decide(sample, now),
                "step {number} at {now}: {:?}",
                sample.what
            );
            if number % 64 == 0 {
                assert_eq!(program.counters().unwrap(), model.counters, "step {number} at {now}");
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
        assert!(
            if reason == Reason::Contended { packets == 0 } else { packets > part(5_000) },
            "{reason:?}"
        );
    }
}
