//! Finds parts of a policy that never have an effect, across its sections.

use std::collections::{HashMap, HashSet};

use super::{
    fault::Findings,
    limit::Found,
    request,
    source::{Place, ticked},
    spot::{FILE_CHANGES, FILE_CHANGES_LIST, Spot},
};
use crate::policy::{
    List,
    model::Policy,
    shadowed::{Entry, FromFiles},
};

/// Reports limits with the name of an earlier one, and limits that do the same as an earlier one of their kind.
pub(super) fn limits(packets: &[Found], requests: &[request::Found], findings: &mut Findings<'_>) {
    let on_packets = packets.iter().map(|found| (found.limit.name.as_str(), found.spot.at));
    let on_requests = requests.iter().map(|found| (found.limit.name.as_str(), found.at));
    let mut named: Vec<(&str, Place)> = on_packets.chain(on_requests).collect();
    named.sort_by_key(|(_, at)| *at);
    let mut names: HashMap<&str, Place> = HashMap::new();
    for (name, at) in named {
        if let Some(&first) = names.get(name) {
            let message = format!("there are two limits {}", ticked(name));
            findings.add(at, message, format!("the first is on line {}", findings.line(first)));
        }
        names.entry(name).or_insert(at);
    }
    let mut same = |[one, other]: [(&str, Place); 2], what: &str| {
        let [name, of] = [one, other].map(|(name, _)| ticked(name));
        let message = format!("limit {name} has the match, key and {what} of limit {of}");
        let line = findings.line(other.1);
        let remedy = format!("merge them as `layers`; the other is on line {line}");
        findings.add(one.1, message, remedy);
    };
    for (index, Found { limit, spot, .. }) in packets.iter().enumerate() {
        let before = packets[..index].iter().find(|it| limit.does_the_same_as(&it.limit));
        if let Some(Found { limit: other, spot: first, .. }) = before {
            same([(&limit.name, spot.at), (&other.name, first.at)], "count");
        }
    }
    for (index, request::Found { limit, at }) in requests.iter().enumerate() {
        let before = requests[..index].iter().find(|it| limit.does_the_same_as(&it.limit));
        if let Some(request::Found { limit: other, at: first }) = before {
            same([(&limit.name, *at), (&other.name, *first)], "cost");
        }
    }
}

/// Reports entries that a list shadows and that do not have `shadowed: true`. The mark is also allowed where
/// nothing shadows the entry: the list may have changed since. If an entry is shadowed only for what a file
/// has, that is a warning: a file that grew must not keep a policy from being applied at boot. Entries that
/// are marked to be left out still shadow others here, since the document has them whatever the file has.
pub(super) fn shadowed(
    policy: &Policy,
    listed: &[(List, Vec<Spot>)],
    limits: &[(Spot, Vec<Spot>)],
    files: &FromFiles,
    findings: &mut Findings<'_>,
) {
    let certain = policy.shadowed_without(files);
    let known: HashSet<Entry> = certain.iter().map(|shadowed| shadowed.entry).collect();
    // What shadows an entry whatever the files have is reported, not what else does now. Without files, the
    // second search would find the same.
    let now = (!files.is_empty()).then(|| policy.shadowed());
    let by_files = now.into_iter().flatten().filter(|it| !known.contains(&it.entry));
    let by_files = by_files.map(|shadowed| (shadowed, false));
    for (shadowed, is_certain) in certain.into_iter().map(|it| (it, true)).chain(by_files) {
        let spot = match shadowed.entry {
            Entry::Listed { list, place } => {
                let spots = listed.iter().find(|(other, _)| *other == list);
                spots.and_then(|(_, spots)| spots.get(place))
            }
            Entry::Limit { limit } => limits.get(limit).map(|(spot, _)| spot),
            Entry::Override { limit, place } => {
                limits.get(limit).and_then(|(_, overrides)| overrides.get(place))
            }
        };
        let Some(spot) = spot.filter(|spot| !spot.shadowed) else { continue };
        if is_certain {
            findings.add(spot.at, shadowed.to_string(), shadowed.remedy());
        } else if !spot.left_out {
            let remedy = match shadowed.entry {
                Entry::Listed { .. } => FILE_CHANGES_LIST,
                Entry::Limit { .. } | Entry::Override { .. } => FILE_CHANGES,
            };
            findings.warn(spot.at, shadowed.to_string(), remedy);
        }
    }
}

/// Reports more prefixes than a policy may have.
pub(super) fn number_of_prefixes(policy: &Policy, at: Place, findings: &mut Findings<'_>) {
    let total = policy.number_of_prefixes();
    let most = Policy::MOST_PREFIXES;
    if total > most {
        let message = format!("the policy has {total} prefixes, more than {most}");
        findings.add(at, message, "write neighbouring prefixes as a wider one");
    }
}
