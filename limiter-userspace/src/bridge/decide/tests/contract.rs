//! What is promised to clients, and to those who share a table with a flood.

use proptest::{prelude::*, sample::select};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A client that was refused and waits for as long as it was told is not refused again, if nobody else spends from its keys.
    /// One that comes a nanosecond earlier is.
    #[test]
    fn who_waits_as_told_is_not_refused_again(
        kinds in prop::collection::vec((0..7_u64, 1..40_u64, 1..60_u64, 1..100_u64), 1..4),
        steps in prop::collection::vec((1..5_u64, 0..3 * SECOND), 1..150),
        begin in 0..1_000 * SECOND,
    ) {
        let limits: Vec<RequestLimit> = kinds.iter().enumerate().map(|(at, numbers)| {
            let (kind, burst, packets, seconds) = *numbers;
            let (rate, window) = (Rate { packets, period: seconds * SECOND }, seconds * SECOND);
            by_source(&format!("limit-{at}"), match kind {
                0 => Allowance::TokenBucket { rate, burst },
                1 => Allowance::LeakyBucket { rate, depth: burst },
                2 => Allowance::Gcra { rate, tolerance: window / packets * burst },
                3 => Allowance::FixedWindow { limit: burst, window },
                4 => Allowance::SlidingWindow { limit: burst, window },
                5 => Allowance::SlidingLog { limit: burst, window },
                _ => Allowance::Concurrent { limit: burst, idle: window },
            })
        }).collect();
        let mut decider = decider(&policy(&limits));
        let (asked, mut answer, mut now) = (Asked::default(), Answer::default(), NOW + begin);
        for (hits, later) in steps {
            now += later;
            decider.decide(&asked.request(), hits, now, &mut answer);
            let wait = answer.wait();
            match answer.verdict {
                Verdict::Limited if wait == u64::MAX => {}
                Verdict::Limited => {
                    prop_assert!(wait > 0);
                    decider.peek(&asked.request(), hits, now + wait - 1, &mut answer);
                    prop_assert_eq!(answer.verdict, Verdict::Limited, "{} ns", wait);
                    now += wait;
                    decider.decide(&asked.request(), hits, now, &mut answer);
                    prop_assert_eq!(answer.verdict, Verdict::Pass, "after {} ns", wait);
                }
                verdict => prop_assert_eq!(verdict, Verdict::Pass),
            }
        }
    }

    /// What is told to be left passes, one after the other, and no more.
    #[test]
    fn what_is_left_passes(
        kind in select(vec![0, 1, 3, 4, 5, 6]),
        burst in 1..30_u64,
        steps in prop::collection::vec(0..5 * SECOND, 1..50),
    ) {
        let (rate, window) = (Rate { packets: 7, period: 10 * SECOND }, 10 * SECOND);
        let allowance = match kind {
            0 => Allowance::TokenBucket { rate, burst },
            1 => Allowance::LeakyBucket { rate, depth: burst },
            3 => Allowance::FixedWindow { limit: burst, window },
            4 => Allowance::SlidingWindow { limit: burst, window },
            5 => Allowance::SlidingLog { limit: burst, window },
            _ => Allowance::Concurrent { limit: burst, idle: window },
        };
        let mut decider = decider(&policy(&[by_source("source", allowance)]));
        let (asked, mut answer, mut now) = (Asked::default(), Answer::default(), NOW);
        for later in steps {
            now += later;
            decider.decide(&asked.request(), 1, now, &mut answer);
            let left = answer.standings[0].left;
            decider.peek(&asked.request(), left.max(1), now, &mut answer);
            prop_assert_eq!(answer.verdict == Verdict::Pass, left > 0);
            if left == burst {
                continue;
            }
            decider.peek(&asked.request(), left + 1, now, &mut answer);
            // A token bucket lets the last request owe a part of what it costs.
            prop_assert!(kind == 0 || answer.verdict == Verdict::Limited);
        }
    }
}

#[test]
fn a_flood_of_new_keys_makes_nobody_forgotten() {
    let limits = [
        by_user("user", per_minute(1, 3)),
        by_source("log", Allowance::SlidingLog { limit: 3, window: 60 * SECOND }),
    ];
    let mut decider = decider(&policy(&limits));
    let bytes = decider.table().bytes();
    let owing: Vec<Asked> = (0..40)
        .map(|at| Asked::from(&format!("203.0.113.{at}")).user(format!("owing-{at}")))
        .collect();
    for asked in &owing {
        assert_eq!(decider.admitted(asked, NOW), 3);
    }
    let mut passed = 0;
    for at in 0..100_000_u32 {
        let asked = Asked {
            source: Some(IpAddr::from((0x0a00_0000 + at).to_be_bytes())),
            ..Asked::default().user(format!("made-up-{at}"))
        };
        passed += u64::from(decider.passes(&asked, NOW));
    }
    for asked in &owing {
        assert_eq!(decider.admitted(asked, NOW), 0, "{asked:?}");
    }
    let counts = decider.counts();
    let room = 1_024 + 32;
    assert!(counts.keys <= room && decider.table().bytes() == bytes);
    // Each key has its burst; those that find no room share sixteen times one.
    assert!(passed <= 1_024 + 16 * 3, "{passed}");
    assert!(counts.shared > 90_000, "{}", counts.shared);
    // When they owe nothing any more, others have their entries.
    let later = NOW + 200 * SECOND;
    for at in 0..200_u32 {
        let asked = Asked {
            source: Some(IpAddr::from((0x0b00_0000 + at).to_be_bytes())),
            ..Asked::default().user(format!("late-{at}"))
        };
        assert_eq!(decider.admitted(&asked, later + u64::from(at) * 200 * SECOND), 3);
    }
}

/// Made-up keys of one limit take no room from another, least of all where that limit refuses nobody.
#[test]
fn a_flood_of_keys_of_one_limit_leaves_the_others_their_room() {
    for mode in [Mode::Enforce, Mode::Monitor] {
        let login = by_source("login", per_minute(1, 5));
        let day = RequestLimit { mode, ..by_user("day", per_minute(1, 100)) };
        let mut decider = decider(&policy(&[login, day]));
        let flood = |number: u32| Asked::from("198.51.100.1").user(format!("made{number}"));
        // The source of the flood is over its own limit soon: others send it too.
        for number in 0..20_000_u32 {
            let source = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number % 5);
            let asked = Asked { source: Some(source.into()), ..flood(number) };
            decider.ask(&asked, NOW);
        }
        for number in 0..60_u32 {
            let source = std::net::Ipv4Addr::from_bits(0xc000_0200 + number);
            let asked = Asked { source: Some(source.into()), ..Asked::default() };
            assert_eq!(decider.admitted(&asked, NOW), 5, "{mode:?}: {source}");
        }
    }
}
