//! State that follows a change of policy.

use limiter_common::algorithm::{
    gcra::{Gcra, Scale},
    meter::Meter,
    policer::{Decision, Policer as _},
};
use proptest::prelude::*;

use super::{ahead, bucket, cases, magnitude};

/// A time, a bucket, and what is spent of it; more than all of it when a packet is owed in part.
fn state() -> impl Strategy<Value = (u64, Gcra, u64)> {
    (magnitude(64), bucket()).prop_flat_map(|(now, (gcra, _))| {
        let packets = 0..=gcra.depth / gcra.dearest;
        let spent = prop_oneof![
            0..=gcra.depth,
            packets.prop_map(move |packets| packets * gcra.dearest),
            (0..=3_u64).prop_map(move |few| few.min(gcra.depth)),
            (0..=3_u64).prop_map(move |few| gcra.depth.saturating_sub(few)),
            (0..gcra.dearest).prop_map(move |debt| gcra.depth + debt),
            // About where the share is a whole number of 2^-20.
            (magnitude(20), magnitude(17)).prop_map(move |(share, more)| {
                let least = (u128::from(gcra.depth) * u128::from(share)) >> 20;
                (least as u64 + more).min(gcra.depth)
            }),
        ];
        (Just(now), Just(gcra), spent)
    })
}

fn any_bucket() -> impl Strategy<Value = Gcra> {
    bucket().prop_map(|(gcra, _)| gcra)
}

proptest! {
    #![proptest_config(cases(20_000))]

    /// A debt is no share of a bucket: what owes is empty.
    #[test]
    fn the_share_that_is_left_is_kept_and_never_more((now, from, was) in state(), to in any_bucket()) {
        prop_assume!(from.scale() != to.scale());
        let word = from.fresh(now).wrapping_add(was);
        let carried = to.carry(word, from.scale(), now);
        prop_assert_eq!(Meter::bucket(to).carry(word, Meter::bucket(from).measure(), now), carried);
        let is = ahead(&to, carried, now).min(to.depth);
        let was = was.min(from.depth);
        let [was, is, from, to] = [was, is, from.depth, to.depth].map(u128::from);
        prop_assert!(is * from >= was * to, "{is} of {to}, was {was} of {from}");
        // By at most 2^-20, what 43 bits of the deepest buckets do not tell, and rounding.
        let most = was * to / from + (to >> 20) + (to >> 41) + 3;
        prop_assert!(is <= most.min(to), "{is} of {to}, was {was} of {from}");
    }

    #[test]
    fn full_stays_full_and_empty_stays_empty(
        from in any_bucket(), (to, dearest) in bucket(), now in magnitude(64),
        beyond in magnitude(63),
    ) {
        prop_assume!(from.scale() != to.scale());
        let ahead = from.depth.saturating_add(beyond).min(u64::MAX / 2);
        let empty = to.carry(from.fresh(now).wrapping_add(ahead), from.scale(), now);
        // It owes what it owed, in time, up to the dearest packet and rounded up.
        let owed = empty.wrapping_sub(to.fresh(now)) - to.depth;
        prop_assert!(owed <= to.dearest);
        let debt = u128::from(ahead - from.depth) << to.shift >> from.shift;
        prop_assert!(u128::from(owed) >= debt.min(u128::from(to.dearest >> to.shift << to.shift)));
        for cost in [1, dearest] {
            prop_assert_eq!(to.decide(empty, now, cost), Decision::Exceed);
        }
        let passed = from.fresh(now).wrapping_sub(beyond);
        prop_assert_eq!(to.carry(passed, from.scale(), now), to.fresh(now));
    }

    #[test]
    fn a_limit_that_did_not_change_keeps_its_word(
        gcra in any_bucket(), word: u64, now in magnitude(64),
    ) {
        prop_assert_eq!(gcra.carry(word, gcra.scale(), now), word);
    }

    #[test]
    fn a_new_limit_starts_full(gcra in any_bucket(), word: u64, now in magnitude(64)) {
        prop_assert_eq!(gcra.carry(word, Gcra::default().scale(), now), gcra.fresh(now));
    }

    /// Also of a scale that no bucket has, and to no bucket.
    #[test]
    fn nothing_carries_beyond_empty(
        word: u64, scale: u64, to in prop_oneof![any_bucket(), Just(Gcra::default())],
        now in magnitude(64),
    ) {
        prop_assume!(Scale(scale) != to.scale());
        let carried = to.carry(word, Scale(scale), now);
        prop_assert!(carried.wrapping_sub(to.fresh(now)) <= to.depth + to.dearest);
    }

    #[test]
    fn a_scale_tells_depth_and_shift(gcra in any_bucket()) {
        let scale = gcra.scale();
        prop_assert_eq!((scale.depth(), scale.shift()), (gcra.depth, u64::from(gcra.shift)));
        prop_assert_eq!(Meter::bucket(gcra).measure().scale, scale.0);
        prop_assert_ne!(scale, Gcra::default().scale());
    }
}
