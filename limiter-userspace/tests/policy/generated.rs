//! Policies of all kinds, written and read back.

use ipnet::IpNet;
use limiter_common::{
    algorithm::{concurrent::Concurrent, rate::Rate},
    packet::control::Protocol,
};
use limiter_userspace::policy::{
    Given,
    document::{diff, parse, to_yaml},
    model::{
        Allowance, Control, ControlBudgets, ControlOverride, Costs, Count, GlobalMode, Key,
        KeyPart, KeyPrefix, Layer, Limit, Listed, Match, Mode, OfRequests, Override, OverrideWhom,
        PacketKind, Penalty, Policy, Service, TcpFlags, Unproven, Whom,
    },
};
use proptest::{collection::vec, option, prelude::*, sample::subsequence};

use crate::requests;

const LONGEST: u64 = 366 * 24 * 3600 * 1_000_000_000;
/// Disjoint prefixes, of which each list takes some of its own.
const SETS: [&str; 4] = ["office", "cdn", "null", "-1"];
pub(crate) const TENANTS: [&str; 3] = ["acme", "123", "true"];

fn prefix(group: u8, index: u8) -> IpNet {
    match index % 2 {
        0 => IpNet::new([10, group, index, 0].into(), 24).unwrap(),
        _ => IpNet::new([0xfd00, group.into(), index.into(), 0, 0, 0, 0, 0].into(), 48).unwrap(),
    }
}

pub(crate) fn prefixes(group: u8) -> impl Strategy<Value = Vec<IpNet>> {
    subsequence((0..8).collect::<Vec<u8>>(), 0..8).prop_map(move |indices| {
        let mut prefixes: Vec<_> = indices.into_iter().map(|index| prefix(group, index)).collect();
        prefixes.sort();
        prefixes
    })
}

fn rate() -> impl Strategy<Value = Rate> {
    let any = (1..=1_000_000_000_u64, 1..=1_000_000_000_000_u64);
    any.prop_map(|(packets, period)| Rate { packets, period })
        .prop_filter("a rate", |rate| is_of_packets(*rate))
}

/// Whether it is one that packets may have; of bytes, higher ones can be written too.
fn is_of_packets(rate: Rate) -> bool {
    const HIGHEST: u128 = 1_000_000_000;
    let [packets, period] = [rate.packets, rate.period].map(u128::from);
    rate.check().is_ok() && packets * 1_000_000_000 <= period * HIGHEST
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![1..=LONGEST, (1..10_000_u64).prop_map(|seconds| seconds * 1_000_000_000)]
}

/// Of an algorithm, by its number; with room for the dearest packet.
fn allowance(algorithm: u8) -> BoxedStrategy<Allowance> {
    let room = 100_000..1_000_000_u64;
    let window = || (room.clone(), 1_000_000..=LONGEST);
    match algorithm {
        0 => {
            (rate(), room).prop_map(|(rate, burst)| Allowance::TokenBucket { rate, burst }).boxed()
        }
        1 => {
            (rate(), room).prop_map(|(rate, depth)| Allowance::LeakyBucket { rate, depth }).boxed()
        }
        2 => (rate(), room)
            .prop_filter_map("a tolerance", |(rate, burst)| {
                let time = u128::from(rate.period) * u128::from(burst) / u128::from(rate.packets);
                let tolerance =
                    u64::try_from(time).ok().filter(|&time| (1..=LONGEST).contains(&time))?;
                Some(Allowance::Gcra { rate, tolerance })
            })
            .boxed(),
        3 => window().prop_map(|(limit, window)| Allowance::FixedWindow { limit, window }).boxed(),
        4 => {
            window().prop_map(|(limit, window)| Allowance::SlidingWindow { limit, window }).boxed()
        }
        5 => (1..=128_u64, 1_000_000..=LONGEST / 2)
            .prop_map(|(limit, window)| Allowance::SlidingLog { limit, window })
            .boxed(),
        _ => (1..=128_u64, Concurrent::SHORTEST..=Concurrent::LONGEST)
            .prop_map(|(limit, idle)| Allowance::Concurrent { limit, idle })
            .boxed(),
    }
}

fn good(allowance: &Allowance) -> bool {
    match *allowance {
        Allowance::TokenBucket { rate, burst: held }
        | Allowance::LeakyBucket { rate, depth: held } => rate.bucket(held, 1).is_ok(),
        Allowance::Gcra { rate, tolerance } => {
            let held = u128::from(tolerance) * u128::from(rate.packets) / u128::from(rate.period);
            held >= 70_000 && u64::try_from(held).is_ok_and(|held| rate.bucket(held + 1, 1).is_ok())
        }
        Allowance::FixedWindow { limit, window }
        | Allowance::SlidingWindow { limit, window }
        | Allowance::SlidingLog { limit, window } => {
            is_of_packets(Rate { packets: limit, period: window })
        }
        Allowance::Concurrent { .. } => true,
    }
}

pub(crate) fn checked(algorithm: u8) -> impl Strategy<Value = Allowance> {
    allowance(algorithm).prop_filter("what can be kept", good)
}

fn count(algorithm: u8) -> BoxedStrategy<Count> {
    let kinds = vec![
        PacketKind::Fragment,
        PacketKind::Syn,
        PacketKind::Icmp,
        PacketKind::Tcp,
        PacketKind::Udp,
    ];
    let costs = (1..=u16::MAX, subsequence(kinds, 0..5), vec(1..=u16::MAX, 5));
    let weighted = costs.prop_map(|(default, kinds, costs)| {
        Count::Weighted(Costs { default, by_kind: kinds.into_iter().zip(costs).collect() })
    });
    let events = prop_oneof![Just(Count::Packets), Just(Count::Connections), Just(Count::Syns)];
    match algorithm {
        6 => Just(Count::Connections).boxed(),
        5 => events.boxed(),
        _ => prop_oneof![events, Just(Count::Bytes), weighted].boxed(),
    }
}

/// A key with a source of /24 and /48 or narrower, so that all overrides fit.
fn source_key() -> impl Strategy<Value = Key> {
    let source = prop_oneof![
        Just(KeyPart::Source),
        (24..=32_u8, 48..=128_u8).prop_map(|(ipv4, ipv6)| KeyPart::SourcePrefix { ipv4, ipv6 }),
    ];
    let others =
        vec![KeyPart::Destination, KeyPart::DestinationPort, KeyPart::Tenant, KeyPart::Interface];
    (source, subsequence(others, 0..4)).prop_map(|(source, mut parts)| {
        parts.push(source);
        Key { parts }
    })
}

pub(crate) fn whoms() -> impl Strategy<Value = Vec<Whom>> {
    let sets = subsequence(SETS.to_vec(), 0..3);
    (sets, prefixes(90)).prop_map(|(sets, prefixes)| {
        let sets = sets.into_iter().map(|name| Whom::Set(name.to_owned()));
        sets.chain(prefixes.into_iter().map(Whom::Prefix)).collect()
    })
}

/// Prefixes around all of the groups from 8 to 15 and from 64 to 95.
pub(crate) fn some() -> [IpNet; 4] {
    let v6 = |group, length| IpNet::new([0xfd00, group, 0, 0, 0, 0, 0, 0].into(), length);
    let v4 = |group, length| IpNet::new([10, group, 0, 0].into(), length);
    [v4(8, 13), v4(64, 11), v6(8, 29), v6(64, 27)].map(Result::unwrap)
}

/// Length of the frame sets apart each limit, so that no two are about the same.
fn matching(index: u16) -> impl Strategy<Value = Match> {
    let protocols = prop_oneof![
        Just((vec![], vec![], None)),
        Just((vec![6, 17], vec![80..=80, 443..=443, 8000..=8010], Some("web".to_owned()))),
        subsequence(vec![6_u8, 17, 132], 1..3).prop_map(|some| (some, vec![1..=9, 53..=53], None)),
        vec(0..=255_u8, 1).prop_map(|some| (some, vec![], None)),
        Just((vec![1, 58], vec![], None)),
    ];
    let flags =
        (1..=255_u8, any::<u8>()).prop_filter_map("flags that can be written", |(set, clear)| {
            let clear = clear & !set;
            (set != 2 || clear.count_ones() > 0).then_some(TcpFlags { set, clear })
        });
    let types = subsequence((0..=255).collect::<Vec<u8>>(), 0..5);
    let interfaces = subsequence(vec!["eth0", "br-\"x\\", "@\u{7e}-", "{a}"], 0..3);
    let lists = (whoms(), whoms(), whoms(), whoms());
    let single = (option::of(any::<bool>()), option::of(flags), types, interfaces);
    (protocols, single, lists).prop_map(
        move |((protocols, ports, service), (fragments, flags, types, interfaces), lists)| {
            let tcp = protocols.is_empty() || protocols.contains(&6);
            // Of a packet with flags, there is no type.
            let icmp = flags.is_none() && (protocols.contains(&1) || protocols.contains(&58));
            // So that there is somebody of all who have overrides, whoever is excepted.
            let some = |mut named: Vec<Whom>| {
                if !named.is_empty() {
                    named.extend(some().map(Whom::Prefix));
                }
                named
            };
            let with_ports = |protocol: &u8| [6, 17, 132].contains(protocol);
            let has_ports = !protocols.is_empty() && protocols.iter().all(with_ports);
            let source_ports = if has_ports && fragments.is_none() {
                vec![53..=53, index..=index]
            } else {
                Vec::new()
            };
            Match {
                source_ports: source_ports.into_iter().take(1 + usize::from(index > 53)).collect(),
                tcp_flags: flags.filter(|_| tcp),
                icmp_types: if icmp { types } else { Vec::new() },
                protocols,
                ports,
                fragments,
                length: Some(64 + index..=1500),
                interfaces: interfaces.into_iter().map(str::to_owned).collect(),
                sources: some(lists.0),
                destinations: some(lists.1),
                except_sources: lists.2,
                except_destinations: lists.3,
                service,
            }
        },
    )
}

/// A penalty that asks for proof.
pub(crate) fn penalty() -> impl Strategy<Value = Penalty> {
    (time(), time(), 1..=10_u32, time()).prop_map(|(after, block, backoff, max)| Penalty {
        backoff,
        max: max.max(block),
        ..Penalty::new(after, block)
    })
}

fn limit(index: u16) -> impl Strategy<Value = Limit> {
    (0..7_u8, 0..4_usize).prop_flat_map(move |(algorithm, layers)| {
        let layer = (checked(algorithm), option::of(source_key()))
            .prop_map(|(allowance, key)| Layer { allowance, key });
        let parts = (matching(index), source_key(), count(algorithm), vec(layer, layers));
        let modes = [Mode::Enforce, Mode::Monitor, Mode::Drop, Mode::Off];
        let modes = proptest::sample::select(modes.to_vec());
        let unproven = prop_oneof![Just(Unproven::Ignore), Just(Unproven::Block)];
        let penalty = (penalty(), unproven).prop_map(|(it, unproven)| Penalty { unproven, ..it });
        let whoms = (subsequence(TENANTS.to_vec(), 0..3), prefixes(91));
        let allowances = vec(option::of(vec(checked(algorithm), layers.max(1))), 16);
        let more = (modes, option::of(penalty), option::of(checked(algorithm)), whoms, allowances);
        let first = checked(algorithm);
        (parts, more, first).prop_map(move |(parts, more, first)| {
            let (matching, key, count, layers) = parts;
            let (mode, penalty, candidate, (tenants, prefixes), allowances) = more;
            // Those that are refused for never refusing anything.
            let own = |layer: &Layer| layer.key.clone().unwrap_or_else(|| key.clone());
            let mut kept: Vec<Layer> = Vec::new();
            for layer in layers {
                let one = |a: &Layer, b: &Layer| a.allowance.never_refuses_beside(b.allowance);
                let beside = |it: &Layer| own(it) == own(&layer);
                if !kept.iter().any(|it| beside(it) && (one(it, &layer) || one(&layer, it))) {
                    kept.push(layer);
                }
            }
            let layers = kept;
            // SYNs and connections are of TCP only.
            let matching = match count {
                Count::Syns | Count::Connections => Match {
                    protocols: Vec::new(),
                    source_ports: Vec::new(),
                    ports: Vec::new(),
                    service: None,
                    tcp_flags: None,
                    icmp_types: Vec::new(),
                    ..matching
                },
                _ => matching,
            };
            let allowances = allowances.into_iter().map(|allowances| {
                let mut allowances = allowances?;
                allowances.truncate(layers.len().max(1));
                let kept: Vec<_> = allowances.iter().zip(&layers).collect();
                let never_refuses = kept.iter().enumerate().any(|(index, (one, layer))| {
                    kept.iter().enumerate().any(|(other, (beside, of))| {
                        other != index
                            && own(layer) == own(of)
                            && one.never_refuses_beside(**beside)
                    })
                });
                (!never_refuses).then_some(allowances)
            });
            let whoms = tenants.into_iter().map(|name| OverrideWhom::Tenant(name.to_owned()));
            let whoms = whoms.chain(prefixes.into_iter().map(OverrideWhom::Prefix));
            let overrides = whoms.zip(allowances);
            let mut overrides: Vec<_> =
                overrides.map(|(whom, layers)| Override { whom, layers }).collect();
            if layers.is_empty() && overrides.iter().all(|one| one.layers.is_none()) {
                let whom = OverrideWhom::Prefix(prefix(92, 0));
                overrides.push(Override { whom, layers: Some(vec![first]) });
            }
            let name = format!("limit_{index}-");
            let given = Given::default();
            let shared = (index % 3 == 1).then_some(1 + layers.len() as u32 * 100);
            let precise = index % 2 == 1;
            let is_of_source =
                matches!(key.parts[..], [KeyPart::Source | KeyPart::SourcePrefix { .. }]);
            let all = [OfRequests::Off, OfRequests::Advise, OfRequests::Enforce];
            let requests = if is_of_source { all[usize::from(index) % 3] } else { all[0] };
            Limit {
                name,
                matching,
                key,
                count,
                mode,
                layers,
                candidate,
                penalty,
                overrides,
                shared,
                precise,
                requests,
                given,
            }
        })
    })
}

fn listed(group: u8) -> impl Strategy<Value = Vec<Listed>> {
    (prefixes(group), vec(option::of(any::<u64>()), 8)).prop_map(|(prefixes, times)| {
        let entries = prefixes.into_iter().map(Whom::Prefix).zip(times);
        entries.map(|(whom, until)| Listed { whom, until }).collect()
    })
}

/// Entries of `allow` and `deny` around those that others have, which they so may shadow.
fn around() -> impl Strategy<Value = [Vec<Listed>; 2]> {
    let wide = |group: u8| -> [IpNet; 2] {
        let v6 = [0xfd00, group.into(), 0, 0, 0, 0, 0, 0];
        [IpNet::new([10, group, 0, 0].into(), 16), IpNet::new(v6.into(), 32)].map(Result::unwrap)
    };
    // The set `cdn`, tenants, what is denied or blocked, and what has overrides.
    let entries = move |groups: Vec<u8>| {
        let prefixes: Vec<_> = groups.into_iter().flat_map(wide).collect();
        let times = vec(option::weighted(0.2, any::<u64>()), prefixes.len());
        subsequence(prefixes.clone(), 0..=prefixes.len()).prop_flat_map(move |some| {
            times.clone().prop_map(move |times| {
                let entries = some.iter().copied().map(Whom::Prefix).zip(times);
                entries.map(|(whom, until)| Listed { whom, until }).collect::<Vec<_>>()
            })
        })
    };
    (entries(vec![2, 11, 22, 91]), entries(vec![12, 23, 91])).prop_map(Into::into)
}

fn budgets() -> impl Strategy<Value = ControlBudgets> {
    let all = Protocol::ALL.into_iter().fold(0, |bits, protocol| bits | protocol.bit());
    let ospf = Protocol::Ospf.bit() | Protocol::OspfFar.bit();
    let ordinary = prop_oneof![Just(0), Just(all), Just(ospf), Just(Protocol::Ndp.bit() | ospf)];
    let bucket = || checked(0);
    (bucket(), bucket(), bucket(), ordinary).prop_map(|(budget, per_source, far, ordinary)| {
        ControlBudgets { budget, per_source, far, ordinary }
    })
}

fn control() -> impl Strategy<Value = Control> {
    let base = prop_oneof![Just(ControlBudgets::default()), budgets()];
    let names = subsequence(vec!["eth0", "eth0.100", "Wan", "true"], 0..4);
    (base, names, vec(budgets(), 4)).prop_map(|(base, names, own)| {
        let overrides = names
            .into_iter()
            .zip(own)
            .map(|(name, budgets)| ControlOverride { interfaces: vec![name.to_owned()], budgets });
        Control { budgets: base, overrides: overrides.collect() }
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let sets = (prefixes(1), prefixes(2), prefixes(3), prefixes(4));
    let tenants = (prefixes(11), prefixes(12), prefixes(13));
    let head = (any::<bool>(), 24..=32_u8, 48..=128_u8);
    let lists = (listed(21), listed(22), listed(23), around());
    let limits = (0..4_u16).prop_flat_map(|number| (0..number).map(limit).collect::<Vec<_>>());
    let on_requests =
        (0..3_u16).prop_flat_map(|number| (0..number).map(requests::limit).collect::<Vec<_>>());
    let limits = (limits, requests::attributes(), on_requests);
    let parts = (head, sets, tenants, lists, (control(), option::of(checked(0))), limits);
    parts.prop_map(|(head, sets, tenants, lists, (control, non_ip), limits)| {
        let (limits, attributes, on_requests) = limits;
        let (monitor, ipv4, ipv6) = head;
        let sets = SETS.map(str::to_owned).into_iter().zip([sets.0, sets.1, sets.2, sets.3]);
        let tenants = TENANTS.map(str::to_owned).into_iter().zip([tenants.0, tenants.1, tenants.2]);
        let web = Service { protocols: vec![6, 17], ports: vec![80..=80, 443..=443, 8000..=8010] };
        let (mut allow, mut deny, penalties, [allowed, denied]) = lists;
        allow.insert(0, Listed { whom: Whom::Set("office".to_owned()), until: None });
        deny.insert(0, Listed { whom: Whom::Set("cdn".to_owned()), until: None });
        allow.extend(allowed);
        deny.extend(denied);
        Policy {
            mode: if monitor { GlobalMode::Monitor } else { GlobalMode::Enforce },
            key_prefix: KeyPrefix { ipv4, ipv6 },
            sets: sets.collect(),
            tenants: tenants.collect(),
            services: [("web".to_owned(), web)].into(),
            allow,
            deny,
            penalties,
            control,
            non_ip,
            limits,
            attributes,
            on_requests,
            ..Policy::default()
        }
    })
}

proptest! {
    #![proptest_config(crate::sixteenths(8))]

    #[test]
    fn policies_are_written_and_read_back(policy in policy(), other in policy()) {
        let written = to_yaml(&policy);
        match parse("written", written.as_bytes(), &mut |_| unreachable!()) {
            Ok(read) => prop_assert_eq!(read, policy.clone(), "{}", written),
            Err(faults) => prop_assert!(false, "{faults}\n{written}"),
        }
        let shadowed = policy.shadowed().len();
        prop_assert_eq!(written.matches("shadowed: true").count(), shadowed, "{}", written);
        let bare = written.replace(", shadowed: true", "").replace("\n    shadowed: true", "");
        let refused = parse("bare", bare.as_bytes(), &mut |_| unreachable!());
        prop_assert_eq!(refused.map_or_else(|faults| faults.total(), |_| 0), shadowed, "{}", bare);
        prop_assert_eq!(diff(&policy, &policy), vec![]);
        let changes = diff(&policy, &other);
        prop_assert_eq!(changes.is_empty(), policy == other);
        prop_assert!(changes.iter().all(|change| change.to_string().lines().count() == 1));
        let back = diff(&other, &policy);
        prop_assert_eq!(back.len(), changes.len());
    }
}
