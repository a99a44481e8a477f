//! What is charged by the time of a tick, and what passes on credit.

use limiter_common::{
    credit::Credit,
    gcra::{Gcra, Time},
    policer::{Decision, Policer as _},
    rate::{Rate, SECOND},
};

use super::random::Random;

const SEED: u64 = 47;
const MILLISECOND: u64 = 1_000_000;

/// A bucket for which a tick makes a difference, of 100 to a million packets, and what the dearest costs.
fn shallow(random: &mut Random, tick: u64) -> (Gcra, u64) {
    loop {
        let rate = Rate::per_second(random.between(1, 1 << 30));
        let dearest = if random.once_in(2) { 1 } else { random.between(2, 9_000) };
        let burst = random.between(100, 1_000_000) * dearest;
        let bucket = match random.below(3) {
            0 => rate.queue(burst, dearest),
            _ => rate.bucket(burst, dearest),
        };
        match bucket {
            Ok(gcra) if gcra.depth < (Gcra::COARSE * tick) << gcra.shift => {
                return (gcra, dearest);
            }
            _ => {}
        }
    }
}

/// Nanoseconds in which so much of a bucket is refilled.
fn refill(gcra: &Gcra, units: u64) -> u64 {
    units >> gcra.shift
}

/// Packets of a source by the times of ticks, which begin at any time, beside a bucket that is charged with
/// what passed of them by exact times.
struct Beside {
    gcra: Gcra,
    word: u64,
    exact: u64,
    tick: u64,
    ticked: u64,
    /// What passed without a better clock, where that made a difference.
    trusted: u64,
}

impl Beside {
    fn new(gcra: Gcra, tick: u64, now: u64) -> Self {
        let full = gcra.fresh(now);
        Self { gcra, word: full, exact: full, tick, ticked: now, trusted: 0 }
    }

    /// Whether a packet passes; `ticks` if another tick has begun.
    fn send(&mut self, now: u64, cost: u64, ticks: bool) -> bool {
        if ticks || now - self.ticked > Gcra::SLACK * self.tick {
            self.ticked = now;
        }
        let Self { gcra, tick, ticked, .. } = *self;
        let by_tick = gcra.conform(self.word, Time { now: ticked, tick }, cost);
        let by_clock = match gcra.decide(self.word, now, cost) {
            Decision::Conform(next) => Some(next),
            Decision::Exceed | Decision::Lost(_) => None,
        };
        self.trusted += u64::from(by_tick.is_some() && by_tick != by_clock);
        if let Some(next) = by_tick.or(by_clock) {
            self.word = next;
            let spent = gcra.spent(self.exact, now) + gcra.units(cost);
            self.exact = gcra.fresh(now).wrapping_add(spent);
            return true;
        }
        false
    }

    /// How much more is spent by exact times, in units.
    fn gained(&self, now: u64) -> u64 {
        let [word, exact] = [self.word, self.exact].map(|word| self.gcra.spent(word, now));
        assert!(word <= exact, "{word} units are spent, of {exact} by exact times");
        exact - word
    }
}

#[test]
fn what_is_charged_by_a_tick_is_exact_to_a_thousandth_of_the_burst() {
    let (mut trusted, mut refused, mut gained) = (0, 0_u64, 0.0_f64);
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let tick = [1, 4, 10][random.below(3) as usize] * MILLISECOND;
        let (gcra, dearest) = shallow(&mut random, tick);
        let mut now = random.between(SECOND, 1 << 50);
        let mut beside = Beside::new(gcra, tick, now);
        // Some send what may pass by the tick and no more, some all they can, most something.
        let eager = random.below(4);
        for _ in 0..1_000 {
            let cost = if random.once_in(2) { dearest } else { random.between(1, dearest) };
            for _ in 0..if eager == 0 { 1 } else { random.between(1, 40) } {
                let passed = beside.send(now, cost, random.once_in(9));
                refused += u64::from(!passed);
                assert!(beside.gained(now) <= gcra.leeway, "{gcra:?}");
                gained = gained.max(beside.gained(now) as f64 / gcra.depth as f64);
            }
            let spent = gcra.spent(beside.word, now);
            now += match random.below(8) {
                0..3 => random.between(0, refill(&gcra, gcra.leeway) + 1),
                3..5 => refill(&gcra, gcra.units(cost)),
                5 => random.between(0, tick),
                // Until it is just about full.
                6 => refill(&gcra, spent),
                _ => random.between(0, 2 * refill(&gcra, gcra.depth)),
            };
            assert!(beside.gained(now) <= gcra.leeway, "{gcra:?}");
        }
        trusted += beside.trusted;
    }
    assert!(trusted > 10_000 && refused > 10_000, "{trusted} by a tick, {refused} refused");
    assert!(gained > 0.000_9, "at most {gained} of a burst is gained: nothing is tried");
}

#[test]
fn a_large_burst_has_credit_and_a_small_one_none() {
    let credit = |rate, burst, dearest| {
        Rate::per_second(rate).bucket(burst, dearest).map(|gcra| gcra.credit())
    };
    // A two-thousandth of the burst.
    assert_eq!(credit(100_000, 40_000, 1), Ok(20));
    assert_eq!(credit(20_000, 2_000, 1), Ok(1));
    assert_eq!(credit(20_000, 1_999, 1), Ok(0));
    // What comes in during half a millisecond.
    assert_eq!(credit(100_000, 10_000_000, 1), Ok(50));
    assert_eq!(credit(1_000, 1_000_000, 1), Ok(0));
    // By the dearest packet.
    assert_eq!(credit(1_000_000_000, 60_000_000, 1_500), Ok(20));
    assert_eq!(Gcra::default().credit(), 0);
}

/// A source that sends on credit alone, as many as there is credit for, whenever in a tick.
#[test]
fn what_passes_on_credit_owes_a_thousandth_of_the_burst_at_most() {
    let mut most = 0.0_f64;
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let (gcra, dearest) = shallow(&mut random, 10 * MILLISECOND);
        let credit = gcra.credit();
        let mut begin = random.between(SECOND, 1 << 50);
        let mut word = gcra.fresh(begin);
        for _ in 0..50 {
            // At the beginning, at the end, or anywhere.
            let at = [0, MILLISECOND - 1, random.below(MILLISECOND)][random.below(3) as usize];
            let now = begin + at;
            let spent = gcra.spent(word, now) + credit * gcra.units(dearest);
            word = gcra.fresh(now).wrapping_add(spent);
            assert!(spent <= gcra.leeway, "{gcra:?}");
            most = most.max(spent as f64 / gcra.depth as f64);
            begin += MILLISECOND;
            assert!(gcra.spent(word, begin + MILLISECOND) == 0, "it is within its limit");
        }
    }
    assert!(most > 0.000_9, "at most {most} of a burst: nothing is tried");
}

/// Whatever CPUs, some of which are behind, make of it.
#[test]
fn a_set_admits_no_more_on_credit_than_there_is_in_a_tick() {
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let few = random.once_in(2);
        let most = random.between(1, if few { 5 } else { Credit::MOST });
        let mut tick = random.any() as u32;
        let mut credit = Credit(random.any() << 32);
        let (mut admitted, mut held) = (0, 0);
        for _ in 0..400 {
            if random.once_in(20) {
                tick = tick.wrapping_add(random.between(1, 1 << 30) as u32);
                admitted = 0;
            }
            // One that is behind comes after one that is not.
            let late = if admitted > 0 { random.below(3) as u32 } else { 0 };
            let Some((next, is_admitted)) = credit.next(tick.wrapping_sub(late), most) else {
                assert!(admitted == most, "there is credit left, {admitted} of {most}");
                continue;
            };
            assert_ne!(next, credit);
            credit = next;
            admitted += u64::from(is_admitted);
            held = if is_admitted { held + 1 } else { 0 };
            assert!(admitted <= most, "{admitted} of {most}");
            assert!(held < Credit::HELD_OF, "no packet is kept from it");
        }
    }
}
