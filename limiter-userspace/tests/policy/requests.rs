//! Attributes and limits on requests of all kinds, for policies that are written and read back.

use std::collections::BTreeMap;

use limiter_userspace::policy::{
    document::{diff, parse},
    model::{
        Allowance, Attribute, AttributeSource, Field, HeaderSet, Idempotency, Missing, Mode,
        OnFailure, OverrideWhom, Pattern, Penalty, Proxied, RequestCost, RequestKey,
        RequestKeyPart, RequestLayer, RequestLimit, RequestMatch, RequestOverride,
    },
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{select, subsequence},
};

use crate::generated::{TENANTS, checked, penalty, prefixes, some, whoms};

const ATTRIBUTES: [&str; 4] = ["user", "null", "-key", "route"];

/// What headers, cookies and paths may have.
fn text() -> impl Strategy<Value = String> {
    "[ -)+-~]{1,12}"
}

fn attribute(name: &str) -> Field {
    Field::Attribute(name.to_owned())
}

pub(crate) fn attributes() -> impl Strategy<Value = BTreeMap<String, Attribute>> {
    let paths =
        (subsequence(vec!["/a", "/b.c", "/d e", "/\""], 0..4), vec(text(), 4), any::<bool>());
    let paths = paths.prop_map(|(paths, values, any)| {
        let exact = paths.into_iter().map(|path| Pattern::Exact(path.to_owned()));
        let last =
            if any { Pattern::Prefix(String::new()) } else { Pattern::Prefix("/z".to_owned()) };
        exact.chain([last]).zip(values).collect()
    });
    let names = ["[a-z-]{1,20}", "[A-Za-z_!#$]{1,20}"];
    (names, any::<bool>(), paths).prop_map(|([header, cookie], digest, paths)| {
        let sources = [
            AttributeSource::Header(header.clone()),
            AttributeSource::Cookie(cookie),
            AttributeSource::Header(header),
            AttributeSource::Path(paths),
        ];
        let all = ATTRIBUTES.into_iter().zip(sources);
        all.map(|(name, from)| {
            (name.to_owned(), Attribute { from, digest: digest && name == "-key" })
        })
        .collect()
    })
}

/// With the source and the user, so that every override can be told apart.
fn key() -> impl Strategy<Value = RequestKey> {
    let source = prop_oneof![
        Just(RequestKeyPart::Source),
        (24..=32_u8, 48..=128_u8)
            .prop_map(|(ipv4, ipv6)| RequestKeyPart::SourcePrefix { ipv4, ipv6 }),
    ];
    let others = [Field::Method, Field::Host, Field::Path, attribute("-key"), attribute("null")];
    let mut others: Vec<_> = others.into_iter().map(RequestKeyPart::Field).collect();
    others.push(RequestKeyPart::Tenant);
    (source, subsequence(others, 0..4)).prop_map(|(source, mut parts)| {
        parts.insert(0, RequestKeyPart::Field(attribute("user")));
        parts.push(source);
        RequestKey { parts }
    })
}

/// The path sets apart each limit.
fn matching(index: u16) -> impl Strategy<Value = RequestMatch> {
    let methods = subsequence(vec!["GET", "POST", "QUERY"], 0..3);
    let hosts = subsequence(vec!["example.com", "[2001:db8::1]"], 0..2);
    let values = (text(), text(), any::<bool>());
    (methods, hosts, values, whoms(), whoms()).prop_map(
        move |(methods, hosts, (one, other, is_prefix), mut sources, except_sources)| {
            let exact = |text: &str| Pattern::Exact(text.to_owned());
            let mut fields = BTreeMap::new();
            fields.insert(Field::Path, vec![exact(&format!("/{index}")), exact("/both")]);
            for (field, texts) in [(Field::Method, methods), (Field::Host, hosts)] {
                if !texts.is_empty() {
                    fields.insert(field, texts.into_iter().map(exact).collect());
                }
            }
            let pattern = if is_prefix { Pattern::Prefix(one) } else { Pattern::Exact(one) };
            fields.insert(attribute("null"), vec![pattern]);
            fields.insert(Field::Domain, vec![exact(&other)]);
            if !sources.is_empty() {
                sources.extend(some().map(limiter_userspace::policy::model::Whom::Prefix));
            }
            RequestMatch { fields, sources, except_sources }
        },
    )
}

fn cost() -> impl Strategy<Value = RequestCost> {
    let values = proptest::collection::btree_map(text(), 1..=u16::MAX, 1..4);
    prop_oneof![
        Just(RequestCost::default()),
        (1..=u16::MAX).prop_map(|default| RequestCost { default, ..RequestCost::default() }),
        (1..=u16::MAX, values).prop_map(|(default, values)| {
            RequestCost { default, by: Some(attribute("user")), values }
        }),
    ]
}

fn headers() -> impl Strategy<Value = HeaderSet> {
    any::<[bool; 3]>().prop_map(|[ietf, x_ratelimit, retry_after]| HeaderSet {
        ietf,
        x_ratelimit,
        retry_after,
    })
}

/// Each for a user of its own.
fn overrides(algorithm: u8, layers: usize) -> impl Strategy<Value = Vec<RequestOverride>> {
    let whoms = (subsequence(TENANTS.to_vec(), 0..3), prefixes(91));
    let allowances = vec(option::of(checked(algorithm)), 16);
    (whoms, allowances, any::<bool>()).prop_map(move |((tenants, prefixes), allowances, any)| {
        let tenants = tenants.into_iter().map(|name| OverrideWhom::Tenant(name.to_owned()));
        let whoms = tenants.chain(prefixes.into_iter().map(OverrideWhom::Prefix)).map(Some);
        let whoms = whoms.chain(any.then_some(None));
        let overrides = whoms.zip(allowances).enumerate();
        let overrides = overrides.map(|(place, (whom, allowance))| RequestOverride {
            whom,
            fields: [(attribute("user"), Pattern::Exact(format!("user {place}")))].into(),
            layers: allowance.filter(|_| layers <= 1).map(|allowance| vec![allowance]),
        });
        overrides.collect()
    })
}

pub(crate) fn limit(index: u16) -> impl Strategy<Value = RequestLimit> {
    (0..7_u8, 0..3_usize).prop_flat_map(move |(algorithm, layers)| {
        let layer = (checked(algorithm), option::of(key()))
            .prop_map(|(allowance, key)| RequestLayer { allowance, key });
        let modes = [Mode::Enforce, Mode::Monitor, Mode::Drop, Mode::Off];
        let words = (
            select(modes.to_vec()),
            select(vec![Missing::Pass, Missing::Refuse]),
            select(vec![OnFailure::Open, OnFailure::Closed]),
            option::of(
                (1_000..=86_400_000_u64).prop_map(|ms| Idempotency { window: ms * 1_000_000 }),
            ),
            option::of(1..100_u8),
            any::<bool>(),
        );
        let parts = (matching(index), key(), cost(), vec(layer, layers));
        let proxied = select(vec![Proxied::Spare, Proxied::Block]);
        let penalty = (penalty(), proxied).prop_map(|(it, proxied)| Penalty { proxied, ..it });
        let more = (
            words,
            headers(),
            (option::of(checked(algorithm)), option::of(penalty)),
            overrides(algorithm, layers),
        );
        (parts, more, checked(algorithm)).prop_map(move |(parts, more, first)| {
            let (matching, key, cost, mut layers) = parts;
            let (
                (mode, missing, on_failure, idempotency, degrade, takes_told),
                headers,
                (candidate, penalty),
                mut overrides,
            ) = more;
            // Those that are refused for never refusing anything.
            if let [one, other] = layers.as_slice()
                && (one.allowance.never_refuses_beside(other.allowance)
                    || other.allowance.never_refuses_beside(one.allowance))
            {
                layers.truncate(1);
            }
            if layers.is_empty() && overrides.iter().all(|one| one.layers.is_none()) {
                overrides.push(RequestOverride {
                    whom: None,
                    fields: [(attribute("user"), Pattern::Prefix("other".to_owned()))].into(),
                    layers: Some(vec![first]),
                });
            }
            RequestLimit {
                name: format!("requests_{index}-"),
                matching,
                key,
                missing,
                // A log counts each request as one, and what is open may be less than a request costs.
                cost: if algorithm >= 5 { RequestCost::default() } else { cost },
                mode,
                layers,
                candidate,
                // Who is not told when to come back is not blocked for coming back.
                penalty: penalty.filter(|_| headers.retry_after),
                overrides,
                headers,
                on_failure,
                idempotency,
                degrade,
                delay: None,
                takes_told,
            }
        })
    })
}

/// The changes from one list of limits to another.
fn changes(old: &str, new: &str) -> Vec<String> {
    let [old, new] = [old, new].map(|limits| {
        let text = format!("version: 1\nattributes: {{user: {{header: x}}}}\nlimits: [{limits}]");
        parse("policy", text.as_bytes(), &mut |_| unreachable!()).unwrap()
    });
    diff(&old, &new).iter().map(ToString::to_string).collect()
}

/// The first override that fits applies, so their order matters. That of limits is the order of answers.
#[test]
fn another_order_is_a_difference() {
    let limit = |overrides: &str| {
        format!("{{name: a, on: requests, key: user, rate: 1/s, overrides: [{overrides}]}}")
    };
    let [one, other] = ["{user: one, rate: 5/s}", "{user: two, unlimited: true}"];
    let [old, new] = [[one, other], [other, one]].map(|overrides| limit(&overrides.join(", ")));
    assert_eq!(
        changes(&old, &new),
        ["~ limits.a.overrides: the order is now user: two, user: one"]
    );
    assert_eq!(changes(&limit(one), &new), ["+ limits.a.overrides.user: two: unlimited: true"]);
    let [web, all] = ["web", "all"].map(|name| {
        let key = if name == "web" { "source" } else { "all" };
        format!("{{name: {name}, on: requests, key: {key}, rate: 1/s}}")
    });
    let [old, new] = [format!("{web}, {all}"), format!("{all}, {web}")];
    assert_eq!(changes(&old, &new), ["~ limits: the order on requests is now all, web"]);
    // Limits on packets beside them have an order of their own.
    let packets = "{name: p, key: source, rate: 1/s}";
    let between = format!("{web}, {packets}, {all}");
    assert_eq!(changes(&format!("{packets}, {old}"), &between), [""; 0]);
}

#[test]
fn a_limit_of_the_other_kind_is_another_limit() {
    let old = "{name: web, key: source, rate: 1/s}";
    let new = "{name: web, on: requests, key: source, rate: 1/s}";
    assert_eq!(
        changes(old, new),
        ["- limits.web", "+ limits.web: on: requests, key: source, rate: 1/s, burst: 1"]
    );
}

#[test]
fn open_requests_are_counted_by_places() {
    let read = |more: &str| {
        let text = format!(
            "version: 1\nlimits:\n- {{name: web, on: requests, key: source, algorithm: concurrent, limit: 3{more}}}\n"
        );
        let policy = parse("policy.yaml", text.as_bytes(), &mut |_| unreachable!("no files"));
        policy.map_err(|fault| fault.to_string())
    };
    let minutes = |minutes: u64| Allowance::Concurrent { limit: 3, idle: minutes * 60_000_000_000 };
    for (more, allowance) in
        [("", minutes(5)), (", idle: 2m", minutes(2)), (", cost: 3, idle: 30d", minutes(43_200))]
    {
        let policy = read(more).unwrap();
        let limit = &policy.on_requests[0];
        assert_eq!(limit.layers[0].allowance, allowance);
        assert!(limit.is_of_open() && limit.has_open());
    }
    for (more, fault) in [
        (", cost: 4", "a request that costs 4 never passes where 3 are admitted"),
        (", idle: 999ms", "`idle` is 1 s at least"),
        (", idle: 31d", "`idle` is at most 30 days"),
        (", rate: 5/s", "`rate` has no meaning with concurrent"),
        (", delay: 1s", "`delay` holds requests back in a queue"),
    ] {
        let told = read(more).unwrap_err();
        assert!(told.contains(fault), "{more}: {told}");
    }
    let candidate = read(", candidate: {limit: 2}").unwrap();
    assert_eq!(candidate.on_requests[0].allowances().count(), 2);
    let mixed = "{name: web, on: requests, key: source, layers: [{rate: 5/s}, {algorithm: concurrent, limit: 3}]}";
    let text = format!("version: 1\nlimits: [{mixed}]\n");
    let policy = parse("policy.yaml", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
    assert!(policy.on_requests[0].has_open() && !policy.on_requests[0].is_of_open());
}

#[test]
fn there_are_256_limits_on_requests_at_most() {
    let read = |limits: usize| {
        let limit = |at| {
            format!(
                "- {{name: l{at}, on: requests, match: {{path: /{at}}}, key: source, rate: 1/s}}\n"
            )
        };
        let text = format!("version: 1\nlimits:\n{}", (0..limits).map(limit).collect::<String>());
        parse("policy.yaml", text.as_bytes(), &mut |_| unreachable!("no files"))
    };
    assert_eq!(read(256).unwrap().on_requests.len(), 256);
    let told = read(257).unwrap_err().to_string();
    let first = "policy.yaml:259:3: error: there are 257 limits on requests, more than 256\n";
    assert!(told.starts_with(first) && told.contains("merge limits of the same key"), "{told}");
}
