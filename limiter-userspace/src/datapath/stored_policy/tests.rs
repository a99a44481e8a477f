use proptest::prelude::*;

use super::*;
use crate::policy::{
    Bucket, Builtin, Context, KeyPrefix, List, PolicyErrorKind, compile,
    model::{Listed, PrefixFile, Whom},
    run_time::Entry,
    tables::tests::policy,
    units::parse_rate,
};

fn stored(policy: Policy) -> StoredPolicy {
    let (tables, held) = compile(&policy, &Assignment::default(), &Context::default()).unwrap();
    StoredPolicy::new(Layers { policy, ..Layers::default() }, held, None, &tables)
}

fn document(in_force: &StoredPolicy) -> String {
    String::from_utf8(in_force.write().unwrap()).unwrap()
}

fn cause(document: &str) -> String {
    let error = StoredPolicy::read(document.as_bytes()).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    let error = error.failure::<PolicyError>().unwrap();
    assert_eq!(error.kind(), PolicyErrorKind::Invalid);
    assert!(error.remedy().is_some());
    let PolicyError::Document { cause } = error else { panic!("{error:?}") };
    cause.clone()
}

fn example() -> StoredPolicy {
    let mut policy = Policy::default();
    policy.set_key_prefix(KeyPrefix { ipv4: 30, ipv6: 56 }).unwrap();
    let odd = Bucket { rate: parse_rate("7/13s").unwrap(), burst: 3 };
    policy.set_default(Builtin::Source, odd).unwrap();
    for src in ["203.0.113.0/24", "2001:db8::/48", "0.0.0.0/0"] {
        let bucket = Bucket { rate: parse_rate("50").unwrap(), burst: 50 };
        policy.set_override(Builtin::Syn, src.parse().unwrap(), bucket).unwrap();
    }
    let mut in_force = stored(policy);
    let ban = Entry {
        until: Some(1_800_000_000),
        reason: Some("why".into()),
        by: Some("root".into()),
        since: Some(1_790_000_000),
        ..Entry::new(List::Deny, "198.51.100.4/30".parse().unwrap())
    };
    in_force.run_time.put(&in_force.policy, ban, 0).unwrap();
    in_force
}

/// The same as version 7 stored it, which had no run-time lists.
fn of_version_7(in_force: &StoredPolicy) -> String {
    let mut value: serde_json::Value = serde_json::from_str(&document(in_force)).unwrap();
    value["version"] = 7.into();
    for (of, field) in [("", "run_time"), ("", "unsorted"), ("", "tries"), ("/held", "stale")] {
        let object = value.pointer_mut(of).unwrap().as_object_mut().unwrap();
        assert!(object.remove(field).is_some());
    }
    value.to_string()
}

#[test]
fn a_policy_survives_being_stored() {
    for in_force in [stored(Policy::default()), example()] {
        let written = in_force.write().unwrap();
        assert_eq!(StoredPolicy::read(&written).unwrap(), in_force);
    }
}

/// What another version of limiter finds.
#[test]
fn the_form_is_fixed() {
    let any = concat!(
        r#""matching":{"protocols":[],"ports":[],"tcp_flags":null,"icmp_types":[],"#,
        r#""fragments":null,"length":null,"interfaces":[],"sources":[],"destinations":[],"#,
        r#""except_sources":[],"except_destinations":[],"service":null},"#,
        r#""key":{"parts":["source"]},"#,
    );
    let slow = r#"[{"token_bucket":{"rate":{"packets":50,"period":1000000000},"burst":50}}]"#;
    let of = |src: &str| format!(r#"{{"whom":{{"prefix":"{src}"}},"layers":{slow}}}"#);
    let overrides = ["0.0.0.0/0", "203.0.113.0/24", "2001:db8::/48"].map(of).join(",");
    assert_eq!(
        document(&example()),
        [
            r#"{"version":9,"policy":{"mode":"enforce","key_prefix":{"ipv4":30,"ipv6":56},"#,
            r#""sets":{},"tenants":{},"services":{},"allow":[],"deny":[],"penalties":[],"#,
            r#""control":{"budgets":{"budget":{"token_bucket":{"rate":{"packets":1000,"#,
            r#""period":1000000000},"burst":2000}},"per_source":{"token_bucket":{"rate":"#,
            r#"{"packets":500,"period":1000000000},"burst":1000}},"far":{"token_bucket":{"rate":"#,
            r#"{"packets":10,"period":1000000000},"burst":20}},"ordinary":0},"overrides":[]},"#,
            r#""limits":[{"name":"source","#,
            any,
            r#""count":"packets","mode":"enforce","layers":[{"allowance":{"token_bucket":"#,
            r#"{"rate":{"packets":7,"period":13000000000},"burst":3}},"key":null}],"#,
            r#""candidate":null,"penalty":null,"overrides":[]},{"name":"syn","#,
            any,
            r#""count":"syns","mode":"enforce","layers":[],"candidate":null,"penalty":null,"#,
            r#""overrides":["#,
            &overrides,
            r#"]}]},"run_time":[{"list":"deny","prefix":"198.51.100.4/30","until":1800000000,"#,
            r#""reason":"why","by":"root","since":1790000000}],"unsorted":false,"held":{"seed":[0,0,0,0],"places":{"source/Source/bucket/packets":{"0":"#,
            r#"{"stamp":2,"tally":1,"word":0,"allowance":{"token_bucket":"#,
            r#"{"rate":{"packets":7,"period":13000000000},"burst":3}}}},"#,
            r#""syn/Source/bucket/packets":{"0":{"stamp":1,"tally":0,"word":1,"allowance":null}}},"#,
            r#""penalties":{"source":2,"syn":1},"tenants":{},"last_tenant":0,"slots":{},"stale":null,"compiled":[0,0]},"origin":null,"tries":{"prefixes":{"packed":"0018cb00715120010db80000","values":[[3,2]]},"destinations":{"packed":"","values":[]}}}"#,
        ]
        .concat()
    );
}

#[test]
fn one_of_an_older_version_has_no_origin_and_all_that_is_listed_in_its_policy() {
    let mut in_force = example();
    let whom = Whom::Prefix("198.51.100.8/30".parse().unwrap());
    in_force.policy.deny.push(Listed { whom, until: Some(1_800_000_000) });
    let new = of_version_7(&in_force);
    let old = new.replace(r#""version":7"#, r#""version":6"#).replace(r#""origin":null,"#, "");
    assert_ne!(old, new);
    for document in [new, old] {
        let read = StoredPolicy::read(document.as_bytes()).unwrap();
        assert_eq!((&read.policy, read.origin), (&in_force.policy, None));
        assert!(read.run_time.is_empty() && read.unsorted);
        // The next document leaves the ban in force.
        let next = read.layers().under(Policy::default());
        assert_eq!(next.run_time.entries().len(), 1);
        assert_eq!(next.view().listed(List::Deny, 0), 1);
        // Until there is one, it is stored as it was read.
        let tables = compile(read.layered(), &read.held, &Context::default()).unwrap().0;
        let next = StoredPolicy::new(read.layers(), read.held.clone(), None, &tables);
        let written = next.write().unwrap();
        assert!(StoredPolicy::read(&written).unwrap().unsorted);
    }
}

/// An older version, or another one, may number profiles in another way.
#[test]
fn what_the_tries_have_is_known_of_this_version_alone() {
    let example = example();
    let text = document(&example);
    assert_eq!(tries_of(text.as_bytes()), example.tries);
    assert!(example.tries.is_some());
    let older = text.replace(r#"{"version":9,"#, r#"{"version":8,"#);
    assert!(StoredPolicy::read(older.as_bytes()).is_ok());
    assert_eq!(tries_of(older.as_bytes()), None);
    assert_eq!(tries_of(b""), None);
    // What has no room for them is stored without.
    let (without, short) = example.clone().write_within(text.len() - 1).unwrap();
    assert_eq!(tries_of(&short), None);
    assert_eq!(StoredPolicy::read(&short).unwrap(), without);
    assert_eq!(without.layers(), example.layers());
}

#[test]
fn another_document_is_refused() {
    let example = document(&example());
    let version = r#""version":9"#;
    let table = [
        (String::new(), "EOF while parsing a value at line 1 column 0"),
        ("[]".to_owned(), "invalid length 0, expected struct Header with 1 element"),
        ("{}".to_owned(), "missing field `version` at line 1 column 2"),
        (
            r#"{"version":10,"new":1}"#.to_owned(),
            "it is of version 10, and this limiter reads version 9",
        ),
        (
            r#"{"version":1,"key_prefix":{"ipv4":32,"ipv6":64},"limits":[]}"#.to_owned(),
            "it is of version 1, and this limiter reads version 9",
        ),
        (example.clone() + "x", "trailing characters at line 1 column"),
        (
            example.replace(r#""ipv6":56"#, r#""ipv6":-1"#),
            "invalid value: integer `-1`, expected u8",
        ),
        (
            example.replace(r#""ipv6":56"#, r#""ipv6":560"#),
            "invalid value: integer `560`, expected u8",
        ),
        (example.replace(r#","ipv6":56"#, ""), "missing field `ipv6`"),
        (example.replace(version, &format!("{version},{version}")), "duplicate field `version`"),
        (
            example.replace(r#""mode":"enforce","key"#, r#""mode":"off","key"#),
            "unknown variant `off`, expected `enforce` or `monitor`",
        ),
        (example.replace("2001:db8::/48", "2001:db8::/129"), "invalid IP address syntax"),
        (example.replace("\"stamp\":2,", ""), "missing field `stamp`"),
        (
            example.replace("\"allow\":[]", "\"\\u001b[2J\":1"),
            "unknown field `\\u{1b}[2J`, expected one of `mode`, `key_prefix`, `sets`",
        ),
    ];
    for (document, expected) in table {
        assert_ne!(document, example, "nothing was changed for {expected}");
        let cause = cause(&document);
        assert!(cause.starts_with(expected), "{document}: {cause}");
        assert!(cause.chars().count() <= 201, "{cause}");
    }
}

proptest! {
    #[test]
    fn any_policy_of_the_command_line_survives(policy in policy()) {
        let in_force = stored(policy);
        let written = in_force.write().unwrap();
        prop_assert_eq!(StoredPolicy::read(&written).unwrap(), in_force);
    }

    #[test]
    fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
        prop_assert!(StoredPolicy::read(&bytes).is_err());
    }

    #[test]
    fn no_damage_panics_or_gets_into_force(
        at in 0..10_000_usize,
        byte in any::<u8>(),
        cut in 0..10_000_usize,
    ) {
        let mut document = document(&example()).into_bytes();
        let at = at % document.len();
        document[at] = byte;
        if let Ok(read) = StoredPolicy::read(&document) {
            let StoredPolicy { policy, held, .. } = &read;
            // What is read is not checked, so all that is done with it has to bear it.
            let _ = crate::policy::tallies(policy, held);
            if let Ok((tables, _)) = compile(read.layered(), held, &Context::default()) {
                prop_assert!(policy.key_prefix.check().is_ok());
                prop_assert_eq!(tables.rows.len(), policy.limits.len());
            }
        }
        document.truncate(cut % document.len());
        prop_assert!(StoredPolicy::read(&document).is_err());
    }
}

#[test]
fn lists_that_do_not_fit_are_told_with_their_size() {
    assert_eq!(check_room(32 << 20, 32 << 20, 1_600_000), Ok(()));
    let error = check_room((32 << 20) + 1, 32 << 20, 1_700_000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the policy and its 1,700,000 run-time entries take 33 MiB, and an instance has room for 32 MiB"
    );
    assert!(error.remedy().is_some());
}

/// A document that was moved, or was read by a version that did not store where its files are, is no other one: an agent would
/// put it in force again, and undo what commands changed since.
#[test]
fn an_origin_is_what_the_document_says_and_not_where_its_files_are() {
    let StoredPolicy { mut policy, .. } = example();
    let before = Origin::of(&policy).unwrap();
    let file = PrefixFile { path: "/etc/limiter/bad.txt".into(), cidrs: Vec::new() };
    policy.set_files.insert("bad".into(), file.clone());
    policy.tenant_files.insert("acme".into(), file);
    assert_eq!(Origin::of(&policy).unwrap(), before);
    policy.sets.insert("bad".into(), vec!["192.0.2.0/24".parse().unwrap()]);
    assert_ne!(Origin::of(&policy).unwrap(), before);
}
