//! Token buckets, leaky buckets and GCRA, compared with exact models verdict by verdict.

use limiter_common::algorithm::{
    policer::{Decision, Policer as _},
    rate::Rate,
};
use limiter_tests::model::{Bucket, Exact as _, Flow};

use super::{Kind, Random, Run, Stated, Subject, any_rate, seed, start, step};

/// Counts of the cases that were reached. If runs stopped reaching one, their number would prove nothing.
#[derive(Debug, Default)]
struct Reached {
    exact: u64,
    rounded: u64,
    admitted: u64,
    refused: u64,
    lost: u64,
    /// Packets admitted although only part of their cost was left.
    owed: u64,
    /// Rates whose interval has digits after the point.
    digits: u64,
}

impl Reached {
    fn assert_at_least(&self, least: u64, kind: Kind) {
        let Self { exact, rounded, admitted, refused, lost, owed, digits } = *self;
        let all = [exact, rounded, admitted, refused, lost, digits];
        assert!(all.iter().all(|count| *count >= least), "{kind:?}: {self:?}");
        assert_eq!(owed > least, kind != Kind::LeakyBucket, "{kind:?}: {self:?}");
    }
}

/// One run of `steps` packets.
fn run(
    stated: Stated,
    random: &mut Random,
    steps: u64,
    seed: u64,
    run: u64,
    reached: &mut Reached,
) {
    let gcra = stated.gcra();
    let mut now = start(random, &gcra);
    let (mut subject, mut model, exact) = stated.pair(now);
    let _run = Run { seed, run, of: &(stated, now) };
    *(if exact { &mut reached.exact } else { &mut reached.rounded }) += 1;
    reached.digits += u64::from(gcra.fraction > 0);
    for number in 0..steps {
        let cost = stated.any_cost(random);
        let decision = gcra.decide(subject.word, now, cost);
        reached.lost += u64::from(matches!(decision, Decision::Lost(_)));
        let room = gcra.depth.saturating_sub(gcra.spent(subject.word, now));
        let verdict = subject.admit(now, cost);
        assert_eq!(verdict, model.take(now, cost), "packet {number} of {cost} at {now}");
        *(if verdict { &mut reached.admitted } else { &mut reached.refused }) += 1;
        reached.owed += u64::from(verdict && room < gcra.units(cost));
        now = step(random, &gcra, now);
    }
}

/// 3.3 million packets, more than a million for each algorithm.
#[test]
fn every_verdict_is_the_exact_one() {
    const RUNS: u64 = 2_200;
    let seed = seed();
    let mut reached = Kind::ALL.map(|_| Reached::default());
    for number in 0..RUNS {
        let mut random = Random::of(seed, number);
        let stated = Stated::any(&mut random);
        let of_kind = &mut reached[stated.kind as usize];
        run(stated, &mut random, 1_500, seed, number, of_kind);
    }
    for (kind, reached) in Kind::ALL.into_iter().zip(&reached) {
        reached.assert_at_least(RUNS / 30, kind);
    }
}

/// Packets of cost 1, at every rate.
#[test]
fn every_verdict_about_packets_is_the_exact_one() {
    let seed = seed();
    let mut reached = Reached::default();
    for number in 0..600 {
        let mut random = Random::of(seed, number);
        let (rate, size) = (any_rate(&mut random), random.magnitude(1, 1 << 20));
        let stated = Stated { kind: Kind::TokenBucket, rate, size, dearest: 1 };
        run(stated, &mut random, 1_500, seed, number, &mut reached);
    }
    assert_eq!(reached.digits, 0, "nothing is rounded down");
}

/// A packet as large as the depth fits into an empty queue; a larger one never does.
#[test]
fn a_queue_has_room_for_its_depth() {
    let seed = seed();
    for number in 0..2_000 {
        let mut random = Random::of(seed, number);
        let depth = random.magnitude(1, 1 << 16);
        let rate = super::any_rate_of_bytes(&mut random);
        let stated = Stated { kind: Kind::LeakyBucket, rate, size: depth, dearest: 1 << 17 };
        let _run = Run { seed, run: number, of: &stated };
        let gcra = stated.gcra();
        let now = start(&mut random, &gcra);
        assert!(!Subject::new(gcra, now).admit(now, depth + 1), "more than its depth");
        let mut subject = Subject::new(gcra, now);
        let first = random.between(0, depth);
        // Two pieces fill the queue like one.
        assert!(first == 0 || subject.admit(now, first), "the first piece");
        assert!(first == depth || subject.admit(now, depth - first), "the second piece");
        assert!(!subject.admit(now, 1), "full");
    }
}

/// GCRA with a tolerance of burst - 1 increments admits as many packets at one time as a token bucket with
/// that burst. After that it waits for a whole increment, while the bucket admits with part of a token.
#[test]
fn a_tolerance_is_a_burst() {
    let seed = seed();
    for number in 0..300 {
        let mut random = Random::of(seed, number);
        let (packets, burst) =
            (random.pick(&[1, 2, 4, 5, 8, 1_000, 15_625]), random.between(1, 99));
        let rate = Rate::per_second(packets);
        let period = rate.period / rate.packets;
        let tolerance = (burst - 1) * period;
        let gcra = rate.gcra(tolerance, 1).unwrap();
        let now = start(&mut random, &gcra);
        let _run = Run { seed, run: number, of: &(rate, burst, now) };
        let mut subject = Subject::new(gcra, now);
        let mut bucket = Bucket::of(Flow::exact(packets.into(), rate.period.into()), burst, 1, now);
        assert!((0..burst).all(|_| subject.admit(now, 1)), "less than the burst");
        assert!((0..burst).all(|_| bucket.admit(now)));
        assert!(!subject.admit(now, 1) && !bucket.admit(now), "more than the burst");
        assert!(bucket.admit(now + 1));
        assert!(!subject.admit(now + period - 1, 1) && subject.admit(now + period, 1));
    }
}
