//! CPUs that come to a tick at the same time, and to the one after it.

use limiter_common::{base::word::Word as _, memory::jiffy::JiffyClock};
use loom::{sync::Arc, thread};

use super::{Plain, check};

/// What one CPU finds out in a tick, by its own clock.
fn agree(ticked: &JiffyClock<Plain>, tick: u64, clock: u64) -> (u64, Result<u64, u64>) {
    (tick, ticked.sync(tick, || clock))
}

/// The tick that was before, and one CPU after the other in these, each with a clock of its own.
fn meet(ticks: [u64; 3]) {
    const BEFORE: (u64, u64) = (6, 600);
    let ticked = Arc::new(JiffyClock { number: Plain::new(BEFORE.0), time: Plain::new(BEFORE.1) });
    let clock = |tick: u64, cpu: u64| 100 * tick + cpu;
    let others: Vec<_> = (1..3)
        .map(|cpu| {
            let (ticked, tick) = (Arc::clone(&ticked), ticks[cpu]);
            thread::spawn(move || agree(&ticked, tick, clock(tick, cpu as u64)))
        })
        .collect();
    let mut found = vec![agree(&ticked, ticks[0], clock(ticks[0], 0))];
    found.extend(others.into_iter().map(|other| other.join().unwrap()));
    for (cpu, (tick, time)) in found.iter().enumerate() {
        match time {
            Ok(time) => {
                assert_eq!(time / 100, *tick, "it is the time of another tick: {found:?}");
                let others = found.iter().filter(|(other, _)| other == tick);
                let agreed = others.filter_map(|(_, time)| time.ok());
                assert!(agreed.into_iter().all(|other| other == *time), "{found:?}");
            }
            Err(time) => assert_eq!(*time, clock(*tick, cpu as u64), "it is the clock"),
        }
    }
    let last = ticks.into_iter().max().unwrap();
    assert!(found.iter().any(|(_, time)| time.is_ok()), "nobody agrees: {found:?}");
    assert!(ticked.number.load() <= last, "nobody is at it any more");
    // Whoever comes next agrees.
    assert_eq!(ticked.sync(last + 1, || 7_777), Ok(7_777));
    assert_eq!(ticked.sync(last + 1, || 8_888), Ok(7_777));
    assert_eq!(ticked.sync(last, || 9_999), Err(9_999), "it is over");
}

#[test]
fn cpus_agree_on_the_time_of_a_tick() {
    for ticks in [[7, 7, 7], [7, 7, 8], [7, 8, 9], [8, 7, 7]] {
        check(3, move || meet(ticks));
    }
}
