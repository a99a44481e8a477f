//! Reads what a limit on requests is about and what they cost.

use std::collections::BTreeMap;

use super::{
    super::{
        fault::Findings,
        fields::Fields,
        lists::sources,
        scalar,
        shape::request::{COSTS, MATCH},
        source::ticked,
        tree::{Node, Value},
    },
    values::{field, named, patterns, value, warn_of_no_value},
};
use crate::policy::{
    model::{Policy, RequestCost, RequestMatch},
    shadowed::FromFiles,
};

/// Reads `match`. `known` are the policy read so far and its files.
pub(super) fn matching(
    node: &Node<'_>,
    known: (&Policy, &FromFiles),
    findings: &mut Findings<'_>,
) -> RequestMatch {
    let policy = known.0;
    let attributes: Vec<&str> = policy.attributes.keys().map(String::as_str).collect();
    let Some((fields, named)) = Fields::read_with(node, &MATCH, &attributes, findings) else {
        return RequestMatch::default();
    };
    let built_in = MATCH.keys.iter().filter_map(|key| Some((key.name, fields.get(key.name)?)));
    let properties = built_in.chain(named.iter().map(|(word, node)| (&*word.text, *node)));
    let mut found = RequestMatch::default();
    for (name, node) in properties {
        if let Some(field) = field(name, policy) {
            let patterns = patterns(node, &field, policy, findings);
            found.fields.insert(field, patterns);
        }
    }
    let mut of = |key| fields.get(key).map(|node| sources(node, known, findings));
    found.sources = of("source").unwrap_or_default();
    found.except_sources = of("except").unwrap_or_default();
    found
}

/// Reads `cost`: a number, or one for each value of a property.
pub(super) fn cost(
    node: &Node<'_>,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Option<RequestCost> {
    let Value::Map(_) = node.value else {
        return weight(node, findings).map(|default| RequestCost { default, ..Default::default() });
    };
    let fields = Fields::read(node, &COSTS, findings)?;
    let default = match fields.get("default") {
        Some(node) => weight(node, findings)?,
        None => 1,
    };
    let (by, values) = match (fields.get("by"), fields.get("values")) {
        (None, None) => return Some(RequestCost { default, ..Default::default() }),
        (Some(by), Some(values)) => (by, values),
        (Some(node), None) => {
            let remedy = "say what values cost, such as `values: {POST: 5}`";
            findings.add(node.at, "`by` needs `values`", remedy);
            return None;
        }
        (None, Some(node)) => {
            findings.add(node.at, "`values` needs `by`", "say of what, such as `by: method`");
            return None;
        }
    };
    let by = named(by, policy, findings)?;
    let Value::Map(pairs) = &values.value else {
        scalar::expected(values, "a mapping from values to costs", findings);
        return None;
    };
    if pairs.is_empty() {
        findings.add(
            values.at,
            "there are no values",
            "give one, such as `POST: 5`, or remove `by`",
        );
    }
    if let Some((word, _)) = pairs.get(scalar::ENTRIES) {
        let message = format!("there are {} values, more than {}", pairs.len(), scalar::ENTRIES);
        findings.add(word.at, message, "make it several limits");
    }
    let mut costs = BTreeMap::new();
    for (word, node) in pairs.iter().take(scalar::ENTRIES) {
        let cost = weight(node, findings);
        if word.text.contains('*') {
            let message = format!("{} is no value: costs are of whole values", ticked(&word.text));
            findings.add(
                word.at,
                message,
                "write each value, or an attribute of `path` that has one for all",
            );
            continue;
        }
        let Some(value) = value(&word.text, word.at, &by, policy, findings) else { continue };
        warn_of_no_value(&value, word.at, &by, policy, findings);
        if costs.insert(value, cost.unwrap_or(1)).is_some() {
            let message = format!("{} is given twice", ticked(&word.text));
            findings.add(word.at, message, "remove one of the two");
        }
    }
    Some(RequestCost { default, by: Some(by), values: costs })
}

fn weight(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<u16> {
    let cost = scalar::whole(node, "cost", 1..=u64::from(u16::MAX), findings)?;
    u16::try_from(cost).ok()
}
