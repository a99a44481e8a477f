//! Random policies of every kind, and random packets for them.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use ipnet::IpNet;
use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_tests::packet::{ACK, Frame, SYN, set_source};
use limiter_userspace::policy::{
    Assignment, Context, Given, KeyPrefix, Policy, compile,
    model::{
        Allowance, Costs, Count, GlobalMode, Key, KeyPart, Layer, Limit, Listed, Match, Mode,
        OfRequests, Override, OverrideWhom, PacketKind, Penalty, TcpFlags, Unproven, Whom,
    },
};

use super::super::mutation::{Random, mutate};

const PORTS: [u16; 4] = [22, 53, 443, 8_080];

/// The source addresses, from few networks, so that prefixes contain each other.
pub(super) fn addresses() -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for (a, b) in [(0, 0), (0, 1), (1, 0)] {
        for c in [1_u8, 2] {
            addresses.push(IpAddr::from([10, a, b, c]));
            let (a, b, c) = (u16::from(a), u16::from(b), u16::from(c));
            addresses.push(IpAddr::from([0x2001, 0xdb8, a, b, 0, 0, 0, c]));
        }
    }
    addresses
}

fn any_prefix(random: &mut Random) -> IpNet {
    let addresses = addresses();
    let address = *random.pick(&addresses);
    let length = if address.is_ipv4() {
        *random.pick(&[0, 8, 16, 24, 32])
    } else {
        *random.pick(&[0, 32, 48, 64, 128])
    };
    IpNet::new(address, length).unwrap().trunc()
}

fn any_whom(random: &mut Random) -> Whom {
    if random.below(4) == 0 { Whom::Set("some".into()) } else { Whom::Prefix(any_prefix(random)) }
}

fn some<T>(random: &mut Random, most: usize, mut any: impl FnMut(&mut Random) -> T) -> Vec<T> {
    (0..random.below(most + 1)).map(|_| any(random)).collect()
}

/// `any` in one of `of` cases.
fn maybe<T>(random: &mut Random, of: usize, any: impl FnOnce(&mut Random) -> T) -> Option<T> {
    if random.below(of) == 0 { Some(any(random)) } else { None }
}

fn any_allowance(random: &mut Random, bytes: bool) -> Allowance {
    let rate = match random.below(3) {
        0 => Rate { packets: 1 + random.below(20) as u64, period: 60 * SECOND },
        1 => Rate::per_second(10_u64.pow(random.below(5) as u32)),
        _ => Rate::per_second(1 + random.below(3_000) as u64),
    };
    let burst = 1 + random.below(if bytes { 2_000 } else { 6 }) as u64;
    match random.below(4) {
        0 => Allowance::LeakyBucket { rate, depth: burst },
        1 => Allowance::Gcra { rate, tolerance: random.below(SECOND as usize) as u64 },
        _ => Allowance::TokenBucket { rate, burst },
    }
}

fn any_key(random: &mut Random) -> Key {
    let parts = match random.below(14) {
        0..5 => vec![KeyPart::Source],
        5 => vec![KeyPart::SourcePrefix { ipv4: 24, ipv6: 48 }],
        6 => vec![KeyPart::SourcePrefix { ipv4: 8, ipv6: 32 }],
        7 => vec![KeyPart::Connection],
        8 => vec![KeyPart::Tenant],
        9 => vec![KeyPart::Destination],
        10 => vec![KeyPart::Source, KeyPart::DestinationPort],
        11 => vec![KeyPart::Tenant, KeyPart::DestinationPort],
        12 => vec![KeyPart::Interface],
        _ => Vec::new(),
    };
    Key { parts }
}

fn any_count(random: &mut Random) -> Count {
    match random.below(8) {
        0 => Count::Bytes,
        1 => Count::Syns,
        2 => Count::Connections,
        3 => Count::Weighted(Costs {
            default: 1 + random.below(3) as u16,
            by_kind: BTreeMap::from([
                (PacketKind::Fragment, 1 + random.below(5) as u16),
                (PacketKind::Syn, 1 + random.below(9) as u16),
                (PacketKind::Udp, 2),
            ]),
        }),
        _ => Count::Packets,
    }
}

fn any_match(random: &mut Random) -> Match {
    Match {
        protocols: maybe(random, 5, |random| vec![*random.pick(&[1, 6, 17, 58])])
            .unwrap_or_default(),
        ports: maybe(random, 6, |random| {
            let port = *random.pick(&PORTS);
            vec![port..=port + random.below(2) as u16 * 1_000]
        })
        .unwrap_or_default(),
        source_ports: maybe(random, 9, |random| {
            let port = *random.pick(&PORTS);
            vec![port..=port + random.below(2) as u16 * 1_000]
        })
        .unwrap_or_default(),
        tcp_flags: maybe(random, 9, |_| TcpFlags { set: SYN, clear: ACK }),
        icmp_types: maybe(random, 12, |_| vec![8, 128]).unwrap_or_default(),
        fragments: maybe(random, 8, |random| random.below(2) == 0),
        length: maybe(random, 9, |random| 0..=random.below(200) as u16),
        interfaces: maybe(random, 30, |_| vec!["eth7".to_owned()]).unwrap_or_default(),
        sources: maybe(random, 5, |random| vec![any_whom(random), any_whom(random)])
            .unwrap_or_default(),
        destinations: maybe(random, 9, |random| vec![any_whom(random)]).unwrap_or_default(),
        except_sources: maybe(random, 8, |random| vec![any_whom(random)]).unwrap_or_default(),
        except_destinations: maybe(random, 12, |random| vec![any_whom(random)]).unwrap_or_default(),
        service: None,
    }
}

fn any_overrides(random: &mut Random, layers: usize, bytes: bool) -> Vec<Override> {
    let mut overrides = some(random, 3, |random| Override {
        whom: match random.below(4) {
            0 => OverrideWhom::Tenant("acme".into()),
            _ => OverrideWhom::Prefix(any_prefix(random)),
        },
        layers: maybe(random, 5, |_| ()).map_or_else(
            || Some((0..layers).map(|_| any_allowance(random, bytes)).collect()),
            |()| None,
        ),
    });
    overrides.sort_by(|one, other| one.whom.cmp(&other.whom));
    overrides.dedup_by(|one, other| one.whom == other.whom);
    overrides
}

fn any_limit(random: &mut Random, name: String) -> Limit {
    let (key, count) = (any_key(random), any_count(random));
    let bytes = count == Count::Bytes;
    let layers: Vec<Layer> = (0..=random.below(4) / 3)
        .map(|_| Layer { allowance: any_allowance(random, bytes), key: None })
        .collect();
    let by_source = key.parts.iter().any(|part| {
        matches!(part, KeyPart::Source | KeyPart::SourcePrefix { .. } | KeyPart::Connection)
    });
    let overrides = if by_source { any_overrides(random, layers.len(), bytes) } else { Vec::new() };
    let penalty = |random: &mut Random| {
        let millisecond = SECOND / 1_000;
        let block = (1 + random.below(900) as u64) * millisecond;
        let after = random.below(20) as u64 * millisecond;
        Penalty {
            backoff: 1 + random.below(3) as u32,
            max: 4 * block,
            unproven: Unproven::Block,
            ..Penalty::new(after, block)
        }
    };
    Limit {
        name,
        matching: any_match(random),
        key,
        count,
        mode: *random.pick(&[
            Mode::Enforce,
            Mode::Enforce,
            Mode::Enforce,
            Mode::Monitor,
            Mode::Drop,
            Mode::Off,
        ]),
        layers,
        candidate: maybe(random, 4, |random| any_allowance(random, bytes)),
        penalty: maybe(random, 3, penalty),
        overrides,
        shared: None,
        precise: false,
        requests: OfRequests::Off,
        given: Given::default(),
    }
}

fn any_listed(random: &mut Random) -> Listed {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let until = maybe(random, 2, |random| unix + random.below(8) as u64);
    Listed { whom: any_whom(random), until }
}

/// A random policy that compiles.
pub(super) fn any_policy(random: &mut Random) -> Policy {
    loop {
        let (ipv4, ipv6) = *random.pick(&[(32, 64), (32, 128), (24, 48), (0, 0)]);
        let limits = 1 + random.below(7);
        let policy = Policy {
            non_ip: maybe(random, 2, |random| Allowance::TokenBucket {
                rate: Rate { packets: 1, period: 60 * SECOND },
                burst: 1 + random.below(2) as u64,
            }),
            mode: if random.below(6) == 0 { GlobalMode::Monitor } else { GlobalMode::Enforce },
            key_prefix: KeyPrefix { ipv4, ipv6 },
            sets: BTreeMap::from([("some".into(), prefixes(random))]),
            tenants: BTreeMap::from([
                ("acme".into(), prefixes(random)),
                ("other".into(), prefixes(random)),
            ]),
            allow: narrow(random),
            deny: narrow(random),
            penalties: narrow(random),
            limits: (0..limits).map(|number| any_limit(random, format!("l{number}"))).collect(),
            ..Policy::default()
        };
        // The policy has too many limits at once, or too many columns.
        if compile(&policy, &Assignment::default(), &Context::default()).is_ok() {
            return policy;
        }
    }
}

fn prefixes(random: &mut Random) -> Vec<IpNet> {
    let mut prefixes = some(random, 3, any_prefix);
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes
}

/// Rarely more than a few sources, or the limits would hardly ever apply.
fn narrow(random: &mut Random) -> Vec<Listed> {
    maybe(random, 4, any_listed).into_iter().collect()
}

/// The policy with one change to a limit, a list or a prefix length.
pub(super) fn changed(random: &mut Random, policy: &Policy) -> Policy {
    loop {
        let mut next = policy.clone();
        let at = random.below(next.limits.len());
        let name = next.limits[at].name.clone();
        let bytes = next.limits[at].count == Count::Bytes;
        match random.below(9) {
            0 => next.limits[at] = any_limit(random, name),
            1 => drop(next.limits.remove(at)),
            2 => {
                let name = format!("m{}", random.below(1_000));
                next.limits.push(any_limit(random, name));
            }
            3 => next.deny = narrow(random),
            4 => next.tenants.insert("acme".into(), prefixes(random)).map_or((), drop),
            5 => next.mode = GlobalMode::Enforce,
            // Another limit, which may get the place of the removed one.
            6 | 7 => next.limits[at].name = format!("n{}", random.below(1_000)),
            _ => {
                for layer in &mut next.limits[at].layers {
                    layer.allowance = any_allowance(random, bytes);
                }
            }
        }
        let mut names: Vec<_> = next.limits.iter().map(|limit| &limit.name).collect();
        names.sort_unstable();
        names.dedup();
        let unique = names.len() == next.limits.len() && !names.is_empty();
        if unique && compile(&next, &Assignment::default(), &Context::default()).is_ok() {
            return next;
        }
    }
}

/// A frame from one of the [`addresses`], or a mutated frame of any kind.
pub(super) fn any_frame(random: &mut Random, kinds: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let addresses = addresses();
    let source = *random.pick(&addresses);
    if random.below(5) == 0 {
        let mut frame = random.pick(kinds).1.clone();
        let _: bool = set_source(&mut frame, source);
        for _ in 0..random.below(3) {
            mutate(random, &mut frame, kinds);
        }
        return frame;
    }
    let same: Vec<IpAddr> =
        addresses.into_iter().filter(|other| other.is_ipv4() == source.is_ipv4()).collect();
    let destination = *random.pick(&same);
    let (from, to) = (*random.pick(&[40_000, 40_001]), *random.pick(&PORTS));
    let frame = match random.below(4) {
        0 => Frame::tcp(source, destination, from, to, *random.pick(&[SYN, ACK, SYN | ACK])),
        1 => Frame::echo(source, destination, 1, 2),
        _ => Frame::udp(source, destination, from, to),
    };
    let frame = frame.payload(random.below(200));
    match random.below(12) {
        0 => frame.fragment(1, 0, true).build(),
        1 => frame.fragment(1, 1 + random.below(2) as u16, true).build(),
        2 => frame.tag(0x8100, 5).build(),
        3 => frame.pppoe().build(),
        4 => frame.labels(1 + random.below(5)).build(),
        _ => frame.build(),
    }
}
