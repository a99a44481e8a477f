use super::*;
use crate::policy::{
    error::PolicyErrorKind,
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

#[test]
fn edits_are_kept() {
    let mut policy = Policy::default();
    let (slow, fast) = (bucket("50pps", 50), bucket("1kpps", 2_000));
    policy.set_default(Limit::Source, fast).unwrap();
    policy.set_override(Limit::Source, prefix("203.0.113.0/24"), slow).unwrap();
    assert_eq!(policy.limit(Limit::Source).default, Some(fast));
    assert_eq!(policy.limit(Limit::Source).overrides.get(&prefix("203.0.113.0/24")), Some(&slow));
    assert_eq!(policy.limit(Limit::Syn), &LimitPolicy::default());
    assert_eq!(policy.del_override(Limit::Source, prefix("203.0.113.0/24")), Ok(slow));
    assert_eq!(policy.del_default(Limit::Source), Ok(fast));
    assert_eq!(policy, Policy::default());
}

#[test]
fn what_is_not_there_cannot_be_removed() {
    let mut policy = Policy::default();
    refused(
        policy.del_default(Limit::Syn),
        PolicyErrorKind::NotFound,
        "limit syn is not set",
        "set it with: limiter limit set syn --rate RATE",
    );
    refused(
        policy.del_override(Limit::Syn, prefix("203.0.113.0/24")),
        PolicyErrorKind::NotFound,
        "limit syn has no override for 203.0.113.0/24",
        "it has no overrides at all",
    );
    for text in ["203.0.113.0/25", "2001:db8::/48"] {
        policy.set_override(Limit::Syn, prefix(text), bucket("1", 1)).unwrap();
    }
    refused(
        policy.del_override(Limit::Syn, prefix("203.0.113.0/24")),
        PolicyErrorKind::NotFound,
        "limit syn has no override for 203.0.113.0/24",
        "its overrides are 203.0.113.0/25, 2001:db8::/48",
    );
    refused(
        policy.del_default(Limit::Syn),
        PolicyErrorKind::NotFound,
        "limit syn is not set",
        "it has overrides only (2); remove them by: limiter limit del syn --src PREFIX",
    );
    for third in 0..200 {
        let prefix = prefix(&format!("198.51.{third}.0/24"));
        policy.set_override(Limit::Syn, prefix, bucket("1", 1)).unwrap();
    }
    refused(
        policy.del_override(Limit::Syn, prefix("203.0.113.0/24")),
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
        policy.set_override(Limit::Source, prefix("2001:db8::1"), some),
        PolicyErrorKind::Invalid,
        "sources are counted per /64, and 2001:db8::1/128 is narrower",
        "an override has to be /64 or wider, such as 2001:db8::/64; or attach again with \
         --ipv6-prefix 128",
    );
    policy.set_key_prefix(KeyPrefix { ipv4: 24, ipv6: 128 }).unwrap();
    policy.set_override(Limit::Source, prefix("2001:db8::1"), some).unwrap();
    refused(
        policy.set_override(Limit::Connection, prefix("203.0.113.9"), some),
        PolicyErrorKind::Invalid,
        "sources are counted per /24, and 203.0.113.9/32 is narrower",
        "an override has to be /24 or wider, such as 203.0.113.0/24; or attach again with \
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
        "a rate of 0 packets in 1 ns is not between one packet in 366 days and 1000000000 packets \
         per second",
        "to switch a limit off, use `limiter limit del NAME`",
    );
    refused(
        Bucket::new(Rate::per_second(1), 0),
        PolicyErrorKind::Usage,
        "a burst of 0 packets admits nothing",
        "a burst is at least 1",
    );
    refused(
        Bucket::new(parse_rate("1/day").unwrap(), 10_000),
        PolicyErrorKind::Usage,
        "a burst of 10000 packets is more than can be kept at 1/day",
        "the largest burst at 1/day is 6671 packets",
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
fn a_check_finds_what_edits_would_have_refused() {
    let host_bits: IpNet = "203.0.113.7/24".parse().unwrap();
    let mut policy = Policy::default();
    let error = policy.set_override(Limit::Source, host_bits, bucket("1", 1)).unwrap_err();
    assert_eq!(error.to_string(), "prefix \"203.0.113.7/24\" has host bits set");
    policy.limit_mut(Limit::Source).overrides.insert(host_bits, bucket("1", 1));
    assert_eq!(policy.check(), Err(error));
}
