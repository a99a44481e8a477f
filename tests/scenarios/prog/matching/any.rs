//! Random policies and packets: the program charges a packet to the limits that an independent matcher finds.

#[path = "../../classify/naive.rs"]
mod naive;
#[path = "../../classify/policies.rs"]
mod policies;

use std::collections::BTreeSet;

use limiter_common::policy::limit::KEYED;
use limiter_tests::{
    packet::{ACK, SYN, kinds},
    program::{LONGEST, SHORTEST, TestProgram, Verdict},
    reference::{Reference, control, reference},
};
use limiter_userspace::policy::{
    Policy,
    model::{Layer, Limit, Mode},
};

use self::{naive::Facts, policies::any_policy};
use super::super::{
    Run,
    mutation::{Random, mutate},
    part, program, seed, tokens,
};

/// The packets charged to each limit.
fn charged(program: &TestProgram) -> Vec<(String, u64)> {
    let limits = program.maps().snapshot(&[]).unwrap().limits.into_iter();
    limits.map(|limit| (limit.name, limit.tally.conform.packets)).collect()
}

/// A random policy with as many limits as a packet can have. All of them admit everything.
fn any_limits(random: &mut Random) -> Policy {
    let mut policy = any_policy(random);
    policy.limits.truncate(KEYED);
    for limit in &mut policy.limits {
        limit.layers = vec![Layer { allowance: tokens(1 << 20).into(), key: None }];
        (limit.candidate, limit.mode) = (None, Mode::Enforce);
    }
    policy
}

#[test]
fn a_packet_is_counted_for_the_limits_that_are_about_it() {
    let seed = seed();
    let kinds = kinds();
    let mut program = program(&Policy::default());
    program.name_interface(0, "eth0").unwrap();
    program.name_interface(1, "veth").unwrap();
    let mut neighbour = program.neighbour(1).unwrap();
    let (mut about, mut not) = (0, 0);
    for run in 0..part(30) {
        let mut random = Random::new(seed, run);
        let policy = any_limits(&mut random);
        let _run = Run { seed, run, of: &policy };
        program.apply(&policy).unwrap();
        let mut before = charged(&program);
        for number in 0..80 {
            let (name, mut frame) = random.pick(&kinds).clone();
            for _ in 0..random.below(3) {
                mutate(&mut random, &mut frame, &kinds);
            }
            if !(SHORTEST..=LONGEST).contains(&frame.len()) {
                continue;
            }
            let here = random.below(2) == 0;
            program.forget_fragment(&frame).unwrap();
            let verdict = if here { program.run(&frame) } else { neighbour.run(&frame) };
            let frame_of = reference(&frame);
            let deep = frame_of.reason() == "too_deep";
            assert_eq!(verdict.unwrap(), if deep { Verdict::Drop } else { Verdict::Pass });
            let after = charged(&program);
            let more = after.iter().zip(&before).filter(|(after, before)| after.1 > before.1);
            let counted: BTreeSet<_> = more.map(|(after, _)| after.0.clone()).collect();
            before = after;

            let interface = if here { "eth0" } else { "veth" };
            let facts = Facts { frame: &frame_of, bytes: frame.len() as u64, interface };
            // No limit applies to frames that are not IP, to those that are too deep, or to control traffic
            // that no limit names.
            let names = |limit: &Limit| {
                let it = &limit.matching;
                let here =
                    it.interfaces.is_empty() || it.interfaces.iter().any(|it| it == interface);
                here && it.protocols.contains(&58) && it.icmp_types.contains(&135)
            };
            // Of control traffic, these policies can name neighbour discovery alone.
            let is_free = control(&frame)
                .is_some_and(|(protocol, _)| protocol != "ndp" || !policy.limits.iter().any(names));
            let is_asked = frame_of != Reference::NonIp && !deep && !is_free;
            let fits = policy.limits.iter().filter(|limit| is_asked && facts.fits(limit, &policy));
            let expected: BTreeSet<_> = fits.map(|limit| limit.name.clone()).collect();
            assert_eq!(counted, expected, "packet {number}, made of {name}: {frame_of:?}");
            about += expected.len() as u64;
            not += (policy.limits.len() - expected.len()) as u64;
        }
    }
    // Unless limits match and do not match often, the comparison would prove nothing.
    assert!(about > part(1_500) && not > part(1_500), "{about} {not}");
    drop(neighbour);
    program.check_accounts().unwrap();
}
