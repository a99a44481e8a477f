//! The worked examples that every text on rate limiting has, each beside its exact arithmetic.

use std::collections::VecDeque;

use limiter_common::{
    algorithm::{
        concurrent::{Concurrent, Signal, Socket},
        gcra::Gcra,
        policer::{Decision, Policer as _},
        rate::{Rate, SECOND},
        sliding_log::SlidingLog,
        window::Window,
    },
    base::slots::Slots as _,
};

use super::{
    random::Random,
    row::{Plain, Row},
};

const SEED: u64 = 0x6578_616d_706c_6573;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const MILLISECOND: u64 = SECOND / 1_000;

/// A bucket with its word.
struct Bucket {
    gcra: Gcra,
    word: u64,
}

impl Bucket {
    fn full(gcra: Gcra, now: u64) -> Self {
        Self { gcra, word: gcra.fresh(now) }
    }

    fn admits(&mut self, now: u64) -> bool {
        match self.gcra.decide(self.word, now, 1) {
            Decision::Conform(next) => {
                self.word = next;
                true
            }
            Decision::Exceed => false,
            Decision::Lost(_) => panic!("the clock does not go back here"),
        }
    }

    /// How many of `packets` at once it admits.
    fn burst(&mut self, packets: u64, now: u64) -> usize {
        (0..packets).filter(|_| self.admits(now)).count()
    }
}

fn at(hours: u64, minutes: u64, seconds: u64) -> u64 {
    hours * HOUR + minutes * MINUTE + seconds * SECOND
}

/// A bucket of 500, refilled by 100 a second: 500 at once, then 100 in each second.
#[test]
fn token_bucket() {
    let begin = 7 * HOUR;
    let mut bucket = Bucket::full(Rate::per_second(100).bucket(500, 1).unwrap(), begin);
    assert_eq!(bucket.burst(1_000, begin), 500);
    for second in 1..=20 {
        assert_eq!(bucket.burst(1_000, begin + second * SECOND), 100);
    }
    assert_eq!(bucket.burst(1_000, begin + 22 * SECOND), 200);
    assert_eq!(bucket.burst(1_000, begin + HOUR), 500, "no more than it holds");
    // Tokens as nanoseconds of refill, and packets at any time: a packet takes what is there of its
    // token, if that is anything, and owes the rest.
    let mut random = Random::new(SEED, 0);
    let (mut now, mut last) = (begin + HOUR, begin + HOUR);
    let (full, token) = ((500 * 10 * MILLISECOND).cast_signed(), (10 * MILLISECOND).cast_signed());
    let mut tokens = 0;
    for _ in 0..100_000 {
        now += random.between(0, 40 * MILLISECOND);
        tokens = (tokens + (now - last).cast_signed()).min(full);
        last = now;
        let expected = tokens > 0;
        tokens -= if expected { token } else { 0 };
        assert_eq!(bucket.admits(now), expected);
    }
}

/// A virtual queue for 10 that is served 5 times a second: of 15 at once 10 get in, and whatever comes,
/// what gets in leaves 200 ms apart, or later when the queue was empty.
#[test]
fn leaky_bucket() {
    const SERVICE: u64 = 200 * MILLISECOND;
    let begin = 3 * HOUR;
    let mut bucket = Bucket::full(Rate::per_second(5).bucket(10, 1).unwrap(), begin);
    assert_eq!(bucket.gcra.shift, 0);
    assert_eq!(bucket.burst(15, begin), 10);
    assert_eq!(bucket.burst(15, begin + SERVICE), 1);
    assert_eq!(bucket.burst(15, begin + 3 * SERVICE), 2);

    let mut random = Random::new(SEED, 1);
    let mut now = begin + HOUR;
    // When what is in the queue has been served.
    let mut queue: VecDeque<u64> = VecDeque::new();
    let mut served = Vec::new();
    for _ in 0..100_000 {
        now += random.between(0, 2 * SERVICE);
        while queue.front().is_some_and(|done| *done <= now) {
            served.extend(queue.pop_front());
        }
        // One that is being served makes room bit by bit: there is place for what has begun to fit.
        let expected = queue.len() < 10 || queue.len() == 10 && queue[0] < now + SERVICE;
        assert_eq!(bucket.admits(now), expected, "{} wait", queue.len());
        if expected {
            queue.push_back(queue.back().copied().unwrap_or(now) + SERVICE);
            assert_eq!(queue.back(), Some(&bucket.word), "the word is when the last is served");
            assert!(queue.len() <= 11);
        }
    }
    assert!(served.windows(2).all(|pair| pair[1] - pair[0] >= SERVICE));
}

/// The algorithm of ITU-T I.371, with increment T and limit tau: the bucket that is one unit deeper
/// than tau. Both of its forms there, and the longest burst at line rate.
#[test]
fn generic_cell_rate_algorithm() {
    let itu = |increment: u64, tau: u64| Gcra {
        interval: increment,
        depth: tau + 1,
        dearest: increment,
        ..Gcra::default()
    };
    // A cell takes 10 units, one in 45 is agreed on: a tolerance of 70 lets 1 + 70 / 35 = 3 pass.
    let mut bucket = Bucket::full(itu(45, 70), 1_000);
    let pattern: Vec<bool> = (0..8).map(|cell| bucket.admits(1_000 + 10 * cell)).collect();
    // Then the theoretical arrival time is 135: what comes before 65 is too early, and the one at 70 is not.
    assert_eq!(pattern, [true, true, true, false, false, false, false, true]);

    let mut random = Random::new(SEED, 2);
    for _ in 0..2_000 {
        let increment = random.between(1, 1 << 20);
        let (tau, cell) = (random.between(0, 1 << 24), random.below(increment));
        let mut now = random.between(0, 1 << 50);
        let mut bucket = Bucket::full(itu(increment, tau), now);
        let longest = 1 + tau / (increment - cell);
        let cells = longest.min(1_000);
        let burst = (0..=cells).take_while(|place| bucket.admits(now + place * cell)).count();
        assert_eq!(burst as u64, longest.min(cells + 1));

        let mut bucket = Bucket::full(itu(increment, tau), now);
        // Virtual scheduling: the theoretical arrival time. Leaky bucket: a level and the time of the
        // last cell that conformed.
        let (mut theoretical, mut level, mut conformed) = (now, 0, now);
        for _ in 0..100 {
            now += random.between(0, 2 * increment);
            let scheduled = now >= theoretical.saturating_sub(tau);
            theoretical = if scheduled { theoretical.max(now) + increment } else { theoretical };
            let left = level - (now - conformed).cast_signed();
            let leaks = left <= tau.cast_signed();
            if leaks {
                (level, conformed) = (left.max(0) + increment.cast_signed(), now);
            }
            assert_eq!([scheduled, leaks], [bucket.admits(now); 2]);
        }
    }
}

/// 5 a minute: 5 at 2:00:58 and 5 at 2:01:02 are in different windows, so 10 pass within 4 seconds.
#[test]
fn fixed_window() {
    let window = Window::new(5, MINUTE).unwrap();
    let mut word = window.full(at(2, 0, 0));
    let mut send = |now| match window.decide(word, now, 1, false) {
        Decision::Conform(next) => {
            word = next;
            true
        }
        _ => false,
    };
    assert_eq!((0..8).filter(|_| send(at(2, 0, 58))).count(), 5);
    assert_eq!((0..8).filter(|_| send(at(2, 1, 2))).count(), 5);
    assert!(!send(at(2, 1, 59)) && send(at(2, 2, 0)));
}

/// 80 in the last minute and 40 in the first quarter of this one: 40 + 80 * 0.75 = 100, the limit.
#[test]
fn sliding_window() {
    let window = Window::new(100, MINUTE).unwrap();
    let mut word = window.full(at(5, 0, 0));
    for now in [[at(5, 0, 10); 80].as_slice(), [at(5, 1, 15); 40].as_slice()].concat() {
        let Decision::Conform(next) = window.decide(word, now, 1, true) else { panic!() };
        word = next;
    }
    let now = at(5, 1, 15);
    assert_eq!(window.fill(word, now, true), 100);
    assert_eq!(window.decide(word, now, 1, true), Decision::Exceed);
    // 40 + 80 * 59 / 80 = 99: when 59 / 80 of the minute remain, after 15.75 s.
    assert_eq!(window.wait(word, now, 1, true), 750 * MILLISECOND);
    assert_eq!(window.fill(word, at(5, 1, 30), true), 80);
    assert_eq!(window.fill(word, at(5, 2, 30), true), 20, "half of the 40");
}

/// 2 a minute, at 1:00:01, 1:00:30, 1:00:50 and 1:01:40: the third is refused and not logged.
#[test]
fn sliding_log() {
    let log = SlidingLog::new(2, MINUTE).unwrap();
    let (control, slots) = (Plain::default(), Row::new());
    let send = |now| {
        let look = log.look(&control, &slots, now);
        look.and_then(|look| log.charge(&control, &slots, look, now)).is_ok()
    };
    assert!(send(at(1, 0, 1)) && send(at(1, 0, 30)));
    assert!(!send(at(1, 0, 50)));
    assert_eq!(log.fill(&control, &slots, at(1, 0, 50)), 2);
    assert_eq!(log.wait(&control, &slots, at(1, 0, 50)), 11 * SECOND);
    assert!(send(at(1, 1, 40)));
    assert_eq!(log.fill(&control, &slots, at(1, 1, 40)), 1);
}

/// 2 connections at once: the third gets in when one of them is over.
#[test]
fn concurrent() {
    let leases = Concurrent::new(2, 5 * MINUTE).unwrap();
    let slots = Row::new();
    let send = |connection, signal, now| {
        let look = leases.look(&slots, connection, signal, now);
        look.and_then(|look| leases.charge(&slots, look, connection, signal, now)).is_ok()
    };
    let now = at(4, 0, 0);
    assert!(send(101, Signal::Open, now) && send(102, Signal::Open, now));
    assert!(!send(103, Signal::Open, now + SECOND));
    assert!(send(101, Signal::Data, now + SECOND), "the open ones go on");
    assert!(send(101, Signal::Reset, now + 2 * SECOND));
    assert!(!send(103, Signal::Open, now + 2 * SECOND), "nobody knows whether it is true");
    // The host has no socket of it any more.
    let over =
        (0..Concurrent::MOST).find(|place| Concurrent::tag_of(slots.load(*place)) == 101).unwrap();
    leases.answer(&slots, over, slots.load(over), Socket::None, now + 2 * SECOND);
    assert!(send(103, Signal::Open, now + 2 * SECOND));
    assert_eq!(leases.fill(&slots, now + 2 * SECOND), 2);
    // The second vanished without a word.
    assert!(send(103, Signal::Data, now + 4 * MINUTE));
    assert!(
        !send(104, Signal::Open, now + 5 * MINUTE) && send(104, Signal::Open, now + 6 * MINUTE)
    );
}
