//! Keys and values of descriptors as names, patterns and overrides.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{
    super::{
        scalar::NAME,
        tree::{Node, Value},
    },
    get,
};
use crate::policy::{
    KeyPrefix,
    model::{
        Allowance, OverrideWhom, Pattern, RequestKeyPart, RequestMatch, RequestOverride, Whom,
    },
};

/// The values that a node is about; `None`: all.
pub(super) type Values = Option<Pattern>;

/// The values that a node is about.
pub(super) fn values(node: &Node<'_>) -> Values {
    let Some(Value::Text(text)) = get(node, "value").map(|node| &node.value) else { return None };
    Some(match text.strip_suffix('*') {
        Some(prefix) => Pattern::Prefix(prefix.to_owned()),
        None if text.is_empty() => return None,
        None => Pattern::Exact(text.to_string()),
    })
}

/// An override for these values; without an allowance, they are not limited. `None` for what is no source, as an address within one.
pub(super) fn about(
    part: &RequestKeyPart,
    pattern: &Pattern,
    allowance: Option<Allowance>,
) -> Option<RequestOverride> {
    let layers = allowance.map(|allowance| vec![allowance]);
    Some(match part {
        RequestKeyPart::Field(field) => RequestOverride {
            whom: None,
            fields: BTreeMap::from([(field.clone(), pattern.clone())]),
            layers,
        },
        _ => {
            let KeyPrefix { ipv4, ipv6 } = KeyPrefix::default();
            let longest = |prefix: &IpNet| if prefix.addr().is_ipv4() { ipv4 } else { ipv6 };
            let prefix = prefix(pattern).filter(|prefix| prefix.prefix_len() <= longest(prefix))?;
            let whom = Some(OverrideWhom::Prefix(prefix));
            RequestOverride { whom, fields: BTreeMap::new(), layers }
        }
    })
}

/// The prefixes that have all sources.
fn all_sources() -> [IpNet; 2] {
    [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

/// Overrides that exempt what has any value.
pub(super) fn any(part: &RequestKeyPart) -> Vec<RequestOverride> {
    if matches!(part, RequestKeyPart::Field(_)) {
        return about(part, &Pattern::Prefix(String::new()), None).into_iter().collect();
    }
    let prefixes = all_sources().map(|prefix| RequestOverride {
        whom: Some(OverrideWhom::Prefix(prefix)),
        fields: BTreeMap::new(),
        layers: None,
    });
    prefixes.into()
}

/// Has a match be about these values, each once, or about any if there are none. Returns whether one of them can be.
pub(super) fn restrict(
    matching: &mut RequestMatch,
    part: &RequestKeyPart,
    values: &[&Pattern],
) -> bool {
    if let RequestKeyPart::Field(field) = part {
        let any = Pattern::Prefix(String::new());
        let values = if values.is_empty() { &[&any] } else { values };
        let distinct: BTreeSet<&Pattern> = values.iter().copied().collect();
        matching.fields.insert(field.clone(), distinct.into_iter().cloned().collect());
        return true;
    }
    if values.is_empty() {
        matching.sources.extend(all_sources().map(Whom::Prefix));
        return true;
    }
    let distinct: BTreeSet<IpNet> = values.iter().copied().filter_map(prefix).collect();
    let is_any = !distinct.is_empty();
    matching.sources.extend(distinct.into_iter().map(Whom::Prefix));
    is_any
}

/// Whether what has a value of the first is, in part, what has one of the second: of any without one.
pub(super) fn is_within(part: &RequestKeyPart, inner: &Pattern, outer: Option<&Pattern>) -> bool {
    let Some(outer) = outer else { return true };
    match part {
        RequestKeyPart::Field(_) => {
            let (Pattern::Exact(text) | Pattern::Prefix(text)) = inner;
            matches!(outer, Pattern::Prefix(start) if text.starts_with(&**start)) && inner != outer
        }
        _ => prefix(outer)
            .zip(prefix(inner))
            .is_some_and(|(outer, inner)| outer.contains(&inner) && outer != inner),
    }
}

/// The prefix of a value of a source.
pub(super) fn prefix(pattern: &Pattern) -> Option<IpNet> {
    let Pattern::Exact(text) = pattern else { return None };
    let address = || text.parse::<std::net::IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().or_else(address).map(|prefix| prefix.trunc())
}

/// A text as the name of a limit or an attribute.
pub(super) fn name_of(text: &str) -> String {
    let fits = |it: char| matches!(it, 'a'..='z' | '0'..='9' | '_' | '-');
    let name = text.chars().map(|it| it.to_ascii_lowercase());
    let name = name.map(|it| if fits(it) { it } else { '-' }).take(NAME).collect::<String>();
    if name.is_empty() { "limit".to_owned() } else { name }
}

/// Whether a key is one that an attribute of a header can have.
pub(super) fn is_header(key: &str) -> bool {
    let fits = |it: u8| matches!(it, b'a'..=b'z' | b'0'..=b'9') || b"!#$%&'*+-.^_`|~".contains(&it);
    (1..=128).contains(&key.len()) && key.bytes().all(fits)
}

/// A name like this one that is not taken.
pub(super) fn unique(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if name.len() <= NAME && !is_taken(name) {
        return name.to_owned();
    }
    let short = name.get(..name.len().min(NAME - 6)).unwrap_or("limit");
    let numbered = (2..99_999).map(|number| format!("{short}-{number}"));
    numbered.into_iter().find(|name| !is_taken(name)).unwrap_or_else(|| name.to_owned())
}
