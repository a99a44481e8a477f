use std::collections::BTreeMap;

use ipnet::IpNet;
use proptest::prelude::*;

use super::{super::stored_tries::Stored, *};
use crate::policy::{Assignment, Context, Layers, List, Policy, Tables, compile, run_time::Entry};

const NOW: u64 = 1_800_000_000;

/// An entry of few networks, so that prefixes are within others.
fn entry() -> impl Strategy<Value = Entry> {
    let prefix = prop_oneof![
        (0_u8..3, 0_u8..3, prop_oneof![Just(8_u8), Just(24), Just(32)])
            .prop_map(|(a, b, length)| IpNet::new([10, 0, a, b].into(), length).unwrap()),
        (0_u16..3, 0_u16..3, prop_oneof![Just(32_u8), Just(48), Just(64)]).prop_map(
            |(a, b, length)| IpNet::new([0x2001, 0xdb8, a, b, 0, 0, 0, 0].into(), length).unwrap()
        ),
    ];
    let list = prop_oneof![Just(List::Allow), Just(List::Deny), Just(List::Penalty)];
    let until = prop_oneof![Just(None), (NOW + 1..NOW + 4).prop_map(Some)];
    (prefix, list, until).prop_map(|(prefix, list, until)| {
        let until = if list == List::Penalty { until.or(Some(NOW + 9)) } else { until };
        Entry { until, ..Entry::new(list, prefix.trunc()) }
    })
}

/// The tables of entries that were added one after the other, and of those that are left at a time.
fn tables(entries: &[Entry], unix: u64) -> Tables {
    let mut layers = Layers { policy: Policy::default(), ..Layers::default() };
    for entry in entries {
        let _shadowed = layers.run_time.put(&layers.policy, entry.clone(), unix);
    }
    let context = Context { unix, ..Context::default() };
    compile(&layers, &Assignment::default(), &context).unwrap().0
}

/// A trie of the kernel.
fn trie<T: Copy>(prefixes: &[Prefix<T>]) -> BTreeMap<(u32, Address), T> {
    prefixes.iter().map(|(bits, address, of)| ((*bits, *address), *of)).collect()
}

fn amended(before: &[Prefix<u32>], changes: &Changes<u32>) -> BTreeMap<(u32, Address), u32> {
    let mut trie = trie(before);
    for (bits, address, _) in &changes.gone {
        assert!(trie.remove(&(*bits, *address)).is_some());
    }
    for (bits, address, of) in &changes.put {
        assert_ne!(trie.insert((*bits, *address), *of), Some(*of), "it is so already");
    }
    trie
}

proptest! {
    #[test]
    fn a_trie_that_was_amended_is_like_one_that_was_made(
        one in prop::collection::vec(entry(), 0..40),
        other in prop::collection::vec(entry(), 0..4),
        without in 0_usize..40,
        later in 0_u64..5,
    ) {
        let before = tables(&one, NOW).prefixes;
        let mut entries = one;
        entries.drain(..without.min(entries.len()) / 8);
        entries.extend(other);
        let after = tables(&entries, NOW + later).prefixes;
        prop_assert!(after.is_sorted_by_key(place));
        if let Some(changes) = Changes::between(&before, &after) {
            prop_assert_eq!(amended(&before, &changes), trie(&after));
            let number = changes.gone.len() + changes.put.len();
            prop_assert!(number == 0 || number < after.len());
        }
        prop_assert_eq!(Stored::new(&after).unwrap().prefixes(), Some(after));
    }
}

/// Ten thousand single sources that are denied, and others.
fn many(others: &[(&str, Option<u64>)]) -> Vec<Prefix<u32>> {
    let mut layers = Layers::default();
    let many = (0..10_000_u32).map(|number| format!("20.0.{}.{}/32", number >> 8, number & 255));
    let many = many.map(|prefix| Entry::new(List::Deny, prefix.parse().unwrap()));
    let others = others.iter().map(|(prefix, until)| Entry {
        until: *until,
        ..Entry::new(List::Deny, prefix.parse().unwrap())
    });
    layers.run_time.add(&layers.policy, many.chain(others).collect(), NOW).unwrap();
    compile(&layers, &Assignment::default(), &Context { unix: NOW, ..Context::default() })
        .unwrap()
        .0
        .prefixes
}

/// Also if its entry is the first in the order of prefixes, and its profile so would be.
#[test]
fn one_source_more_beside_many_is_one_change() {
    for until in [None, Some(NOW + 60)] {
        let (before, after) = (many(&[]), many(&[("10.0.0.1/32", until)]));
        let more = Changes::between(&before, &after).unwrap();
        assert_eq!((more.gone.len(), more.put.len()), (0, 1));
        let less = Changes::between(&after, &before).unwrap();
        assert_eq!((less.gone.len(), less.put.len()), (1, 0));
    }
}

#[test]
fn what_changes_as_a_whole_is_made_anew() {
    let few = tables(&[Entry::new(List::Deny, "10.0.0.1/32".parse().unwrap())], NOW).prefixes;
    let many = many(&[]);
    assert_eq!(Changes::between(&few, &many), None);
    assert_eq!(Changes::between(&many, &few), None);
    assert_eq!(Changes::<u32>::between(&[], &[]), Some(Changes { gone: vec![], put: vec![] }));
    // Nobody says what they would be.
    let reversed: Vec<_> = many.iter().rev().copied().collect();
    assert_eq!(Changes::between(&reversed, &many), None);
}
