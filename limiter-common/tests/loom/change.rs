//! Packets while the policy changes.

use limiter_common::{
    algorithm::{
        binding::{Binding, Bucket, bind, merge},
        debt::owes,
        meter::Meter,
        policer::{Policer as _, Refusal},
    },
    base::word::Word,
    policy::charge::Bill,
};
use loom::{sync::Arc, thread};

use super::{
    NOW, Plain, charge, check,
    entry::{ALL, Entry, LIMITS, Policy, bucket, decide, packet, passes},
    refund,
};

/// The place of a limit that a policy puts in the place of another.
const REPLACED: usize = 1;

/// A policy and the one that replaces it: with other shifts, costs, and a limit that is new.
fn policies(enforced: u64) -> (Policy, Policy) {
    let old = Policy { enforced, ..Policy::of([4, 4, 8]) };
    let mut new = old;
    new.meters[0] = Meter::bucket(bucket(7, 5, 1));
    new.meters[REPLACED] = Meter::bucket(bucket(33, 40, 4));
    new.costs[REPLACED] = 4;
    new.limit_ids[REPLACED] = 9;
    new.meters[2] = Meter::bucket(bucket(50_000_000, 45_000, 1_500));
    (old, new)
}

/// The words of `old` after so many packets, carried over, after so many more under `new`.
fn carried(
    old: &Policy,
    new: &Policy,
    before: [u64; LIMITS],
    since: [u64; LIMITS],
) -> [u64; LIMITS] {
    let mut words = old.after(before);
    for (place, word) in words.iter_mut().enumerate() {
        let (from, to) = (old.meters[place], new.meters[place]);
        let begin = if old.limit_ids[place] == new.limit_ids[place] {
            to.gcra.carry(*word, from.gcra.scale(), NOW)
        } else {
            to.fresh(NOW)
        };
        *word = begin + since[place] * new.units(place);
    }
    words
}

/// 1 at the places that a packet was charged to.
fn charges(bill: &Bill) -> [u64; LIMITS] {
    let charged = if passes(bill) { bill.charged } else { 0 };
    std::array::from_fn(|place| charged >> place & 1)
}

fn sum(one: [u64; LIMITS], other: [u64; LIMITS]) -> [u64; LIMITS] {
    std::array::from_fn(|place| one[place] + other[place])
}

/// A packet that found the entry under the old policy, while the new policy's first binds it.
fn old_packet_and_new(others: usize, enforced: u64, applies: u64) {
    let (old, new) = policies(enforced);
    let entry = Entry::bound(Binding::new(1, 0), &old, old.after([1; LIMITS]));
    let late = thread::spawn({
        let entry = Arc::clone(&entry);
        move || decide(&entry, Binding::new(1, 0), &old, applies)
    });
    let send = || {
        let entry = Arc::clone(&entry);
        move || packet(&entry, 2, &new, applies)
    };
    let spawned: Vec<_> = (1..others).map(|_| thread::spawn(send())).collect();
    let mut bills = vec![send()()];
    bills.extend(spawned.into_iter().map(|packet| packet.join().unwrap()));
    let late = late.join().unwrap();

    entry.assert_bound(Binding::new(2, 0), &new);
    for bill in bills.iter().flatten() {
        assert!(passes(bill) || bill.contended == 1, "tokens are left: {bill:?}");
    }
    let since = bills.iter().flatten().map(charges).fold([0; LIMITS], sum);
    let before = sum([1; LIMITS], charges(&late));
    assert!(passes(&late) || late.contended == 1, "tokens are left: {late:?}");
    assert_eq!(late.refused & !enforced, 0, "only a limit that is enforced drops it");
    // A packet whose entry was marked when it had paid in part is not refunded: what it paid is
    // another policy's by then. So such a bucket may have less than it should, by one packet.
    let paid = if passes(&late) { 0 } else { late.charged };
    let spent = sum(before, std::array::from_fn(|place| paid >> place & 1));
    let [exact, spent] = [before, spent].map(|before| carried(&old, &new, before, since));
    for (place, word) in entry.values().into_iter().enumerate() {
        assert!(word == exact[place] || word == spent[place], "limit {place}: {word}");
    }
    assert_ne!(exact[REPLACED], old.after(before)[REPLACED]);
}

#[test]
fn state_follows_a_change_of_policy_exactly_once() {
    for enforced in [ALL, 0b101, 0b010, 0b000] {
        check(3, move || old_packet_and_new(1, enforced, ALL));
    }
}

/// The limits of one part only: there are too many orders otherwise.
#[test]
fn of_several_packets_one_brings_it_over() {
    for enforced in [ALL, 0b010] {
        check(2, move || old_packet_and_new(2, enforced, 0b110));
    }
}

/// A packet takes back what it was charged while the policy changes: by the scale that the word has, or not at all.
#[test]
fn a_refund_is_never_made_of_a_word_of_another_scale() {
    check(3, || {
        let (old, new) = policies(ALL);
        let entry = Entry::bound(Binding::new(1, 0), &old, old.after([1; LIMITS]));
        let late = thread::spawn({
            let entry = Arc::clone(&entry);
            move || {
                let cell = entry.cell(0, Binding::new(1, 0));
                refund(&old.meters[0], cell, NOW, old.costs[0]);
            }
        });
        let bill = packet(&entry, 2, &new, 0b001).unwrap();
        late.join().unwrap();
        assert!(passes(&bill), "tokens are left: {bill:?}");
        let after = |before: u64| carried(&old, &new, [before; LIMITS], [1; LIMITS])[0];
        let word = entry.values()[0];
        assert!(word == after(0) || word == after(1), "{word}");
    });
}

#[test]
fn a_new_entry_gives_one_burst() {
    check(2, || {
        let policy = Policy::of([1, 1, 1]);
        let entry = Entry::zeroed();
        let send = || {
            let entry = Arc::clone(&entry);
            move || packet(&entry, 1, &policy, ALL)
        };
        let other = thread::spawn(send());
        let bills = [send()(), other.join().unwrap(), packet(&entry, 1, &policy, ALL)];
        entry.assert_bound(Binding::new(1, 0), &policy);
        assert_eq!(bills.iter().flatten().filter(|bill| passes(bill)).count(), 1);
        assert_eq!(entry.values(), policy.after([1; LIMITS]));
    });
}

/// Two changes at once, across the wrap of the epoch, and a packet from before both.
#[test]
fn an_older_policy_never_binds_over_a_newer() {
    check(2, || {
        let (first, second) = policies(ALL);
        let third = Policy::of([9, 9, 9]);
        let oldest = Binding::new(u32::MAX - 1, 0);
        let entry = Entry::bound(oldest, &first, first.after([1; LIMITS]));
        let others = [(u32::MAX, second), (0, third)].map(|(epoch, policy)| {
            let entry = Arc::clone(&entry);
            thread::spawn(move || packet(&entry, epoch, &policy, ALL))
        });
        let late = decide(&entry, oldest, &first, ALL);
        let [middle, newest] = others.map(|other| other.join().unwrap());
        for bill in [Some(late), middle].iter().flatten() {
            assert!(passes(bill) || bill.contended == 1, "{bill:?}");
        }
        let passed = |bill: Option<Bill>| bill.is_some_and(|bill| passes(&bill));
        // Who gives up waiting leaves the entry behind; the next packet brings it up to date.
        let charged = passed(newest) || passed(packet(&entry, 0, &third, ALL));
        assert!(charged, "tokens are left, and nobody else is there");
        entry.assert_bound(Binding::new(0, 0), &third);
        for (place, word) in entry.values().into_iter().enumerate() {
            let (ahead, units) = (word - third.fresh()[place], third.units(place));
            let depth = third.meters[place].gcra.depth;
            // The first policy's packet is not forgotten, unless the limit is another one since.
            let least = if place == REPLACED { units - 1 } else { units };
            assert!(ahead > least && ahead <= depth, "limit {place}: {ahead}");
        }
    });
}

/// State with a key of its own that packets of two profiles come to, each with a meter of its own: it
/// goes to and fro between them under one epoch, and no charge is lost or made twice.
#[test]
fn state_between_two_meters_of_one_policy_is_charged_exactly() {
    let meters = [bucket(1_000, 8, 1), bucket(33_000, 8, 1)].map(Meter::bucket);
    check(3, move || {
        let target = |number: usize| Binding::new(5, number as u32 + 1);
        // One packet was charged before, so that no word is the same by both meters.
        let begin = meters[0].fresh(NOW) + meters[0].gcra.interval;
        let fields = [target(0).0, begin, meters[0].gcra.scale().0];
        let bucket = Arc::new(fields.map(Plain::new));
        let send = |number: usize| {
            let bucket = Arc::clone(&bucket);
            move || {
                let [binding, word, scale] = &*bucket;
                let (meter, target) = (&meters[number], target(number));
                if bind(binding, target, || Bucket { word, scale }.carry(&meter.gcra, NOW))
                    != Some(target)
                {
                    return false;
                }
                let word = Keyed { word, binding, bound: target };
                let charged =
                    meter.look(&word, NOW, 1).and_then(|look| charge(meter, word, look, 1));
                assert_ne!(charged, Err(Refusal::Exceed), "tokens are left");
                charged.is_ok()
            }
        };
        let other = thread::spawn(send(1));
        let passed = [send(0)(), other.join().unwrap()];
        // Alone, nobody is refused, whichever meter it is bound to.
        let alone = [send(0)(), send(1)()];
        assert_eq!(alone, [true; 2]);
        let charged = 1 + passed.into_iter().chain(alone).map(u64::from).sum::<u64>();
        let [binding, word, scale] = bucket.each_ref().map(Word::load);
        let number = usize::from(binding == target(1).0);
        assert_eq!((binding, scale), (target(number).0, meters[number].gcra.scale().0));
        // Each of them is an eighth of either, but for what carrying it over rounds up.
        let Meter { gcra, .. } = meters[number];
        let (ahead, least) = (word - gcra.fresh(NOW), charged * gcra.interval);
        assert!(ahead >= least && ahead <= least + gcra.interval / 1_000, "{charged}: {ahead}");
    });
}

/// The sweep of an exchange brings a word of the old table to an entry, while a packet brings the entry to another policy.
#[test]
fn a_word_is_merged_by_the_measure_that_it_has_or_not_at_all() {
    let [before, after] = [bucket(1_000, 8, 1), bucket(33_000, 8, 1)];
    let spent = move |packets: u64| before.fresh(NOW) + packets * before.interval;
    check(3, move || {
        let fields = [Binding::new(1, 0).0, spent(1), before.scale().0].map(Plain::new);
        let entry = Arc::new(fields);
        // The model checker tries more orders of a thread that is not the first one.
        let sweep = thread::spawn({
            let entry = Arc::clone(&entry);
            move || {
                let [binding, word, scale] = &*entry;
                let is_same = || scale.load() == before.scale().0;
                let owes = |word| owes(word, before.scale().0, NOW);
                (0..2).any(|_| merge(binding, word, spent(3), is_same, owes))
            }
        });
        let [binding, word, scale] = &*entry;
        bind(binding, Binding::new(2, 0), || Bucket { word, scale }.carry(&after, NOW)).unwrap();
        let is_done = sweep.join().unwrap();
        let carried = [1, 3].map(|packets| after.carry(spent(packets), before.scale(), NOW));
        assert!(carried.contains(&word.load()), "{}, {is_done}", word.load());
        assert_eq!(scale.load(), after.scale().0);
    });
}

/// A word that is charged while its state is bound to one meter.
#[derive(Clone, Copy)]
struct Keyed<'a> {
    word: &'a Plain,
    binding: &'a Plain,
    bound: Binding,
}

impl Word for Keyed<'_> {
    fn load(&self) -> u64 {
        self.word.load()
    }

    fn load_acquire(&self) -> u64 {
        self.word.load_acquire()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        self.word.compare_exchange(current, new)
    }

    fn bound(&self) -> bool {
        self.binding.load() == self.bound.0
    }
}
