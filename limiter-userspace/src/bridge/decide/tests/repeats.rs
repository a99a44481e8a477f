//! Requests that are sent again, and charged once.

use super::*;
use crate::policy::model::Idempotency;

const WINDOW: u64 = 300 * SECOND;

/// A limit that charges repeats once.
fn once(limit: RequestLimit) -> RequestLimit {
    RequestLimit { idempotency: Some(Idempotency { window: WINDOW }), ..limit }
}

impl Asked {
    fn again(mut self, key: impl Into<String>) -> Self {
        self.headers.0.insert("idempotency-key", key.into());
        self
    }
}

#[test]
fn a_repeat_is_charged_once_and_three_of_them_pass() {
    let mut decider = decider(&policy(&[once(by_source("source", per_minute(1, 3)))]));
    let asked = Asked::default().again("a");
    for _ in 0..4 {
        assert_eq!(decider.ask(&asked, NOW).standings[0].left, 2);
    }
    assert_eq!(decider.ask(&asked, NOW).standings[0].left, 1, "a fourth repeat is charged");
    let row = decider.row("source");
    assert_eq!((row.conform, row.repeat), (2, 3));
    // What passed already passes again, whatever is left.
    let other = Asked::default().again("b");
    assert!(decider.passes(&other, NOW));
    assert!(!decider.passes(&Asked::default(), NOW) && decider.passes(&other, NOW));
    assert!(!decider.passes(&asked, NOW), "nor does one beyond the third");
    // After the window it is another request.
    let later = NOW + WINDOW;
    assert_eq!(decider.ask(&asked, later).standings[0].left, 2);
    assert_eq!(decider.ask(&asked, later).standings[0].left, 2);
}

/// One key for every request, and a new key for each, are no way around a limit.
#[test]
fn no_use_of_keys_is_a_way_around_a_limit() {
    let mut one = decider(&policy(&[once(by_source("source", per_minute(1, 5)))]));
    assert_eq!(one.admitted(&Asked::default().again("same"), NOW), 5 + 3);
    let mut each = decider(&policy(&[once(by_source("source", per_minute(1, 5)))]));
    let passed = (0..300).filter(|at| each.passes(&Asked::default().again(format!("{at}")), NOW));
    assert_eq!(passed.count(), 5);
    let mut four_times = decider(&policy(&[once(by_source("source", per_minute(1, 5)))]));
    let keys = (0..400).map(|at| Asked::default().again(format!("{}", at / 4)));
    assert_eq!(keys.filter(|asked| four_times.passes(asked, NOW)).count(), 5 * 4);
}

#[test]
fn a_repeat_is_of_the_same_key_method_path_and_cost() {
    let mut decider = decider(&policy(&[once(by_source("source", per_minute(1, 9)))]));
    let asked = Asked::default().again("a");
    let left = |decider: &mut Decider, asked: &Asked, hits| {
        let mut answer = Answer::default();
        decider.decide(&asked.request(), hits, NOW, &mut answer);
        answer.standings[0].left
    };
    assert_eq!(left(&mut decider, &asked, 1), 8);
    assert_eq!(left(&mut decider, &asked.clone().method("POST"), 1), 7);
    assert_eq!(left(&mut decider, &Asked { path: "/x".to_owned(), ..asked.clone() }, 1), 6);
    assert_eq!(left(&mut decider, &asked, 2), 4);
    assert_eq!(left(&mut decider, &Asked::default(), 1), 3, "without a key");
    assert_eq!(left(&mut decider, &Asked::default().again(""), 1), 2, "with an empty one");
    assert_eq!(left(&mut decider, &asked, 1), 2);
    let elsewhere = Asked { source: Some([192, 0, 2, 2].into()), ..asked };
    assert_eq!(left(&mut decider, &elsewhere, 1), 8, "of another source");
}

#[test]
fn what_was_refused_or_only_asked_about_is_not_known() {
    let limits = [once(by_source("source", per_minute(60, 3))), by_user("user", per_minute(1, 1))];
    let mut decider = decider(&policy(&limits));
    let asked = |key: &str| Asked::default().again(key);
    let mut answer = Answer::default();
    decider.peek(&asked("a").request(), 1, NOW, &mut answer);
    assert_eq!(decider.ask(&asked("a"), NOW).standings[0].left, 2, "the peek is no first one");
    // Another limit refuses it, so it was charged nowhere.
    assert!(decider.passes(&asked("b").user("anna"), NOW));
    let refused = asked("c").user("anna");
    assert!(!decider.passes(&refused, NOW));
    assert_eq!(decider.ask(&asked("c"), NOW).standings[0].left, 0);
    // A limit that does not know it charges each repeat.
    assert!(!decider.passes(&asked("b").user("anna"), NOW));
}

#[test]
fn a_table_that_is_full_has_repeats_charged() {
    let mut decider =
        decider(&policy(&[once(limit("all", &[], per_minute(6_000_000, 1_000_000)))]));
    for at in 0..90_000 {
        assert!(decider.passes(&Asked::default().again(format!("{at}")), NOW));
    }
    let before = decider.row("all").conform;
    let repeats = (0..90_000).map(|at| Asked::default().again(format!("{at}")));
    assert!(repeats.filter(|asked| decider.passes(asked, NOW)).count() == 90_000);
    let (charged, repeated) = (decider.row("all").conform - before, decider.row("all").repeat);
    assert!(repeated <= 65_536 && repeated > 50_000, "{repeated}");
    assert_eq!(charged + repeated, 90_000);
}
