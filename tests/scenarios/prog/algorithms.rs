//! Compares each algorithm with an exact model: every verdict of the program has to be that of the model, for
//! any key and any count.

pub(super) mod any;
mod connections;
mod two_cpus;

use std::collections::HashMap;

use limiter_common::{abi::counters::LimitTally, base::tally::Tally};
use limiter_tests::{
    model::{Exact as _, Model},
    program::Verdict,
};
use limiter_userspace::policy::{
    Policy,
    model::{Count, Limit},
};

use self::any::{
    Any, FIXED_WINDOW, GCRA, LEAKY_BUCKET, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, any_limit,
    exact, pace, step,
};
use super::{
    Run,
    define::{is_inline, policy_of},
    is_emulated, most,
    mutation::Random,
    program, seed,
    sent::{Part, Sent},
};

/// Runs, and steps in each run, for each algorithm.
const RUNS: u64 = 20;
const STEPS: u32 = 1_000;
/// Cost in bytes of the most expensive frame, for buckets that count bytes.
const DEAREST: u64 = 1 << 17;

/// One limit, with an exact model for each key.
struct Naive {
    limit: Limit,
    policy: Policy,
    dearest: u64,
    models: HashMap<Vec<Part>, Model>,
    tally: LimitTally,
}

impl Naive {
    fn new(limit: Limit) -> Self {
        let dearest = match &limit.count {
            Count::Bytes => DEAREST,
            Count::Weighted(costs) => {
                let by_kind = costs.by_kind.values().copied();
                u64::from(by_kind.fold(costs.default, u16::max))
            }
            _ => 1,
        };
        let policy = policy_of([limit.clone()]);
        Self { limit, policy, dearest, models: HashMap::new(), tally: LimitTally::default() }
    }

    fn decide(&mut self, sent: &Sent, now: u64) -> Verdict {
        let key = sent.key(&self.limit.key.parts, &self.policy).unwrap();
        let known = self.models.get(&key).cloned();
        let exists = known.is_some();
        let allowance = self.limit.layers[0].allowance;
        let mut model = known.unwrap_or_else(|| exact(allowance, self.dearest, now));
        let passes = model.take(now, sent.cost(&self.limit.count));
        let near = passes && model.is_near(now);
        // A packet that is refused does not create state, except in the entry of a source.
        if exists || passes || is_inline(&self.limit) {
            self.models.insert(key, model);
        }
        let tally = if passes { &mut self.tally.conform } else { &mut self.tally.exceed };
        let add = |tally: &mut Tally| {
            tally.packets += 1;
            tally.bytes += sent.frame().len() as u64;
        };
        add(tally);
        if near {
            add(&mut self.tally.near);
        }
        if passes { Verdict::Pass } else { Verdict::Drop }
    }
}

fn check(any: Any) {
    let seed = seed();
    let mut program = program(&Policy::default());
    let mut sum = LimitTally::default();
    for run in 0..most(RUNS) {
        let mut random = Random::new(seed, run);
        let limit = any_limit(&mut random, &format!("limit-{run}"), any);
        let mut naive = Naive::new(limit.clone());
        let _run = Run { seed, run, of: &limit };
        program.apply(&naive.policy).unwrap();
        let samples: Vec<Sent> =
            (0..8).map(|_| Sent { slot: 0, ..Sent::any(&mut random) }).collect();
        let bits = 20 + random.below(36);
        let mut now = random.below(1 << bits) as u64;
        for number in 0..STEPS {
            let sent = random.pick(&samples);
            program.at(now).unwrap();
            let verdict = program.run(&sent.frame()).unwrap();
            assert_eq!(verdict, naive.decide(sent, now), "step {number} at {now}: {sent:?}");
            now = step(
                &mut random,
                naive.limit.layers[0].allowance,
                sent.cost(&naive.limit.count),
                now,
            );
        }
        assert_eq!(program.tally(&naive.limit.name).unwrap(), naive.tally);
        sum.conform.packets += naive.tally.conform.packets;
        sum.exceed.packets += naive.tally.over().packets;
    }
    program.check_accounts().unwrap();
    // Unless both verdicts occur often, the comparison would prove nothing.
    let steps = most(RUNS) * u64::from(STEPS);
    let [conform, exceed] = [sum.conform, sum.exceed].map(|tally| tally.packets);
    println!("{conform} conform, {exceed} exceed");
    let least = conform.min(exceed);
    assert!(is_emulated() || least * 10 > steps, "{conform} conform, {exceed} exceed");
}

#[test]
fn a_token_bucket_decides_as_its_model_does() {
    check(TOKEN_BUCKET);
}

#[test]
fn a_leaky_bucket_decides_as_its_model_does() {
    check(LEAKY_BUCKET);
}

#[test]
fn gcra_decides_as_its_model_does() {
    check(GCRA);
}

#[test]
fn a_fixed_window_decides_as_its_model_does() {
    check(FIXED_WINDOW);
}

#[test]
fn a_sliding_window_decides_as_its_model_does() {
    check(SLIDING_WINDOW);
}

#[test]
fn a_sliding_log_decides_as_its_model_does() {
    check(SLIDING_LOG);
}
