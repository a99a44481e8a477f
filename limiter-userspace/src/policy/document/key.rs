//! Reads and writes keys: what packets must share to have one state.

use ipnet::IpNet;

use super::{
    fault::Findings,
    fields::Fields,
    request::values::field,
    scalar::{self, number, suggest},
    shape,
    source::{Place, ticked},
    tree::{Node, Value},
};
use crate::policy::model::{Key, KeyPart, KeyPrefix, Policy};

/// The parts with a fixed name; `source/N` is parsed by itself.
static PARTS: [(&str, KeyPart); 6] = [
    ("source", KeyPart::Source),
    ("destination", KeyPart::Destination),
    ("destination_port", KeyPart::DestinationPort),
    ("connection", KeyPart::Connection),
    ("tenant", KeyPart::Tenant),
    ("interface", KeyPart::Interface),
];

/// The word for a key without parts: one state for all packets or requests.
pub(super) const ALL: &str = "all";

/// Reads a key of a limit on packets.
pub(super) fn key(node: &Node<'_>, policy: &Policy, findings: &mut Findings<'_>) -> Option<Key> {
    let lengths = policy.key_prefix;
    let nodes = scalar::up_to(scalar::ENTRIES, node, findings);
    if nodes.is_empty() {
        findings.add(node.at, "the key has no parts", "for one state for all packets, write `all`");
        return None;
    }
    let mut key = Key::default();
    let before = findings.total();
    for node in nodes {
        let Some(part) = part(node, policy, findings) else {
            if nodes.len() > 1 && matches!(&node.value, Value::Text(text) if text == ALL) {
                findings.add(node.at, "`all` joins with nothing", "remove it, or all the others");
            }
            continue;
        };
        if let Some(other) = key.parts.iter().find(|other| overlap(other, &part)) {
            let message = format!(
                "`{}` and `{}` overlap",
                part_name(*other, lengths),
                part_name(part, lengths)
            );
            findings.add(node.at, message, "keep the narrower of the two");
        }
        key.parts.push(part);
    }
    (findings.total() == before).then_some(key)
}

fn part(node: &Node<'_>, policy: &Policy, findings: &mut Findings<'_>) -> Option<KeyPart> {
    let lengths = policy.key_prefix;
    if let Value::Map(_) = node.value {
        let KeyPrefix { ipv4, ipv6 } = own_lengths(node, lengths, findings)?;
        return Some(KeyPart::SourcePrefix { ipv4, ipv6 });
    }
    let text = scalar::text(node, findings)?;
    if text == ALL {
        return None;
    }
    if let Some(part) = super::names::meaning(text, &PARTS) {
        return Some(part);
    }
    match source_prefix(text, lengths) {
        Some(Some(KeyPrefix { ipv4, ipv6 })) => {
            return Some(KeyPart::SourcePrefix { ipv4, ipv6 });
        }
        Some(None) => no_length(text, node.at, findings),
        None if field(text, policy).is_some() => {
            let message = format!("{} is of requests", ticked(text));
            findings.add(node.at, message, "remove it, or write `on: requests` in the limit");
        }
        None => {
            let known = PARTS.iter().map(|&(name, _)| name).chain([ALL]);
            let text_or_foreign = match text {
                "dst" | "dest" => "destination",
                "src" | "ip" => "source",
                "dst_port" | "dport" | "port" => "destination_port",
                "flow" | "5tuple" => "connection",
                text => text,
            };
            let remedy = suggest(text_or_foreign, known, "keys", findings);
            findings.add(node.at, format!("there is no key {}", ticked(text)), remedy);
        }
    }
    None
}

/// Reads a part `{source: {ipv4: ..., ipv6: ...}}` of a key.
pub(super) fn own_lengths(
    node: &Node<'_>,
    lengths: KeyPrefix,
    findings: &mut Findings<'_>,
) -> Option<KeyPrefix> {
    let fields = Fields::read(node, &shape::KEY_SOURCE, findings)?;
    prefix_lengths(fields.get("source")?, lengths, findings)
}

/// The prefix lengths of a part `source/N` of a key: `None` for other text, `Some(None)` if N is no length.
#[expect(clippy::option_option, reason = "the outer says whether it is such a part")]
pub(super) fn source_prefix(text: &str, lengths: KeyPrefix) -> Option<Option<KeyPrefix>> {
    let (_, length) = text.split_once('/').filter(|&(name, _)| name == "source")?;
    Some(match number(length) {
        Some(length @ 0..=32) => Some(KeyPrefix { ipv4: length as u8, ipv6: lengths.ipv6 }),
        Some(length @ 33..=128) => Some(KeyPrefix { ipv4: 32, ipv6: length as u8 }),
        _ => None,
    })
}

/// Reports a part `source/N` of a key whose N is no length.
pub(super) fn no_length(text: &str, at: Place, findings: &mut Findings<'_>) {
    let message = format!("{} has no prefix length", ticked(text));
    let remedy = "write `source/24` for IPv4 or `source/48` for IPv6; at most 128";
    findings.add(at, message, remedy);
}

/// Reads prefix lengths from a mapping; those that it lacks are as in `default`.
pub(super) fn prefix_lengths(
    node: &Node<'_>,
    default: KeyPrefix,
    findings: &mut Findings<'_>,
) -> Option<KeyPrefix> {
    let fields = Fields::read(node, &shape::LENGTHS, findings)?;
    let mut length = |family: &str, most: u64, default: u8| match fields.get(family) {
        None => Some(default),
        Some(node) => {
            let length = scalar::whole(node, "prefix length", 0..=most, findings)?;
            u8::try_from(length).ok()
        }
    };
    let (ipv4, ipv6) = (length("ipv4", 32, default.ipv4), length("ipv6", 128, default.ipv6));
    Some(KeyPrefix { ipv4: ipv4?, ipv6: ipv6? })
}

/// Whether one of two parts changes nothing beside the other.
fn overlap(a: &KeyPart, b: &KeyPart) -> bool {
    let source = |part: &KeyPart| matches!(part, KeyPart::Source | KeyPart::SourcePrefix { .. });
    a == b
        || source(a) && source(b)
        || [a, b].contains(&&KeyPart::Connection)
            && [a, b].iter().any(|part| {
                source(part) || matches!(part, KeyPart::Destination | KeyPart::DestinationPort)
            })
}

/// The prefix lengths by which a key tells sources apart; `None` for a key without a source.
pub(super) fn source_lengths(key: &Key, lengths: KeyPrefix) -> Option<KeyPrefix> {
    key.parts.iter().find_map(|&part| match part {
        KeyPart::Source => Some(lengths),
        KeyPart::SourcePrefix { ipv4, ipv6 } => Some(KeyPrefix { ipv4, ipv6 }),
        KeyPart::Connection => Some(KeyPrefix { ipv4: 32, ipv6: 128 }),
        _ => None,
    })
}

/// The remedy for a prefix that is narrower than a source.
pub(super) const LONGER: &str = "make `key_prefix` of `defaults` longer";

/// Checks that no prefix is narrower than a source of these lengths; a fault if one is. `of` follows the
/// prefix in the message, `at` is where it was written, and `otherwise` a second remedy.
pub(super) fn whole(
    prefixes: &[IpNet],
    lengths: KeyPrefix,
    of: &str,
    (at, otherwise): (Place, &str),
    findings: &mut Findings<'_>,
) -> bool {
    let narrow = prefixes.iter().find(|prefix| prefix.prefix_len() > lengths.length_for(prefix));
    if let Some(prefix) = narrow {
        let length = lengths.length_for(prefix);
        let message = format!("sources are counted per /{length}, and {prefix}{of} is narrower");
        let wide = IpNet::new(prefix.addr(), length).map_or(*prefix, |wide| wide.trunc());
        findings.add(at, message, format!("give {wide} or wider; or {otherwise}"));
    }
    narrow.is_none()
}

/// A part as it is written in a list. A source with lengths of its own may need a mapping.
pub(super) fn part_name(part: KeyPart, lengths: KeyPrefix) -> String {
    match part {
        KeyPart::SourcePrefix { ipv4, ipv6 } => source_name(KeyPrefix { ipv4, ipv6 }, lengths),
        part => super::names::word_for(&part, &PARTS).unwrap_or(ALL).to_owned(),
    }
}

/// A source of a key with prefix lengths of its own, as it is written in a list.
pub(super) fn source_name(own: KeyPrefix, lengths: KeyPrefix) -> String {
    match own {
        KeyPrefix { ipv4, ipv6 } if ipv6 == lengths.ipv6 => format!("source/{ipv4}"),
        KeyPrefix { ipv4: 32, ipv6 } if ipv6 > 32 => format!("source/{ipv6}"),
        KeyPrefix { ipv4, ipv6 } => format!("{{source: {{ipv4: {ipv4}, ipv6: {ipv6}}}}}"),
    }
}

/// A key as it is written, if `lengths` are the prefix lengths of a source.
pub fn key_name(key: &Key, lengths: KeyPrefix) -> String {
    let parts: Vec<_> = key.parts.iter().map(|&part| part_name(part, lengths)).collect();
    match parts.as_slice() {
        [] => ALL.to_owned(),
        [part] => part.clone(),
        parts => format!("[{}]", parts.join(", ")),
    }
}
