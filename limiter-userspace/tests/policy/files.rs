//! Files that change: what is wrong with a document does not depend on them.

use ipnet::IpNet;
use limiter_userspace::policy::document::{parse, parse_with_warnings, to_yaml};
use proptest::{collection::vec, prelude::*, sample::subsequence};

/// Prefixes near each other, so that they overlap often.
fn prefixes(most: usize) -> impl Strategy<Value = Vec<IpNet>> {
    let net = |(last, length)| IpNet::new([192, 0, 2, last].into(), length).unwrap().trunc();
    vec((any::<u8>(), 24_u8..=32).prop_map(net), 0..most)
}

/// Those of a document, none within another of the same place.
fn disjoint(most: usize) -> impl Strategy<Value = Vec<IpNet>> {
    let net = |(last, length)| IpNet::new([192, 0, 2, last].into(), length).unwrap().trunc();
    let some = vec((any::<u8>(), 27_u8..=30).prop_map(net), 0..most);
    some.prop_map(|prefixes| IpNet::aggregate(&prefixes))
}

fn written(prefixes: &[IpNet]) -> Vec<String> {
    prefixes.iter().map(ToString::to_string).collect()
}

/// Whom a list or a match is about: sets, of which `a` and `b` have files, and prefixes.
fn whoms() -> impl Strategy<Value = Vec<String>> {
    (subsequence(vec!["a", "b", "c"], 0..3), disjoint(3)).prop_map(|(sets, prefixes)| {
        sets.into_iter().map(str::to_owned).chain(written(&prefixes)).collect()
    })
}

/// A list, whose entries may say that something shadows them.
fn entries() -> impl Strategy<Value = String> {
    (whoms(), prop::bool::weighted(0.7)).prop_map(|(whoms, shadowed)| {
        let entry = |whom: &String| format!("{{src: {whom}, shadowed: {shadowed}}}");
        whoms.iter().map(entry).collect::<Vec<_>>().join(", ")
    })
}

/// With some that are within others.
fn nested(most: usize) -> impl Strategy<Value = Vec<IpNet>> {
    (disjoint(most), vec(any::<bool>(), most)).prop_map(|(wide, with_half)| {
        let half = |(wide, _): (&IpNet, bool)| wide.subnets(wide.prefix_len() + 1).ok()?.next();
        let halves: Vec<_> =
            wide.iter().zip(with_half).filter(|it| it.1).filter_map(half).collect();
        [wide, halves].concat()
    })
}

/// How long prefixes of sources are, of a document or a key.
fn length() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(32), 2 => Just(30), 1 => Just(28)]
}

/// Whom a limit has overrides for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Overridden {
    Prefixes,
    Tenants,
    /// By a key with the source. That of a tenant with a file is documented to depend on it.
    SourcesOfTenant,
}

fn limit(name: &'static str) -> impl Strategy<Value = String> {
    let overridden = prop_oneof![
        Just(Overridden::Prefixes),
        Just(Overridden::Tenants),
        Just(Overridden::SourcesOfTenant)
    ];
    let parts = (whoms(), whoms(), overridden, length(), disjoint(4), any::<[bool; 2]>());
    parts.prop_map(move |(source, except, overridden, length, overrides, [shadowed, marked])| {
        let list = |key: &str, whoms: Vec<String>| match whoms.is_empty() {
            true => String::new(),
            false => format!("{key}: [{}], ", whoms.join(", ")),
        };
        let whoms: Vec<_> = match overridden {
            Overridden::Tenants => ["x", "y"].map(|name| format!("tenant: {name}")).into(),
            Overridden::SourcesOfTenant => vec!["tenant: x".to_owned()],
            Overridden::Prefixes => {
                written(&overrides).iter().map(|src| format!("src: {src}")).collect()
            }
        };
        let key = match overridden {
            Overridden::Tenants => "tenant".to_owned(),
            _ if length == 32 => "source".to_owned(),
            _ => format!("source/{length}"),
        };
        let one = |whom: &String| format!("{{{whom}, rate: 1/s, shadowed: {marked}}}");
        let overrides: Vec<_> = whoms.iter().map(one).collect();
        format!(
            "- {{name: {name}, match: {{{}{}protocol: tcp}}, {}shadowed: {shadowed}, key: {}, \
             count: {}, rate: 9/s}}\n",
            list("source", source),
            list("except", except),
            list("overrides", overrides),
            key,
            if name == "one" { "packets" } else { "syns" },
        )
    })
}

fn document() -> impl Strategy<Value = String> {
    let sets = (disjoint(3), disjoint(2), disjoint(3), nested(2), disjoint(2));
    let lists = (entries(), entries(), entries());
    (sets, lists, length(), limit("one"), limit("two")).prop_map(
        |(sets, lists, length, one, two)| {
            let [a, b, c, x, y] = [sets.0, sets.1, sets.2, sets.3, sets.4]
                .map(|prefixes| format!("cidrs: [{}]", written(&prefixes).join(", ")));
            let (allow, deny, penalties) = lists;
            format!(
                "version: 1\ndefaults: {{key_prefix: {{ipv4: {length}}}}}\n\
             sets: {{a: {{{a}, file: f}}, b: {{{b}, file: g}}, c: {{{c}}}}}\n\
             tenants: {{x: {{{x}}}, y: {{{y}, file: g}}}}\n\
             allow: [{allow}]\ndeny: [{deny}]\npenalties: [{penalties}]\nlimits:\n{one}{two}"
            )
        },
    )
}

proptest! {
    #![proptest_config(crate::sixteenths(128))]

    #[test]
    fn what_is_wrong_does_not_depend_on_files(
        document in document(),
        files in vec((prefixes(5), prefixes(5)), 3),
    ) {
        let mut answers = files.iter().map(|(f, g)| {
            let read = parse_with_warnings("policy", document.as_bytes(), 0, &mut |name| {
                let lines = written(if name == "f" { f } else { g });
                Ok(lines.iter().map(|line| format!("{line}\n")).collect::<String>().into())
            });
            read.map_err(|faults| faults.to_string())
        });
        let first = answers.next().unwrap();
        for answer in answers {
            let faults = |answer: &Result<_, String>| answer.as_ref().err().cloned();
            prop_assert_eq!(faults(&answer), faults(&first), "{}", document);
            // What is in force can be saved and comes back the same.
            if let Ok((policy, _)) = answer {
                let text = to_yaml(&policy);
                let read = parse("policy", text.as_bytes(), &mut |_| unreachable!());
                let read = read.map_err(|faults| faults.to_string());
                prop_assert_eq!(read, Ok(policy), "{}\n{}", document, text);
            }
        }
    }
}
