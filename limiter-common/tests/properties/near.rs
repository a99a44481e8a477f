//! When a packet leaves a limit near: by its own threshold as by what is used, whatever the algorithm.

use limiter_common::{
    algorithm::{
        concurrent::{Concurrent, Signal, Socket},
        meter::Meter,
        near,
        policer::{Decision, Policer as _},
        rate::{Rate, SECOND},
        sliding_log::SlidingLog,
        time::Time,
        window::Window,
    },
    base::slots::Slots as _,
};
use proptest::prelude::*;

use super::{
    bucket, cases, magnitude,
    row::{Plain, Row},
};

const NOW: u64 = 1_000_000 * SECOND;

/// Of packets of cost 1 at once, how many pass, and which of them leave the limit near.
fn at_once(meter: &Meter, now: u64) -> (u64, Vec<u64>) {
    let (mut word, mut near) = (meter.fresh(now), Vec::new());
    for number in 1.. {
        match meter.decide(word, now, 1) {
            Decision::Conform(next) => word = next,
            _ => return (number - 1, near),
        }
        if meter.is_near(word, now) {
            near.push(number);
        }
    }
    (0, near)
}

/// The last fifth of so many, rounded down, and the one before.
fn last_fifth(most: u64) -> Vec<u64> {
    (most - most / 5..=most).filter(|number| *number > 0).collect()
}

#[test]
fn the_last_fifth_and_the_packet_before_are_near() {
    let window = |most| Window::new(most, SECOND).unwrap();
    for most in (1..60).chain([100, 128, 999, 1_000]) {
        for rate in [Rate::per_second(3), Rate::per_second(1_000), Rate::per_second(7_000_000)] {
            let tolerance = rate.period / rate.packets * (most - 1);
            let meters = [
                Meter::bucket(rate.bucket(most, 1).unwrap()),
                Meter::bucket(rate.bucket(most, 1_500).unwrap()),
                Meter::bucket(rate.queue(most, 1).unwrap()),
                Meter::bucket(rate.gcra(tolerance, 1).unwrap()),
                Meter::fixed(window(most)),
                Meter::sliding(window(most)),
            ];
            for meter in meters {
                let (passed, near) = at_once(&meter, NOW);
                // Where the time of a packet is no number of nanoseconds, a tolerance is short of some.
                assert!(passed == most || passed < most && tolerance != 0, "{meter:?}");
                assert_eq!(near, last_fifth(passed), "{meter:?}");
            }
        }
    }
}

#[test]
fn the_window_before_counts_by_its_weight() {
    let window = Window::new(100, 100 * SECOND).unwrap();
    let begin = 100 * SECOND * 1_000;
    let charge = |decision| match decision {
        Decision::Conform(word) => word,
        other => panic!("{other:?}"),
    };
    let word = charge(window.decide(window.full(begin), begin, 80, true));
    assert!(window.is_near(word, begin, true) && window.is_near(word, begin, false));
    // A quarter of the next has passed: 60 of the 80 count.
    let later = begin + 125 * SECOND;
    for (cost, is_near) in [(19, false), (20, true)] {
        let next = charge(window.decide(word, later, cost, true));
        assert_eq!(window.is_near(next, later, true), is_near, "{cost}");
        let next = charge(window.decide(word, later, cost, false));
        assert!(!window.is_near(next, later, false));
    }
}

#[test]
fn a_log_is_near_by_the_events_in_its_window() {
    for most in [1, 2, 4, 5, 10, 127, 128] {
        let log = SlidingLog::new(most, 1_000 * SECOND).unwrap();
        let (control, slots) = (Plain::default(), Row::new());
        let send = |now| {
            let look = log.look(&control, &slots, now)?;
            log.charge(&control, &slots, look, now)
        };
        // More than two laps: windows of events, with one event in each second.
        for number in 1..=400 {
            let now = NOW + number * SECOND;
            let Ok(event) = send(now) else { continue };
            let fill = log.fill(&control, &slots, now);
            assert_eq!(log.is_near(&slots, event), near::is(fill, most), "{most}, {number}");
            if number % 7 == 0 {
                SlidingLog::refund(&control, &slots, event);
            }
        }
        // A time later, nothing counts.
        let event = send(NOW + 5_000 * SECOND).unwrap();
        assert_eq!(log.is_near(&slots, event), most == 1);
        // A clock that went far back finds all events at that time.
        let event = send(NOW).unwrap();
        let fill = log.fill(&control, &slots, NOW);
        assert_eq!(log.is_near(&slots, event), near::is(fill, most), "{most}");
    }
}

#[test]
fn leases_are_near_for_who_takes_a_place() {
    let leases = Concurrent::new(10, 60 * SECOND).unwrap();
    let slots = Row::new();
    let send = |tag, signal| {
        let look = leases.look(&slots, tag, signal, NOW).unwrap();
        let charged = leases.charge(&slots, look, tag, signal, NOW).unwrap();
        leases.is_near(&slots, charged, NOW)
    };
    for tag in 1..=10 {
        assert_eq!(send(tag, Signal::Open), tag >= 8, "{tag}");
        assert!(!send(tag, Signal::Data), "it has its place");
    }
    for tag in 8..=10 {
        assert!(!send(tag, Signal::Reset));
        let place = (0..10).find(|place| Concurrent::tag_of(slots.load(*place)) == tag).unwrap();
        leases.answer(&slots, place, slots.load(place), Socket::None, NOW);
    }
    assert!(!send(99, Signal::Reset), "there is nothing to reset");
    assert!(send(11, Signal::Finish));
}

proptest! {
    #![proptest_config(cases(12_000))]

    /// What passes is what conforms, near or far, by the same time; and by the time of a tick nothing passes far that is near
    /// by the clock.
    #[test]
    fn what_passes_is_what_conforms(
        (gcra, dearest) in bucket(), now in magnitude(50), kind in 0..6_u32, any: u64, cost: u64,
        tick in 0..10_000_000_u64, late: u64,
    ) {
        let cost = 1 + cost % dearest;
        let around = |edge: u64| edge.saturating_add(any % 5).saturating_sub(2);
        let before = |edge: u64| around(edge.saturating_sub(gcra.units(cost)));
        let of = |spent| gcra.fresh(now).wrapping_add(spent);
        let word = match kind {
            0 => of(any % gcra.depth),
            1 | 2 => of(before(gcra.near)),
            3 => of(before(gcra.depth)),
            4 => of(around(gcra.depth)),
            // That of a clock that went back.
            _ => any,
        };
        // Of a bucket that goes by the clock, the time is exact.
        let tick = if gcra.takes_clock(tick) { 0 } else { tick };
        let time = Time { now, tick };
        let passes = gcra.conform(word, time, cost).map(|next| (next, gcra.is_near(next, now)));
        prop_assert_eq!(gcra.pass(word, time, cost), passes);
        if let Some((next, false)) = passes {
            let clock = now + late % (tick + 1);
            prop_assert!(!gcra.is_near(next, clock));
            prop_assert!(matches!(gcra.decide(word, clock, cost), Decision::Conform(_)));
        }
    }
}
