//! Reads and writes keys of limits on requests.

use super::{
    super::{
        fault::Findings,
        key::{ALL, no_length, own_lengths, source_name, source_prefix},
        scalar::{self, suggest},
        source::ticked,
        text::scalar as scalar_text,
        tree::{Node, Value},
    },
    values::{field, names},
};
use crate::policy::model::{Field, KeyPrefix, Policy, RequestKey, RequestKeyPart};

/// The most parts of a key.
const PARTS: usize = 8;
/// Parts of keys of packets that requests do not have.
const OF_PACKETS: [&str; 4] = ["destination", "destination_port", "connection", "interface"];

/// Reads a key.
pub(super) fn key(
    node: &Node<'_>,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Option<RequestKey> {
    let nodes = node.each();
    let before = findings.total();
    if nodes.is_empty() {
        findings.add(
            node.at,
            "the key has no parts",
            "for one state for all requests, write `all`",
        );
    }
    if let Some(first) = nodes.get(PARTS) {
        let message = format!("the key has {} parts, more than {PARTS}", nodes.len());
        findings.add(first.at, message, "keep those that tell clients apart");
    }
    let mut parts: Vec<RequestKeyPart> = Vec::new();
    for node in nodes.iter().take(PARTS) {
        if matches!(&node.value, Value::Text(text) if text == ALL) {
            if nodes.len() > 1 {
                findings.add(node.at, "`all` joins with nothing", "remove it, or all the others");
            }
            continue;
        }
        let Some(part) = part(node, policy, findings) else { continue };
        if let Some(other) = parts.iter().find(|other| overlap(other, &part)) {
            let name = |part| request_part_name(part, policy.key_prefix);
            let (message, remedy) = if *other == part {
                (format!("`{}` is listed twice", name(&part)), "remove one of the two")
            } else {
                let message = format!("`{}` and `{}` overlap", name(other), name(&part));
                (message, "keep the narrower of the two")
            };
            findings.add(node.at, message, remedy);
        }
        parts.push(part);
    }
    (findings.total() == before).then_some(RequestKey { parts })
}

fn part(node: &Node<'_>, policy: &Policy, findings: &mut Findings<'_>) -> Option<RequestKeyPart> {
    let lengths = policy.key_prefix;
    let prefix = |KeyPrefix { ipv4, ipv6 }| RequestKeyPart::SourcePrefix { ipv4, ipv6 };
    if let Value::Map(_) = node.value {
        return own_lengths(node, lengths, findings).map(prefix);
    }
    let text = scalar::text(node, findings)?;
    match text {
        "source" => return Some(RequestKeyPart::Source),
        "tenant" if policy.tenants.is_empty() => {
            let message = "the key counts tenants only, and there are none";
            findings.add(
                node.at,
                message,
                "define the tenants that are meant, or count by another key",
            );
            return None;
        }
        "tenant" => return Some(RequestKeyPart::Tenant),
        _ => {}
    }
    if let Some(field) = field(text, policy) {
        return Some(RequestKeyPart::Field(field));
    }
    match source_prefix(text, lengths) {
        Some(Some(lengths)) => return Some(prefix(lengths)),
        Some(None) => no_length(text, node.at, findings),
        None => {
            let known = ["source", "tenant", ALL].into_iter().chain(names(policy));
            let (message, remedy) = if OF_PACKETS.contains(&text) {
                (format!("{} is of packets", ticked(text)), suggest("", known, "keys", findings))
            } else {
                let remedy = suggest(text, known, "keys", findings);
                (format!("there is no key {}", ticked(text)), remedy)
            };
            findings.add(node.at, message, remedy);
        }
    }
    None
}

/// Whether one of two parts changes nothing beside the other.
fn overlap(one: &RequestKeyPart, other: &RequestKeyPart) -> bool {
    let source = |part: &RequestKeyPart| {
        matches!(part, RequestKeyPart::Source | RequestKeyPart::SourcePrefix { .. })
    };
    one == other || source(one) && source(other)
}

/// The prefix lengths by which a key tells sources apart; `None` for a key without a source.
pub(super) fn source_lengths(key: &RequestKey, lengths: KeyPrefix) -> Option<KeyPrefix> {
    key.parts.iter().find_map(|part| match *part {
        RequestKeyPart::Source => Some(lengths),
        RequestKeyPart::SourcePrefix { ipv4, ipv6 } => Some(KeyPrefix { ipv4, ipv6 }),
        RequestKeyPart::Tenant | RequestKeyPart::Field(_) => None,
    })
}

/// Whether a key tells the values of a property apart.
pub(super) fn has_field(key: &RequestKey, field: &Field) -> bool {
    key.parts.iter().any(|part| matches!(part, RequestKeyPart::Field(own) if own == field))
}

/// A part as it is written, if `lengths` are the prefix lengths of a source.
pub fn request_part_name(part: &RequestKeyPart, lengths: KeyPrefix) -> String {
    match part {
        RequestKeyPart::Source => "source".to_owned(),
        RequestKeyPart::SourcePrefix { ipv4, ipv6 } => {
            source_name(KeyPrefix { ipv4: *ipv4, ipv6: *ipv6 }, lengths)
        }
        RequestKeyPart::Tenant => "tenant".to_owned(),
        RequestKeyPart::Field(field) => scalar_text(field.name()),
    }
}

/// A key as it is written, if `lengths` are the prefix lengths of a source.
pub fn request_key_name(key: &RequestKey, lengths: KeyPrefix) -> String {
    let parts: Vec<_> = key.parts.iter().map(|part| request_part_name(part, lengths)).collect();
    match parts.as_slice() {
        [] => ALL.to_owned(),
        [part] => part.clone(),
        parts => format!("[{}]", parts.join(", ")),
    }
}
