//! One decision, on any word at any time.

use limiter_common::algorithm::{
    debt,
    gcra::Gcra,
    meter::Meter,
    policer::{Decision, Policer as _, Refusal},
    rate::Rate,
    time::Time,
};
use proptest::prelude::*;

use super::{ahead, bucket, cases, magnitude};

/// The word of a bucket that owes as much as it can, and the tolerance, in units ahead of now.
fn furthest(gcra: &Gcra) -> u64 {
    gcra.depth + gcra.depth.max(gcra.dearest) + (Gcra::TOLERANCE << gcra.shift)
}

/// Units for which there has to be room.
fn room(gcra: &Gcra, cost: u64) -> u64 {
    if gcra.strict == 1 { gcra.units(cost) } else { 0 }
}

/// Words around those that decide.
fn word_at(gcra: &Gcra, now: u64, kind: u8, any: u64) -> u64 {
    let near = any % 5;
    let ahead = match kind {
        0 => return any,
        1 => any % gcra.depth,
        2 => gcra.depth + near,
        3 => gcra.depth.saturating_sub(any % (gcra.dearest + 1)) + near,
        4 => gcra.depth + gcra.depth.max(gcra.dearest) + near,
        _ => furthest(gcra) + near,
    };
    gcra.fresh(now).wrapping_add(ahead).wrapping_sub(2)
}

/// A cost that a packet can have, the dearest as likely as all others.
fn cost_of(dearest: u64, any: u64) -> u64 {
    if any & 1 == 0 { dearest } else { 1 + (any >> 1) % dearest }
}

/// Nanoseconds from tick to tick: those of kernels, or any up to a second.
fn tick() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => prop_oneof![Just(1_000_000), Just(3_333_333), Just(4_000_000), Just(10_000_000)],
        1 => 1..1_000_000_000_u64,
    ]
}

proptest! {
    #![proptest_config(cases(12_000))]

    #[test]
    fn a_packet_takes_its_cost_rounded_down_to_a_unit((gcra, dearest) in bucket(), any: u64) {
        let cost = cost_of(dearest, any);
        let exact = u128::from(gcra.interval) * u128::from(cost);
        prop_assert_eq!(u128::from(gcra.units(cost)), exact >> gcra.fraction);
        prop_assert_eq!(gcra.units(dearest), gcra.dearest);
        prop_assert!(gcra.units(cost) <= gcra.dearest);
        prop_assert!(gcra.units(cost) > 0, "nothing is free");
    }

    #[test]
    fn a_decision_is_what_the_word_says(
        (gcra, dearest) in bucket(), now in magnitude(64), kind in 0..6_u8, any: u64, cost: u64,
    ) {
        let cost = cost_of(dearest, cost);
        let word = word_at(&gcra, now, kind, any);
        let before = ahead(&gcra, word, now);
        prop_assert_eq!(gcra.spent(word, now), before);
        let decision = gcra.decide(word, now, cost);
        match decision {
            Decision::Conform(next) => {
                prop_assert_eq!(ahead(&gcra, next, now), before + gcra.units(cost));
                prop_assert!(before + room(&gcra, cost) < gcra.depth);
                prop_assert_eq!(ahead(&gcra, gcra.undo(next, now, cost), now), before);
            }
            Decision::Exceed => {
                prop_assert!(before + room(&gcra, cost) >= gcra.depth);
                prop_assert!(before <= furthest(&gcra));
            }
            Decision::Lost(empty) => {
                prop_assert!(before > furthest(&gcra));
                prop_assert_eq!(ahead(&gcra, empty, now), gcra.depth);
                prop_assert_eq!(gcra.decide(empty, now, cost), Decision::Exceed);
            }
        }
        prop_assert_eq!(Meter::bucket(gcra).decide(word, now, cost), decision);
    }

    /// A charge that is made in time never looks like a clock that went back.
    #[test]
    fn what_was_charged_is_not_lost((gcra, dearest) in bucket(), now in magnitude(64), any: u64) {
        let word = gcra.fresh(now).wrapping_add(any % gcra.depth);
        if let Decision::Conform(next) = gcra.decide(word, now, dearest) {
            for back in [0, Gcra::TOLERANCE.min(now)] {
                let again = gcra.decide(next, now - back, 1);
                prop_assert!(!matches!(again, Decision::Lost(_)), "{back} ns back: {again:?}");
            }
        }
    }

    #[test]
    fn a_full_bucket_admits_its_burst_at_once(
        (gcra, dearest) in bucket(), now in magnitude(64), spent in magnitude(10), cost: u64,
    ) {
        let cost = cost_of(dearest, cost);
        let units = gcra.units(cost);
        // What begins within the bucket, but all of it within a queue.
        let burst = if gcra.strict == 1 {
            (gcra.depth - 1) / units
        } else {
            gcra.depth.div_ceil(units)
        };
        let spent = spent.min(burst);
        let word = gcra.fresh(now).wrapping_add(spent * units);
        let conforms = matches!(gcra.decide(word, now, cost), Decision::Conform(_));
        prop_assert_eq!(conforms, spent < burst);
        let empty = gcra.fresh(now).wrapping_add(burst * units);
        prop_assert_eq!(gcra.decide(empty, now, cost), Decision::Exceed);
        let fresh = gcra.look_fresh(now, cost);
        prop_assert_eq!(fresh.err(), (burst == 0).then_some(Refusal::Exceed));
    }

    /// A packet passes as soon as what the last ones owe is refilled and not a nanosecond before,
    /// whatever wraps in between.
    #[test]
    fn a_debt_is_refilled_in_time(
        (gcra, dearest) in bucket(), now in magnitude(64), any: u64, cost: u64,
    ) {
        let cost = cost_of(dearest, cost);
        let debt = any % gcra.dearest;
        let word = gcra.fresh(now).wrapping_add(gcra.depth + debt);
        let room = room(&gcra, cost);
        prop_assume!(room < gcra.depth);
        let wait = ((debt + room) >> gcra.shift) + 1;
        prop_assume!(now <= u64::MAX - wait);
        prop_assert!(matches!(gcra.decide(word, now + wait, cost), Decision::Conform(_)));
        prop_assert_eq!(gcra.decide(word, now + wait - 1, cost), Decision::Exceed);
    }

    /// The wait that is told is the shortest after which a packet conforms.
    #[test]
    fn the_wait_ends_when_a_packet_conforms(
        (gcra, dearest) in bucket(), now in magnitude(64), kind in 1..6_u8, any: u64, cost: u64,
    ) {
        // One of cost 0 is admitted when any is, whatever its cost, but by a queue.
        let cost = if cost & 3 == 0 { 0 } else { cost_of(dearest, cost >> 2) };
        let word = word_at(&gcra, now, kind, any);
        let wait = gcra.wait(word, now, cost);
        prop_assert_eq!(Meter::bucket(gcra).wait(word, now, cost), wait);
        if room(&gcra, cost) >= gcra.depth {
            prop_assert_eq!(wait, u64::MAX);
            prop_assert!(!matches!(gcra.decide(gcra.fresh(now), now, cost), Decision::Conform(_)));
            return Ok(());
        }
        prop_assume!(now <= u64::MAX - wait);
        prop_assert!(matches!(gcra.decide(word, now + wait, cost), Decision::Conform(_)));
        if wait > 0 {
            prop_assert!(!matches!(gcra.decide(word, now + wait - 1, cost), Decision::Conform(_)));
        }
    }

    /// By the time of a tick that began up to a tick ago, only what conforms now does, and what is stored then is what
    /// it is by the true time, or earlier by no more than the time is old.
    #[test]
    fn what_conforms_by_the_time_of_a_tick_does_now(
        (gcra, dearest) in bucket(), now in magnitude(62), kind in 0..6_u8, any: u64, cost: u64,
        tick in tick(), age in 0..=1_000_u64,
    ) {
        let cost = cost_of(dearest, cost);
        let word = word_at(&gcra, now, kind, any);
        let age = tick * age / 1_000;
        if let Some(next) = gcra.conform(word, Time { now, tick }, cost) {
            let Decision::Conform(exact) = gcra.decide(word, now + age, cost) else {
                return Err(TestCaseError::fail("it does not conform by the true time"));
            };
            let early = exact.wrapping_sub(next);
            prop_assert!(early <= age << gcra.shift, "{early} units early after {age} ns");
        }
    }

    /// What conforms now does so by the time of any tick that comes later, so it is refused for a tick too long at most.
    #[test]
    fn what_conforms_now_does_by_the_time_of_the_next_tick(
        (gcra, dearest) in bucket(), now in magnitude(62), kind in 0..6_u8, any: u64, cost: u64,
        tick in tick(), later in 0..=1_000_u64,
    ) {
        let cost = cost_of(dearest, cost);
        let word = word_at(&gcra, now, kind, any);
        // A tick of which the bucket holds eight.
        let tick = tick.min((gcra.depth >> gcra.shift) / 8);
        let next = Time { now: now + tick * later / 1_000, tick };
        if let Decision::Conform(exact) = gcra.decide(word, now, cost) {
            let by_tick = gcra.conform(word, next, cost);
            prop_assert!(by_tick.is_some(), "it is refused by the time of the next tick");
            // It is charged no earlier than it is now.
            let late = by_tick.map(|by_tick| by_tick.wrapping_sub(exact));
            prop_assert!(late <= Some((next.now - now) << gcra.shift), "{late:?} units late");
        }
    }

    /// A bucket goes by ticks if it holds what comes in during 8 of them, whatever is spent, and by the clock if not.
    #[test]
    fn a_bucket_goes_by_ticks_if_it_holds_eight_of_them(
        (gcra, dearest) in bucket(), now in magnitude(62), kind in 0..6_u8, any: u64, cost: u64,
        tick in tick(),
    ) {
        let cost = cost_of(dearest, cost);
        let word = word_at(&gcra, now, kind, any);
        let conforms = matches!(gcra.decide(word, now, cost), Decision::Conform(_));
        let will_do = u128::from(gcra.depth) >= u128::from(8 * tick) << gcra.shift;
        let time = Time { now, tick };
        prop_assert_eq!(gcra.will_do(time), will_do);
        prop_assert_eq!(gcra.takes_clock(tick), !will_do);
        prop_assert_eq!(gcra.conform(word, time, cost).is_some(), conforms && will_do);
        prop_assert!(gcra.takes_clock(0) && gcra.will_do(Time::exact(now)));
        // One that is to be precise never does.
        let precise = Meter::bucket(gcra).precise().gcra;
        prop_assert!(precise.takes_clock(tick) && precise.will_do(Time::exact(now)));
        prop_assert!(tick == 0 || !precise.will_do(time));
        prop_assert_eq!(precise.decide(word, now, cost), gcra.decide(word, now, cost));
    }

    /// Whether a packet of cost 1 exceeds is what the decision is, of any word that is not lost.
    #[test]
    fn what_exceeds_is_what_is_refused(
        (gcra, _) in bucket(), now in magnitude(64), kind in 0..6_u8, any: u64,
    ) {
        let word = word_at(&gcra, now, kind, any);
        let exceeds = gcra.decide(word, now, 1) == Decision::Exceed;
        prop_assert_eq!(gcra.exceeds(word, Time::exact(now)), exceeds);
    }

    #[test]
    fn by_an_exact_time_it_is_the_decision(
        (gcra, dearest) in bucket(), now in magnitude(64), kind in 0..6_u8, any: u64, cost: u64,
    ) {
        let cost = cost_of(dearest, cost);
        let word = word_at(&gcra, now, kind, any);
        let decided = match gcra.decide(word, now, cost) {
            Decision::Conform(next) => Some(next),
            Decision::Exceed | Decision::Lost(_) => None,
        };
        prop_assert_eq!(gcra.conform(word, Time { now, tick: 0 }, cost), decided);
        prop_assert_eq!(gcra.conform(word, Time::exact(now), cost), decided);
    }

    /// What a first packet spends is what its word says, and is refilled when an entry with that word owes nothing.
    #[test]
    fn what_a_first_packet_spends_is_refilled_when_its_word_owes_nothing(
        (gcra, dearest) in bucket(), now in magnitude(53), tick in prop_oneof![Just(0), tick()], cost: u64,
    ) {
        let (cost, time) = (cost_of(dearest, cost), Time { now, tick });
        let word = gcra.conform(gcra.fresh(now), time, cost);
        let spent = gcra.admit(0, time, cost);
        prop_assert_eq!(spent.map(|spent| gcra.fresh(now).wrapping_add(spent)), word);
        if let (Some(word), Some(spent)) = (word, spent) {
            prop_assert_eq!(gcra.refills(spent), debt::owes(word, gcra.scale().0, now));
            prop_assert_eq!(gcra.is_near(word, now), spent >= gcra.near);
        }
        prop_assert_eq!(gcra.refills(0), 0);
    }
}

/// Of a limit by bytes, a key that owes for two frames is not forgotten for a newcomer.
#[test]
fn only_a_key_that_owes_for_one_packet_is_single() {
    let bytes = Rate::per_second(10).bucket(100_000, 128 << 10).unwrap();
    let packets = Rate::per_second(10).bucket(100_000, 1).unwrap();
    let weighted = Rate::per_second(10).bucket(100_000, 20).unwrap();
    let now = 1 << 40;
    for (gcra, cost) in [(bytes, 1_514), (packets, 1), (weighted, 1)] {
        let owing = |number: u64| gcra.fresh(now) + number * gcra.units(cost);
        let single = [0, 1, 2].map(|number| Meter::bucket(gcra).is_single(owing(number), now));
        assert_eq!(single, [true, true, false], "{gcra:?}");
    }
}
