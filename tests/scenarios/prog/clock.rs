//! Clocks that go back, jump ahead, or wrap.

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_tests::{
    model::{self, LOST},
    program::{TestProgram, Verdict},
};
use limiter_userspace::policy::Builtin;

use super::{NOW, Run, bucket, is_run, mutation::Random, per_second, policy, program, seed, udp};

const HOUR: u64 = 3_600 * SECOND;
const BACK: [u64; 14] = [
    1,
    999,
    1_000,
    1_000_000,
    SECOND / 2,
    LOST - 1,
    LOST,
    LOST + 1,
    LOST + SECOND / 10,
    2 * LOST,
    60 * SECOND,
    600 * SECOND,
    HOUR - 1,
    HOUR,
];

/// A source and an exact bucket that must agree with it at every packet.
struct Pair<'a> {
    program: &'a mut TestProgram,
    frame: Vec<u8>,
    model: model::Bucket,
}

impl<'a> Pair<'a> {
    /// A source that no earlier test has used, with a full bucket at `now`.
    fn new(program: &'a mut TestProgram, number: u32, rate: Rate, burst: u64, now: u64) -> Self {
        let [a, b, c, d] = number.to_be_bytes();
        let model = model::Bucket::new(rate.packets.into(), rate.period.into(), burst, now);
        Self { program, frame: udp([10 | a, b, c, d]), model }
    }

    /// Offers packets at `now` and returns how many passed.
    fn offer(&mut self, packets: u64, now: u64) -> u64 {
        self.program.at(now).unwrap();
        (0..packets)
            .filter(|packet| {
                let passed = self.program.run(&self.frame).unwrap() == Verdict::Pass;
                assert_eq!(passed, self.model.admit(now), "packet {packet} at {now}");
                passed
            })
            .count() as u64
    }
}

#[test]
fn going_back_gives_no_burst_and_sticks_nobody() {
    let mut source = 0;
    for (rate, burst) in [(1_000, 10), (1, 3), (50, 200), (10_000_000, 500)] {
        let limit = per_second(rate, burst);
        let mut program = program(&policy(&[(Builtin::Source, limit)]));
        for back in BACK {
            for spent in [1, burst / 2 + 1, burst] {
                source += 1;
                let case = (rate, burst, back, spent);
                let mut pair = Pair::new(&mut program, source, limit.rate, burst, NOW);
                assert_eq!(pair.offer(spent, NOW), spent, "{case:?}");
                // The first packet may find the state lost; the next ones find an empty bucket.
                let passed = pair.offer(2 * burst, NOW - back);
                assert!(passed <= burst - spent, "{passed} after going back: {case:?}");
                let later = NOW - back + LOST + burst * SECOND / rate + SECOND / rate + 1;
                assert!(pair.offer(1, later) == 1, "stuck: {case:?}");
                // At the time where the clock was before, the bucket has what was refilled since.
                assert!(pair.offer(2 * burst, NOW.max(later)) <= burst, "{case:?}");
            }
        }
    }
}

#[test]
fn going_back_and_forth_fills_nothing_twice() {
    let limit = per_second(1_000, 20);
    let mut program = program(&policy(&[(Builtin::Source, limit)]));
    let seed = seed();
    for run in 0..20 {
        let mut random = Random::new(seed, run);
        let _run = Run { seed, run, of: &"back and forth" };
        let mut pair = Pair::new(&mut program, run as u32, limit.rate, limit.burst, NOW);
        // The range is below the tolerance within which clocks count as one sequence.
        let range = random.below(LOST as usize - 1) as u64;
        let mut passed = pair.offer(1, NOW);
        for _ in 0..2_000 {
            passed += pair.offer(3, NOW + random.below(range as usize + 1) as u64);
        }
        let most = limit.burst + range / 1_000_000 + 1;
        assert!(passed <= most, "{passed} of {most}");
    }
}

#[test]
fn a_far_jump_gives_one_burst() {
    const YEAR: u64 = 366 * 24 * HOUR;
    for (rate, burst) in [(1_000, 10), (10_000_000, 1_000)] {
        let limit = per_second(rate, burst);
        let mut program = program(&policy(&[(Builtin::Source, limit)]));
        // Half the span of a word, in units of 2^-6 ns for the faster rate, is 4.5 years.
        for (source, jump) in (0..).zip([HOUR, YEAR, 2 * YEAR]) {
            let mut pair = Pair::new(&mut program, source, limit.rate, burst, NOW);
            assert_eq!(pair.offer(2 * burst, NOW), burst);
            assert_eq!(pair.offer(2 * burst, NOW + jump), burst, "{rate} {jump}");
            // Far back: the bucket is empty and refills from there.
            assert_eq!(pair.offer(2 * burst, NOW), 0, "{rate} {jump}");
            assert_eq!(pair.offer(2, NOW + SECOND / rate), 1, "{rate} {jump}");
        }
    }
}

/// Words are times in fractions of a nanosecond, so they wrap long before the clock does.
#[test]
fn a_word_that_wraps_is_none_the_worse() {
    let mut source = 0;
    for (packets, period, burst) in [
        (1, 60 * SECOND, 5),
        (1_000, SECOND, 50),
        (1_000_000, SECOND, 1_000),
        (10_000_000, SECOND, 500),
        (250_000_000, SECOND, 5_000),
    ] {
        let rate = Rate { packets, period };
        let limit = bucket(rate, burst);
        let shift = rate.bucket(burst, 1).unwrap().shift;
        let mut program = program(&policy(&[(Builtin::Source, limit)]));
        let refill = burst * period / packets;
        let [word, half] = [u64::MAX >> shift, u64::MAX >> (shift + 1)];
        for wrap in [word, half] {
            for before in [0, 1, refill / 2, refill, 2 * refill, HOUR] {
                source += 1;
                if !is_run(source.into()) {
                    continue;
                }
                let begin = wrap - before;
                let mut pair = Pair::new(&mut program, source, rate, burst, begin);
                assert_eq!(pair.offer(2 * burst, begin), burst, "{limit:?} {begin}");
                for step in 1..=30 {
                    let Some(now) = begin.checked_add(step * refill / 10) else { break };
                    pair.offer(burst / 4 + 1, now);
                }
                if let Some(later) = begin.checked_add(10 * refill) {
                    assert_eq!(pair.offer(2 * burst, later), burst, "{limit:?} {begin}");
                }
            }
        }
    }
}

#[test]
fn the_clock_itself_may_wrap() {
    for (rate, burst) in [(1_000, 10), (10_000_000, 1_000)] {
        let limit = per_second(rate, burst);
        let mut program = program(&policy(&[(Builtin::Source, limit)]));
        let interval = SECOND / rate;
        for (source, before) in (0..).zip([0, 1, interval / 2, interval, 5 * interval]) {
            let begin = u64::MAX - before;
            let frame = udp([10, 0, 0, source]);
            program.at(begin).unwrap();
            assert_eq!(program.run_many(&frame, 2_000).unwrap(), burst, "{rate} {before}");
            let mut passed = 0;
            for step in 1..=100 {
                program.at(begin.wrapping_add(step * interval / 2)).unwrap();
                passed += program.run_many(&frame, 3).unwrap();
            }
            assert_eq!(passed, 50, "{rate} {before}");
            program.at(begin.wrapping_add(HOUR)).unwrap();
            assert_eq!(program.run_many(&frame, 2_000).unwrap(), burst, "{rate} {before}");
        }
    }
}
