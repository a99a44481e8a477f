//! Reads `attributes`: the named properties of requests.

use std::collections::BTreeMap;

use super::{
    super::{
        fault::Findings,
        fields::{Fields, named},
        scalar::{self, expected, flag},
        shape::request::ATTRIBUTE,
        source::{Place, ticked},
        tree::{Node, Value},
    },
    values::{has_all_of, is_reserved, is_sendable, path_fault, pattern_of},
};
use crate::policy::model::{Attribute, AttributeSource, Pattern, Policy};

/// The most attributes of a policy.
const MOST: usize = 64;
/// Where a request may have an attribute.
const SOURCES: [&str; 4] = ["header", "cookie", "path", "descriptor"];

/// Reads the attributes into the policy. Returns the places of their names.
pub(in crate::policy::document) fn attributes(
    node: &Node<'_>,
    policy: &mut Policy,
    findings: &mut Findings<'_>,
) -> BTreeMap<String, Place> {
    let nodes = named(node, "attribute", findings);
    if let Some((word, _)) = nodes.get(MOST) {
        let message = format!("there are {} attributes, more than {MOST}", nodes.len());
        findings.add(word.at, message, "remove those that no limit uses");
    }
    let mut places = BTreeMap::new();
    for (word, node) in nodes.into_iter().take(MOST) {
        findings.object = Some(format!("attribute {}", ticked(&word.text)));
        if is_reserved(&word.text) {
            let message = format!("{} has a meaning of its own in limits", ticked(&word.text));
            findings.add(word.at, message, "give the attribute another name");
        } else if let Some(attribute) = attribute(node, findings) {
            policy.attributes.insert(word.text.to_string(), attribute);
            places.insert(word.text.to_string(), word.at);
        }
        findings.object = None;
    }
    places
}

/// Warns of attributes that no limit uses.
pub(in crate::policy::document) fn warn_of_unused(
    policy: &Policy,
    places: &BTreeMap<String, Place>,
    findings: &mut Findings<'_>,
) {
    for (name, at) in places {
        let is_it = |field: &crate::policy::model::Field| field.name() == name;
        if !policy.on_requests.iter().any(|limit| limit.fields().any(is_it)) {
            let message = format!("no limit uses attribute {}", ticked(name));
            findings.warn(
                *at,
                message,
                "name it in `match` or `key` of a limit on requests, or remove it",
            );
        }
    }
}

fn attribute(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Attribute> {
    let fields = Fields::read(node, &ATTRIBUTE, findings)?;
    let mut given = SOURCES.iter().filter_map(|key| Some((*key, fields.get(key)?)));
    let Some((key, node)) = given.next() else {
        let message = "an attribute needs `header`, `cookie`, `path` or `descriptor`";
        findings.add(fields.at, message, "say where a request has it, such as `header: x-user-id`");
        return None;
    };
    if let Some((other, node)) = given.next() {
        let message = format!("an attribute is of `{key}` or of `{other}`, not both");
        findings.add(node.at, message, "make it two attributes");
        return None;
    }
    let digest = fields.get("digest").and_then(|node| flag(node, findings)) == Some(true);
    let from = match key {
        "header" => AttributeSource::Header(token(node, "header", findings)?.to_ascii_lowercase()),
        "cookie" => AttributeSource::Cookie(token(node, "cookie", findings)?.to_owned()),
        "descriptor" => {
            if !flag(node, findings)? {
                findings.add(node.at, "an attribute is of something", "write `descriptor: true`");
                return None;
            }
            AttributeSource::Descriptor
        }
        _ => {
            if let Some(at) = fields.place("digest").filter(|_| digest) {
                let message = "the values of `path` are in the document, so they are no secret";
                findings.add(at, message, "remove `digest`");
            }
            AttributeSource::Path(paths(node, findings)?)
        }
    };
    Some(Attribute { from, digest })
}

/// Reads the name of a header or a cookie (RFC 9110, section 5.6.2).
fn token<'n>(node: &'n Node<'_>, what: &str, findings: &mut Findings<'_>) -> Option<&'n str> {
    const LONGEST: usize = 128;
    let text = scalar::text(node, findings)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if (1..=LONGEST).contains(&text.len()) && text.bytes().all(fits) {
        return Some(text);
    }
    let message = format!("{} is no name of a {what}", ticked(text));
    findings.add(node.at, message, format!("give 1 to {LONGEST} letters, digits, `-` and `_`"));
    None
}

/// Reads patterns of paths with the value that each stands for.
fn paths(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Vec<(Pattern, String)>> {
    let Value::Map(pairs) = &node.value else {
        expected(node, "a mapping from paths to values", findings);
        return None;
    };
    if pairs.is_empty() {
        findings.add(node.at, "there are no paths", "give one, such as `/login: login`");
    }
    if let Some((word, _)) = pairs.get(scalar::ENTRIES) {
        let message = format!("there are {} paths, more than {}", pairs.len(), scalar::ENTRIES);
        findings.add(word.at, message, "write those that begin alike with a `*`");
    }
    let mut found: Vec<(Pattern, String, Place)> = Vec::new();
    for (word, node) in pairs.iter().take(scalar::ENTRIES) {
        let Some(pattern) = pattern_of(&word.text, word.at, findings) else { continue };
        let (Pattern::Exact(text) | Pattern::Prefix(text)) = &pattern;
        let is_any = pattern == Pattern::Prefix(String::new());
        if !is_any && let Some((message, remedy)) = path_fault(text) {
            findings.add(word.at, message, remedy);
            continue;
        }
        if !is_any && !is_sendable(text, word.at, findings) {
            continue;
        }
        if let Some((first, _, at)) = found.iter().find(|(it, ..)| has_all_of(it, &pattern)) {
            let first = ticked(&first.to_string());
            let message = format!("this is never reached: {first} comes before it");
            let remedy = format!("write it above line {}, or remove it", findings.line(*at));
            findings.add(word.at, message, remedy);
            continue;
        }
        let Some(value) = scalar::text(node, findings) else { continue };
        if is_sendable(value, node.at, findings) {
            found.push((pattern, value.to_owned(), word.at));
        }
    }
    Some(found.into_iter().map(|(pattern, value, _)| (pattern, value)).collect())
}
