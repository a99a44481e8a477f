//! Several buckets, charged together.

use std::cell::Cell;

use limiter_common::{
    gcra::Gcra,
    limit::{LIMITS, Limit},
    plan::{Plan, State},
    rate::Rate,
    reason::Reason,
    word::Word,
};
use limiter_tests::model;

use super::{MINUTE, Random, Run, any_rate, seed, start, step};

/// What happens to a word at the moment when a packet is charged to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Race {
    /// Nothing.
    None,
    /// Another CPU takes all that is left.
    Drain(u64),
    /// Other CPUs move it again and again.
    Busy,
    /// The entry is bound to another policy.
    Rebind,
}

/// A word, shared with the test that looks at it.
#[derive(Clone, Copy)]
struct Shared<'a> {
    word: &'a Cell<u64>,
    race: &'a Cell<Race>,
    bound: &'a Cell<bool>,
}

impl Word for Shared<'_> {
    fn load(&self) -> u64 {
        self.word.get()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        match self.race.get() {
            Race::None => {}
            Race::Drain(empty) => {
                self.word.set(empty);
                self.race.set(Race::None);
            }
            Race::Busy => self.word.set(self.word.get().wrapping_sub(1)),
            Race::Rebind => {
                self.word.set(self.word.get().wrapping_add(1 << 40));
                self.bound.set(false);
            }
        }
        let found = self.word.get();
        if found == current {
            self.word.set(new);
        }
        found
    }

    fn bound(&self) -> bool {
        self.bound.get()
    }
}

/// The words of one source and of one of its connections.
struct Words {
    words: [Cell<u64>; LIMITS],
    races: [Cell<Race>; LIMITS],
    bound: Cell<bool>,
    /// Whether the connection has an entry; creating it may fail.
    exists: Cell<bool>,
    room: bool,
    connection: Gcra,
    now: u64,
}

impl Words {
    fn new(plan: &Plan, now: u64) -> Self {
        Self {
            words: plan.limits.map(|gcra| Cell::new(gcra.full(now))),
            races: [const { Cell::new(Race::None) }; LIMITS],
            bound: Cell::new(true),
            exists: Cell::new(true),
            room: true,
            connection: plan.limits[Limit::Connection.index()],
            now,
        }
    }

    fn values(&self) -> [u64; LIMITS] {
        self.words.each_ref().map(Cell::get)
    }
}

impl<'a> State for &'a Words {
    type Word = Shared<'a>;

    fn find(&mut self, limit: Limit) -> Option<Shared<'a>> {
        (limit != Limit::Connection || self.exists.get()).then(|| {
            let place = limit.index();
            Shared { word: &self.words[place], race: &self.races[place], bound: &self.bound }
        })
    }

    fn create(&mut self, limit: Limit) -> Option<Shared<'a>> {
        assert_eq!(limit, Limit::Connection, "only a connection is created on demand");
        assert!(!self.exists.get(), "created twice");
        self.exists.set(self.room);
        self.words[limit.index()].set(self.connection.full(self.now));
        self.find(limit)
    }
}

fn plan(buckets: [Option<Gcra>; LIMITS]) -> Plan {
    let mut plan = Plan::default();
    for (limit, gcra) in Limit::ALL.into_iter().zip(buckets) {
        plan.limits[limit.index()] = gcra.unwrap_or_default();
        plan.active |= gcra.map_or(0, |_| limit.bit());
    }
    plan
}

#[test]
fn every_verdict_of_a_plan_is_the_exact_one() {
    const RUNS: u64 = 800;
    let seed = seed();
    let mut reasons = [0_u64; 1 + LIMITS];
    for run in 0..RUNS {
        let mut random = Random::of(seed, run);
        let stated: [_; LIMITS] = std::array::from_fn(|_| {
            let rate = any_rate(&mut random);
            let gcra = rate.bucket(random.magnitude(1, 256)).unwrap();
            (random.between(0, 3) > 0).then_some(gcra)
        });
        let plan = plan(stated);
        let pace = stated.into_iter().flatten().max_by_key(|gcra| random.next() ^ gcra.shift);
        let pace = pace.unwrap_or_else(|| Rate::per_second(10).bucket(1).unwrap());
        let mut now = start(&mut random, &pace) >> 10;
        let _run = Run { seed, run, of: &(plan, now) };
        let exact = |gcra: Gcra, now| {
            let burst = gcra.depth / gcra.interval;
            model::Bucket::new(1 << gcra.shift, gcra.interval.into(), burst, now)
        };
        let mut expected =
            model::Plan { buckets: stated.map(|gcra| gcra.map(|gcra| exact(gcra, now))) };
        let mut words = Words::new(&plan, now);
        for number in 0..1_500 {
            words.now = now;
            if random.between(0, 63) == 0 {
                words.exists.set(false);
            }
            let existed = words.exists.get();
            let before = words.values();
            let connection = Limit::Connection.index();
            if !existed {
                expected.buckets[connection] = stated[connection].map(|gcra| exact(gcra, now));
            }
            let unasked = expected.clone();
            let applies =
                if random.between(0, 2) == 0 { [true; LIMITS] } else { [true, false, true] };
            let bits = Limit::ALL.iter().filter(|limit| applies[limit.index()]);
            let bits = plan.active & bits.fold(0, |bits, limit| bits | limit.bit());
            let verdict = plan.decide(bits, &mut &words, now);
            let reason = expected.admit(applies, now);
            assert_eq!(
                verdict,
                reason.map_err(|place| Reason::exceed(Limit::ALL[place])),
                "step {number} at {now}"
            );
            reasons[reason.map_or_else(|place| place + 1, |()| 0)] += 1;
            if reason.is_err() {
                assert_eq!(words.exists.get(), existed, "a refused packet made an entry");
                // Giving up a lost clock is the one thing that a refused packet may store.
                let same = |place: &usize| expected.buckets[*place] == unasked.buckets[*place];
                for place in (0..LIMITS).filter(same) {
                    assert_eq!(words.values()[place], before[place], "step {number}: charged");
                }
            }
            now = step(&mut random, &pace, now).min(1 << 53);
        }
    }
    assert!(reasons.iter().all(|count| *count > RUNS), "{reasons:?}");
}

const NOW: u64 = 5 * MINUTE;

/// Three limits of four tokens each, one of which is spent: words that a refund must restore.
fn spent_once() -> (Plan, Words) {
    let bucket = |packets| Some(Rate::per_second(packets).bucket(4).unwrap());
    let plan = plan([bucket(1_000), bucket(50), bucket(3_333_333)]);
    let words = Words::new(&plan, NOW);
    assert_eq!(plan.decide(plan.active, &mut &words, NOW), Ok(()));
    (plan, words)
}

/// The packet loses a race at one limit; the others are as if it never came.
fn lose_race_at(limit: Limit, race: Race, expected: Reason) {
    let (plan, words) = spent_once();
    let before = words.values();
    words.races[limit.index()].set(race);
    assert_eq!(plan.decide(plan.active, &mut &words, NOW), Err(expected), "{limit:?} {race:?}");
    for other in Limit::ALL.into_iter().filter(|other| *other != limit) {
        let place = other.index();
        // An entry that is re-bound meanwhile is somebody else's to write.
        if race != Race::Rebind {
            assert_eq!(words.values()[place], before[place], "{other:?} after {limit:?} {race:?}");
        }
    }
}

#[test]
fn a_race_lost_at_one_limit_costs_the_others_nothing() {
    for limit in Limit::ALL {
        let empty = {
            let gcra = spent_once().0.limits[limit.index()];
            gcra.full(NOW).wrapping_add(gcra.depth)
        };
        lose_race_at(limit, Race::Drain(empty), Reason::exceed(limit));
        lose_race_at(limit, Race::Busy, Reason::Contended);
        lose_race_at(limit, Race::Rebind, Reason::Contended);
    }
}

#[test]
fn a_refund_of_a_full_bucket_leaves_it_full() {
    let (plan, words) = spent_once();
    let later = NOW + MINUTE;
    let source = plan.limits[Limit::Source.index()];
    words.races[Limit::Source.index()].set(Race::Drain(source.full(later) + source.depth));
    assert_eq!(plan.decide(plan.active, &mut &words, later), Err(Reason::SourceExceed));
    for limit in [Limit::Connection, Limit::Syn] {
        assert_eq!(words.values()[limit.index()], plan.limits[limit.index()].full(later));
    }
}

#[test]
fn the_narrow_limit_gives_the_reason() {
    for (empty, expected) in [
        (&[Limit::Connection, Limit::Syn, Limit::Source][..], Reason::ConnectionExceed),
        (&[Limit::Syn, Limit::Source], Reason::SynExceed),
        (&[Limit::Source], Reason::SourceExceed),
    ] {
        let (plan, words) = spent_once();
        for limit in empty {
            let gcra = plan.limits[limit.index()];
            words.words[limit.index()].set(gcra.full(NOW).wrapping_add(gcra.depth));
        }
        let before = words.values();
        assert_eq!(plan.decide(plan.active, &mut &words, NOW), Err(expected));
        assert_eq!(words.values(), before);
    }
}

#[test]
fn a_connection_without_an_entry_is_made_one_by_its_first_admitted_packet() {
    let (plan, mut words) = spent_once();
    let gcra = plan.limits[Limit::Connection.index()];
    words.exists.set(false);
    assert_eq!(plan.decide(plan.active, &mut &words, NOW), Ok(()));
    assert!(words.exists.get());
    assert_eq!(words.values()[Limit::Connection.index()], gcra.full(NOW) + gcra.interval);

    // Without room for it, the packet is refused and the others are not charged.
    words.exists.set(false);
    words.room = false;
    let before = words.values();
    assert_eq!(plan.decide(plan.active, &mut &words, NOW), Err(Reason::Contended));
    assert_eq!(words.values()[Limit::Syn.index()..], before[Limit::Syn.index()..]);
}
