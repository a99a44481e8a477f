//! Compares the buckets of the decision core with independent exact models: every verdict, for every kind of
//! rate, burst, cost and clock, and the number of packets that a limit promises.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod group;
mod plan;
mod promise;
mod race;
mod verdict;
mod word;

use limiter_common::algorithm::{
    gcra::Gcra,
    policer::{Decision, Policer as _},
    rate::{Rate, SECOND},
};
use limiter_tests::{
    model::{Bucket, Cells, Flow, LOST, Model, Queue},
    random::{self, Run},
};

/// The seed of random runs, unless `LIMITER_TEST_SEED` is set.
const SEED: u64 = 0x6275_636b_6574_7331;

const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A stream of random numbers (xorshift64*). Each run has its own, so that it can be repeated alone.
struct Random(u64);

impl Random {
    fn of(seed: u64, run: u64) -> Self {
        let mut random = Self(seed ^ (run + 1).wrapping_mul(0xd134_2543_de82_ef95) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `least` to `most`, both included.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + ((u128::from(self.next()) * (u128::from(most - least) + 1)) >> 64) as u64
    }

    /// A number from `least` (at least 1) to `most`; each power of two is equally likely.
    fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let top = self.between(u64::from(least.ilog2()), u64::from(most.ilog2()));
        self.between(least.max(1 << top), most.min((2 << top) - 1))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64 - 1) as usize]
    }
}

fn seed() -> u64 {
    random::seed(SEED).unwrap()
}

/// The tested bucket with its word.
struct Subject {
    gcra: Gcra,
    word: u64,
}

impl Subject {
    fn new(gcra: Gcra, now: u64) -> Self {
        Self { gcra, word: gcra.fresh(now) }
    }

    fn admit(&mut self, now: u64, cost: u64) -> bool {
        match self.gcra.decide(self.word, now, cost) {
            Decision::Conform(next) => {
                self.word = next;
                true
            }
            Decision::Lost(empty) => {
                self.word = empty;
                false
            }
            Decision::Exceed => false,
        }
    }
}

/// One of the three algorithms that share an arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TokenBucket,
    LeakyBucket,
    Gcra,
}

impl Kind {
    const ALL: [Self; 3] = [Self::TokenBucket, Self::LeakyBucket, Self::Gcra];
}

/// A limit as a policy states it: a rate, and a burst, a depth or a tolerance.
#[derive(Clone, Copy, Debug)]
struct Stated {
    kind: Kind,
    rate: Rate,
    size: u64,
    /// The cost of the most expensive packet.
    dearest: u64,
}

impl Stated {
    /// A random limit of packets or bytes.
    fn any(random: &mut Random) -> Self {
        let kind = random.pick(&Kind::ALL);
        let dearest = match random.between(0, 2) {
            0 => 1,
            1 => random.between(2, 100),
            _ => random.pick(&[1_514, 9_014, 1 << 17]),
        };
        let rate = if dearest > 100 { any_rate_of_bytes(random) } else { any_rate(random) };
        let size = match kind {
            Kind::Gcra if random.between(0, 7) == 0 => 0,
            Kind::Gcra => random.magnitude(1, HOUR),
            _ => random.magnitude(1, if dearest > 100 { 1 << 30 } else { 1 << 20 }),
        };
        Self { kind, rate, size, dearest }
    }

    fn gcra(&self) -> Gcra {
        let Self { kind, rate, size, dearest } = *self;
        match kind {
            Kind::TokenBucket => rate.bucket(size, dearest),
            Kind::LeakyBucket => rate.queue(size, dearest),
            Kind::Gcra => rate.gcra(size, dearest),
        }
        .unwrap()
    }

    /// The tested limit and the exact one that has to agree at every packet, and whether the rate is exact.
    /// If the interval is not a whole number of units, the exact model has the rate of the rounded interval.
    fn pair(&self, now: u64) -> (Subject, Model, bool) {
        let gcra = self.gcra();
        let digits = gcra.shift + gcra.fraction;
        let [packets, period] = [self.rate.packets, self.rate.period].map(i128::from);
        let exact = (period << digits).rem_euclid(packets) == 0;
        let (packets, period) =
            if exact { (packets, period << digits) } else { (1, gcra.interval.into()) };
        let flow = Flow {
            per_nanosecond: packets << digits,
            per_cost: period,
            // A packet takes a whole number of units.
            grain: packets << gcra.fraction,
        };
        (Subject::new(gcra, now), self.model(flow, now), exact)
    }

    fn model(&self, flow: Flow, now: u64) -> Model {
        let Self { kind, size, dearest, .. } = *self;
        match kind {
            Kind::TokenBucket => Model::Bucket(Bucket::of(flow, size, dearest, now)),
            Kind::LeakyBucket => Model::Queue(Queue::of(flow, size, dearest, now)),
            Kind::Gcra => Model::Cells(Cells::of(flow, size, dearest, now)),
        }
    }

    /// A random cost; common costs are more likely.
    fn any_cost(&self, random: &mut Random) -> u64 {
        match random.between(0, 3) {
            0 => random.between(1, self.dearest),
            1 => self.dearest,
            2 => 1,
            _ => random.between(60, 1_514).min(self.dearest),
        }
    }
}

/// The time in which an empty bucket refills, in nanoseconds, rounded up.
fn refill(gcra: &Gcra) -> u64 {
    (gcra.depth >> gcra.shift) + 1
}

/// The time between two of the most expensive packets at the rate, in nanoseconds, rounded up.
fn interval(gcra: &Gcra) -> u64 {
    (gcra.dearest >> gcra.shift) + 1
}

/// A random rate from 1/min to 1 G/s: a common one, any, or one with an exact interval.
fn any_rate(random: &mut Random) -> Rate {
    match random.between(0, 3) {
        0 => Rate { packets: random.pick(&[1, 2, 3, 7, 50, 1_000, 999_983]), period: MINUTE },
        1 => Rate::per_second(random.magnitude(1, 1_000_000_000)),
        2 => Rate::per_second(10_u64.pow(random.between(0, 9) as u32)),
        _ => Rate::per_second(5_u64.pow(random.between(0, 9) as u32) << random.between(0, 9)),
    }
}

/// A random rate of bytes, from 1 kB/s to 1 Tbit/s.
fn any_rate_of_bytes(random: &mut Random) -> Rate {
    match random.between(0, 2) {
        0 => Rate::per_second(random.magnitude(1_000, Rate::MAX_PER_SECOND)),
        1 => Rate::per_second(125 * 10_u64.pow(random.between(1, 9) as u32)),
        _ => Rate::per_second(5_u64.pow(random.between(5, 15) as u32)),
    }
}

/// A random start: ordinary, or near a time where a sum or shift overflows. The longest step of [`step`]
/// stays within a `u64` from any of them.
fn start(random: &mut Random, gcra: &Gcra) -> u64 {
    let wrap = u64::MAX >> gcra.shift;
    match random.between(0, 5) {
        0 => random.between(0, 3),
        1 => wrap / 2 - random.magnitude(1, HOUR),
        2 if gcra.shift > 0 => wrap - random.magnitude(1, HOUR),
        3 => wrap / 2 - refill(gcra).min(wrap / 2),
        _ => random.magnitude(1, 1 << 60),
    }
}

/// The time of the next packet: at once, about when the next token is there, in bursts, after days, or
/// earlier, as after a clock that went back; also about as far as the tolerance of a full or an empty bucket.
fn step(random: &mut Random, gcra: &Gcra, now: u64) -> u64 {
    let (interval, refill) = (interval(gcra), refill(gcra));
    let lost = |random: &mut Random| refill.max(interval) + random.between(LOST - 3, LOST + 2);
    let forward = match random.between(0, 99) {
        0..25 => 0,
        25..30 => random.between(1, 2),
        30..55 => random.between(0, interval * 2),
        55..75 => (interval - 1).saturating_add_signed(random.between(0, 2) as i64 - 1),
        75..83 => random.between(0, refill.min(DAY)),
        83..87 => random.between(refill.saturating_sub(2), refill.saturating_add(2)),
        87..90 => random.magnitude(1, 30 * DAY),
        90..95 => return now.saturating_sub(random.magnitude(1, HOUR)),
        95..98 => return now.saturating_sub(random.between(0, interval)),
        98 => return now.saturating_sub(refill + lost(random)),
        _ => return now.saturating_sub(lost(random)),
    };
    now.saturating_add(forward)
}
