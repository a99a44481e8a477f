use proptest::prelude::*;

use super::*;
use crate::policy::{KeyPrefix, PolicyErrorKind};

const NOW: u64 = 1_800_000_000;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn entry(list: List, prefix: &str, time: Option<u64>) -> Entry {
    Entry { until: time.map(|time| NOW + time), ..Entry::new(list, net(prefix)) }
}

fn listed(prefix: &str, time: Option<u64>) -> Listed {
    Listed { whom: Whom::Prefix(net(prefix)), until: time.map(|time| NOW + time) }
}

/// A document with these lists, and no run-time entry.
fn document(allow: &[&str], deny: &[&str]) -> Layers {
    let of = |prefixes: &[&str]| prefixes.iter().map(|prefix| listed(prefix, None)).collect();
    let policy = Policy { allow: of(allow), deny: of(deny), ..Policy::default() };
    Layers { policy, ..Layers::default() }
}

fn put(layers: &mut Layers, list: List, prefix: &str, time: Option<u64>) -> bool {
    layers.run_time.put(&layers.policy, entry(list, prefix, time), NOW).unwrap()
}

fn take_off(layers: &mut Layers, list: List, prefix: &str) -> Result<Removed, PolicyError> {
    layers.take_off(entry(list, prefix, None), NOW)
}

/// The list that decides about a source.
fn decision(layers: &Layers, source: &str, later: u64) -> Option<List> {
    decides(&layers.view().around(net(source)), NOW + later).map(|by| by.list)
}

#[test]
fn the_longest_prefix_of_both_layers_decides_and_run_time_first() {
    let mut layers = document(&["198.51.100.0/24"], &["203.0.113.0/24", "192.0.2.7/32"]);
    put(&mut layers, List::Deny, "198.51.100.7/32", None);
    put(&mut layers, List::Allow, "203.0.113.9/32", None);
    put(&mut layers, List::Allow, "192.0.2.0/24", None);
    for (source, list) in [
        ("198.51.100.7/32", Some(List::Deny)),
        ("198.51.100.8/32", Some(List::Allow)),
        ("203.0.113.9/32", Some(List::Allow)),
        ("203.0.113.8/32", Some(List::Deny)),
        ("192.0.2.7/32", Some(List::Deny)),
        ("192.0.2.8/32", Some(List::Allow)),
        ("10.0.0.1/32", None),
    ] {
        assert_eq!(decision(&layers, source, 0), list, "{source}");
    }
    // The run-time entry is as long as that of the document, in both directions.
    put(&mut layers, List::Deny, "198.51.100.0/24", None);
    put(&mut layers, List::Allow, "203.0.113.0/24", None);
    assert_eq!(decision(&layers, "198.51.100.8/32", 0), Some(List::Deny));
    assert_eq!(decision(&layers, "203.0.113.8/32", 0), Some(List::Allow));
}

#[test]
fn what_a_run_time_entry_hid_decides_again_when_it_ends() {
    let mut layers = document(&["198.51.100.0/24"], &["203.0.113.0/24"]);
    put(&mut layers, List::Deny, "198.51.100.7/32", Some(60));
    put(&mut layers, List::Allow, "203.0.113.9/32", Some(60));
    let stated = |source| layers.view().around(net(source));
    // The datapath evaluates `allow` first, so the return to `allow` needs another compilation.
    let banned = listing(&stated("198.51.100.7/32"), NOW);
    assert_eq!(banned, Listing { denied: NOW + 60, stale: Some(NOW + 60), ..Listing::default() });
    let after = listing(&stated("198.51.100.7/32"), NOW + 60);
    assert_eq!(after, Listing { allowed: NEVER, ..Listing::default() });
    let allowed = listing(&stated("203.0.113.9/32"), NOW);
    assert_eq!(allowed, Listing { allowed: NOW + 60, denied: NEVER, ..Listing::default() });
}

#[test]
fn another_document_changes_nothing_of_what_was_set_at_run_time() {
    let mut layers = document(&[], &["203.0.113.0/24"]);
    for list in List::ALL {
        put(&mut layers, list, &format!("198.51.100.{}/32", list as u8), Some(60));
    }
    take_off(&mut layers, List::Deny, "203.0.113.0/24").unwrap();
    let other = layers.under(document(&["192.0.2.0/24"], &["203.0.113.0/24"]).policy);
    assert_eq!(other.run_time, layers.run_time);
    assert_eq!(decision(&other, "203.0.113.9/32", 0), None, "it was taken off");
    assert_eq!(decision(&other, "198.51.100.1/32", 59), Some(List::Deny));
    assert_eq!(decision(&other, "198.51.100.1/32", 60), None);
}

#[test]
fn an_entry_of_the_document_is_taken_off_by_an_exception_and_put_back_by_an_entry() {
    let mut layers = document(&[], &["203.0.113.9/32", "203.0.112.0/23"]);
    layers.policy.sets.insert("feed".into(), vec![net("192.0.2.0/25"), net("198.51.100.7/32")]);
    layers.policy.deny.push(Listed { whom: Whom::Set("feed".into()), until: None });
    let before = layers.policy.clone();
    assert_eq!(take_off(&mut layers, List::Deny, "203.0.113.9/32").unwrap(), Removed::Excepted);
    assert_eq!(take_off(&mut layers, List::Deny, "198.51.100.7/32").unwrap(), Removed::Excepted);
    assert_eq!(layers.policy, before, "the document is the operator's");
    assert_eq!(decision(&layers, "203.0.113.9/32", 0), None);
    assert_eq!(decision(&layers, "203.0.113.8/32", 0), Some(List::Deny));
    assert_eq!(decision(&layers, "198.51.100.7/32", 0), None);
    // A run-time entry around the prefix is not hidden by the exception.
    put(&mut layers, List::Deny, "203.0.113.0/24", Some(9));
    assert_eq!(decision(&layers, "203.0.113.9/32", 0), Some(List::Deny));
    assert_eq!(decision(&layers, "203.0.113.9/32", 9), None);
    let error = take_off(&mut layers, List::Deny, "198.51.100.7/32").unwrap_err();
    assert_eq!(error.kind(), PolicyErrorKind::NotFound);
    let error = take_off(&mut layers, List::Deny, "192.0.2.1/32").unwrap_err();
    let hint = "it has 192.0.2.0/25 of set feed, which can only be deleted as a whole";
    assert_eq!(error.remedy().unwrap(), hint);
    assert!(!put(&mut layers, List::Deny, "203.0.113.9/32", None), "there was an exception");
    assert_eq!(decision(&layers, "203.0.113.9/32", 9), Some(List::Deny));
    assert_eq!(layers.run_time.flush(List::Deny), 4);
    assert!(layers.run_time.is_empty());
    assert_eq!(decision(&layers, "203.0.113.9/32", 9), Some(List::Deny), "as in the document");
}

/// A jail bans a source for a while that the operator took off the document's list.
#[test]
fn an_exception_outlives_bans_of_the_same_prefix() {
    const SOURCE: &str = "203.0.113.9/32";
    let mut layers = document(&[], &[SOURCE]);
    take_off(&mut layers, List::Deny, SOURCE).unwrap();
    put(&mut layers, List::Deny, SOURCE, None);
    assert_eq!(decision(&layers, SOURCE, 0), Some(List::Deny));
    assert_eq!(take_off(&mut layers, List::Deny, SOURCE).unwrap(), Removed::Entry);
    assert_eq!(decision(&layers, SOURCE, 0), None, "the exception is there");
    put(&mut layers, List::Deny, SOURCE, Some(60));
    assert_eq!(decision(&layers, SOURCE, 59), Some(List::Deny));
    assert_eq!(decision(&layers, SOURCE, 60), None, "a ban that ended by itself");
    assert_eq!(layers.run_time.drop_over(NOW + 60), 1);
    // Both are restored from their file, side by side.
    put(&mut layers, List::Deny, SOURCE, Some(60));
    let mut restored = RunTime::default();
    restored.extend(&layers.run_time);
    restored.extend(&layers.run_time);
    assert_eq!(restored, layers.run_time);
    assert!(restored.get(List::Deny, net(SOURCE)).is_some());
    assert!(restored.exception(List::Deny, net(SOURCE)).is_some());
}

#[test]
fn what_is_over_is_not_there_to_be_taken_off() {
    let later =
        |layers: &mut Layers, prefix| layers.take_off(entry(List::Deny, prefix, None), NOW + 60);
    let mut layers = document(&[], &["203.0.113.9/32"]);
    for prefix in ["203.0.113.9/32", "198.51.100.7/32"] {
        put(&mut layers, List::Deny, prefix, Some(60));
    }
    let mut before = layers.clone();
    let error = later(&mut layers, "198.51.100.7/32").unwrap_err();
    assert_eq!(error.kind(), PolicyErrorKind::NotFound);
    assert_eq!(layers, before, "nothing was changed");
    assert_eq!(later(&mut layers, "203.0.113.9/32").unwrap(), Removed::Excepted);
    assert_eq!(decision(&layers, "203.0.113.9/32", 60), None);
    // As version 0.1 stored it.
    before.policy.deny.push(listed("192.0.2.7/32", Some(60)));
    before.unsorted = true;
    let error = later(&mut before, "192.0.2.7/32").unwrap_err();
    assert_eq!(error.kind(), PolicyErrorKind::NotFound);
    assert_eq!(later(&mut before, "203.0.113.9/32").unwrap(), Removed::Entry);
}

/// An entry of the document's `deny` that its `allow` keeps from deciding does not override a shorter ban.
#[test]
fn what_the_document_asks_later_does_not_count() {
    let mut layers = document(&["10.0.0.0/8"], &["10.1.2.3/32", "10.2.0.0/16"]);
    put(&mut layers, List::Deny, "10.1.0.0/16", None);
    assert_eq!(decision(&layers, "10.1.2.3/32", 0), Some(List::Deny), "both layers deny it");
    assert_eq!(decision(&layers, "10.1.2.4/32", 0), Some(List::Deny));
    assert_eq!(decision(&layers, "10.2.0.1/32", 0), Some(List::Allow));
    // A longer prefix of the list that answers decides, even if another entry of it lasts longer.
    layers.policy.allow.push(listed("10.1.2.0/24", Some(60)));
    assert_eq!(decision(&layers, "10.1.2.3/32", 59), Some(List::Allow));
    assert_eq!(decision(&layers, "10.1.2.3/32", 60), Some(List::Deny));
    // A hidden entry does not answer.
    take_off(&mut layers, List::Allow, "10.0.0.0/8").unwrap();
    assert_eq!(decision(&layers, "10.2.0.1/32", 60), Some(List::Deny));
}

#[test]
fn a_ban_stands_on_its_own_beside_wider_ones() {
    let mut layers = document(&[], &["203.0.113.0/24"]);
    assert!(!put(&mut layers, List::Deny, "203.0.113.9/32", Some(60)));
    assert!(put(&mut layers, List::Deny, "203.0.113.9/32", Some(90)), "the same, longer");
    assert!(!put(&mut layers, List::Deny, "203.0.0.0/16", None));
    // Neither another document nor the end of the wider ban removes it.
    let mut layers = layers.under(Policy::default());
    take_off(&mut layers, List::Deny, "203.0.0.0/16").unwrap();
    assert_eq!(decision(&layers, "203.0.113.9/32", 89), Some(List::Deny));
    assert_eq!(layers.run_time.entries().len(), 1);
    assert_eq!(layers.run_time.drop_over(NOW + 90), 1);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut layers = document(&[], &[]);
    put(&mut layers, List::Allow, "203.0.113.9/32", None);
    let before = layers.clone();
    for (list, prefix, message) in [
        (
            List::Deny,
            "2001:db8::1/128",
            "sources are counted per /64, and 2001:db8::1/128 is narrower",
        ),
        (
            List::Deny,
            "203.0.113.9/32",
            "203.0.113.9/32 in deny would be shadowed by 203.0.113.9/32 in allow",
        ),
    ] {
        let error =
            layers.run_time.put(&layers.policy, entry(list, prefix, None), NOW).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(error.remedy().is_some());
    }
    assert_eq!(layers, before);
    let run_time = &mut layers.run_time;
    run_time.put(&layers.policy, entry(List::Deny, "192.0.2.1/32", Some(90)), NOW).unwrap();
    let mut longer = |time| {
        let entry = entry(List::Deny, "192.0.2.1/32", time);
        run_time.add(&layers.policy, vec![entry], NOW).unwrap() == [Added::Replaced]
    };
    assert!(!longer(Some(89)) && !longer(Some(90)) && longer(None));
}

/// A document with wider sources can be applied whatever was banned.
#[test]
fn what_is_narrower_than_a_source_waits() {
    let mut layers = document(&[], &[]);
    put(&mut layers, List::Deny, "203.0.113.9/32", None);
    let wide = Policy { key_prefix: KeyPrefix { ipv4: 24, ipv6: 64 }, ..Policy::default() };
    let wide = layers.under(wide);
    assert_eq!(wide.view().run_time().count(), 0);
    assert_eq!(wide.under(Policy::default()).view().run_time().count(), 1);
}

/// Up to version 0.1, one list held the entries of both layers.
#[test]
fn what_an_older_version_banned_is_told_by_the_document_and_never_lost() {
    let mut old = document(&["10.0.0.0/8"], &["203.0.113.0/24", "192.0.2.7/32"]);
    old.policy.deny.push(listed("198.51.100.7/32", Some(60)));
    old.policy.penalties.push(listed("198.51.100.8/32", Some(90)));
    old.unsorted = true;
    // Until they are separated, the lists decide as before; a `deny` within an `allow` still does nothing.
    assert_eq!(decision(&old, "198.51.100.7/32", 59), Some(List::Deny));
    // By another document: its own entries stay there, and the others become run-time entries.
    let document_now = document(&["10.0.0.0/8"], &["203.0.113.0/24"]).policy;
    let new = old.under(document_now.clone());
    let banned: Vec<_> = new
        .run_time
        .entries()
        .iter()
        .map(|it| (it.list, it.prefix.to_string(), it.until))
        .collect();
    assert_eq!(
        banned,
        [
            (List::Deny, "192.0.2.7/32".to_owned(), None),
            (List::Deny, "198.51.100.7/32".to_owned(), Some(NOW + 60)),
            (List::Penalty, "198.51.100.8/32".to_owned(), Some(NOW + 90)),
        ]
    );
    assert_eq!((&new.policy, new.unsorted), (&document_now, false));
    // By its own document: prefixes that commands took off become exceptions.
    let mut of_document = document_now.clone();
    of_document.deny.push(listed("203.0.113.200/32", None));
    let sorted = old.sorted_by(&of_document);
    assert_eq!(sorted.policy.deny, of_document.deny);
    assert_eq!(sorted.run_time.entries().len(), 4);
    assert!(sorted.run_time.exception(List::Deny, net("203.0.113.200/32")).is_some());
    // A ban of the older version can be ended with a command.
    assert_eq!(take_off(&mut old, List::Deny, "198.51.100.7/32").unwrap(), Removed::Entry);
    assert_eq!(decision(&old, "198.51.100.7/32", 0), None);
}

#[test]
fn what_decided_under_an_older_version_is_kept_when_its_instance_is_removed() {
    let mut old = document(&["10.0.0.0/8"], &["203.0.113.0/24", "10.1.2.3/32"]);
    old.policy.deny.push(listed("198.51.100.7/32", Some(60)));
    old.policy.deny.push(listed("198.51.100.8/32", Some(0)));
    // Allowed until a time, which one ban outlasts and the other does not.
    old.policy.allow.push(listed("192.0.2.0/24", Some(60)));
    old.policy.deny.push(listed("192.0.2.7/32", Some(61)));
    old.policy.deny.push(listed("192.0.2.8/32", Some(60)));
    old.unsorted = true;
    let kept = old.kept(NOW);
    let kept: Vec<_> = kept.entries().iter().map(|it| (it.list, it.prefix.to_string())).collect();
    assert_eq!(
        kept,
        [
            (List::Allow, "10.0.0.0/8".to_owned()),
            (List::Allow, "192.0.2.0/24".to_owned()),
            (List::Deny, "203.0.113.0/24".to_owned()),
            (List::Deny, "198.51.100.7/32".to_owned()),
            (List::Deny, "192.0.2.7/32".to_owned()),
        ],
        "what was allowed all the same, or is over, is not banned now"
    );
}

/// The expected decision, by applying the rules one by one.
fn expected(stated: &[Stated<'_>], now: u64) -> Option<List> {
    let holds: Vec<_> = stated.iter().filter(|it| it.until > now).collect();
    let is_hidden = |it: &Stated<'_>| {
        holds.iter().any(|by| {
            by.is_exception()
                && by.list == it.list
                && by.prefix.prefix_len() >= it.prefix.prefix_len()
        })
    };
    let is_left = |it: &Stated<'_>| !it.is_exception() && !is_hidden(it);
    // For each layer, the list that answers and its longest prefix.
    let document = List::ALL.into_iter().find_map(|list| {
        let of = holds.iter().filter(|it| !it.is_run_time() && it.list == list && is_left(it));
        of.map(|it| it.prefix.prefix_len()).max().map(|length| (length, list))
    });
    let run_time = (0..=32).rev().find_map(|length| {
        let of = holds.iter().filter(|it| it.is_run_time() && !it.is_exception());
        let of = of.filter(|it| it.prefix.prefix_len() == length);
        of.map(|it| it.list).min().map(|list| (length, list))
    });
    match (document, run_time) {
        (Some((longer, list)), Some((length, _))) if longer > length => Some(list),
        (_, Some((_, list))) | (Some((_, list)), None) => Some(list),
        (None, None) => None,
    }
}

proptest! {
    /// For any two layers, the rules hold at any time, and the listing for the datapath says the same until
    /// it is stale.
    #[test]
    fn the_merge_of_two_layers_follows_the_rules(
        document in prop::collection::vec((0_usize..3, 24_u8..=32, 0_u8..8, 0_u64..6), 0..8),
        run_time in prop::collection::vec((0_usize..3, 24_u8..=32, 0_u8..8, 0_u64..6, any::<bool>()), 0..8),
        last in 0_u8..8,
    ) {
        let prefix = |length, last| IpNet::new([192, 0, 2, last].into(), length).unwrap().trunc();
        let until = |time| (time < 5).then_some(NOW + time);
        let mut layers = Layers::default();
        for (list, length, last, time) in document {
            let whom = Whom::Prefix(prefix(length, last));
            let entries = layers.policy.list_mut(List::ALL[list]);
            entries.push(Listed { whom, until: until(time) });
        }
        for (list, length, last, time, exception) in run_time {
            let entry = Entry { exception, until: until(time), ..Entry::new(List::ALL[list], prefix(length, last)) };
            layers.run_time.entries.push(entry);
        }
        let stated = layers.view().around(prefix(32, last));
        for from in NOW..NOW + 7 {
            prop_assert_eq!(decides(&stated, from).map(|by| by.list), expected(&stated, from));
            let listing = listing(&stated, from);
            let end = listing.stale.unwrap_or(NOW + 9);
            prop_assert!(end > from);
            for now in from..end {
                let says = if now < listing.allowed {
                    Some(List::Allow)
                } else if now < listing.denied {
                    Some(List::Deny)
                } else if now < listing.blocked {
                    Some(List::Penalty)
                } else {
                    None
                };
                let expected = expected(&stated, now);
                // Both drop.
                let same = says == expected
                    || (says, expected) == (Some(List::Deny), Some(List::Penalty));
                prop_assert!(same, "{:?} at {}: {:?}, not {:?}", listing, now - NOW, says, expected);
            }
        }
    }
}
