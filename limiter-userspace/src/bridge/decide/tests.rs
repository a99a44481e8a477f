use std::{collections::BTreeMap, net::IpAddr};

use limiter_common::algorithm::rate::{Rate, SECOND};

use super::*;
use crate::{
    bridge::{answer::Standing, request::Told},
    policy::KeyPrefix,
    policy::model::{
        Allowance, Attribute, AttributeSource, Field, GlobalMode, Listed, Missing, Mode,
        OverrideWhom, Pattern, RequestCost, RequestKey, RequestKeyPart, RequestLayer, RequestLimit,
        RequestOverride, Whom,
    },
};

mod bills;
mod contract;
mod delay;
mod holds;
mod model;
mod open;
mod policies;
mod repeats;
mod settle;

/// The start of virtual time.
const NOW: u64 = 1_000_000 * SECOND;

/// Headers of a request.
#[derive(Clone, Debug, Default)]
struct Headers(BTreeMap<&'static str, String>);

impl Told for Headers {
    fn header(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }
}

/// A request in the making: `GET /` of 192.0.2.1.
#[derive(Clone, Debug)]
struct Asked {
    method: &'static str,
    path: String,
    source: Option<IpAddr>,
    headers: Headers,
}

impl Default for Asked {
    fn default() -> Self {
        let (path, source) = ("/".to_owned(), Some(IpAddr::from([192, 0, 2, 1])));
        Self { method: "GET", path, source, headers: Headers::default() }
    }
}

impl Asked {
    fn from(source: &str) -> Self {
        Self { source: Some(source.parse().unwrap()), ..Self::default() }
    }

    fn user(mut self, user: impl Into<String>) -> Self {
        self.headers.0.insert("x-user-id", user.into());
        self
    }

    fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    fn request(&self) -> Request<'_> {
        Request {
            method: Some(self.method),
            host: None,
            path: Some(&self.path),
            domain: "",
            source: self.source,
            told: &self.headers,
        }
    }
}

fn per_minute(packets: u64, burst: u64) -> Allowance {
    Allowance::TokenBucket { rate: Rate { packets, period: 60 * SECOND }, burst }
}

fn user() -> Field {
    Field::Attribute("user".to_owned())
}

fn layer(allowance: Allowance) -> RequestLayer {
    RequestLayer { allowance, key: None }
}

fn limit(name: &str, parts: &[RequestKeyPart], allowance: Allowance) -> RequestLimit {
    RequestLimit { layers: vec![layer(allowance)], ..RequestLimit::new(name, parts) }
}

fn by_source(name: &str, allowance: Allowance) -> RequestLimit {
    limit(name, &[RequestKeyPart::Source], allowance)
}

fn by_user(name: &str, allowance: Allowance) -> RequestLimit {
    limit(name, &[RequestKeyPart::Field(user())], allowance)
}

/// A policy with the attribute `user` and these limits.
fn policy(limits: &[RequestLimit]) -> Policy {
    let from = AttributeSource::Header("x-user-id".to_owned());
    let attributes = BTreeMap::from([("user".to_owned(), Attribute { from, digest: false })]);
    Policy { attributes, on_requests: limits.to_vec(), ..Policy::default() }
}

fn decider(policy: &Policy) -> Decider {
    Decider::new(policy, Table::in_memory(1_024)).unwrap()
}

impl Decider {
    fn ask(&mut self, asked: &Asked, now: u64) -> Answer {
        let mut answer = Answer::default();
        self.decide(&asked.request(), 1, now, &mut answer);
        answer
    }

    fn passes(&mut self, asked: &Asked, now: u64) -> bool {
        self.ask(asked, now).verdict == Verdict::Pass
    }

    /// How many such requests pass at once, of some more than that.
    fn admitted(&mut self, asked: &Asked, now: u64) -> u64 {
        (0..200).map(|_| u64::from(self.passes(asked, now))).sum()
    }

    fn row(&self, name: &str) -> RowCounts {
        self.counts().rows.into_iter().find(|row| row.name == name).unwrap()
    }
}

#[test]
fn a_refusal_tells_the_key_that_it_is_of() {
    let limits = [by_source("source", per_minute(1, 100)), by_user("user", per_minute(1, 3))];
    let mut decider = decider(&policy(&limits));
    let refused = |user: &str, decider: &mut Decider| {
        let asked = Asked::default().user(user);
        assert_eq!(decider.admitted(&asked, NOW), 3);
        decider.ask(&asked, NOW).refused_key.unwrap()
    };
    let [anna, bert] = ["anna", "bert"].map(|user| refused(user, &mut decider));
    assert_ne!(anna, bert);
    let asked = Asked::default().user("anna");
    assert_eq!(decider.ask(&asked, NOW).refused_key, Some(anna));
    let passes = decider.ask(&Asked::default().user("cleo"), NOW);
    assert_eq!(passes.refused_key, None);
}

#[test]
fn a_request_is_charged_to_all_of_its_limits_or_to_none() {
    let limits = [by_source("source", per_minute(1, 10)), by_user("user", per_minute(1, 3))];
    let mut decider = decider(&policy(&limits));
    let asked = Asked::default().user("anna");
    assert_eq!(decider.admitted(&asked, NOW), 3);
    // The refused requests were charged to neither limit.
    assert_eq!(decider.admitted(&Asked::default().user("bert"), NOW), 3);
    assert_eq!(decider.admitted(&Asked::default(), NOW), 4);
    let (source, user) = (decider.row("source"), decider.row("user"));
    assert_eq!((source.conform, user.conform, user.missing), (10, 6, 200));
    assert_eq!(source.exceed + user.exceed, 600 - 10);
}

#[test]
fn the_narrowest_limit_that_refuses_is_told_first() {
    let all = limit("all", &[], per_minute(1, 5));
    let wide =
        limit("wide", &[RequestKeyPart::SourcePrefix { ipv4: 24, ipv6: 48 }], per_minute(1, 5));
    let mut decider = decider(&policy(&[all, wide, by_source("source", per_minute(2, 5))]));
    assert_eq!(decider.admitted(&Asked::default(), NOW), 5);
    // A bucket lets a last request owe the rest of what it costs.
    assert_eq!(decider.admitted(&Asked::default(), NOW + 1), 1);
    let answer = decider.ask(&Asked::default(), NOW + 1);
    let told: Vec<usize> = answer.standings.iter().map(|standing| standing.limit).collect();
    assert_eq!((answer.verdict, told[0], told.len()), (Verdict::Limited, 2, 3));
    assert_eq!(answer.standings[0].wait, 30 * SECOND);
    assert_eq!(answer.wait(), 60 * SECOND, "the others refuse for longer");
    let answer = decider.ask(&Asked::from("192.0.2.9"), NOW + 1);
    assert_eq!(answer.standings[0].limit, 1);
    let answer = decider.ask(&Asked::from("198.51.100.9"), NOW + 1);
    assert_eq!(answer.standings[0].limit, 0);
}

#[test]
fn a_standing_tells_what_is_left() {
    let mut decider = decider(&policy(&[
        by_source("source", per_minute(60, 10)),
        by_user("user", Allowance::SlidingLog { limit: 4, window: 20 * SECOND }),
        limit("all", &[], Allowance::FixedWindow { limit: 100, window: 60 * SECOND }),
    ]));
    let asked = Asked::default().user("anna");
    let mut answer = Answer::default();
    let standing = |limit, quota, window, left, refills| Standing {
        limit,
        layer: 0,
        quota,
        window,
        left,
        wait: 0,
        refills,
        holds: (limit == 0).then_some(KeyPrefix { ipv4: 32, ipv6: 64 }),
    };
    decider.peek(&asked.request(), 1, NOW, &mut answer);
    let rested = [
        standing(1, 4, 20 * SECOND, 4, 0),
        standing(0, 10, 10 * SECOND, 10, 0),
        standing(2, 100, 60 * SECOND, 100, 0),
    ];
    assert_eq!(answer.standings, rested);
    let until = 60 * SECOND - NOW % (60 * SECOND);
    decider.decide(&asked.request(), 3, NOW, &mut answer);
    let charged = [
        Standing { wait: 20 * SECOND, ..standing(1, 4, 20 * SECOND, 1, 20 * SECOND) },
        standing(0, 10, 10 * SECOND, 7, 3 * SECOND),
        standing(2, 100, 60 * SECOND, 97, until),
    ];
    assert_eq!((answer.verdict, &answer.standings[..]), (Verdict::Pass, &charged[..]));
    decider.decide(&asked.request(), 2, NOW + SECOND, &mut answer);
    assert_eq!((answer.verdict, answer.wait()), (Verdict::Limited, 19 * SECOND));
    decider.decide(&asked.request(), 5, NOW + SECOND, &mut answer);
    assert_eq!((answer.verdict, answer.wait()), (Verdict::Limited, u64::MAX));
}

#[test]
fn a_peek_charges_nothing() {
    let mut decider = decider(&policy(&[by_source("source", per_minute(1, 2))]));
    let (asked, mut answer) = (Asked::default(), Answer::default());
    for _ in 0..10 {
        decider.peek(&asked.request(), 1, NOW, &mut answer);
        assert_eq!((answer.verdict, answer.standings[0].left), (Verdict::Pass, 2));
    }
    assert_eq!((decider.counts().keys, decider.row("source").conform), (0, 0));
    assert_eq!(decider.admitted(&asked, NOW), 2);
    decider.peek(&asked.request(), 1, NOW, &mut answer);
    assert_eq!(answer.verdict, Verdict::Limited);
}

#[test]
fn a_cost_that_is_told_is_charged_whole_and_may_be_of_any_size() {
    for (allowance, most) in [
        (per_minute(1, 5), 5),
        (Allowance::LeakyBucket { rate: Rate::per_second(1), depth: 5 }, 5),
        (Allowance::Gcra { rate: Rate::per_second(1), tolerance: 4 * SECOND + SECOND / 2 }, 5),
        (Allowance::FixedWindow { limit: 5, window: SECOND }, 5),
        (Allowance::SlidingWindow { limit: 5, window: SECOND }, 5),
        (Allowance::SlidingLog { limit: 5, window: SECOND }, 5),
        (Allowance::Concurrent { limit: 5, idle: SECOND }, 5),
    ] {
        let mut decider = decider(&policy(&[by_source("source", allowance)]));
        let (asked, mut answer) = (Asked::default(), Answer::default());
        for hits in [u64::MAX, u64::MAX / 2, 1 << 40, 129, 7] {
            decider.decide(&asked.request(), hits, NOW, &mut answer);
            assert_eq!(
                (answer.verdict, answer.wait()),
                (Verdict::Limited, u64::MAX),
                "{allowance:?}"
            );
        }
        decider.decide(&asked.request(), most, NOW, &mut answer);
        assert_eq!(answer.verdict, Verdict::Pass, "{allowance:?}");
        decider.decide(&asked.request(), 0, NOW, &mut answer);
        let wait = answer.wait();
        assert!(matches!(allowance, Allowance::Gcra { .. }) || wait > 0, "{allowance:?}");
        // The state is none that counts as lost, which would forgive what is owed.
        decider.decide(&asked.request(), most, NOW, &mut answer);
        assert!(answer.verdict == Verdict::Limited, "{allowance:?}");
    }
}

#[test]
fn a_weight_and_a_told_cost_are_multiplied() {
    let values = BTreeMap::from([("POST".to_owned(), 5)]);
    let cost = RequestCost { default: 2, by: Some(Field::Method), values };
    let heavy = RequestLimit { cost, ..by_source("source", per_minute(1, 30)) };
    let mut decider = decider(&policy(&[heavy]));
    let mut answer = Answer::default();
    let mut left = |asked: &Asked, hits| {
        decider.decide(&asked.request(), hits, NOW, &mut answer);
        answer.standings[0].left
    };
    assert_eq!(left(&Asked::default(), 1), 28);
    assert_eq!(left(&Asked::default().method("POST"), 1), 23);
    assert_eq!(left(&Asked::default().method("POST"), 3), 8);
}

/// Further than any debt, in nanoseconds.
const BACK: u64 = 2 * 86_400 * SECOND;

#[test]
fn a_clock_that_goes_back_gives_nothing_and_sticks_nobody() {
    for allowance in [
        per_minute(60, 5),
        Allowance::FixedWindow { limit: 5, window: 10 * SECOND },
        Allowance::SlidingWindow { limit: 5, window: 10 * SECOND },
        Allowance::SlidingLog { limit: 5, window: 10 * SECOND },
    ] {
        let mut decider = decider(&policy(&[by_source("source", allowance)]));
        assert_eq!(decider.admitted(&Asked::default(), NOW), 5);
        for back in [1, SECOND / 2, BACK] {
            let admitted = decider.admitted(&Asked::default(), NOW - back);
            // A log admits one event at a time that went far back.
            let is_log = matches!(allowance, Allowance::SlidingLog { .. });
            let most = u64::from(is_log && back > SECOND);
            assert!(admitted <= most, "{admitted} by {allowance:?}, {back} ns back");
        }
        let later = NOW - BACK + 30 * SECOND;
        assert!(decider.passes(&Asked::default(), later), "{allowance:?}");
    }
}

#[test]
fn a_decider_can_be_served_by_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&decider(&Policy::default()));
}

/// A directory of its own, removed in the end.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("limiter-decide-{}-{number}", std::process::id());
        let path = std::path::Path::new("/dev/shm").join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.join("state")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _: std::io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}
