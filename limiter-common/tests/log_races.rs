//! Every interleaving of a few events at one sliding log, by the model checker.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod model;

use limiter_common::{
    algorithm::{
        policer::Refusal,
        sliding_log::{Event, SlidingLog},
    },
    base::{slots::Slots, word::Word},
    table::set::retire_by,
};
use loom::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, SeqCst},
        },
    },
    thread,
};

use self::model::check;

/// The length of the window and the time of the first event.
const WINDOW: u64 = 1_000;
const NOW: u64 = 77_000_000_000;

/// The slots that the model follows; those beyond are never written here.
const SHARED: usize = 5;

/// The state of a log.
struct State {
    control: AtomicU64,
    slots: [AtomicU64; SHARED],
}

impl Word for State {
    fn load(&self) -> u64 {
        self.control.load(Relaxed)
    }

    fn load_acquire(&self) -> u64 {
        self.control.load(Acquire)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        model::compare_exchange(&self.control, current, new)
    }
}

impl limiter_common::algorithm::sliding_log::Log for State {}

impl Slots for State {
    fn load(&self, place: usize) -> u64 {
        self.slots.get(place).map_or(0, |slot| slot.load(Relaxed))
    }

    fn store(&self, place: usize, word: u64) {
        // By an exchange without order: of two stores that meet, loom lets a load find either one for ever.
        let _: u64 = self.slots[place].swap(word, Relaxed);
    }

    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        model::compare_exchange(&self.slots[place], current, new)
    }
}

impl State {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self { control: zero(), slots: [zero(), zero(), zero(), zero(), zero()] })
    }

    fn admit(&self, log: SlidingLog, now: u64) -> Result<Event, Refusal> {
        log.look(self, self, now).and_then(|look| log.charge(self, self, look, now))
    }
}

/// When the events counted that are in the log, each of which is there once.
fn logged(state: &State) -> Vec<u64> {
    let mut times: Vec<u64> = (0..SHARED)
        .map(|place| Slots::load(state, place) << 8 >> 8)
        .filter(|time| *time != 0)
        .collect();
    times.sort_unstable();
    times
}

/// No slot of so many events looks unwritten for good.
fn assert_written(state: &State, events: u64) {
    for limit in 1..=events {
        let log = SlidingLog::new(limit, WINDOW).unwrap();
        assert_ne!(log.look(state, state, NOW), Err(Refusal::Contended), "{limit} before the last");
    }
}

/// Threads with an event each at these times, after `before` events: none is lost, none is admitted
/// beyond the limit, and nothing is written for the others.
fn race(limit: u64, before: u64, times: &'static [u64]) {
    let log = SlidingLog::new(limit, WINDOW).unwrap();
    let state = State::new();
    for _ in 0..before {
        assert!(state.admit(log, NOW).is_ok());
    }
    let threads: Vec<_> = times
        .iter()
        .map(|after| {
            let state = Arc::clone(&state);
            thread::spawn(move || state.admit(log, NOW + after))
        })
        .collect();
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let mut expected = vec![NOW; before as usize];
    expected.extend(outcomes.iter().flatten().map(|event| event.0 << 8 >> 8));
    expected.sort_unstable();
    assert_eq!(logged(&state), expected);
    for (place, from) in expected.iter().enumerate() {
        let within = expected[place..].iter().filter(|time| *time - from < WINDOW).count();
        assert!(within as u64 <= limit, "{within} of {limit} in a window: {expected:?}");
    }
    assert_written(&state, expected.len() as u64);
    let next = state.admit(log, NOW + times.iter().max().unwrap() + WINDOW);
    assert!(next.is_ok());
    if !outcomes.contains(&Err(Refusal::Contended)) && times.iter().all(|time| *time == times[0]) {
        let room = limit - if times[0] < WINDOW { before } else { 0 };
        let admitted = outcomes.iter().flatten().count() as u64;
        assert_eq!(admitted, room.min(times.len() as u64), "what is left is given out");
    }
}

#[test]
fn a_window_never_has_more_than_the_limit_and_no_event_is_lost() {
    for (limit, before) in [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 2)] {
        check(3, move || race(limit, before, &[5, 5]));
        check(3, move || race(limit, before, &[WINDOW, WINDOW - 1]));
        check(3, move || race(limit, before, &[WINDOW, WINDOW + 3]));
    }
    for (limit, before) in [(1, 1), (2, 1), (2, 2)] {
        check(2, move || race(limit, before, &[WINDOW, WINDOW, WINDOW]));
    }
}

#[test]
fn a_refused_event_writes_nothing() {
    check(3, || {
        let log = SlidingLog::new(1, WINDOW).unwrap();
        let state = State::new();
        assert!(state.admit(log, NOW).is_ok());
        let before = (Word::load(&*state), logged(&state));
        let other = thread::spawn({
            let state = Arc::clone(&state);
            move || state.admit(log, NOW + 1)
        });
        assert_eq!(state.admit(log, NOW + 2), Err(Refusal::Exceed));
        assert_eq!(other.join().unwrap(), Err(Refusal::Exceed));
        assert_eq!(before, (Word::load(&*state), logged(&state)));
    });
}

/// The control word of a log whose binding is asked for.
struct BoundLog<'a> {
    state: &'a State,
    binding: &'a AtomicU64,
    bound: u64,
}

impl Word for BoundLog<'_> {
    fn load(&self) -> u64 {
        Word::load(self.state)
    }

    fn load_acquire(&self) -> u64 {
        self.state.load_acquire()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        Word::compare_exchange(self.state, current, new)
    }

    fn bound(&self) -> bool {
        self.binding.load(Relaxed) == self.bound
    }
}

/// A log is given to another key while a packet of the key before comes to it.
#[test]
fn an_event_is_never_charged_to_the_key_after() {
    const LOCKED: u64 = u64::MAX;
    check(3, || {
        let log = SlidingLog::new(3, WINDOW).unwrap();
        let shared = Arc::new((State::new(), AtomicU64::new(0)));
        let late = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let (state, binding) = &*shared;
                let bound = BoundLog { state, binding, bound: 0 };
                log.look(&bound, &**state, NOW)
                    .and_then(|look| log.charge(&bound, &**state, look, NOW))
                    .is_ok()
            }
        });
        let (state, binding) = &*shared;
        assert_eq!(model::compare_exchange(binding, 0, LOCKED), 0);
        // It becomes another word, so that who looked before charges nothing.
        let given = loop {
            let seen = Word::load(&**state);
            if Word::compare_exchange(&**state, seen, seen ^ 1) == seen {
                break seen ^ 1;
            }
        };
        assert_eq!(model::compare_exchange(binding, LOCKED, 1), LOCKED);
        let charged = late.join().unwrap();
        assert_eq!(Word::load(&**state), given, "nothing is charged to it since");
        assert_eq!(charged, given >> 56 == 1);
    });
}

/// An event that is taken back while others come.
fn race_with_refund(limit: u64, before: u64) {
    let log = SlidingLog::new(limit, WINDOW).unwrap();
    let state = State::new();
    for _ in 0..before {
        assert!(state.admit(log, NOW).is_ok());
    }
    let others = [0, 1].map(|_| {
        let state = Arc::clone(&state);
        thread::spawn(move || state.admit(log, NOW).is_ok())
    });
    let refused = state.admit(log, NOW);
    if let Ok(event) = refused {
        SlidingLog::refund(&*state, &*state, event);
    }
    let stayed = others.map(|other| other.join().unwrap()).iter().filter(|ok| **ok).count() as u64;
    assert_eq!(log.fill(&*state, &*state, NOW), before + stayed);
    assert!(before + stayed <= limit);
    assert_written(&state, Word::load(&*state) >> 56);
    assert!(state.admit(log, NOW + WINDOW).is_ok(), "no slot is left unwritten");
}

#[test]
fn an_event_that_is_taken_back_is_gone_and_no_other_is() {
    for (limit, before) in [(1, 0), (2, 0), (2, 1), (3, 1)] {
        check(2, move || race_with_refund(limit, before));
    }
}

/// A log with the word that says whose it is.
struct Owned {
    state: State,
    binding: AtomicU64,
}

/// The control word, for a key that found this binding.
struct Bound<'a> {
    owned: &'a Owned,
    binding: u64,
}

impl Word for Bound<'_> {
    fn load(&self) -> u64 {
        Word::load(&self.owned.state)
    }

    fn load_acquire(&self) -> u64 {
        Word::load_acquire(&self.owned.state)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        Word::compare_exchange(&self.owned.state, current, new)
    }

    fn bound(&self) -> bool {
        self.owned.binding.load(Acquire) == self.binding
    }
}

/// The bindings of a key, while its entry changes hands, and of the key that gets it.
const OWNER: u64 = 1;
const LOCKED: u64 = 2;
const HEIR: u64 = 3;

impl Owned {
    fn admit(&self, log: SlidingLog, binding: u64, now: u64) -> Result<Option<Event>, Refusal> {
        let control = Bound { owned: self, binding };
        let look = log.look(&control, &self.state, now)?;
        Ok(log.attempt(&control, &self.state, look, now))
    }

    /// Gives it to another key, in the order of the kernel half: binding, word, slots, binding.
    fn give(&self, log: SlidingLog, may_owe: bool, now: u64) -> bool {
        self.binding.swap(LOCKED, SeqCst);
        if !retire_by(&self.state, may_owe, |word| log.owes(word, now)) {
            self.binding.swap(OWNER, SeqCst);
            return false;
        }
        for place in 0..SHARED {
            let slot = Slots::load(&self.state, place);
            Slots::compare_exchange(&self.state, place, slot, SlidingLog::emptied(slot));
        }
        self.binding.swap(HEIR, SeqCst);
        true
    }
}

/// A log of `before` events changes hands while its key is charged one more: the event is the key's and keeps the log, or the
/// log is the other key's, which may find that one event in it, and no slot that is never written.
#[test]
fn a_log_that_changes_hands_is_never_left_unwritten() {
    for (before, may_owe) in [(0, false), (1, false), (1, true), (2, true)] {
        check(3, move || {
            let log = SlidingLog::new(2, WINDOW).unwrap();
            let state = Arc::try_unwrap(State::new()).ok().unwrap();
            let owned = Arc::new(Owned { state, binding: AtomicU64::new(OWNER) });
            for _ in 0..before {
                assert!(owned.state.admit(log, NOW).is_ok());
            }
            let later = NOW + WINDOW;
            let packet = thread::spawn({
                let owned = Arc::clone(&owned);
                move || owned.admit(log, OWNER, later)
            });
            let given = owned.give(log, may_owe, later);
            let admitted = matches!(packet.join().unwrap(), Ok(Some(_)));
            if !given {
                assert!(admitted, "nobody else can have kept it");
                return;
            }
            // An event that was admitted before is gone with its key, but for one that was written after the slots were
            // emptied.
            let strays = logged(&owned.state).len();
            assert!(strays <= usize::from(admitted && may_owe), "{strays} strays");
            for number in 0..2 - strays as u64 {
                let event = owned.admit(log, HEIR, later + number);
                assert!(
                    matches!(event, Ok(Some(_))),
                    "{number} of {before}, {may_owe}, {admitted}, {strays}: {event:?}"
                );
            }
            assert_eq!(owned.admit(log, HEIR, later + 9), Err(Refusal::Exceed));
        });
    }
}

/// A log is copied word by word while its key is charged: no slot of the copy looks unwritten for good, and each event that the
/// copied control word counts is in the copy.
#[test]
fn a_log_that_is_copied_while_it_is_charged_is_never_left_unwritten() {
    for (before, word_first) in [(0, false), (0, true), (1, false), (1, true)] {
        check(3, move || {
            let log = SlidingLog::new(2, WINDOW).unwrap();
            let old = State::new();
            for _ in 0..before {
                assert!(old.admit(log, NOW).is_ok());
            }
            let packet = thread::spawn({
                let old = Arc::clone(&old);
                move || old.admit(log, NOW).is_ok()
            });
            let slots = State::new();
            let read_slots = || {
                for place in 0..SHARED {
                    Slots::store(&*slots, place, Slots::load(&*old, place));
                }
            };
            if !word_first {
                read_slots();
            }
            let control = Word::load(&*old);
            if word_first {
                read_slots();
            }
            let copy = State::new();
            for place in 0..SHARED {
                let slot = SlidingLog::copied(&*slots, control, control, place);
                Slots::store(&*copy, place, slot);
            }
            copy.control.store(SlidingLog::numbered(control, control), Relaxed);
            assert!(packet.join().unwrap());
            let counted = control >> 56;
            for limit in 1..=counted {
                let log = SlidingLog::new(limit, WINDOW).unwrap();
                assert_eq!(log.look(&*copy, &*copy, NOW), Err(Refusal::Exceed), "{limit}");
            }
            for later in 1..=3 {
                assert!(copy.admit(log, NOW + later * WINDOW).is_ok(), "{later} after {counted}");
            }
        });
    }
}
