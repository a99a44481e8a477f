//! Charges after the fact and charges that are given back, against naive models.

use limiter_common::{
    algorithm::{
        gcra::Gcra,
        meter::Meter,
        policer::{Decision, Policer as _},
        rate::{Rate, SECOND},
        sliding_log::SlidingLog,
        window::Window,
    },
    base::word::Word as _,
};
use proptest::prelude::*;

use super::{
    bucket, cases,
    row::{Plain, Row},
};

/// What is done, at what cost and how much later than what was done before, in nanoseconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ask,
    Charge,
    Refund,
}

fn steps(most: u64) -> impl Strategy<Value = Vec<(Step, u64, u64)>> {
    let step = prop_oneof![3 => Just(Step::Ask), 1 => Just(Step::Charge), 1 => Just(Step::Refund)];
    let cost = prop_oneof![Just(1), 1..=most, Just(u64::MAX)];
    let later = prop_oneof![Just(0), 0..SECOND, 0..30 * SECOND];
    prop::collection::vec((step, cost, later), 1..200)
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// Against a count of tokens as rational numbers: times are whole seconds here, and a token takes one.
    #[test]
    fn a_bucket_owes_what_was_charged_and_gets_back_no_more(
        burst in 1..50_u64, debt in 50..500_u64, strict: bool, steps in steps(80),
    ) {
        let rate = Rate::per_second(1);
        let gcra = if strict { rate.queue(burst, 1) } else { rate.bucket(burst, 1) }.unwrap();
        // The depth of a queue has a unit more.
        let gcra = Gcra { dearest: debt * SECOND - u64::from(strict), ..gcra };
        let (mut now, mut word, mut spent) = (1_000 * SECOND, gcra.fresh(1_000 * SECOND), 0_u64);
        for (step, cost, later) in steps {
            let seconds = later / SECOND;
            now += seconds * SECOND;
            spent = spent.saturating_sub(seconds);
            match step {
                Step::Ask => {
                    let conforms = match strict {
                        true => spent.saturating_add(1) <= burst,
                        false => spent < burst,
                    };
                    match gcra.decide(word, now, 1) {
                        Decision::Conform(next) => {
                            prop_assert!(conforms);
                            (word, spent) = (next, spent + 1);
                        }
                        Decision::Exceed => prop_assert!(!conforms),
                        Decision::Lost(_) => prop_assert!(false, "it is never lost"),
                    }
                }
                Step::Charge => {
                    word = gcra.charge_beyond(word, now, cost);
                    spent = spent.saturating_add(cost).min(burst + debt);
                }
                Step::Refund => {
                    word = gcra.give_back(word, now, cost);
                    spent = spent.saturating_sub(cost);
                }
            }
            prop_assert_eq!(gcra.spent(word, now), spent * SECOND);
        }
    }

    /// Whatever the bucket: a charge is never lost, and to give it back undoes it unless it was cut.
    #[test]
    fn what_is_charged_and_given_back_at_once_leaves_what_was(
        (gcra, _) in bucket(), now in 0..1_u64 << 62, share in 0..=1_000_u64, cost in 1..1_u64 << 40,
    ) {
        let was = (u128::from(gcra.depth) * u128::from(share) / 1_000) as u64;
        let word = gcra.fresh(now).wrapping_add(was);
        let charged = gcra.charge_beyond(word, now, cost);
        let spent = gcra.spent(charged, now);
        prop_assert!(spent >= was && spent <= gcra.depth + gcra.depth.max(gcra.dearest));
        prop_assert!(!matches!(gcra.decide(charged, now, 1), Decision::Lost(_)));
        let back = gcra.spent(gcra.give_back(charged, now, cost), now);
        prop_assert!(back <= was, "{back}, was {was}");
        let is_cut = spent == gcra.depth + gcra.depth.max(gcra.dearest);
        prop_assert!(is_cut || back == was, "{back}, was {was}");
        prop_assert_eq!(gcra.spent(gcra.give_back(charged, now, u64::MAX), now), 0);
    }

    /// Against counts by the number of the window.
    #[test]
    fn a_window_counts_what_was_charged_and_gives_back_no_more(
        limit in 1..100_u64, seconds in 1..20_u64, slides: bool, steps in steps(150),
    ) {
        let length = seconds * SECOND;
        let window = Window::new(limit, length).unwrap();
        let meter = if slides { Meter::sliding(window) } else { Meter::fixed(window) };
        let (mut now, mut word) = (1_000 * SECOND, meter.fresh(1_000 * SECOND));
        let mut counts = std::collections::BTreeMap::<u64, u64>::new();
        for (step, cost, later) in steps {
            now += later;
            let number = now / length;
            let [current, previous] =
                [number, number - 1].map(|number| counts.get(&number).copied().unwrap_or(0));
            match step {
                Step::Ask => {
                    let weight = u128::from(length - now % length);
                    let weighed = (u128::from(previous) * weight).div_ceil(u128::from(length));
                    let estimate = current + if slides { weighed as u64 } else { 0 };
                    match meter.decide(word, now, 1) {
                        Decision::Conform(next) => {
                            prop_assert!(estimate < limit, "{estimate} of {limit}");
                            word = next;
                            counts.insert(number, current + 1);
                        }
                        Decision::Exceed => prop_assert!(estimate >= limit, "{estimate} of {limit}"),
                        Decision::Lost(_) => prop_assert!(false, "it is never lost"),
                    }
                }
                Step::Charge => {
                    word = meter.charge_beyond(word, now, cost);
                    counts.insert(number, current.saturating_add(cost).min(limit));
                }
                Step::Refund => {
                    word = meter.give_back(word, now, cost);
                    counts.insert(number, current.saturating_sub(cost));
                    if slides {
                        let rest = cost.saturating_sub(current);
                        counts.insert(number - 1, previous.saturating_sub(rest));
                    }
                }
            }
        }
    }

    /// Against the list of the times of all events.
    #[test]
    fn a_log_has_what_was_charged_and_gives_back_the_last_events(
        limit in 1..=128_u64, seconds in 1..60_u64, steps in steps(200),
    ) {
        let log = SlidingLog::new(limit, seconds * SECOND).unwrap();
        let (control, slots) = (Plain::default(), Row::new());
        let (mut now, mut events) = (1_000 * SECOND, Vec::<u64>::new());
        for (step, cost, later) in steps {
            now += later;
            events.retain(|time| now - time < seconds * SECOND);
            let room = 128 - events.len();
            match step {
                Step::Ask => match log.look(&control, &slots, now) {
                    Ok(look) => {
                        prop_assert!((events.len() as u64) < limit);
                        log.charge(&control, &slots, look, now).unwrap();
                        events.push(now);
                    }
                    Err(_) => prop_assert!(events.len() as u64 >= limit),
                },
                Step::Charge => {
                    log.charge_beyond(&control, &slots, now, cost);
                    let fits = usize::try_from(cost).map_or(room, |cost| cost.min(room));
                    events.extend((0..fits).map(|_| now));
                }
                Step::Refund => {
                    log.give_back(&control, &slots, now, cost);
                    let left = events.len() as u64;
                    events.truncate(left.saturating_sub(cost) as usize);
                }
            }
            prop_assert_eq!(log.fill(&control, &slots, now), events.len() as u64);
        }
        prop_assert!(control.load() != 0 || events.is_empty());
    }
}
