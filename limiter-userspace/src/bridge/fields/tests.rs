use proptest::prelude::*;
use sfv::{BareItem, Item, List, ListEntry, Parser};

use serde_json::{Value, json};

use super::*;

use crate::policy::model::HeaderSet;

const ALL: HeaderSet = HeaderSet { ietf: true, x_ratelimit: true, retry_after: true };

/// The names of the limits that have less left than their share, for a request that passes.
#[test]
fn a_service_is_told_where_little_is_left() {
    let limits = [("a", Some(20)), ("b", Some(50)), ("c", None)]
        .map(|(name, degrade)| RequestLimit { degrade, ..RequestLimit::new(name, &[]) });
    let policy = Policy { on_requests: limits.into(), ..Policy::default() };
    let standing = |limit, left| Standing {
        limit,
        layer: 0,
        quota: 10,
        window: SECOND,
        left,
        wait: 0,
        refills: 0,
        holds: None,
    };
    let told = |verdict, lefts: [u64; 3]| {
        let standings = (0..3).map(|at| standing(at, lefts[at])).collect();
        degraded(&policy, &Answer { verdict, standings, ..Answer::default() })
    };
    assert_eq!(told(Verdict::Pass, [2, 5, 0]), None);
    assert_eq!(told(Verdict::Pass, [1, 5, 0]).as_deref(), Some("a"));
    assert_eq!(told(Verdict::Pass, [0, 4, 0]).as_deref(), Some("a, b"));
    assert_eq!(told(Verdict::Limited, [0, 0, 0]), None);
}

fn policy(headers: &[HeaderSet]) -> Policy {
    let mut policy = Policy::default();
    for (place, headers) in headers.iter().enumerate() {
        let mut limit = RequestLimit::new(format!("limit-{place}"), &[]);
        limit.headers = *headers;
        policy.on_requests.push(limit);
    }
    policy
}

fn standing(limit: usize, left: u64, wait: u64, refills: u64) -> Standing {
    Standing { limit, layer: 0, quota: 20, window: 10 * SECOND, left, wait, refills, holds: None }
}

fn limited(standings: Vec<Standing>) -> Answer {
    Answer { verdict: Verdict::Limited, standings, ..Answer::default() }
}

fn field<'f>(fields: &'f [(&str, String)], name: &str) -> Option<&'f str> {
    let mut found = fields.iter().filter(|(it, _)| *it == name);
    let value = found.next().map(|(_, value)| &**value);
    assert!(found.next().is_none(), "{name} twice");
    value
}

/// An item of a list by the independent parser: its string, and its parameters, which are whole numbers.
type Parsed = (String, Vec<(String, i64)>);

fn parsed(field: &str) -> Vec<Parsed> {
    let list: List = Parser::new(field).parse().unwrap();
    let item = |entry: ListEntry| {
        let ListEntry::Item(Item { bare_item: BareItem::String(name), params }) = entry else {
            panic!("{entry:?} in {field}")
        };
        let number = |value: BareItem| match value {
            BareItem::Integer(number) => i64::from(number),
            other => panic!("{other:?} in {field}"),
        };
        let params = params.into_iter().map(|(key, value)| (key.to_string(), number(value)));
        (name.to_string(), params.collect())
    };
    list.into_iter().map(item).collect()
}

#[test]
fn a_request_that_passes_tells_what_is_left() {
    let answer = Answer { standings: vec![standing(0, 7, 0, 6_500_000_000)], ..Answer::default() };
    assert_eq!(
        fields(&policy(&[ALL]), &answer, u32::MAX),
        [
            ("ratelimit-policy", "\"limit-0\";q=20;w=10".to_owned()),
            ("ratelimit", "\"limit-0\";r=7;t=7".to_owned()),
            ("x-ratelimit-limit", "20".to_owned()),
            ("x-ratelimit-remaining", "7".to_owned()),
            ("x-ratelimit-reset", "7".to_owned()),
        ]
    );
    assert_eq!(problem(&policy(&[ALL]), &answer), None);
}

#[test]
fn a_refusal_tells_when_to_come_back() {
    let answer =
        limited(vec![standing(1, 0, 1_200_000_000, 9 * SECOND), standing(0, 3, 0, SECOND)]);
    let policy = policy(&[ALL, ALL]);
    let refused = fields(&policy, &answer, 0);
    assert_eq!(field(&refused, "ratelimit"), Some("\"limit-1\";r=0;t=2, \"limit-0\";r=3;t=1"));
    assert_eq!(field(&refused, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(field(&refused, "retry-after"), Some("2"));
    let problem = problem(&policy, &answer).unwrap();
    let told: Value = serde_json::from_str(&problem.to_string()).unwrap();
    assert_eq!(
        told,
        json!({
            "type": QUOTA_EXCEEDED,
            "title": "Too many requests",
            "status": 429,
            "violated-policies": ["limit-1"],
        })
    );
}

/// So clients that were refused together do not come back together.
#[test]
fn a_random_number_lengthens_the_wait() {
    let answer = limited(vec![standing(0, 0, 60 * SECOND, 60 * SECOND)]);
    let policy = policy(&[ALL]);
    let told = [0, u32::MAX / 2, u32::MAX].map(|jitter| fields(&policy, &answer, jitter));
    let waits = told.each_ref().map(|fields| field(fields, "retry-after").unwrap());
    assert_eq!(waits, ["60", "63", "66"]);
}

#[test]
fn each_limit_says_which_fields_tell_of_it() {
    let [ietf, x, retry, none] =
        [(true, false, false), (false, true, false), (false, false, true), (false, false, false)]
            .map(|(ietf, x_ratelimit, retry_after)| HeaderSet { ietf, x_ratelimit, retry_after });
    let names = |headers: &[HeaderSet]| {
        let standings = (0..headers.len()).map(|limit| standing(limit, 0, SECOND, SECOND));
        let fields = fields(&policy(headers), &limited(standings.collect()), 0);
        fields.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&[none]), "");
    assert_eq!(names(&[ietf]), "ratelimit-policy ratelimit");
    assert_eq!(names(&[x]), "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset");
    assert_eq!(names(&[retry]), "retry-after");
    // The first limit decides about Retry-After: it is the one that refuses.
    assert_eq!(names(&[none, retry, ietf]), "ratelimit-policy ratelimit");
    assert_eq!(names(&[]), "");
}

#[test]
fn at_most_four_limits_are_told_of_and_layers_have_names() {
    let mut standings: Vec<_> = (0..9).map(|limit| standing(limit, 5, 0, SECOND)).collect();
    standings[0].layer = 1;
    let answer = Answer { standings, ..Answer::default() };
    let told = fields(&policy(&[ALL; 9]), &answer, 0);
    for name in ["ratelimit", "ratelimit-policy"] {
        let items = parsed(field(&told, name).unwrap());
        let names: Vec<&str> = items.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["limit-0 (layer 2)", "limit-1", "limit-2", "limit-3"]);
    }
}

#[test]
fn what_never_passes_and_what_is_denied_names_no_time() {
    let answer = limited(vec![standing(0, 4, u64::MAX, SECOND)]);
    let told = fields(&policy(&[ALL]), &answer, 0);
    assert_eq!(field(&told, "ratelimit"), Some("\"limit-0\";r=4"));
    assert_eq!((field(&told, "retry-after"), field(&told, "x-ratelimit-reset")), (None, None));
    let denied = Answer { verdict: Verdict::Denied, ..answer };
    assert_eq!(fields(&policy(&[ALL]), &denied, 0), []);
    assert_eq!(problem(&policy(&[ALL]), &denied).unwrap().status, 403);
}

proptest! {
    #[test]
    fn every_field_is_structured_and_no_time_is_too_short(
        numbers in prop::collection::vec(any::<(u64, u64, u64, u64, u64)>(), 1..6),
        short in any::<bool>(),
        jitter in any::<u32>(),
    ) {
        // Of short waits, rounding matters most.
        let scale = if short { 1 << 34 } else { 1 };
        let standings: Vec<_> = numbers
            .iter()
            .enumerate()
            .map(|(limit, &(quota, window, left, wait, refills))| Standing {
                limit,
                layer: limit % 2,
                quota,
                window,
                left,
                wait: wait / scale,
                refills,
                holds: None,
            })
            .collect();
        let longest = standings.iter().map(|it| it.wait).max().unwrap_or_default();
        let answer = limited(standings);
        let told = fields(&policy(&vec![ALL; numbers.len()]), &answer, jitter);
        let policies = parsed(field(&told, "ratelimit-policy").unwrap());
        let limits = parsed(field(&told, "ratelimit").unwrap());
        prop_assert_eq!(policies.len(), numbers.len().min(MOST));
        for ((of, quota), (name, left)) in policies.iter().zip(&limits) {
            prop_assert_eq!(of, name);
            prop_assert!(quota[0].0 == "q" && quota[1].0 == "w" && quota[1].1 >= 1);
            prop_assert!(left[0].0 == "r" && left.get(1).is_none_or(|(key, t)| key == "t" && *t >= 1));
        }
        let retry: Option<u64> = field(&told, "retry-after").map(|it| it.parse().unwrap());
        if let Some(retry) = retry {
            let (retry, longest) = (u128::from(retry), u128::from(longest));
            prop_assert!(retry * u128::from(SECOND) >= longest && retry >= 1);
            prop_assert!(retry <= (longest * 11 / 10).div_ceil(u128::from(SECOND)).max(1));
        } else {
            prop_assert_eq!(longest, u64::MAX);
        }
    }
}

#[test]
fn open_requests_have_a_unit_and_no_time() {
    let policy = policy(&[ALL]);
    let open = |left, wait, refills| Standing { window: 0, ..standing(0, left, wait, refills) };
    let passes = Answer { standings: vec![open(7, 0, 90 * SECOND)], ..Answer::default() };
    let told = fields(&policy, &passes, 0);
    let quota = field(&told, "ratelimit-policy").unwrap();
    assert_eq!(quota, "\"limit-0\";q=20;qu=\"concurrent-requests\"");
    let quota: List = Parser::new(quota).parse().unwrap();
    assert_eq!(quota.len(), 1);
    assert_eq!(field(&told, "ratelimit"), Some("\"limit-0\";r=7"));
    assert_eq!(field(&told, "x-ratelimit-reset"), None);
    let told = fields(&policy, &limited(vec![open(0, 60 * SECOND, 90 * SECOND)]), 0);
    assert_eq!(field(&told, "ratelimit"), Some("\"limit-0\";r=0;t=60"));
    assert_eq!(field(&told, "retry-after"), Some("60"));
}
