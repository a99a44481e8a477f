//! The time in which a source is over its limits, which is kept in units, beside what exact times would say.

use std::cell::Cell;

use limiter_common::memory::event::{AGAIN, Emission, Episode, QUIET, STEP, UNIT};
use proptest::prelude::*;

use super::{cases, magnitude};

/// When the units that are kept of a time recur, in nanoseconds.
const LAP: u64 = UNIT << 31;

/// A time about where that is, or any.
fn time() -> impl Strategy<Value = u64> {
    let near = (2..=60_u64, magnitude(40), any::<bool>())
        .prop_map(|(lap, off, is_after)| if is_after { lap * LAP + off } else { lap * LAP - off });
    prop_oneof![near, 2 * LAP..60 * LAP]
}

/// How long ago a time was, in nanoseconds: about what is asked for, or any. What is less than 0 is to come.
fn ago() -> impl Strategy<Value = i64> {
    let asked = prop_oneof![Just(0), Just(STEP), Just(QUIET), Just(AGAIN)];
    let near = (asked, magnitude(29), any::<bool>(), any::<bool>()).prop_map(
        |(asked, off, is_more, is_to_come)| {
            let (asked, off) = (asked as i64, off as i64);
            let ago = if is_more { asked + off } else { asked - off };
            if is_to_come { -ago } else { ago }
        },
    );
    let most = (LAP / 2 - AGAIN) as i64;
    prop_oneof![4 => near, 1 => -most..most]
}

/// The time that is noted of one at which packets were dropped, or would have been only: one of the first unit, which would
/// say never, is of the next one.
fn noted(time: u64, dropped: bool) -> u64 {
    if !dropped && time % LAP < UNIT { time + UNIT } else { time }
}

/// What a refusal is when a source was refused, and that was told, exactly so long ago, each with the level there. What is
/// asked for is taken in whole units.
fn emission(
    (last, was_dropped): (i64, bool),
    (told, drop_told): (i64, bool),
    dropped: bool,
) -> Emission {
    let whole = |time: u64| (time - time % UNIT) as i64;
    let is_over = |ago: i64, time: u64| ago >= whole(time) || ago <= -whole(STEP);
    if (was_dropped || !dropped) && !is_over(last, STEP) {
        Emission::Nothing
    } else if is_over(last, QUIET) || dropped && !drop_told {
        Emission::Begins
    } else if is_over(told, AGAIN) {
        Emission::GoesOn
    } else {
        Emission::Nothing
    }
}

proptest! {
    #![proptest_config(cases(50_000))]

    #[test]
    fn what_a_refusal_is_differs_by_less_than_a_unit_from_exact_times(
        now in time(), last in ago(), told in ago(), levels: [bool; 2], dropped: bool,
    ) {
        let [was_dropped, drop_told] = levels;
        let [(last_at, last), (told_at, told)] =
            [(last, was_dropped), (told, drop_told)].map(|(ago, dropped)| {
                let at = now.wrapping_add_signed(-ago);
                (at & !1 | u64::from(dropped), now.wrapping_sub(noted(at, dropped)) as i64)
            });
        let it = Episode(Cell::new(Episode::of_times(last_at, told_at).0));
        let found = it.refuse(now, !dropped);
        let off = UNIT as i64 - 1;
        let possible = [-off, 0, off].map(|last_off| {
            [-off, 0, off].map(|told_off| {
                emission((last + last_off, was_dropped), (told + told_off, drop_told), dropped)
            })
        });
        prop_assert!(possible.as_flattened().contains(&found), "{:?}: {:?}", found, possible);
    }

    /// Whoever looks at an entry hears when its source was refused last.
    #[test]
    fn a_time_is_kept_to_a_unit(now in time(), last in ago(), dropped: bool) {
        let at = now.wrapping_add_signed(-last);
        let it = Episode(Cell::new(0));
        prop_assert_eq!(it.refuse(at, !dropped), Emission::Begins);
        let kept = Episode(it.0.get()).last_at(now);
        prop_assert_eq!(kept, noted(at, dropped) / UNIT * UNIT);
    }
}
