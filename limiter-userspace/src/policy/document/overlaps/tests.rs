use std::net::IpAddr;

use ipnet::IpNet;
use proptest::{collection::vec, prelude::*};

use crate::policy::{
    Policy,
    document::{Warnings, parse, parse_with_warnings, to_yaml},
};

const NAMES: [&str; 3] = ["c", "a", "b"];

fn prefixes() -> impl Strategy<Value = Vec<IpNet>> {
    let net = |(last, length)| IpNet::new([192, 0, 2, last].into(), length).unwrap().trunc();
    vec((any::<u8>(), 25_u8..=32).prop_map(net), 0..8)
}

/// Parses a document whose sets or tenants have some prefixes themselves and others in files.
fn parsed(kind: &str, groups: &[(Vec<IpNet>, Vec<IpNet>)]) -> (Policy, Warnings) {
    let mut text = format!("version: 1\n{kind}:\n");
    for (name, (written, _)) in NAMES.iter().zip(groups) {
        let written: Vec<_> = written.iter().map(ToString::to_string).collect();
        text += &format!("  {name}: {{cidrs: [{}], file: {name}}}\n", written.join(", "));
    }
    let read = parse_with_warnings("policy", text.as_bytes(), 0, &mut |name| {
        let group = NAMES.iter().position(|it| *it == name).unwrap();
        let lines = groups[group].1.iter().map(|prefix| format!("{prefix}\n"));
        Ok(lines.collect::<String>().into())
    });
    read.unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

proptest! {
    /// Left-out prefixes change nothing; which tenant has an address is decided by the document before files.
    #[test]
    fn what_is_left_out_makes_no_difference(mut groups in vec((prefixes(), prefixes()), 3)) {
        // Overlaps within the document would be faults.
        let mut seen: Vec<(IpNet, usize)> = Vec::new();
        for (group, (written, _)) in groups.iter_mut().enumerate() {
            written.retain(|prefix| {
                let within = |it: &IpNet| it.contains(prefix) || prefix.contains(it);
                let faulty = seen.iter().any(|(it, of)| it == prefix || *of == group && within(it));
                seen.push((*prefix, group));
                !faulty
            });
        }
        let (policy, _) = parsed("tenants", &groups);
        let (of_sets, _) = parsed("sets", &groups);
        for last in 0..=255 {
            let address = IpAddr::from([192, 0, 2, last]);
            let longest = |prefixes: &[IpNet]| {
                let having = prefixes.iter().filter(|prefix| prefix.contains(&address));
                having.map(IpNet::prefix_len).max()
            };
            let each = || groups.iter().zip(NAMES);
            let written = each().map(|((written, _), name)| (longest(written), true, name));
            let filed = each().map(|((_, filed), name)| (longest(filed), false, name));
            // `max_by_key` returns the last of equal ones, so the order is reversed.
            let all: Vec<_> = written.chain(filed).filter(|(length, ..)| length.is_some()).collect();
            let expected = all.iter().rev().max_by_key(|(length, written, _)| (*length, *written));
            let found = policy.tenants.iter().filter_map(|(name, prefixes)| {
                longest(prefixes).map(|length| (length, name.as_str()))
            });
            let found = found.max().map(|(_, name)| name);
            prop_assert_eq!(found, expected.map(|(.., name)| *name), "{}", address);
            for ((written, filed), name) in each() {
                let has = longest(written).is_some() || longest(filed).is_some();
                prop_assert_eq!(longest(&of_sets.sets[name]).is_some(), has, "{}", address);
            }
        }
        for policy in [policy, of_sets] {
            let text = to_yaml(&policy);
            let read = parse("policy", text.as_bytes(), &mut |_| unreachable!());
            prop_assert_eq!(read.map_err(|faults| faults.to_string()), Ok(policy), "{}", text);
        }
    }
}

/// A feed may overlap as much as it likes: it causes one warning.
#[test]
fn a_file_is_warned_of_once() {
    let net = |at: u32, length| IpNet::new(std::net::Ipv4Addr::from(at).into(), length).unwrap();
    let wide: Vec<_> = (0..100).map(|at| net(at << 16, 16)).collect();
    let narrow = (0..20_000).map(|at| net(at << 8, 24));
    let feed: Vec<_> = narrow.chain(wide.iter().copied()).collect();
    let (policy, warnings) = parsed("sets", &[(Vec::new(), feed.clone())]);
    assert_eq!((policy.sets["c"].len(), warnings.total()), (100, 1));
    let told = &warnings.list()[0].message;
    assert!(told.contains(": 20,000 prefixes of file `c` are left out, as it has"), "{told}");
    let groups = [(Vec::new(), feed.clone()), (wide, Vec::new()), (Vec::new(), feed)];
    let (policy, warnings) = parsed("tenants", &groups);
    assert_eq!(policy.tenants["a"].len(), 100);
    let told: Vec<_> = warnings.list().iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(warnings.total(), 3, "{told:?}");
}
