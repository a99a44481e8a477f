use super::*;
use crate::policy::{Builtin, document::parse, model::Listed};

const NOW: u64 = 1_800_000_000;
const END: u64 = 2_000_000_000;

/// An SSH session from 203.0.113.9.
fn ssh() -> Session {
    Session::parse("203.0.113.9 50000 192.0.2.1 22").unwrap()
}

#[track_caller]
fn policy(text: &str) -> Policy {
    let text = format!("version: 1\n{text}");
    match parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")) {
        Ok(policy) => policy,
        Err(faults) => panic!("{faults}"),
    }
}

/// A policy with one limit; `text` follows its name.
#[track_caller]
fn limit(text: &str) -> Policy {
    policy(&format!(
        "sets: {{office: {{cidrs: [203.0.113.0/24]}}}}\n\
         tenants: {{acme: {{cidrs: [203.0.113.0/28]}}}}\n\
         limits: [{{name: some, {text}}}]\n"
    ))
}

#[test]
fn the_peer_and_the_port_are_read() {
    let [peer, host] = ["203.0.113.9", "192.0.2.1"].map(|text| text.parse().unwrap());
    assert_eq!(ssh(), Session { peer, peer_port: Some(50000), host: Some(host), port: Some(22) });
    let zone = Session::parse("fe80::1%eth0 50000 fe80::2%eth0 2222").unwrap();
    assert_eq!((zone.peer, zone.port), ("fe80::1".parse().unwrap(), Some(2222)));
    assert_eq!(
        Session::parse("::ffff:203.0.113.9 1 ::ffff:192.0.2.1 22"),
        Some(Session { peer, peer_port: Some(1), host: Some(host), port: Some(22) })
    );
    let short = Session { peer, peer_port: None, host: None, port: None };
    assert_eq!(Session::parse("203.0.113.9"), Some(short));
    for text in ["", "somewhere 1 2 3", "203.0.113.999 1 192.0.2.1 22"] {
        assert_eq!(Session::parse(text), None, "{text}");
    }
}

#[test]
fn an_address_is_kept_as_the_source_that_it_is_counted_as() {
    let source = |address: &str| Policy::default().source_of(address.parse().unwrap()).to_string();
    assert_eq!(source("203.0.113.9"), "203.0.113.9/32");
    assert_eq!(source("2001:db8::9:1"), "2001:db8::/64");
}

#[test]
fn lists_drop_and_allow() {
    for (text, drops) in [
        ("", false),
        ("deny: [203.0.113.0/24]", true),
        ("deny: [203.0.114.0/24]", false),
        ("penalties: [{src: 203.0.113.9, until: 1800000001}]", true),
        ("penalties: [{src: 203.0.113.9, until: 1800000000}]", false),
        ("mode: monitor\ndeny: [203.0.113.0/24]", false),
        ("allow: [203.0.113.9]\ndeny: [203.0.113.0/24]", false),
        ("sets: {us: {cidrs: [203.0.113.8/30]}}\nallow: [us]\ndeny: [203.0.113.0/24]", false),
        // After the `allow` entry ends, the source would be denied.
        ("allow: [{src: 203.0.113.9, until: 1999999999}]\ndeny: [203.0.113.0/24]", true),
        ("allow: [{src: 203.0.113.9, until: 2000000000}]\ndeny: [203.0.113.0/24]", false),
    ] {
        assert_eq!(Layered::from(&policy(text)).could_drop(&ssh(), NOW, END), drops, "{text}");
    }
}

#[test]
fn limits_drop_what_they_are_about() {
    for (text, drops) in [
        ("key: source, rate: 1/s", true),
        ("key: all, rate: 1/s", true),
        ("key: source, rate: 1/s, action: monitor", false),
        ("key: source, rate: 1/s, action: off", false),
        ("key: source, rate: 1/s, match: {protocol: udp}", false),
        ("key: source, rate: 1/s, match: {protocol: [udp, tcp]}", true),
        ("key: source, rate: 1/s, match: {protocol: tcp, ports: [80, 443]}", false),
        ("key: source, rate: 1/s, match: {protocol: tcp, ports: [20-30]}", true),
        ("key: source, rate: 1/s, match: {protocol: tcp, tcp_flags: syn}", true),
        ("key: source, rate: 1/s, match: {protocol: icmp, icmp_type: 8}", false),
        ("key: source, rate: 1/s, match: {interface: eth7}", true),
        ("key: source, rate: 1/s, match: {source: office}", true),
        ("key: source, rate: 1/s, match: {source: 198.51.100.0/24}", false),
        ("key: source, rate: 1/s, match: {except: [office]}", false),
        ("key: source, rate: 1/s, match: {destination: 192.0.2.1}", true),
        ("key: source, rate: 1/s, match: {destination: 192.0.2.2}", false),
        ("key: source, rate: 1/s, match: {except_destination: 192.0.2.0/24}", false),
    ] {
        assert_eq!(Layered::from(&limit(text)).could_drop(&ssh(), NOW, END), drops, "{text}");
    }
}

#[test]
fn a_penalty_drops_what_its_limit_is_not_about() {
    for (text, drops) in [
        ("", true),
        (", action: monitor", false),
        (", match: {protocol: tcp, ports: [80]}", true),
        (", match: {protocol: udp, destination: 192.0.2.2}", true),
        (", match: {protocol: udp, source: 198.51.100.0/24}", false),
        (", match: {protocol: udp, except: [office]}", false),
        (", overrides: [{src: 203.0.113.9, unlimited: true}]", false),
    ] {
        let text = format!("key: source, rate: 1/s, penalty: {{after: 1s, block: 1h}}{text}");
        assert_eq!(Layered::from(&limit(&text)).could_drop(&ssh(), NOW, END), drops, "{text}");
    }
}

#[test]
fn a_block_may_hold_as_long_as_any_limit_blocks() {
    const PENALTY: &str = "penalty: {after: 1s, block: 1h}";
    for (text, holds) in [
        ("key: source, rate: 1/s", false),
        ("key: source, rate: 1/s, PENALTY", true),
        ("key: source, rate: 1/s, PENALTY, action: monitor", false),
        ("key: source, rate: 1/s, PENALTY, action: off", false),
        ("key: source, rate: 1/s, PENALTY, match: {source: 198.51.100.0/24}", true),
        ("key: source, rate: 1/s, PENALTY, match: {except: [office]}", true),
    ] {
        let mut policy = limit(&text.replace("PENALTY", PENALTY));
        assert_eq!(Layered::from(&policy).could_block(&ssh(), NOW, END), holds, "{text}");
        let whom = Whom::Prefix(policy.source_of(ssh().peer));
        policy.allow.push(Listed { whom, until: Some(END - 1) });
        assert_eq!(
            Layered::from(&policy).could_block(&ssh(), NOW, END),
            holds,
            "{text}: it ends before"
        );
        policy.mode = GlobalMode::Monitor;
        assert!(!Layered::from(&policy).could_block(&ssh(), NOW, END));
        policy.mode = GlobalMode::Enforce;
        policy.allow[0].until = Some(END);
        assert!(!Layered::from(&policy).could_block(&ssh(), NOW, END), "{text}: it is allowed");
    }
}

#[test]
fn overrides_and_tenants_decide_for_whom_a_limit_is() {
    for (text, drops) in [
        ("key: source, overrides: [{src: 203.0.113.0/24, rate: 1/s}]", true),
        ("key: source, overrides: [{src: 203.0.113.8/32, rate: 1/s}]", false),
        ("key: source, rate: 1/s, overrides: [{src: 203.0.113.0/24, unlimited: true}]", false),
        (
            "key: source, rate: 1/s, overrides: [{src: 203.0.113.0/24, unlimited: true}, \
             {src: 203.0.113.9, rate: 9/s}]",
            true,
        ),
        ("key: source, rate: 1/s, overrides: [{tenant: acme, unlimited: true}]", false),
        ("key: tenant, rate: 1/s", true),
    ] {
        assert_eq!(Layered::from(&limit(text)).could_drop(&ssh(), NOW, END), drops, "{text}");
    }
    let stranger = Session::parse("203.0.113.77 50000 192.0.2.1 22").unwrap();
    assert!(
        !Layered::from(&limit("key: tenant, rate: 1/s")).could_drop(&stranger, NOW, END),
        "of no tenant"
    );
    let ladder = "key: source, layers: [{rate: 1/s, key: tenant}, {rate: 9/s, burst: 9}]";
    assert!(
        Layered::from(&limit(ladder)).could_drop(&stranger, NOW, END),
        "the second layer is about everybody"
    );
}

#[test]
fn what_is_not_known_of_the_connection_may_match() {
    let unknown = Session { host: None, port: None, ..ssh() };
    for text in [
        "key: source, rate: 1/s, match: {protocol: tcp, ports: [80]}",
        "key: source, rate: 1/s, match: {destination: 198.51.100.2}",
    ] {
        assert!(Layered::from(&limit(text)).could_drop(&unknown, NOW, END), "{text}");
    }
}

#[test]
fn an_allowed_peer_is_kept_whatever_is_added() {
    let mut policy = Policy::default();
    policy
        .set_default(Builtin::Source, Builtin::Source.limit().count.bucket("1/s", None).unwrap())
        .unwrap();
    assert!(Layered::from(&policy).could_drop(&ssh(), NOW, END));
    let whom = Whom::Prefix(policy.source_of(ssh().peer));
    policy.allow.push(Listed { whom, until: None });
    assert!(!Layered::from(&policy).could_drop(&ssh(), NOW, END));
}

#[test]
fn less_than_a_source_is_widened_to_it() {
    let policy = policy("defaults: {key_prefix: {ipv4: 24}}");
    for (asked, source) in [
        ("203.0.113.9/32", "203.0.113.0/24"),
        ("203.0.112.0/23", "203.0.112.0/23"),
        ("2001:db8::1/128", "2001:db8::/64"),
        ("2001:db8:0:1::/96", "2001:db8:0:1::/64"),
        ("2001:db8::/64", "2001:db8::/64"),
        ("2001:db8::/48", "2001:db8::/48"),
    ] {
        assert_eq!(policy.widened(asked.parse().unwrap()), source.parse().unwrap(), "{asked}");
    }
}
