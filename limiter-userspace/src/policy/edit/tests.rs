use limiter_common::algorithm::rate::Rate;

use super::*;
use crate::policy::{
    document::{parse, to_yaml},
    error::PolicyErrorKind,
    model::{Count, GlobalMode, Key, KeyPart},
    units::{parse_prefix, parse_rate},
};

fn bucket(rate: &str, burst: u64) -> Bucket {
    Bucket::new(parse_rate(rate).unwrap(), burst).unwrap()
}

fn prefix(text: &str) -> IpNet {
    parse_prefix(text).unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(
    result: Result<T, PolicyError>,
    kind: PolicyErrorKind,
    message: &str,
    remedy: &str,
) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind);
    assert_eq!(error.to_string(), message);
    assert_eq!(error.remedy().unwrap(), remedy);
}

/// The allowance of a limit for keys without an override.
fn default(policy: &Policy, limit: Builtin) -> Option<Bucket> {
    Some(policy.limit(limit)?.layers.first()?.allowance.bucket())
}

/// The overrides of a document are in whatever order it has them.
#[test]
fn an_override_is_found_in_any_order() {
    let written = ["203.0.113.0/24", "192.0.2.0/24", "198.51.100.0/24"];
    let overrides: Vec<_> =
        written.iter().map(|src| format!("      - {{ src: {src}, rate: 5/s }}\n")).collect();
    let text = format!(
        "version: 1\nlimits:\n  - name: web\n    key: source\n    rate: 1/s\n    overrides:\n{}",
        overrides.concat()
    );
    let read = |text: &str| parse("policy", text.as_bytes(), &mut |_| unreachable!("no files"));
    for (place, src) in written.into_iter().enumerate() {
        let mut policy = read(&text).unwrap();
        policy.set_override("web", prefix(src), bucket("7/s", 7)).unwrap();
        let prefixes: Vec<_> = policy.limit("web").unwrap().prefixes().collect();
        assert_eq!(prefixes, written.map(prefix), "{src}");
        let changed = policy.limit("web").unwrap().overrides[place].layers.clone().unwrap();
        assert_eq!(changed, [bucket("7/s", 7).into()]);
        assert_eq!(read(&to_yaml(&policy)).as_ref(), Ok(&policy));
        policy.del_override("web", prefix(src)).unwrap();
        assert_eq!(policy.limit("web").unwrap().overrides.len(), 2);
    }
}

#[test]
fn edits_are_kept() {
    let mut policy = Policy::default();
    let (slow, fast) = (bucket("50pps", 50), bucket("1kpps", 2_000));
    let net = prefix("203.0.113.0/24");
    policy.set_default(Builtin::Source, fast).unwrap();
    policy.set_override(Builtin::Source, net, slow).unwrap();
    assert_eq!(default(&policy, Builtin::Source), Some(fast));
    let of_net = |layers| Override { whom: OverrideWhom::Prefix(net), layers: Some(layers) };
    assert_eq!(policy.limit(Builtin::Source).unwrap().overrides, [of_net(vec![slow.into()])]);
    assert_eq!(policy.limit(Builtin::Syn), None);
    // Once more, replacing the rate that was set.
    policy.set_default(Builtin::Source, slow).unwrap();
    policy.set_override(Builtin::Source, net, fast).unwrap();
    assert_eq!(default(&policy, Builtin::Source), Some(slow));
    assert_eq!(policy.limit(Builtin::Source).unwrap().overrides, [of_net(vec![fast.into()])]);
    policy.del_override(Builtin::Source, net).unwrap();
    policy.del_default(Builtin::Source).unwrap();
    assert_eq!(policy, Policy::default(), "a built-in limit with nothing left is gone");
}

#[test]
fn a_built_in_limit_is_not_set_beside_one_that_does_the_same() {
    let text = "version: 1\nlimits: [{name: web, key: source, rate: 5/s}]";
    let mut policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    let message = "limit web has the match, key and count of limit source";
    let remedy = "set that one: limiter limit set web --rate RATE";
    let fast = bucket("1kpps", 2_000);
    let result = policy.set_default(Builtin::Source, fast);
    refused(result, PolicyErrorKind::Invalid, message, remedy);
    let result = policy.set_override(Builtin::Source, prefix("203.0.113.0/24"), fast);
    refused(result, PolicyErrorKind::Invalid, message, remedy);
    policy.set_default(Builtin::Syn, fast).unwrap();
}

#[test]
fn a_limit_that_is_deleted_but_for_overrides_drops_nothing() {
    let text = "version: 1\nlimits: [{name: a, key: source, match: {protocol: udp}, rate: 5/s, action: drop, overrides: [{src: 192.0.2.0/24, rate: 9/s}]}]";
    let mut policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    policy.del_default("a").unwrap();
    let limit = policy.limit("a").unwrap();
    assert_eq!((limit.mode, limit.layers.len(), limit.overrides.len()), (Mode::Enforce, 0, 1));
}

#[test]
fn a_limit_that_drops_all_is_set_and_has_no_rate() {
    let text = "version: 1\nlimits: [{name: a, key: source, match: {protocol: udp}, action: drop}]";
    let mut policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    let message = "limit a drops all that it is about, and has no rate";
    let remedy = "give it one with: limiter limit set a --rate RATE";
    let burst = policy.set_bucket("a", None, None, Some("5")).map(drop);
    refused(burst, PolicyErrorKind::NotFound, message, remedy);
    refused(policy.set_mode("a", Mode::Enforce), PolicyErrorKind::NotFound, message, remedy);
}

#[test]
fn the_mode_of_a_limit_changes_nothing_else() {
    let mut policy = Policy::default();
    let remedy = "set it with: limiter limit set syn --rate RATE";
    let result = policy.set_mode(Builtin::Syn, Mode::Monitor);
    refused(result, PolicyErrorKind::NotFound, "limit syn is not set", remedy);
    assert!(policy.set_mode("web", Mode::Monitor).is_err());
    assert_eq!(policy, Policy::default());
    policy.set_default(Builtin::Syn, bucket("50pps", 50)).unwrap();
    let before = policy.clone();
    policy.set_mode(Builtin::Syn, Mode::Monitor).unwrap();
    assert_eq!(policy.limit(Builtin::Syn).unwrap().mode, Mode::Monitor);
    assert_eq!(default(&policy, Builtin::Syn), Some(bucket("50pps", 50)));
    policy.set_mode(Builtin::Syn, Mode::Enforce).unwrap();
    assert_eq!(policy, before);
}

#[test]
fn a_limit_is_deleted_with_its_overrides_and_no_other() {
    let mut policy = Policy::default();
    for limit in Builtin::LISTED {
        policy.set_default(limit, bucket("1", 1)).unwrap();
        policy.set_override(limit, prefix("203.0.113.0/24"), bucket("2", 2)).unwrap();
    }
    policy.del_limit(Builtin::Syn).unwrap();
    let names: Vec<_> = policy.limits.iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["connection", "source"]);
    assert!(policy.limits.iter().all(|limit| limit.overrides.len() == 1));
    refused(
        policy.del_limit(Builtin::Syn),
        PolicyErrorKind::NotFound,
        "limit syn is not set",
        "set it with: limiter limit set syn --rate RATE",
    );
}

#[test]
fn limits_of_the_policy_are_edited_like_those_that_need_no_definition() {
    let mut web = Builtin::Source.limit();
    web.name = "web".to_owned();
    web.key = Key { parts: vec![KeyPart::Destination] };
    web.count = Count::Packets;
    let queue = Allowance::LeakyBucket { rate: Rate::per_second(10), depth: 5 };
    web.layers = vec![Layer { allowance: queue, key: None }];
    let mut policy = Policy { limits: vec![web], mode: GlobalMode::Monitor, ..Policy::default() };
    policy.set_default("web", bucket("20", 7)).unwrap();
    // The algorithm stays.
    let queue = Allowance::LeakyBucket { rate: Rate::per_second(20), depth: 7 };
    assert_eq!(policy.limit("web").unwrap().layers[0].allowance, queue);
    policy.set_override("web", prefix("203.0.113.0/24"), bucket("30", 8)).unwrap();
    let wide = Allowance::LeakyBucket { rate: Rate::per_second(30), depth: 8 };
    assert_eq!(policy.limit("web").unwrap().overrides[0].layers, Some(vec![wide]));
    assert_eq!(policy.listed_names(), ["connection", "syn", "source", "web"]);
    // Without a rate the limit stays, because its match is stored nowhere else.
    policy.del_override("web", prefix("203.0.113.0/24")).unwrap();
    policy.del_default("web").unwrap();
    assert!(policy.limit("web").unwrap().is_off());
    let text = to_yaml(&policy);
    assert_eq!(
        parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")),
        Ok(policy.clone())
    );
    policy.del_limit("web").unwrap();
    assert_eq!(policy.limits, []);
    refused(
        policy.set_default("sorce", bucket("1", 1)),
        PolicyErrorKind::NotFound,
        "there is no limit \"sorce\"",
        "did you mean source?",
    );
    refused(
        policy.del_limit("bandwidth"),
        PolicyErrorKind::NotFound,
        "there is no limit \"bandwidth\"",
        "the limits are connection, syn, source",
    );
    assert_eq!(policy, Policy { mode: GlobalMode::Monitor, ..Policy::default() });
}

#[test]
fn of_several_layers_no_single_rate_is_set() {
    let mut policy = Policy::default();
    policy.set_default(Builtin::Source, bucket("1kpps", 2_000)).unwrap();
    let minute = Layer { allowance: bucket("5k/min", 5_000).into(), key: None };
    policy.limits[0].layers.push(minute);
    let before = policy.clone();
    for edited in [
        policy.set_default(Builtin::Source, bucket("1", 1)),
        policy.set_override(Builtin::Source, prefix("203.0.113.0/24"), bucket("1", 1)),
    ] {
        refused(
            edited,
            PolicyErrorKind::Invalid,
            "limit source has several layers",
            "change it in the document: `limiter policy show`, then `limiter policy apply FILE`",
        );
    }
    assert_eq!(policy, before);
}

#[test]
fn a_limit_of_several_layers_is_deleted_with_all_of_them() {
    let mut policy = Policy::default();
    policy.set_default(Builtin::Source, bucket("1kpps", 2_000)).unwrap();
    let minute = Layer { allowance: bucket("5k/min", 5_000).into(), key: None };
    policy.limits[0].layers.push(minute);
    let mut named = policy.clone();
    let layers = Some(vec![bucket("1", 1).into(), bucket("5/min", 5).into()]);
    let whom = OverrideWhom::Prefix(prefix("203.0.113.0/24"));
    let mut overridden = policy.clone();
    overridden.limits[0].overrides = vec![Override { whom, layers }];
    policy.del_default(Builtin::Source).unwrap();
    assert_eq!(policy, Policy::default());
    named.limits[0].name = "web".to_owned();
    named.del_default("web").unwrap();
    assert!(named.limit("web").unwrap().is_off());
    named.set_default("web", bucket("7", 7)).unwrap();
    assert_eq!(named.limit("web").unwrap().layers.len(), 1);

    let before = overridden.clone();
    refused(
        overridden.del_default(Builtin::Source),
        PolicyErrorKind::Invalid,
        "limit source has several layers, and overrides of all of them",
        "`limiter limit del source --all` deletes it with its overrides",
    );
    assert_eq!(overridden, before);
    overridden.del_limit(Builtin::Source).unwrap();
    assert_eq!(overridden, Policy::default());
}

#[test]
fn what_is_not_there_cannot_be_removed() {
    let mut policy = Policy::default();
    refused(
        policy.del_default(Builtin::Syn),
        PolicyErrorKind::NotFound,
        "limit syn is not set",
        "set it with: limiter limit set syn --rate RATE",
    );
    refused(
        policy.del_override(Builtin::Syn, prefix("203.0.113.0/24")),
        PolicyErrorKind::NotFound,
        "limit syn has no override for 203.0.113.0/24",
        "it has no overrides at all",
    );
    for text in ["203.0.113.0/25", "2001:db8::/48"] {
        policy.set_override(Builtin::Syn, prefix(text), bucket("1", 1)).unwrap();
    }
    refused(
        policy.del_override(Builtin::Syn, prefix("203.0.113.0/24")),
        PolicyErrorKind::NotFound,
        "limit syn has no override for 203.0.113.0/24",
        "its overrides are 203.0.113.0/25, 2001:db8::/48",
    );
    refused(
        policy.del_default(Builtin::Syn),
        PolicyErrorKind::NotFound,
        "limit syn is not set",
        "it has overrides only (2); remove them by: limiter limit del syn --src PREFIX",
    );
    for third in 0..200 {
        let prefix = prefix(&format!("198.51.{third}.0/24"));
        policy.set_override(Builtin::Syn, prefix, bucket("1", 1)).unwrap();
    }
    refused(
        policy.del_override(Builtin::Syn, prefix("203.0.113.0/24")),
        PolicyErrorKind::NotFound,
        "limit syn has no override for 203.0.113.0/24",
        "the nearest of its 202 overrides are 203.0.113.0/25, 198.51.0.0/24, 198.51.1.0/24",
    );
}

#[test]
fn an_override_is_never_within_a_source() {
    let mut policy = Policy::default();
    let some = bucket("1", 1);
    refused(
        policy.set_override(Builtin::Source, prefix("2001:db8::1"), some),
        PolicyErrorKind::Invalid,
        "sources are counted per /64, and 2001:db8::1/128 is narrower",
        "give /64 or wider, such as 2001:db8::/64; or attach again with \
         --ipv6-prefix 128",
    );
    policy.set_key_prefix(KeyPrefix { ipv4: 24, ipv6: 128 }).unwrap();
    policy.set_override(Builtin::Source, prefix("2001:db8::1"), some).unwrap();
    refused(
        policy.set_override(Builtin::Connection, prefix("203.0.113.9"), some),
        PolicyErrorKind::Invalid,
        "sources are counted per /24, and 203.0.113.9/32 is narrower",
        "give /24 or wider, such as 203.0.113.0/24; or attach again with \
         --ipv4-prefix 32",
    );
    let before = policy.clone();
    refused(
        policy.set_key_prefix(KeyPrefix::default()),
        PolicyErrorKind::Invalid,
        "sources cannot be counted per /64: limit source has a narrower override for \
         2001:db8::1/128",
        "remove it first: limiter limit del source --src 2001:db8::1/128; or give /128 or longer",
    );
    refused(
        policy.set_key_prefix(KeyPrefix { ipv4: 33, ipv6: 128 }),
        PolicyErrorKind::Usage,
        "sources of IPv4 cannot be counted per /33: addresses have 32 bits",
        "give a length from 0 to 32",
    );
    assert_eq!(policy, before);
}

#[test]
fn a_bucket_is_one_that_can_be_kept() {
    let rate = |packets, period| Rate { packets, period };
    refused(
        Bucket::new(rate(0, 1), 1),
        PolicyErrorKind::Usage,
        "a rate of 0 in 1 ns is not between one in 366 days and 125000000000 per second",
        "to switch a limit off, use `limiter limit del NAME`",
    );
    refused(
        Bucket::new(Rate::per_second(1), 0),
        PolicyErrorKind::Usage,
        "a burst of 0 admits nothing",
        "a burst is at least 1",
    );
    refused(
        Bucket::new(parse_rate("1/day").unwrap(), 10_000),
        PolicyErrorKind::Usage,
        "a burst of 10000 is more than a bucket holds at 1/day",
        "the largest burst at 1/day is 6671",
    );
    for text in ["1/366day", "1/day", "7/13s", "1kpps", "10Mpps", "1Gpps"] {
        let rate = parse_rate(text).unwrap();
        let Err(PolicyError::BurstTooLong { largest, .. }) = Bucket::new(rate, u64::MAX) else {
            panic!("{text} holds any burst");
        };
        assert!(Bucket::new(rate, largest).is_ok(), "{text} {largest}");
        assert!(Bucket::new(rate, largest + 1).is_err(), "{text} {largest}");
    }
}

#[test]
fn a_prefix_with_host_bits_is_refused() {
    let host_bits: IpNet = "203.0.113.7/24".parse().unwrap();
    let mut policy = Policy::default();
    let error = policy.set_override(Builtin::Source, host_bits, bucket("1", 1)).unwrap_err();
    assert_eq!(error.to_string(), "prefix \"203.0.113.7/24\" has host bits set");
    assert_eq!(policy, Policy::default());
}

fn parsed(text: &str) -> Policy {
    parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
}

/// What a limit admits, or its override for a prefix, after edits of a document with one limit. Each edit has
/// a prefix or none, a rate or none, a burst or none.
#[track_caller]
fn edited(
    limit: &str,
    edits: &[(Option<&str>, Option<&str>, Option<&str>)],
    of: Option<&str>,
) -> Allowance {
    let mut policy = parsed(&format!("version: 1\nlimits: [{{name: web, key: source, {limit}}}]"));
    for (src, rate, burst) in edits {
        policy.set_bucket("web", src.map(prefix), *rate, *burst).unwrap();
        // Stored and read back, as between two commands.
        let kept = serde_json::to_vec(&policy).unwrap();
        policy = serde_json::from_slice(&kept).unwrap();
    }
    let whom = of.map(|of| OverrideWhom::Prefix(prefix(of)));
    policy.limit("web").unwrap().held_by(whom.as_ref()).unwrap()
}

#[test]
fn a_burst_that_was_given_stays_in_its_form_when_the_rate_changes() {
    let rate = |rate| [(None, Some(rate), None)];
    for (limit, new, burst) in [
        ("rate: 5/min, burst: 5", "10/min", 5),
        ("rate: 5/min, burst: 5", "100/s", 5),
        // The burst equals the default, but it was written.
        ("rate: 5/min, burst: 1", "100/s", 1),
        ("rate: 100/s, burst: 64", "5/min", 64),
        ("rate: 100/s, burst: 2s", "1kpps", 2_000),
        ("layers: [{rate: 5/min, burst: 5}]", "10/min", 5),
        ("algorithm: leaky_bucket, rate: 5/min, depth: 5", "10/min", 5),
        ("algorithm: leaky_bucket, rate: 10/s, depth: 1s", "20/s", 20),
        ("algorithm: gcra, rate: 5/min, tolerance: 5", "10/min", 5),
        ("count: bytes, rate: 2Mbit/s, burst: 64kB", "4Mbit/s", 64_000),
        ("count: bytes, rate: 2Mbit/s, burst: 1s", "4Mbit/s", 500_000),
        ("algorithm: concurrent, limit: 10", "10/min", 10),
        // No burst was written.
        ("rate: 100/s", "1kpps", 100),
        ("rate: 1kpps", "5/min", 1),
        ("unlimited: true", "100/s", 64),
    ] {
        assert_eq!(edited(limit, &rate(new), None).bucket().burst, burst, "{limit}: {new}");
    }
    let gcra = "algorithm: gcra, rate: 10/s, tolerance: 250ms";
    let Allowance::Gcra { tolerance, .. } = edited(gcra, &rate("7/s"), None) else {
        unreachable!()
    };
    assert_eq!(tolerance, 250_000_000);
}

#[test]
fn a_burst_is_set_alone_and_stays_by_whom_it_is_for() {
    let limit = "rate: 5/min, burst: 5, overrides: [{src: 192.0.2.0/24, rate: 1/s, burst: 3s}]";
    let net = Some("192.0.2.0/24");
    let got = |edits: &[_], of| {
        let Bucket { rate, burst } = edited(limit, edits, of).bucket();
        (rate, burst)
    };
    let per = |text| parse_rate(text).unwrap();
    assert_eq!(got(&[(None, None, Some("9"))], None), (per("5/min"), 9));
    let alone = [(None, None, Some("9")), (None, Some("1/min"), None)];
    assert_eq!(got(&alone, None), (per("1/min"), 9));
    assert_eq!(got(&alone, net), (per("1/s"), 3));
    assert_eq!(got(&[(net, Some("10/s"), None)], net), (per("10/s"), 30));
    assert_eq!(got(&[(net, None, Some("7"))], net), (per("1/s"), 7));
    assert_eq!(got(&[(net, None, Some("7")), (net, Some("9/s"), None)], net), (per("9/s"), 7));
    assert_eq!(got(&[(net, Some("10/s"), None)], None), (per("5/min"), 5));
    // A new override has the default burst.
    let other = Some("198.51.100.0/24");
    assert_eq!(got(&[(other, Some("10/s"), None)], other), (per("10/s"), 10));

    let mut policy = parsed(&format!("version: 1\nlimits: [{{name: web, key: source, {limit}}}]"));
    let result = policy.set_bucket("web", other.map(prefix), None, Some("7"));
    assert_eq!(result.unwrap_err().kind(), PolicyErrorKind::NotFound);
    // A deleted limit leaves no burst behind.
    policy.del_override("web", prefix("192.0.2.0/24")).unwrap();
    policy.set_bucket("web", net.map(prefix), Some("2/s"), None).unwrap();
    policy.del_default("web").unwrap();
    policy.set_bucket("web", None, Some("3/s"), None).unwrap();
    let limit = policy.limit("web").unwrap();
    let bursts = [None, Some(&OverrideWhom::Prefix(prefix("192.0.2.0/24")))]
        .map(|whom| limit.held_by(whom).unwrap().bucket().burst);
    assert_eq!(bursts, [3, 2]);
}

#[test]
fn limits_on_requests_are_left_to_the_document() {
    let text = "version: 1\nlimits: [{name: login, on: requests, key: source/16, rate: 5/min, \
                overrides: [{src: 192.0.0.0/16, rate: 9/min}]}]";
    let read = |text: &str| parse("policy", text.as_bytes(), &mut |_| unreachable!());
    let mut policy = read(text).unwrap();
    let before = policy.clone();
    let bucket = bucket("5/min", 5);
    let prefix = parse_prefix("192.0.2.0/24").unwrap();
    let new = Limit::new("login", &[KeyPart::Source]);
    for refused in [
        policy.set_default("login", bucket),
        policy.set_override("login", prefix, bucket),
        policy.set_mode("login", Mode::Monitor),
        policy.set_mode("login", Mode::Drop),
        policy.del_default("login"),
        policy.del_limit("login"),
        policy.del_override("login", prefix),
        policy.add_limit(new).map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error, PolicyError::OnRequests { limit: "login".to_owned() });
        assert!(error.remedy().unwrap().contains("in the document"), "{error}");
    }
    assert_eq!(policy, before);
    // Others are edited beside it, and it stays as it is.
    policy.set_default("web", bucket).unwrap_err();
    policy.set_default("source", bucket).unwrap();
    assert_eq!(policy.on_requests, before.on_requests);
    let wide = KeyPrefix { ipv4: 8, ipv6: 64 };
    let error = policy.set_key_prefix(wide).unwrap_err();
    assert!(matches!(error, PolicyError::KeyPrefixTooWide { ref limit, .. } if limit == "login"));
}
