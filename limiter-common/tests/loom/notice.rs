//! CPUs that refuse packets of one source at the same edge.

use limiter_common::{
    base::word::Word,
    memory::event::{AGAIN, Emission, Episode, QUIET, UNIT},
};
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use super::{NOW, Plain, check};

/// How often so many CPUs tell of a source that was refused last, and told of last, so long ago.
fn told(cpus: usize, last: u64, told: u64) -> (u64, u64) {
    let before = |ago: u64| if ago == 0 { 0 } else { (NOW - ago) | 1 };
    let word = Episode::of_times(before(last), before(told)).0;
    let episode = Arc::new(Episode(Plain::new(word)));
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let refuse = |after: u64| {
        let (episode, counts) = (Arc::clone(&episode), Arc::clone(&counts));
        move || match episode.refuse(NOW + after, false) {
            Emission::Begins => drop(counts[0].fetch_add(1, SeqCst)),
            Emission::GoesOn => drop(counts[1].fetch_add(1, SeqCst)),
            Emission::Nothing => {}
        }
    };
    let others: Vec<_> = (1..cpus).map(|cpu| thread::spawn(refuse(cpu as u64))).collect();
    refuse(0)();
    for other in others {
        other.join().unwrap();
    }
    let seen = Episode(episode.0.load()).last_at(NOW);
    assert!(seen <= NOW && NOW < seen + UNIT, "{seen}");
    (counts[0].load(SeqCst), counts[1].load(SeqCst))
}

#[test]
fn one_cpu_tells_that_it_begins() {
    for cpus in [2, 3] {
        check(3, move || assert_eq!(told(cpus, 0, 0), (1, 0)));
        check(3, move || assert_eq!(told(cpus, QUIET, QUIET + 5), (1, 0)));
        check(3, move || assert_eq!(told(cpus, QUIET, AGAIN), (1, 0)));
    }
}

#[test]
fn one_cpu_tells_that_it_goes_on() {
    for cpus in [2, 3] {
        check(3, move || assert_eq!(told(cpus, QUIET - 2 * UNIT, AGAIN), (0, 1)));
        let earlier = AGAIN - 2 * UNIT;
        check(3, move || assert_eq!(told(cpus, QUIET - 2 * UNIT, earlier), (0, 0)));
    }
}

/// One CPU drops a packet, and another would only have: that it is dropped is told, now or by the next
/// that is dropped.
#[test]
fn that_packets_are_dropped_is_told_beside_one_that_is_not() {
    check(3, || {
        let episode = Arc::new(Episode(Plain::new(0)));
        let other = Arc::clone(&episode);
        let other = thread::spawn(move || {
            let _: Emission = other.refuse(NOW, true);
        });
        let told = episode.refuse(NOW, false) == Emission::Begins;
        other.join().unwrap();
        assert!(told || episode.refuse(NOW, false) == Emission::Begins);
        assert_eq!(episode.refuse(NOW, false), Emission::Nothing);
    });
}
