use std::{array, collections::BTreeSet};

use limiter_common::algorithm::rate::Rate;
use proptest::{collection::vec, prelude::*};

use super::*;

fn identity(name: &str, inline: bool) -> Identity {
    let name = name.to_owned();
    Identity { name, layer: 0, allowance: None, inline, conditions: 0, by_tenant: false }
}

fn next(held: &Assignment, epoch: u32, names: &[&str]) -> Assignment {
    let limits = names.iter().map(|name| identity(name, !name.starts_with('k')));
    held.next(limits, Keeping::All, epoch, INLINE)
}

/// The limit id, the tally and the word of a limit.
fn place(held: &Assignment, name: &str) -> (u32, u32, Option<usize>) {
    let place = held.get(&identity(name, true)).unwrap();
    (place.limit_id, place.tally, place.word)
}

#[test]
fn a_limit_that_stays_keeps_its_state_and_one_that_comes_gets_nobody_elses() {
    let first = next(&Assignment::default(), 1, &["a", "b", "key"]);
    assert_eq!(place(&first, "a"), (65, 0, Some(0)));
    assert_eq!(place(&first, "b"), (66, 1, Some(1)));
    assert_eq!(place(&first, "key"), (67, 2, None));
    let without = next(&first, 2, &["b", "key"]);
    assert_eq!(place(&without, "b"), place(&first, "b"));
    assert_eq!(place(&without, "key"), place(&first, "key"));
    assert_eq!(without.get(&identity("a", true)), None);
    assert_eq!(without.new_tallies(&first).count(), 0);
    // When the limit is back it counts as another one: its state may have been used by others meanwhile.
    let back = next(&without, 3, &["c", "a", "b", "key"]);
    assert_eq!(place(&back, "b"), place(&first, "b"));
    assert_eq!(place(&back, "c"), (193, 0, Some(0)));
    assert_eq!(place(&back, "a"), (194, 3, Some(2)));
    assert_eq!(back.new_tallies(&without).collect::<BTreeSet<_>>(), [0, 3].into());
}

#[test]
fn those_without_a_word_of_their_own_have_a_key() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let held = next(&Assignment::default(), 1, &names);
    let word = |held: &Assignment, name| place(held, name).2;
    let words = names.map(|name| word(&held, name));
    assert_eq!(words, array::from_fn(|place| (place < INLINE).then_some(place)));
    // No limit moves while it has state.
    let later = next(&held, 2, &names[1..]);
    assert_eq!(names[1..].iter().map(|name| word(&later, name)).collect::<Vec<_>>(), words[1..]);
    // If there are too many keyed limits, they move; the others stay where they are.
    let limits = names[2..].iter().map(|name| identity(name, true));
    let moved = held.next(limits, Keeping::ButKeyed, 2, INLINE);
    assert!(["c", "h"].iter().all(|name| place(&moved, name) == place(&held, name)));
    assert_eq!(place(&moved, "i"), (129, 10, Some(0)));
    assert_eq!(place(&moved, "j"), (130, 11, Some(1)));
}

/// The words of a source's entry go to the limits with the fewest conditions, although narrow limits are
/// evaluated first.
#[test]
fn those_that_most_packets_are_about_have_words() {
    let few = [("a", 3), ("b", 1), ("c", 2), ("d", 0), ("e", 1), ("f", 9)];
    let more = [("g", 2), ("h", 2), ("i", 2), ("j", 4)];
    let conditions: Vec<_> = few.into_iter().chain(more).collect();
    let limits = conditions
        .iter()
        .map(|(name, count)| Identity { conditions: *count, ..identity(name, true) });
    let held = Assignment::default().next(limits, Keeping::All, 1, INLINE);
    let place_of = |name: &str| place(&held, name);
    let words: Vec<_> = conditions.iter().map(|(name, _)| place_of(name).2).collect();
    let first = [Some(7), Some(1), Some(3), Some(0), Some(2), None];
    assert_eq!(words, [&first[..], &[Some(4), Some(5), Some(6), None]].concat());
    let limit_ids: Vec<_> = conditions.iter().map(|(name, _)| place_of(name).0).collect();
    assert!(limit_ids.into_iter().eq(65..75));
}

#[test]
fn a_layer_is_known_by_what_it_admits_and_then_by_its_number() {
    let layers = |allowances: &[u64]| {
        let allowed = |(layer, packets): (usize, &u64)| {
            let rate = Rate::per_second(*packets);
            let allowance = Some(Allowance::TokenBucket { rate, burst: *packets });
            Identity { layer, allowance, ..identity("a", false) }
        };
        allowances.iter().enumerate().map(allowed).collect::<Vec<_>>()
    };
    let limit_ids = |held: &Assignment, layers: &[Identity]| -> Vec<u32> {
        layers.iter().map(|layer| held.get(layer).unwrap().limit_id).collect()
    };
    let next = |held: &Assignment, epoch, layers: &[Identity]| {
        held.next(layers.iter().cloned(), Keeping::All, epoch, INLINE)
    };
    let first = layers(&[10, 600]);
    let held = next(&Assignment::default(), 1, &first);
    assert_eq!(limit_ids(&held, &first), [65, 66]);
    for (then, expected) in [
        (&[600, 10][..], &[66, 65][..]),
        (&[7, 10, 600], &[129, 65, 66]),
        (&[600], &[66]),
        (&[7], &[65]),
        (&[7, 10], &[66, 65]),
        (&[7, 8, 9], &[65, 66, 129]),
    ] {
        let then = layers(then);
        assert_eq!(limit_ids(&next(&held, 2, &then), &then), expected, "{then:?}");
    }
}

#[test]
fn a_policy_that_was_taken_back_has_used_its_stamps_and_numbers() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let number = |held: &mut Assignment, tenants: &[&str]| {
        held.number_tenants(names(tenants).iter(), std::iter::empty()).unwrap();
    };
    let mut before = next(&Assignment::default(), 1, &["a"]);
    number(&mut before, &["x"]);
    let mut taken_back = next(&before, 2, &["a", "b", "c"]);
    number(&mut taken_back, &["w", "x"]);
    before.skip(&taken_back);
    // Its epoch was 2, that of the policy that came back was 3.
    let mut after = next(&before, 4, &["a", "d"]);
    number(&mut after, &["v", "x"]);
    assert_eq!(place(&after, "a"), place(&before, "a"));
    let given = ["b", "c"].map(|name| place(&taken_back, name).0);
    assert!(!given.contains(&place(&after, "d").0));
    assert_eq!(["v", "w", "x"].map(|name| after.tenant(name)), [3, 0, 1]);
}

#[test]
fn budgets_of_tenants_begin_anew_when_there_are_no_more_numbers() {
    let by_tenant = || Identity { by_tenant: true, ..identity("tenants", false) };
    let limits = || [by_tenant(), identity("others", false)].into_iter();
    let mut held = Assignment::default().next(limits(), Keeping::All, 1, INLINE);
    held.last_tenant = TENANTS as u32;
    let before = held.clone();
    held.number_tenants(["x".to_owned()].iter(), limits()).unwrap();
    let held = held.next(limits(), Keeping::All, 2, INLINE);
    assert_eq!(held.tenant("x"), 1);
    assert_ne!(
        held.get(&by_tenant()).unwrap().limit_id,
        before.get(&by_tenant()).unwrap().limit_id
    );
    assert_eq!(place(&held, "others"), place(&before, "others"));
}

proptest! {
    #[test]
    fn nobody_ever_shares(policies in vec(vec(0..70_u32, 0..64), 1..20)) {
        let mut held = Assignment::default();
        let mut given = BTreeSet::new();
        for (epoch, numbers) in (1..).zip(policies) {
            let mut names: Vec<_> = numbers.iter().map(|n| format!("limit{n}")).collect();
            names.sort();
            names.dedup();
            // Names with one digit are keyed limits.
            let of = |name: &String| identity(name, !name.len().is_multiple_of(3));
            let after = held.next(names.iter().map(of), Keeping::All, epoch, INLINE);
            prop_assert_eq!(after.places.len(), names.len());
            for name in &names {
                let place = *after.get(&of(name)).unwrap();
                match held.get(&of(name)) {
                    Some(before) => prop_assert_eq!(place, *before),
                    None => prop_assert!(given.insert(place.limit_id), "stamp {} again", place.limit_id),
                }
                prop_assert!(place.tally < TALLIES);
                prop_assert!(place.word.is_none_or(|word| of(name).inline && word < INLINE));
            }
            let tallies: BTreeSet<_> = after.places().map(|place| place.tally).collect();
            prop_assert_eq!(tallies.len(), names.len(), "a tally of two limits");
            let words: Vec<_> = after.places().filter_map(|place| place.word).collect();
            prop_assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
            let new: BTreeSet<_> = after.new_tallies(&held).collect();
            for place in after.places() {
                let is_new = !held.places().any(|old| old.limit_id == place.limit_id);
                prop_assert_eq!(new.contains(&place.tally), is_new);
            }
            held = after;
        }
    }
}
