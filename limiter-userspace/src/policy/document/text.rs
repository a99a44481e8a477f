//! The texts of values: single values, lists and mappings, as a document has them.

use std::fmt::Display;

use ipnet::IpNet;

use super::{
    instant::format_instant,
    ports::{protocol_name, range_name},
};
use crate::policy::model::{Listed, Service, Whom};

/// The most prefixes of a set that are written on one line.
const ON_ONE_LINE: usize = 4;

/// The value of a key: on one line, or a list with a line for each entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    One(String),
    Many(Vec<String>),
}

/// The mark of an entry without effect.
pub(super) const SHADOWED: (&str, &str) = ("shadowed", "true");

impl Written {
    /// A list of prefixes: on one line if it is short.
    pub(super) fn of_prefixes(prefixes: &[IpNet]) -> Self {
        let each = prefixes.iter().map(|prefix| scalar(&prefix.to_string()));
        if prefixes.len() <= ON_ONE_LINE {
            return Self::One(format!("[{}]", each.collect::<Vec<_>>().join(", ")));
        }
        Self::Many(each.collect())
    }
}

/// A text as a single value, in quotes where YAML would read something else.
pub(super) fn scalar(text: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-');
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if first && text.bytes().all(plain) && text != "null" {
        return text.to_owned();
    }
    // Names, prefixes and words contain nothing else to escape.
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Values as one value, or as a list.
pub(super) fn one_or_list(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<_> = values.into_iter().collect();
    match values.as_slice() {
        [value] => value.clone(),
        values => format!("[{}]", values.join(", ")),
    }
}

/// A mapping on one line.
pub(super) fn mapping<K: Display>(pairs: impl IntoIterator<Item = (K, String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// A service as a mapping.
pub(super) fn service_text(service: &Service) -> String {
    let protocols = service.protocols.iter().map(|&protocol| protocol_name(protocol));
    let mut pairs = vec![("protocol", one_or_list(protocols))];
    if !service.ports.is_empty() {
        pairs.push(("ports", one_or_list(service.ports.iter().map(range_name))));
    }
    mapping(pairs)
}

/// The name of a set, or a prefix.
pub(super) fn whom_text(whom: &Whom) -> String {
    match whom {
        Whom::Set(name) => scalar(name),
        Whom::Prefix(prefix) => scalar(&prefix.to_string()),
    }
}

/// An entry of a list; `shadowed` tells whether it has no effect.
pub(super) fn listed_text(listed: &Listed, shadowed: bool) -> String {
    let whom = whom_text(&listed.whom);
    let until = listed.until.map(|until| ("until", format!("\"{}\"", format_instant(until))));
    if until.is_none() && !shadowed {
        return whom;
    }
    let mark = shadowed.then(|| (SHADOWED.0, SHADOWED.1.to_owned()));
    mapping([("src", whom)].into_iter().chain(until).chain(mark))
}
