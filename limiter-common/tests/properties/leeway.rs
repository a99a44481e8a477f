//! What is charged by the time of a tick, what passes on credit, and what is paid ahead.

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

    /// A packet that is paid for passes, for which the bucket by exact times is charged now.
    fn take(&mut self, now: u64) {
        let spent = self.gcra.spent(self.exact, now) + self.gcra.units(1);
        self.exact = self.gcra.fresh(now).wrapping_add(spent);
    }

    /// How much more is spent by exact times, in units.
    fn gained(&self, now: u64) -> u64 {
        let [word, exact] = [self.word, self.exact].map(|word| self.gcra.spent(word, now));
        assert!(word <= exact, "{word} units are spent, of {exact} by exact times");
        exact - word
    }
}

/// Whether the first packet of a source is told by the time of a tick, or none is.
#[test]
fn each_packet_takes_the_clock_where_no_tick_can_tell() {
    let (mut takes, mut not) = (0, 0);
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let rate = Rate::per_second(random.between(1, 1 << 30));
        let Ok(gcra) = rate.bucket(random.between(1, 1_000_000), 1) else { continue };
        assert!(gcra.takes_clock(0));
        let tick = [1, 4, 10][random.below(3) as usize] * MILLISECOND;
        let time = Time { now: random.between(SECOND, 1 << 50), tick };
        let by_tick = |word| gcra.conform(word, time, 1).is_some();
        let full = gcra.fresh(time.now);
        assert_eq!(gcra.takes_clock(tick), !by_tick(full), "{gcra:?}");
        takes += u32::from(gcra.takes_clock(tick));
        not += u32::from(!gcra.takes_clock(tick));
    }
    assert!(takes > 100 && not > 100, "{takes} {not}");
}

#[test]
fn what_is_charged_by_a_tick_is_exact_to_the_leeway() {
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
                gained = gained.max(beside.gained(now) as f64 / gcra.leeway.max(1) as f64);
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
    assert!(gained > 0.9, "at most {gained} of the leeway is gained: nothing is tried");
}

#[test]
fn a_large_burst_has_credit_and_a_small_one_none() {
    let credit = |rate, burst, dearest| {
        Rate::per_second(rate).bucket(burst, dearest).map(|gcra| gcra.credit())
    };
    // In three ticks a two-thousandth of the burst.
    assert_eq!(credit(100_000, 120_000, 1), Ok(20));
    assert_eq!(credit(20_000, 6_000, 1), Ok(1));
    assert_eq!(credit(20_000, 5_999, 1), Ok(0));
    // What comes in during a third of a millisecond.
    assert_eq!(credit(100_000, 10_000_000, 1), Ok(33));
    assert_eq!(credit(2_999, 1_000_000, 1), Ok(0));
    // By the dearest packet.
    assert_eq!(credit(1_000_000_000, 60_000_000, 1_500), Ok(6));
    assert_eq!(Gcra::default().credit(), 0);
    // All together are a thousandth.
    for (burst, leeway, credited, ahead) in [
        (999, 0, 0, 0),
        (1_000, 1, 0, 0),
        (6_000, 3, 3, 0),
        (17_999, 11, 6, 0),
        (36_000, 10, 18, 8),
        (120_000, 31, 60, 29),
        // Half is for ticks of a millisecond or more.
        (200_000, 127, 48, 25),
        (600_000, 402, 99, 99),
    ] {
        let gcra = Rate::per_second(100_000).bucket(burst, 1).unwrap();
        let packets = [gcra.leeway, gcra.credited(gcra.credit())].map(|it| it / gcra.interval);
        assert_eq!(packets, [leeway, credited], "{burst}");
        assert_eq!(gcra.ahead(), ahead, "{burst}");
    }
    // By bytes, or weights, nothing is paid ahead.
    assert_eq!(Rate::per_second(100_000).bucket(120_000, 2).map(|gcra| gcra.ahead()), Ok(0));
    assert_eq!(Gcra::default().ahead(), 0);
}

/// Sources that pay ahead, by the time of ticks, as far as they are far from the limit.
#[test]
fn what_is_paid_ahead_is_exact_to_what_is_paid_and_the_leeway() {
    let (mut taken, mut refused, mut gained) = (0_u64, 0_u64, 0.0_f64);
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let tick = [1, 4, 10][random.below(3) as usize] * MILLISECOND;
        let gcra = loop {
            let (gcra, _) = shallow(&mut random, tick);
            if gcra.ahead() != 0 && gcra.left(0) < 100_000 {
                break gcra;
            }
        };
        let (ahead, unit) = (gcra.ahead(), gcra.units(1));
        let mut now = random.between(SECOND, 1 << 50);
        let (mut beside, mut paid) = (Beside::new(gcra, tick, now), 0);
        let eager = random.below(4);
        for _ in 0..400 {
            // Others take what is paid for, and pay once more.
            let rush = match eager {
                0 => 1,
                1 => paid + 1,
                _ => random.between(1, 40 * ahead),
            };
            for _ in 0..rush {
                let ticks = random.once_in(9);
                let packets = if paid > 0 {
                    paid -= 1;
                    taken += 1;
                    beside.take(now);
                    continue;
                } else if gcra.is_far(beside.word, now, 1 + ahead) {
                    1 + ahead
                } else {
                    1
                };
                if beside.send(now, packets, ticks) {
                    // Those that follow did not pass yet.
                    beside.exact = beside.exact.wrapping_sub((packets - 1) * unit);
                    paid = packets - 1;
                } else {
                    refused += 1;
                }
                let [word, exact] = [beside.word, beside.exact].map(|word| gcra.spent(word, now));
                let most = gcra.leeway + ahead * unit;
                assert!(exact <= word + most, "{exact} units are spent, {word} charged: {gcra:?}");
                assert!(word <= exact + paid * unit, "{word} units are charged, of {exact}");
                gained = gained.max(exact.saturating_sub(word) as f64 / most as f64);
            }
            let spent = gcra.spent(beside.word, now);
            // Those of one kind send until they are refused.
            let steps = if eager == 3 { 1 } else { 8 };
            now += match random.below(steps) {
                0..3 => random.between(0, refill(&gcra, (1 + ahead) * unit)),
                3 => random.between(0, tick),
                4 => refill(&gcra, spent),
                5 => random.between(0, 2 * refill(&gcra, gcra.depth)),
                _ => 0,
            };
        }
    }
    assert!(taken > 100_000 && refused > 10_000, "{taken} were paid for, {refused} refused");
    assert!(gained > 0.5, "at most {gained} of what may be gained is: nothing is tried");
}

/// A source that sends on credit alone, whenever in ticks that the kernel counts late.
#[test]
fn what_passes_on_credit_is_what_an_entry_is_charged_for_it_at_most() {
    let mut most = 0.0_f64;
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let (gcra, dearest) = shallow(&mut random, 10 * MILLISECOND);
        let units = gcra.credit() * gcra.units(dearest);
        let credited = gcra.credited(gcra.credit());
        assert!(credited + gcra.leeway <= gcra.depth / Gcra::EXACT, "{gcra:?}");
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
            assert!(spent <= credited, "{gcra:?}");
            most = most.max(spent as f64 / gcra.depth as f64);
            assert!(gcra.spent(word, now + MILLISECOND) == 0, "it is within its limit");
        }
    }
    assert!(most > 0.000_49, "at most {most} of a burst: nothing is tried");
}

/// Whatever CPUs, some of which are behind, make of it.
#[test]
fn a_set_admits_no_more_on_credit_than_there_is_in_a_tick() {
    let (mut all, mut held) = (0_u64, 0);
    for run in 0..2_000 {
        let mut random = Random::new(SEED, run);
        let few = random.once_in(2);
        let most = random.between(1, if few { 5 } else { Credit::MOST });
        let mut tick = random.any() as u32;
        let mut credit = Credit::default().next(tick, most).unwrap().0;
        let mut admitted = 1;
        for _ in 0..400 {
            if random.once_in(20) {
                let later = u64::from(u32::MAX - 99);
                tick = tick.wrapping_add(random.between(1, later) as u32);
                admitted = 0;
            }
            // One that is behind comes after one that is not.
            let late = if admitted > 0 { random.below(9) as u32 } else { 0 };
            let Some((next, is_admitted)) = credit.next(tick.wrapping_sub(late), most) else {
                assert!(admitted >= most, "there is credit left, {admitted} of {most}");
                continue;
            };
            assert_ne!(next, credit);
            credit = next;
            // One that is held has had it.
            admitted += 1;
            assert!(admitted <= most, "{admitted} of {most}");
            all += 1;
            held += u64::from(!is_admitted);
        }
    }
    let expected = all / u64::from(Credit::HELD_OF);
    assert!((expected / 2..2 * expected).contains(&held), "{held} of {all} are held");
}

/// Also one that sends when a tick begins, and as many in each, is not admitted on credit at times.
#[test]
fn nobody_has_credit_for_ever() {
    for most in 1..=64 {
        let mut credit = Credit::default();
        let mut longest = (0, 0);
        for tick in 1..20_000 {
            for packet in 0..most {
                let (next, admitted) = credit.next(tick, most).unwrap();
                credit = next;
                if packet == 0 {
                    let lucky = if admitted { longest.0 + 1 } else { 0 };
                    longest = (lucky, longest.1.max(lucky));
                }
            }
            assert_eq!(credit.next(tick, most), None);
        }
        assert!(longest.1 < 30 * Credit::HELD_OF, "{longest:?} ticks in a row, of {most}");
    }
}

#[test]
fn a_set_without_an_entry_to_give_has_no_credit() {
    for tick in [0, 1, 77_000, u32::MAX - 5, u32::MAX] {
        for most in [1, 33, Credit::MOST] {
            assert_eq!(Credit::ENDED.next(tick, most), None, "in tick {tick}");
        }
    }
    assert!(Credit::default().next(77_000, 1).is_some());
}
