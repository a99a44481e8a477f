//! Limits, and entries of them, that are about nobody.

use ipnet::IpNet;

use super::{
    PREFIXES,
    fault::Findings,
    fields::{Fields, list},
    overrides::shown,
    reach::Spot,
    shape,
    source::Place,
};
use crate::policy::{
    model::{Key, KeyPart, Limit, OverrideWhom, Policy},
    scope::Scope,
};

/// Looks at a limit that is understood, and at where its overrides are.
pub(super) fn check(
    fields: &Fields<'_, '_>,
    limit: &Limit,
    overrides: &[Spot],
    policy: &Policy,
    findings: &mut Findings<'_>,
) {
    // More than there may be are a fault, and not gone through for each limit.
    if policy.number_of_prefixes() > PREFIXES {
        return;
    }
    let sources = Scope::of_sources(policy, &limit.matching);
    if !matches_some(fields, limit, &sources, policy, findings) {
        return;
    }
    let some = |prefixes: &[IpNet]| prefixes.iter().any(|prefix| sources.has_part_of(*prefix));
    // Of a tenant without prefixes, nobody knows which it will have.
    let tenant = |prefixes: &Vec<IpNet>| prefixes.is_empty() || some(prefixes);
    for (one, spot) in limit.overrides.iter().zip(overrides) {
        let used = match &one.whom {
            OverrideWhom::Prefix(prefix) => some(&[*prefix]),
            OverrideWhom::Tenant(name) => policy.tenants.get(name).is_none_or(tenant),
        };
        if !used {
            let whom = shown(&one.whom);
            let message = format!("the override for {whom} is never used: `match` leaves it out");
            findings.add(spot.at, message, "remove it, or change whom the limit is about");
        }
    }
    if policy.tenants.values().any(tenant) {
        return;
    }
    let message = match policy.tenants.is_empty() {
        true => "the key counts tenants only, and there are none",
        false => "the key counts tenants only, and `match` leaves all of them out",
    };
    for at in keys_of_tenants(fields, limit, findings) {
        findings.add(at, message, "define the tenants that are meant, or count by another key");
    }
}

/// Whether a packet can have such a source and destination.
fn matches_some(
    fields: &Fields<'_, '_>,
    limit: &Limit,
    sources: &Scope,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> bool {
    let matching = fields.get("match").and_then(|node| Fields::read(node, &shape::MATCH, findings));
    let at = |key| {
        let node = matching.as_ref().and_then(|matching| matching.get(key));
        node.map_or(fields.at, |node| node.at)
    };
    let destinations = Scope::of_destinations(policy, &limit.matching);
    for (scope, of, except) in
        [(sources, "source", "except"), (&destinations, "destination", "except_destination")]
    {
        if scope.is_empty() {
            let message = format!("it matches nothing: `{except}` has all that `{of}` has");
            findings.add(at(except), message, "take some out of it, or remove the limit");
            return false;
        }
    }
    let families = sources.families();
    if families == [false; 2] {
        let message = "it matches nothing: `source` and `destination` are of different families";
        findings.add(at("destination"), message, "name prefixes of the same family in both");
    }
    families != [false; 2]
}

/// Where the keys with a tenant are: that of the limit, if it is used, and those of layers.
fn keys_of_tenants(
    fields: &Fields<'_, '_>,
    limit: &Limit,
    findings: &mut Findings<'_>,
) -> Vec<Place> {
    let of_tenants = |key: &Key| key.parts.contains(&KeyPart::Tenant);
    let used = limit.layers.is_empty() || limit.layers.iter().any(|layer| layer.key.is_none());
    let own = fields.get("key").filter(|_| used && of_tenants(&limit.key));
    let mut found: Vec<Place> = own.map(|node| node.at).into_iter().collect();
    let nodes = fields.get("layers").map_or(&[][..], |node| list(node, findings));
    for (node, layer) in nodes.iter().zip(&limit.layers) {
        if layer.key.as_ref().is_some_and(of_tenants)
            && let Some(fields) = Fields::read(node, &shape::LAYER, findings)
        {
            found.extend(fields.get("key").map(|node| node.at));
        }
    }
    found
}
