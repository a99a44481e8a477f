//! Requests that are held back until their turn.

use super::*;

const MS: u64 = SECOND / 1_000;

/// Ten requests a second, of which five fit in the queue.
fn queue(name: &str) -> RequestLimit {
    let allowance = Allowance::LeakyBucket { rate: Rate::per_second(10), depth: 5 };
    RequestLimit { delay: Some(400 * MS), ..by_source(name, allowance) }
}

/// A request of somebody who holds no more answers back.
struct Full;

impl Told for Full {
    fn header(&self, _: &str) -> Option<&str> {
        None
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }

    fn hold(&self, _: u64) -> bool {
        false
    }
}

#[test]
fn requests_leave_a_queue_at_its_rate() {
    let mut decider = decider(&policy(&[queue("queue")]));
    let asked = Asked::default();
    let mut last = None;
    for at in [0, 0, 30, 31, 31, 181, 181, 251, 651, 652] {
        let answer = decider.ask(&asked, NOW + at * MS);
        if answer.verdict == Verdict::Limited {
            assert_eq!(answer.hold, 0);
            continue;
        }
        assert!(answer.hold <= 400 * MS, "no longer than the delay: {}", answer.hold);
        let leaves = NOW + at * MS + answer.hold;
        if let Some(last) = last {
            assert!(leaves >= last + 100 * MS, "{leaves} after {last}");
        }
        last = Some(leaves);
    }
    let row = decider.row("queue");
    assert_eq!((row.conform, row.exceed), (9, 1));
}

#[test]
fn a_queue_is_bounded_and_the_longest_wait_counts() {
    let wide = Allowance::LeakyBucket { rate: Rate::per_second(2), depth: 3 };
    let wide = RequestLimit { delay: Some(SECOND), ..by_user("wide", wide) };
    let mut decider = decider(&policy(&[queue("queue"), wide]));
    let asked = Asked::default().user("anna");
    let answers = [(); 4].map(|()| decider.ask(&asked, NOW));
    assert_eq!(answers.each_ref().map(|it| it.hold), [0, 500 * MS, 1_000 * MS, 0]);
    assert_eq!(answers[3].verdict, Verdict::Limited);
    // Only a limit that has a delay and refuses anything holds back.
    for limit in [
        RequestLimit { delay: None, ..queue("queue") },
        RequestLimit { mode: Mode::Monitor, ..queue("queue") },
    ] {
        let mut decider = super::decider(&policy(&[limit]));
        assert!((0..5).all(|_| decider.ask(&Asked::default(), NOW).hold == 0));
    }
}

#[test]
fn without_room_to_wait_a_request_is_refused_and_charged_nothing() {
    let mut decider = decider(&policy(&[queue("queue")]));
    let asked = Asked::default();
    let full = |decider: &mut Decider, now| {
        let mut answer = Answer::default();
        decider.decide(&Request { told: &Full, ..asked.request() }, 1, now, &mut answer);
        answer
    };
    assert_eq!(full(&mut decider, NOW).verdict, Verdict::Pass, "it has not to wait");
    let refused = full(&mut decider, NOW + 30 * MS);
    assert_eq!((refused.verdict, refused.hold, refused.wait()), (Verdict::Limited, 0, 70 * MS));
    assert_eq!(full(&mut decider, NOW + 100 * MS).verdict, Verdict::Pass);
    assert_eq!(decider.ask(&asked, NOW + 100 * MS).hold, 100 * MS);
}
