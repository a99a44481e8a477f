//! One decision, on any word at any time.

use limiter_common::gcra::{Decision, Gcra};
use proptest::prelude::*;

use super::{bucket, cases, magnitude};

/// How far ahead of now a word is, in units; a word that has passed is not ahead.
fn ahead(gcra: &Gcra, word: u64, now: u64) -> u64 {
    u64::try_from(word.wrapping_sub(now << gcra.shift).cast_signed()).unwrap_or(0)
}

/// The word of a bucket that owes as much as it holds, and the tolerance, in units ahead of now.
fn furthest(gcra: &Gcra) -> u64 {
    2 * gcra.depth + (Gcra::TOLERANCE << gcra.shift)
}

/// Words around those that decide.
fn word_at(gcra: &Gcra, now: u64, kind: u8, any: u64) -> u64 {
    let near = any % 5;
    let ahead = match kind {
        0 => return any,
        1 => any % gcra.depth,
        2 => gcra.depth + near,
        3 => 2 * gcra.depth + near,
        _ => furthest(gcra) + near,
    };
    gcra.full(now).wrapping_add(ahead).wrapping_sub(2)
}

proptest! {
    #![proptest_config(cases(6_000))]

    #[test]
    fn a_decision_is_what_the_word_says(
        gcra in bucket(), now in magnitude(64), kind in 0..5_u8, any: u64,
    ) {
        let word = word_at(&gcra, now, kind, any);
        let before = ahead(&gcra, word, now);
        match gcra.decide(word, now) {
            Decision::Conform(next) => {
                prop_assert_eq!(ahead(&gcra, next, now), before + gcra.interval);
                prop_assert!(before < gcra.depth);
            }
            Decision::Exceed => {
                prop_assert!(before >= gcra.depth && before <= furthest(&gcra));
            }
            Decision::Lost(empty) => {
                prop_assert!(before > furthest(&gcra));
                prop_assert_eq!(ahead(&gcra, empty, now), gcra.depth);
                prop_assert_eq!(gcra.decide(empty, now), Decision::Exceed);
            }
        }
    }

    #[test]
    fn a_full_bucket_admits_its_burst_at_once(
        gcra in bucket(), now in magnitude(64), spent in magnitude(10),
    ) {
        let burst = gcra.depth / gcra.interval;
        let spent = spent.min(burst);
        let word = gcra.full(now).wrapping_add(spent * gcra.interval);
        let conforms = matches!(gcra.decide(word, now), Decision::Conform(_));
        prop_assert_eq!(conforms, spent < burst);
        let empty = gcra.full(now).wrapping_add(burst * gcra.interval);
        prop_assert_eq!(gcra.decide(empty, now), Decision::Exceed);
    }

    /// A packet passes as soon as what the last ones owe is refilled and not a nanosecond before,
    /// whatever wraps in between.
    #[test]
    fn a_debt_is_refilled_in_time(gcra in bucket(), now in magnitude(64), any: u64) {
        let debt = any % gcra.interval;
        let word = gcra.full(now).wrapping_add(gcra.depth + debt);
        let wait = (debt >> gcra.shift) + 1;
        prop_assume!(now <= u64::MAX - wait);
        prop_assert!(matches!(gcra.decide(word, now + wait), Decision::Conform(_)));
        prop_assert_eq!(gcra.decide(word, now + wait - 1), Decision::Exceed);
    }

    /// The wait that is told is the shortest after which a packet conforms.
    #[test]
    fn the_wait_ends_when_a_packet_conforms(
        gcra in bucket(), now in magnitude(64), kind in 1..5_u8, any: u64,
    ) {
        let word = word_at(&gcra, now, kind, any);
        let wait = gcra.wait(word, now);
        prop_assume!(now <= u64::MAX - wait);
        prop_assert!(matches!(gcra.decide(word, now + wait), Decision::Conform(_)));
        if wait > 0 {
            prop_assert!(!matches!(gcra.decide(word, now + wait - 1), Decision::Conform(_)));
        }
    }
}
