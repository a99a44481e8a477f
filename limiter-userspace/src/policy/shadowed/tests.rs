use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::policy::{Policy, document::parse, model::Listed};

#[test]
fn what_lists_have_together_shadows_a_set_and_a_tenant() {
    let text = "version: 1\nsets: {a: {cidrs: [192.0.2.7, 203.0.113.7]}}\n\
         tenants: {t: {cidrs: [192.0.2.7, 203.0.113.7]}, u: {cidrs: [192.0.2.8, 10.0.0.1]}}\n\
         allow: [192.0.2.0/24]\ndeny: [203.0.113.0/24, a]\n\
         penalties: [{src: a, shadowed: true}, {src: 203.0.113.9, shadowed: true}, 10.0.0.1]\n\
         limits:\n  - {name: web, key: source, overrides: [{tenant: t, rate: 5/s, \
         shadowed: true}, {tenant: u, rate: 1/s}]}\n";
    let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    let told: Vec<_> = policy.shadowed().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "`penalties`: set `a` is shadowed by `allow` and `deny`, which have all of it",
            "`penalties`: 203.0.113.9/32 is shadowed by `deny`, which has 203.0.113.0/24",
            "limit `web`: the override for tenant `t` is shadowed by `allow` and `deny`, which \
             have all of it",
        ]
    );
}

#[test]
fn what_a_list_has_for_ever_shadows_others() {
    let text = "version: 1\nsets: {a: {cidrs: [192.0.2.7]}, b: {cidrs: [192.0.2.8, 10.0.0.1]}}\n\
         allow: [192.0.2.0/24, {src: 198.51.100.0/24, until: \"2030-01-01T00:00:00Z\"}]\n\
         deny: [{src: a, shadowed: true}, b, {src: 192.0.2.9, shadowed: true}, 198.51.100.7, \
         203.0.113.0/24]\n\
         limits:\n  - {name: web, key: source, overrides: [{src: 203.0.113.9, rate: 5/s, \
         shadowed: true}, {src: 192.0.2.9, unlimited: true, shadowed: true}, \
         {src: 198.51.100.8, rate: 1/s}]}\n";
    let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    let told: Vec<_> = policy.shadowed().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "`deny`: set `a` is shadowed by `allow`, which has all of it",
            "`deny`: 192.0.2.9/32 is shadowed by `allow`, which has 192.0.2.0/24",
            "limit `web`: the override for 203.0.113.9/32 is shadowed by `deny`, which has \
             203.0.113.0/24",
            "limit `web`: the override for 192.0.2.9/32 is shadowed by `allow`, which has \
             192.0.2.0/24",
        ]
    );
    let entries: Vec<_> = policy.shadowed().iter().map(|shadowed| shadowed.entry).collect();
    let denied = |place| Entry::Listed { list: List::Deny, place };
    let overridden = |place| Entry::Override { limit: 0, place };
    assert_eq!(entries, [denied(0), denied(2), overridden(0), overridden(1)]);
}

fn told(text: &str) -> Vec<String> {
    let text = format!("version: 1\n{text}");
    let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    policy.shadowed().iter().map(ToString::to_string).collect()
}

#[test]
fn prefixes_of_lists_shadow_together() {
    let text = "sets: {low: {cidrs: [10.0.0.0/25]}}\nallow: [low, 10.0.0.128/25, 10.0.1.0/25]\n\
         deny: [10.0.1.128/25, {src: 10.0.0.0/24, shadowed: true}]\n\
         limits:\n  - {name: web, key: source, overrides: [\
         {src: 10.0.0.0/24, rate: 5/s, shadowed: true}, {src: 10.0.0.64/26, rate: 5/s, \
         shadowed: true}, {src: 10.0.0.0/22, rate: 5/s}]}\n";
    assert_eq!(
        told(text),
        [
            "`deny`: 10.0.0.0/24 is shadowed by `allow`, which has all of it",
            "limit `web`: the override for 10.0.0.0/24 is shadowed by `allow`, which has all of it",
            "limit `web`: the override for 10.0.0.64/26 is shadowed by `allow`, which has \
             10.0.0.0/25 of set `low`",
        ]
    );
    let text = "allow: [\"2001:db8::/33\"]\ndeny: [\"2001:db8:8000::/33\"]\n\
         limits:\n  - {name: web, key: source, overrides: [{src: \"2001:db8::/32\", rate: 5/s, \
         shadowed: true}]}\n";
    let both = "limit `web`: the override for 2001:db8::/32 is shadowed by `allow` and `deny`, which \
         have all of it";
    assert_eq!(told(text), [both]);
}

#[test]
fn a_limit_of_tenants_is_about_no_more_than_those() {
    let limits = |key: &str, more: &str| {
        told(&format!(
            "tenants: {{t: {{cidrs: [192.0.2.0/25]}}, u: {{cidrs: [203.0.113.0/24]}}}}\n\
             allow: [192.0.2.0/24]\ndeny: [203.0.113.0/24{more}]\n\
             limits:\n  - {{name: some, shadowed: true, {key}}}\n"
        ))
    };
    let all = "limit `some`: each of its sources is shadowed by `allow` and `deny`, which have all \
         of it";
    assert_eq!(limits("key: tenant, rate: 1/s", ""), [all]);
    assert_eq!(limits("key: [tenant, destination_port], rate: 1/s", ""), [all]);
    let ladder = "layers: [{rate: 9/s, key: tenant}, {rate: 1/s, key: [tenant, interface]}]";
    assert_eq!(limits(&format!("key: tenant, {ladder}"), ""), [all]);
    // If each layer has a key, that of the limit is not used.
    assert_eq!(limits(&format!("key: source, {ladder}"), ""), [all]);
    for key in [
        "key: source, rate: 1/s",
        "key: all, rate: 1/s",
        "key: source, layers: [{rate: 9/s, key: tenant}, {rate: 1/s}]",
        "key: tenant, layers: [{rate: 9/s}, {rate: 1/s, key: all}]",
    ] {
        assert!(limits(key, "").is_empty(), "{key}");
    }
    let text = "tenants: {t: {cidrs: [192.0.2.0/25, 198.51.100.0/24]}}\nallow: [192.0.2.0/24]\n\
         limits:\n  - {name: some, key: tenant, rate: 1/s}\n";
    assert!(told(text).is_empty(), "one of its prefixes is in no list");
}

/// An entry with a file, or one that a file shadows, may be shadowed only by what the file has now.
#[test]
fn what_files_have_makes_nothing_certain() {
    let text = "version: 1\n\
         sets: {f: {cidrs: [192.0.2.0/24]}, s: {cidrs: [198.51.100.7]}}\n\
         tenants: {g: {cidrs: [198.51.100.8]}, t: {cidrs: [198.51.100.9]}}\n\
         allow: [f, 198.51.100.0/24]\n\
         deny: [{src: 192.0.2.9, shadowed: true}, {src: s, shadowed: true}, 203.0.113.0/24]\n\
         penalties: [{src: f, shadowed: true}]\n\
         limits:\n\
         - {name: a, key: source, match: {source: [s, f]}, rate: 1/s, shadowed: true}\n\
         - {name: b, key: source, match: {source: s}, rate: 1/s, shadowed: true}\n\
         - {name: c, key: tenant, rate: 1/s, shadowed: true, overrides: [{tenant: g, rate: 2/s, \
         shadowed: true}, {tenant: t, rate: 2/s, shadowed: true}]}\n\
         - {name: d, key: source, rate: 9/s, overrides: [{src: 192.0.2.10, rate: 1/s, \
         shadowed: true}, {src: 198.51.100.7, rate: 1/s, shadowed: true}]}\n";
    let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    let entries = |found: Vec<Shadowed<'_>>| -> HashSet<Entry> {
        found.iter().map(|shadowed| shadowed.entry).collect()
    };
    let all = entries(policy.shadowed());
    assert_eq!(all.len(), 10);
    assert_eq!(entries(policy.shadowed_without(&FromFiles::default())), all);
    let names = |name: &str| HashMap::from([(name.to_owned(), Vec::new())]);
    let mut files = FromFiles { sets: names("f"), tenants: names("g"), ..FromFiles::default() };
    let mut certain = vec![
        Entry::Listed { list: List::Deny, place: 1 },
        Entry::Limit { limit: 1 },
        Entry::Override { limit: 2, place: 1 },
        Entry::Override { limit: 3, place: 1 },
    ];
    let found = entries(policy.shadowed_without(&files));
    assert_eq!(found, certain.iter().copied().collect());
    // The prefixes of the set in the document are certain.
    files.sets.get_mut("f").unwrap().push("192.0.2.9/32".parse().unwrap());
    certain.push(Entry::Listed { list: List::Deny, place: 0 });
    assert_eq!(entries(policy.shadowed_without(&files)), certain.into_iter().collect());
}

proptest! {
    #[test]
    fn what_is_shadowed_has_no_address_outside_the_lists(
        [allow, deny] in [lists(), lists()],
        place in (any::<u8>(), 26_u8..=32),
    ) {
        let inner = net(place);
        let mut policy = Policy::default();
        let listed = |prefix: &IpNet| Listed { whom: Whom::Prefix(*prefix), until: None };
        policy.allow = allow.iter().map(listed).collect();
        policy.deny = deny.iter().map(listed).collect();
        policy.penalties = vec![listed(&inner)];
        let all: Vec<_> = [allow, deny].concat();
        let has = |address| all.iter().any(|prefix| prefix.contains(&address));
        let expected = inner.hosts().chain([inner.network(), inner.broadcast()]).all(has);
        let entry = Entry::Listed { list: List::Penalty, place: 0 };
        let found = policy.shadowed().iter().any(|shadowed| shadowed.entry == entry);
        prop_assert_eq!(found, expected);
    }
}

/// Prefixes at the end of the address space.
fn lists() -> impl Strategy<Value = Vec<IpNet>> {
    proptest::collection::vec((any::<u8>(), 25_u8..=28).prop_map(net), 0..12)
}

fn net((last, length): (u8, u8)) -> IpNet {
    IpNet::new([255, 255, 255, last].into(), length).unwrap().trunc()
}
