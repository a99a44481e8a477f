//! Packets that leave a limit near: at most a fifth is left of what it admits at once.

use limiter_common::{
    abi::{
        counters::TableStats,
        table::{PROBATION_SLOTS, WAYS},
    },
    algorithm::rate::{Rate, SECOND},
    base::tally::Tally,
};
use limiter_tests::{
    packet::{ACK, Frame, RST, SYN},
    program::{Clock, TestProgram, Verdict},
};
use limiter_userspace::policy::{
    Builtin,
    model::{Allowance, Count, GlobalMode, KeyPart, Limit, Match, Mode, Policy},
};

use super::{
    NOW,
    cpus::on_two_cpus,
    define::{and, in_mode, limit, policy_of},
    limit_tallies,
    modes::{MINUTE, every_limit},
    part, per_second, policy, program, syn,
    table::smallest,
    table_room::{Flood, has_entry},
    tokens, udp,
};

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [198, 51, 100, 1];

/// The packets charged to a limit, and those among them that left it near.
fn near(program: &TestProgram, name: &str) -> (u64, u64) {
    let tally = program.tally(name).unwrap();
    (tally.conform.packets, tally.near.packets)
}

/// Of `most` packets that pass at once, those are near after which at most a fifth is left.
#[test]
fn the_last_fifth_of_what_passes_at_once_is_near() {
    let mut program = program(&Policy::default());
    for most in [1, 2, 4, 5, 9, 10, 11] {
        for (number, of_it) in every_limit(most).enumerate() {
            for mode in [Mode::Enforce, Mode::Monitor] {
                let name = format!("limit-{most}-{number}-{mode:?}").to_lowercase();
                let limit = Limit { name: name.clone(), ..in_mode(mode, of_it.clone()) };
                program.apply(&policy_of([limit])).unwrap();
                let frame = udp([10, most as u8, number as u8, mode as u8]);
                for sent in 1..=most + 3 {
                    program.run(&frame).unwrap();
                    let near = sent.min(most).saturating_sub(most - most / 5 - 1);
                    let tally = program.tally(&name).unwrap();
                    let seen = (tally.conform.packets, tally.near.packets);
                    assert_eq!(seen, (sent.min(most), near), "{of_it:?} {mode:?}, {sent}");
                    let bytes = near * frame.len() as u64;
                    assert_eq!(tally.near, Tally { packets: near, bytes });
                }
            }
        }
    }
    program.check_accounts().unwrap();
}

#[test]
fn it_is_near_by_what_is_spent_when_the_packet_comes() {
    let limits = [
        limit("bucket", &[KeyPart::Source], per_second(10, 10)),
        limit("keyed", &[KeyPart::Destination], per_second(10, 10)),
    ];
    for limit in limits {
        let (name, mut program) = (limit.name.clone(), program(&policy_of([limit])));
        let frame = udp(A);
        // Milliseconds, packets, and how many of them are near: after the eighth packet, two are left.
        let steps = [(0, 7, 0), (0, 1, 1), (99, 1, 1), (200, 1, 1), (450, 1, 0), (551, 1, 0)];
        let steps =
            steps.into_iter().chain([(600, 1, 0), (600, 1, 1), (5_000, 7, 0), (5_000, 3, 3)]);
        let mut expected = (0, 0);
        for (milliseconds, packets, near_ones) in steps {
            program.at(NOW + milliseconds * 1_000_000).unwrap();
            program.run_many(&frame, packets).unwrap();
            expected = (expected.0 + u64::from(packets), expected.1 + near_ones);
            assert_eq!(near(&program, &name), expected, "{name}, {milliseconds} ms");
        }
    }
}

#[test]
fn windows_are_near_by_what_they_count() {
    let window = |allowance| limit("window", &[KeyPart::Source], allowance);
    let begin = NOW.next_multiple_of(MINUTE);
    // Packets that pass in a window and half a window later, and how many of those are near.
    for (allowance, later) in [
        (Allowance::FixedWindow { limit: 10, window: MINUTE }, (10, 3)),
        // Half of the ten packets still count.
        (Allowance::SlidingWindow { limit: 10, window: MINUTE }, (5, 3)),
        (Allowance::SlidingLog { limit: 10, window: MINUTE }, (10, 3)),
    ] {
        let mut program = program(&policy_of([window(allowance)]));
        program.at(begin).unwrap();
        program.run_many(&udp(A), 15).unwrap();
        assert_eq!(near(&program, "window"), (10, 3), "{allowance:?}");
        program.at(begin + MINUTE + MINUTE / 2).unwrap();
        program.run_many(&udp(A), 15).unwrap();
        assert_eq!(near(&program, "window"), (10 + later.0, 3 + later.1), "{allowance:?}");
    }
}

/// Only the packet with which a connection takes its slot can count as near; its later packets take nothing.
#[test]
fn a_connection_is_near_when_it_takes_its_place() {
    let allowance = Allowance::Concurrent { limit: 5, idle: 60 * SECOND };
    let mut program = program(&policy_of([limit("open", &[KeyPart::Source], allowance)]));
    let send = |program: &mut TestProgram, port, flags, expected| {
        let frame = Frame::tcp(A, B, port, 443, flags).build();
        assert_eq!(program.run(&frame).unwrap(), Verdict::Pass);
        assert_eq!(near(program, "open"), expected, "{port}");
    };
    for port in 1..=3 {
        send(&mut program, port, SYN, (u64::from(port), 0));
    }
    send(&mut program, 4, SYN, (4, 1));
    for packets in 5..9 {
        send(&mut program, packets as u16 % 4 + 1, ACK, (packets, 1));
    }
    send(&mut program, 5, SYN, (9, 2));
    send(&mut program, 5, RST, (10, 2));
    // The connection has no socket on this host, so its slot is free after a silence.
    program.at(NOW + 30 * SECOND).unwrap();
    send(&mut program, 6, ACK, (11, 3));
    send(&mut program, 6, ACK, (12, 3));
}

#[test]
fn each_limit_is_near_by_itself_and_no_refused_packet_is() {
    let web = Match { ports: vec![443..=443], ..Match::default() };
    let limits = [
        limit("source", &[KeyPart::Source], tokens(4)),
        Limit { matching: web, ..limit("web", &[KeyPart::Source], tokens(100)) },
        limit("log", &[], Allowance::SlidingLog { limit: 30, window: MINUTE }),
        limit("all", &[], tokens(10)),
        in_mode(Mode::Monitor, limit("observed", &[], tokens(2))),
    ];
    for mode in [GlobalMode::Enforce, GlobalMode::Monitor] {
        let mut program = program(&Policy { mode, ..policy_of(limits.clone()) });
        // Each of the first two limits admits four packets, the last of which leaves nothing. The third limit
        // has two left after that packet.
        for source in 1..4 {
            program.run_many(&syn([10, 0, 0, source]), 7).unwrap();
        }
        let seen = ["source", "web", "log", "all", "observed"].map(|name| near(&program, name));
        assert_eq!(seen, [(10, 2), (10, 0), (10, 0), (10, 3), (2, 1)], "{mode:?}");
        program.check_accounts().unwrap();
    }
}

#[test]
fn layers_and_candidates_are_near_by_themselves() {
    let layers = and(limit("two", &[KeyPart::Source], tokens(50)), tokens(20));
    let with = Limit { candidate: Some(tokens(8).into()), ..layers };
    let (names, mut program) =
        (["two", "two (layer 2)", "two (candidate)"], program(&policy_of([with])));
    program.run_many(&udp(A), 18).unwrap();
    assert_eq!(names.map(|name| near(&program, name)), [(18, 0), (18, 3), (8, 2)]);
}

#[test]
fn the_first_packet_of_a_source_without_an_entry_is_near_as_any() {
    let bytes = |burst| Limit {
        count: Count::Bytes,
        ..limit("bytes", &[KeyPart::Source], per_second(1_000, burst))
    };
    let frame = udp(A);
    let length = frame.len() as u64;
    for (tested, expected) in [
        (limit("one", &[KeyPart::Source], tokens(1)), 1),
        (limit("two", &[KeyPart::Source], tokens(2)), 0),
        (bytes(length * 5 / 4), 1),
        (bytes(length * 5 / 4 + 2), 0),
    ] {
        let name = tested.name.clone();
        let mut program = program(&policy_of([tested.clone()]));
        program.crowd().unwrap();
        assert_eq!(program.run(&frame).unwrap(), Verdict::Pass);
        assert!(!has_entry(&program, A));
        let tally = program.tally(&name).unwrap();
        assert_eq!(tally.near.packets, expected, "{tested:?}");
        assert_eq!(tally.near.bytes, expected * length);
        // Inserting the entry charges the first packet to it; that packet is not counted again.
        program.run(&frame).unwrap();
        let again = program.tally(&name).unwrap();
        let passed = again.conform.packets - 1;
        assert_eq!(again.near.packets, expected + passed, "{tested:?}");
        assert!(has_entry(&program, A));
    }
}

/// A packet that loses a race is decided again, and counts as near by its final charge.
#[test]
fn two_cpus_leave_the_last_fifth_near_exactly() {
    let burst = part(200_000);
    for name in [Builtin::Source, Builtin::Connection] {
        let mut program = program(&policy(&[(name, tokens(burst))]));
        let frame = syn(A);
        on_two_cpus(&mut program, |runner, _| {
            for _ in 0..burst * 3 / 4 {
                runner.run(&frame).unwrap();
            }
        });
        let tally = limit_tallies(&program)[name as usize];
        // Tokens that are left belong to packets that were dropped as contended.
        let left = burst - tally.conform.packets;
        assert_eq!(tally.near.packets, burst / 5 + 1 - left, "{tally:?}");
    }
}

#[test]
fn entries_that_change_hands_are_counted() {
    let table_stats = |program: &TestProgram| program.maps().table_stats().unwrap();
    let rate = Rate { packets: 1, period: MINUTE };
    let queue = Allowance::LeakyBucket { rate, depth: 3 };
    let mut program = program(&policy_of([limit("source", &[KeyPart::Source], queue)]));
    let mut expected = TableStats::default();
    // The table has room for both sources, so each gets one entry.
    for _ in 0..3 {
        program.run(&udp(A)).unwrap();
        program.run(&udp(B)).unwrap();
    }
    expected.inserted = 2;
    assert_eq!(table_stats(&program), expected);
    // In a full table, the second packet of a source evicts an idle entry.
    program.crowd().unwrap();
    program.run(&udp(A)).unwrap();
    expected.untracked = 1;
    assert_eq!(table_stats(&program), expected);
    program.run(&udp(A)).unwrap();
    (expected.inserted, expected.evicted_idle) = (3, 1);
    assert_eq!(table_stats(&program), expected);
    // A source with an entry keeps it.
    program.run_many(&udp(A), 10).unwrap();
    assert_eq!(table_stats(&program), expected);
}

/// In a flood from sources that each send one packet and then owe, each new source evicts an entry or takes a
/// probation slot.
#[test]
fn what_a_flood_makes_of_the_table_is_counted() {
    let sizes = smallest();
    let policy = policy(&[(Builtin::Source, tokens(5))]);
    let mut program = TestProgram::new(sizes, &policy, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    let (mut flood, sources) = (Flood::new(), 8 * sizes.sources);
    for number in 0..sources {
        assert_eq!(program.run(flood.frame(number)).unwrap(), Verdict::Pass, "{number}");
    }
    let TableStats {
        inserted: entries,
        untracked: newcomers,
        evicted_idle: idle,
        evicted_owing: owing,
    } = program.maps().table_stats().unwrap();
    assert_eq!(entries + newcomers, u64::from(sources));
    let room = sizes.sources + sizes.sources / WAYS as u32 * PROBATION_SLOTS as u32;
    assert_eq!((idle, owing), (0, u64::from(sources - room)));
    assert!(entries > u64::from(sizes.sources) && newcomers > entries, "{entries} {newcomers}");
}
