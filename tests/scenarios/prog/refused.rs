//! Refusals from the CPU cache, without reading the entry of the source: verdicts and counts stay the same.

use std::collections::{BTreeSet, HashMap};

use limiter_common::{
    algorithm::rate::SECOND,
    base::{address::Address, tally::Tally},
    memory::cache::Cached,
    packet::reason::Reason,
};
use limiter_tests::program::{TestProgram, Verdict, pin_to_cpu, two_cpus};
use limiter_userspace::policy::{
    Bucket, Builtin,
    model::{KeyPart, Limit, Mode, Penalty, Unproven},
};

use super::{
    NOW, counted,
    define::{in_mode, limit, policy_of},
    per_second, policy, program, syn, tallies, tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];

/// An address whose source has the same cache slot as `A`.
fn rival(program: &TestProgram) -> [u8; 4] {
    let slot = |address| program.maps().place(&Address::v4(address)).unwrap().slot;
    let own = slot(A);
    let addresses = (0..=u8::MAX).flat_map(|c| (1..=u8::MAX).map(move |d| [10, 9, c, d]));
    addresses.into_iter().find(|address| slot(*address) == own).unwrap()
}

/// The dropped packets of `address`, and how many of them are not yet in its entry.
fn dropped(program: &TestProgram, address: [u8; 4]) -> (u64, u64) {
    let key = Address::v4(address);
    let outstanding = program.maps().outstanding().unwrap();
    let outstanding = outstanding.get(&key).map_or(0, |it| it.dropped.packets);
    (program.source(&key).unwrap().unwrap().dropped.packets, outstanding)
}

#[test]
fn what_is_cached_of_each_source_is_what_is_cached_of_all() {
    let mut program = here(&[(Builtin::Source, tokens(5))]);
    program.at(NOW).unwrap();
    // They have slots in all parts of the cache.
    let sources: Vec<_> = (0..=u8::MAX).map(|last| [10, 7, 0, last]).collect();
    for source in &sources {
        program.run_many(&udp(*source), 20).unwrap();
    }
    let all = program.maps().outstanding().unwrap();
    let of_each = sources.iter().map(|source| {
        let key = Address::v4(*source);
        (key, program.maps().outstanding_of(&key).unwrap())
    });
    let of_each: HashMap<_, _> =
        of_each.filter(|(_, found)| *found != Default::default()).collect();
    assert_eq!(of_each, all);
    let places = all.keys().map(|key| program.maps().place(key).unwrap().slot / Cached::SPREAD);
    let parts = places.collect::<BTreeSet<_>>().len();
    assert_eq!(parts, (Cached::SLOTS / u32::from(Cached::SPREAD)) as usize, "{}", all.len());
}

/// A program on one CPU, because each CPU caches refusals of its own.
fn here(limits: &[(Builtin, Bucket)]) -> TestProgram {
    pin_to_cpu(two_cpus().unwrap()[0]).unwrap();
    program(&policy(limits))
}

/// Takes all tokens of a bucket of 5, and one packet for part of a token. Returns the time.
fn exhaust(program: &mut TestProgram, frame: &[u8]) -> u64 {
    program.at(NOW).unwrap();
    assert_eq!(program.run_many(frame, 5).unwrap(), 5);
    program.at(NOW + 1).unwrap();
    assert_eq!(program.run(frame).unwrap(), Verdict::Pass);
    NOW + 1
}

#[test]
fn a_refusal_is_remembered_for_a_moment_and_every_drop_is_counted() {
    let mut program = here(&[(Builtin::Source, tokens(5))]);
    let now = exhaust(&mut program, &udp(A));
    assert_eq!(program.run_many(&udp(A), 100).unwrap(), 0);
    assert_eq!(dropped(&program, A), (100, 99 - Cached::UNTOLD), "the entry is told now and then");
    let bytes = udp(A).len() as u64;
    let total = program.source(&Address::v4(A)).unwrap().unwrap().dropped;
    assert_eq!(total, Tally { packets: 100, bytes: 100 * bytes });

    program.at(now + Cached::LONGEST - 1).unwrap();
    program.run(&udp(A)).unwrap();
    assert_eq!(dropped(&program, A), (101, 100 - Cached::UNTOLD));
    program.at(now + Cached::LONGEST).unwrap();
    program.run(&udp(A)).unwrap();
    assert_eq!(dropped(&program, A), (102, 0), "the entry is looked for and told");
    program.run(&udp(A)).unwrap();
    assert_eq!(dropped(&program, A), (103, 1));
    assert_eq!(program.maps().talkers(1).unwrap().0[0].dropped.packets, 103);
    program.check_accounts().unwrap();
}

#[test]
fn it_ends_when_the_bucket_admits() {
    // A token is refilled every 50 us; part of one is enough.
    let mut program = here(&[(Builtin::Source, per_second(20_000, 1))]);
    assert_eq!(program.run_many(&udp(A), 10).unwrap(), 1);
    let times = [(1, 1), (50_000, 0), (50_001, 1), (100_000, 0), (100_001, 1)];
    for (after, passed) in times {
        program.at(NOW + after).unwrap();
        assert_eq!(program.run_many(&udp(A), 10).unwrap(), passed, "{after} ns");
    }
}

#[test]
fn sources_in_one_place_are_refused_and_counted_apart() {
    let mut program = here(&[(Builtin::Source, tokens(5))]);
    let rival = rival(&program);
    for address in [A, rival] {
        exhaust(&mut program, &udp(address));
    }
    // A slot in use stays with its source; once it is idle, the other source takes it.
    for (after, has_it) in [(0, A), (1, A), (2, A), (1_000, A), (1_002, rival)] {
        program.at(NOW + 2 + (after << 20)).unwrap();
        for address in [has_it, if has_it == A { rival } else { A }] {
            assert_eq!(program.run_many(&udp(address), 20).unwrap(), 0);
        }
        let remembered = [A, rival].map(|address| dropped(&program, address).1 > 0);
        assert_eq!(remembered, [has_it == A, has_it == rival], "{after}");
    }
    assert_eq!([A, rival].map(|address| dropped(&program, address).0), [100, 100]);
    assert_eq!(counted(&program, Reason::Exceed), 200);
    assert_eq!(tallies(&program), [(0, 0), (12, 200), (0, 0)]);
    program.check_accounts().unwrap();
}

/// Two sources that share a slot of the CPU cache are refused beside a limit by destinations. Neither limit is charged, and each
/// packet is counted once.
#[test]
fn who_is_refused_beside_a_wider_limit_is_charged_to_neither() {
    let limits = [
        limit("own", &[KeyPart::Source], tokens(5)),
        limit("destination", &[KeyPart::Destination], tokens(1_000_000)),
    ];
    let mut program = program(&policy_of(limits));
    pin_to_cpu(two_cpus().unwrap()[0]).unwrap();
    let rival = rival(&program);
    for address in [A, rival] {
        exhaust(&mut program, &udp(address));
    }
    let state = |program: &TestProgram| {
        let words: Vec<u64> = program.buckets().unwrap().iter().map(|(_, it)| it.word).collect();
        (
            words,
            [A, rival].map(|it| program.whole_source(&Address::v4(it)).unwrap().unwrap().words()),
        )
    };
    let before = state(&program);
    for after in [0, 1, 1_000, 1_002] {
        program.at(NOW + 2 + (after << 20)).unwrap();
        for address in [A, rival, A, rival] {
            assert_eq!(program.run_many(&udp(address), 20).unwrap(), 0);
        }
    }
    assert_eq!(state(&program), before);
    let tally = |name: &str| {
        let tally = program.tally(name).unwrap();
        (tally.conform.packets, tally.exceed.packets)
    };
    assert_eq!((tally("own"), tally("destination")), ((12, 4 * 80), (12, 0)));
    assert_eq!(counted(&program, Reason::Exceed), 4 * 80);
    program.check_accounts().unwrap();
}

#[test]
fn a_packet_over_a_narrower_limit_too_is_counted_under_that() {
    let mut program = here(&[(Builtin::Syn, tokens(2)), (Builtin::Source, tokens(5))]);
    assert_eq!(program.run_many(&syn(A), 2).unwrap(), 2);
    program.at(NOW + 1).unwrap();
    // One more packet each, for part of a token.
    assert_eq!(program.run_many(&syn(A), 2).unwrap(), 1);
    assert_eq!(program.run_many(&udp(A), 10).unwrap(), 3);
    assert_eq!(dropped(&program, A), (8, 6), "that SYNs are refused says nothing of UDP");
    assert_eq!(program.run_many(&syn(A), 4).unwrap(), 0);
    assert_eq!(dropped(&program, A), (12, 10), "the limit of SYNs is the narrowest");
    assert_eq!(tallies(&program), [(3, 5), (6, 7), (0, 0)]);

    program.at(NOW + 1 + Cached::MOMENT).unwrap();
    assert_eq!(program.run_many(&udp(A), 10).unwrap(), 0);
    assert_eq!(dropped(&program, A), (22, 20), "UDP is refused by the source limit alone");
    assert_eq!(program.run_many(&syn(A), 4).unwrap(), 0);
    assert_eq!(dropped(&program, A), (26, 19), "SYNs are over the narrower one, and told");
    assert_eq!(tallies(&program), [(3, 9), (6, 17), (0, 0)]);
    assert_eq!(counted(&program, Reason::Exceed), 9 + 17);
    program.check_accounts().unwrap();
}

/// Such a refusal is not remembered: the packets are refused by the entry, or, where a narrower limit that monitors has
/// something to say, by the full decision. Both count alike, and charge nothing.
#[test]
fn what_a_wider_limit_refuses_is_charged_to_no_narrower_one() {
    pin_to_cpu(two_cpus().unwrap()[0]).unwrap();
    for (watched, is_over) in [(1_000, false), (3, true)] {
        let source = [KeyPart::Source];
        let mut program = program(&policy_of([
            in_mode(Mode::Monitor, limit("watched", &source, tokens(watched))),
            limit("narrow", &source, tokens(50)),
            limit("wide", &source, tokens(5)),
        ]));
        exhaust(&mut program, &udp(A));
        let words =
            |program: &TestProgram| program.whole_source(&Address::v4(A)).unwrap().unwrap().words();
        let before = words(&program);
        for after in 0..3 {
            program.at(NOW + 2 + (after << 22)).unwrap();
            assert_eq!(program.run_many(&udp(A), 100).unwrap(), 0);
        }
        assert_eq!(words(&program), before, "{watched}");
        assert_eq!(dropped(&program, A).0, 300);
        let of = |name: &str| {
            let tally = program.tally(name).unwrap();
            [tally.conform, tally.exceed, tally.monitored].map(|it| it.packets)
        };
        // Of 6 packets, the bucket of 3 was over for 2; of the refused ones, each is over it too.
        let of_watched = if is_over { [4, 0, 302] } else { [6, 0, 0] };
        assert_eq!([of("watched"), of("narrow"), of("wide")], [of_watched, [6, 0, 0], [6, 300, 0]]);
        program.check_accounts().unwrap();
    }
}

#[test]
fn a_change_of_policy_ends_it() {
    let mut program = here(&[(Builtin::Source, tokens(5))]);
    assert_eq!(program.run_many(&udp(A), 20).unwrap(), 5);
    assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Drop);
    program.apply(&policy(&[])).unwrap();
    assert_eq!(program.run(&udp(A)).unwrap(), Verdict::Pass);
    assert_eq!(dropped(&program, A).0, 16);
}

#[test]
fn frames_without_a_source_are_counted_in_the_end_too() {
    let mut program = here(&[(Builtin::Source, tokens(5))]);
    // An IP version that does not exist.
    let mut frame = udp(A);
    frame[14] = 0x55;
    let now = exhaust(&mut program, &frame);
    assert_eq!(program.run_many(&frame, 25).unwrap(), 0);
    assert_eq!(program.unreadable().unwrap().dropped.packets, 25);
    program.at(now + Cached::LONGEST).unwrap();
    program.run(&frame).unwrap();
    assert_eq!(program.unreadable().unwrap().dropped.packets, 26);
    program.check_accounts().unwrap();
}

/// With a penalty, refusals are cached only for a moment, because each of them counts.
#[test]
fn it_is_only_for_a_moment_where_there_is_a_penalty() {
    let penalty = Penalty { unproven: Unproven::Block, ..Penalty::new(SECOND, SECOND) };
    let strict = |penalty| Limit { penalty, ..limit("strict", &[KeyPart::Source], tokens(5)) };
    let mut program = here(&[]);
    for (penalty, longest) in [(None, Cached::LONGEST), (Some(penalty), Cached::MOMENT)] {
        program.forget().unwrap();
        program.apply(&policy_of([strict(penalty)])).unwrap();
        let now = exhaust(&mut program, &udp(A));
        assert_eq!(program.run_many(&udp(A), 10).unwrap(), 0);
        program.at(now + longest - 1).unwrap();
        program.run(&udp(A)).unwrap();
        assert_eq!(dropped(&program, A), (11, 10), "{longest} ns");
        program.at(now + longest).unwrap();
        program.run(&udp(A)).unwrap();
        assert_eq!(dropped(&program, A), (12, 0), "{longest} ns");
    }
}

/// A packet after the clock went far back renews the bucket.
#[test]
fn it_ends_when_the_clock_goes_back() {
    let mut program = here(&[(Builtin::Source, per_second(1_000, 5))]);
    let begin = NOW + 10 * SECOND;
    program.at(begin).unwrap();
    assert_eq!(program.run_many(&udp(A), 20).unwrap(), 5);
    // Within the tolerance between CPUs, the bucket keeps its debt.
    let back = begin - 9 * SECOND / 10;
    program.at(back).unwrap();
    assert_eq!(program.run_many(&udp(A), 20).unwrap(), 0);
    // Farther back, the debt is impossible: the bucket is empty and starts to refill.
    program.at(back - SECOND / 2).unwrap();
    assert_eq!(program.run_many(&udp(A), 2).unwrap(), 0);
    program.at(back + 1).unwrap();
    assert_eq!(program.run_many(&udp(A), 20).unwrap(), 5);
    program.check_accounts().unwrap();
}
