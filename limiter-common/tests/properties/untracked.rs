//! The untracked allowance: packets that pass without a record of their source.

use limiter_common::{
    algorithm::{
        gcra::Gcra,
        policer::Policer as _,
        rate::{Rate, SECOND},
    },
    table::untracked::UntrackedAllowance,
};

use super::random::Random;

const SEED: u64 = 47;
const MILLISECOND: u64 = 1_000_000;

/// A bucket of 100 to a million packets that refills in some seconds, and what the dearest costs.
fn shallow(random: &mut Random) -> (Gcra, u64) {
    loop {
        let rate = Rate::per_second(random.between(1, 1 << 30));
        let dearest = if random.once_in(2) { 1 } else { random.between(2, 9_000) };
        let burst = random.between(100, 1_000_000) * dearest;
        let bucket = match random.below(3) {
            0 => rate.queue(burst, dearest),
            _ => rate.bucket(burst, dearest),
        };
        match bucket {
            Ok(gcra) if gcra.depth < (20 * SECOND) << gcra.shift => return (gcra, dearest),
            _ => {}
        }
    }
}

#[test]
fn a_large_burst_has_an_untracked_allowance_and_a_small_one_none() {
    let allowance = |rate, burst, dearest| {
        Rate::per_second(rate).bucket(burst, dearest).map(|gcra| gcra.untracked())
    };
    // In three ticks a thousandth of the burst.
    assert_eq!(allowance(100_000, 30_000, 1), Ok(10));
    assert_eq!(allowance(20_000, 3_000, 1), Ok(1));
    assert_eq!(allowance(20_000, 2_999, 1), Ok(0));
    // What comes in during a third of a millisecond.
    assert_eq!(allowance(100_000, 10_000_000, 1), Ok(33));
    assert_eq!(allowance(2_999, 1_000_000, 1), Ok(0));
    // By the dearest packet.
    assert_eq!(allowance(1_000_000_000, 60_000_000, 1_500), Ok(13));
    assert_eq!(Gcra::default().untracked(), 0);
}

#[test]
fn a_cpu_leases_a_64th_of_the_burst_and_all_together_a_quarter() {
    let gcra = |burst| Rate::per_second(100_000).bucket(burst, 1).unwrap();
    for (burst, cpus, packets) in [
        (127, 1, 0),
        (128, 1, 2),
        (1_000, 8, 15),
        (1_024, 1, 16),
        (1_000_000, 1, 16),
        // One that leases the packet at hand alone leases nothing.
        (511, 64, 0),
        (512, 64, 2),
        (4_095, 64, 15),
        (4_096, 64, 16),
        (1_000_000, 0, 16),
        (1_000_000, u64::from(u32::MAX), 0),
    ] {
        assert_eq!(gcra(burst).lease(cpus), packets, "{burst} on {cpus} CPUs");
    }
    // By bytes, or weights, nothing is leased.
    assert_eq!(Rate::per_second(100_000).bucket(120_000, 2).map(|gcra| gcra.lease(1)), Ok(0));
    assert_eq!(Gcra::default().lease(1), 0);
}

/// A source all of whose packets are untracked, at any time in ticks that the kernel counts late.
#[test]
fn untracked_packets_take_at_most_what_an_entry_is_charged_for_them() {
    let mut most = 0.0_f64;
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let (gcra, dearest) = shallow(&mut random);
        let units = gcra.untracked() * gcra.units(dearest);
        let charged = gcra.untracked_units(gcra.untracked());
        assert!(charged <= gcra.depth / 1_000, "{gcra:?}");
        assert!(charged <= MILLISECOND << gcra.shift, "{gcra:?}");
        let begin = random.between(SECOND, 1 << 50);
        let (mut word, mut counted) = (gcra.fresh(begin), begin);
        for tick in 1..60 {
            // Counted by the time of the next one.
            let late = [0, MILLISECOND - 1, random.below(MILLISECOND)][random.below(3) as usize];
            let next = begin + tick * MILLISECOND + late;
            // At once, at the end, or anywhere.
            let length = next - counted;
            let at = [0, length.saturating_sub(1), random.below(length.max(1))];
            let now = counted + at[random.below(3) as usize];
            counted = next;
            let spent = gcra.spent(word, now) + units;
            word = gcra.fresh(now).wrapping_add(spent);
            assert!(spent <= charged, "{gcra:?}");
            most = most.max(spent as f64 / gcra.depth as f64);
            assert!(gcra.spent(word, now + MILLISECOND) == 0, "it is within its limit");
        }
    }
    assert!(most > 0.000_9, "at most {most} of a burst: nothing is tried");
}

/// Whatever CPUs, some of which are behind, make of it.
#[test]
fn a_set_admits_no_more_untracked_packets_than_its_allowance_in_a_tick() {
    let (mut all, mut held) = (0_u64, 0);
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let few = random.once_in(2);
        let most = random.between(1, if few { 5 } else { UntrackedAllowance::MOST });
        let mut tick = random.any() as u32;
        let mut allowance = UntrackedAllowance::default().next(tick, most).unwrap().0;
        let mut admitted = 1;
        for _ in 0..400 {
            if random.once_in(20) {
                let later = u64::from(u32::MAX - 99);
                tick = tick.wrapping_add(random.between(1, later) as u32);
                admitted = 0;
            }
            // One that is behind comes after one that is not.
            let late = if admitted > 0 { random.below(9) as u32 } else { 0 };
            let Some((next, is_admitted)) = allowance.next(tick.wrapping_sub(late), most) else {
                assert!(admitted >= most, "some of the allowance is left, {admitted} of {most}");
                continue;
            };
            assert_ne!(next, allowance);
            allowance = next;
            // One that is held has had it.
            admitted += 1;
            assert!(admitted <= most, "{admitted} of {most}");
            all += 1;
            held += u64::from(!is_admitted);
        }
    }
    let expected = all / u64::from(UntrackedAllowance::HELD_OF);
    assert!((expected / 2..2 * expected).contains(&held), "{held} of {all} are held");
}

/// Also a source that sends as many packets at the begin of each tick has one that is tracked at times.
#[test]
fn no_source_is_untracked_for_ever() {
    for most in 1..=64 {
        let mut allowance = UntrackedAllowance::default();
        let mut longest = (0, 0);
        for tick in 1..20_000 {
            for packet in 0..most {
                let (next, admitted) = allowance.next(tick, most).unwrap();
                allowance = next;
                if packet == 0 {
                    let lucky = if admitted { longest.0 + 1 } else { 0 };
                    longest = (lucky, longest.1.max(lucky));
                }
            }
            assert_eq!(allowance.next(tick, most), None);
        }
        assert!(
            longest.1 < 30 * UntrackedAllowance::HELD_OF,
            "{longest:?} ticks in a row, of {most}"
        );
    }
}

#[test]
fn a_set_without_an_entry_to_give_has_no_allowance() {
    for tick in [0, 1, 77_000, u32::MAX - 5, u32::MAX] {
        for most in [1, 33, UntrackedAllowance::MOST] {
            assert_eq!(UntrackedAllowance::ENDED.next(tick, most), None, "in tick {tick}");
        }
    }
    assert!(UntrackedAllowance::default().next(77_000, 1).is_some());
}
