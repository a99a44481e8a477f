//! The table of wide states when it is full: which log, or list of connections, is kept, and what happens to keys without one.

use limiter_common::{
    abi::counters::TableStats, algorithm::rate::SECOND, base::address::Address,
    policy::limit::BucketKey,
};
use limiter_tests::{
    packet::{ACK, FIN, Frame, SYN, set_source},
    program::{Clock, Sizes, TestProgram, Verdict},
};
use limiter_userspace::policy::model::{Allowance, Count, KeyPart, Limit, Override, OverrideWhom};

use super::{
    NOW,
    cpus::on_two_cpus,
    define::{limit, policy_of},
    modes::MINUTE,
    part,
    table::smallest,
};

const A: [u8; 4] = [192, 0, 2, 1];

/// The first packet of a connection to the destination with this number.
fn to(number: u32, port: u16) -> Vec<u8> {
    Frame::tcp(A, (0xc612_0000 + number).to_be_bytes(), port, 443, SYN).build()
}

/// What a limit by destination admits: so many packets, or connections.
const ALL: [fn(u64) -> Allowance; 2] = [
    |limit| Allowance::SlidingLog { limit, window: 60 * MINUTE },
    |limit| Allowance::Concurrent { limit, idle: 60 * MINUTE },
];

fn by_destination(allowance: Allowance) -> Limit {
    let count = match allowance {
        Allowance::Concurrent { .. } => Count::Connections,
        _ => Count::default(),
    };
    Limit { count, ..limit("kept", &[KeyPart::Destination], allowance) }
}

/// A program with the smallest table of wide states, and its number of entries.
fn full(allowance: Allowance) -> (TestProgram, u32) {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let policy = policy_of([by_destination(allowance)]);
    let mut program = TestProgram::new(sizes, &policy, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    (program, sizes.wide_states)
}

/// How many connections to a destination pass of those from these ports, a packet each.
fn passed(program: &mut TestProgram, number: u32, ports: std::ops::Range<u16>) -> u32 {
    let passes = |port| program.run(&to(number, port)).unwrap() == Verdict::Pass;
    ports.map(passes).map(u32::from).sum()
}

fn table_stats(program: &TestProgram) -> TableStats {
    program.maps().bucket_table_stats().unwrap()
}

/// A flood with other keys takes nothing from a key that owes by its log, or by its open connections.
#[test]
fn a_key_that_owes_is_kept_through_any_flood() {
    for allowance in ALL.map(|of| of(5)) {
        let (mut program, states) = full(allowance);
        assert_eq!(passed(&mut program, 0, 1..10), 5, "{allowance:?}");
        for number in 1..=part(16) as u32 * states {
            assert_eq!(program.run(&to(number, 1)).unwrap(), Verdict::Pass, "{number}");
        }
        assert_eq!(passed(&mut program, 0, 10..20), 0, "{allowance:?}");
        let TableStats { inserted: entries, evicted_owing: owing, .. } = table_stats(&program);
        // Each key of the flood owes for one packet, so it may be evicted for the next ones.
        assert!(owing > 0 && entries > u64::from(states), "{entries} entries, {owing} owed");
        program.check_accounts().unwrap();
    }
}

/// The same where the policy, or any list, has changed since the key was admitted last: it is refused by the new window, and is
/// kept as long as that.
#[test]
fn a_key_that_is_refused_owes_by_the_window_in_force() {
    let log = |window| Allowance::SlidingLog { limit: 5, window };
    let (mut program, states) = full(log(MINUTE));
    assert_eq!(passed(&mut program, 0, 1..10), 5);
    program.apply(&policy_of([by_destination(log(60 * MINUTE))])).unwrap();
    // The refusal is the only packet of the key under the new policy.
    assert_eq!(passed(&mut program, 0, 10..11), 0);
    program.at(NOW + 10 * MINUTE).unwrap();
    for number in 1..=part(16) as u32 * states {
        program.run(&to(number, 1)).unwrap();
    }
    assert_eq!(passed(&mut program, 0, 20..30), 0);
}

/// A source with an override is kept by that, also when it sent nothing since the policy changed.
#[test]
fn a_key_with_an_override_owes_by_that() {
    let log = |window| Allowance::SlidingLog { limit: 5, window };
    let whom = OverrideWhom::Prefix("192.0.2.1/32".parse().unwrap());
    let mut kept = limit("kept", &[KeyPart::Source], log(MINUTE));
    kept.overrides = vec![Override { whom, layers: Some(vec![log(60 * MINUTE)]) }];
    let sizes = Sizes { overrides: 8, sources: 1 << 14, ..smallest() };
    let policy = policy_of([kept]);
    let mut program = TestProgram::new(sizes, &policy, Clock::Test).unwrap();
    program.at(NOW).unwrap();
    assert_eq!(passed(&mut program, 0, 1..10), 5);
    program.apply(&policy).unwrap();
    program.at(NOW + 10 * MINUTE).unwrap();
    for number in 1..=32 * sizes.wide_states {
        let mut frame = to(0, 1);
        assert!(set_source(&mut frame, (0x0a00_0000 + number).to_be_bytes().into()));
        program.run(&frame).unwrap();
    }
    assert_eq!(passed(&mut program, 0, 20..30), 0);
}

/// Connections that are closing have their places as long as sockets may be there.
#[test]
fn a_key_with_closing_connections_is_kept_through_a_flood() {
    let (mut program, states) = full(ALL[1](5));
    assert_eq!(passed(&mut program, 0, 1..10), 5);
    for port in 1..6 {
        let end = Frame::tcp(A, 0xc612_0000_u32.to_be_bytes(), port, 443, FIN | ACK);
        program.run(&end.build()).unwrap();
    }
    program.at(NOW + MINUTE).unwrap();
    for number in 1..=32 * states {
        program.run(&to(number, 1)).unwrap();
    }
    let keys = program.wide_states().unwrap();
    let of_it = |(key, _): &(BucketKey, _)| key.destination == Address::v4([198, 18, 0, 0]).words;
    assert!(keys.iter().any(of_it), "it was forgotten");
}

/// When all entries owe for more than one packet, keys without an entry share one log, or one list, which has 16 times the
/// places of one key.
#[test]
fn keys_that_find_no_room_share_a_state_until_there_is() {
    for allowance in ALL.map(|of| of(3)) {
        let (mut program, states) = full(allowance);
        let all: u32 = (0..4 * states).map(|number| passed(&mut program, number, 1..4)).sum();
        let full = table_stats(&program);
        assert!(full.untracked > 0 && full.inserted <= u64::from(states), "{full:?}");
        assert_eq!(u64::from(all), 3 * (full.inserted + 16), "{allowance:?}");
        let shared = |(key, _): &(BucketKey, _)| key.is_shared();
        let found = program.wide_states().unwrap();
        assert_eq!(found.iter().filter(|it| shared(it)).count(), 1);
        assert_eq!(found.len() as u64, full.inserted + 1);
        let more: u32 =
            (0..200).map(|number| passed(&mut program, 9 * states + number, 1..4)).sum();
        assert_eq!(more, 0, "what they share is used up");
        assert!(table_stats(&program).untracked > full.untracked);
        // When the first keys owe nothing any more, new keys get entries of their own.
        program.at(NOW + 80 * MINUTE).unwrap();
        for number in 0..200 {
            assert_eq!(passed(&mut program, 20 * states + number, 1..9), 3, "{number}");
        }
        program.check_accounts().unwrap();
    }
}

/// Connections that are closed leave the list that keys share as they leave a list of one key.
#[test]
fn a_closed_connection_leaves_the_list_that_keys_share() {
    let (mut program, states) = full(ALL[1](2));
    for number in 0..4 * states {
        passed(&mut program, number, 1..3);
    }
    let untracked = table_stats(&program).untracked;
    assert!(untracked > 0);
    assert_eq!(passed(&mut program, 9 * states, 1..3), 0, "it is full");
    // What has no place takes none when it ends.
    for number in 0..4 * states {
        for port in 1..3 {
            let to = (0xc612_0000_u32 + number).to_be_bytes();
            let end = Frame::tcp(A, to, port, 443, FIN | ACK);
            program.run(&end.build()).unwrap();
        }
    }
    program.at(NOW + MINUTE).unwrap();
    let more: u32 = (0..100).map(|number| passed(&mut program, 10 * states + number, 1..3)).sum();
    assert_eq!(more, 32, "16 times the places of one key");
    program.check_accounts().unwrap();
}

/// A log of as many events as it has places shares one that has no more.
#[test]
fn what_keys_share_has_no_more_places_than_a_state() {
    for allowance in ALL.map(|of| of(100)) {
        let (mut program, states) = full(allowance);
        for number in 0..4 * states {
            passed(&mut program, number, 1..3);
        }
        let before = table_stats(&program).untracked;
        assert!(before >= 128, "{before} packets found no room");
        assert_eq!(passed(&mut program, 9 * states, 1..3), 0);
        assert_eq!(table_stats(&program).untracked, before + 2);
    }
}

/// Keys of a limit that was removed are evicted whatever they owe. Whoever gets the entry of another key begins with an empty
/// log, or list, of whichever kind the one before was, also when the log goes round its places.
#[test]
fn an_entry_that_changes_hands_begins_empty() {
    let (mut program, states) = full(ALL[0](1));
    let mut now = NOW;
    for round in 0..6_u32 {
        let log = round % 2 == 0 || round == 3;
        let allowance = if log {
            Allowance::SlidingLog { limit: 100, window: SECOND }
        } else {
            Allowance::Concurrent { limit: 100, idle: 60 * MINUTE }
        };
        let limit = Limit { name: format!("round {round}"), ..by_destination(allowance) };
        program.apply(&policy_of([limit])).unwrap();
        // An entry that was found to owe is not asked again for some seconds.
        now += 10 * SECOND;
        for number in 0..4 * states {
            program.at(now).unwrap();
            passed(&mut program, round * 10_000 + number, 1..3);
        }
        for number in 0..3 {
            let key = round * 10_000 + number;
            for turn in 0..if log { 4 } else { 1 } {
                now += 10 * SECOND;
                program.at(now).unwrap();
                // Two of its connections may be open, if it has had an entry since.
                let new = passed(&mut program, key, 100..210);
                let expected = if log { 100..=100 } else { 98..=100 };
                assert!(expected.contains(&new), "round {round}, {number}, turn {turn}: {new}");
            }
        }
    }
    program.check_accounts().unwrap();
}

/// Two CPUs make entries for the same keys, in a table full of entries that owe nothing any more.
#[test]
fn two_cpus_give_each_key_one_state() {
    for of in [
        |limit| Allowance::SlidingLog { limit, window: SECOND },
        |limit| Allowance::Concurrent { limit, idle: SECOND },
    ] {
        let (mut program, states) = full(of(3));
        let keys = states / 4;
        for round in 0..part(16).max(4) as u32 {
            program.at(NOW + u64::from(round) * 10 * SECOND).unwrap();
            let before = program.passed().unwrap();
            on_two_cpus(&mut program, |runner, cpu| {
                for number in 0..keys {
                    for port in 1..4 {
                        runner.run(&to(round * keys + number, port + 10 * cpu as u16)).unwrap();
                    }
                }
            });
            // What was dropped as contended is left.
            for number in 0..keys {
                passed(&mut program, round * keys + number, 30..34);
            }
            let admitted = program.passed().unwrap() - before;
            assert_eq!(admitted, 3 * u64::from(keys), "round {round}: {:?}", of(3));
        }
        assert!(table_stats(&program).evicted_idle > 0);
        assert_eq!(table_stats(&program).untracked, 0);
    }
}
