//! Reads `allow`, `deny` and `penalties`, and the sets and prefixes of a match.

use std::collections::HashMap;

use super::{
    fault::Findings,
    fields::{Fields, list},
    instant::{INSTANTS, format_instant, parse_instant},
    key::{LONGER, whole},
    scalar::{self, suggest},
    shape,
    source::{Place, ticked},
    spot::{FILE_CHANGES_LIST, Spot},
    tree::{Node, Value},
};
use crate::policy::{
    cover::Cover,
    model::{Listed, Policy, Whom},
    shadowed::FromFiles,
    units::parse_prefix,
};

/// An entry with its place.
pub(super) type Entry = (Listed, Spot);

/// Reads the entries of a list. An entry within another one is a fault; if it is so only for what a file has,
/// the entry is marked to be left out.
pub(super) fn entries(
    node: &Node<'_>,
    policy: &Policy,
    files: &FromFiles,
    findings: &mut Findings<'_>,
) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let mut seen: HashMap<Whom, Place> = HashMap::new();
    for node in list(node, findings) {
        let Some((listed, spot)) = entry(node, policy, findings) else { continue };
        if let Some(&first) = seen.get(&listed.whom) {
            let message = format!("{} is listed twice", shown(&listed.whom));
            let line = findings.line(first);
            findings.add(spot.at, message, format!("the first is on line {line}"));
            continue;
        }
        seen.insert(listed.whom.clone(), spot.at);
        of_sources(&listed.whom, spot.at, (policy, files), findings);
        found.push((listed, spot));
    }
    within_others(&mut found, policy, files, findings);
    found
}

fn entry(node: &Node<'_>, policy: &Policy, findings: &mut Findings<'_>) -> Option<Entry> {
    if let Value::Map(_) = node.value {
        let fields = Fields::read(node, &shape::LISTED, findings)?;
        let src = fields.get("src")?;
        let whom = whom(src, policy, findings)?;
        let until = match fields.get("until") {
            Some(node) => Some((instant(node, findings)?, node.at)),
            None => None,
        };
        let listed = Listed { whom, until: until.map(|(until, _)| until) };
        if let Some((until, at)) = until
            && listed.is_over(findings.now)
        {
            let (whom, since) = (shown(&listed.whom), format_instant(until));
            let message = format!("{whom} is listed until {since}, which is over");
            findings.warn(at, message, "remove the entry, or give a later time");
        }
        return Some((listed, Spot::new(src.at, Some(&fields), findings)));
    }
    let listed = Listed { whom: whom(node, policy, findings)?, until: None };
    Some((listed, Spot::new(node.at, None, findings)))
}

fn instant(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    let text = scalar::text(node, findings)?;
    let instant = parse_instant(text);
    if instant.is_none() {
        let message = format!("{} is no time", ticked(text));
        findings.add(node.at, message, INSTANTS);
    }
    instant
}

/// Reads the name of a set, or a prefix. The two are distinct: no name contains `.`, `:` or `/`.
pub(super) fn whom(node: &Node<'_>, policy: &Policy, findings: &mut Findings<'_>) -> Option<Whom> {
    let text = scalar::text(node, findings)?;
    if text.contains(['.', ':', '/']) {
        return scalar::value(node, parse_prefix, findings).map(Whom::Prefix);
    }
    if policy.sets.contains_key(text) {
        return Some(Whom::Set(text.to_owned()));
    }
    let remedy = suggest(text, policy.sets.keys().map(String::as_str), "sets", findings);
    findings.add(node.at, format!("there is no set {}", ticked(text)), remedy);
    None
}

/// Reports prefixes of the document that are narrower than a source. Those of files are left out elsewhere.
fn of_sources(
    whom: &Whom,
    at: Place,
    (policy, files): (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) {
    let written = files.certain(whom, policy);
    whole(written, policy.key_prefix, &of(whom), (at, LONGER), findings);
}

/// Reads sets and prefixes of sources, each once.
pub(super) fn sources(
    node: &Node<'_>,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> Vec<Whom> {
    each(node, known, findings, of_sources)
}

/// Reads sets and prefixes of destinations, each once.
pub(super) fn destinations(
    node: &Node<'_>,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> Vec<Whom> {
    each(node, known, findings, |_, _, _, _| {})
}

fn each(
    node: &Node<'_>,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
    check: impl Fn(&Whom, Place, (&Policy, &FromFiles), &mut Findings<'_>),
) -> Vec<Whom> {
    let mut found: Vec<Whom> = Vec::new();
    for node in scalar::up_to(scalar::ENTRIES, node, findings) {
        let Some(whom) = whom(node, known.0, findings) else { continue };
        if found.contains(&whom) {
            let message = format!("{} is listed twice", shown(&whom));
            findings.add(node.at, message, "remove one of the two");
        } else {
            check(&whom, node.at, known, findings);
            found.push(whom);
        }
    }
    let empty = matches!(&node.value, Value::List(nodes) if nodes.is_empty());
    if empty {
        findings.add(node.at, "the list is empty", "remove the key to match all");
    }
    found
}

/// Finds prefixes of a list that another entry of it contains. Within an entry of the document, that is a
/// fault. Within the contents of a file, the prefix is left out with a warning, which changes nothing: a file
/// that grew must not keep a policy from being applied at boot.
fn within_others(
    found: &mut [Entry],
    policy: &Policy,
    files: &FromFiles,
    findings: &mut Findings<'_>,
) {
    let found: Vec<(&Whom, Option<u64>, &mut Spot)> =
        found.iter_mut().map(|(listed, spot)| (&listed.whom, listed.until, spot)).collect();
    let (mut certain, mut by_files) = (Vec::new(), Vec::new());
    // Of equal prefixes the first is kept; sets come first, so that the order of the list does not matter. A
    // prefix that finds itself in the cover is within no other.
    let lasting = || found.iter().filter(|(_, until, _)| until.is_none());
    let is_set = |whom: &Whom| matches!(whom, Whom::Set(_));
    let sets = lasting().filter(|(whom, ..)| is_set(whom));
    for &(whom, ..) in sets.chain(lasting().filter(|(whom, ..)| !is_set(whom))) {
        certain.extend(files.certain(whom, policy).iter().map(|&prefix| (prefix, whom)));
        if files.may_be_any(whom) {
            by_files.extend(policy.prefixes(whom).iter().map(|&prefix| (prefix, whom)));
        }
    }
    let covers = [certain, by_files].map(Cover::new);
    for (listed, _, spot) in found {
        let Whom::Prefix(prefix) = *listed else { continue };
        for (cover, is_certain) in covers.iter().zip([true, false]) {
            if let Some(&(outer, whom)) = cover.around(prefix)
                && whom != listed
            {
                let within = format!("{prefix} is within {outer}{}", of(whom));
                if is_certain {
                    findings.add(spot.at, format!("{within}, which is listed too"), "remove it");
                } else {
                    spot.left_out = true;
                    if !spot.shadowed {
                        let message = format!("{within}, and left out");
                        findings.warn(spot.at, message, FILE_CHANGES_LIST);
                    }
                }
                break;
            }
        }
    }
}

fn shown(whom: &Whom) -> String {
    match whom {
        Whom::Set(name) => format!("set {}", ticked(name)),
        Whom::Prefix(prefix) => prefix.to_string(),
    }
}

/// The set that a prefix came from, for a message.
fn of(whom: &Whom) -> String {
    match whom {
        Whom::Set(name) => format!(" of set {}", ticked(name)),
        Whom::Prefix(_) => String::new(),
    }
}
