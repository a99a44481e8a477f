//! Several requests of one bill.

use super::*;

/// Decides about requests of these costs; a cost of 0 is a question.
fn ask(decider: &mut Decider, asked: &[(&Asked, u64)], now: u64) -> Vec<Answer> {
    let requests: Vec<_> = asked.iter().map(|(asked, _)| asked.request()).collect();
    let item = |(request, (_, hits)): (_, &(_, u64))| Item {
        request,
        hits: (*hits).max(1),
        effect: if *hits > 0 { Effect::Charge } else { Effect::Ask },
    };
    let items: Vec<_> = requests.iter().zip(asked).map(item).collect();
    let mut answers = vec![Answer::default(); items.len()];
    decider.decide_all(&items, now, &mut answers);
    answers
}

fn verdicts(decider: &mut Decider, asked: &[(&Asked, u64)]) -> Vec<Verdict> {
    ask(decider, asked, NOW).iter().map(|answer| answer.verdict).collect()
}

use Verdict::{Denied, Limited, Pass};

#[test]
fn all_requests_of_a_bill_are_charged_or_none() {
    let window = |limit| Allowance::FixedWindow { limit, window: 60 * SECOND };
    let limits = [by_source("source", window(4)), by_user("user", window(2))];
    let mut decider = decider(&policy(&limits));
    let [anna, bert] = ["anna", "bert"].map(|user| Asked::from("192.0.2.1").user(user));
    let other = Asked::from("192.0.2.2").user("carl");
    assert_eq!(verdicts(&mut decider, &[(&anna, 1), (&bert, 1)]), [Pass, Pass]);
    // Both are of one source, which has room for two more.
    assert_eq!(
        verdicts(&mut decider, &[(&anna, 1), (&bert, 2), (&other, 1)]),
        [Limited, Limited, Pass]
    );
    assert_eq!((decider.row("source").conform, decider.row("user").conform), (1, 2));
    let left =
        |answers: &[Answer]| answers.iter().map(|it| it.standings[0].left).collect::<Vec<_>>();
    let answers = ask(&mut decider, &[(&anna, 0), (&bert, 0), (&other, 0)], NOW);
    assert_eq!(left(&answers), [1, 1, 2], "nothing was charged");
    assert_eq!(verdicts(&mut decider, &[(&anna, 1), (&bert, 1)]), [Pass, Pass]);
    assert_eq!(verdicts(&mut decider, &[(&anna, 1), (&other, 1)]), [Limited, Pass]);
}

#[test]
fn what_several_requests_cost_a_key_is_added_up() {
    for allowance in [
        per_minute(1, 5),
        Allowance::FixedWindow { limit: 5, window: SECOND },
        Allowance::SlidingLog { limit: 5, window: SECOND },
    ] {
        let mut decider = decider(&policy(&[by_source("source", allowance)]));
        let asked = Asked::default();
        assert_eq!(verdicts(&mut decider, &[(&asked, 3), (&asked, 3)]), [Limited, Limited]);
        assert_eq!(verdicts(&mut decider, &[(&asked, 2), (&asked, 0), (&asked, 3)]), [Pass; 3]);
        assert_eq!(verdicts(&mut decider, &[(&asked, 0)]), [Limited], "{allowance:?}");
    }
}

#[test]
fn a_denied_request_has_none_charged() {
    let mut policy = policy(&[by_source("source", per_minute(1, 2))]);
    policy.deny =
        vec![Listed { whom: Whom::Prefix("192.0.2.66/32".parse().unwrap()), until: None }];
    let mut decider = decider(&policy);
    let (denied, other) = (Asked::from("192.0.2.66"), Asked::from("192.0.2.1"));
    assert_eq!(verdicts(&mut decider, &[(&other, 1), (&denied, 1)]), [Pass, Denied]);
    assert_eq!((decider.row("source").conform, decider.counts().denied), (0, 1));
    assert_eq!(decider.admitted(&other, NOW), 2);
    // More than are decided about at once.
    let many = vec![(&other, 0); MOST_ITEMS + 1];
    let mut expected = vec![Limited; MOST_ITEMS];
    expected.push(Denied);
    assert_eq!(ask(&mut decider, &many, NOW).len(), MOST_ITEMS + 1);
    assert_eq!(verdicts(&mut decider, &many)[MOST_ITEMS], Denied);
}

/// Keys without room share one state, which is charged with all of them.
#[test]
fn keys_without_room_are_added_up() {
    let limits = [by_source("source", Allowance::FixedWindow { limit: 1, window: 1_000 * SECOND })];
    let mut decider = Decider::new(&policy(&limits), Table::in_memory(16)).unwrap();
    let asked: Vec<_> = (0..60).map(|at| Asked::from(&format!("192.0.2.{at}"))).collect();
    for asked in &asked[..30] {
        decider.ask(asked, NOW);
    }
    let shared = decider.counts().shared;
    assert!(shared > 0);
    // The shared state has 16 times the room of a key.
    let bill: Vec<_> = asked[30..60].iter().map(|asked| (asked, 1)).collect();
    assert!(verdicts(&mut decider, &bill).contains(&Limited));
    assert_eq!(verdicts(&mut decider, &bill[..2]), [Pass, Pass]);
    let left = 16 - shared - 2;
    let admitted = (40..60).filter(|at| decider.passes(&asked[*at], NOW)).count();
    assert_eq!(admitted as u64, left);
}
