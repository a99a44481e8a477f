//! Finds parts of a policy that never have an effect, across its sections.

use std::collections::{HashMap, HashSet};

use ipnet::IpNet;

use super::{
    PREFIXES,
    fault::Findings,
    fields::Fields,
    key::{LONGER, whole},
    limit::Found,
    overlaps::Group,
    scalar::flag,
    source::{Place, ticked},
};
use crate::policy::{
    List,
    model::{Limit, Match, Policy},
    shadowed::{Entry, FromFiles},
};

/// The remedy for a limit or an override without effect for what a file has. Its removal is not suggested: it
/// would be missing when the file changes.
pub(super) const FILE_CHANGES: &str =
    "it may stay: that changes with the file; add `shadowed: true` to be told no more";
/// The same for an entry of a list.
pub(super) const FILE_CHANGES_LIST: &str = "it may stay: that changes with the file; write \
                                            `{src: ..., shadowed: true}` to be told no more";

/// The place of an entry, and whether it may be without effect.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) at: Place,
    /// Whether the entry has `shadowed: true`.
    pub(super) shadowed: bool,
    /// Whether the entry is left out of the policy, for what a file has.
    pub(super) left_out: bool,
}

impl Spot {
    /// An entry at a place; `fields` are its keys, if it is a mapping.
    pub(super) fn new(
        at: Place,
        fields: Option<&Fields<'_, '_>>,
        findings: &mut Findings<'_>,
    ) -> Self {
        let node = fields.and_then(|fields| fields.get("shadowed"));
        let shadowed = node.and_then(|node| flag(node, findings)) == Some(true);
        Self { at, shadowed, left_out: false }
    }
}

/// Reports prefixes of a tenant that are narrower than a source: the source would not belong to one tenant.
pub(super) fn tenant(
    tenant: &Group,
    prefixes: &[IpNet],
    policy: &Policy,
    findings: &mut Findings<'_>,
) {
    let of = format!(" of {}", tenant.object());
    whole(prefixes, policy.key_prefix, &of, (tenant.at, LONGER), findings);
}

/// Reports limits with the name of an earlier one, and limits that do the same as an earlier one.
pub(super) fn limits(found: &[Found], findings: &mut Findings<'_>) {
    let mut names: HashMap<&str, Place> = HashMap::new();
    for (index, Found { limit, spot: Spot { at, .. }, .. }) in found.iter().enumerate() {
        if let Some(&first) = names.get(limit.name.as_str()) {
            let message = format!("there are two limits {}", ticked(&limit.name));
            findings.add(*at, message, format!("the first is on line {}", findings.line(first)));
        }
        names.entry(&limit.name).or_insert(*at);
        let same =
            found[..index].iter().find(|Found { limit: other, .. }| do_the_same(other, limit));
        if let Some(Found { limit: other, spot: Spot { at: first, .. }, .. }) = same {
            let message = format!(
                "limit {} has the match, key and count of limit {}",
                ticked(&limit.name),
                ticked(&other.name)
            );
            let line = findings.line(*first);
            findings.add(
                *at,
                message,
                format!("merge them as `layers`; the other is on line {line}"),
            );
        }
    }
}

/// Whether two limits have the same match, key and count, in whatever order these are written.
pub(in crate::policy) fn do_the_same(a: &Limit, b: &Limit) -> bool {
    a.key == b.key && a.count == b.count && plain(&a.matching) == plain(&b.matching)
}

fn plain(matching: &Match) -> Match {
    let mut plain = Match { service: None, ..matching.clone() };
    plain.protocols.sort_unstable();
    plain.ports.sort_unstable_by_key(|range| (*range.start(), *range.end()));
    plain.icmp_types.sort_unstable();
    plain.interfaces.sort_unstable();
    for whoms in [
        &mut plain.sources,
        &mut plain.destinations,
        &mut plain.except_sources,
        &mut plain.except_destinations,
    ] {
        whoms.sort_unstable();
    }
    plain
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
    if total > PREFIXES {
        let message = format!("the policy has {total} prefixes, more than {PREFIXES}");
        findings.add(at, message, "write neighbouring prefixes as a wider one");
    }
}

impl Policy {
    /// The number of prefixes in all sets, tenants, lists and overrides.
    pub fn number_of_prefixes(&self) -> usize {
        let sets = self.sets.values().chain(self.tenants.values()).map(Vec::len).sum::<usize>();
        let lists = self.allow.len() + self.deny.len() + self.penalties.len();
        sets + lists + self.limits.iter().map(|limit| limit.overrides.len()).sum::<usize>()
    }
}
