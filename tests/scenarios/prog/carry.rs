//! What sources and keys owe, when their table is exchanged for another one.

use std::{collections::BTreeMap, fs, net::IpAddr};

use aya::maps::Array;
use limiter_common::{
    abi::{layout::map, state::Bucket, table::Source},
    algorithm::rate::{Rate, SECOND},
    base::address::Address,
    packet::reason::Reason,
    policy::limit::BucketKey,
};
use limiter_tests::{
    packet::{Frame, set_source},
    program::{Clock, SMALL, Sizes, TestProgram, Verdict, Wide, typed},
};
use limiter_userspace::{
    datapath::bpffs::Pins,
    policy::{
        Builtin, Policy,
        model::{Allowance, KeyPart, Limit},
    },
};

use super::{
    NOW,
    define::{limit, policy_of, within},
    modes::MINUTE,
    penalties::{PENALTY, reason_at},
    policy,
    table::smallest,
    tokens, udp,
};

const A: [u8; 4] = [192, 0, 2, 1];
const OTHER: [u8; 4] = [192, 0, 2, 2];

/// A program of which nothing is kept for other tests.
fn fresh(sizes: Sizes, policy: &Policy) -> TestProgram {
    let mut program = TestProgram::fresh(sizes, policy, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    program
}

/// What is known of a source, but for what tells where its entry is and when it was asked to make room.
fn known(program: &TestProgram, source: impl Into<IpAddr>) -> Source {
    let source = program.source(&Address::from(source.into())).unwrap().unwrap();
    Source { binding: 0, known: 0, blocked: 0, ..source.settled() }
}

fn words(program: &TestProgram) -> BTreeMap<String, u64> {
    let buckets = program.buckets().unwrap().into_iter();
    buckets.map(|(key, bucket)| (format!("{key:?}"), bucket.word)).collect()
}

fn wide(program: &TestProgram) -> Vec<(BucketKey, Wide)> {
    let mut states = program.wide_states().unwrap();
    states.sort_by_key(|(key, _)| format!("{key:?}"));
    states
}

/// A limit by each place that state can be in, none of which admits more than five while the time stands still.
fn every_place() -> Vec<Limit> {
    let most = 5;
    vec![
        limit("inline", &[KeyPart::Source], tokens(most)),
        limit("bucket", &[KeyPart::Destination], tokens(most)),
        limit("prefix", &[within(24, 48)], tokens(100)),
        limit("fixed", &[KeyPart::Source], Allowance::FixedWindow { limit: most, window: MINUTE }),
        limit("all", &[], Allowance::SlidingWindow { limit: 100, window: MINUTE }),
        limit("log", &[KeyPart::Source], Allowance::SlidingLog { limit: most, window: MINUTE }),
    ]
}

#[test]
fn debts_are_carried_over_to_the_nanosecond() {
    for (sizes, new_seed) in [
        (Sizes { sources: 1 << 12, ..SMALL }, false),
        (Sizes { sources: 1 << 15, buckets: 1 << 12, ..SMALL }, true),
        (Sizes { wide_states: 1 << 12, overrides: 128, ..SMALL }, false),
        (SMALL, true),
    ] {
        let mut program = fresh(SMALL, &policy_of(every_place()));
        let [a, other] = [udp(A), udp(OTHER)];
        assert_eq!(program.run_many(&a, 3).unwrap(), 3);
        assert_eq!(program.run_many(&other, 1).unwrap(), 1);
        let before = ([A, OTHER].map(|it| known(&program, it)), words(&program), wide(&program));
        assert!(before.1.len() >= 5 && before.2.len() == 2, "{before:?}");
        let seeds = |program: &TestProgram| {
            let stored = program.maps().in_force().unwrap();
            (stored.held.seed(), stored.held.table_seed())
        };
        let seeded = seeds(&program);
        let exchanged = program.exchange(&sizes, new_seed).unwrap();
        assert_eq!((exchanged.sources, exchanged.lost, exchanged.anew.len()), (2, 0, 0));
        // That of connections stays: open ones are known by it.
        assert_eq!(seeds(&program).0, seeded.0);
        assert_eq!(seeds(&program).1 != seeded.1, new_seed);
        assert!(exchanged.buckets >= 5, "{exchanged:?}");
        let after = ([A, OTHER].map(|it| known(&program, it)), words(&program), wide(&program));
        assert_eq!(after, before, "{sizes:?}");
        // Of the five of the destination, one is left.
        assert_eq!(program.run_many(&a, 9).unwrap(), 1);
        assert_eq!(program.run_many(&other, 9).unwrap(), 0);
        program.check_accounts().unwrap();
        program.close().unwrap();
    }
}

/// Buckets of other keys than `all` are made when a policy needs them, and are not taken away from one.
#[test]
fn what_all_owe_together_is_carried_to_where_other_keys_have_buckets() {
    let all = limit("all", &[], tokens(20));
    let source = limit("source", &[KeyPart::Source], tokens(9));
    let keyed = limit("keyed", &[KeyPart::Source, KeyPart::Destination], tokens(3));
    let without = Sizes { buckets_made: false, ..SMALL };
    let mut program = fresh(without, &policy_of([all.clone(), source.clone()]));
    assert_eq!(program.run_many(&udp(A), 12).unwrap(), 9);
    let before = (known(&program, A), words(&program));
    assert_eq!(before.1.len(), 1);
    let more = policy_of([all, source, keyed]);
    program.apply(&more).unwrap_err();
    let exchanged = program.resize(&SMALL).unwrap();
    assert_eq!((exchanged.sources, exchanged.buckets, exchanged.lost), (1, 1, 0));
    assert_eq!((known(&program, A), words(&program)), before);
    program.apply(&more).unwrap();
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 0);
    // Of the twenty of all, eleven are left.
    let others = || (1..9).map(|number| udp([192, 0, 2, 100 + number]));
    let passed = others().map(|frame| program.run_many(&frame, 9).unwrap());
    assert_eq!(passed.collect::<Vec<_>>(), [3, 3, 3, 2, 0, 0, 0, 0]);
    program.resize(&without).unwrap_err();
    assert_eq!(program.run_many(&udp([192, 0, 2, 101]), 9).unwrap(), 0);
    program.check_accounts().unwrap();
    program.close().unwrap();
}

/// A later policy may need them again.
#[test]
fn logs_that_the_policy_does_not_need_are_carried_over_too() {
    let log = Allowance::SlidingLog { limit: 5, window: MINUTE };
    let with_log = policy_of([limit("log", &[KeyPart::Source], log)]);
    for wide_states in [SMALL.wide_states, 1 << 12] {
        let mut program = fresh(SMALL, &with_log);
        assert_eq!(program.run_many(&udp(A), 3).unwrap(), 3);
        let before = wide(&program);
        assert_eq!(before.len(), 1);
        program.apply(&policy(&[(Builtin::Source, tokens(5))])).unwrap();
        let exchanged = program.resize(&Sizes { wide_states, sources: 1 << 12, ..SMALL }).unwrap();
        assert_eq!(exchanged.anew, Vec::<&str>::new());
        assert_eq!(wide(&program), before, "{wide_states}");
        program.close().unwrap();
    }
}

/// Another CPU admits an event between the moments at which the control word and the slots are copied.
#[test]
fn a_log_that_is_charged_while_it_is_copied_goes_on() {
    let log = Allowance::SlidingLog { limit: 5, window: MINUTE };
    let mut program = fresh(SMALL, &policy_of([limit("log", &[KeyPart::Source], log)]));
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5);
    let change = |pins: &Pins| {
        let mut buckets: Array<_, Bucket> = typed(pins, map::BUCKETS).unwrap();
        let is_used = |number: &u32| buckets.get(number, 0).unwrap().key.limit_id != 0;
        let number = (0..buckets.len()).find(is_used).unwrap();
        let bucket = buckets.get(&number, 0).unwrap();
        // The number of the next event is in the 8 highest bits.
        let word = bucket.word - (1 << 56);
        buckets.set(number, Bucket { word, ..bucket }, 0).unwrap();
    };
    program.on_pins(change).unwrap();
    let exchanged = program.resize(&Sizes { wide_states: 1 << 12, ..SMALL }).unwrap();
    assert_eq!((exchanged.buckets, exchanged.lost), (1, 0));
    for turn in 1..60 {
        program.at(NOW + turn * 2 * MINUTE).unwrap();
        assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5, "{turn}");
    }
    program.check_accounts().unwrap();
}

/// A policy that needs logs may come after the programs were loaded that know the old tables. They do not know its map then.
#[test]
fn a_log_whose_slots_are_not_known_begins_anew() {
    let log = Allowance::SlidingLog { limit: 5, window: MINUTE };
    let mut program = fresh(SMALL, &policy_of([limit("log", &[KeyPart::Source], log)]));
    let sources = || (1..99).map(|number| udp([192, 0, 2, number]));
    for frame in sources() {
        assert_eq!(program.run_many(&frame, 9).unwrap(), 5);
    }
    program.on_pins(|pins| fs::remove_file(pins.map(map::WIDE_STATE)).unwrap()).unwrap();
    let exchanged = program.resize(&Sizes { wide_states: 1 << 12, ..SMALL }).unwrap();
    assert_eq!(exchanged.buckets, 0);
    for frame in sources() {
        assert_eq!(program.run_many(&frame, 9).unwrap(), 5);
    }
}

#[test]
fn who_owes_nothing_keeps_its_totals() {
    let mut program = fresh(SMALL, &policy(&[(Builtin::Source, tokens(5))]));
    assert_eq!(program.run_many(&udp(A), 9).unwrap(), 5);
    let rested = NOW + 10_000 * 24 * 60 * MINUTE;
    program.at(rested).unwrap();
    let before = known(&program, A);
    let exchanged = program.resize(&Sizes { sources: 1 << 12, ..SMALL }).unwrap();
    assert_eq!((exchanged.sources, exchanged.lost), (0, 0));
    assert_eq!(known(&program, A), before);
    assert_eq!((before.passed.packets, before.dropped.packets), (5, 4));
}

#[test]
fn a_block_ends_when_it_would_have_ended() {
    let allowance =
        Allowance::LeakyBucket { rate: Rate { packets: 1, period: 24 * 60 * MINUTE }, depth: 1 };
    let strict = Limit { penalty: Some(PENALTY), ..limit("it", &[KeyPart::Source], allowance) };
    let mut program = fresh(SMALL, &policy_of([strict]));
    let frame = udp(A);
    for second in 0..=11 {
        reason_at(&mut program, NOW + second * SECOND, &frame);
    }
    let blocked = (0..).find(|second| {
        reason_at(&mut program, NOW + (11 + second) * SECOND, &frame) == Reason::Penalty
    });
    let now = NOW + (11 + blocked.unwrap()) * SECOND;
    let ends = |program: &TestProgram| {
        program.source(&Address::from(IpAddr::from(A))).unwrap().unwrap().blocked
    };
    let before = ends(&program);
    program.resize(&Sizes { buckets: 1 << 13, ..SMALL }).unwrap();
    assert_eq!(reason_at(&mut program, now + SECOND, &frame), Reason::Penalty);
    // What comes below the time tells whose entry it is.
    assert_eq!(ends(&program) >> 8, before >> 8);
    assert_eq!(reason_at(&mut program, now + 2 * PENALTY.max, &frame), Reason::Exceed);
}

#[test]
fn what_finds_no_room_is_counted() {
    let large = Sizes { sources: 1 << 14, overrides: 8, ..smallest() };
    let few = smallest();
    let mut program = fresh(large, &policy(&[(Builtin::Source, tokens(5))]));
    let mut frame = udp(A);
    let sources = 3 * few.sources;
    let address = |number: u32| IpAddr::from((0x0a00_0000 + number).to_be_bytes());
    for number in 0..sources {
        assert!(set_source(&mut frame, address(number)));
        assert_eq!(program.run_many(&frame, 9).unwrap(), 5);
    }
    let exchanged = program.resize(&few).unwrap();
    assert_eq!(exchanged.sources + exchanged.lost, sources, "{exchanged:?}");
    // All but what sets by chance have too few sources for.
    assert!(exchanged.sources >= few.sources / 10 * 9, "{exchanged:?}");
    let kept = (0..sources)
        .filter(|number| program.source(&Address::from(address(*number))).unwrap().is_some());
    let kept: Vec<u32> = kept.collect();
    assert_eq!(kept.len() as u32, exchanged.sources);
    for number in kept {
        assert!(set_source(&mut frame, address(number)));
        assert_eq!(program.run(&frame).unwrap(), Verdict::Drop, "source {number}");
    }
}

#[test]
fn buckets_without_room_are_counted() {
    // So large that no set has more keys than ways, whatever the seed.
    let large = Sizes { buckets: 1 << 15, overrides: 8, ..smallest() };
    let few = smallest();
    let by_destination = limit("it", &[KeyPart::Destination], tokens(5));
    let mut program = fresh(large, &policy_of([by_destination]));
    let to = |number: u32| Frame::udp(A, (0xc612_0000 + number).to_be_bytes(), 40_000, 53).build();
    let keys = 3 * few.buckets;
    for number in 0..keys {
        assert_eq!(program.run_many(&to(number), 9).unwrap(), 5, "{number}");
    }
    let exchanged = program.resize(&few).unwrap();
    assert_eq!(exchanged.buckets + exchanged.lost, keys, "{exchanged:?}");
    assert_eq!(program.buckets().unwrap().len() as u32, exchanged.buckets);
}
