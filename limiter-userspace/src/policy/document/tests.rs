use proptest::prelude::*;

use super::*;
use crate::policy::error::PolicyErrorKind;

fn cause(document: &str) -> String {
    let error = Policy::from_document(document.as_bytes()).unwrap_err();
    assert_eq!(error.kind(), PolicyErrorKind::Invalid);
    assert!(error.remedy().is_some());
    let PolicyError::Document { cause } = error else { panic!("{error:?}") };
    cause
}

fn example() -> Policy {
    let mut policy = Policy::default();
    policy.set_key_prefix(KeyPrefix { ipv4: 30, ipv6: 56 }).unwrap();
    let odd = Bucket { rate: Rate { packets: 7, period: 13_000_000_007 }, burst: 3 };
    policy.set_default(Limit::Source, odd).unwrap();
    for src in ["203.0.113.0/24", "2001:db8::/48", "0.0.0.0/0"] {
        let bucket = Bucket { rate: Rate::per_second(50), burst: 50 };
        policy.set_override(Limit::Syn, src.parse().unwrap(), bucket).unwrap();
    }
    policy
}

#[test]
fn a_policy_survives_being_stored() {
    for policy in [Policy::default(), example()] {
        let document = policy.to_document().unwrap();
        assert_eq!(Policy::from_document(&document), Ok(policy));
    }
}

#[test]
fn the_form_is_fixed() {
    let document = String::from_utf8(example().to_document().unwrap()).unwrap();
    assert_eq!(
        document,
        concat!(
            r#"{"version":1,"key_prefix":{"ipv4":30,"ipv6":56},"limits":[{"name":"connection"},"#,
            r#"{"name":"syn","overrides":["#,
            r#"{"src":"0.0.0.0/0","bucket":{"packets":50,"period_ns":1000000000,"burst":50}},"#,
            r#"{"src":"203.0.113.0/24","bucket":{"packets":50,"period_ns":1000000000,"burst":50}},"#,
            r#"{"src":"2001:db8::/48","bucket":{"packets":50,"period_ns":1000000000,"burst":50}}]},"#,
            r#"{"name":"source","default":{"packets":7,"period_ns":13000000007,"burst":3}}]}"#,
        )
    );
}

#[test]
fn another_document_is_refused() {
    let with = |limits: &str| {
        format!(r#"{{"version":1,"key_prefix":{{"ipv4":32,"ipv6":64}},"limits":[{limits}]}}"#)
    };
    let bucket = r#"{"packets":1,"period_ns":1000000000,"burst":1}"#;
    assert!(Policy::from_document(with("").as_bytes()).is_ok());

    let table = [
        (String::new(), "EOF while parsing a value at line 1 column 0"),
        ("[]".to_owned(), "invalid length 0, expected struct Header with 1 element"),
        ("{}".to_owned(), "missing field `version` at line 1 column 2"),
        (
            r#"{"version":7,"new":1}"#.to_owned(),
            "it is of version 7, and this limiter reads version 1",
        ),
        (with("") + "x", "trailing characters at line 1 column 61"),
        (
            with("").replace("64", "129"),
            "sources of IPv6 cannot be counted per /129: addresses have 128 bits",
        ),
        (with("").replace("64", "-1"), "invalid value: integer `-1`, expected u8"),
        (with(r#"{"name":"sorce"}"#), "there is no limit \"sorce\""),
        (with(r#"{"name":"syn"},{"name":"syn"}"#), "limit syn is there twice"),
        (
            with(&format!(
                r#"{{"name":"syn","overrides":[{{"src":"10.0.0.0/8","bucket":{bucket}}},
                {{"src":"10.0.0.0/8","bucket":{bucket}}}]}}"#
            )),
            "the override for 10.0.0.0/8 of limit syn is there twice",
        ),
        (
            with(&format!(
                r#"{{"name":"syn","overrides":[{{"src":"10.0.0.1/8","bucket":{bucket}}}]}}"#
            )),
            "prefix \"10.0.0.1/8\" has host bits set",
        ),
        (
            with(&format!(
                r#"{{"name":"syn","overrides":[{{"src":"2001:db8::/65","bucket":{bucket}}}]}}"#
            )),
            "sources are counted per /64, and 2001:db8::/65 is narrower",
        ),
        (
            with(r#"{"name":"syn","default":{"packets":1,"period_ns":1000000000,"burst":0}}"#),
            "a burst of 0 packets admits nothing",
        ),
        (
            with(r#"{"name":"syn","default":{"packets":2,"period_ns":1,"burst":1}}"#),
            "a rate of 2 packets in 1 ns is not between one packet in 366 days and 1000000000 \
             packets per second",
        ),
        (
            with("{\"name\":\"syn\",\"\\u001b[2J\":1}"),
            "unknown field `\\u{1b}[2J`, expected one of `name`, `default`, `overrides`",
        ),
    ];
    for (document, expected) in table {
        let cause = cause(&document);
        assert!(cause.starts_with(expected), "{document}: {cause}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
        prop_assert!(Policy::from_document(&bytes).is_err());
    }

    #[test]
    fn no_damage_panics_or_gets_past_the_check(at in 0..1000_usize, byte in any::<u8>(), cut in 0..1000_usize) {
        let mut document = example().to_document().unwrap();
        let at = at % document.len();
        document[at] = byte;
        if let Ok(policy) = Policy::from_document(&document) {
            prop_assert_eq!(policy.check(), Ok(()));
        }
        document.truncate(cut % document.len());
        prop_assert!(Policy::from_document(&document).is_err());
    }
}
