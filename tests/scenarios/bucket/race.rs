//! Races that a packet loses, one at a time, at every place.

use limiter_common::{
    algorithm::{
        meter::Meter,
        policer::{Policer as _, Refusal},
        rate::Rate,
    },
    packet::reason::Reason,
    policy::charge::Bill,
};

use super::{
    MINUTE,
    group::{ALL, CONNECTION, PLACES, Policy, Race, SOURCE, SYN, TOTAL, Words},
};

const NOW: u64 = 5 * MINUTE;

/// Limits of four packets each after one packet, so that a refund has a word to restore.
fn spent_once(enforced: u64) -> (Policy, Words) {
    let costs = [1, 1, 1_500, 7];
    let rates = [1_000, 50, 3_333_333, 70_000];
    let meters = std::array::from_fn(|place| {
        let cost = costs[place];
        Some(Meter::bucket(Rate::per_second(rates[place]).bucket(4 * cost, cost).unwrap()))
    });
    let policy = Policy { enforced, ..Policy::new(meters, costs) };
    let words = Words::new(&policy, NOW);
    let bill = policy.decide(&words, ALL, NOW);
    assert_eq!((bill.refused, bill.charged), (0, ALL));
    (policy, words)
}

fn bit(place: usize) -> u64 {
    1 << place
}

/// The word of an empty bucket.
fn empty(policy: &Policy, place: usize, now: u64) -> u64 {
    let gcra = policy.meters[place].unwrap().gcra;
    gcra.fresh(now).wrapping_add(gcra.depth)
}

/// Lets the packet lose a race at one limit, and asserts that the others are as if it had not come.
fn lose_race_at(place: usize, race: Race) -> Bill {
    let (policy, words) = spent_once(ALL);
    let before = words.values();
    words.races[place].set(race);
    let bill = policy.decide(&words, ALL, NOW);
    assert_eq!(bill.refused, bit(place), "{place} {race:?}");
    assert_eq!(bill.exceeded, 0);
    for other in (0..PLACES).filter(|other| *other != place) {
        // After a rebind, the entry belongs to the CPU that bound it.
        if race != Race::Rebind {
            assert_eq!(words.values()[other], before[other], "{other} after {place} {race:?}");
        }
    }
    bill
}

#[test]
fn a_race_lost_at_one_limit_costs_the_others_nothing() {
    for place in 0..PLACES {
        let empty = empty(&spent_once(ALL).0, place, NOW);
        assert_eq!(lose_race_at(place, Race::Drain(empty)).contended, 0);
        assert_eq!(lose_race_at(place, Race::Busy).contended, 1);
        assert_eq!(lose_race_at(place, Race::Rebind).contended, 1);
    }
}

/// A packet that waited is decided anew: its time is over. A limit that is only counted leaves it races for the others.
#[test]
fn a_packet_that_waited_is_not_refused_by_its_time() {
    let [counted, enforced] = [SYN, SOURCE].map(bit);
    for (late, reason) in [(0, Reason::Exceed), (1, Reason::Contended)] {
        let mut bill = Bill { applies: ALL, enforced, late, ..Bill::default() };
        bill.refuse(counted, Refusal::Exceed);
        assert_eq!([bill.exceeded, bill.left_out], [counted * (1 - late), counted * late]);
        assert_eq!(bill.uncharged(), counted);
        assert_eq!(bill.reason(Reason::Conform), Reason::Conform);
        bill.refuse(enforced, Refusal::Exceed);
        assert_eq!(bill.reason(Reason::Conform), reason);
        assert!(bill.most_races(counted) < bill.most_races(enforced));
    }
}

/// After a limit has refused, nothing more is charged, and this limit is reported.
#[test]
fn the_first_race_that_is_lost_is_the_last_charge() {
    let (policy, words) = spent_once(ALL);
    let before = words.values();
    // In the order in which they are charged.
    let [first, rest @ ..] = [CONNECTION, TOTAL, SOURCE, SYN];
    words.races[first].set(Race::Drain(empty(&policy, first, NOW)));
    for place in rest {
        // An attempt would change this word.
        words.races[place].set(Race::Busy);
    }
    let bill = policy.decide(&words, ALL, NOW);
    assert_eq!((bill.refused, bill.contended, bill.charged), (bit(first), 0, 0));
    assert_eq!(words.values()[1..], before[1..]);
}

/// If a monitored limit loses a race, the packet passes and is charged to all others.
#[test]
fn a_race_lost_at_a_limit_that_only_counts_drops_nothing() {
    for place in 0..PLACES {
        let policy = spent_once(ALL).0;
        for race in [Race::Drain(empty(&policy, place, NOW)), Race::Busy, Race::Rebind] {
            let (policy, words) = spent_once(ALL & !bit(place));
            let before = words.values();
            words.races[place].set(race);
            let bill = policy.decide(&words, ALL, NOW);
            let others = ALL & !bit(place);
            match race {
                // The other inline limits are in the same entry, which is bound to another policy.
                Race::Rebind => assert_ne!(bill.refused, bit(place)),
                Race::Drain(_) => assert_eq!((bill.refused, bill.exceeded), (0, bit(place))),
                // A limit that came to no decision counts neither way.
                _ => assert_eq!((bill.refused, bill.exceeded, bill.applies), (0, 0, others)),
            }
            assert_eq!(bill.charged & bit(place), 0, "{place} {race:?}");
            if race == Race::Rebind {
                continue;
            }
            assert_eq!(bill.charged, others);
            for other in (0..PLACES).filter(|other| *other != place) {
                let units = policy.meters[other].unwrap().gcra.units(policy.costs[other]);
                assert_eq!(words.values()[other], before[other] + units, "{other}");
            }
        }
    }
}

/// If an enforced limit refuses after all, the charge to a monitored limit is refunded too.
#[test]
fn a_refusal_takes_back_what_only_counts_too() {
    let (policy, words) = spent_once(bit(SYN));
    let before = words.values();
    words.races[SYN].set(Race::Drain(empty(&policy, SYN, NOW)));
    assert_eq!(policy.decide(&words, ALL, NOW).refused, bit(SYN));
    for other in [CONNECTION, SOURCE, TOTAL] {
        assert_eq!(words.values()[other], before[other]);
    }
}

#[test]
fn a_refund_of_a_full_bucket_leaves_it_full() {
    let (policy, words) = spent_once(ALL);
    let later = NOW + MINUTE;
    // The inline limit that is charged last.
    words.races[SYN].set(Race::Drain(empty(&policy, SYN, later)));
    let bill = policy.decide(&words, ALL, later);
    assert_eq!((bill.refused, bill.contended), (bit(SYN), 0));
    for place in [CONNECTION, SOURCE, TOTAL] {
        assert_eq!(words.values()[place], policy.meters[place].unwrap().fresh(later));
    }
}

#[test]
fn the_narrow_limit_gives_the_reason() {
    for narrowest in 0..PLACES {
        for others in 0..1_u64 << PLACES {
            let (policy, words) = spent_once(ALL);
            let exhausted = (others | bit(narrowest)) & !(bit(narrowest) - 1);
            for place in (0..PLACES).filter(|place| exhausted & bit(*place) != 0) {
                words.words[place].set(empty(&policy, place, NOW));
            }
            let before = words.values();
            let bill = policy.decide(&words, ALL, NOW);
            assert_eq!((bill.refused, bill.charged), (bit(narrowest), 0));
            assert_eq!(words.values(), before);
        }
    }
}

/// Every monitored limit that was checked before the refusal counts that it would have refused.
#[test]
fn every_limit_that_only_counts_counts() {
    for enforced in 0..=ALL {
        let (policy, words) = spent_once(enforced);
        for place in 0..PLACES {
            words.words[place].set(empty(&policy, place, NOW));
        }
        let before = words.values();
        let bill = policy.decide(&words, ALL, NOW);
        let narrowest = enforced & enforced.wrapping_neg();
        assert_eq!((bill.refused, bill.charged), (narrowest, 0), "{enforced:b}");
        // A limit wider than the one that refuses does not count, because it need not be checked.
        assert_eq!(bill.monitored(), ALL & !enforced & narrowest.wrapping_sub(1), "{enforced:b}");
        assert_eq!(words.values(), before);
    }
}

#[test]
fn a_connection_without_an_entry_is_made_one_by_its_first_admitted_packet() {
    let (policy, mut words) = spent_once(ALL);
    let gcra = policy.meters[CONNECTION].unwrap().gcra;
    words.exists.set(false);
    assert_eq!(policy.decide(&words, ALL, NOW).refused, 0);
    assert!(words.exists.get());
    assert_eq!(words.values()[CONNECTION], gcra.fresh(NOW) + gcra.interval);

    // Without room for an entry, the packet is refused and the other limits are not charged.
    words.exists.set(false);
    words.room = false;
    let before = words.values();
    let bill = policy.decide(&words, ALL, NOW);
    assert_eq!((bill.refused, bill.contended), (bit(CONNECTION), 1));
    assert_eq!(words.values()[SYN..], before[SYN..]);

    // If that limit is only monitored, the packet is not dropped.
    let policy = Policy { enforced: ALL & !bit(CONNECTION), ..policy };
    let bill = policy.decide(&words, ALL, NOW);
    assert_eq!((bill.refused, bill.charged), (0, ALL & !bit(CONNECTION)));
}

/// A packet that exceeds the depth of a queue creates no entry.
#[test]
fn a_packet_that_never_fits_makes_no_entry() {
    let (mut policy, words) = spent_once(ALL);
    let queue = Rate::per_second(1_000).queue(100, 1_500).unwrap();
    policy.meters[CONNECTION] = Some(Meter::bucket(queue));
    policy.costs[CONNECTION] = 101;
    words.exists.set(false);
    let bill = policy.decide(&words, ALL, NOW);
    assert_eq!((bill.refused, bill.contended), (bit(CONNECTION), 0));
    assert!(!words.exists.get());
    policy.costs[CONNECTION] = 100;
    assert_eq!(policy.decide(&words, ALL, NOW).refused, 0);
    assert!(words.exists.get());
}
