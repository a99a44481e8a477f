//! Words that no charge has produced, and clocks that jump far.

use limiter_common::algorithm::{policer::Policer as _, rate::Rate};

use super::{DAY, Kind, LOST, Random, Run, Stated, Subject, interval, refill, seed};

/// Whatever the word is and wherever the clock goes, a source is admitted again after at most the tolerance
/// and the time of a packet, and never gets more than one burst.
#[test]
fn no_word_sticks_and_none_is_a_second_burst() {
    let seed = seed();
    for run in 0..60_000 {
        let mut random = Random::of(seed, run);
        let mut stated = Stated::any(&mut random);
        let cost = stated.any_cost(&mut random);
        stated.size = match stated.kind {
            Kind::Gcra => stated.size.min(1 << 40),
            _ => random.magnitude(1, 64) * cost,
        };
        let gcra = stated.gcra();
        let most = if stated.kind == Kind::LeakyBucket {
            (gcra.depth - 1) / gcra.units(cost)
        } else {
            gcra.depth.div_ceil(gcra.units(cost))
        };
        let most = most.min(3_000);
        let debt = gcra.depth.max(gcra.dearest);
        let latest = (debt >> gcra.shift) + refill(&gcra) + LOST + 1;
        let now = random.next() >> random.between(u64::from(gcra.shift), 63);
        let now = now.min(u64::MAX - 2 * latest);
        let lost = gcra.depth + debt + (LOST << gcra.shift);
        let fresh = gcra.fresh(now);
        let word = match random.between(0, 3) {
            0 => random.next(),
            3 => fresh.wrapping_add(lost - random.between(0, 2)),
            1 => fresh.wrapping_add(random.magnitude(1, u64::MAX / 2)),
            _ => fresh.wrapping_add(u64::MAX / 2).wrapping_sub(random.between(0, 9)),
        };
        let _run = Run { seed, run, of: &(stated, cost, now, word) };
        let mut subject = Subject { gcra, word };
        let admitted = (0..=most).filter(|_| subject.admit(now, cost)).count() as u64;
        // As many as a full bucket has, which may be more than are tried here.
        let full = admitted == most + 1 && most == 3_000;
        assert!(admitted <= most || full, "{admitted} of {most} at once");
        assert!(subject.admit(now + latest, cost), "stuck");
    }
}

/// After half the span of a word, the past looks like the future.
#[test]
fn a_source_idle_for_half_the_span_is_an_empty_bucket() {
    for packets in [1, 1_000, 10_000_000, 1_000_000_000] {
        let gcra = Rate::per_second(packets).bucket(100, 1).unwrap();
        let half = 1 << (63 - gcra.shift);
        for idle in [half - 1, half, half + 1, half + DAY] {
            let mut subject = Subject::new(gcra, DAY);
            let now = DAY + idle;
            let conforms = subject.admit(now, 1);
            assert_eq!(conforms, idle <= half, "{packets}/s after {idle} ns");
            if !conforms {
                assert_eq!(subject.word, gcra.fresh(now).wrapping_add(gcra.depth));
                assert!(subject.admit(now + interval(&gcra), 1), "{packets}/s stuck");
            }
        }
    }
}
