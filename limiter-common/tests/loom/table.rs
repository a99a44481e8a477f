//! An entry of the table of sources that is given away while packets of the source that had it are
//! decided.

use limiter_common::{
    algorithm::{
        binding::{Binding, Bucket, bind},
        debt::{owes, retire},
        meter::Meter,
        policer::{Look, Policer as _},
        time::Time,
    },
    base::word::{StoreWord as _, Word},
    policy::charge::Bill,
};
use loom::{sync::Arc, thread};

use super::{
    NOW, Plain, check,
    entry::{ALL, Entry, LIMITS, Policy, passes},
    refund,
};

/// The epoch in force all the time.
const EPOCH: u32 = 3;
/// Whose the entry is at first, and who takes it.
const OWNER: u64 = 1;
const NEWCOMER: u64 = 2;
/// When it changes hands, in nanoseconds: the clocks of two CPUs may tell the same time.
const LATER: u64 = NOW + 1;

/// An entry of the table, with its address in one word.
struct TableEntry {
    entry: Arc<Entry>,
    address: Plain,
}

/// A word of the entry under a binding.
#[derive(Clone, Copy)]
struct Cell<'a> {
    table_entry: &'a TableEntry,
    place: usize,
    bound: Binding,
}

impl Word for Cell<'_> {
    fn load(&self) -> u64 {
        self.table_entry.entry.words[self.place].load()
    }

    fn load_acquire(&self) -> u64 {
        self.table_entry.entry.words[self.place].load_acquire()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        self.table_entry.entry.words[self.place].compare_exchange(current, new)
    }

    fn bound(&self) -> bool {
        self.table_entry.entry.binding.load() == self.bound.0
    }
}

impl TableEntry {
    /// The owner's, with these words.
    fn of(policy: &Policy, words: [u64; LIMITS]) -> Arc<Self> {
        let entry = Entry::bound(Binding::new(EPOCH, 0), policy, words);
        Arc::new(Self { entry, address: Plain::new(OWNER) })
    }

    /// What the entry is bound to, if it is that of a source and bound under the epoch in force.
    fn own(&self, whose: u64) -> Option<Binding> {
        let bound = Binding(self.entry.binding.load_acquire());
        (bound.is_under(EPOCH) && self.address.load() == whose).then_some(bound)
    }

    /// A packet of a source, as the kernel half decides those that conform. `None` if the entry is not
    /// that of its source, or not bound.
    fn admit(&self, whose: u64, policy: &Policy, applies: u64, now: u64) -> Option<Bill> {
        let bound = self.own(whose)?;
        let mut bill = Bill { applies, enforced: ALL, ..Bill::default() };
        let places = || (0..LIMITS).filter(|place| applies >> place & 1 != 0);
        let cell = |place| Cell { table_entry: self, place, bound };
        let mut looks = [Look::default(); LIMITS];
        for place in places() {
            let (gcra, cost) = (&policy.meters[place].gcra, policy.costs[place]);
            let seen = cell(place).load_acquire();
            let Some(next) = gcra.conform(seen, Time::exact(now), cost) else {
                bill.refused |= 1 << place;
                return Some(bill);
            };
            looks[place] = Look { seen, next };
        }
        if !cell(0).bound() {
            return None;
        }
        for place in places() {
            if looks[place].commit(cell(place)).is_err() {
                bill.refused |= 1 << place;
                break;
            }
            bill.charged |= 1 << place;
        }
        if bill.refused != 0 {
            self.refund(policy, whose, bound, &bill, now);
        }
        Some(bill)
    }

    /// Takes back what was charged to a part of the limits.
    fn refund(&self, policy: &Policy, whose: u64, bound: Binding, bill: &Bill, now: u64) {
        for place in (0..LIMITS).filter(|place| bill.charged >> place & 1 != 0) {
            let cell = Cell { table_entry: self, place, bound };
            if cell.bound() && self.address.load() == whose {
                refund(&policy.meters[place], cell, now, policy.costs[place]);
            }
        }
    }

    /// Takes the entry away and gives it to the newcomer, in the order of the kernel half: the binding,
    /// the words, what they are of, the address, and the binding again. The lock of the set is held.
    fn evict(&self, may_owe: bool, now: u64) -> bool {
        let binding = &self.entry.binding;
        let before = binding.load();
        let taken = Binding(before).vacated(EPOCH);
        assert_eq!(binding.compare_exchange(before, taken.0), before);
        for place in 0..LIMITS {
            let scale = self.entry.scales[place].load();
            if !retire(&self.entry.words[place], scale, now, may_owe) {
                assert_eq!(binding.compare_exchange(taken.0, before), taken.0);
                return false;
            }
        }
        for place in 0..LIMITS {
            self.entry.scales[place].store(0);
            self.entry.limit_ids[place].store(0);
        }
        self.address.store(NEWCOMER);
        assert_eq!(binding.compare_exchange(taken.0, taken.unlocked().0), taken.0);
        true
    }

    /// Binds it for the newcomer, whose buckets are full; the lock of the set is held still.
    fn refresh(&self, policy: &Policy, now: u64) {
        let seen = Binding(self.entry.binding.load());
        let target = Binding::new(EPOCH, 0).like(seen);
        let bound = bind(&self.entry.binding, target, || {
            for (place, Meter { gcra, .. }) in policy.meters.iter().enumerate() {
                let [word, scale] = [&self.entry.words[place], &self.entry.scales[place]];
                assert_eq!(self.entry.limit_ids[place].load(), 0);
                Bucket { word, scale }.renew(gcra, now, 0);
                self.entry.limit_ids[place].store(policy.limit_ids[place]);
            }
        });
        assert_eq!(bound, Some(target));
    }

    fn owes(&self, place: usize, now: u64) -> u64 {
        owes(self.entry.words[place].load(), self.entry.scales[place].load(), now)
    }
}

/// The words of buckets that were charged so many packets at `now`.
fn charged(policy: &Policy, now: u64, packets: u64) -> [u64; LIMITS] {
    std::array::from_fn(|place| policy.meters[place].fresh(now) + packets * policy.units(place))
}

/// What became of the entry.
struct Outcome {
    /// The owner's packets, those of one CPU each.
    owner: Vec<Option<Bill>>,
    /// The newcomer's, if it was given the entry.
    newcomer: Option<Bill>,
    words: [u64; LIMITS],
}

impl Outcome {
    /// The owner's packets that passed.
    fn passed(&self) -> u64 {
        self.owner.iter().flatten().filter(|bill| passes(bill)).count() as u64
    }
}

/// CPUs that each decide a packet of the owner about these limits, while another takes the entry away
/// at `taken` and charges it for the newcomer, a moment after that.
fn race(
    policy: Policy,
    words: [u64; LIMITS],
    applies: &[u64],
    may_owe: bool,
    taken: u64,
) -> Outcome {
    let table_entry = TableEntry::of(&policy, words);
    let packets: Vec<_> = applies
        .iter()
        .map(|applies| {
            let (table_entry, applies) = (Arc::clone(&table_entry), *applies);
            thread::spawn(move || table_entry.admit(OWNER, &policy, applies, NOW))
        })
        .collect();
    let newcomer = table_entry.evict(may_owe, taken).then(|| {
        table_entry.refresh(&policy, taken + 1);
        table_entry.admit(NEWCOMER, &policy, ALL, taken + 1).unwrap()
    });
    let owner = packets.into_iter().map(|packet| packet.join().unwrap()).collect();
    assert!(!Binding(table_entry.entry.binding.load()).is_locked());
    let whose = if newcomer.is_some() { NEWCOMER } else { OWNER };
    assert_eq!(table_entry.address.load(), whose);
    // Who had it does not take it for its own.
    let stranger = OWNER + NEWCOMER - whose;
    assert!(table_entry.admit(stranger, &policy, ALL, taken + 1).is_none());
    assert!(newcomer.is_none() || table_entry.owes(0, taken + 1) > 0);
    Outcome { owner, newcomer, words: table_entry.entry.values() }
}

/// Limits of which the owner's packets are about all, or some.
const ABOUT: [u64; 3] = [ALL, 0b110, 0b010];

/// The buckets are full again: whoever is first has it, and no charge is lost or another's.
fn idle(words: impl Fn(&Policy) -> [u64; LIMITS] + Send + Sync + Copy + 'static, taken: u64) {
    for applies in ABOUT {
        check(3, move || {
            let policy = Policy::of([4, 4, 8]);
            let words = words(&policy);
            let outcome = race(policy, words, &[applies], false, taken);
            let exact = if let Some(newcomer) = outcome.newcomer {
                assert_eq!(outcome.passed(), 0, "a packet that passed made the owner owe");
                assert!(passes(&newcomer), "tokens are left: {newcomer:?}");
                charged(&policy, taken + 1, 1)
            } else {
                assert_eq!(outcome.passed(), 1, "nobody else can have kept the entry");
                charged(&policy, NOW, 1)
            };
            for (place, word) in outcome.words.into_iter().enumerate() {
                if outcome.newcomer.is_some() || applies >> place & 1 != 0 {
                    assert_eq!(word, exact[place], "limit {place}");
                } else {
                    assert!(word <= policy.meters[place].fresh(taken), "limit {place} is full");
                }
            }
        });
    }
}

#[test]
fn an_idle_entry_changes_hands_or_is_charged_and_never_both() {
    // It was full some time ago; for a limit each at another time.
    idle(|policy| std::array::from_fn(|at| policy.meters[at].fresh(NOW - 9 - at as u64)), LATER);
}

#[test]
fn nor_if_it_was_full_at_that_very_moment() {
    idle(Policy::fresh, NOW);
}

/// Two packets of the owner at once.
#[test]
fn of_two_charges_none_is_counted_for_another_source() {
    check(2, || {
        let policy = Policy::of([4, 4, 8]);
        let words = charged(&policy, NOW - 1_000_000_000, 0);
        let outcome = race(policy, words, &[0b011, 0b010], false, LATER);
        if outcome.newcomer.is_some() {
            assert_eq!(outcome.passed(), 0);
            assert_eq!(outcome.words, charged(&policy, LATER + 1, 1));
        } else {
            let [first, second] =
                [0, 1].map(|packet: usize| outcome.owner[packet].is_some_and(|bill| passes(&bill)));
            let exact = |packets: u64, place: usize| charged(&policy, NOW, packets)[place];
            assert!(first || second, "nobody else can have kept the entry");
            if first {
                // It may have been made a full bucket of a moment later, before the other was found.
                let late = outcome.words[0] - exact(1, 0);
                assert!(late <= (LATER - NOW) << policy.meters[0].gcra.shift, "{late}");
            }
            assert_eq!(outcome.words[1], exact(u64::from(first) + u64::from(second), 1));
        }
    });
}

/// One that owes for a packet makes room where there is no other, with what it is charged at that
/// moment: it does not stay, with a part of its debts forgiven.
#[test]
fn one_that_owes_for_a_packet_goes_with_all_that_it_owes() {
    for applies in ABOUT {
        check(3, move || {
            let policy = Policy::of([4, 4, 8]);
            let outcome = race(policy, charged(&policy, NOW, 1), &[applies], true, LATER);
            let newcomer = outcome.newcomer.unwrap();
            assert!(passes(&newcomer), "tokens are left: {newcomer:?}");
            assert_eq!(outcome.words, charged(&policy, LATER + 1, 1));
        });
    }
}

/// A packet of the newcomer comes to the entry while that changes hands: it is charged as the newcomer's, or not at all.
#[test]
fn a_newcomer_is_charged_when_the_entry_is_its_own_and_not_before() {
    for applies in ABOUT {
        check(3, move || {
            let policy = Policy::of([4, 4, 8]);
            let table_entry = TableEntry::of(&policy, charged(&policy, NOW - 1_000_000_000, 0));
            let early = thread::spawn({
                let table_entry = Arc::clone(&table_entry);
                move || table_entry.admit(NEWCOMER, &policy, applies, LATER + 1)
            });
            assert!(table_entry.evict(false, LATER), "it owes nothing, and nobody charges it");
            table_entry.refresh(&policy, LATER + 1);
            // Whoever loses a race for a word is decided again, which is not asked here.
            let bill = table_entry.admit(NEWCOMER, &policy, ALL, LATER + 1).unwrap();
            let early = early.join().unwrap();
            let passed = |place: usize, bill: &Bill| {
                u64::from(passes(bill) && bill.charged >> place & 1 != 0)
            };
            let number =
                |place| passed(place, &bill) + early.as_ref().map_or(0, |it| passed(place, it));
            let exact =
                std::array::from_fn(|place| charged(&policy, LATER + 1, number(place))[place]);
            assert_eq!(table_entry.entry.values(), exact);
        });
    }
}

/// One that owes, and may not, keeps its entry and its debts.
#[test]
fn one_that_owes_keeps_its_entry() {
    check(3, || {
        let policy = Policy::of([4, 4, 8]);
        let words = charged(&policy, NOW, 1);
        let outcome = race(policy, words, &[ALL], false, LATER);
        assert!(outcome.newcomer.is_none());
        // A packet that found the entry locked is decided again.
        assert_eq!(outcome.words, charged(&policy, NOW, 1 + outcome.passed()));
    });
}
