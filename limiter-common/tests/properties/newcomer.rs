//! What a set keeps of sources that have sent a single packet.

use limiter_common::{
    abi::{
        policy::Settings,
        table::{PROBATION_SLOTS, Probation},
    },
    base::address::Address,
    policy::limit::{INLINE, LIMITS},
    table::probation::{ProbationFacts, ProbationSlot, SetState},
};
use proptest::prelude::*;

use super::{cases, magnitude, random::Random};

const SEED: u64 = 0x6e65_7763_6f6d_6572;
/// Nanoseconds that a state counts in, and those of the longest debt that it holds.
const UNIT: u64 = 1 << 13;
const LONGEST: u64 = (1 << 27) * UNIT;

/// Puts somebody at a place, as the kernel half does under the lock.
fn admit(to: &mut Probation, place: usize, source: Address, newcomer: ProbationSlot, until: u64) {
    to.times[place] = newcomer.time;
    to.facts[place] = newcomer.facts.0;
    to.sources[place].copy_from_slice(&source.words[..2]);
    to.state = SetState(to.state).with(place, until).0;
}

/// Few addresses, which differ in a bit or by the family.
fn someone(random: &mut Random) -> Address {
    let words = [random.below(3) as u32, random.below(2) as u32, 0, 0];
    match random.below(3) {
        0 => Address { family: Address::IPV4, words: [words[0], 0, 0, 0] },
        _ => Address::v6(words),
    }
}

/// Sources come and go through a set, by a clock that stands still, moves, or jumps far; what becomes of
/// them is what becomes of them in a list.
#[test]
fn nobody_is_forgotten_who_owes_and_nobody_taken_for_another() {
    let (mut admitted, mut full, mut known) = (0, 0, 0);
    for run in 0..400 {
        let mut random = Random::new(SEED, run);
        let mut newcomers = Probation::default();
        // Whom the places are of, and until when they owe.
        let mut naive: [Option<(Address, ProbationSlot, u64)>; PROBATION_SLOTS] =
            [None; PROBATION_SLOTS];
        let mut now = random.between(0, 1 << 60);
        let debt = random.between(1, LONGEST / 2);
        for _ in 0..200 {
            let source = someone(&mut random);
            let found = newcomers.find(&source);
            let expected = naive.iter().position(|it| it.is_some_and(|(who, ..)| who == source));
            assert_eq!(found, expected.unwrap_or(PROBATION_SLOTS), "{source:?} of {naive:?}");
            if found < PROBATION_SLOTS {
                known += 1;
                let (_, newcomer, _) = naive[found].unwrap();
                assert_eq!(newcomers.at(found), newcomer);
                // It is given an entry.
                newcomers.facts[found] = ProbationFacts::NONE.0;
                naive[found] = None;
            } else {
                let place = newcomers.room(now);
                let owes = |place: usize| {
                    naive[place].is_some_and(|(_, newcomer, until)| until > now.max(newcomer.time))
                };
                if place == PROBATION_SLOTS {
                    full += 1;
                    let hardly = |it: &Option<(_, ProbationSlot, u64)>| {
                        let (_, newcomer, until) = it.unwrap();
                        until + UNIT > now && until > newcomer.time
                    };
                    assert!(naive.iter().all(hardly), "one owes nothing: {naive:?} at {now}");
                } else {
                    admitted += 1;
                    assert!(!owes(place), "{place} owes: {naive:?} at {now}");
                    let bytes = random.between(1, ProbationFacts::LONGEST + 1);
                    // What is charged nowhere owes nothing.
                    let places = random.below(16) as u32;
                    let facts = ProbationFacts::new(&source, bytes, places, 7);
                    let until = now + if places == 0 { 0 } else { 1 + random.below(debt) };
                    let newcomer = ProbationSlot { time: now, facts };
                    admit(&mut newcomers, place, source, newcomer, until);
                    naive[place] = Some((source, newcomer, until));
                }
            }
            now = now.max(6_000_000_000).wrapping_add(match random.below(7) {
                0 | 1 => 0,
                // By the clock of another CPU, or the last tick.
                6 => 0_u64.wrapping_sub(random.below(5_000_000_000)),
                // Farther than the state counts.
                2 => random.below(16 * LONGEST),
                _ => random.below(debt),
            });
        }
    }
    println!("{admitted} admitted, {full} found no room, {known} came again");
    assert!(admitted > 10_000 && full > 5_000 && known > 5_000, "cases are missed");
}

/// Of two that owe nothing, who came first makes room.
#[test]
fn the_oldest_makes_room() {
    let now = 1 << 40;
    for (first, second) in [(1, 2), (2, 1), (5, 5)] {
        let mut newcomers = Probation::default();
        for (place, time) in [first, second].into_iter().enumerate() {
            let source = Address::v4([192, 0, 2, place as u8]);
            let facts = ProbationFacts::new(&source, 60, 1, 1);
            admit(&mut newcomers, place, source, ProbationSlot { time, facts }, time + 1);
        }
        assert_eq!(newcomers.room(now), usize::from(second < first));
    }
}

#[test]
fn addresses_that_are_longer_than_a_place_are_nobodys() {
    let newcomers = Probation::default();
    for (words, can_be) in [([1, 2, 0, 0], true), ([1, 2, 3, 0], false), ([0, 0, 0, 1], false)] {
        let source = Address::v6(words);
        assert_eq!(ProbationSlot::can_be(&source), can_be);
        assert_eq!(newcomers.find(&source), PROBATION_SLOTS);
    }
    // A place that is free is not that of the address of zeros.
    for family in [Address::IPV4, Address::IPV6] {
        assert_eq!(newcomers.find(&Address { family, words: [0; 4] }), PROBATION_SLOTS);
    }
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_state_says_until_when_each_owes(
        state: u64, place in 0..PROBATION_SLOTS, now in magnitude(62), debt in 0..LONGEST - 2 * UNIT,
        after in 0..LONGEST,
    ) {
        let before = SetState(state);
        let until = now + debt;
        prop_assert!(SetState::holds(until, now));
        let state = before.with(place, until);
        let later = now + after;
        prop_assert!(later >= until || state.owes(place, later));
        prop_assert!(later < until + 2 * UNIT || !state.owes(place, later));
        // Nothing else is changed.
        prop_assert_eq!(state.owes(1 - place, now), before.owes(1 - place, now));
        prop_assert_eq!(state.0 & SetState::LOCK, before.0 & SetState::LOCK);
        prop_assert!(state.has_number_of(before));
        prop_assert!(!SetState::holds(now + LONGEST, now));
    }

    #[test]
    fn a_number_is_another_one_for_long(state: u64) {
        let first = SetState(state);
        let mut next = first;
        for _ in 0..127 {
            next = next.renumbered();
            prop_assert!(!next.has_number_of(first));
            prop_assert_eq!(next.0 & !0xfe, first.0 & !0xfe);
        }
        prop_assert_eq!(next.renumbered(), first);
        prop_assert_eq!(first.unlocked().0 | SetState::LOCK, first.0 | SetState::LOCK);
    }

    /// Limits that came under some epoch, each in a place, and a change of it under which one may have
    /// gone for another.
    #[test]
    fn facts_say_what_was_charged_to_the_limits_that_are_there(
        bytes in 1..=ProbationFacts::LONGEST, places in 0_u32..1 << INLINE, epoch: u32,
        came in prop::array::uniform8((0_u32..100_000, 1..=LIMITS)),
        changed in prop::array::uniform8(any::<bool>()), later in 2_u32..500,
    ) {
        let limit_id = |(ago, number): (u32, u32)| epoch.wrapping_sub(ago).wrapping_mul(LIMITS).wrapping_add(number);
        let settings = |limit_ids: [u32; INLINE]| Settings { limit_ids, ..Settings::default() };
        let own = settings(came.map(limit_id));
        let facts = ProbationFacts::new(&Address::v4([10, 0, 0, 1]), bytes, places, epoch);
        prop_assert_eq!(facts.bytes(), bytes);
        prop_assert_eq!(facts.charged(epoch, &own, &own), places);
        // Those that changed came after it.
        let bits = |of: [bool; INLINE]| (0..INLINE).filter(|at| of[*at]).fold(0, |set, at| set | 1_u32 << at);
        let kept = places & !bits(changed);
        for after in [1, later, u32::MAX] {
            let at = epoch.wrapping_add(after);
            let mut limit_ids = own.limit_ids;
            for place in (0..INLINE).filter(|place| changed[*place]) {
                let limit_id = at.wrapping_mul(LIMITS).wrapping_add(place as u32 + 1);
                // The one before may have come with this policy too.
                limit_ids[place] = limit_id.wrapping_add(u32::from(limit_id == own.limit_ids[place]));
            }
            prop_assert_eq!(facts.charged(at, &settings(limit_ids), &own), kept, "{} later", after);
        }
        prop_assert_eq!(ProbationFacts::NONE.bytes(), 0);
    }
}
