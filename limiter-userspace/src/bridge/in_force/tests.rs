use limiter_common::algorithm::rate::Rate;
use proptest::prelude::*;

use super::*;
use crate::{
    bridge::{answer::Verdict, fields::fields, request::Told},
    policy::model::{Allowance, RequestKeyPart, RequestLayer, RequestLimit},
};

const SECOND: u64 = 1_000_000_000;

/// Any allowance of requests.
fn any_allowance() -> impl Strategy<Value = Allowance> {
    let numbers = (1..20_u64, 1..120 * SECOND, 1..40_u64, 0..6);
    numbers.prop_map(|(limit, time, burst, kind)| {
        let rate = Rate { packets: limit, period: time.max(SECOND / 1_000) };
        // A window is a millisecond long at least.
        let window = time.max(SECOND / 1_000);
        match kind {
            0 => Allowance::TokenBucket { rate, burst },
            1 => Allowance::LeakyBucket { rate, depth: burst },
            2 => Allowance::Gcra { rate, tolerance: time },
            3 => Allowance::FixedWindow { limit, window },
            4 => Allowance::SlidingWindow { limit, window },
            _ => Allowance::SlidingLog { limit, window },
        }
    })
}

/// Asks one limit.
struct Only(&'static str);

impl Told for Only {
    fn header(&self, _: &str) -> Option<&str> {
        None
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }

    fn asks(&self, limit: &str) -> bool {
        limit == self.0
    }
}

/// A policy with a limit for each allowance, by the source or by nothing.
fn policy(allowances: &[Allowance]) -> Policy {
    let mut policy = Policy::default();
    for (place, allowance) in allowances.iter().enumerate() {
        let parts = [RequestKeyPart::Source];
        let mut limit = RequestLimit::new(format!("l{place}"), &parts[place % 2..]);
        limit.layers = vec![RequestLayer { allowance: *allowance, key: None }];
        policy.on_requests.push(limit);
    }
    policy
}

/// An answer that never arrives gives its places back: nobody else knows them.
#[test]
fn places_that_nobody_was_told_of_are_given_back() {
    let policy = policy(&[Allowance::Concurrent { limit: 3, idle: 3_600 * SECOND }]);
    let in_force = Arc::new(InForce::new(policy, Table::in_memory(16)).unwrap());
    let ask = || in_force.decide(&request(&Only("l0")), 1, false, query::now()).0;
    let open = || in_force.counts().1.count(query::now());
    let told = ask();
    in_force.untold(&told).tell();
    assert_eq!(open(), [Some(1)]);
    let lost = ask();
    assert_eq!(open(), [Some(2)]);
    drop(in_force.untold(&lost));
    assert_eq!(open(), [Some(1)]);
}

/// Open requests are counted while requests are decided about, however many there are.
#[test]
fn decisions_do_not_wait_until_open_requests_are_counted() {
    let policy = policy(&[Allowance::Concurrent { limit: 3, idle: 3_600 * SECOND }]);
    let in_force = Arc::new(InForce::new(policy, Table::in_memory(16)).unwrap());
    let ask = || in_force.decide(&request(&Only("l0")), 1, false, query::now()).0;
    let open = in_force.counts().1;
    let places = [ask(), ask()];
    let deciding = in_force.lock();
    assert_eq!(open.count(query::now()), [Some(2)]);
    drop(deciding);
    let counts = std::thread::scope(|scope| {
        let counting = scope
            .spawn(|| (0..1_000).filter_map(|_| open.count(query::now())[0]).collect::<Vec<u64>>());
        while !counting.is_finished() {
            in_force.release(&ask().leases, query::now());
        }
        counting.join().unwrap()
    });
    assert!(!counts.is_empty());
    assert!(counts.iter().all(|count| (2..=3).contains(count)), "{counts:?}");
    places.iter().for_each(|answer| in_force.release(&answer.leases, query::now()));
    assert_eq!(open.count(query::now()), [Some(0)]);
}

fn request(told: &dyn Told) -> Request<'_> {
    Request {
        method: None,
        host: None,
        path: None,
        domain: "",
        source: Some("192.0.2.9".parse().unwrap()),
        told,
    }
}

#[test]
fn limits_that_are_not_asked_are_not_charged() {
    let once = Allowance::FixedWindow { limit: 1, window: 3_600 * SECOND };
    let in_force = InForce::new(policy(&[once; 2]), Table::in_memory(64)).unwrap();
    let ask = |told: &dyn Told| in_force.decide(&request(told), 1, false, 7).0;
    let first = ask(&Only("l1"));
    assert_eq!((first.verdict, first.standings.len()), (Verdict::Pass, 1));
    assert_eq!(first.standings[0].limit, 1);
    assert_eq!(ask(&Only("l0")).verdict, Verdict::Pass);
    assert_eq!(ask(&Only("l1")).verdict, Verdict::Limited);
    assert_eq!(ask(&()).verdict, Verdict::Limited);
}

proptest! {
    #[test]
    fn who_waits_as_told_is_not_refused_again(
        allowances in prop::collection::vec(any_allowance(), 1..4),
        requests in prop::collection::vec((1..5_u64, 0..SECOND), 1..60),
        begin in any::<u32>(),
        jitter in any::<u32>(),
    ) {
        let in_force = InForce::new(policy(&allowances), Table::in_memory(64)).unwrap();
        let request = request(&());
        let mut now = 1_000 * SECOND + u64::from(begin);
        for (cost, pause) in requests {
            now += pause;
            let (answer, policy) = in_force.decide(&request, cost, false, now);
            prop_assert_eq!(answer.standings.len(), allowances.len());
            if answer.verdict == Verdict::Pass {
                continue;
            }
            let fields = fields(&policy, &answer, jitter);
            let Some((_, wait)) = fields.iter().find(|(name, _)| *name == "retry-after") else {
                // What costs more than a limit ever admits never passes.
                prop_assert!(answer.standings.iter().any(|it| it.wait == u64::MAX));
                continue;
            };
            now += wait.parse::<u64>().unwrap() * SECOND;
            let (again, _) = in_force.decide(&request, cost, false, now);
            prop_assert_eq!(again.verdict, Verdict::Pass, "{:?}, then {:?}", answer, again);
        }
    }
}
