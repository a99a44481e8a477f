//! The buckets of the decision core against exact ones that were written apart from them: verdict by
//! verdict, over every kind of rate, burst and clock, and against the figure that a limit promises.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod plan;

use limiter_common::{
    gcra::{Decision, Gcra},
    rate::{Rate, SECOND},
};
use limiter_tests::{
    model::{Bucket, LOST},
    random::{self, Run},
};

/// Where random runs start, unless the environment variable says otherwise.
const SEED: u64 = 0x6275_636b_6574_7331;

const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A stream of random numbers (xorshift64*); one for each run, so that a run can be repeated alone.
struct Random(u64);

impl Random {
    fn of(seed: u64, run: u64) -> Self {
        let mut random = Self(seed ^ (run + 1).wrapping_mul(0xd134_2543_de82_ef95) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `least` to `most`.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + ((u128::from(self.next()) * (u128::from(most - least) + 1)) >> 64) as u64
    }

    /// A number from `least`, which is not 0, to `most`, each order of magnitude as likely.
    fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let top = self.between(u64::from(least.ilog2()), u64::from(most.ilog2()));
        self.between(least.max(1 << top), most.min((2 << top) - 1))
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.between(0, from.len() as u64 - 1) as usize]
    }
}

fn seed() -> u64 {
    random::seed(SEED).unwrap()
}

/// The bucket under test with its word.
struct Subject {
    gcra: Gcra,
    word: u64,
}

impl Subject {
    fn new(gcra: Gcra, now: u64) -> Self {
        Self { gcra, word: gcra.full(now) }
    }

    fn admit(&mut self, now: u64) -> bool {
        match self.gcra.decide(self.word, now) {
            Decision::Conform(next) => {
                self.word = next;
                true
            }
            Decision::Lost(empty) => {
                self.word = empty;
                false
            }
            Decision::Exceed => false,
        }
    }
}

/// Nanoseconds that a full bucket takes to refill, rounded up.
fn refill(gcra: &Gcra) -> u64 {
    (gcra.depth >> gcra.shift) + 1
}

/// Nanoseconds between two packets at the rate, rounded up.
fn interval(gcra: &Gcra) -> u64 {
    (gcra.interval >> gcra.shift) + 1
}

/// A rate from 1/min to 1 G/s: one that is stated in practice, any, or one with an exact interval.
fn any_rate(random: &mut Random) -> Rate {
    match random.between(0, 3) {
        0 => Rate { packets: random.pick(&[1, 2, 3, 7, 50, 1_000, 999_983]), period: MINUTE },
        1 => Rate::per_second(random.magnitude(1, Rate::MAX_PER_SECOND)),
        2 => Rate::per_second(10_u64.pow(random.between(0, 9) as u32)),
        _ => Rate::per_second(5_u64.pow(random.between(0, 9) as u32) << random.between(0, 9)),
    }
}

/// A bucket and the exact one that it must agree with at every packet: of the rate as stated if its
/// interval is a whole number of units, otherwise of the rate that the interval makes.
fn pair(rate: Rate, burst: u64, now: u64) -> (Subject, Bucket, bool) {
    let gcra = rate.bucket(burst).unwrap();
    let units = u128::from(rate.period) << gcra.shift;
    let exact = units.is_multiple_of(u128::from(rate.packets));
    let model = if exact {
        Bucket::new(rate.packets.into(), rate.period.into(), burst, now)
    } else {
        Bucket::new(1 << gcra.shift, gcra.interval.into(), burst, now)
    };
    (Subject::new(gcra, now), model, exact)
}

/// Times where sums and shifts end, and ordinary ones. The longest step that `step` makes keeps
/// within the span of a `u64` from any of them.
fn start(random: &mut Random, gcra: &Gcra) -> u64 {
    let wrap = u64::MAX >> gcra.shift;
    match random.between(0, 5) {
        0 => random.between(0, 3),
        1 => wrap / 2 - random.magnitude(1, HOUR),
        2 if gcra.shift > 0 => wrap - random.magnitude(1, HOUR),
        3 => wrap / 2 - refill(gcra).min(wrap / 2),
        _ => random.magnitude(1, 1 << 60),
    }
}

/// The time of the next packet: at once, about when the next token is there, in bursts, after days,
/// or by a clock that went back, also about as far as makes it lost to a full or an empty bucket.
fn step(random: &mut Random, gcra: &Gcra, now: u64) -> u64 {
    let (interval, refill) = (interval(gcra), refill(gcra));
    let lost = |random: &mut Random| refill + random.between(LOST - 3, LOST + 2);
    let forward = match random.between(0, 99) {
        0..25 => 0,
        25..30 => random.between(1, 2),
        30..55 => random.between(0, interval * 2),
        55..75 => (interval - 1).saturating_add_signed(random.between(0, 2) as i64 - 1),
        75..83 => random.between(0, refill.min(DAY)),
        83..87 => random.between(refill.saturating_sub(2), refill.saturating_add(2)),
        87..90 => random.magnitude(1, 30 * DAY),
        90..95 => return now.saturating_sub(random.magnitude(1, HOUR)),
        95..98 => return now.saturating_sub(random.between(0, interval)),
        98 => return now.saturating_sub(refill + lost(random)),
        _ => return now.saturating_sub(lost(random)),
    };
    now.saturating_add(forward)
}

#[test]
fn every_verdict_is_the_exact_one() {
    const RUNS: u64 = 1_200;
    const STEPS: u64 = 1_500;
    let seed = seed();
    let [mut exact_runs, mut admitted, mut lost] = [0; 3];
    for run in 0..RUNS {
        let mut random = Random::of(seed, run);
        let rate = any_rate(&mut random);
        let burst = random.magnitude(1, 1 << 20);
        let gcra = rate.bucket(burst).unwrap();
        let mut now = start(&mut random, &gcra);
        let (mut subject, mut model, exact) = pair(rate, burst, now);
        let _run = Run { seed, run, of: &(rate, burst, now) };
        exact_runs += u64::from(exact);
        for step_number in 0..STEPS {
            if matches!(gcra.decide(subject.word, now), Decision::Lost(_)) {
                lost += 1;
            }
            let verdict = subject.admit(now);
            assert_eq!(verdict, model.admit(now), "step {step_number} at {now}");
            admitted += u64::from(verdict);
            now = step(&mut random, &gcra, now);
        }
    }
    // If the runs stopped reaching a case, their number would prove nothing.
    let reached = [exact_runs, RUNS - exact_runs, lost, admitted, RUNS * STEPS - admitted];
    assert!(reached.iter().all(|count| *count >= RUNS / 10), "{reached:?}");
}

/// The whole of what [`bound`] is a part of.
const UNIT: i128 = 10_000_000;

/// How far the interval may be off, in parts of [`UNIT`]: as [`Rate::bucket`] promises.
fn bound(rate: Rate) -> i128 {
    if rate.packets / 250_000_000 > rate.period / SECOND { 5_000 } else { 1_230 }
}

/// However packets come, a rate admits no fewer and no more than the exact rates that are below and
/// above it by the error of its interval.
#[test]
fn any_rate_is_between_its_neighbours() {
    let seed = seed();
    for run in 0..400 {
        let mut random = Random::of(seed, run);
        let rate = any_rate(&mut random);
        let burst = random.magnitude(1, 1 << 20);
        let gcra = rate.bucket(burst).unwrap();
        let mut now = random.magnitude(1, 1 << 53);
        let _run = Run { seed, run, of: &(rate, burst, now) };
        let mut subject = Subject::new(gcra, now);
        let mut neighbours = [UNIT - bound(rate), UNIT + bound(rate)].map(|share| {
            let period = i128::from(rate.period) * UNIT;
            Bucket::new(i128::from(rate.packets) * share, period, burst, now)
        });
        let [mut slower, mut admitted, mut faster] = [0_u64; 3];
        for _ in 0..2_500 {
            admitted += u64::from(subject.admit(now));
            let [slow, fast] = &mut neighbours;
            slower += u64::from(slow.admit(now));
            faster += u64::from(fast.admit(now));
            assert!(slower <= admitted && admitted <= faster, "{slower} {admitted} {faster}");
            now = step(&mut random, &gcra, now).max(now);
        }
    }
}

/// Offers `packets` packets at `load` hundredths of `rate`, evenly or each late by up to the distance
/// of two, and holds the count at every packet against the promise.
fn hold_to_promise(rate: Rate, burst: u64, load: u64, packets: u64, random: &mut Random) {
    let begin = random.magnitude(1, 1 << 53);
    let mut subject = Subject::new(rate.bucket(burst).unwrap(), begin);
    let mut model = Bucket::new(rate.packets.into(), rate.period.into(), burst, begin);
    let [mut admitted, mut exact] = [0_u64; 2];
    let distance = |packet: u64| {
        let time = u128::from(packet) * u128::from(rate.period) * 100;
        (time / (u128::from(rate.packets) * u128::from(load))) as u64
    };
    let late = distance(random.between(0, 1));
    // In fractions of a packet, of which `whole` are one.
    let whole = i128::from(rate.period) * UNIT;
    let mut latest = 0;
    for packet in 0..packets {
        let elapsed = distance(packet) + random.between(0, late);
        admitted += u64::from(subject.admit(begin + elapsed));
        exact += u64::from(model.admit(begin + elapsed));
        latest = latest.max(elapsed);

        let count = i128::from(admitted) * whole;
        let tokens = i128::from(latest) * i128::from(rate.packets);
        let most = (i128::from(burst) + 1) * whole + tokens * (UNIT + bound(rate));
        assert!(count < most, "{admitted} at {elapsed} ns is more than the promise");
        // What comes when the bucket is full is lost, so uneven packets may get less than the rate.
        if late == 0 {
            let promised = i128::from(burst) * whole + tokens * UNIT;
            let promised = promised.min(i128::from(packet + 1) * whole);
            let least = promised - (promised / 1_000).max(whole);
            assert!(count >= least, "{admitted} at {elapsed} ns is less than the promise");
        }
        // Uneven packets may leave a bucket of so few tokens full, where a nanosecond makes a verdict.
        if late == 0 || burst >= 10 {
            let off = admitted.abs_diff(exact);
            assert!(off <= (exact / 1_000).max(1), "{admitted} of {exact} at {elapsed} ns");
        }
    }
}

/// `burst + rate * t` at any load: less than one packet more, and within 0.1 % or one packet less.
#[test]
fn the_promise_is_kept_at_any_load() {
    let seed = seed();
    let per_minute = [1, 7, 50].map(|packets| Rate { packets, period: MINUTE });
    let per_second = [1, 3, 10, 1_000, 9_999, 10_000, 333_333, 1_000_000, 7_777_777, 10_000_000];
    // A nanosecond, the grain of the clock, is a good part of their intervals.
    let fast = [123_456_789, 250_000_000, 999_999_999, 1_000_000_000];
    let per_second = per_second.into_iter().chain(fast).map(Rate::per_second);
    let rates = per_minute.into_iter().chain(per_second);
    for (run, rate) in (0..).zip(rates) {
        for load in [50, 90, 99, 100, 101, 110, 150, 199, 200, 250, 1_000, 10_000] {
            for burst in [1, 2, 3, 10, 1_000, 1_000_000] {
                let _run = Run { seed, run, of: &(rate, burst, load) };
                hold_to_promise(rate, burst, load, 20_000, &mut Random::of(seed, run));
            }
        }
    }
    let rate = Rate::per_second(10_000_000);
    hold_to_promise(rate, 1_000_000, 200, 2_200_000, &mut Random::of(seed, 0));
}

/// At one instant a full bucket gives its burst, no more and no less.
#[test]
fn a_full_bucket_gives_exactly_its_burst_at_once() {
    let seed = seed();
    for run in 0..300 {
        let mut random = Random::of(seed, run);
        let (rate, burst) = (any_rate(&mut random), random.magnitude(1, 1 << 17));
        let gcra = rate.bucket(burst).unwrap();
        let now = start(&mut random, &gcra);
        let _run = Run { seed, run, of: &(rate, burst, now) };
        let mut subject = Subject::new(gcra, now);
        assert!((0..burst).all(|_| subject.admit(now)), "less than the burst");
        assert!((0..9).all(|_| !subject.admit(now)), "more than the burst");
    }
}

/// Whatever a word holds and wherever the clock went, a source gets through again after at most the
/// tolerance and the time of a token, and never has more than one burst.
#[test]
fn no_word_sticks_and_none_is_a_second_burst() {
    let seed = seed();
    for run in 0..40_000 {
        let mut random = Random::of(seed, run);
        let rate = any_rate(&mut random);
        let burst = random.magnitude(1, 64);
        let gcra = rate.bucket(burst).unwrap();
        let latest = refill(&gcra) + LOST;
        let now = random.next() >> random.between(gcra.shift, 63);
        let now = now.min(u64::MAX - 2 * latest);
        let lost = 2 * gcra.depth + (LOST << gcra.shift);
        let word = match random.between(0, 3) {
            0 => random.next(),
            3 => gcra.full(now).wrapping_add(lost - random.between(0, 2)),
            1 => gcra.full(now).wrapping_add(random.magnitude(1, u64::MAX / 2)),
            _ => gcra.full(now).wrapping_add(u64::MAX / 2).wrapping_sub(random.between(0, 9)),
        };
        let _run = Run { seed, run, of: &(rate, burst, now, word) };
        let mut subject = Subject { gcra, word };
        let admitted = (0..=burst).filter(|_| subject.admit(now)).count() as u64;
        assert!(admitted <= burst, "{admitted} of a burst of {burst}");
        assert!(subject.admit(now + latest), "stuck");
    }
}

/// After half the span of a word the past looks like the future.
#[test]
fn a_source_idle_for_half_the_span_is_an_empty_bucket() {
    for packets in [1, 1_000, 10_000_000, 1_000_000_000] {
        let gcra = Rate::per_second(packets).bucket(100).unwrap();
        let half = 1 << (63 - gcra.shift);
        for idle in [half - 1, half, half + 1, half + DAY] {
            let mut subject = Subject::new(gcra, DAY);
            let now = DAY + idle;
            let conforms = subject.admit(now);
            assert_eq!(conforms, idle <= half, "{packets}/s after {idle} ns");
            if !conforms {
                assert_eq!(subject.word, gcra.full(now).wrapping_add(gcra.depth));
                assert!(subject.admit(now + interval(&gcra)), "{packets}/s stuck");
            }
        }
    }
}
