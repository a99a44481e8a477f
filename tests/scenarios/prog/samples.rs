//! Samples of dropped packets: which ones are shown, what of them, and how many.

use aya::maps::{Array, MapData};
use limiter_common::{
    abi::layout::map,
    algorithm::rate::SECOND,
    base::address::{Address, Mask},
    memory::sample::{Budget, Odds, SNAPPED, Sample, Sampling},
    packet::reason::Reason,
};
use limiter_tests::{
    packet::Frame,
    program::{Clock, SMALL, Sizes, TestProgram, Verdict, typed},
};
use limiter_userspace::policy::{
    Builtin, Policy,
    model::{GlobalMode, KeyPart, Mode},
    tallies,
};

use super::{
    NOW,
    define::{in_mode, limit, policy_of},
    lists::entry,
    policy, program, tokens, udp,
};

/// Room for fewer sources than a test sends from.
const TINY: Sizes = Sizes { sources: 1 << 10, ..SMALL };

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 1, 1];

/// A reader that wants to see everything for an hour.
fn all() -> Sampling {
    Sampling {
        until: NOW + 3_600 * SECOND,
        budget: Budget::per_second(10_000),
        odds: Odds::ALL,
        reasons: u64::MAX,
        slots: u64::MAX,
        tallies: Sampling::ANY_LIMIT,
        ..Sampling::default()
    }
}

fn ask(program: &TestProgram, sampling: Sampling) {
    let set = |map: &mut Array<MapData, Sampling>| map.set(0, sampling, 0).unwrap();
    program.on_pins(|pins| set(&mut typed(pins, map::SAMPLING).unwrap())).unwrap();
}

fn asked(program: &TestProgram) -> Sampling {
    let get = |map: Array<MapData, Sampling>| map.get(&0, 0).unwrap();
    program.on_pins(|pins| get(typed(pins, map::SAMPLING).unwrap())).unwrap()
}

/// The index of the tally of a limit.
fn tally(program: &TestProgram, name: &str) -> u32 {
    let in_force = program.maps().in_force().unwrap();
    let tallied = tallies(&in_force.policy, &in_force.held).unwrap();
    tallied.iter().find(|tallied| tallied.name == name).unwrap().place
}

/// Runs a frame so often, from this time on, and counts how often it is dropped.
fn drops(program: &mut TestProgram, now: u64, frame: &[u8], times: u64) -> usize {
    let mut dropped = |at| {
        program.at(now + at).unwrap();
        program.run(frame).unwrap() == Verdict::Drop
    };
    (0..times).filter(|at| dropped(*at)).count()
}

/// Reasons and tallies of the samples since the last call.
fn shown(program: &TestProgram) -> Vec<(u32, u32)> {
    program.samples().unwrap().iter().map(|sample| (sample.reason, sample.tally)).collect()
}

#[test]
fn every_dropped_packet_is_shown_and_no_other() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(2))]));
    let frame = udp(A);
    assert!(drops(&mut program, NOW, &frame, 20) > 0);
    assert_eq!(program.samples().unwrap(), [], "nobody asked");

    ask(&program, all());
    let (dropped, b) = (drops(&mut program, NOW + 100, &frame, 50), udp(B));
    assert_eq!(dropped, 50);
    let passed = 10 - drops(&mut program, NOW + 200, &b, 10);
    assert!(passed >= 2);
    let samples = program.samples().unwrap();
    assert_eq!(samples.len(), 50 + 10 - passed);
    let place = tally(&program, "source");
    for (at, sample) in samples.iter().enumerate() {
        let frame = if at < 50 { &frame } else { &b };
        let Sample { time, bytes, captured, reason, tally, slot, data, .. } = *sample;
        assert_eq!((reason, tally, slot), (Reason::Exceed.index() as u32, place, 0));
        assert_eq!((bytes, captured), (frame.len() as u32, frame.len() as u32));
        assert_eq!(data[..captured as usize], frame[..]);
        assert!((NOW + 100..NOW + 300).contains(&time), "{time}");
    }
    program.check_accounts().unwrap();
}

#[test]
fn of_a_long_frame_the_begin_is_shown_and_of_a_short_one_all() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(1))]));
    ask(&program, all());
    for payload in [18, 19, 25, 85, 86, 87, 1_400] {
        let frame = Frame::udp(A, [198, 51, 100, 1], 5_000, 53).payload(payload).build();
        while drops(&mut program, NOW, &frame, 1) == 0 {}
        let [sample] = program.samples().unwrap()[..] else { panic!("{payload}") };
        let captured = frame.len().min(SNAPPED);
        assert_eq!((sample.bytes, sample.captured), (frame.len() as u32, captured as u32));
        assert_eq!(sample.data[..captured], frame[..captured], "{payload}");
    }
}

#[test]
fn the_limit_is_told_whatever_it_is_kept_by() {
    let keys: [&[KeyPart]; 4] = [
        &[KeyPart::Source],
        &[KeyPart::Connection],
        &[KeyPart::Source, KeyPart::DestinationPort],
        &[],
    ];
    for parts in keys {
        for (mode, global, reason) in [
            (Mode::Enforce, GlobalMode::Enforce, Reason::Exceed),
            (Mode::Monitor, GlobalMode::Enforce, Reason::Conform),
            (Mode::Enforce, GlobalMode::Monitor, Reason::Monitor),
        ] {
            let wide = limit("wide", &[], tokens(1_000));
            let it = in_mode(mode, limit("it", parts, tokens(1)));
            let mut program = program(&Policy { mode: global, ..policy_of([it, wide]) });
            ask(&program, all());
            let dropped = drops(&mut program, NOW, &udp(A), 30);
            let over = program.tally("it").unwrap().over().packets;
            assert_eq!(dropped > 0, reason == Reason::Exceed, "{parts:?} {mode:?}");
            let expected = (reason.index() as u32, tally(&program, "it"));
            assert_eq!(shown(&program), vec![expected; over as usize], "{parts:?} {mode:?}");
        }
    }
}

/// Known sources, new ones, and first packets in a full table, also where another limit is about them.
#[test]
fn a_limit_that_drops_everything_is_told_for_whatever_source() {
    for with in [None, Some(limit("other", &[KeyPart::Connection], tokens(9)))] {
        for (global, reason) in
            [(GlobalMode::Enforce, Reason::Exceed), (GlobalMode::Monitor, Reason::Monitor)]
        {
            let it = in_mode(Mode::Drop, limit("it", &[KeyPart::Source], tokens(1)));
            let limits = [Some(it), with.clone()].into_iter().flatten();
            let policy = Policy { mode: global, ..policy_of(limits) };
            let mut program = TestProgram::fresh(TINY, &policy, Clock::Test).unwrap();
            ask(&program, all());
            for number in 0..2 * TINY.sources {
                let [_, b, c, d] = number.to_be_bytes();
                // The budget of the reader has two for each.
                program.at(NOW + u64::from(number) * SECOND / 5_000).unwrap();
                for _ in 0..2 {
                    program.run(&udp([10, b, c, d])).unwrap();
                }
                let told = shown(&program);
                let expected = (reason.index() as u32, tally(&program, "it"));
                assert_eq!(told, [expected; 2], "{number}");
            }
        }
    }
}

#[test]
fn a_drop_by_a_list_names_no_limit() {
    let mut policy = policy(&[(Builtin::Source, tokens(1))]);
    policy.deny.push(entry("10.0.1.0/24", None));
    for mode in [GlobalMode::Enforce, GlobalMode::Monitor] {
        let mut program = program(&Policy { mode, ..policy.clone() });
        ask(&program, all());
        // A packet over a limit comes first, and must not be blamed for the next one.
        drops(&mut program, NOW, &udp(A), 5);
        shown(&program);
        drops(&mut program, NOW, &udp(B), 3);
        let reason = if mode == GlobalMode::Monitor { Reason::Monitor } else { Reason::Deny };
        assert_eq!(shown(&program), [(reason.index() as u32, Sampling::NO_LIMIT); 3], "{mode:?}");
    }
}

#[test]
fn no_more_are_shown_than_the_budget_has() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(1))]));
    ask(&program, Sampling { budget: Budget::per_second(20), ..all() });
    let mut samples = 0;
    for step in 0..300 {
        drops(&mut program, NOW + step * SECOND / 100, &udp(A), 3);
        samples += program.samples().unwrap().len();
    }
    assert!((57..=62).contains(&samples), "{samples} in 3 s, of 20 a second and 2 at once");
}

#[test]
fn packets_are_drawn_by_the_odds() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(1))]));
    for (odds, expected) in [(0, 0..=0), (1 << 30, 150..=350), (1 << 31, 375..=625)] {
        ask(&program, Sampling { odds: Odds(odds), ..all() });
        let mut samples = 0;
        for step in 0..10 {
            drops(&mut program, NOW + step * SECOND, &udp(A), 100);
            samples += program.samples().unwrap().len();
        }
        assert!(expected.contains(&samples), "{samples} of 1,000 by {odds}");
    }
}

#[test]
fn a_reader_that_is_gone_is_shown_nothing_and_leaves_nothing() {
    let mut program = program(&policy(&[(Builtin::Source, tokens(1))]));
    ask(&program, Sampling { until: NOW + SECOND, ..all() });
    assert_eq!(drops(&mut program, NOW, &udp(A), 10), shown(&program).len());
    assert_eq!(asked(&program).until, NOW + SECOND);
    assert_eq!(drops(&mut program, NOW + SECOND, &udp(A), 10), 10);
    assert_eq!(shown(&program), []);
    assert_eq!(asked(&program).until, 0, "the next drop has nothing to ask");
}

#[test]
fn a_reader_is_shown_what_it_chose() {
    let mut policy = policy(&[(Builtin::Source, tokens(1)), (Builtin::Connection, tokens(3))]);
    policy.deny.push(entry("10.0.1.0/24", None));
    let mut program = program(&policy);
    drops(&mut program, NOW, &udp(A), 10);
    let place = tally(&program, "source");
    let (exceed, deny) = (Reason::Exceed.index() as u32, Reason::Deny.index() as u32);
    let denied = (deny, Sampling::NO_LIMIT);
    let mask = Mask::new(24, 24);
    let within = |prefix: [u8; 4]| Sampling { source: Address::v4(prefix), mask, ..all() };
    let mut tallies = [0; 2];
    tallies[place as usize / 64] = 1 << (place % 64);
    for (sampling, expected) in [
        (all(), &[(exceed, place), denied][..]),
        (Sampling { reasons: 1 << deny, ..all() }, &[denied]),
        (Sampling { slots: !1, ..all() }, &[]),
        (Sampling { tallies, ..all() }, &[(exceed, place)]),
        (Sampling { tallies: tallies.map(|word| !word), ..all() }, &[]),
        (within([10, 0, 1, 0]), &[denied]),
        (within([10, 0, 0, 0]), &[(exceed, place)]),
    ] {
        ask(&program, sampling);
        drops(&mut program, NOW + 100, &udp(A), 1);
        drops(&mut program, NOW + 100, &udp(B), 1);
        assert_eq!(shown(&program), expected, "{sampling:?}");
    }
}
