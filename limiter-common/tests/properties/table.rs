//! The table of sources: where a source is looked for, and who makes room.

use std::cell::{Cell, RefCell};

use limiter_common::{
    abi::table::{Set, WAYS},
    algorithm::{
        debt::{owes, retire},
        gcra::Scale,
        policer::Policer as _,
    },
    base::word::Word,
    table::set::{DebtUntil, Eviction, Place, Room, Tags, Ways, all_owe, room},
};
use proptest::prelude::*;

use super::{bucket, cases, magnitude, random::Random};

const SEED: u64 = 0x7461_626c_6573_6574;
/// Nanoseconds that an debt counts in.
const UNIT: u64 = 1 << 22;
const SECOND: u64 = 1_000_000_000;
const UNTAGGED: u8 = 0;

/// The mark of a source with this tag.
fn tag_ext(tag: u8) -> u8 {
    tag.wrapping_mul(0x9d) >> 4
}

/// An entry as a set sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    tag: u8,
    /// Until when it owes, in nanoseconds.
    until: u64,
    packets: u64,
    /// Packets when it was last asked and owed nothing.
    known: u64,
}

impl Way {
    fn owes(&self, now: u64) -> bool {
        self.until > now
    }

    fn is_single(&self) -> bool {
        self.packets <= 1
    }
}

/// A set in memory.
#[derive(Clone)]
struct Naive {
    ways: RefCell<[Way; WAYS]>,
    debts: RefCell<[DebtUntil; WAYS]>,
}

impl Naive {
    fn new() -> Self {
        Self { ways: RefCell::default(), debts: RefCell::new([DebtUntil(0); WAYS]) }
    }

    fn way(&self, way: usize) -> Way {
        self.ways.borrow()[way]
    }

    fn set(&self, way: usize, to: Way) {
        self.ways.borrow_mut()[way] = to;
    }

    /// Gives a way to a newcomer, which sends a packet that takes so long to refill.
    fn give(&self, way: usize, tag: u8, now: u64, until: u64) {
        self.set_debt(way, DebtUntil::past(now).with_tag_ext(tag_ext(tag)));
        self.set(way, Way { tag, until, packets: 1, known: 1 });
    }
}

impl Ways for Naive {
    fn tag(&self, way: usize) -> u8 {
        self.way(way).tag
    }

    fn debt(&self, way: usize) -> DebtUntil {
        self.debts.borrow()[way]
    }

    fn set_debt(&self, way: usize, debt: DebtUntil) {
        self.debts.borrow_mut()[way] = debt;
    }

    fn eviction(&self, way: usize, now: u64) -> Eviction {
        let mut entry = self.way(way);
        if entry.owes(now) {
            return Eviction::Owes(entry.until, entry.is_single());
        }
        if entry.known == entry.packets {
            return Eviction::Idle;
        }
        entry.known = entry.packets;
        self.set(way, entry);
        Eviction::Referenced
    }
}

/// What must hold of the way that is given, by what the set was before it was asked.
fn check(before: &Naive, place: Place, now: u64, given: Room) {
    let (ways, home) = (before.ways.borrow(), usize::from(place.home));
    if ways.iter().any(|way| way.tag == UNTAGGED) {
        assert!(!given.owes && ways[given.way].tag == UNTAGGED, "a free way is taken before any");
        assert!(ways[home].tag != UNTAGGED || given.way == home, "its home is free");
        return;
    }
    if given.way == WAYS {
        assert!(ways.iter().all(|way| way.owes(now)), "one owes nothing");
        let single = |way: &Way| way.owes(now) && way.is_single();
        assert!(!ways.iter().any(single), "one owes for a single packet");
        return;
    }
    let way = &ways[given.way];
    assert_eq!(given.owes, way.owes(now), "{way:?}");
    if way.owes(now) {
        assert!(ways.iter().all(|way| way.owes(now)), "another one owes nothing");
        assert!(way.is_single(), "it owes for {} packets", way.packets);
    }
}

/// Sets of which few, most or all owe, for one packet or for more.
#[test]
fn a_set_tells_if_all_owe_and_whether_one_does_for_a_single_packet() {
    let (mut crowded, mut owing, mut others) = (0, 0, 0);
    for run in 0..4_000 {
        let mut random = Random::new(SEED, run);
        let now = random.between(2 * UNIT, 1 << 60);
        let (free, singles) = (1 + random.below(40), 1 + random.below(40));
        let mut all = true;
        let mut single = false;
        let debts = [(); WAYS].map(|()| {
            let (owes, alone) = (!random.once_in(free), random.once_in(singles));
            let debt = match (owes, random.below(2)) {
                (true, _) => DebtUntil::until(now + random.between(UNIT, 100 * SECOND), now, alone),
                (false, 0) => DebtUntil::past(now),
                // It may just have ended.
                (false, _) => {
                    DebtUntil::until(now - random.between(0, UNIT), now - 2 * UNIT, alone)
                }
            };
            all &= owes;
            single |= alone;
            debt
        });
        let expected = all.then_some(single);
        assert_eq!(all_owe(debts.into_iter(), now), expected, "{debts:?} at {now}");
        *(match expected {
            Some(true) => &mut crowded,
            Some(false) => &mut owing,
            None => &mut others,
        }) += 1;
    }
    let seen = [crowded, owing, others];
    assert!(seen.iter().all(|times| *times > 500), "cases are missed: {seen:?}");
}

/// A set through which sources come and go, some of them busy, by a clock that stands still, moves,
/// jumps and begins anywhere.
#[test]
fn nobody_that_owes_makes_room_but_for_a_single_packet() {
    let (mut given, mut none, mut singles, mut free) = (0, 0, 0, 0);
    for run in 0..400 {
        let mut random = Random::new(SEED, run);
        let set = Naive::new();
        let mut now = random.between(0, 1 << 60);
        let debt = random.between(1, 200 * SECOND);
        let busy = 1 + random.below(8);
        for tag in 0..400 {
            let home = random.below(WAYS as u64) as u8;
            let tag = (tag % 255 + 1) as u8;
            let place = Place { set: 0, tag, home, tag_ext: tag_ext(tag), slot: 0 };
            let before = set.clone();
            let Room { way, owes } = room(&set, place, now);
            check(&before, place, now, Room { way, owes });
            for way in (0..WAYS).filter(|way| set.tag(*way) != UNTAGGED) {
                assert_eq!(set.debt(way).tag_ext(), tag_ext(set.tag(way)), "the mark of {way}");
            }
            free += u32::from(way < WAYS && before.tag(way) == UNTAGGED);
            if way < WAYS {
                set.give(way, place.tag, now, now + 1 + random.below(debt));
            }
            given += u32::from(way < WAYS);
            none += u32::from(way == WAYS);
            singles += u32::from(owes);
            for _ in 0..random.below(busy) {
                let way = random.below(WAYS as u64) as usize;
                let mut entry = set.way(way);
                entry.packets += 1;
                if !random.once_in(3) {
                    entry.until = entry.until.max(now) + random.below(debt);
                }
                set.set(way, entry);
            }
            now += if random.once_in(3) { random.between(0, 2 * debt) } else { 0 };
        }
    }
    println!("{given} given, of these {free} free and {singles} owing; {none} found no room");
    assert!(free > 400 && singles > 1_000 && none > 1_000 && given > 40_000, "cases are missed");
}

/// Ways 0 to 15, of which all owe but those for which `idle` says so.
fn all_owe_but(idle: impl Fn(usize) -> bool, now: u64, packets: u64) -> Naive {
    let set = Naive::new();
    for way in 0..WAYS {
        let until = if idle(way) { now } else { now + 9 * SECOND };
        set.set(way, Way { tag: 7, until, packets, known: packets });
    }
    set
}

#[test]
fn what_is_used_between_two_questions_is_passed_over_once() {
    let now = 5_000 * SECOND;
    for home in 0..WAYS {
        let place = Place { set: 0, tag: 1, home: home as u8, tag_ext: 0, slot: 0 };
        let next = (home + 1) % WAYS;
        let set = all_owe_but(|way| way == home || way == next, now, 2);
        let touch =
            |way: usize| set.set(way, Way { packets: set.way(way).packets + 1, ..set.way(way) });
        touch(home);
        assert_eq!(room(&set, place, now), Room { way: next, owes: false }, "it was used");
        assert_eq!(room(&set, place, now), Room { way: home, owes: false }, "and then it was not");
        // Where there is no other, it makes room at once: it owes nothing.
        touch(home);
        set.set(next, Way { until: now + SECOND, ..set.way(next) });
        assert_eq!(room(&set, place, now), Room { way: home, owes: false });
    }
}

#[test]
fn one_of_a_single_packet_makes_room_where_all_owe() {
    let now = 5_000 * SECOND;
    for (home, single) in (0..WAYS).flat_map(|home| (0..WAYS).map(move |single| (home, single))) {
        let place = Place { set: 0, tag: 1, home: home as u8, tag_ext: 0, slot: 0 };
        let set = all_owe_but(|_| false, now, 2);
        assert_eq!(room(&set, place, now).way, WAYS);
        // What was found out of them holds for as long as they owe, and is asked anew after that.
        let later = now + 9 * SECOND + UNIT;
        set.set(single, Way { until: later + SECOND, packets: 1, ..set.way(single) });
        for way in (0..WAYS).filter(|way| *way != single) {
            set.set(way, Way { until: later + SECOND, ..set.way(way) });
        }
        assert_eq!(room(&set, place, later), Room { way: single, owes: true });
        // A second packet, and it stays.
        set.set(single, Way { packets: 2, ..set.way(single) });
        assert_eq!(room(&set, place, later).way, WAYS);
    }
}

/// Debts of times around one at which their 27 bits wrap, or anywhere.
fn around_a_wrap() -> impl Strategy<Value = u64> {
    let wrap = UNIT << 27;
    let near = (0..16_u64, 0..2_000 * UNIT)
        .prop_map(move |(wraps, near)| (wraps * wrap + near).saturating_sub(1_000 * UNIT));
    prop_oneof![near, magnitude(62)]
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn an_age_says_nearly_until_when_it_owes_and_no_longer(
        now in around_a_wrap(), ahead in magnitude(37), after in magnitude(38), single: bool,
        tag_ext in 0..16_u8,
    ) {
        let (until, later) = (now + ahead, now + after);
        let debt = DebtUntil::until(until, now, single).with_tag_ext(tag_ext);
        prop_assert_eq!(debt.tag_ext(), tag_ext);
        // What is further ahead than it can say is asked again when that is over.
        let told = until.min(now + 2_000 * UNIT);
        prop_assert!(later + UNIT > told || debt.owes(later));
        prop_assert!(later < until || !debt.owes(later));
        prop_assert!(now < 40_000 * UNIT || !debt.owes(now - 40_000 * UNIT), "by a clock far back");
    }

    /// Also where its 27 bits come to their end, which all zeros are just ahead of.
    #[test]
    fn a_new_age_never_says_that_it_owes(now in around_a_wrap(), after in magnitude(48), tag_ext in 0..16_u8) {
        let debt = DebtUntil::past(now).with_tag_ext(tag_ext);
        prop_assert!(!debt.owes(now));
        prop_assert!(!debt.owes(now + after));
        prop_assert!(now < UNIT || !debt.owes(now - UNIT), "by a clock a bit behind");
    }

    #[test]
    fn a_bucket_owes_until_it_is_full(
        (gcra, _) in bucket(), now in magnitude(63), ahead in magnitude(59), behind: bool,
    ) {
        let full = gcra.fresh(now);
        let word = if behind { full.wrapping_sub(ahead) } else { full.wrapping_add(ahead) };
        let Scale(scale) = gcra.scale();
        let left = owes(word, scale, now);
        prop_assert_eq!(left == 0, gcra.spent(word, now) == 0);
        prop_assert_eq!(gcra.spent(word, now + left), 0);
        prop_assert!(left < 2 || gcra.spent(word, now + left - 2) > 0);
        prop_assert_eq!(owes(word, 0, now), 0, "there is no bucket");
    }

    #[test]
    fn only_a_bucket_that_owes_nothing_is_retired(
        (gcra, _) in bucket(), now in magnitude(63), ahead in magnitude(59), behind: bool,
        may_owe: bool,
    ) {
        let full = gcra.fresh(now);
        let seen = if behind { full.wrapping_sub(ahead) } else { full.wrapping_add(ahead) };
        let Scale(scale) = gcra.scale();
        let word = Local { word: Cell::new(seen), meanwhile: Cell::new(None) };
        let retired = retire(&word, scale, now, may_owe);
        prop_assert_eq!(retired, may_owe || gcra.spent(seen, now) == 0);
        if retired {
            prop_assert_eq!(gcra.spent(word.word.get(), now), 0);
            prop_assert_ne!(word.word.get(), seen, "who looked before could charge it");
        } else {
            prop_assert_eq!(word.word.get(), seen);
        }
        // Without a bucket there is nothing to do.
        let word = Local { word: Cell::new(seen), meanwhile: Cell::new(None) };
        prop_assert!(retire(&word, 0, now, may_owe));
        prop_assert_eq!(word.word.get(), seen);
    }

    /// A packet that comes after the word was seen is not forgotten where it may not be.
    #[test]
    fn a_charge_at_this_moment_keeps_a_bucket(
        (gcra, _) in bucket(), now in magnitude(63), idle in magnitude(50),
    ) {
        let seen = gcra.fresh(now).wrapping_sub(idle);
        let charged = gcra.fresh(now).wrapping_add(gcra.interval >> gcra.fraction);
        prop_assume!(charged != seen);
        let word = Local { word: Cell::new(seen), meanwhile: Cell::new(Some(charged)) };
        prop_assert!(!retire(&word, gcra.scale().0, now, false));
        prop_assert_eq!(word.word.get(), charged);
    }
}

/// A word that another CPU may have stored another value in, before an exchange.
struct Local {
    word: Cell<u64>,
    meanwhile: Cell<Option<u64>>,
}

impl Word for Local {
    fn load(&self) -> u64 {
        self.word.get()
    }

    fn load_acquire(&self) -> u64 {
        self.word.get()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        if let Some(meanwhile) = self.meanwhile.take() {
            self.word.set(meanwhile);
        }
        let found = self.word.get();
        if found == current {
            self.word.set(new);
        }
        found
    }
}

#[test]
fn a_table_has_room_for_all_that_it_is_asked_for() {
    for (sources, sets) in [(1, 1), (16, 1), (17, 2), (1_024, 64), (1 << 26, 1 << 22)] {
        assert_eq!(Set::count(sources), sets);
    }
}

proptest! {
    #![proptest_config(cases(4_000))]

    /// Tags that differ by little, and such as a borrow between the bytes would make others of.
    #[test]
    fn a_set_tells_whether_it_has_a_tag(
        tags: [u8; WAYS], near in prop::collection::vec((0..WAYS, 0_u8..3), 0..WAYS), tag: u8,
    ) {
        let mut tags = tags;
        for (way, off) in near {
            tags[way] = tag.wrapping_add(off).wrapping_sub(1);
        }
        let words: [[u8; 8]; 2] = [tags[..8].try_into().unwrap(), tags[8..].try_into().unwrap()];
        let set = Tags(words.map(u64::from_ne_bytes));
        prop_assert_eq!(set.have(tag), tags.contains(&tag));
        prop_assert_eq!(set.have(UNTAGGED), tags.contains(&UNTAGGED));
        let first = set.first(tag);
        prop_assert_eq!(first.map(|(way, _)| way), tags.iter().position(|other| *other == tag));
        let number = tags.iter().filter(|other| **other == tag).count();
        let is_alone = first.is_some_and(|(_, alone)| alone);
        prop_assert!(number == 1 || !is_alone, "{:?}", tags);
        let is_clear = tags.iter().all(|other| *other == tag || other ^ tag > 1);
        prop_assert!(!is_clear || is_alone == (number == 1), "{:?}", tags);
    }
}
