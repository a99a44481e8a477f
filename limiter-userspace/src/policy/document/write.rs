//! Writes a policy as a document.

use std::fmt::Write as _;

use super::{
    control::{budget_text, control_entries},
    fault::Findings,
    file::DOCUMENT_BYTES,
    names::{GLOBAL_MODES, word_for},
    request::write::{attribute_text, request_entries},
    shape::VERSION,
    source::Source,
    text::{Written, listed_text, scalar, service_text},
    tree::{VALUES, tree},
    write_limit::limit_entries,
};
use crate::policy::{
    List, PolicyError,
    model::{GlobalMode, KeyPrefix, Policy},
    shadowed::{Entry, FromFiles},
};

/// Returns the document of a policy. Sets that were read from files are written with the contents of those,
/// and entries without effect with `shadowed: true`.
///
/// [`parse`](crate::policy::document::parse) reads it back as the same policy, if that came from a document.
pub fn to_yaml(policy: &Policy) -> String {
    to_yaml_with_files(policy, &FromFiles::default())
}

/// The same, where the sets and tenants of `files` name their files, beside the prefixes that the document itself
/// has.
pub fn to_yaml_with_files(policy: &Policy, files: &FromFiles) -> String {
    let mut text = format!("version: {VERSION}\n");
    if policy.mode != GlobalMode::default() {
        line(&mut text, 0, "mode", word_for(&policy.mode, &GLOBAL_MODES).unwrap_or_default());
    }
    if policy.key_prefix != KeyPrefix::default() {
        let KeyPrefix { ipv4, ipv6 } = policy.key_prefix;
        text.push_str("\ndefaults:\n");
        line(&mut text, 1, "key_prefix", &format!("{{ipv4: {ipv4}, ipv6: {ipv6}}}"));
    }
    for (name, sets, paths, written) in [
        ("sets", &policy.sets, &files.set_paths, &files.sets),
        ("tenants", &policy.tenants, &files.tenant_paths, &files.tenants),
    ] {
        heading(&mut text, name, sets.is_empty());
        for (name, prefixes) in sets {
            line(&mut text, 1, &scalar(name), "");
            let path = paths.get(name);
            let own = path.and(written.get(name)).unwrap_or(prefixes);
            if path.is_none() || !own.is_empty() {
                entry(&mut text, 2, 6, "cidrs", &Written::of_prefixes(own));
            }
            if let Some(path) = path {
                line(&mut text, 2, "file", &scalar(path));
            }
        }
    }
    heading(&mut text, "services", policy.services.is_empty());
    for (name, service) in &policy.services {
        line(&mut text, 1, &scalar(name), &service_text(service));
    }
    let shadowed = policy.without_effect();
    for list in [List::Allow, List::Deny, List::Penalty] {
        let entries = policy.list(list).iter().enumerate();
        let entries: Vec<_> = entries
            .map(|(place, one)| listed_text(one, shadowed.contains(&Entry::Listed { list, place })))
            .collect();
        if !entries.is_empty() {
            text.push('\n');
            entry(&mut text, 0, 2, list.key(), &Written::Many(entries));
        }
    }
    let control = control_entries(&policy.control);
    heading(&mut text, "control", control.is_empty());
    for (key, value) in &control {
        entry(&mut text, 1, 4, key, value);
    }
    if let Some(budget) = &policy.non_ip {
        text.push('\n');
        line(&mut text, 0, "non_ip", &budget_text(budget));
    }
    heading(&mut text, "attributes", policy.attributes.is_empty());
    for (name, attribute) in &policy.attributes {
        line(&mut text, 1, &scalar(name), &attribute_text(attribute));
    }
    let has_limits = !policy.limits.is_empty() || !policy.on_requests.is_empty();
    heading(&mut text, "limits", !has_limits);
    for (at, limit) in policy.limits.iter().enumerate() {
        let shadowed = |place: Option<usize>| {
            shadowed.contains(&match place {
                None => Entry::Limit { limit: at },
                Some(place) => Entry::Override { limit: at, place },
            })
        };
        item(&mut text, limit_entries(limit, policy.key_prefix, shadowed));
    }
    for limit in &policy.on_requests {
        item(&mut text, request_entries(limit, policy.key_prefix));
    }
    text
}

/// Writes a limit, as an entry of the list.
fn item(text: &mut String, entries: Vec<(&'static str, Written)>) {
    let mut indent = "  - ";
    for (key, value) in entries {
        text.push_str(indent);
        match value {
            Written::One(value) => line(text, 0, key, &value),
            Written::Many(_) => entry(text, 0, 6, key, &value),
        }
        indent = "    ";
    }
}

/// Checks that the document of a policy could be read back. It may be longer than the document that the policy was read from:
/// it has every burst, and the contents of files.
///
/// # Errors
/// [`PolicyError::TooLong`] and [`PolicyError::TooMuchToRead`].
pub fn check_length(policy: &Policy) -> Result<(), PolicyError> {
    /// The fewest bytes for a value: `{rate: 1/s, burst: 1}, ` has five.
    const SHORTEST: usize = 4;
    let most = Policy::MOST_PREFIXES;
    if policy.number_of_prefixes() > most {
        return Err(PolicyError::TooMuchToRead { what: "prefixes", most });
    }
    let (text, most) = (to_yaml(policy), DOCUMENT_BYTES);
    let bytes = text.len();
    if bytes as u64 > most {
        return Err(PolicyError::TooLong { bytes, most });
    }
    if bytes / SHORTEST > VALUES {
        let source = Source::new("policy", &text);
        if tree(&text, &mut Findings::new(&source)).is_none() {
            return Err(PolicyError::TooMuchToRead { what: "values", most: VALUES });
        }
    }
    Ok(())
}

fn heading(text: &mut String, name: &str, empty: bool) {
    if !empty {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{name}:\n");
    }
}

fn line(text: &mut String, depth: usize, key: &str, value: &str) {
    let space = if value.is_empty() { "" } else { " " };
    let _ = writeln!(text, "{:1$}{key}:{space}{value}", "", 2 * depth);
}

/// Writes a key with its value; the entries of a list are indented by `indent` spaces.
fn entry(text: &mut String, depth: usize, indent: usize, key: &str, value: &Written) {
    match value {
        Written::One(value) => line(text, depth, key, value),
        Written::Many(entries) => {
            line(text, depth, key, "");
            for entry in entries {
                let _ = writeln!(text, "{:indent$}- {entry}", "");
            }
        }
    }
}
