//! Reads `match`: the packets that a limit is about.

use std::ops::RangeInclusive;

use limiter_common::packet::protocol::TCP;

use super::{
    fault::Findings,
    fields::Fields,
    lists::{destinations, sources},
    names::{FLAGS, ICMP_TYPES, IcmpType, meaning, words},
    ports::{check_ports, not_empty, ports, protocols, range, several},
    scalar::{self, flag, number, suggest},
    shape,
    source::ticked,
    tree::Node,
};
use crate::policy::{
    interfaces::check,
    model::{Match, Policy, TcpFlags, Whom},
    shadowed::FromFiles,
};

/// Reads sets and prefixes, given the policy read so far and its files.
type WhomsReader = fn(&Node<'_>, (&Policy, &FromFiles), &mut Findings<'_>) -> Vec<Whom>;

const ICMP: [u8; 2] = [1, 58];
/// Bytes of an Ethernet header.
const SHORTEST_FRAME: u16 = 14;

/// Reads a match. `known` are the policy read so far and its files.
pub(super) fn matching(
    node: &Node<'_>,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> Match {
    let Some(fields) = Fields::read(node, &shape::MATCH, findings) else {
        return Match::default();
    };
    let mut found = Match::default();
    if let Some(node) = fields.get("service") {
        service(node, &fields, known.0, &mut found, findings);
    } else {
        if let Some(node) = fields.get("protocol") {
            found.protocols = protocols(node, findings);
        }
        if let Some(node) = fields.get("ports") {
            found.ports = ports(node, findings);
            let given = fields.get("protocol").is_some();
            check_ports((node, "ports"), given, &found.protocols, findings);
        }
    }
    // A service says nothing of source ports, so they may be beside it.
    if let Some(node) = fields.get("source_ports") {
        found.source_ports = ports(node, findings);
        let given = ["protocol", "service"].iter().any(|key| fields.place(key).is_some());
        check_ports((node, "source_ports"), given, &found.protocols, findings);
    }
    if let Some(node) = fields.get("tcp_flags") {
        found.tcp_flags = tcp_flags(node, findings);
        if !found.protocols.is_empty() && !found.protocols.contains(&TCP) {
            let message = "only TCP has flags, and this matches no TCP";
            findings.add(node.at, message, "write `protocol: tcp`, or remove `tcp_flags`");
        }
    }
    if let Some(node) = fields.get("icmp_type") {
        if found.protocols.iter().any(|protocol| ICMP.contains(protocol)) {
            found.icmp_types = icmp_types(node, &found.protocols, findings);
            if found.tcp_flags.is_some() && found.protocols.contains(&TCP) {
                let message = "no packet has both a type of ICMP and flags of TCP";
                findings.add(node.at, message, "write a limit for each");
            }
        } else {
            let message = "`icmp_type` needs ICMP, and this does not say so";
            findings.add(node.at, message, "write `protocol: icmp` or `protocol: icmpv6`");
        }
    }
    found.fragments = fields.get("fragments").and_then(|node| flag(node, findings));
    found.length = fields.get("length").and_then(|node| length(node, findings));
    if let Some(node) = fields.get("interface") {
        found.interfaces = interfaces(node, findings);
    }
    let mut of = |key, read: WhomsReader| {
        fields.get(key).map(|node| read(node, known, findings)).unwrap_or_default()
    };
    found.sources = of("source", sources);
    found.destinations = of("destination", destinations);
    found.except_sources = of("except", sources);
    found.except_destinations = of("except_destination", destinations);
    found
}

fn service(
    node: &Node<'_>,
    fields: &Fields<'_, '_>,
    policy: &Policy,
    found: &mut Match,
    findings: &mut Findings<'_>,
) {
    for key in ["protocol", "ports"] {
        if let Some(at) = fields.place(key) {
            let message = format!("`service` says `{key}` already");
            findings.add(at, message, "remove one of the two");
        }
    }
    let Some(name) = scalar::text(node, findings) else { return };
    if let Some(service) = policy.services.get(name) {
        found.protocols.clone_from(&service.protocols);
        found.ports.clone_from(&service.ports);
        found.service = Some(name.to_owned());
    } else {
        let remedy =
            suggest(name, policy.services.keys().map(String::as_str), "services", findings);
        findings.add(node.at, format!("there is no service {}", ticked(name)), remedy);
    }
}

fn length(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<RangeInclusive<u16>> {
    let text = scalar::text(node, findings)?;
    let found = range(text).filter(|range| *range.end() >= SHORTEST_FRAME);
    if found.is_none() {
        let message = format!("{} is no length of a frame", ticked(text));
        let remedy = format!("give bytes, such as 64 or 64-128, from {SHORTEST_FRAME} to 65535");
        findings.add(node.at, message, remedy);
    }
    found
}

pub(super) fn interfaces(node: &Node<'_>, findings: &mut Findings<'_>) -> Vec<String> {
    several(node, findings, |node, findings| {
        let name = scalar::text(node, findings)?;
        let Err(why) = check(name) else { return Some(name.to_owned()) };
        let message = format!("{} is no interface: {why}", ticked(name));
        let remedy = "give a name such as eth0, an alternative name, a pattern such as `veth*`, or an index as if7";
        findings.add(node.at, message, remedy);
        None
    })
}

/// Reads flags that must be set and, after `!`, flags that must not be. `syn` alone means `syn,!ack`, the
/// flags of a new connection.
fn tcp_flags(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<TcpFlags> {
    let (mut flags, mut words_read) = (TcpFlags { set: 0, clear: 0 }, 0);
    for node in scalar::up_to(scalar::ENTRIES, node, findings) {
        for word in scalar::text(node, findings)?.split(',').map(str::trim) {
            let (name, clear) = word.strip_prefix('!').map_or((word, false), |name| (name, true));
            let Some(bit) = meaning(name, &FLAGS) else {
                let message = format!("there is no flag {}", ticked(word));
                let remedy = suggest(name, words(&FLAGS), "flags", findings);
                findings.add(node.at, message, remedy);
                return None;
            };
            let (this, other) =
                if clear { (&mut flags.clear, flags.set) } else { (&mut flags.set, flags.clear) };
            if other & bit != 0 {
                let message = format!("`{name}` cannot be both set and not set");
                findings.add(node.at, message, "keep one of the two");
                return None;
            }
            *this |= bit;
            words_read += 1;
        }
    }
    not_empty(node, findings);
    let (syn, ack) = (meaning("syn", &FLAGS)?, meaning("ack", &FLAGS)?);
    if words_read == 1 && flags.set == syn {
        flags.clear = ack;
    }
    Some(flags)
}

fn icmp_types(node: &Node<'_>, protocols: &[u8], findings: &mut Findings<'_>) -> Vec<u8> {
    let [v4, v6] = ICMP.map(|protocol| protocols.contains(&protocol));
    let mut found = Vec::new();
    for node in scalar::up_to(scalar::ENTRIES, node, findings) {
        let Some(text) = scalar::text(node, findings) else { continue };
        let types = if number(text).is_some() {
            let number = scalar::whole(node, "ICMP type", 0..=255, findings);
            number.and_then(|number| u8::try_from(number).ok()).map(|number| vec![number])
        } else {
            scalar::word(node, "ICMP type", &ICMP_TYPES, findings).and_then(|(of_v4, of_v6)| {
                if v4
                    && v6
                    && let Some(other) = other_type((of_v4, of_v6))
                {
                    let message = format!(
                        "{} has a number that is `{other}` in the other protocol",
                        ticked(text)
                    );
                    let remedy = "write a limit with `protocol: icmp` and one with `icmpv6`";
                    findings.add(node.at, message, remedy);
                    return None;
                }
                let types: Vec<u8> =
                    of_v4.filter(|_| v4).into_iter().chain(of_v6.filter(|_| v6)).collect();
                if types.is_empty() {
                    let message = format!("{} is no type of this protocol", ticked(text));
                    let other = if v4 { "icmpv6" } else { "icmp" };
                    findings.add(node.at, message, format!("write `protocol: {other}`"));
                }
                (!types.is_empty()).then_some(types)
            })
        };
        for kind in types.unwrap_or_default() {
            if found.contains(&kind) {
                findings.add(
                    node.at,
                    format!("type {kind} is listed twice"),
                    "remove one of the two",
                );
            } else {
                found.push(kind);
            }
        }
    }
    not_empty(node, findings);
    found
}

/// The name that the number of an ICMP type has in the other protocol, if that is another name. Limits match
/// types by number, whichever of the two protocols the packet has.
fn other_type((v4, v6): IcmpType) -> Option<&'static str> {
    let other = |(_, (other4, other6)): &&(_, IcmpType)| {
        (v6.is_some() && *other4 == v6) || (v4.is_some() && *other6 == v4)
    };
    ICMP_TYPES.iter().find(other).map(|(name, _)| *name)
}
