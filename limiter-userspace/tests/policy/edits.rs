//! Whatever commands make of a policy can be written as a document and read back.

use ipnet::IpNet;
use limiter_common::algorithm::rate::Rate;
use limiter_userspace::policy::{
    Assignment, Bucket, Context, List, Policy, compile,
    document::{parse, to_yaml},
    model::{Listed, Whom},
};
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000;
const LIMITS: [&str; 5] = ["source", "syn", "connection", "web", "api"];

/// What every policy begins as: with sets, and limits beside the built-in ones.
const BEGIN: &str = "version: 1
sets: {some: {cidrs: [192.0.2.0/29, 192.0.2.128/25]}}
tenants: {near: {cidrs: [192.0.2.4/30, 192.0.2.16/31]}}
deny: [some]
limits:
  - {name: web, key: source, count: syns, match: {protocol: tcp, ports: 80}, rate: 5/s}
  - name: api
    match: {protocol: udp, source: [some, 192.0.2.8/29], except: 192.0.2.12/31}
    key: source
    overrides: [{src: 192.0.2.7, rate: 9/s, shadowed: true}, {src: 192.0.2.9, unlimited: true},
      {tenant: near, rate: 2/s}]
";

/// One that does what a built-in one would do.
const SAME: &str = "version: 1
limits: [{name: web, key: source, rate: 5/s}]
";

fn entries(policy: &mut Policy, list: List) -> &mut Vec<Listed> {
    match list {
        List::Allow => &mut policy.allow,
        List::Deny => &mut policy.deny,
        List::Penalty => &mut policy.penalties,
    }
}

fn meet(one: &IpNet, other: &IpNet) -> bool {
    one.contains(other) || other.contains(one)
}

/// Adds an entry, where none is about a part of the same addresses.
fn add(entries: &mut Vec<Listed>, prefix: IpNet, until: Option<u64>) {
    let meets = |listed: &Listed| matches!(listed.whom, Whom::Prefix(other) if other.contains(&prefix) || prefix.contains(&other));
    if !entries.iter().any(meets) {
        entries.push(Listed { whom: Whom::Prefix(prefix), until });
        entries.sort_by_key(|listed| format!("{:?}", listed.whom));
    }
}

proptest! {
    #[test]
    fn what_edits_make_can_be_read_back(
        same in any::<bool>(),
        edits in prop::collection::vec(
            (0_u8..8, 0..LIMITS.len(), 28_u8..=32, any::<u8>(), 0_u64..40, 1_u64..100),
            1..30,
        ),
    ) {
        let text = if same { SAME } else { BEGIN };
        let mut policy = parse("policy", text.as_bytes(), &mut |_| unreachable!()).unwrap();
        for (edit, limit, length, last, time, rate) in edits {
            let (before, name) = (policy.clone(), LIMITS[limit]);
            let prefix = IpNet::new([192, 0, 2, last].into(), length).unwrap().trunc();
            let bucket = Bucket::new(Rate::per_second(rate), rate).unwrap();
            let until = (time < 20).then_some(NOW + 1 + time);
            let list = [List::Allow, List::Deny, List::Penalty][limit % 3];
            let result = match edit {
                0 => policy.set_default(name, bucket),
                1 => policy.set_override(name, prefix, bucket),
                2 => policy.del_default(name),
                3 => policy.del_override(name, prefix),
                4 if last < 20 => policy.del_limit(name),
                5 => {
                    entries(&mut policy, list).retain(|listed| listed.whom != Whom::Prefix(prefix));
                    Ok(())
                }
                // A set of the document is listed, and nothing may be listed twice.
                _ if policy.sets.values().flatten().any(|other| meet(other, &prefix)) => Ok(()),
                _ => {
                    add(entries(&mut policy, list), prefix, until);
                    Ok(())
                }
            };
            if result.is_err() || compile(&policy, &Assignment::default(), &Context::default()).is_err() {
                policy = before;
            }
            let text = to_yaml(&policy);
            let read = parse("policy", text.as_bytes(), &mut |_| unreachable!());
            prop_assert_eq!(read.as_ref().map_err(ToString::to_string), Ok(&policy), "{}", text);
        }
    }
}

#[test]
fn whom_a_limit_is_not_about_gets_no_override() {
    let mut policy = parse("policy", BEGIN.as_bytes(), &mut |_| unreachable!()).unwrap();
    let bucket = Bucket::new(Rate::per_second(5), 5).unwrap();
    for (prefix, about) in [
        ("192.0.2.0/24", true),
        ("192.0.2.12/30", true),
        ("192.0.2.12/31", false),
        ("192.0.2.64/26", false),
        ("2001:db8::/64", false),
    ] {
        let before = policy.clone();
        let result = policy.set_override("api", prefix.parse().unwrap(), bucket);
        assert_eq!(result.is_ok(), about, "{prefix}: {result:?}");
        if let Err(error) = result {
            let message = format!("limit api is not about {prefix}: its `match` leaves it out");
            assert_eq!(error.to_string(), message);
            assert!(error.remedy().unwrap().contains("policy show"));
            assert_eq!(policy, before);
        }
    }
}

#[test]
fn an_override_outlives_a_deny() {
    let mut policy = Policy::default();
    let bucket = Bucket::new(Rate::per_second(5), 5).unwrap();
    policy.set_override("source", "203.0.113.9/32".parse().unwrap(), bucket).unwrap();
    let denied = "203.0.113.0/24".parse().unwrap();
    add(&mut policy.deny, denied, None);
    assert_eq!(policy.shadowed().len(), 1);
    let text = to_yaml(&policy);
    assert!(
        text.contains("{src: 203.0.113.9/32, rate: 5 pps, burst: 5, shadowed: true}"),
        "{text}"
    );
    assert_eq!(parse("policy", text.as_bytes(), &mut |_| unreachable!()).unwrap(), policy);
    policy.deny.clear();
    assert!(policy.shadowed().is_empty());
    assert!(!to_yaml(&policy).contains("shadowed"));
}
