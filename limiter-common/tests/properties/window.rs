//! Windows in virtual time, against counts that are kept of every window.

use std::collections::HashMap;

use limiter_common::algorithm::{
    bounds::BoundsError, gcra::Gcra, policer::Decision, rate::SECOND, window::Window,
};

use super::random::Random;

const SEED: u64 = 0x7769_6e64_6f77_7331;

/// Every window's count, in units, and the arithmetic of the definition.
struct Model {
    window: Window,
    sliding: bool,
    newest: u64,
    counts: HashMap<u64, u64>,
}

impl Model {
    /// The window that counts at `now` and how much of it has passed; `None` when the clock went back
    /// too far from the newest one that was counted in.
    fn at(&self, now: u64) -> Option<(u64, u64)> {
        let length = self.window.length;
        let number = now / length;
        if number >= self.newest {
            return Some((number, now % length));
        }
        let early = u128::from(self.newest) * u128::from(length) - u128::from(now);
        (early <= u128::from(Gcra::TOLERANCE)).then_some((self.newest, 0))
    }

    fn count(&self, number: Option<u64>) -> u128 {
        number.and_then(|number| self.counts.get(&number)).copied().unwrap_or(0).into()
    }

    /// The estimate times the length, so that it is a whole number.
    fn estimate(&self, number: u64, elapsed: u64) -> u128 {
        let [length, elapsed] = [self.window.length, elapsed].map(u128::from);
        let previous = if self.sliding { self.count(number.checked_sub(1)) } else { 0 };
        self.count(Some(number)) * length + previous * (length - elapsed)
    }

    fn units(&self, cost: u64) -> u64 {
        u64::try_from(u128::from(cost).div_ceil(1 << self.window.unit)).unwrap()
    }

    fn lose(&mut self, now: u64) {
        self.newest = now / self.window.length;
        self.counts = HashMap::from([(self.newest, self.window.limit)]);
    }

    fn charge(&mut self, number: u64, cost: u64) {
        self.newest = number;
        *self.counts.entry(number).or_default() += self.units(cost);
        assert!(self.counts[&number] <= self.window.limit);
        self.counts.retain(|counted, _| counted + 2 > number);
    }

    /// As [`Window::refund`] says it.
    fn refund(&mut self, charged_at: u64, cost: u64) {
        let (units, number) = (self.units(cost), charged_at / self.window.length);
        if self.newest == number || self.newest == number + 1 {
            let count = self.counts.entry(number).or_default();
            *count = count.saturating_sub(units);
        }
    }

    /// By how much the estimate may be above the exact one, in units.
    fn slack(&self) -> u128 {
        let exact = !self.sliding || (self.window.limit < 1 << 16 && self.window.length < 1 << 47);
        if exact { 0 } else { u128::from(self.window.limit >> 15) + 2 }
    }
}

fn decide(model: &Model, word: u64, now: u64, cost: u64) -> Decision {
    model.window.decide(word, now, cost, model.sliding)
}

/// The wait that is told is the shortest, and the fill is the estimate.
fn check_telling(model: &Model, word: u64, now: u64, cost: u64) {
    let (window, sliding) = (model.window, model.sliding);
    let (wait, fill) = (window.wait(word, now, cost, sliding), window.fill(word, now, sliding));
    let conforms = |at| matches!(decide(model, word, at, cost), Decision::Conform(_));
    if model.units(cost) > window.limit {
        assert_eq!(wait, u64::MAX);
    } else {
        assert!(wait <= 2 * window.length + Gcra::TOLERANCE);
        assert!(conforms(now + wait), "{window:?} after {wait}");
        assert!(wait == 0 || !conforms(now + wait - 1), "{window:?} before {wait}");
    }
    if let Some((number, elapsed)) = model.at(now) {
        let exact = model.estimate(number, elapsed).div_ceil(window.length.into());
        let told = u128::from(fill >> window.unit);
        assert!(told >= exact && told <= exact + model.slack(), "{told} of {exact}");
    }
}

/// A time from which the next packet comes.
fn step(random: &mut Random, now: u64, length: u64) -> u64 {
    match random.below(40) {
        0..=13 => now,
        14..=28 => now + random.below(length / 4 + 1),
        29..=33 => now + random.below(2 * length),
        34 => now / length * length + length,
        35 => now + length - 1 - now % length,
        36 => {
            let most = (1_u64 << 61).saturating_sub(now) / length;
            now + random.between(0, most.min(1 << 13)) * length
        }
        37 | 38 => now.saturating_sub(random.between(0, Gcra::TOLERANCE)),
        _ if random.once_in(30) => now.saturating_sub(random.between(0, 100 * length)),
        _ => now + 1,
    }
}

fn run(random: &mut Random, window: Window, sliding: bool, steps: u64) {
    let mut now = random.between(0, 1 << 58);
    let mut model = Model { window, sliding, newest: 0, counts: HashMap::new() };
    let mut word = window.full(now);
    model.newest = now / window.length;
    let largest = (window.limit << window.unit) / random.between(1, 40) + 2;
    // What the fields cannot tell of a previous window is not taken back from it.
    let exact = window.limit < 1 << 16;
    let mut pending: Option<(u64, u64)> = None;
    for _ in 0..steps {
        now = step(random, now, window.length);
        let cost = if random.once_in(50) { random.any() } else { random.below(largest) };
        let expected = model.at(now);
        match decide(&model, word, now, cost) {
            Decision::Lost(empty) => {
                assert_eq!(expected, None);
                word = empty;
                model.lose(now);
            }
            decision => {
                let (number, elapsed) = expected.unwrap();
                let length = u128::from(window.length);
                let sum = model.estimate(number, elapsed) + u128::from(model.units(cost)) * length;
                let most = u128::from(window.limit) * length;
                if let Decision::Conform(next) = decision {
                    assert!(sum <= most, "{window:?} admits too much");
                    word = next;
                    model.charge(number, cost);
                    pending = Some((now, cost)).filter(|_| random.once_in(6));
                } else {
                    assert!(sum + model.slack() * length > most, "{window:?} refuses too much");
                }
            }
        }
        if let Some((at, cost)) = pending.filter(|_| random.once_in(3)) {
            if exact || model.newest == at / window.length {
                word = window.refund(word, at, cost);
                model.refund(at, cost);
            }
            pending = None;
        }
        if random.once_in(8) {
            check_telling(&model, word, now, cost);
        }
    }
}

fn any_window(random: &mut Random) -> Window {
    let bits = if random.once_in(2) { 12 } else { 63 };
    let limit = random.between(1, 1 << bits);
    let length = match random.below(4) {
        0 => SECOND * random.between(1, 600),
        1 => Window::SHORTEST + random.below(1000),
        2 => random.between(Window::SHORTEST, 1 << 46),
        _ => random.between(Window::SHORTEST, Window::LONGEST),
    };
    Window::new(limit, length).unwrap()
}

#[test]
fn a_window_decides_as_its_definition_says() {
    for number in 0..1_000 {
        let mut random = Random::new(SEED, number);
        let window = any_window(&mut random);
        for sliding in [false, true] {
            run(&mut random, window, sliding, 1_050);
        }
    }
}

#[test]
fn a_window_keeps_its_limit_or_the_error_names_the_cause() {
    let mut random = Random::new(SEED, 1 << 32);
    for _ in 0..20_000 {
        let limit = random.between(1, u64::MAX);
        let window = Window::new(limit, SECOND).unwrap();
        assert!(window.limit < 1 << 32 && window.bits == window.limit.ilog2() + 1);
        assert_eq!(window.limit, limit >> window.unit);
        assert!(limit - (window.limit << window.unit) <= limit >> 31);
        assert!(window.unit == 0 || limit >> 32 != 0);
    }
    assert_eq!(Window::new(0, SECOND), Err(BoundsError::NoLimit));
    assert_eq!(Window::new(1, Window::SHORTEST - 1), Err(BoundsError::TooShort));
    assert_eq!(Window::new(1, Window::LONGEST + 1), Err(BoundsError::TooLong));
    assert!(Window::new(u64::MAX, Window::LONGEST).is_ok());
}

/// Whatever is in a word and in the fields, nothing overflows (this build would panic).
#[test]
fn any_word_at_any_time_gives_an_answer() {
    let mut random = Random::new(SEED, 1 << 33);
    for _ in 0..100_000 {
        let window = any_window(&mut random);
        let (word, now, cost) = (random.any(), random.between(0, u64::MAX), random.any());
        let _: u64 = window.refund(word, now, cost);
        for slides in [false, true] {
            let _: Decision = window.decide(word, now, cost, slides);
            let _: u64 = window.wait(word, now, cost, slides);
            let _: u64 = window.fill(word, now, slides);
        }
        let none = Window::default();
        assert!(!matches!(none.decide(word, now, 1, true), Decision::Conform(_)));
    }
}
