//! Limits of open requests: places, and when they are free again.

use limiter_common::algorithm::concurrent::Concurrent;

use super::*;
use crate::policy::model::Idempotency;

const IDLE: u64 = 60 * SECOND;

fn open(limit: u64) -> Allowance {
    Allowance::Concurrent { limit, idle: IDLE }
}

fn decider_of(limits: &[RequestLimit]) -> Decider {
    decider(&policy(limits))
}

impl Decider {
    /// The places that a request takes, which has to pass.
    #[track_caller]
    fn enter(&mut self, asked: &Asked, now: u64) -> Leases {
        let answer = self.ask(asked, now);
        assert_eq!(answer.verdict, Verdict::Pass);
        answer.leases
    }
}

#[test]
fn a_request_that_ends_makes_room_once() {
    let mut decider = decider_of(&[by_source("web", open(3))]);
    let asked = Asked::default();
    let leases: Vec<Leases> = (0..3).map(|_| decider.enter(&asked, NOW)).collect();
    let refused = decider.ask(&asked, NOW + SECOND);
    assert_eq!((refused.verdict, refused.refused_by), (Verdict::Limited, Some(0)));
    assert!(refused.leases.is_empty() && refused.standings[0].is_of_open());
    assert_eq!(decider.release(&leases[1], NOW + SECOND), 1);
    let again = decider.enter(&asked, NOW + SECOND);
    // Who had the place before cannot give it back a second time.
    assert_eq!(decider.release(&leases[1], NOW + SECOND), 0);
    assert!(!decider.passes(&asked, NOW + SECOND));
    for leases in [&leases[0], &leases[2], &again] {
        assert_eq!(decider.release(leases, NOW + SECOND), 1);
    }
    assert_eq!((decider.counts().released, decider.open().count(NOW + SECOND)), (4, vec![Some(0)]));
    // Nobody knows a lease of another table.
    let other = decider_of(&[by_source("web", open(3))]).enter(&asked, NOW);
    decider.enter(&asked, NOW);
    assert_eq!(decider.release(&other, NOW), 0);
    assert_eq!(decider.open().count(NOW), [Some(1)]);
}

#[test]
fn a_place_that_nobody_gives_back_is_free_after_its_time() {
    let mut decider = decider_of(&[by_source("web", open(2))]);
    let asked = Asked::default();
    decider.enter(&asked, NOW);
    let second = decider.enter(&asked, NOW + 10 * SECOND);
    let now = NOW + 20 * SECOND;
    let wait = decider.ask(&asked, now).wait();
    assert!((40 * SECOND..=48 * SECOND).contains(&wait), "{wait}: `idle` and an eighth at most");
    assert!(!decider.passes(&asked, now + wait - 1));
    decider.enter(&asked, now + wait);
    assert!(!decider.passes(&asked, now + wait));
    decider.release(&second, now + wait);
    decider.enter(&asked, now + wait);
}

/// A key of open requests has its entry while they are open, also where the last one was taken longer ago than the new time.
#[test]
fn another_time_forgets_no_open_request() {
    let of_idle = |idle| {
        let allowance = Allowance::Concurrent { limit: 9, idle };
        policy(&[by_source("web", allowance)])
    };
    let mut decider = decider(&of_idle(600 * SECOND));
    let asked = Asked::default();
    decider.enter(&asked, NOW);
    // Too soon for the time of the key to be noted anew.
    decider.enter(&asked, NOW + 60 * SECOND);
    decider.apply(&of_idle(64 * SECOND)).unwrap();
    let now = NOW + 60 * SECOND + 1;
    let mut answer = Answer::default();
    decider.peek(&asked.request(), 1, now, &mut answer);
    let later = now + 20 * SECOND;
    assert_eq!(decider.open().count(later), [Some(1)], "that which is open for 20 s");
}

#[test]
fn a_place_is_taken_with_all_limits_or_not_at_all() {
    let candidate = Some(open(1));
    let mut decider = decider_of(&[
        by_source("rate", per_minute(1, 2)),
        RequestLimit { candidate, ..by_user("open", open(9)) },
        RequestLimit { mode: Mode::Monitor, ..limit("all", &[], open(1)) },
    ]);
    let asked = Asked::default().user("anna");
    let first = decider.enter(&asked, NOW);
    let second = decider.enter(&asked, NOW);
    assert!(!decider.passes(&asked, NOW));
    // A limit that refuses nobody counts those that it would not have refused.
    let open = |decider: &Decider| {
        let names = ["rate", "open", "open (candidate)", "all"];
        let counts = decider.counts();
        let at = names.map(|name| counts.rows.iter().position(|row| row.name == name).unwrap());
        let open = decider.open().count(NOW);
        at.map(|at| open[at])
    };
    assert_eq!(open(&decider), [None, Some(2), Some(1), Some(1)]);
    assert_eq!([&first, &second].map(|leases| leases.0.len()), [3, 1]);
    assert_eq!(decider.release(&first, NOW), 3);
    assert_eq!(open(&decider), [None, Some(1), Some(0), Some(0)]);
}

#[test]
fn a_dear_request_takes_as_many_places_as_it_costs() {
    let mut decider = decider_of(&[by_source("web", open(5))]);
    let (asked, mut answer) = (Asked::default(), Answer::default());
    decider.decide(&asked.request(), 3, NOW, &mut answer);
    let dear = answer.leases.clone();
    assert_eq!((answer.verdict, answer.standings[0].left), (Verdict::Pass, 2));
    decider.decide(&asked.request(), 3, NOW, &mut answer);
    assert_eq!((answer.verdict, answer.leases.is_empty()), (Verdict::Limited, true));
    decider.peek(&asked.request(), 2, NOW, &mut answer);
    assert_eq!((answer.verdict, answer.leases.is_empty()), (Verdict::Pass, true));
    assert_eq!(decider.release(&dear, NOW), 3);
    decider.decide(&asked.request(), 5, NOW, &mut answer);
    assert_eq!((answer.verdict, decider.open().count(NOW)), (Verdict::Pass, vec![Some(5)]));
}

#[test]
fn requests_of_one_bill_take_their_places_together() {
    let mut decider = decider_of(&[by_source("web", open(3)), by_user("user", open(1))]);
    let asked = [Asked::default().user("anna"), Asked::default().user("bert")];
    let requests = asked.each_ref().map(Asked::request);
    let items =
        requests.each_ref().map(|request| Item { request, hits: 1, effect: Effect::Charge });
    let mut answers = [Answer::default(), Answer::default()];
    decider.decide_all(&items, NOW, &mut answers);
    assert_eq!(answers.each_ref().map(|answer| answer.leases.0.len()), [2, 1]);
    assert_eq!(decider.open().count(NOW).iter().flatten().sum::<u64>(), 4);
    let taken = answers.each_ref().map(|answer| answer.leases.clone());
    decider.decide_all(&items, NOW, &mut answers);
    assert!(answers.iter().all(|answer| answer.verdict == Verdict::Limited));
    let released: u64 = taken.iter().map(|leases| decider.release(leases, NOW)).sum();
    assert_eq!(released, 4);
}

#[test]
fn a_lowered_limit_lets_nobody_in_until_enough_have_ended() {
    let limits = |number| policy(&[by_source("web", open(number))]);
    let mut decider = decider(&limits(5));
    let asked = Asked::default();
    let leases: Vec<Leases> = (0..5).map(|at| decider.enter(&asked, NOW + at * SECOND)).collect();
    decider.apply(&limits(3)).unwrap();
    let now = NOW + 5 * SECOND;
    let wait = decider.ask(&asked, now).wait();
    for leases in &leases[..2] {
        decider.release(leases, now);
        assert!(!decider.passes(&asked, now));
    }
    assert_eq!(decider.ask(&asked, now).wait(), wait, "the third one ends then");
    decider.release(&leases[2], now);
    decider.enter(&asked, now);
    // A policy without the limit forgets none.
    decider.apply(&policy(&[])).unwrap();
    assert_eq!(decider.release(&leases[3], now), 1);
    decider.apply(&limits(3)).unwrap();
    assert_eq!(decider.open().count(now), [Some(2)]);
}

#[test]
fn places_outlive_the_process() {
    let directory = Directory::new();
    let policy = policy(&[by_source("web", open(2)), by_user("user", open(9))]);
    let start = || Decider::new(&policy, Table::open(&directory.file(), 1_024).unwrap()).unwrap();
    let asked = Asked::default().user("anna");
    let mut decider = start();
    let [first, _] = [0, 1].map(|_| decider.enter(&asked, NOW).to_string());
    drop(decider);
    let mut decider = start();
    assert_eq!(decider.open().count(NOW), [Some(2), Some(2)]);
    assert!(!decider.passes(&asked, NOW));
    assert_eq!(decider.release(&first.parse().unwrap(), NOW), 2);
    decider.enter(&asked, NOW);
    assert!(!decider.passes(&asked, NOW));
    drop(decider);
    assert!(start().passes(&asked, NOW + 2 * IDLE));
}

/// A table of one set for open requests, which 16 sources fill.
#[test]
fn sources_without_an_entry_share_places_and_get_them_back() {
    let policy = policy(&[by_source("web", open(2))]);
    let mut decider = Decider::new(&policy, Table::in_memory(16)).unwrap();
    let source = |number: u64| Asked::from(&format!("192.0.2.{number}"));
    let own: Vec<Leases> = (1..=16).map(|number| decider.enter(&source(number), NOW)).collect();
    // They share what as many keys have as may share it.
    let most = 2 * limiter_common::abi::table::WAYS as u64;
    let shared: Vec<Leases> =
        (0..most).map(|number| decider.enter(&source(100 + number), NOW)).collect();
    assert!(!decider.passes(&source(200), NOW), "there is none left");
    assert_eq!(decider.open().count(NOW), [Some(16 + most)]);
    assert_eq!(decider.release(&shared[7], NOW), 1);
    decider.enter(&source(201), NOW);
    // Whoever has no request open makes room for another source at once.
    assert_eq!(decider.release(&own[3], NOW), 1);
    decider.enter(&source(202), NOW);
    assert!(!decider.passes(&source(203), NOW));
    assert!(decider.passes(&source(1), NOW), "it has its own place");
}

#[test]
fn a_repeat_takes_no_place_and_gives_none_back() {
    let idempotency = Some(Idempotency { window: IDLE });
    let mut decider = decider_of(&[RequestLimit { idempotency, ..by_source("web", open(2)) }]);
    let mut asked = Asked::default();
    asked.headers.0.insert(Idempotency::HEADER, "a".to_owned());
    let first = decider.enter(&asked, NOW);
    assert!(decider.enter(&asked, NOW).is_empty());
    assert_eq!(decider.open().count(NOW), [Some(1)]);
    assert_eq!(decider.release(&first, NOW), 1);
    assert_eq!(decider.open().count(NOW), [Some(0)]);
}

#[test]
fn what_is_settled_afterwards_takes_no_place() {
    let mut decider = decider_of(&[by_source("web", open(2))]);
    let (asked, mut answer) = (Asked::default(), Answer::default());
    decider.enter(&asked, NOW);
    for settlement in [Settlement::Charge, Settlement::Refund] {
        decider.settle(&asked.request(), 2, settlement, NOW, &mut answer);
        assert_eq!((answer.standings[0].left, decider.open().count(NOW)), (1, vec![Some(1)]));
    }
}

#[test]
fn requests_are_near_by_their_places() {
    let mut decider = decider_of(&[by_source("web", open(5))]);
    for near in [0, 0, 0, 1, 2] {
        decider.enter(&Asked::default(), NOW);
        assert_eq!(decider.row("web").near, near);
    }
    let most = Concurrent::MOST as u64;
    let mut decider = decider_of(&[by_source("web", open(most))]);
    assert_eq!(decider.admitted(&Asked::default(), NOW), most);
}
