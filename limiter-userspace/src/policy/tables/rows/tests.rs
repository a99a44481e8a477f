use limiter_common::algorithm::{meter::Meter, rate::Rate};

use super::{
    super::{
        Context, compile,
        tests::{bucket, compiled, prefix},
    },
    *,
};
use crate::policy::{
    Builtin,
    model::{Layer, Limit, Listed, Mode, Penalty, Whom},
};

/// That is so where all of these only refuse.
#[test]
fn limits_of_the_source_are_asked_before_those_of_its_connections() {
    type Change = fn(&mut Limit);
    let order = |name: &str, change: Change| {
        let mut policy = Policy::default();
        for limit in Builtin::LISTED {
            policy.set_default(limit, bucket(1)).unwrap();
        }
        let pair = [KeyPart::Source, KeyPart::DestinationPort];
        policy
            .limits
            .push(Limit { layers: policy.limits[0].layers.clone(), ..Limit::new("pair", &pair) });
        change(policy.limits.iter_mut().find(|limit| limit.name == name).unwrap());
        let rows = Rows::new(&policy).unwrap();
        let names: Vec<_> = rows.iter().map(|row| row.limit.name.clone()).collect();
        names.join(" ")
    };
    assert_eq!(order("source", |_| {}), "syn source connection pair");
    let changes: [Change; 3] = [
        |it| it.mode = Mode::Monitor,
        |it| it.penalty = Some(Penalty::new(1, 1)),
        |it| it.candidate = Some(bucket(1).into()),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let names = ["connection", "pair", "syn", "source"];
        for changed in names {
            let twice = |name: &str| match (at, name == changed) {
                (2, true) => format!("{name} {name}"),
                _ => name.to_owned(),
            };
            assert_eq!(order(changed, change), names.map(twice).join(" "));
        }
    }
}

#[test]
fn what_is_narrow_is_asked_before_what_is_wide() {
    let mut policy = Policy::default();
    let keys = [
        vec![],
        vec![KeyPart::Destination],
        vec![KeyPart::Source],
        vec![KeyPart::SourcePrefix { ipv4: 24, ipv6: 64 }],
        vec![KeyPart::Connection],
        vec![KeyPart::Source, KeyPart::Destination],
        vec![KeyPart::Interface],
        vec![KeyPart::SourcePrefix { ipv4: 16, ipv6: 48 }],
    ];
    for (number, parts) in keys.into_iter().enumerate() {
        let mut limit = Builtin::Source.limit();
        limit.name = format!("limit{number}");
        limit.key = Key { parts };
        limit.layers = vec![Layer { allowance: bucket(1 + number as u64).into(), key: None }];
        policy.limits.push(limit);
    }
    let tables = compiled(&policy);
    let meters = tables.rows.iter().map(|row| tables.meters[row.meter as usize]);
    let meter = |packets: u64| Meter::bucket(Rate::per_second(packets).bucket(packets, 1).unwrap());
    let order = [2, 4, 5, 3, 7, 1, 6, 0].map(|number| meter(1 + number));
    assert_eq!(meters.collect::<Vec<_>>(), order);
    let bits: Vec<_> = tables.rows.iter().map(|row| row.bit).collect();
    assert_eq!(bits, [1, 2, 4, 8, 16, 32, 64, 128]);
    assert_eq!(
        tables.settings.inline,
        [1, 0, 0, 0, 0, 0, 0, 0],
        "only the source itself is at hand"
    );
    assert_eq!(tables.settings.keyed, 0xff & !1);
    let columns: Vec<_> = tables.rows.iter().map(|row| row.override_column as usize).collect();
    assert_eq!(columns[0], 0);
    assert!(
        columns.iter().filter(|override_column| **override_column == COLUMNS).count() == 7,
        "{columns:?}"
    );
}

#[test]
fn an_unchecked_policy_is_checked() {
    let mut limited = Policy::default();
    limited.set_default(Builtin::Syn, bucket(1)).unwrap();
    let with = |change: &dyn Fn(&mut Policy)| {
        let mut policy = limited.clone();
        change(&mut policy);
        compile(&policy, &Assignment::default(), &Context::default()).unwrap_err().to_string()
    };
    let whom = |text: &str| OverrideWhom::Prefix(prefix(text));
    let an_override = |text: &str, layers| Override { whom: whom(text), layers };
    let one = Some(vec![bucket(1).into()]);
    let nothing = Allowance::TokenBucket { rate: Rate::per_second(1), burst: 0 };
    for (error, expected) in [
        (
            with(&|policy| {
                policy.limits[0].overrides = vec![an_override("10.0.0.1/8", one.clone())];
            }),
            "prefix \"10.0.0.1/8\" has host bits set",
        ),
        (
            with(&|policy| {
                policy.limits[0].overrides = vec![an_override("2001:db8::/65", one.clone())];
            }),
            "sources are counted per /64, and 2001:db8::/65 is narrower",
        ),
        (
            with(&|policy| {
                policy.limits[0].overrides = vec![an_override("10.0.0.0/8", Some(vec![]))];
            }),
            "the override of limit syn for 10.0.0.0/8 does not fit its layers",
        ),
        (
            with(&|policy| {
                policy.limits[0].layers[0].allowance = nothing;
            }),
            "a burst of 0 admits nothing",
        ),
        (
            with(&|policy| {
                policy.key_prefix.ipv6 = 129;
            }),
            "sources of IPv6 cannot be counted per /129: addresses have 128 bits",
        ),
        (
            with(&|policy| {
                let whom = Whom::Set("bots\u{1b}".to_owned());
                policy.deny = vec![Listed { whom, until: None }];
            }),
            "set \"bots\\u{1b}\" is used, but not defined",
        ),
        (
            with(&|policy| {
                policy.limits = vec![policy.limits[0].clone(); 65];
            }),
            "the policy needs 65 limits, with each layer and candidate as one; 64 are the most",
        ),
    ] {
        assert_eq!(error, expected);
    }
}
