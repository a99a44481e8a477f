//! State that follows a change of policy.

use limiter_common::gcra::{Decision, Gcra, Scale};
use proptest::prelude::*;

use super::{bucket, cases, magnitude};

/// What is spent of a bucket, in units.
fn spent(gcra: &Gcra, word: u64, now: u64) -> u64 {
    u64::try_from(word.wrapping_sub(now << gcra.shift).cast_signed()).unwrap_or(0)
}

/// A time, a bucket, and what is spent of it; more than all of it when a token is owed in part.
fn state() -> impl Strategy<Value = (u64, Gcra, u64)> {
    (magnitude(64), bucket()).prop_flat_map(|(now, gcra)| {
        let tokens = 0..=gcra.depth / gcra.interval;
        let spent = prop_oneof![
            0..=gcra.depth,
            tokens.prop_map(move |tokens| tokens * gcra.interval),
            (0..=3_u64).prop_map(move |few| few.min(gcra.depth)),
            (0..=3_u64).prop_map(move |few| gcra.depth.saturating_sub(few)),
            (0..gcra.interval).prop_map(move |debt| gcra.depth + debt),
            // About where the share is a whole number of 2^-20.
            (magnitude(20), magnitude(17)).prop_map(move |(share, more)| {
                let least = (u128::from(gcra.depth) * u128::from(share)) >> 20;
                (least as u64 + more).min(gcra.depth)
            }),
        ];
        (Just(now), Just(gcra), spent)
    })
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// A debt is no share of a bucket: what owes is empty.
    #[test]
    fn the_share_that_is_left_is_kept_and_never_more((now, from, was) in state(), to in bucket()) {
        prop_assume!(from.scale() != to.scale());
        let word = from.full(now).wrapping_add(was);
        let is = spent(&to, to.carry(word, from.scale(), now), now).min(to.depth);
        let was = was.min(from.depth);
        let [was, is, from, to] = [was, is, from.depth, to.depth].map(u128::from);
        prop_assert!(is * from >= was * to, "{is} of {to}, was {was} of {from}");
        // By at most 2^-20, what 43 bits of the deepest buckets do not tell, and rounding.
        let most = was * to / from + (to >> 20) + (to >> 41) + 3;
        prop_assert!(is <= most.min(to), "{is} of {to}, was {was} of {from}");
    }

    #[test]
    fn full_stays_full_and_empty_stays_empty(
        from in bucket(), to in bucket(), now in magnitude(64), beyond in magnitude(63),
    ) {
        prop_assume!(from.scale() != to.scale());
        let ahead = from.depth.saturating_add(beyond).min(u64::MAX / 2);
        let empty = to.carry(from.full(now).wrapping_add(ahead), from.scale(), now);
        // It owes what it owed, in time, up to an interval and rounded up.
        let owed = empty.wrapping_sub(to.full(now)) - to.depth;
        prop_assert!(owed <= to.interval);
        let debt = u128::from(ahead - from.depth) << to.shift >> from.shift;
        prop_assert!(u128::from(owed) >= debt.min(u128::from(to.interval >> to.shift << to.shift)));
        prop_assert_eq!(to.decide(empty, now), Decision::Exceed);
        let passed = from.full(now).wrapping_sub(beyond);
        prop_assert_eq!(to.carry(passed, from.scale(), now), to.full(now));
    }

    #[test]
    fn a_limit_that_did_not_change_keeps_its_word(
        gcra in bucket(), word: u64, now in magnitude(64),
    ) {
        prop_assert_eq!(gcra.carry(word, gcra.scale(), now), word);
    }

    #[test]
    fn a_new_limit_starts_full(gcra in bucket(), word: u64, now in magnitude(64)) {
        prop_assert_eq!(gcra.carry(word, Gcra::default().scale(), now), gcra.full(now));
    }

    /// Also of a scale that no bucket has, and to no bucket.
    #[test]
    fn nothing_carries_beyond_empty(
        word: u64, scale: u64, to in prop_oneof![bucket(), Just(Gcra::default())],
        now in magnitude(64),
    ) {
        prop_assume!(Scale(scale) != to.scale());
        let carried = to.carry(word, Scale(scale), now);
        prop_assert!(carried.wrapping_sub(to.full(now)) <= to.depth + to.interval);
    }

    #[test]
    fn a_scale_tells_depth_and_shift(gcra in bucket()) {
        let scale = gcra.scale();
        prop_assert_eq!((scale.depth(), scale.shift()), (gcra.depth, gcra.shift));
        prop_assert_ne!(scale, Gcra::default().scale());
    }
}
