//! Properties of requests, and the texts that they are compared with.

use super::super::{
    fault::Findings,
    scalar::{self, suggest},
    shape::request::{MATCH, OVERRIDE},
    source::{Place, ticked},
    tree::{Node, Value},
};
use crate::policy::{
    model::{AttributeSource, Field, Pattern, Policy},
    units::path_of,
};

static BUILT_IN: [Field; 4] = Field::BUILT_IN;

/// The longest text, in characters.
const LONGEST: usize = 256;

/// Whether a word has a meaning where names of attributes stand, so that none can have it as its name.
pub(in crate::policy::document) fn is_reserved(name: &str) -> bool {
    // `cost` is a parameter of the bridge, beside the properties of a request.
    ["all", "cost"].contains(&name)
        || MATCH.keys.iter().chain(OVERRIDE.keys).any(|key| key.name == name)
}

/// The property with this name: a built-in one, or an attribute.
pub(in crate::policy::document) fn field(name: &str, policy: &Policy) -> Option<Field> {
    let field = Field::from(name.to_owned());
    let is_known = match &field {
        Field::Attribute(name) => policy.attributes.contains_key(name),
        Field::Method | Field::Host | Field::Path | Field::Domain => true,
    };
    is_known.then_some(field)
}

/// The names of all properties.
pub(super) fn names(policy: &Policy) -> impl Iterator<Item = &str> {
    BUILT_IN.iter().map(Field::name).chain(policy.attributes.keys().map(String::as_str))
}

/// Reads the name of a property.
pub(super) fn named(
    node: &Node<'_>,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Option<Field> {
    let name = scalar::text(node, findings)?;
    let found = field(name, policy);
    if found.is_none() {
        let remedy = suggest(name, names(policy), "properties", findings);
        findings.add(node.at, format!("there is no property {}", ticked(name)), remedy);
    }
    found
}

/// Reads the patterns of a property, each once.
pub(super) fn patterns(
    node: &Node<'_>,
    field: &Field,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Vec<Pattern> {
    let mut found: Vec<Pattern> = Vec::new();
    if matches!(&node.value, Value::List(nodes) if nodes.is_empty()) {
        findings.add(node.at, "the list is empty", "remove the key to match all");
    }
    for node in scalar::up_to(scalar::ENTRIES, node, findings) {
        let Some(pattern) = pattern(node, field, policy, findings) else { continue };
        let Some(other) = found.iter().find(|other| meet(other, &pattern)) else {
            found.push(pattern);
            continue;
        };
        let pair = if has_all_of(other, &pattern) { [&pattern, other] } else { [other, &pattern] };
        let [narrow, wide] = pair.map(|it| ticked(&it.to_string()));
        let message = match *other == pattern {
            true => format!("{narrow} is listed twice"),
            false => format!("{narrow} is within {wide}, which is listed too"),
        };
        findings.add(node.at, message, "remove one of the two");
    }
    found
}

/// Reads a pattern of a property.
pub(super) fn pattern(
    node: &Node<'_>,
    field: &Field,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Option<Pattern> {
    let text = scalar::text(node, findings)?;
    let pattern = pattern_of(text, node.at, findings)?;
    let pattern = match pattern {
        Pattern::Exact(text) => Pattern::Exact(value(&text, node.at, field, policy, findings)?),
        Pattern::Prefix(text) if text.is_empty() => {
            is_comparable(node.at, field, policy, findings).then_some(Pattern::Prefix(text))?
        }
        Pattern::Prefix(text) => Pattern::Prefix(form(&text, node.at, field, policy, findings)?),
    };
    warn_of_never(&pattern, node.at, field, policy, findings);
    Some(pattern)
}

/// A text, or with a `*` at its end the beginning of one.
pub(super) fn pattern_of(text: &str, at: Place, findings: &mut Findings<'_>) -> Option<Pattern> {
    let pattern = match text.strip_suffix('*') {
        Some(start) => Pattern::Prefix(start.to_owned()),
        None => Pattern::Exact(text.to_owned()),
    };
    let (Pattern::Exact(plain) | Pattern::Prefix(plain)) = &pattern;
    if plain.contains('*') {
        let message = format!("in {} a `*` is not at the end", ticked(text));
        findings.add(
            at,
            message,
            "write how the text begins, and a `*` behind it, such as `/v1/*`",
        );
        return None;
    }
    Some(pattern)
}

/// A value in the form that the property has in requests; a fault if no request can have it.
pub(super) fn value(
    text: &str,
    at: Place,
    field: &Field,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Option<String> {
    let text = match field {
        // Requests are compared without it.
        Field::Host => text.trim_end_matches('.'),
        _ => text,
    };
    form(text, at, field, policy, findings)
}

/// A value, or how one begins, in the form that the property has in requests; a fault if no request can have it.
fn form(
    text: &str,
    at: Place,
    field: &Field,
    policy: &Policy,
    findings: &mut Findings<'_>,
) -> Option<String> {
    if !is_comparable(at, field, policy, findings) {
        return None;
    }
    let (value, fault) = match field {
        Field::Method => (text.to_ascii_uppercase(), None),
        // An address of IPv6 is in brackets.
        Field::Host if text.rsplit(']').next().is_some_and(|rest| rest.contains(':')) => {
            (String::new(), Some(("hosts are compared without their port", "remove the port")))
        }
        Field::Host => (text.to_ascii_lowercase(), None),
        Field::Path => (text.to_owned(), path_fault(text)),
        Field::Domain | Field::Attribute(_) => (text.to_owned(), None),
    };
    if let Some((message, remedy)) = fault {
        findings.add(at, message, remedy);
        return None;
    }
    is_sendable(&value, at, findings).then_some(value)
}

/// Why a text is no path of a request, and what to do.
pub(super) fn path_fault(text: &str) -> Option<(&'static str, &'static str)> {
    if !text.starts_with('/') {
        return Some(("this is no path", "a path begins with `/`, such as `/login`"));
    }
    if text.contains(['?', '#']) {
        return Some(("paths are compared without their query", "remove what is behind the path"));
    }
    (path_of(text).as_deref() != Some(text)).then_some((
        "no request has this path: they are compared percent-decoded, without `.`, `..` and double slashes",
        "write it as the service sees it",
    ))
}

/// Whether a request can have a text somewhere; a fault if not.
pub(super) fn is_sendable(text: &str, at: Place, findings: &mut Findings<'_>) -> bool {
    let fits =
        (1..=LONGEST).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !fits {
        let message = match text.is_empty() {
            true => "the text is empty".to_owned(),
            false => format!("{} is nothing that a request has", ticked(text)),
        };
        findings.add(at, message, format!("give 1 to {LONGEST} visible characters of ASCII"));
    }
    fits
}

/// Whether a property is compared with texts: secrets are not.
fn is_comparable(at: Place, field: &Field, policy: &Policy, findings: &mut Findings<'_>) -> bool {
    let Field::Attribute(name) = field else { return true };
    let is_secret = policy.attributes.get(name).is_some_and(|attribute| attribute.digest);
    if is_secret {
        let message = format!("only a digest of {} is kept, which equals no text", ticked(name));
        findings.add(
            at,
            message,
            "name another property, or remove `digest: true` from the attribute",
        );
    }
    !is_secret
}

/// Warns of a pattern that no value of a path attribute is of.
fn warn_of_never(
    pattern: &Pattern,
    at: Place,
    field: &Field,
    policy: &Policy,
    findings: &mut Findings<'_>,
) {
    let Field::Attribute(name) = field else { return };
    let Some(AttributeSource::Path(paths)) = policy.attributes.get(name).map(|it| &it.from) else {
        return;
    };
    if paths.iter().any(|(_, value)| pattern.accepts(value)) {
        return;
    }
    let message = format!("no path has {} for {}", ticked(&pattern.to_string()), ticked(name));
    let values = paths.iter().map(|(_, value)| value.as_str());
    let remedy = suggest(&pattern.to_string(), values, "values", findings);
    findings.warn(at, message, remedy);
}

/// Warns of a value that a path attribute never has.
pub(super) fn warn_of_no_value(
    value: &str,
    at: Place,
    field: &Field,
    policy: &Policy,
    findings: &mut Findings<'_>,
) {
    warn_of_never(&Pattern::Exact(value.to_owned()), at, field, policy, findings);
}

/// Whether all texts of the second pattern are of the first.
pub(super) fn has_all_of(wide: &Pattern, narrow: &Pattern) -> bool {
    match (wide, narrow) {
        (Pattern::Exact(wide), Pattern::Exact(narrow)) => wide == narrow,
        (Pattern::Exact(_), Pattern::Prefix(_)) => false,
        (Pattern::Prefix(wide), Pattern::Exact(narrow) | Pattern::Prefix(narrow)) => {
            narrow.starts_with(wide.as_str())
        }
    }
}

/// Whether a text can be of both patterns.
pub(super) fn meet(one: &Pattern, other: &Pattern) -> bool {
    has_all_of(one, other) || has_all_of(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As requests are compared, whose hosts have none.
    #[test]
    fn a_host_has_no_dot_at_its_end() {
        let parse = |host: &str| {
            let text = format!(
                "version: 1
limits:
  - {{ name: a, on: requests, match: {{ host: [{host}, \"b.*\"] }}, key: host, rate: 5/s,
      cost: {{ by: host, values: {{ {host}: 2 }} }}, overrides: [{{ host: {host}, rate: 1/s }}] }}"
            );
            crate::policy::document::parse("p", text.as_bytes(), &mut |_| unreachable!("no files"))
        };
        assert_eq!(parse("A.example.").unwrap(), parse("a.example").unwrap());
        let limit = &parse("a.example.").unwrap().on_requests[0];
        let texts = ["a.example".to_owned(), "b.".to_owned()];
        let hosts = &limit.matching.fields[&Field::Host];
        assert_eq!(*hosts, [Pattern::Exact(texts[0].clone()), Pattern::Prefix(texts[1].clone())]);
        assert!(parse("\".\"").unwrap_err().to_string().contains("the text is empty"));
    }

    #[test]
    fn patterns_meet_where_a_text_is_of_both() {
        let exact = |text: &str| Pattern::Exact(text.to_owned());
        let prefix = |text: &str| Pattern::Prefix(text.to_owned());
        for (one, other, all, meets) in [
            (exact("a"), exact("a"), true, true),
            (exact("a"), exact("b"), false, false),
            (prefix("a"), exact("ab"), true, true),
            (exact("ab"), prefix("a"), false, true),
            (prefix(""), prefix("a"), true, true),
            (prefix("ab"), prefix("a"), false, true),
            (prefix("a"), prefix("b"), false, false),
            (prefix("ab"), exact("a"), false, false),
        ] {
            assert_eq!(has_all_of(&one, &other), all, "{one} {other}");
            assert_eq!(meet(&one, &other), meets, "{one} {other}");
        }
    }
}
