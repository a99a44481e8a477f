use limiter_common::{
    abi::policy::flag,
    algorithm::rate::{Rate, SECOND},
    policy::matching::match_field,
};

use super::{
    super::{
        super::{
            Bucket, Builtin,
            model::{Costs, Count, KeyPart, Layer, Limit, Listed, Penalty, Unproven, Whom},
        },
        Assignment, compile,
        tests::{bucket, compiled, looked_up, prefix},
    },
    *,
};

#[test]
fn lists_hold_until_their_time_and_within_each_other() {
    const SECOND: u64 = 1_000_000_000;
    let context = Context { unix: 1_000, monotonic: 50 * SECOND, ..Context::default() };
    let listed = |text: &str, until| Listed { whom: Whom::Prefix(prefix(text)), until };
    let set = Listed { whom: Whom::Set("cdn".to_owned()), until: None };
    let policy = Policy {
        sets: [("cdn".to_owned(), vec![prefix("192.0.2.0/24"), prefix("2001:db8::/32")])].into(),
        allow: vec![set],
        deny: vec![listed("10.0.0.0/8", Some(1_010)), listed("10.1.0.0/16", Some(1_005))],
        penalties: vec![listed("10.1.2.0/24", Some(2_000)), listed("203.0.113.0/24", Some(1_000))],
        ..Policy::default()
    };
    let (tables, _) = compile(&policy, &Assignment::default(), &context).unwrap();
    assert_eq!(tables.settings.flags, flag::PREFIXES | flag::LIMITS);
    let times = |address: &str| {
        let Profile { allowed, denied, blocked, listed, .. } =
            *looked_up(&tables, address.parse().unwrap());
        assert_eq!(listed != 0, allowed | denied | blocked != 0, "{address}");
        [allowed, denied, blocked]
    };
    assert_eq!(times("192.0.2.200"), [u64::MAX, 0, 0]);
    assert_eq!(times("2001:db8:7::1"), [u64::MAX, 0, 0]);
    assert_eq!(times("10.200.0.1"), [0, 60 * SECOND, 0]);
    assert_eq!(times("10.1.200.1"), [0, 60 * SECOND, 0], "the longer time around it holds");
    assert_eq!(times("10.1.2.3"), [0, 60 * SECOND, 1_050 * SECOND]);
    assert_eq!(times("203.0.113.7"), [0, 0, 0], "its time has come");
    assert_eq!(times("198.51.100.1"), [0, 0, 0]);
}

/// The untracked allowance is that of the tightest limit; 0 where a limit needs more of a source than its
/// charges.
#[test]
fn profiles_have_the_untracked_allowance_of_their_tightest_limit() {
    let bucket = |burst| Bucket::new(Rate::per_second(100_000), burst).unwrap();
    let allowance = |policy: &Policy, address: &str| {
        let (tables, _) = compile(policy, &Assignment::default(), &Context::default()).unwrap();
        looked_up(&tables, address.parse().unwrap()).untracked
    };
    let mut policy = Policy::default();
    assert_eq!(allowance(&policy, "192.0.2.1"), 0, "nothing is owed");
    policy.set_default(Builtin::Source, bucket(120_000)).unwrap();
    policy.set_override(Builtin::Source, prefix("192.0.2.0/24"), bucket(60_000)).unwrap();
    policy.set_override(Builtin::Source, prefix("198.51.100.0/24"), bucket(1_000)).unwrap();
    let of_all = |policy: &Policy| {
        ["203.0.113.1", "192.0.2.1", "198.51.100.1"].map(|address| allowance(policy, address))
    };
    assert_eq!(of_all(&policy), [33, 20, 0]);
    policy.set_default(Builtin::Syn, bucket(18_000)).unwrap();
    assert_eq!(of_all(&policy), [6, 6, 0]);
    // A keyed limit matches some packets, and is evaluated for those.
    policy.set_default(Builtin::Connection, bucket(1)).unwrap();
    assert_eq!(of_all(&policy), [6, 6, 0]);
    let source = |policy: &mut Policy, change: fn(&mut Limit)| {
        policy.limits.iter_mut().filter(|it| it.name == "source").for_each(change);
    };
    let mut other = policy.clone();
    source(&mut other, |limit| limit.count = Count::Connections);
    assert_eq!(of_all(&other), [0; 3]);
    let mut precise = policy.clone();
    source(&mut precise, |limit| limit.precise = true);
    assert_eq!(of_all(&precise), [0; 3]);
    let mut weighted = policy.clone();
    source(&mut weighted, |limit| {
        limit.count = Count::Weighted(Costs { default: 2, by_kind: BTreeMap::new() });
    });
    assert_eq!(of_all(&weighted), [0; 3]);
    source(&mut policy, |limit| {
        let (after, block) = (1, 1_000_000_000);
        limit.penalty = Some(Penalty { unproven: Unproven::Block, ..Penalty::new(after, block) });
    });
    assert_eq!(of_all(&policy), [0; 3]);
}

/// Leases come from limits that charge 1 for each packet at jiffy time; the lease is that of the limit with
/// least to spare.
#[test]
fn packets_are_leased_from_limits_that_have_some_to_spare() {
    let bucket = |burst| Bucket::new(Rate::per_second(1_000), burst).unwrap();
    let lease = |policy: &Policy, address: &str| {
        let context = Context { tick: 4_000_000, cpus: 4, ..Context::default() };
        let (tables, _) = compile(policy, &Assignment::default(), &context).unwrap();
        let Profile { lease, leased_of, .. } = *looked_up(&tables, address.parse().unwrap());
        (lease, leased_of.count_ones())
    };
    let mut policy = Policy::default();
    assert_eq!(lease(&policy, "192.0.2.1"), (16, 0), "there is no limit");
    policy.set_default(Builtin::Source, bucket(120_000)).unwrap();
    policy.set_override(Builtin::Source, prefix("192.0.2.0/24"), bucket(640)).unwrap();
    policy.set_override(Builtin::Source, prefix("198.51.100.0/24"), bucket(40)).unwrap();
    let of_all = |policy: &Policy| {
        ["203.0.113.1", "192.0.2.1", "198.51.100.1"].map(|address| lease(policy, address))
    };
    // From a small burst nothing is leased, but packets that no limit is about are.
    let one = [(16, 1), (10, 1), (16, 0)];
    assert_eq!(of_all(&policy), one);
    // A limit that is charged by the clock.
    policy.set_default(Builtin::Syn, bucket(31)).unwrap();
    assert_eq!(of_all(&policy), one);
    let with = |change: &dyn Fn(&mut Limit)| {
        let layers = vec![Layer { allowance: bucket(60_000).into(), key: None }];
        let mut limit = Limit { layers, ..Limit::new("other", &[KeyPart::Source]) };
        change(&mut limit);
        let mut policy = policy.clone();
        policy.limits.push(limit);
        of_all(&policy)
    };
    let two = [(16, 2), (10, 2), (16, 1)];
    assert_eq!(with(&|_| {}), two);
    assert_eq!(with(&|limit| limit.matching.protocols = vec![17]), two, "some packets");
    assert_eq!(with(&|limit| limit.key.parts = vec![KeyPart::Destination]), two, "another key");
    assert_eq!(with(&|limit| limit.key.parts = vec![KeyPart::Connection]), two, "a connection");
    let within = |ipv4, ipv6| vec![KeyPart::SourcePrefix { ipv4, ipv6 }];
    assert_eq!(with(&|limit| limit.key.parts = within(24, 48)), two, "a network of the source");
    assert_eq!(with(&|limit| limit.key.parts = vec![]), two, "that of all");
    assert_eq!(with(&|limit| limit.key.parts = within(24, 128)), two, "more than the source");
    assert_eq!(with(&|limit| limit.key.parts = vec![KeyPart::Interface]), one, "by where it comes");
    assert_eq!(with(&|limit| limit.count = Count::Bytes), one);
    assert_eq!(with(&|limit| limit.count = Count::Connections), one);
    let costs = Costs { default: 2, by_kind: BTreeMap::new() };
    assert_eq!(with(&|limit| limit.count = Count::Weighted(costs.clone())), one);
    let penalty = Penalty { unproven: Unproven::Block, ..Penalty::new(1, SECOND) };
    assert_eq!(with(&|limit| limit.penalty = Some(penalty)), [(0, 0); 3], "they may be blocked");
    // It matches some sources.
    let near = |limit: &mut Limit| {
        limit.matching.sources = vec![Whom::Prefix(prefix("203.0.113.0/24"))];
    };
    assert_eq!(with(&near), [(16, 2), (10, 1), (16, 0)]);
}

/// Packets of most sources take their profile from the settings.
#[test]
fn the_first_profile_is_in_the_settings_too() {
    let mut policy = Policy::default();
    let large = |rate| Bucket::new(Rate::per_second(rate), 100_000).unwrap();
    policy.set_default(Builtin::Source, large(1_000_000)).unwrap();
    policy.set_default(Builtin::Syn, large(100_000)).unwrap();
    policy.set_override(Builtin::Source, prefix("10.0.0.0/8"), bucket(9)).unwrap();
    let tables = compiled(&policy);
    let first = tables.settings.default_profile;
    assert_eq!((first, tables.profiles.len()), (tables.profiles[0], 3));
    assert!(first.untracked != 0 && first.leased_of == 0, "{first:?}");
}

/// Of a plain packet, neither whether it opens a connection nor its destination is read: the fields that
/// limits match on tell if one asks for them.
#[test]
fn what_takes_all_headers_is_asked_for_by_limits_alone() {
    let settings = |change: &dyn Fn(&mut Limit)| {
        let allowance = Bucket::new(Rate::per_second(1_000), 100).unwrap().into();
        let layers = vec![Layer { allowance, key: None }];
        let mut limit = Limit { layers, ..Limit::new("limit", &[KeyPart::Source]) };
        change(&mut limit);
        let policy = Policy { limits: vec![limit], ..Policy::default() };
        compile(&policy, &Assignment::default(), &Context::default()).unwrap().0.settings
    };
    let connections = settings(&|it| it.count = Count::Connections);
    assert!(connections.connections != 0 && connections.match_fields & match_field::FLAGS != 0);
    let destination = Whom::Prefix(prefix("10.0.0.0/8"));
    let all = settings(&|it| it.matching.destinations = vec![destination.clone()]);
    assert!(all.match_fields & match_field::DESTINATION != 0);
    let except = settings(&|it| it.matching.except_destinations = vec![destination.clone()]);
    assert!(except.match_fields & match_field::DESTINATION != 0);
    assert_eq!(settings(&|_| {}).match_fields, 0);
}
