//! Finds limits, and overrides of them, that apply to no packet.

use std::collections::HashSet;

use super::{
    fault::Findings,
    fields::{Fields, list},
    overrides::shown,
    shape,
    source::Place,
    spot::{FILE_CHANGES, Spot},
};
use crate::policy::{
    model::{Key, KeyPart, Limit, Policy},
    scopes::Scopes,
    shadowed::FromFiles,
    unmet::Unmet,
};

/// What the limits of a policy apply to, in two ways: whatever its files contain, and by their present
/// contents.
pub(super) struct Passes<'p> {
    pub(super) files: &'p FromFiles,
    certain: Scopes<'p>,
    /// `None` without files: the result would be the same.
    now: Option<Scopes<'p>>,
}

impl<'p> Passes<'p> {
    pub(super) fn new(policy: &'p Policy, files: &'p FromFiles) -> Self {
        let now = (!files.is_empty()).then(|| Scopes::now(policy));
        Self { files, certain: Scopes::certain(policy, files), now }
    }
}

/// Reports what of a limit applies to no packet. `spot` and `overrides` are the places of the limit and of
/// its overrides.
pub(super) fn check(
    fields: &Fields<'_, '_>,
    limit: &Limit,
    (spot, overrides): (Spot, &[Spot]),
    (policy, passes): (&Policy, &mut Passes<'_>),
    findings: &mut Findings<'_>,
) {
    let certain = passes.certain.unmet(limit);
    // There may be as many as overrides, so each is looked up in a set.
    let known: HashSet<Unmet> = certain.iter().copied().collect();
    let now = passes.now.as_mut().map(|scopes| scopes.unmet(limit));
    let by_files = now.into_iter().flatten().filter(|unmet| !known.contains(unmet));
    let by_files = by_files.map(|unmet| (unmet, false));
    for (unmet, is_certain) in certain.into_iter().map(|unmet| (unmet, true)).chain(by_files) {
        let own = match unmet {
            Unmet::Override(place) => overrides.get(place).copied(),
            _ => Some(spot),
        };
        let Some(own) = own.filter(|own| !own.shadowed) else { continue };
        let (message, remedy) = told(unmet, is_certain, limit, policy);
        for at in places(unmet, own, fields, limit, findings) {
            if is_certain {
                findings.add(at, &message, remedy);
            } else {
                findings.warn(at, &message, FILE_CHANGES);
            }
        }
    }
}

/// The message, and the remedy if the document alone is the cause.
fn told(unmet: Unmet, is_certain: bool, limit: &Limit, policy: &Policy) -> (String, &'static str) {
    let all_excepted =
        |except: &str, of: &str| format!("it matches nothing: `{except}` has all that `{of}` has");
    let take_out = "take some out of it, or remove the limit";
    match unmet {
        Unmet::Sources => (all_excepted("except", "source"), take_out),
        Unmet::Destinations => (all_excepted("except_destination", "destination"), take_out),
        Unmet::Families => (
            "it matches nothing: `source` and `destination` are of different families".to_owned(),
            "name prefixes of the same family in both",
        ),
        Unmet::Tenants => {
            let why = match policy.tenants.is_empty() {
                true => "there are none",
                false => "`match` leaves all of them out",
            };
            let message = format!("the key counts tenants only, and {why}");
            (message, "define the tenants that are meant, or count by another key")
        }
        Unmet::Override(place) => {
            let whom = limit.overrides.get(place).map(|one| shown(&one.whom)).unwrap_or_default();
            let never = if is_certain { "never" } else { "not" };
            let message = format!("the override for {whom} is {never} used: `match` leaves it out");
            (message, "remove it, or change whom the limit is about")
        }
    }
}

/// The places in the document to report.
fn places(
    unmet: Unmet,
    own: Spot,
    fields: &Fields<'_, '_>,
    limit: &Limit,
    findings: &mut Findings<'_>,
) -> Vec<Place> {
    let key = match unmet {
        Unmet::Override(_) => return vec![own.at],
        Unmet::Tenants => return keys_of_tenants(fields, limit, findings),
        Unmet::Sources => "except",
        Unmet::Destinations => "except_destination",
        Unmet::Families => "destination",
    };
    let matching = fields.get("match").and_then(|node| Fields::read(node, &shape::MATCH, findings));
    let node = matching.as_ref().and_then(|matching| matching.get(key));
    vec![node.map_or(fields.at, |node| node.at)]
}

/// The keys with a tenant: that of the limit, if it is used, and those of layers.
fn keys_of_tenants(
    fields: &Fields<'_, '_>,
    limit: &Limit,
    findings: &mut Findings<'_>,
) -> Vec<Place> {
    let of_tenants = |key: &Key| key.parts.contains(&KeyPart::Tenant);
    let own = fields.get("key").filter(|_| limit.uses_own_key() && of_tenants(&limit.key));
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
