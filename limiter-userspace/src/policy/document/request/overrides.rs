//! Reads overrides of limits on requests.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;

use super::{
    super::{
        fault::Findings,
        fields::{Fields, list},
        key::{LONGER, whole},
        overrides::{layers, tells_apart, whom},
        shape::request::{ALLOWANCE, OVERRIDE},
        source::{Place, ticked},
        terms::Terms,
        tree::{Node, Value},
    },
    key::{has_field, source_lengths},
    values::{field, meet, pattern},
};
use crate::policy::{
    model::{Field, OverrideWhom, Pattern, Policy, RequestKeyPart, RequestLimit, RequestOverride},
    scope::Scope,
    shadowed::FromFiles,
};

/// What properties have to be.
type Texts = BTreeMap<Field, Pattern>;
/// The conditions of an override.
type Conditions = (Option<OverrideWhom>, Texts);
/// The places of overrides by their conditions.
type Places = HashMap<Texts, HashMap<Option<OverrideWhom>, Place>>;

/// A limit whose overrides are read.
pub(super) struct Of<'l> {
    /// The limit, complete except for its overrides.
    pub(super) limit: &'l RequestLimit,
    /// Whether its key could be read.
    pub(super) has_key: bool,
    /// The sources that it is about.
    pub(super) sources: &'l Scope,
}

/// Reads the overrides of a limit.
pub(super) fn overrides(
    node: &Node<'_>,
    &Of { limit, has_key, sources }: &Of<'_>,
    terms: Terms<'_>,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> Vec<RequestOverride> {
    let policy = known.0;
    let attributes: Vec<&str> = policy.attributes.keys().map(String::as_str).collect();
    let of_limit: Vec<_> = limit
        .layers
        .iter()
        .enumerate()
        .map(|(place, layer)| (layer.allowance, limit.key_of_layer(place)))
        .collect();
    let nodes = list(node, findings);
    if nodes.is_empty() && matches!(node.value, Value::List(_)) {
        findings.add(node.at, "the list is empty", "remove the key");
    }
    let mut found = Vec::new();
    let mut before = Places::new();
    for node in nodes {
        let total = findings.total();
        let Some((fields, named)) = Fields::read_with(node, &OVERRIDE, &attributes, findings)
        else {
            continue;
        };
        let whom = whom(&fields, policy, findings);
        let built_in =
            OVERRIDE.keys.iter().filter_map(|key| Some((key.name, fields.get(key.name)?)));
        let properties = built_in.chain(named.iter().map(|(word, node)| (&*word.text, *node)));
        let mut conditions = BTreeMap::new();
        for (name, node) in properties {
            if let Some(field) = field(name, policy)
                && let Some(pattern) = pattern(node, &field, policy, findings)
            {
                if limit
                    .matching
                    .fields
                    .get(&field)
                    .is_some_and(|own| !own.iter().any(|it| meet(it, &pattern)))
                {
                    let message = format!(
                        "the override is never used: `match` leaves this {} out",
                        ticked(name)
                    );
                    findings.add(node.at, message, "remove it, or change what the limit is about");
                }
                conditions.insert(field, pattern);
            }
        }
        if whom.is_none() && conditions.is_empty() && findings.total() == total {
            let message = "an override needs `src`, `tenant` or a property";
            findings.add(
                fields.at,
                message,
                "say for what it is, such as `src: 198.51.100.0/24` or `method: POST`",
            );
        }
        let layers = layers(&fields, &of_limit, (terms, &ALLOWANCE), findings);
        let at = whom.as_ref().map_or(fields.at, |(_, at)| *at);
        let conditions = (whom.map(|(whom, _)| whom), conditions);
        if findings.total() > total {
            continue;
        }
        if let Some(first) = earlier(&conditions, &before) {
            let message = "the override is never used: one before it has all that it is for";
            let line = findings.line(*first);
            findings.add(at, message, format!("write it above line {line}, or remove it"));
            continue;
        }
        let Some(layers) = layers else { continue };
        if about_sources(&conditions, at, sources, known, findings)
            && (!has_key || layers.is_none() || has_keys(&conditions, at, limit, known, findings))
        {
            let (whom, fields) = conditions;
            before.entry(fields.clone()).or_default().insert(whom.clone(), at);
            found.push(RequestOverride { whom, fields, layers });
        }
    }
    found
}

/// The place of an override before that is for all that this one is for, with the same properties or with none.
fn earlier<'a>((whom, texts): &Conditions, before: &'a Places) -> Option<&'a Place> {
    let around = match whom {
        Some(OverrideWhom::Prefix(prefix)) => Some(*prefix),
        Some(OverrideWhom::Tenant(_)) | None => None,
    };
    [texts, &Texts::new()].into_iter().find_map(|texts| {
        let before = before.get(texts)?;
        let of_wider = || {
            let mut wider = std::iter::successors(around, IpNet::supernet);
            wider.find_map(|prefix| before.get(&Some(OverrideWhom::Prefix(prefix))))
        };
        before.get(&None).or_else(|| before.get(whom)).or_else(of_wider)
    })
}

/// Checks that the limit is about the sources of an override, and that these are whole ones.
fn about_sources(
    (whom, _): &Conditions,
    at: Place,
    sources: &Scope,
    (policy, files): (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> bool {
    let is_about = match whom {
        None => return true,
        Some(OverrideWhom::Prefix(prefix)) => {
            let own = std::slice::from_ref(prefix);
            if !whole(own, policy.key_prefix, "", (at, LONGER), findings) {
                return false;
            }
            sources.has_part_of(*prefix)
        }
        Some(OverrideWhom::Tenant(name)) => {
            let prefixes = policy.tenants.get(name).map_or(&[][..], Vec::as_slice);
            files.tenants.contains_key(name)
                || prefixes.is_empty()
                || prefixes.iter().any(|prefix| sources.has_part_of(*prefix))
        }
    };
    if !is_about {
        let message = "the override is never used: `match` leaves its sources out";
        findings.add(at, message, "remove it, or change whom the limit is about");
    }
    is_about
}

/// Checks that each key of the limit tells apart what an override with rates is for: it has states of its own.
fn has_keys(
    (whom, fields): &Conditions,
    at: Place,
    limit: &RequestLimit,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> bool {
    limit.keys().all(|key| {
        if let Some(field) = fields.keys().find(|field| !has_field(key, field)) {
            let name = ticked(field.name());
            let message =
                format!("the key has no {name}, so no value of it can have a rate of its own");
            let remedy =
                format!("add {name} to the key, or make it a limit with {name} in `match`");
            findings.add(at, message, remedy);
            return false;
        }
        let Some(whom) = whom else { return true };
        let tenants = key.parts.contains(&RequestKeyPart::Tenant);
        let lengths = source_lengths(key, known.0.key_prefix);
        tells_apart((lengths, tenants), whom, at, known, findings)
    })
}
