//! The changes from one policy to another.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use ipnet::IpNet;

use super::{
    control::{budget_text, control_entries},
    names::{GLOBAL_MODES, word_for},
    request::write::{admitted_by, attribute_text, override_conditions, request_entries},
    shape::LIMITS,
    terms::Terms,
    text::{Written, listed_text, scalar, service_text},
    write_limit::{limit_entries, override_text, written_algorithm},
};
use crate::{
    output::number::grouped,
    policy::model::{Limit, Listed, OverrideWhom, Policy, RequestLimit},
};

/// The most changes of a list that are printed one by one; the others are only counted.
const EACH: usize = 8;

/// A change of a policy. It prints as a line with its path in the document: `+` for an addition, `-` for a
/// removal, and `~` for another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `+`, `-` or `~`.
    pub sign: char,
    /// The path in the document, such as `limits.web.rate`.
    pub path: String,
    /// The value, or the old and the new one; may be empty.
    pub what: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sign, path, what } = self;
        let colon = if what.is_empty() { "" } else { ": " };
        write!(f, "{sign} {path}{colon}{what}")
    }
}

/// Returns the changes from `old` to `new`, in the order of the document; empty if the policies are the same.
/// Marks `shadowed` are left out: they follow from the rest.
pub fn diff(old: &Policy, new: &Policy) -> Vec<Change> {
    let mut changes = Changes(Vec::new());
    let mode = |policy: &Policy| word_for(&policy.mode, &GLOBAL_MODES).unwrap_or_default();
    changes.value("mode", mode(old), mode(new));
    let lengths =
        |policy: &Policy| format!("/{} and /{}", policy.key_prefix.ipv4, policy.key_prefix.ipv6);
    changes.value("defaults.key_prefix", &lengths(old), &lengths(new));
    changes.sets("sets", &old.sets, &new.sets);
    changes.sets("tenants", &old.tenants, &new.tenants);
    let services = |policy: &Policy| {
        let text = policy.services.iter().map(|(name, one)| (scalar(name), service_text(one)));
        text.collect::<Vec<_>>()
    };
    changes.pairs("services", &services(old), &services(new));
    for (name, old, new) in [
        ("allow", &old.allow, &new.allow),
        ("deny", &old.deny, &new.deny),
        ("penalties", &old.penalties, &new.penalties),
    ] {
        changes.list(name, old, new);
    }
    let control = |policy: &Policy| {
        let entries = control_entries(&policy.control).into_iter();
        entries.map(|(key, value)| (key.to_owned(), flat(&value))).collect::<Vec<_>>()
    };
    changes.pairs("control", &control(old), &control(new));
    let non_ip = |policy: &Policy| policy.non_ip.as_ref().map_or("off".to_owned(), budget_text);
    changes.value("non_ip", &non_ip(old), &non_ip(new));
    let attributes = |policy: &Policy| {
        let all = policy.attributes.iter();
        all.map(|(name, one)| (scalar(name), attribute_text(one))).collect::<Vec<_>>()
    };
    changes.pairs("attributes", &attributes(old), &attributes(new));
    changes.limits("", &Shown::on_packets(old), &Shown::on_packets(new));
    changes.limits(" on requests", &Shown::on_requests(old), &Shown::on_requests(new));
    changes.0
}

struct Changes(Vec<Change>);

impl Changes {
    fn push(&mut self, sign: char, path: impl Into<String>, what: impl Into<String>) {
        self.0.push(Change { sign, path: path.into(), what: what.into() });
    }

    fn value(&mut self, path: &str, old: &str, new: &str) {
        if old != new {
            self.push('~', path, format!("{old} -> {new}"));
        }
    }

    fn sets(
        &mut self,
        list: &str,
        old: &BTreeMap<String, Vec<IpNet>>,
        new: &BTreeMap<String, Vec<IpNet>>,
    ) {
        let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for name in names {
            let path = format!("{list}.{name}");
            match (old.get(name), new.get(name)) {
                (Some(old), None) => self.push('-', path, prefixes(old.len())),
                (None, Some(new)) => self.push('+', path, prefixes(new.len())),
                (Some(old), Some(new)) if old != new => {
                    let [before, after] =
                        [old, new].map(|prefixes| prefixes.iter().collect::<BTreeSet<_>>());
                    let added = after.difference(&before).count();
                    let removed = before.difference(&after).count();
                    let counts = [('+', added), ('-', removed)].into_iter();
                    let counts: Vec<_> = counts
                        .filter(|&(_, count)| count > 0)
                        .map(|(sign, count)| format!("{sign}{}", grouped(count as u64)))
                        .collect();
                    self.push('~', path, format!("{} prefixes", counts.join(" ")));
                }
                _ => {}
            }
        }
    }

    /// Compares values by name.
    fn pairs(&mut self, list: &str, old: &[(String, String)], new: &[(String, String)]) {
        let [before, after] =
            [old, new].map(|pairs| pairs.iter().cloned().collect::<BTreeMap<_, _>>());
        let mut found = Vec::new();
        let gone = old.iter().filter(|(name, _)| !after.contains_key(name));
        found.extend(gone.map(|(name, value)| ('-', name, value.clone())));
        for (name, value) in new {
            match before.get(name) {
                None => found.push(('+', name, value.clone())),
                Some(old) if old != value => found.push(('~', name, format!("{old} -> {value}"))),
                Some(_) => {}
            }
        }
        for (sign, name, what) in found.iter().take(EACH) {
            self.push(*sign, format!("{list}.{name}"), what.clone());
        }
        if found.len() > EACH {
            let rest = &found[EACH..];
            let count = |sign| rest.iter().filter(|&&(other, ..)| other == sign).count();
            let counts: Vec<_> = ['+', '-', '~']
                .map(|sign| (sign, count(sign)))
                .into_iter()
                .filter(|&(_, count)| count > 0)
                .map(|(sign, count)| format!("{sign}{}", grouped(count as u64)))
                .collect();
            self.push('~', list, format!("{} more", counts.join(" ")));
        }
    }

    fn list(&mut self, name: &str, old: &[Listed], new: &[Listed]) {
        let [before, after] = [old, new]
            .map(|list| list.iter().map(|one| listed_text(one, false)).collect::<BTreeSet<_>>());
        let gone = before.difference(&after).map(|entry| ('-', entry));
        let added = after.difference(&before).map(|entry| ('+', entry));
        let found: Vec<_> = gone.chain(added).collect();
        for (sign, entry) in found.iter().take(EACH) {
            self.push(*sign, name, (*entry).clone());
        }
        if let Some(more) = found.len().checked_sub(EACH).filter(|&more| more > 0) {
            self.push('~', name, format!("{} more", grouped(more as u64)));
        }
    }

    /// Compares the limits of one kind. `on` tells the kind in the change of their order.
    fn limits(&mut self, on: &str, old: &[Shown], new: &[Shown]) {
        let find = |limits: &'_ [Shown], name: &str| limits.iter().position(|it| it.name == name);
        for limit in old.iter().filter(|limit| find(new, &limit.name).is_none()) {
            self.push('-', format!("limits.{}", limit.name), "");
        }
        for limit in new {
            let path = format!("limits.{}", limit.name);
            let Some(before) = find(old, &limit.name).and_then(|place| old.get(place)) else {
                self.push('+', path, limit.summary());
                continue;
            };
            self.pairs(&path, &before.entries, &limit.entries);
            let path = format!("{path}.overrides");
            self.pairs(&path, &before.overrides, &limit.overrides);
            if limit.first_override_counts {
                self.order(&path, "", [&before.overrides, &limit.overrides].map(|all| names(all)));
            }
        }
        let names = |limits: &[Shown]| limits.iter().map(|it| it.name.clone()).collect();
        self.order("limits", on, [names(old), names(new)]);
    }

    /// Tells of another order of the names that are in both lists.
    fn order(&mut self, path: &str, on: &str, [old, new]: [Vec<String>; 2]) {
        let [before, after] = [&old, &new].map(|names| names.iter().collect::<BTreeSet<_>>());
        let was: Vec<_> = old.iter().filter(|name| after.contains(name)).collect();
        let is: Vec<_> = new.iter().filter(|name| before.contains(name)).collect();
        if was != is {
            let first: Vec<_> = is.iter().take(LIMITS).map(|name| name.as_str()).collect();
            let more = match is.len().saturating_sub(LIMITS) {
                0 => String::new(),
                more => format!(" and {} more", grouped(more as u64)),
            };
            self.push('~', path, format!("the order{on} is now {}{more}", first.join(", ")));
        }
    }
}

/// A limit as it is written.
struct Shown {
    name: String,
    /// Its keys and values, without the overrides.
    entries: Vec<(String, String)>,
    /// The conditions of each override, and what it admits.
    overrides: Vec<(String, String)>,
    /// Whether the first override that fits counts, so that their order matters.
    first_override_counts: bool,
}

impl Shown {
    fn new(name: &str, entries: Vec<(&'static str, Written)>) -> Self {
        let entries = entries.into_iter().filter(|(key, _)| *key != "overrides");
        let entries = entries.map(|(key, value)| (key.to_owned(), flat(&value))).collect();
        let overrides = Vec::new();
        Self { name: name.to_owned(), entries, overrides, first_override_counts: false }
    }

    fn on_packets(policy: &Policy) -> Vec<Self> {
        let of = |limit: &Limit| {
            let entries = limit_entries(limit, policy.key_prefix, |_| false);
            Self { overrides: overrides(limit), ..Self::new(&limit.name, entries) }
        };
        policy.limits.iter().map(of).collect()
    }

    fn on_requests(policy: &Policy) -> Vec<Self> {
        let of = |limit: &RequestLimit| {
            let joined = |pairs: Vec<String>| pairs.join(", ");
            let overrides = limit.overrides.iter().map(|one| {
                let admitted = admitted_by(one, limit).into_iter();
                let admitted = admitted.map(|(key, value)| format!("{key}: {value}"));
                (override_conditions(one), joined(admitted.collect()))
            });
            let entries = request_entries(limit, policy.key_prefix);
            Self {
                overrides: overrides.collect(),
                first_override_counts: true,
                ..Self::new(&limit.name, entries)
            }
        };
        policy.on_requests.iter().map(of).collect()
    }

    /// The limit on one line, without its name and overrides.
    fn summary(&self) -> String {
        let entries = self.entries.iter().filter(|(key, _)| key != "name");
        let entries: Vec<_> = entries.map(|(key, value)| format!("{key}: {value}")).collect();
        entries.join(", ")
    }
}

fn names(pairs: &[(String, String)]) -> Vec<String> {
    pairs.iter().map(|(name, _)| name.clone()).collect()
}

fn overrides(limit: &Limit) -> Vec<(String, String)> {
    let terms = Terms::new(written_algorithm(limit), &limit.count);
    let text = limit.overrides.iter().map(|one| {
        let whom = match &one.whom {
            OverrideWhom::Prefix(prefix) => prefix.to_string(),
            OverrideWhom::Tenant(name) => name.clone(),
        };
        let text = override_text(one, limit, terms, false);
        // The rest follows the prefix or the name of the tenant.
        let what = text.split_once(", ").map_or("", |(_, what)| what);
        (whom, what.trim_end_matches('}').to_owned())
    });
    text.collect()
}

fn flat(value: &Written) -> String {
    match value {
        Written::One(value) => value.clone(),
        Written::Many(values) => format!("[{}]", values.join(", ")),
    }
}

fn prefixes(count: usize) -> String {
    format!("{} prefix{}", grouped(count as u64), if count == 1 { "" } else { "es" })
}
