//! What passes in a short time around the edge of a window: twice the limit of a fixed window, and of
//! no other algorithm.

use limiter_common::algorithm::{
    policer::{Decision, Policer as _},
    rate::{Rate, SECOND},
    sliding_log::SlidingLog,
    window::Window,
};

use super::{
    random::Random,
    row::{Plain, Row},
};

const SEED: u64 = 0x6564_6765_5f74_7778;
const WINDOW: u64 = 60 * SECOND;

/// What admits or refuses at times that do not go back.
type Admits = Box<dyn FnMut(u64) -> bool>;

/// An algorithm whose state is a word.
fn of_a_word(mut word: u64, decide: impl Fn(u64, u64) -> Decision + 'static) -> Admits {
    Box::new(move |now| {
        let decision = decide(word, now);
        if let Decision::Conform(next) = decision {
            word = next;
        }
        matches!(decision, Decision::Conform(_))
    })
}

/// Every algorithm at `limit` in a window, with its name.
fn algorithms(limit: u64) -> [(&'static str, Admits); 4] {
    let window = Window::new(limit, WINDOW).unwrap();
    let log = SlidingLog::new(limit, WINDOW).unwrap();
    let gcra = Rate { packets: limit, period: WINDOW }.bucket(limit, 1).unwrap();
    let (control, slots) = (Plain::default(), Row::new());
    let fixed = of_a_word(window.full(0), move |word, now| window.decide(word, now, 1, false));
    let sliding = of_a_word(window.full(0), move |word, now| window.decide(word, now, 1, true));
    [
        ("fixed window", fixed),
        ("sliding window", sliding),
        ("token bucket", of_a_word(gcra.fresh(0), move |word, now| gcra.decide(word, now, 1))),
        (
            "sliding log",
            Box::new(move |now| {
                let look = log.look(&control, &slots, now);
                look.and_then(|look| log.charge(&control, &slots, look, now)).is_ok()
            }),
        ),
    ]
}

/// The most that passed in any time below `span`.
fn most(passed: &[u64], span: u64) -> u64 {
    let within = |(place, from): (usize, &u64)| {
        passed[place..].iter().take_while(|time| **time - from < span).count() as u64
    };
    passed.iter().enumerate().map(within).max().unwrap_or(0)
}

/// As much as comes 2 s before an edge and 2 s after it, with nothing before.
#[test]
fn only_a_fixed_window_admits_twice_its_limit_at_an_edge() {
    for limit in [5, 100, 128] {
        for (name, mut admits) in algorithms(limit) {
            let edge = 120 * WINDOW;
            let times = [edge - 2 * SECOND, edge + 2 * SECOND];
            let [before, after] =
                times.map(|now| (0..3 * limit).filter(|_| admits(now)).count() as u64);
            assert_eq!(before, limit, "{name}");
            // 4 s, or 2 s since the edge, of the 60 that it takes to admit as many again.
            let most = match name {
                "fixed window" => limit,
                "sliding window" => limit * 2 / 60,
                "token bucket" => (limit * 4).div_ceil(60),
                _ => 0,
            };
            assert_eq!(after, most, "{name}");
        }
    }
}

/// Random loads, most of which press on the limit: in no time does more pass than the limit and what
/// the rate gives in that time; and of a log not more than the limit in any window.
#[test]
fn the_others_admit_the_limit_and_what_the_rate_gives_meanwhile() {
    let mut worst = 0;
    for run in 0..60 {
        let mut random = Random::new(SEED, run);
        let limit = random.between(1, 128);
        let gap = 2 * WINDOW / limit / random.between(1, 16);
        let mut now = 100 * WINDOW;
        let mut times = Vec::new();
        for _ in 0..1_500 {
            now += match random.below(20) {
                0 => random.below(2 * WINDOW),
                1 => (WINDOW - now % WINDOW).saturating_sub(random.below(3)),
                2..=9 => random.below(gap + 1),
                _ => 0,
            };
            times.push(now);
        }
        for (name, mut admits) in algorithms(limit) {
            let passed: Vec<u64> = times.iter().copied().filter(|now| admits(*now)).collect();
            for part in [1_000, 60, 15, 4, 2, 1] {
                let span = WINDOW / part;
                let most = most(&passed, span);
                match name {
                    "fixed window" => worst = worst.max(most * 100 / limit),
                    "sliding log" => assert!(most <= limit),
                    // The bucket gives part of a token before it is there.
                    _ => assert!(
                        most <= limit + limit.div_ceil(part) + 1,
                        "{name}: {most} of {limit}"
                    ),
                }
            }
        }
    }
    assert!(worst >= 200, "a fixed window admitted {worst} % only");
}
