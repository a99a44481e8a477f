//! The sliding log in virtual time, on two CPUs, against the list of all that was admitted.

use limiter_common::algorithm::{
    bounds::BoundsError,
    gcra::Gcra,
    meter::Meter,
    policer::{Look, Refusal},
    rate::SECOND,
    sliding_log::{Event, SlidingLog},
};

use super::{
    random::Random,
    row::{Plain, Row},
};

const SEED: u64 = 0x736c_6964_6c6f_6731;

/// When each event counts, in the order in which they were admitted.
#[derive(Default)]
struct Model {
    events: Vec<u64>,
    /// When the last one counts, also when it was taken back.
    last: Option<u64>,
}

impl Model {
    /// When an event at `now` counts, and whether the clock went far back.
    fn moment(&self, now: u64) -> (u64, bool) {
        // The log has no times 0 and 1.
        let now = now.max(2);
        match self.last {
            Some(last) if now < last && last - now <= Gcra::TOLERANCE => (last, false),
            Some(last) => (now, now < last),
            None => (now, false),
        }
    }

    fn fill(&self, window: u64, now: u64) -> usize {
        let (time, _) = self.moment(now);
        self.events.iter().filter(|event| **event + window > time).count()
    }

    fn conforms(&self, log: SlidingLog, now: u64) -> bool {
        self.moment(now).1 || (self.fill(log.window, now) as u64) < log.limit
    }

    fn charge(&mut self, now: u64) {
        let (time, lost) = self.moment(now);
        if lost {
            self.events.iter_mut().for_each(|event| *event = (*event).min(time));
        }
        self.events.push(time);
        self.last = Some(time);
        // The log keeps so many, whatever the limit.
        if self.events.len() > SlidingLog::MOST {
            self.events.remove(0);
        }
    }
}

/// The log under test.
struct State {
    control: Plain,
    slots: Row,
}

impl State {
    fn new() -> Self {
        Self { control: Plain::default(), slots: Row::new() }
    }

    fn look(&self, log: SlidingLog, now: u64) -> Result<Look, Refusal> {
        let before = (self.control.get(), self.slots.values());
        let look = log.look(&self.control, &self.slots, now);
        assert_eq!(before, (self.control.get(), self.slots.values()), "a look writes nothing");
        look
    }

    fn charge(&self, log: SlidingLog, look: Look, now: u64) -> Result<Event, Refusal> {
        log.charge(&self.control, &self.slots, look, now)
    }

    fn admit(&self, log: SlidingLog, now: u64) -> Result<Event, Refusal> {
        self.look(log, now).and_then(|look| self.charge(log, look, now))
    }

    fn refund(&self, event: Event) {
        SlidingLog::refund(&self.control, &self.slots, event);
    }

    fn fill(&self, log: SlidingLog, now: u64) -> u64 {
        log.fill(&self.control, &self.slots, now)
    }

    fn wait(&self, log: SlidingLog, now: u64) -> u64 {
        log.wait(&self.control, &self.slots, now)
    }

    fn rest(&self, log: SlidingLog, now: u64) -> u64 {
        log.rest(&self.control, &self.slots, now)
    }
}

fn any_log(random: &mut Random, longest: u64) -> SlidingLog {
    SlidingLog::new(random.between(1, 128), random.between(1, longest)).unwrap()
}

fn step(random: &mut Random, now: u64, log: SlidingLog) -> u64 {
    match random.below(30) {
        0..=8 => now,
        9..=18 => now + random.below(2 * log.window / log.limit + 1),
        19..=24 => now + random.below(log.window / 4 + 1),
        25 => now + random.below(2 * log.window),
        26 => now + log.window,
        27 => now + log.window - 1,
        28 => now.saturating_sub(random.between(0, Gcra::TOLERANCE)),
        _ if random.once_in(60) => now.saturating_sub(random.between(0, 4 * log.window)),
        _ => now + 1,
    }
}

/// One run; `longest` is the longest window, and what of it is charged on a second CPU, with a look
/// that is old by then, is decided as of then.
fn run(random: &mut Random, longest: u64, steps: u64) {
    let (state, mut model) = (State::new(), Model::default());
    let mut log = any_log(random, longest);
    let mut now = random.between(1, 1 << 52);
    let mut other: Option<(Look, SlidingLog, u64)> = None;
    for _ in 0..steps {
        if random.once_in(100) {
            log = any_log(random, longest);
        }
        now = step(random, now, log);
        if let Some((look, log, at)) = other.filter(|_| random.once_in(3)) {
            other = None;
            let expected = model.conforms(log, at);
            assert_eq!(state.charge(log, look, at).is_ok(), expected);
            if expected {
                model.charge(at);
            }
        }
        let expected = model.conforms(log, now);
        if random.once_in(4) {
            let fill = model.fill(log.window, now);
            assert_eq!(state.fill(log, now), fill as u64, "{log:?} at {now}");
        }
        let wait = state.wait(log, now);
        assert_eq!(wait == 0, expected, "{log:?} at {now}");
        if wait > 0 {
            assert!(
                state.look(log, now + wait).is_ok() && state.look(log, now + wait - 1).is_err()
            );
        }
        let (fill, rest) = (state.fill(log, now), state.rest(log, now));
        assert_eq!(rest == 0, fill == 0, "{log:?} at {now}");
        assert!(rest >= wait && state.fill(log, now + rest) == 0, "{log:?} at {now}: {rest}");
        let look = state.look(log, now);
        assert_eq!(look.map(|_| ()), if expected { Ok(()) } else { Err(Refusal::Exceed) });
        let Ok(look) = look else { continue };
        if random.once_in(8) {
            other.get_or_insert((look, log, now));
            continue;
        }
        let event = state.charge(log, look, now).unwrap();
        model.charge(now);
        if random.once_in(10) {
            // Still the newest, so nothing remains of it.
            state.refund(event);
            model.events.pop();
        }
    }
}

#[test]
fn a_log_decides_as_the_list_of_events_does() {
    for number in 0..1_200 {
        let mut random = Random::new(SEED, number);
        let longest = match number % 3 {
            0 => 60 * SECOND,
            1 => 1_000,
            _ => 1 << 45,
        };
        run(&mut random, longest, 1_000);
    }
}

/// Events that are taken back when others came since leave their places used up: never more than the
/// limit is admitted, and what is refused has as many events and places against it.
#[test]
fn an_event_that_is_taken_back_late_admits_nothing_more() {
    for number in 0..200 {
        let mut random = Random::new(SEED, (1 << 32) + number);
        let log = any_log(&mut random, SECOND);
        let state = State::new();
        let mut now = 1_000;
        let mut events: Vec<(u64, Option<Event>)> = Vec::new();
        for _ in 0..1_000 {
            now += random.below(2 * log.window / log.limit + 1);
            let recent = |event: &&(u64, Option<Event>)| event.0 + log.window > now;
            let places = events.iter().filter(recent).count() as u64;
            let counted = events.iter().filter(recent).filter(|event| event.1.is_some()).count();
            match state.admit(log, now) {
                Ok(event) => {
                    assert!((counted as u64) < log.limit);
                    events.push((now, Some(event)));
                }
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Exceed);
                    assert!(places >= log.limit);
                }
            }
            let late = random.below(events.len() as u64) as usize;
            if random.once_in(4)
                && late + 1 < events.len()
                && late + SlidingLog::MOST > events.len()
                && let Some(event) = events[late].1.take()
            {
                state.refund(event);
            }
            let recent = |event: &&(u64, Option<Event>)| event.0 + log.window > now;
            let counted = events.iter().filter(recent).filter(|event| event.1.is_some()).count();
            assert_eq!(state.fill(log, now), counted as u64);
            let single = log.is_single(state.control.get(), &state.slots, now);
            assert!(!single || counted <= 1, "{counted} events in the window");
        }
    }
}

/// A slot of an event that was taken back says nothing of the events before it.
#[test]
fn a_log_with_an_event_before_one_that_was_taken_back_is_not_single() {
    let log = SlidingLog::new(5, SECOND).unwrap();
    let state = State::new();
    let now = 10 * SECOND;
    let single = |now| log.is_single(state.control.get(), &state.slots, now);
    state.admit(log, now).unwrap();
    let second = state.admit(log, now + 1).unwrap();
    state.admit(log, now + 2).unwrap();
    state.refund(second);
    assert_eq!(state.fill(log, now + 2), 2);
    assert!(!single(now + 2));
    state.admit(log, now + SECOND / 2).unwrap();
    assert!(!single(now + SECOND / 2));
    state.admit(log, now + 3 * SECOND).unwrap();
    assert!(single(now + 3 * SECOND));
}

/// A copy goes on as the log would have, also where its events get other numbers.
#[test]
fn a_copy_of_a_log_decides_as_the_log_does() {
    for number in 0..400 {
        let mut random = Random::new(SEED, (2 << 32) + number);
        let log = any_log(&mut random, SECOND);
        let (state, copy) = (State::new(), State::new());
        let mut now = random.between(SECOND, 1 << 40);
        for _ in 0..random.below(600) {
            now += random.below(2 * log.window / log.limit + 1);
            let event = state.admit(log, now);
            if let (Ok(event), true) = (event, random.once_in(9)) {
                state.admit(log, now).ok();
                state.refund(event);
            }
        }
        let control = state.control.get();
        let to = random.below(256) << 56 | random.below(1 << 40);
        for place in 0..SlidingLog::MOST {
            copy.slots.0[place].set(SlidingLog::copied(&state.slots, control, to, place));
        }
        copy.control.set(SlidingLog::numbered(control, to));
        assert_eq!(copy.control.get() >> 56, to >> 56);
        for _ in 0..400 {
            now += random.below(2 * log.window / log.limit + 1);
            let limit = random.between(1, 128);
            let log = SlidingLog { limit, ..log };
            assert_eq!(copy.fill(log, now), state.fill(log, now));
            assert_eq!(copy.admit(log, now).is_ok(), state.admit(log, now).is_ok());
        }
    }
}

/// As long as the slot of the last event is not written, nobody is told that it is not there.
#[test]
fn a_slot_that_is_not_written_yet_is_noticed() {
    let log = SlidingLog::new(1, SECOND).unwrap();
    let state = State::new();
    // Another CPU is between the two steps of a charge.
    state.control.set(1 << 56 | 1_000);
    assert_eq!(state.look(log, 1_001), Err(Refusal::Contended));
    assert!(
        state.look(SlidingLog { limit: 2, ..log }, 1_001).is_ok(),
        "that needs no slot of this lap"
    );
    assert!(state.look(log, 1_000 + SECOND).is_ok(), "it is too old anyway");
    assert_eq!(state.wait(log, 1_001), 0);
}

/// A slot is not claimed again before the event of the last lap is written, also when the limit asks
/// for a later one: who writes it late would write over the new one.
#[test]
fn a_slot_is_written_before_it_is_claimed_again() {
    let log = SlidingLog::new(2, SECOND).unwrap();
    let state = State::new();
    for event in 0..130 {
        assert!(state.admit(log, (1 + event) * SECOND).is_ok());
    }
    let now = 130 * SECOND + 1;
    assert!(state.look(log, now).is_ok());
    state.slots.0[2].set(0);
    assert_eq!(state.look(log, now), Err(Refusal::Contended));
}

/// Across the wrap of the times, after 2.3 years.
#[test]
fn times_wrap() {
    let log = SlidingLog::new(2, SECOND).unwrap();
    for shift in 0..5 {
        let state = State::new();
        let wrap = 1 << 56;
        let begin = wrap - SECOND / 2 - shift;
        let admitted = [0, 1, 2, SECOND / 2 + shift, SECOND, SECOND + 1, SECOND + 2]
            .map(|after| state.admit(log, begin + after).is_ok());
        assert_eq!(admitted, [true, true, false, false, true, true, false]);
    }
}

#[test]
fn a_clock_that_went_far_back_admits_one() {
    let log = SlidingLog::new(3, SECOND).unwrap();
    let state = State::new();
    let back = 1_000 * SECOND;
    for _ in 0..3 {
        assert!(state.admit(log, 9 * back).is_ok());
    }
    assert!(state.admit(log, back).is_ok());
    assert_eq!(state.fill(log, back), 4);
    for after in [0, 1, SECOND - 1] {
        assert_eq!(state.admit(log, back + after), Err(Refusal::Exceed));
    }
    let after = [0, 0, 0, 0].map(|_| state.admit(log, back + SECOND).is_ok());
    assert_eq!(after, [true, true, true, false]);
}

#[test]
fn a_log_owes_until_its_last_event_leaves_the_window() {
    let (state, log) = (State::new(), SlidingLog::new(3, 10 * SECOND).unwrap());
    let (meter, begin) = (Meter::of_sliding_log(log), 1_000 * SECOND);
    let owes = |now| meter.measure().owes(state.control.get(), now);
    let is_single = |now| log.is_single(state.control.get(), &state.slots, now);
    assert!(meter.measure().is_wide());
    assert_eq!(owes(begin), 0, "a new one");
    for (event, single) in [(0, true), (1, false), (2, false)] {
        let now = begin + event * SECOND;
        state.admit(log, now).unwrap();
        assert_eq!((owes(now), is_single(now)), (10 * SECOND, single), "{event}");
    }
    // A clock that is behind finds the last event to come.
    assert_eq!(owes(begin), 10 * SECOND);
    assert_eq!([owes(begin + 12 * SECOND - 1), owes(begin + 12 * SECOND)], [1, 0]);
    assert!(is_single(begin + 11 * SECOND));
    let next = Meter::of_sliding_log(SlidingLog::new(9, 20 * SECOND).unwrap());
    let carried = next.carry(state.control.get(), meter.measure(), begin);
    assert_eq!(carried, state.control.get(), "events stay under other numbers");
}

#[test]
fn a_log_keeps_its_bounds() {
    assert_eq!(SlidingLog::new(0, SECOND), Err(BoundsError::NoLimit));
    assert_eq!(SlidingLog::new(129, SECOND), Err(BoundsError::TooMany));
    assert_eq!(SlidingLog::new(128, 0), Err(BoundsError::TooShort));
    assert_eq!(SlidingLog::new(1, SlidingLog::LONGEST + 1), Err(BoundsError::TooLong));
    let (state, log) = (State::new(), SlidingLog::new(128, SlidingLog::LONGEST).unwrap());
    let admitted = (0..500).filter(|at| state.admit(log, 2 + at).is_ok()).count();
    assert_eq!(admitted, 128);
    assert!(state.admit(log, 2 + SlidingLog::LONGEST).is_ok());
    assert_eq!(state.admit(SlidingLog::default(), 5), Err(Refusal::Exceed));
    assert_eq!(state.wait(SlidingLog::default(), 5), u64::MAX);
}
