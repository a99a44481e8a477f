//! Reads mappings by the keys of their [`Shape`].

use std::collections::{BTreeSet, HashMap};

use super::{
    fault::Findings,
    scalar::{expected, suggest},
    shape::{self, KeyOf, Shape},
    source::{Place, ticked},
    tree::{Node, Value, Word},
};
use crate::policy::nearest::nearest;

/// The values of a mapping by their keys.
pub(super) struct Fields<'n, 't> {
    /// The place of the first key, or of the mapping if it is empty.
    pub(super) at: Place,
    values: HashMap<&'static str, (Place, &'n Node<'t>)>,
    /// The keys that were probably meant by unknown ones.
    meant: BTreeSet<&'static str>,
}

/// Keys that other tools use, with the key of this document.
const FOREIGN: [(&str, &str); 18] = [
    ("proto", "protocol"),
    ("protocols", "protocol"),
    ("dst", "destination"),
    ("dst_port", "ports"),
    ("dport", "ports"),
    ("port", "ports"),
    ("src", "source"),
    ("flags", "tcp_flags"),
    ("interfaces", "interface"),
    ("mode", "action"),
    ("source", "src"),
    ("prefix", "src"),
    ("prefixes", "cidrs"),
    ("set", "src"),
    ("period", "window"),
    ("timeout", "idle"),
    ("blocktime", "block"),
    ("fragment", "fragments"),
];

impl<'n, 't> Fields<'n, 't> {
    /// Reads a mapping. Unknown keys, repeated keys and missing keys that are needed are faults.
    pub(super) fn read(
        node: &'n Node<'t>,
        shape: &'static Shape,
        findings: &mut Findings<'_>,
    ) -> Option<Self> {
        Self::read_with(node, shape, &[], findings).map(|(fields, _)| fields)
    }

    /// Like [`read`](Self::read), for a mapping that may have keys of `names` too. Returns those with their values.
    pub(super) fn read_with(
        node: &'n Node<'t>,
        shape: &'static Shape,
        names: &[&str],
        findings: &mut Findings<'_>,
    ) -> Option<(Self, Vec<(&'n Word<'t>, &'n Node<'t>)>)> {
        let Value::Map(pairs) = &node.value else {
            expected(node, &format!("{}, a mapping,", shape.what), findings);
            return None;
        };
        let at = pairs.first().map_or(node.at, |(key, _)| key.at);
        let mut values = HashMap::with_capacity(pairs.len().min(shape.keys.len()));
        let mut meant = BTreeSet::new();
        let mut named: Vec<(&Word<'t>, &Node<'t>)> = Vec::new();
        for (word, node) in pairs {
            let Some(key) = shape.keys.iter().find(|key| key.name == word.text) else {
                if !names.contains(&&*word.text) {
                    meant.extend(unknown(word, shape, names, findings));
                } else if let Some((first, _)) = named.iter().find(|it| it.0.text == word.text) {
                    twice(word, first.at, findings);
                } else {
                    named.push((word, node));
                }
                continue;
            };
            if let Some((first, _)) = values.insert(key.name, (word.at, node)) {
                twice(word, first, findings);
            }
        }
        for key in shape.keys {
            // A misspelt key was reported already.
            if key.needed && !values.contains_key(key.name) && !meant.contains(key.name) {
                missing(key, shape, at, findings);
            }
        }
        Some((Self { at, values, meant }, named))
    }

    /// Reports a key that is missing and needed for what other keys say, unless a misspelt one was reported.
    pub(super) fn needs(&self, name: &str, shape: &Shape, findings: &mut Findings<'_>) {
        let key = shape.keys.iter().find(|key| key.name == name && !self.meant.contains(name));
        if let Some(key) = key {
            missing(key, shape, self.at, findings);
        }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&'n Node<'t>> {
        self.values.get(key).map(|&(_, node)| node)
    }

    /// The place of a key.
    pub(super) fn place(&self, key: &str) -> Option<Place> {
        self.values.get(key).map(|&(at, _)| at)
    }
}

/// Reads a mapping whose keys are names that the operator chose. Repeated and malformed names are faults.
pub(super) fn named<'n, 't>(
    node: &'n Node<'t>,
    what: &str,
    findings: &mut Findings<'_>,
) -> Vec<(&'n Word<'t>, &'n Node<'t>)> {
    let Value::Map(pairs) = &node.value else {
        expected(node, &format!("a mapping with the name of each {what}"), findings);
        return Vec::new();
    };
    let mut seen: HashMap<&str, Place> = HashMap::new();
    let mut found = Vec::new();
    for (word, node) in pairs {
        if let Some(&first) = seen.get(&*word.text) {
            twice(word, first, findings);
        } else if super::scalar::is_name(&word.text, &with_article(what), word.at, findings) {
            found.push((word, node));
        }
        seen.entry(&word.text).or_insert(word.at);
    }
    found
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// The values of a list; a fault for anything else.
pub(super) fn list<'n, 't>(node: &'n Node<'t>, findings: &mut Findings<'_>) -> &'n [Node<'t>] {
    match &node.value {
        Value::List(nodes) => nodes,
        _ => {
            expected(node, "a list", findings);
            &[]
        }
    }
}

/// Reports an unknown key; returns the key of the shape that was probably meant. `names` are the other keys that there may be.
fn unknown(
    word: &Word<'_>,
    shape: &'static Shape,
    names: &[&str],
    findings: &mut Findings<'_>,
) -> Option<&'static str> {
    if let Some((kind, remedy)) = shape::of_other_kind(shape, &word.text) {
        findings.add(word.at, format!("{} is of {kind}", ticked(&word.text)), remedy);
        return None;
    }
    let keys = || shape.keys.iter().map(|key| key.name);
    let known = || shape.keys.iter().map(|key| key.name).chain(names.iter().copied());
    let foreign = FOREIGN
        .into_iter()
        .find(|&(foreign, ours)| foreign == word.text && keys().any(|name| name == ours));
    let meant = match foreign {
        Some((_, ours)) => Some(ours),
        None if findings.is_full() => None,
        None => nearest(&word.text, known()),
    };
    let remedy = match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => suggest(&word.text, known(), "keys", findings),
    };
    findings.add(word.at, format!("{} has no key {}", shape.what, ticked(&word.text)), remedy);
    keys().find(|key| meant.is_some_and(|meant| meant == *key))
}

fn missing(key: &KeyOf, shape: &Shape, at: Place, findings: &mut Findings<'_>) {
    let message = format!("{} needs `{}`", shape.what, key.name);
    findings.add(at, message, lower(key.doc));
}

fn twice(word: &Word<'_>, first: Place, findings: &mut Findings<'_>) {
    let message = format!("{} is given twice", ticked(&word.text));
    findings.add(word.at, message, format!("the first is on line {}", findings.line(first)));
}

/// A sentence without its full stop, in lower case, to follow `help:`.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
