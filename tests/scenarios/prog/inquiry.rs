//! The inquiry predicts what the program does: random policies, state and packets. Each packet is first asked
//! about and then run, while the clock stands still.

mod any;
mod report;

use std::collections::BTreeSet;

use limiter_common::{
    algorithm::rate::SECOND,
    base::address::{Address, Mask},
    packet::reason::Reason,
};
use limiter_tests::{
    packet::kinds,
    program::{LONGEST, SHORTEST, TestProgram, Verdict, monotonic, pin_to_cpu, two_cpus},
};
use limiter_userspace::{
    error::Error,
    policy::{Policy, PolicyError, model::Allowance},
    query::{
        Inquiry,
        frame::Sighting,
        limit::{Kept, Origin},
    },
};

use self::any::{any_frame, any_policy, changed};
use super::{Run, mutation::Random, part, program, seed};

const RUNS: u64 = 100;
const STEPS: u64 = 120;

/// The time of the next packet: mostly now, sometimes after every bucket is full and every block over, and
/// sometimes earlier.
fn step(random: &mut Random, now: u64) -> u64 {
    let below = |random: &mut Random, most: u64| random.below(most as usize) as u64;
    match random.below(100) {
        0..55 => now,
        55..80 => now + below(random, SECOND / 500),
        80..92 => now + below(random, SECOND / 2),
        92..97 => now + below(random, 5 * SECOND),
        97 => now + below(random, 600 * SECOND),
        98 => now.saturating_sub(below(random, SECOND / 10)),
        _ => now.saturating_sub(below(random, 3 * SECOND)),
    }
}

/// What the program has done: packets by reason, and the tally of each limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Done {
    reasons: [u64; Reason::ALL.len()],
    limits: Vec<(String, u64, u64)>,
}

impl Done {
    fn by(program: &TestProgram) -> Self {
        let reasons = program.counters().unwrap().reasons.map(|tally| tally.packets);
        let limits = program.maps().snapshot(&[]).unwrap().limits.into_iter();
        let limits = limits
            .map(|limit| (limit.name, limit.tally.conform.packets, limit.tally.over().packets));
        Self { reasons, limits: limits.collect() }
    }

    /// The reason of the one packet since `before`, the limits that it was charged to, and those that it
    /// exceeded.
    fn since(&self, before: &Self) -> (Reason, BTreeSet<String>, BTreeSet<String>) {
        let more = |reason: &Reason| self.reasons[reason.index()] > before.reasons[reason.index()];
        let reasons: Vec<Reason> = Reason::ALL.into_iter().filter(more).collect();
        assert_eq!(reasons.len(), 1, "one packet, one reason");
        let pairs = || self.limits.iter().zip(&before.limits);
        type Tally = (String, u64, u64);
        let names = |grew: &dyn Fn(&Tally, &Tally) -> bool| {
            pairs()
                .filter(|(after, before)| grew(after, before))
                .map(|(it, _)| it.0.clone())
                .collect()
        };
        (
            reasons[0],
            names(&|after, before| after.1 > before.1),
            names(&|after, before| after.2 > before.2),
        )
    }
}

/// Applies a policy made by `any`: the first one that fits beside the previous one, which still occupies
/// columns.
fn apply(program: &mut TestProgram, mut any: impl FnMut() -> Policy) -> Policy {
    loop {
        let policy = any();
        let Err(error) = program.apply(&policy) else { return policy };
        let error = error.downcast::<Error>().unwrap();
        let taken = matches!(error.failure(), Some(PolicyError::TooManyColumns { .. }));
        assert!(taken, "{error}: {policy:?}");
    }
}

/// All state that a packet could change, to show that a question changes none.
fn state(program: &TestProgram, sources: &[Address]) -> String {
    let entries: Vec<_> = sources.iter().map(|key| program.source(key).unwrap()).collect();
    let mut buckets = program.buckets().unwrap();
    buckets.sort_by_key(|(key, _)| *key);
    format!("{entries:?} {:?} {buckets:?} {:?}", program.unreadable().unwrap(), Done::by(program))
}

#[test]
fn a_packet_is_decided_as_the_inquiry_says() {
    let seed = seed();
    let kinds = kinds();
    // What a CPU caches about a refusal is known to that CPU only, so the test stays on one.
    pin_to_cpu(two_cpus().unwrap()[0]).unwrap();
    let mut program = program(&Policy::default());
    let mut reasons = [0_u64; Reason::ALL.len()];
    let (mut charged, mut exceeded, mut dropped) = (0, 0, 0);
    for run in 0..part(RUNS) {
        let mut random = Random::new(seed, run);
        program.forget().unwrap();
        // In half of the runs the table is full, so that sources start on probation.
        if run % 2 == 1 {
            program.crowd().unwrap();
        }
        // List entries end by the clock of the machine, so virtual time starts there.
        let mut now = monotonic();
        let mut policy = apply(&mut program, || any_policy(&mut random));
        let mut frame = any_frame(&mut random, &kinds);
        let mut before = Done::by(&program);
        for number in 0..STEPS {
            if number % 20 == 19 {
                policy = apply(&mut program, || changed(&mut random, &policy));
                before = Done::by(&program);
            }
            now = step(&mut random, now);
            program.at(now).unwrap();
            // Half of the frames are sent again, as in a flood.
            if random.below(2) == 0 {
                frame = any_frame(&mut random, &kinds);
            }
            if !(SHORTEST..=LONGEST).contains(&frame.len()) {
                continue;
            }
            let case = (number, now, &policy, format!("{frame:02x?}"));
            let _run = Run { seed, run, of: &case };

            let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
            let said = inquiry.verdict(&Sighting::whole(&frame), 0, now).unwrap();
            let verdict = program.run(&frame).unwrap();
            let after = Done::by(&program);
            let (reason, conform, exceed) = after.since(&before);
            before = after;

            assert_eq!(said.reason, reason, "{said:?}");
            assert_eq!(said.reason.drops(), verdict == Verdict::Drop);
            let told: BTreeSet<_> = said.charged.iter().cloned().collect();
            assert_eq!(told, conform, "charged: {said:?}");
            let told: BTreeSet<_> = said.exceeded.iter().chain(&said.limit).cloned().collect();
            assert_eq!(told, exceed, "exceeded: {said:?}");
            reasons[reason.index()] += 1;
            charged += conform.len();
            exceeded += said.exceeded.len();
            dropped += usize::from(said.limit.is_some());
        }
    }
    // If a case stopped being reached, its agreement would prove nothing. Four reasons do not occur here: no
    // other CPU contends, the budgets of control traffic are larger than what a run uses, and few fragments
    // contradict others (`prog::fragments` covers those). The main program is there.
    let never = [Reason::Contended, Reason::ControlExceed, Reason::Overlap, Reason::Unloaded];
    for reason in Reason::ALL.into_iter().filter(|reason| !never.contains(reason)) {
        assert!(reasons[reason.index()] >= part(20), "{reason:?} in {reasons:?}");
    }
    assert_eq!(reasons[Reason::Contended.index()], 0, "nobody else is there");
    for (what, count) in [("charged", charged), ("exceeded", exceeded), ("dropped", dropped)] {
        assert!(count as u64 >= part(200), "{what} {count} times");
    }
}

#[test]
fn a_question_changes_nothing() {
    let seed = seed();
    let kinds = kinds();
    let mut program = program(&Policy::default());
    for run in 0..part(25) {
        let mut random = Random::new(seed, run);
        program.forget().unwrap();
        let policy = apply(&mut program, || any_policy(&mut random));
        let mask = Mask::new(policy.key_prefix.ipv4, policy.key_prefix.ipv6);
        let addresses = any::addresses();
        let keys: Vec<Address> =
            addresses.iter().map(|address| Address::from(*address).masked(&mask)).collect();
        let mut now = monotonic();
        for _ in 0..40 {
            now = step(&mut random, now);
            program.at(now).unwrap();
            let frame = any_frame(&mut random, &kinds);
            if (SHORTEST..=LONGEST).contains(&frame.len()) {
                program.run(&frame).unwrap();
            }
        }
        // An entry behind the policy in force is migrated by the next packet, not by a question.
        apply(&mut program, || changed(&mut random, &policy));
        let _run = Run { seed, run, of: &policy };
        let before = state(&program, &keys);
        let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
        for _ in 0..40 {
            let frame = any_frame(&mut random, &kinds);
            inquiry.verdict(&Sighting::whole(&frame), 0, now + 1_000).unwrap();
        }
        for address in addresses {
            inquiry.source(address.into(), now + 1_000).unwrap();
        }
        assert_eq!(state(&program, &keys), before);
    }
}

/// The settings in a report are those in the tables of the program.
#[test]
fn a_report_has_the_settings_that_the_program_goes_by() {
    let seed = seed();
    let program = &mut program(&Policy::default());
    let (mut compared, mut overridden) = (0, 0);
    for run in 0..part(60) {
        let mut random = Random::new(seed, run);
        let policy = apply(program, || any_policy(&mut random));
        let _run = Run { seed, run, of: &policy };
        let now = monotonic();
        let mut inquiry = Inquiry::new(program.maps(), now).unwrap();
        for address in any::addresses() {
            let report = inquiry.source(address.into(), now).unwrap();
            for limit in report.limits {
                let Kept::One(Some(fill)) = limit.kept else { continue };
                let Some(Allowance::TokenBucket { burst, .. }) = limit.allowance else { continue };
                assert_eq!(
                    (fill.most, fill.used),
                    (burst, 0),
                    "{address}: {} of {run}",
                    limit.name
                );
                compared += 1;
                overridden += u64::from(limit.origin != Origin::Default);
            }
        }
    }
    assert!(compared > part(200) && overridden > part(30), "{compared}, {overridden}");
}
