//! Several limits, charged together or not at all.

use limiter_common::algorithm::{gcra::Gcra, meter::Meter, rate::Rate};
use limiter_tests::model;

use super::{
    Random, Run, Stated,
    group::{CONNECTION, ORDER, PLACES, Policy, Words},
    seed, start, step,
};

/// Some random limits, and the bucket of one of them, which sets the times of packets.
fn any_limits(random: &mut Random) -> ([Option<Stated>; PLACES], Gcra) {
    let stated: [Option<Stated>; PLACES] = std::array::from_fn(|_| {
        let mut stated = Stated::any(random);
        stated.size = stated.size.min(256 * stated.dearest).max(1);
        (random.between(0, 3) > 0).then_some(stated)
    });
    let paces: Vec<Gcra> = stated.iter().flatten().map(Stated::gcra).collect();
    let unlimited = || Rate::per_second(10).bucket(1, 1).unwrap();
    let pace = if paces.is_empty() { unlimited() } else { random.pick(&paces) };
    (stated, pace)
}

/// A random packet: the limits that apply to it, and its cost for each.
fn any_packet(
    random: &mut Random,
    stated: &[Option<Stated>; PLACES],
) -> ([bool; PLACES], [u64; PLACES]) {
    let applies = if random.between(0, 2) == 0 {
        [true; PLACES]
    } else {
        [true, random.between(0, 1) == 0, random.between(0, 7) > 0, random.between(0, 3) > 0]
    };
    (applies, stated.map(|stated| stated.map_or(1, |stated| stated.any_cost(random))))
}

fn bits(flags: [bool; PLACES]) -> u64 {
    (0..PLACES).filter(|place| flags[*place]).fold(0, |bits, place| bits | 1 << place)
}

/// 1.2 million packets with up to four limits each, any of which may be monitored.
#[test]
fn every_verdict_of_a_plan_is_the_exact_one() {
    const RUNS: u64 = 800;
    let seed = seed();
    let (mut refused, mut exceeded) = ([0_u64; PLACES + 1], [0_u64; PLACES]);
    for run in 0..RUNS {
        let mut random = Random::of(seed, run);
        let (stated, pace) = any_limits(&mut random);
        let mut now = start(&mut random, &pace) >> 10;
        let enforced = [(); PLACES].map(|()| random.between(0, 3) > 0);
        let _run = Run { seed, run, of: &(stated, enforced, now) };
        let meters = stated.map(|stated| stated.map(|stated| Meter::bucket(stated.gcra())));
        let mut policy = Policy { enforced: bits(enforced), ..Policy::new(meters, [1; PLACES]) };
        let exact = |stated: Option<Stated>, now| stated.map(|stated| stated.pair(now).1);
        let limits = stated.map(|stated| exact(stated, now));
        let mut expected = model::Plan { limits, enforced, order: ORDER };
        let words = Words::new(&policy, now);
        for number in 0..1_500 {
            if random.between(0, 63) == 0 {
                words.exists.set(false);
            }
            let (existed, before) = (words.exists.get(), words.values());
            if !existed {
                expected.limits[CONNECTION] = exact(stated[CONNECTION], now);
            }
            let unasked = expected.clone();
            let (applies, costs) = any_packet(&mut random, &stated);
            policy.costs = costs;
            let bill = policy.decide(&words, bits(applies), now);
            let outcome = expected.admit(applies, costs, now);
            let told = format!("packet {number} at {now}: {bill:?}");
            assert_eq!(bill.contended, 0, "{told}");
            assert_eq!(bill.refused, outcome.refused.map_or(0, |place| 1 << place), "{told}");
            assert_eq!(bill.charged, bits(outcome.charged), "{told}");
            assert_eq!(bill.exceeded, bits(outcome.exceeded), "{told}");
            refused[outcome.refused.map_or(PLACES, |place| place)] += 1;
            for (count, exceeded) in exceeded.iter_mut().zip(outcome.exceeded) {
                *count += u64::from(exceeded);
            }
            if bill.charged & 1 << CONNECTION == 0 {
                assert_eq!(words.exists.get(), existed, "it made an entry: {told}");
            }
            // Only the reset of a lost word may be stored without a charge.
            let same = |place: &usize| expected.limits[*place] == unasked.limits[*place];
            for place in (0..PLACES).filter(same) {
                assert_eq!(words.values()[place], before[place], "{place} moved: {told}");
            }
            now = step(&mut random, &pace, now).min(1 << 53);
        }
    }
    assert!(refused.iter().all(|count| *count > RUNS), "{refused:?}");
    assert!(exceeded.iter().all(|count| *count > RUNS), "{exceeded:?}");
}
