//! The bucket table when it is full: which key keeps its entry, and what happens to keys without one.

use limiter_common::{
    abi::{counters::TableStats, state::Bucket, table::WAYS},
    algorithm::rate::SECOND,
    policy::limit::BucketKey,
};
use limiter_tests::{
    packet::Frame,
    program::{Clock, Sizes, TestProgram, Verdict},
};
use limiter_userspace::policy::model::{Allowance, KeyPart, Limit, Override, OverrideWhom};

use super::{
    NOW,
    define::{limit, policy_of, within},
    modes::{MINUTE, tally},
    part, per_second,
    table::smallest,
    tokens,
};

const A: [u8; 4] = [192, 0, 2, 1];

/// A datagram to the destination with this number.
fn to(number: u32) -> Vec<u8> {
    Frame::udp(A, (0xc612_0000 + number).to_be_bytes(), 40_000, 53).build()
}

/// A program with the smallest bucket table, and its number of entries.
fn full(limits: impl IntoIterator<Item = Limit>) -> (TestProgram, u32) {
    let sizes = Sizes { overrides: 8, ..smallest() };
    let mut program = TestProgram::new(sizes, &policy_of(limits), Clock::Test).unwrap();
    program.at(NOW).unwrap();
    (program, sizes.buckets)
}

fn by_destination(name: &str, allowance: impl Into<Allowance>) -> Limit {
    limit(name, &[KeyPart::Destination], allowance)
}

fn passed(program: &mut TestProgram, frame: &[u8], times: u32) -> u64 {
    program.run_many(frame, times).unwrap()
}

fn table_stats(program: &TestProgram) -> TableStats {
    program.maps().bucket_table_stats().unwrap()
}

/// A flood with other keys takes nothing from a key that owes, with any algorithm.
#[test]
fn a_key_that_owes_is_kept_through_any_flood() {
    for allowance in [
        Allowance::from(tokens(5)),
        Allowance::FixedWindow { limit: 5, window: 60 * MINUTE },
        Allowance::SlidingWindow { limit: 5, window: 60 * MINUTE },
    ] {
        let (mut program, buckets) = full([by_destination("kept", allowance)]);
        let kept = to(0);
        assert_eq!(passed(&mut program, &kept, 9), 5, "{allowance:?}");
        for number in 1..=part(16) as u32 * buckets {
            assert_eq!(program.run(&to(number)).unwrap(), Verdict::Pass, "{number}");
        }
        assert_eq!(passed(&mut program, &kept, 9), 0, "{allowance:?}");
        let TableStats { inserted: entries, evicted_owing: owing, .. } = table_stats(&program);
        // Each key of the flood owes for one packet, so it may be evicted for the next ones.
        assert!(owing > 0 && entries > u64::from(buckets), "{entries} entries, {owing} owed");
        program.check_accounts().unwrap();
    }
}

/// When all entries owe for more than one packet, keys without an entry share one bucket of their limit, and
/// of no other limit.
#[test]
fn keys_that_find_no_room_share_a_bucket_until_there_is() {
    let other = limit("other", &[within(24, 64)], per_second(1_000_000, 1_000_000));
    let (mut program, buckets) = full([by_destination("slow", tokens(3)), other]);
    // Enough keys to fill every set. With twice as many keys as buckets, one run in 25 would leave a set with
    // room.
    let all: u64 = (0..4 * buckets).map(|number| passed(&mut program, &to(number), 3)).sum();
    let full = table_stats(&program);
    assert!(full.untracked > 0 && full.inserted <= u64::from(buckets), "{full:?}");
    // One entry belongs to the network of the source, under the other limit.
    let own = full.inserted - 1;
    assert_eq!(all, 3 * (own + WAYS as u64), "what they share is as much as a set of them has");
    let shared = |program: &TestProgram| -> Vec<(BucketKey, Bucket)> {
        let all = program.buckets().unwrap().into_iter();
        all.filter(|(key, _)| key.is_shared()).collect()
    };
    assert_eq!(shared(&program).len(), 1, "one limit has keys without room");
    let more: u64 = (0..200).map(|number| passed(&mut program, &to(9 * buckets + number), 3)).sum();
    assert_eq!(more, 0, "what they share is used up");
    assert!(table_stats(&program).untracked > full.untracked);
    // When the first keys have paid, new keys get entries of their own.
    program.at(NOW + 4 * MINUTE).unwrap();
    for number in 0..200 {
        assert_eq!(passed(&mut program, &to(20 * buckets + number), 9), 3, "{number}");
    }
    program.check_accounts().unwrap();
}

/// Keys of a limit that was removed are evicted whatever they owe; keys of a limit that stays are not.
#[test]
fn keys_of_a_limit_that_is_gone_make_room() {
    let year = Allowance::FixedWindow { limit: 2, window: 365 * 24 * 60 * MINUTE };
    let (mut program, buckets) = full([by_destination("gone", year)]);
    for number in 0..2 * buckets {
        passed(&mut program, &to(number), 2);
    }
    assert!(table_stats(&program).untracked > 0, "the table is full");
    program.apply(&policy_of([by_destination("new", tokens(3))])).unwrap();
    // An entry that was found to owe is not asked again for some seconds.
    program.at(NOW + 10 * SECOND).unwrap();
    for number in 0..buckets / 4 {
        let had = passed(&mut program, &to(number), 9);
        assert_eq!(had, 3, "{number}");
    }
    let before = table_stats(&program).evicted_owing;
    assert!(before > 0, "somebody made room though owing");
}

/// A bucket is found by its whole key: two keys in one set do not share a bucket.
#[test]
fn each_key_has_a_bucket_of_its_own() {
    let (mut program, buckets) = full([by_destination("own", tokens(2))]);
    for round in 0..3 {
        for number in 0..buckets / 4 {
            let expected = u64::from(round < 2);
            assert_eq!(passed(&mut program, &to(number), 1), expected, "{number}, round {round}");
        }
    }
    let found = program.buckets().unwrap();
    assert_eq!(found.len(), buckets as usize / 4);
    for (key, bucket) in found {
        let read = program.maps().bucket(&key).unwrap().unwrap();
        assert_eq!(read.bucket, bucket, "{key:?}");
    }
}

/// The first packet of a source takes no entry of a full source table, even if a wider limit is charged too.
#[test]
fn a_first_packet_takes_no_entry_where_a_wider_limit_is_about_it() {
    let own = limit("own", &[KeyPart::Source], per_second(1_000, 1_000));
    let wide = limit("wide", &[within(24, 64)], tokens(50));
    let (mut program, _) = full([own, wide]);
    program.crowd().unwrap();
    let from =
        |number: u32| Frame::udp((0x0a00_0000 + number).to_be_bytes(), A, 40_000, 53).build();
    for number in 0..60 {
        let expected = if number < 50 { Verdict::Pass } else { Verdict::Drop };
        assert_eq!(program.run(&from(number)).unwrap(), expected, "{number}");
    }
    assert_eq!(tally(&program, "own"), (50, 0));
    assert_eq!(tally(&program, "wide"), (50, 10));
    let TableStats { inserted: entries, untracked: newcomers, .. } =
        program.maps().table_stats().unwrap();
    // One of sixteen refused packets brings an entry, too.
    let known = newcomers + entries;
    assert!(
        entries <= 20 && (50..=60).contains(&known),
        "{entries} entries, {newcomers} newcomers"
    );
    program.check_accounts().unwrap();
}

/// A key that owes for one packet can be evicted also after a policy is applied again or a source is listed.
#[test]
fn who_owes_for_a_packet_makes_room_after_a_change_of_policy_too() {
    let hour = Allowance::FixedWindow { limit: 5, window: 60 * MINUTE };
    let (mut program, buckets) = full([by_destination("kept", hour)]);
    for number in 1..=8 * buckets {
        assert_eq!(program.run(&to(number)).unwrap(), Verdict::Pass, "{number}");
    }
    program.apply(&policy_of([by_destination("kept", hour)])).unwrap();
    program.at(NOW + 20 * SECOND).unwrap();
    for number in 0..buckets {
        assert_eq!(program.run(&to(100_000 + number)).unwrap(), Verdict::Pass, "{number}");
    }
}

/// A packet that one limit refuses creates no bucket of another limit.
#[test]
fn a_first_packet_that_is_refused_takes_no_bucket() {
    let pair = limit("pair", &[KeyPart::Source, KeyPart::Destination], tokens(5));
    let (mut program, _) = full([pair, limit("all", &[], tokens(10))]);
    program.crowd().unwrap();
    let from =
        |number: u32| Frame::udp((0x0a00_0000 + number).to_be_bytes(), A, 40_000, 53).build();
    let passed = (0..2_000).filter(|number| program.run(&from(*number)).unwrap() == Verdict::Pass);
    assert_eq!(passed.count(), 10);
    let TableStats { inserted: entries, .. } = table_stats(&program);
    assert!(entries <= 11, "{entries} entries");
}

/// The shared bucket has the numbers of the limit itself, not those of an override of the source.
#[test]
fn overrides_do_not_hold_for_what_keys_share() {
    let slow = Allowance::from(tokens(100));
    let fast = Allowance::from(per_second(1_000, 100));
    let mut pairs = limit("pairs", &[KeyPart::Source, KeyPart::Destination], slow);
    let whom = OverrideWhom::Prefix("203.0.113.0/24".parse().unwrap());
    pairs.overrides = vec![Override { whom, layers: Some(vec![fast]) }];
    let (mut program, buckets) = full([pairs]);
    let from = |source: [u8; 4], number: u32| {
        Frame::udp(source, (0xc612_0000 + number).to_be_bytes(), 40_000, 53).build()
    };
    for number in 0..3 * buckets {
        passed(&mut program, &from(A, number), 3);
    }
    let (of_slow, of_fast) = (from(A, 900_000), from([203, 0, 113, 1], 800_000));
    passed(&mut program, &of_slow, 500);
    let mut total = 0;
    for round in 1..=20 {
        for half in [0, 1] {
            program.at(NOW + round * SECOND / 5 + half * SECOND / 10).unwrap();
            passed(&mut program, &of_fast, 1);
        }
        total += passed(&mut program, &of_slow, 500);
    }
    assert!(total <= 1, "{total} packets in 4 s");
}

/// The shared bucket stays with its limit when edits of the policy move the limit.
#[test]
fn what_keys_share_is_kept_over_edits() {
    let slow = || by_destination("slow", tokens(3));
    let (mut program, buckets) = full([slow()]);
    for number in 0..4 * buckets {
        passed(&mut program, &to(number), 3);
    }
    let of_others = |program: &mut TestProgram| -> u64 {
        (0..200).map(|number| passed(program, &to(9 * buckets + number), 3)).sum()
    };
    of_others(&mut program);
    assert_eq!(of_others(&mut program), 0, "it is used up");
    for round in 0..6 {
        let narrow = limit("narrow", &[KeyPart::Connection], per_second(1_000_000, 1_000_000));
        let narrow = (round % 2 == 0).then_some(narrow);
        program.apply(&policy_of(narrow.into_iter().chain([slow()]))).unwrap();
        assert_eq!(of_others(&mut program), 0, "round {round}");
    }
}
