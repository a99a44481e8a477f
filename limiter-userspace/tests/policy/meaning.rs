//! What documents mean.

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_userspace::policy::{
    document::{diff, parse, read, to_yaml},
    model::{
        Allowance, Count, GlobalMode, KeyPart, KeyPrefix, Limit, Mode, OverrideWhom, PacketKind,
        Policy, TcpFlags, Unproven, Whom,
    },
};

use crate::fixtures::folder;

fn valid(name: &str) -> Policy {
    read(&folder("valid").join(name).with_extension("yaml")).unwrap_or_else(|e| panic!("{e}"))
}

fn limit(policy: &Policy, name: &str) -> Limit {
    policy.limits.iter().find(|limit| limit.name == name).unwrap().clone()
}

fn allowance(policy: &Policy, name: &str) -> Allowance {
    limit(policy, name).layers[0].allowance
}

#[test]
fn a_rate_of_zero_drops_what_matches() {
    let read = |text: &str| parse("policy", text.as_bytes(), &mut |_| unreachable!()).unwrap();
    let with = |said: &str| {
        read(&format!(
            "version: 1\nlimits:\n  - {{name: a, match: {{protocol: udp}}, {said}}}\n  \
             - {{name: b, key: source, count: bytes, {said}}}\n  - {{name: c, on: requests, {said}}}\n"
        ))
    };
    let drop = with("action: drop");
    for zero in ["rate: 0", "rate: 0, action: drop", "action: enforce, rate: 0"] {
        assert_eq!(with(zero), drop, "{zero}");
    }
    assert_eq!(limit(&drop, "a").mode, Mode::Drop);
    let written = to_yaml(&drop);
    assert!(written.contains("action: drop") && !written.contains("rate:"), "{written}");
}

#[test]
fn the_example_means_what_it_says() {
    let policy = valid("example");
    assert_eq!(policy.mode, GlobalMode::Enforce);
    assert_eq!(policy.sets["cdn"].len(), 3);
    let syn = limit(&policy, "syn-per-source");
    assert_eq!(syn.matching.tcp_flags, Some(TcpFlags { set: 0x02, clear: 0x10 }));
    assert_eq!(syn.matching.protocols, [6, 17]);
    assert_eq!(syn.matching.ports, [80..=80, 443..=443]);
    assert_eq!(
        syn.layers[0].allowance,
        Allowance::TokenBucket { rate: Rate::per_second(200), burst: 400 }
    );
    let web = limit(&policy, "web-per-source");
    // 2,000 at once: the first needs no tolerance, each other 100 us.
    let rate = Rate::per_second(10_000);
    assert_eq!(web.layers[0].allowance, Allowance::Gcra { rate, tolerance: 1_999 * 100_000 });
    let Count::Weighted(costs) = web.count else { panic!("{:?}", web.count) };
    assert_eq!((costs.default, costs.by_kind[&PacketKind::Syn]), (1, 5));
    let penalty = web.penalty.unwrap();
    assert_eq!((penalty.after, penalty.block), (5 * SECOND, 60 * SECOND));
    assert_eq!((penalty.backoff, penalty.max), (2, 3600 * SECOND));
    assert_eq!(penalty.unproven, Unproven::Ignore);
    assert_eq!(web.overrides[1].whom, OverrideWhom::Tenant("acme".into()));
    let dns = limit(&policy, "dns-bytes");
    assert_eq!((dns.count, dns.mode), (Count::Bytes, Mode::Monitor));
    assert_eq!(dns.key.parts, [KeyPart::SourcePrefix { ipv4: 24, ipv6: 64 }]);
    let rate = Rate { packets: 250_000, period: SECOND };
    assert_eq!(dns.layers[0].allowance, Allowance::TokenBucket { rate, burst: 64_000 });
    assert_eq!(dns.matching.except_sources, [Whom::Set("cdn".into())]);
    assert_eq!(limit(&policy, "tenant-total").layers.len(), 2);
}

#[test]
fn what_is_not_given_has_its_default() {
    assert_eq!(valid("smallest"), Policy::default());
    let rate = Rate::per_second(10_000);
    let bucket = allowance(&valid("default-burst"), "web");
    assert_eq!(bucket, Allowance::TokenBucket { rate, burst: 1_000 });
    let open = valid("concurrent");
    assert_eq!(allowance(&open, "open"), Allowance::Concurrent { limit: 50, idle: 300 * SECOND });
    assert_eq!(limit(&open, "open").count, Count::Connections);
    assert_eq!(valid("set-files").key_prefix, KeyPrefix { ipv4: 32, ipv6: 56 });
    assert_eq!(valid("monitor").mode, GlobalMode::Monitor);
    assert_eq!(
        allowance(&valid("costs"), "weighted"),
        Allowance::TokenBucket { rate: Rate::per_second(100), burst: 64 }
    );
}

#[test]
fn windows_have_the_limit_of_their_rate() {
    let policy = valid("windows");
    let minute = 60 * SECOND;
    assert_eq!(allowance(&policy, "fixed"), Allowance::FixedWindow { limit: 5, window: minute });
    let sliding = Allowance::SlidingWindow { limit: 100, window: minute };
    assert_eq!(allowance(&policy, "sliding"), sliding);
    assert_eq!(allowance(&policy, "log"), Allowance::SlidingLog { limit: 2, window: minute });
}

#[test]
fn keys_are_what_packets_share() {
    let policy = valid("keys");
    let parts = |name| limit(&policy, name).key.parts;
    assert_eq!(parts("all"), []);
    assert_eq!(parts("pair"), [KeyPart::Tenant, KeyPart::DestinationPort]);
    assert_eq!(parts("wide"), [KeyPart::SourcePrefix { ipv4: 24, ipv6: 64 }]);
    assert_eq!(parts("wide6"), [KeyPart::SourcePrefix { ipv4: 32, ipv6: 48 }]);
    let both = [KeyPart::SourcePrefix { ipv4: 16, ipv6: 32 }, KeyPart::Interface];
    assert_eq!(parts("both"), both);
    let ladder = limit(&valid("ladder"), "ladder");
    let keys: Vec<_> = ladder.layers.iter().map(|layer| layer.key.clone().unwrap().parts).collect();
    assert_eq!(keys[0], [KeyPart::SourcePrefix { ipv4: 32, ipv6: 128 }]);
    assert_eq!(keys[2], [KeyPart::SourcePrefix { ipv4: 24, ipv6: 48 }]);
}

#[test]
fn of_several_rates_each_can_be_the_one_that_refuses() {
    let policy = valid("layer-bursts");
    let bursts = |name: &str| -> Vec<u64> {
        limit(&policy, name).layers.iter().map(|layer| layer.allowance.bucket().burst).collect()
    };
    assert_eq!(bursts("quota"), [100, 5, 2_000, 3]);
    assert_eq!(bursts("bytes")[1], 10_000_000);
    assert_eq!(bursts("alone"), [2]);
    let of_override = limit(&policy, "quota").overrides[0].layers.clone().unwrap();
    assert_eq!(of_override[0].bucket().burst, 6_000);
    assert_eq!(of_override[1].bucket().burst, 64);
}

#[test]
fn matches_are_numbers() {
    let policy = valid("matches");
    let ping = limit(&policy, "ping").matching;
    assert_eq!(ping.icmp_types, [8, 128, 17]);
    assert_eq!(ping.length, Some(64..=1500));
    let resets = limit(&policy, "resets").matching;
    assert_eq!(resets.tcp_flags, Some(TcpFlags { set: 0x04, clear: 0x10 }));
    assert_eq!(resets.ports, [22..=22, 8000..=8010, 443..=443]);
    assert_eq!(limit(&policy, "gre").matching.protocols, [47, 115]);
    assert_eq!(limit(&policy, "gre").matching.fragments, Some(false));
}

#[test]
fn packets_count_without_proof_where_the_penalty_says_so() {
    let policy = valid("penalty-unproven");
    let unproven = |name| limit(&policy, name).penalty.unwrap().unproven;
    assert_eq!([unproven("dns"), unproven("ssh")], [Unproven::Block, Unproven::Ignore]);
}

#[test]
fn lists_hold_until_their_time() {
    let policy = valid("lists");
    assert_eq!(policy.allow[1].until, Some(1_801_418_400));
    assert_eq!(policy.deny[2].until, Some(1_801_418_400));
    assert_eq!(policy.penalties.len(), 1);
    // An `allow` that ends does not hide a `deny`.
    let text = b"version: 1\nallow: [{src: 192.0.2.0/24, until: 5}]\ndeny: [192.0.2.7]\n";
    assert!(parse("f", text, &mut |_| unreachable!()).is_ok());
}

#[test]
fn the_difference_is_in_the_words_of_the_document() {
    let old = valid("example");
    let mut new = old.clone();
    new.mode = GlobalMode::Monitor;
    let cdn = (0..1_204_u32).map(|at| {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + at);
        ipnet::IpNet::from(std::net::IpAddr::from(address))
    });
    new.sets.insert("cdn".into(), cdn.collect());
    new.tenants.remove("globex");
    new.limits.swap(0, 1);
    new.limits.pop();
    new.limits[0].layers[0].allowance =
        Allowance::Gcra { rate: Rate::per_second(9_000), tolerance: 0 };
    new.limits[0].overrides.remove(0);
    new.deny.push(limiter_userspace::policy::model::Listed {
        whom: Whom::Prefix("192.0.2.0/24".parse().unwrap()),
        until: Some(1_801_418_400),
    });
    let lines: Vec<_> = diff(&old, &new).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "~ mode: enforce -> monitor",
            "~ sets.cdn: +1,204 -3 prefixes",
            "- tenants.globex: 1 prefix",
            "+ deny: {src: 192.0.2.0/24, until: \"2027-01-31T18:00:00Z\"}",
            "- limits.tenant-total",
            "~ limits.web-per-source.rate: 10 kpps -> 9 kpps",
            "~ limits.web-per-source.tolerance: 199900us -> 1",
            "- limits.web-per-source.overrides.198.51.100.7/32: rate: 50 kpps, tolerance: 99980us",
            "~ limits: the order is now web-per-source, syn-per-source, dns-bytes",
        ]
    );
}
