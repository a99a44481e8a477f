//! Charges after the fact, and refunds.

use super::*;

impl Decider {
    fn settled(&mut self, asked: &Asked, hits: u64, settlement: Settlement, now: u64) -> Answer {
        let mut answer = Answer::default();
        assert!(self.settle(&asked.request(), hits, settlement, now, &mut answer));
        answer
    }
}

/// All algorithms with a quota of 5 and a window, or a burst, of 10 s; with what a charge of 12 leaves charged.
fn algorithms() -> [(Allowance, u64); 6] {
    let (rate, window) = (Rate { packets: 1, period: 2 * SECOND }, 10 * SECOND);
    [
        (Allowance::TokenBucket { rate, burst: 5 }, 12),
        (Allowance::LeakyBucket { rate, depth: 5 }, 12),
        (Allowance::Gcra { rate, tolerance: 9 * SECOND }, 12),
        (Allowance::FixedWindow { limit: 5, window }, 5),
        (Allowance::SlidingWindow { limit: 5, window }, 5),
        (Allowance::SlidingLog { limit: 5, window }, 12),
    ]
}

#[test]
fn a_charge_goes_beyond_the_limit_and_a_refund_gives_it_back() {
    for (allowance, charged) in algorithms() {
        let mut decider = decider(&policy(&[by_source("source", allowance)]));
        let asked = Asked::default();
        let left = |answer: &Answer| answer.standings[0].left;
        let answer = decider.settled(&asked, 2, Settlement::Charge, NOW);
        assert_eq!((answer.verdict, left(&answer)), (Verdict::Pass, 3), "{allowance:?}");
        let answer = decider.settled(&asked, 10, Settlement::Charge, NOW);
        assert_eq!((answer.verdict, left(&answer)), (Verdict::Limited, 0), "{allowance:?}");
        assert!(answer.wait() > 0 && answer.wait() <= 20 * SECOND, "{allowance:?}");
        assert!(!decider.passes(&asked, NOW + answer.wait() - 1), "{allowance:?}");
        let answer = decider.settled(&asked, charged - 4, Settlement::Refund, NOW);
        assert_eq!((answer.verdict, left(&answer)), (Verdict::Pass, 1), "{allowance:?}");
        // No more comes back than was charged.
        let answer = decider.settled(&asked, u64::MAX, Settlement::Refund, NOW);
        assert_eq!((left(&answer), answer.standings[0].refills), (5, 0), "{allowance:?}");
        assert_eq!(decider.admitted(&asked, NOW), 5, "{allowance:?}");
        // Neither counts as a request.
        assert_eq!(decider.row("source").conform, 5);
    }
}

#[test]
fn a_debt_ends_after_a_day() {
    for (allowance, _) in algorithms() {
        let mut decider = decider(&policy(&[by_source("source", allowance)]));
        let asked = Asked::default();
        for _ in 0..3 {
            let answer = decider.settled(&asked, u64::MAX, Settlement::Charge, NOW);
            assert!(answer.wait() <= 86_410 * SECOND, "{allowance:?}: {}", answer.wait());
        }
        assert!(decider.passes(&asked, NOW + 86_410 * SECOND), "{allowance:?}");
    }
}

#[test]
fn a_refund_makes_no_key_and_a_charge_does() {
    let mut decider = decider(&policy(&[by_source("source", per_minute(1, 5))]));
    let asked = Asked::default();
    decider.settled(&asked, 3, Settlement::Refund, NOW);
    assert_eq!(decider.counts().keys, 0);
    decider.settled(&asked, 3, Settlement::Charge, NOW);
    assert_eq!((decider.counts().keys, decider.admitted(&asked, NOW)), (1, 2));
}

#[test]
fn nothing_is_settled_where_no_limit_is_about_it() {
    let mut policy = policy(&[by_user("user", per_minute(1, 2))]);
    policy.allow =
        vec![Listed { whom: Whom::Prefix("198.51.100.0/24".parse().unwrap()), until: None }];
    let mut decider = decider(&policy);
    let mut answer = Answer::default();
    let lacks = Asked::default();
    assert!(!decider.settle(&lacks.request(), 1, Settlement::Charge, NOW, &mut answer));
    assert_eq!(decider.row("user").missing, 0, "it is no request");
    let allowed = Asked::from("198.51.100.1").user("anna");
    let answer = decider.settled(&allowed, 9, Settlement::Charge, NOW);
    assert_eq!((answer.verdict, answer.standings.len()), (Verdict::Pass, 0));
    assert_eq!(decider.counts().keys, 0);
}

/// Keys without room share a state, and charges are no way around it.
#[test]
fn keys_that_share_a_state_are_charged_together() {
    let mut decider = decider(&policy(&[by_source("source", per_minute(1, 3))]));
    for number in 0..4_000_u32 {
        let source = Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into());
        decider.settled(&Asked { source, ..Asked::default() }, 3, Settlement::Charge, NOW);
    }
    assert!(decider.counts().shared > 2_000);
    let mut passed = 0;
    for number in 0..200_u32 {
        let source = Some(std::net::Ipv4Addr::from_bits(0x0b00_0000 + number).into());
        passed += decider.admitted(&Asked { source, ..Asked::default() }, NOW);
    }
    assert!(passed < 200 * 3, "{passed}");
}

/// Also where all keys owed, and that was noted.
#[test]
fn a_refund_makes_room_for_a_newcomer() {
    let mut decider = decider(&policy(&[by_source("source", per_minute(1, 3))]));
    let from = |number: u32| {
        let source = Some(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into());
        Asked { source, ..Asked::default() }
    };
    for number in 0..8_000 {
        decider.ask(&from(number), NOW);
    }
    let shared = decider.counts().shared;
    assert!(shared > 4_000);
    for number in 0..8_000 {
        decider.settled(&from(number), 1, Settlement::Refund, NOW);
    }
    for number in 8_000..8_500 {
        decider.ask(&from(number), NOW);
    }
    assert_eq!(decider.counts().shared, shared, "no key owes any more");
}

/// Other numbers leave a debt of more than one request as it was, in time.
#[test]
fn a_debt_outlives_other_numbers() {
    let mut decider = decider(&policy(&[by_source("source", per_minute(60, 5))]));
    let (asked, mut answer) = (Asked::default(), Answer::default());
    assert_eq!(decider.admitted(&asked, NOW), 5);
    // A cost that is told owes up to a burst.
    decider.decide(&asked.request(), 5, NOW + SECOND, &mut answer);
    assert_eq!((answer.verdict, answer.standings[0].wait), (Verdict::Pass, 4 * SECOND + 1));
    decider.apply(&policy(&[by_source("source", per_minute(60, 6))])).unwrap();
    decider.peek(&asked.request(), 1, NOW + SECOND, &mut answer);
    assert_eq!(answer.verdict, Verdict::Limited);
    assert!(answer.wait().abs_diff(4 * SECOND) < SECOND / 100, "{}", answer.wait());
    decider.settled(&asked, 100, Settlement::Charge, NOW + SECOND);
    decider.apply(&policy(&[by_source("source", per_minute(120, 5))])).unwrap();
    decider.peek(&asked.request(), 1, NOW + SECOND, &mut answer);
    assert!(answer.wait().abs_diff(104 * SECOND) < SECOND / 100, "{}", answer.wait());
}

/// A refund has no request to refuse, whatever is left and whoever asks.
#[test]
fn a_refund_of_a_bill_passes_and_tells_what_is_left() {
    for (allowance, charged) in algorithms() {
        let mut policy = policy(&[by_source("source", allowance)]);
        policy.deny =
            vec![Listed { whom: Whom::Prefix("198.51.100.0/24".parse().unwrap()), until: None }];
        let mut decider = decider(&policy);
        let refund = |decider: &mut Decider, asked: &Asked, hits| {
            let (mut answer, request) = (Answer::default(), asked.request());
            let item = Item { request: &request, hits, effect: Effect::Refund };
            decider.decide_all(&[item], NOW, from_mut(&mut answer));
            assert_eq!((answer.verdict, answer.refused_by), (Verdict::Pass, None), "{allowance:?}");
            answer.standings.first().map(|standing| standing.left)
        };
        let asked = Asked::default();
        decider.settled(&asked, 12, Settlement::Charge, NOW);
        // What owes more has nothing left, and its refund passes.
        let left = 5_u64.saturating_sub(charged - 1);
        assert_eq!(refund(&mut decider, &asked, 1), Some(left), "{allowance:?}");
        assert_eq!(refund(&mut decider, &asked, u64::MAX), Some(5), "{allowance:?}");
        let denied = Asked::from("198.51.100.1");
        assert_eq!(refund(&mut decider, &denied, 1), None);
        assert_eq!((decider.row("source").conform, decider.counts().denied), (0, 0));
    }
}
