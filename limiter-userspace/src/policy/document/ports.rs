//! Reads and writes protocols and ports.

use std::ops::RangeInclusive;

use super::{
    fault::Findings,
    names::{PORTS, PROTOCOLS, WITH_PORTS, meaning, word_for, words},
    scalar::{self, number},
    source::ticked,
    tree::{Node, Value},
};
use crate::policy::nearest::nearest;

/// Reads protocols by name or number, each once.
pub(super) fn protocols(node: &Node<'_>, findings: &mut Findings<'_>) -> Vec<u8> {
    several(node, findings, |node, findings| {
        let text = scalar::text(node, findings)?;
        if number(text).is_some() {
            return scalar::whole(node, "protocol", 0..=255, findings)
                .and_then(|number| u8::try_from(number).ok());
        }
        scalar::word(node, "protocol", &PROTOCOLS, findings)
    })
}

/// Reports ports of protocols that have none, at the value of this key. `given` tells whether the key `protocol` is there.
pub(super) fn check_ports(
    (node, key): (&Node<'_>, &str),
    given: bool,
    protocols: &[u8],
    findings: &mut Findings<'_>,
) {
    let without = protocols.iter().find(|protocol| !WITH_PORTS.contains(protocol));
    let message = match without {
        Some(protocol) => format!("{} has no ports that can be matched", protocol_name(*protocol)),
        // The protocol that was written has a fault already.
        None if given => return,
        None => format!("`{key}` needs a protocol that has them"),
    };
    findings.add(node.at, message, "write `protocol: tcp`, `udp` or `sctp`");
}

/// Reads ports and ranges of ports, which may not overlap.
pub(super) fn ports(node: &Node<'_>, findings: &mut Findings<'_>) -> Vec<RangeInclusive<u16>> {
    let mut found: Vec<RangeInclusive<u16>> = Vec::new();
    for node in scalar::up_to(scalar::ENTRIES, node, findings) {
        let Some(range) = port(node, findings) else { continue };
        let overlapped =
            found.iter().find(|other| other.start() <= range.end() && range.start() <= other.end());
        if let Some(other) = overlapped {
            let message = format!("{} overlaps with {}", range_name(&range), range_name(other));
            findings.add(node.at, message, "remove what is there twice");
        }
        found.push(range);
    }
    not_empty(node, findings);
    found
}

fn port(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<RangeInclusive<u16>> {
    let text = scalar::text(node, findings)?;
    if let Some(port) = meaning(text, &PORTS) {
        return Some(port..=port);
    }
    let found = range(text);
    if found.is_none() {
        let remedy = match nearest(text, words(&PORTS)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                "give a port such as 80, a range such as 8000-8010, or a name such as ssh".into()
            }
        };
        findings.add(node.at, format!("{} is no port", ticked(text)), remedy);
    }
    found
}

/// Parses a number, or two with `-` in between, the lower first.
pub(super) fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (start, end) = text.split_once('-').unwrap_or((text, text));
    let bound = |text: &str| number(text.trim()).and_then(|number| u16::try_from(number).ok());
    let (start, end) = (bound(start)?, bound(end)?);
    (start <= end).then_some(start..=end)
}

/// A range as it is written.
pub(super) fn range_name(range: &RangeInclusive<u16>) -> String {
    match (range.start(), range.end()) {
        (start, end) if start == end => start.to_string(),
        (start, end) => format!("{start}-{end}"),
    }
}

/// A protocol as it is written: by name if it has one.
pub(super) fn protocol_name(protocol: u8) -> String {
    word_for(&protocol, &PROTOCOLS).map_or_else(|| protocol.to_string(), str::to_owned)
}

/// Reads the values of a list, each once.
pub(super) fn several<T: PartialEq>(
    node: &Node<'_>,
    findings: &mut Findings<'_>,
    read: impl Fn(&Node<'_>, &mut Findings<'_>) -> Option<T>,
) -> Vec<T> {
    let mut found = Vec::new();
    for node in scalar::up_to(scalar::ENTRIES, node, findings) {
        let Some(value) = read(node, findings) else { continue };
        if found.contains(&value) {
            findings.add(node.at, "this is listed twice", "remove one of the two");
        } else {
            found.push(value);
        }
    }
    not_empty(node, findings);
    found
}

pub(super) fn not_empty(node: &Node<'_>, findings: &mut Findings<'_>) {
    if matches!(&node.value, Value::List(nodes) if nodes.is_empty()) {
        findings.add(node.at, "the list is empty", "remove the key to match all");
    }
}
