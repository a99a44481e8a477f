//! Reads overrides: other allowances for some sources or tenants.

use std::collections::HashMap;

use ipnet::IpNet;

use super::{
    allowance::{is_given, written_burst},
    fault::Findings,
    fields::{Fields, list},
    key::{source_lengths, whole},
    layers::{never_refusing, shortest_period},
    names::Algorithm,
    scalar::{self, flag, suggest},
    shape::{self, Shape},
    source::{Place, ticked},
    spot::Spot,
    terms::{KEYS, Terms, algorithm_of},
    tree::{Node, Value},
    unit::Unit,
};
use crate::policy::{
    model::{Allowance, KeyPart, KeyPrefix, Layer, Limit, Override, OverrideWhom, Policy},
    shadowed::FromFiles,
    units::{Burst, parse_prefix},
};

/// Reads the overrides of `limit`, which is complete except for them. Returns each with its place and its
/// burst as it was written.
pub(super) fn overrides(
    node: &Node<'_>,
    limit: &Limit,
    has_key: bool,
    terms: Terms<'_>,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> Vec<(Override, Spot, Option<Burst>)> {
    let mut found = Vec::new();
    let mut seen: HashMap<OverrideWhom, Place> = HashMap::new();
    let nodes = list(node, findings);
    if nodes.is_empty() && matches!(node.value, Value::List(_)) {
        findings.add(node.at, "the list is empty", "remove the key");
    }
    let own = |layer: &Layer| layer.key.clone().unwrap_or_else(|| limit.key.clone());
    let of_limit: Vec<_> = limit.layers.iter().map(|it| (it.allowance, own(it))).collect();
    for node in nodes {
        let Some(fields) = Fields::read(node, &shape::OVERRIDE, findings) else { continue };
        let whom = whom(&fields, known.0, findings);
        if whom.is_none() && ["src", "tenant"].iter().all(|key| fields.get(key).is_none()) {
            let message = "an override needs `src` or `tenant`";
            let remedy = "say for whom it is, such as `src: 198.51.100.0/24`";
            findings.add(fields.at, message, remedy);
        }
        let layers = layers(&fields, &of_limit, (terms, &shape::ALLOWANCE), findings);
        let Some((whom, at)) = whom else { continue };
        if let Some(&first) = seen.get(&whom) {
            let message = format!("{} has two overrides", shown(&whom));
            findings.add(at, message, format!("the first is on line {}", findings.line(first)));
            continue;
        }
        seen.insert(whom.clone(), at);
        if has_key {
            check_key(&whom, at, limit, known, findings);
        }
        let Some(layers) = layers else { continue };
        let spot = Spot::new(at, Some(&fields), findings);
        found.push((Override { whom, layers }, spot, written_burst(&fields, terms.unit)));
    }
    found
}

/// Reads the sources or the tenant that an override is for; `None` without one.
pub(super) fn whom(
    fields: &Fields<'_, '_>,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Option<(OverrideWhom, Place)> {
    match (fields.get("src"), fields.get("tenant")) {
        (Some(node), None) => {
            let prefix = scalar::value(node, parse_prefix, findings)?;
            Some((OverrideWhom::Prefix(prefix), node.at))
        }
        (None, Some(node)) => {
            let name = scalar::text(node, findings)?;
            if policy.tenants.contains_key(name) {
                return Some((OverrideWhom::Tenant(name.to_owned()), node.at));
            }
            let remedy =
                suggest(name, policy.tenants.keys().map(String::as_str), "tenants", findings);
            findings.add(node.at, format!("there is no tenant {}", ticked(name)), remedy);
            None
        }
        (Some(_), Some(node)) => {
            let message = "an override is for a prefix or for a tenant, not both";
            findings.add(node.at, message, "make it two overrides");
            None
        }
        (None, None) => None,
    }
}

/// Checks that the keys of the limit tell apart the sources that an override is for.
fn check_key(
    whom: &OverrideWhom,
    at: Place,
    limit: &Limit,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) {
    for key in limit.keys() {
        let tenants = key.parts.contains(&KeyPart::Tenant);
        let lengths = source_lengths(key, known.0.key_prefix);
        if !tells_apart((lengths, tenants), whom, at, known, findings) {
            return;
        }
    }
}

/// Checks that a key tells apart the sources that an override is for: a key with sources of these lengths, if any, and maybe
/// with tenants.
pub(super) fn tells_apart(
    (lengths, tenants): (Option<KeyPrefix>, bool),
    whom: &OverrideWhom,
    at: Place,
    (policy, files): (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> bool {
    let Some(lengths) = lengths else {
        let (message, remedy) = match (whom, tenants) {
            (OverrideWhom::Tenant(_), true) => return true,
            (OverrideWhom::Prefix(_), true) => (
                "the key is the tenant, so a prefix cannot have a rate of its own",
                "override a tenant, with `tenant: NAME`",
            ),
            _ => (
                "the key has no source, so nobody can have a rate of their own",
                "add `source` or `tenant` to the key, or remove the override",
            ),
        };
        findings.add(at, message, remedy);
        return false;
    };
    // First the prefixes of the document, so that a fault of theirs is reported whatever the file has.
    let [written, all]: [&[IpNet]; 2] = match whom {
        OverrideWhom::Prefix(prefix) => [std::slice::from_ref(prefix), &[]],
        OverrideWhom::Tenant(_) if tenants => [&[]; 2],
        OverrideWhom::Tenant(name) => {
            let all = policy.tenants.get(name).map_or(&[][..], Vec::as_slice);
            [files.certain_of_tenant(name, policy), all]
        }
    };
    let of = match whom {
        OverrideWhom::Tenant(name) => format!(" of tenant {}", ticked(name)),
        OverrideWhom::Prefix(_) => String::new(),
    };
    let narrower = (at, "count with a narrower key");
    whole(written, lengths, &of, narrower, findings) && whole(all, lengths, &of, narrower, findings)
}

/// Reads what an override admits, by mappings of a shape; `Some(None)` for everything. `of_limit` are the layers of the limit
/// with their keys.
#[expect(clippy::option_option, reason = "the outer says whether it was understood")]
pub(super) fn layers<K: PartialEq>(
    fields: &Fields<'_, '_>,
    of_limit: &[(Allowance, K)],
    (terms, shape): (Terms<'_>, &'static Shape),
    findings: &mut Findings<'_>,
) -> Option<Option<Vec<Allowance>>> {
    let unlimited = match fields.get("unlimited") {
        Some(node) => flag(node, findings)?,
        None => false,
    };
    let given = KEYS.iter().chain(&["layers"]).find_map(|key| fields.place(key));
    if unlimited {
        if let Some(at) = given {
            findings.add(at, "it is unlimited already", "remove one of the two");
            return None;
        }
        return Some(None);
    }
    if given.is_none() {
        let example = match terms.unit {
            Unit::Packets(_) => "50k pps",
            Unit::Requests { .. } => "100/min",
        };
        let remedy = format!("give it a rate, such as `rate: {example}`, or `unlimited: true`");
        findings.add(fields.at, "the override says nothing", remedy);
        return None;
    }
    let algorithms: Vec<Algorithm> = match of_limit {
        [] => vec![terms.algorithm],
        layers => layers.iter().map(|(allowance, _)| algorithm_of(allowance)).collect(),
    };
    let own = |algorithm| Terms { algorithm, ..terms };
    if let Some(node) = fields.get("layers") {
        if is_given(fields) {
            let at = KEYS.iter().find_map(|key| fields.place(key)).unwrap_or(fields.at);
            findings.add(at, "with `layers`, what is admitted is said there", "remove it");
        }
        let nodes = list(node, findings);
        check_number(nodes.len(), algorithms.len(), node.at, findings)?;
        let shortest = shortest_period(nodes, terms.unit);
        let mut found = Vec::new();
        for (node, algorithm) in nodes.iter().zip(algorithms) {
            let Some(fields) = Fields::read(node, shape, findings) else { continue };
            found.extend(Terms { shortest, ..own(algorithm) }.read(&fields, findings));
        }
        if found.len() < nodes.len() {
            return None;
        }
        let parts: Vec<_> = found
            .iter()
            .zip(of_limit)
            .zip(nodes)
            .map(|((allowance, (_, key)), node)| (*allowance, key, node.at))
            .collect();
        never_refusing(&parts, findings);
        return Some(Some(found));
    }
    check_number(1, algorithms.len(), given.unwrap_or(fields.at), findings)?;
    let algorithm = algorithms.first().copied()?;
    own(algorithm).read(fields, findings).map(|allowance| Some(vec![allowance]))
}

fn check_number(given: usize, needed: usize, at: Place, findings: &mut Findings<'_>) -> Option<()> {
    if given == needed {
        return Some(());
    }
    let message = format!("the override has {given} of the {needed} layers of the limit");
    let remedy = format!("give {needed}: `layers: [{{rate: ...}}, ...]`, or `unlimited: true`");
    findings.add(at, message, remedy);
    None
}

/// The sources of an override, for a message.
pub(super) fn shown(whom: &OverrideWhom) -> String {
    match whom {
        OverrideWhom::Prefix(prefix) => prefix.to_string(),
        OverrideWhom::Tenant(name) => format!("tenant {}", ticked(name)),
    }
}
