use std::collections::BTreeSet;

use proptest::{collection::vec, prelude::*};

use super::*;

fn identity(name: &str, inline: bool) -> Identity {
    Identity { name: name.to_owned(), inline }
}

fn next(held: &Held, names: &[&str]) -> Held {
    held.next(names.iter().map(|name| identity(name, !name.starts_with('k'))))
}

fn place(held: &Held, name: &str) -> Place {
    *held.get(&identity(name, true)).unwrap()
}

#[test]
fn a_limit_that_stays_keeps_its_state_and_one_that_comes_gets_nobody_elses() {
    let first = next(&Held::default(), &["a", "b", "key"]);
    assert_eq!(place(&first, "a"), Place { stamp: 1, tally: 0, word: Some(0) });
    assert_eq!(place(&first, "b"), Place { stamp: 2, tally: 1, word: Some(1) });
    assert_eq!(place(&first, "key"), Place { stamp: 3, tally: 2, word: None });
    let without = next(&first, &["b", "key"]);
    assert_eq!(place(&without, "b"), place(&first, "b"));
    assert_eq!(place(&without, "key"), place(&first, "key"));
    assert_eq!(without.get(&identity("a", true)), None);
    assert_eq!(without.new_tallies(&first).count(), 0);
    // Back again it is another limit, as its state may have been anyone's meanwhile.
    let back = next(&without, &["c", "a", "b", "key"]);
    assert_eq!(place(&back, "b"), place(&first, "b"));
    assert_eq!(place(&back, "c"), Place { stamp: 4, tally: 0, word: Some(0) });
    assert_eq!(place(&back, "a"), Place { stamp: 5, tally: 3, word: Some(2) });
    assert_eq!(back.new_tallies(&without).collect::<BTreeSet<_>>(), [0, 3].into());
}

#[test]
fn those_without_a_word_of_their_own_have_a_key() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let held = next(&Held::default(), &names);
    let words = names.map(|name| place(&held, name).word);
    assert_eq!(words, [Some(0), Some(1), Some(2), Some(3), None, None]);
    // Nobody moves while it has state.
    let later = next(&held, &names[1..]);
    assert_eq!(
        names[1..].iter().map(|name| place(&later, name).word).collect::<Vec<_>>(),
        words[1..]
    );
}

#[test]
fn a_policy_that_was_taken_back_has_used_its_stamps() {
    let before = next(&Held::default(), &["a"]);
    let taken_back = next(&before, &["a", "b", "c"]);
    let given: Vec<u32> = ["b", "c"].map(|name| place(&taken_back, name).stamp).into();
    let mut before = before;
    before.skip();
    assert!(!given.contains(&place(&next(&before, &["a", "d"]), "d").stamp));
}

proptest! {
    #[test]
    fn nobody_ever_shares(policies in vec(vec(0..70_u32, 0..64), 1..20)) {
        let mut held = Held::default();
        let mut given = BTreeSet::new();
        for numbers in policies {
            let mut names: Vec<_> = numbers.iter().map(|n| format!("limit{n}")).collect();
            names.sort();
            names.dedup();
            // Those of one digit need a key.
            let of = |name: &String| identity(name, !name.len().is_multiple_of(3));
            let after = held.next(names.iter().map(of));
            prop_assert_eq!(after.places.len(), names.len());
            for name in &names {
                let place = *after.get(&of(name)).unwrap();
                match held.get(&of(name)) {
                    Some(before) => prop_assert_eq!(place, *before),
                    None => prop_assert!(given.insert(place.stamp), "stamp {} again", place.stamp),
                }
                prop_assert!(place.tally < TALLIES);
                prop_assert!(place.word.is_none_or(|word| of(name).inline && word < INLINE));
            }
            let tallies: BTreeSet<_> = after.places.values().map(|place| place.tally).collect();
            prop_assert_eq!(tallies.len(), names.len(), "a tally of two limits");
            let words: Vec<_> = after.places.values().filter_map(|place| place.word).collect();
            prop_assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), words.len());
            let new: BTreeSet<_> = after.new_tallies(&held).collect();
            for place in after.places.values() {
                let is_new = !held.places.values().any(|old| old.stamp == place.stamp);
                prop_assert_eq!(new.contains(&place.tally), is_new);
            }
            held = after;
        }
    }
}
