//! The manual page on policy documents, made from their schema.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use clap_mangen::roff::{Roff, bold, roman};
use serde_json::Value;

use super::{SOURCE, paragraphs};
use crate::policy::document::schema;

/// The file name of the page.
pub(super) const NAME: &str = "limiter-policy.5";

const DESCRIPTION: &str = "\
A policy is a document in YAML. These are all of its keys, each with the path to it: [] is each entry of a \
list, NAME a name of your choice. A key that is marked with * is required.

limiter policy check FILE reports all that is wrong with a document, and limiter policy schema prints these \
keys as a JSON Schema for editors. How keys work together is in /usr/share/doc/limiter/policy.md.";

pub(super) fn render(to: &mut dyn Write) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("TH", ["limiter-policy", "5", "", SOURCE, "limiter"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("limiter-policy - policy documents of limiter")]);
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, DESCRIPTION);
    roff.control("SH", ["KEYS"]);
    keys(&mut roff, "", &schema(), &mut BTreeSet::new());
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("limiter-policy-check(8), limiter-policy-apply(8), limiter-agent(8)")]);
    roff.to_writer(to)
}

/// Adds the keys of a part of the schema, which is at `path`, and of the parts below it. A key is
/// added once.
fn keys(roff: &mut Roff, path: &str, part: &Value, told: &mut BTreeSet<String>) {
    let needed = |name: &str| {
        part["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name))
    };
    for (name, key) in part["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if told.insert(path.clone()) {
            roff.control("TP", []);
            roff.text([bold(&path), roman(if needed(name) { " *" } else { "" })]);
            let mut text = vec![key["description"].as_str().unwrap_or_default().to_owned()];
            text.extend(values(key));
            roff.text([roman(text.join(" "))]);
        }
        keys(roff, &path, key, told);
    }
    if part["additionalProperties"].is_object() {
        keys(roff, &format!("{path}.NAME"), &part["additionalProperties"], told);
    }
    if part["items"].is_object() {
        keys(roff, &format!("{path}[]"), &part["items"], told);
    }
    for one in part["anyOf"].as_array().into_iter().flatten() {
        keys(roff, path, one, told);
    }
}

/// The possible values of a key, if the schema has them.
fn values(key: &Value) -> Option<String> {
    if let Some(words) = key["enum"].as_array() {
        return Some(format!("One of {}.", joined(words)));
    }
    if let (Some(least), Some(most)) = (key["minimum"].as_u64(), key["maximum"].as_u64()) {
        return Some(format!("A number from {least} to {most}."));
    }
    if let Some(examples) = key["examples"].as_array() {
        return Some(format!("For example {}.", joined(examples)));
    }
    if key["type"] == "boolean" {
        return Some("true or false.".to_owned());
    }
    if let Some(version) = key["const"].as_u64() {
        return Some(format!("{version}."));
    }
    let below = key["anyOf"].as_array().into_iter().flatten().chain(key.get("items"));
    below.into_iter().find_map(values)
}

fn joined(words: &[Value]) -> String {
    let words = words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), Into::into));
    words.collect::<Vec<String>>().join(", ")
}
