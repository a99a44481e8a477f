//! Counts that follow a change of policy.

use limiter_common::algorithm::{gcra::Gcra, policer::Decision, window::Window};
use proptest::prelude::*;

use super::{cases, magnitude};

fn window() -> impl Strategy<Value = Window> {
    (magnitude(63), magnitude(55)).prop_filter_map("makes no window", |(limit, length)| {
        Window::new(limit, length + Window::SHORTEST).ok()
    })
}

/// What a window says of a word: all that it admits, and of what.
fn share(window: &Window, fill: u64) -> [u128; 2] {
    [fill >> window.unit, window.limit].map(u128::from)
}

/// A word with so much in it, in 2^-16 of the limit, in the previous window and in this one.
fn word(window: &Window, now: u64, [previous, current]: [u16; 2]) -> u64 {
    let mut word = window.full(now.saturating_sub(window.length));
    for (at, part) in [(now.saturating_sub(window.length), previous), (now, current)] {
        let cost = (u128::from(window.limit) * u128::from(part)).div_ceil(0xffff) as u64;
        if let Decision::Conform(next) = window.decide(word, at, cost << window.unit, true) {
            word = next;
        }
    }
    word
}

proptest! {
    #![proptest_config(cases(20_000))]

    #[test]
    fn the_share_that_is_used_is_kept_and_never_less(
        from in window(), to in window(), same in any::<bool>(), now in magnitude(62),
        parts in any::<[u16; 2]>(),
    ) {
        let to = if same { Window { length: from.length, ..to } } else { to };
        let word = word(&from, now, parts);
        for sliding in [false, true] {
            let carried = to.carry(word, &from, now, sliding);
            let (was, is) = (from.fill(word, now, sliding), to.fill(carried, now, sliding));
            let ([was, of], [is, limit]) = (share(&from, was), share(&to, is));
            let was = was.min(of);
            // What was told is rounded up to a unit, which may be coarser than one of the other. Of a
            // sliding window, the previous count is rounded up to one of which 16 bits are kept, and is
            // carried as the limit if it is above that then.
            let coarse = if sliding { from.bits.clamp(16, 32) - 16 } else { 0 };
            let least = was.saturating_sub(1 << coarse);
            prop_assert!(is * of >= least * limit, "{is} of {limit}, was {was} of {of}");
            // Both counts are rounded up, the previous one as far as it is kept, in both.
            let most = was * limit / of + 2 * (limit >> 15) + 2 * limit.div_ceil(of) + 3;
            prop_assert!(is <= most, "{is} of {limit}, was {was} of {of}");
            if from == to {
                prop_assert_eq!(carried, word);
            }
        }
    }

    #[test]
    fn a_full_window_stays_full_until_it_ends(
        from in window(), to in window(), same in any::<bool>(), now in magnitude(62), any: u64,
    ) {
        let to = if same { Window { length: from.length, ..to } } else { to };
        let Decision::Conform(full) =
            from.decide(from.full(now), now, from.limit << from.unit, false) else { panic!() };
        let carried = to.carry(full, &from, now, false);
        let end = now - now % to.length + to.length;
        for at in [now, now + any % (end - now), end - 1] {
            prop_assert_eq!(to.decide(carried, at, 1, false), Decision::Exceed);
            prop_assert_eq!(to.decide(to.carry(full, &from, now, true), at, 1, true), Decision::Exceed);
        }
        prop_assert!(matches!(to.decide(carried, end, 1, false), Decision::Conform(_)));
    }

    /// A new window starts empty, and what the clock went far back from full.
    #[test]
    fn no_state_is_an_empty_window_and_lost_state_a_full_one(
        from in window(), to in window(), word: u64, now in magnitude(62),
    ) {
        prop_assert_eq!(to.carry(word, &Window::default(), now, false), to.full(now));
        prop_assert_eq!(to.carry(word, &Window::default(), now, true), to.full(now));
        prop_assume!(from != to);
        let later = now + 2 * from.length + 2 * Gcra::TOLERANCE;
        let carried = to.carry(from.full(later), &from, now, false);
        prop_assert_eq!(to.decide(carried, now, 1, false), Decision::Exceed);
    }
}
