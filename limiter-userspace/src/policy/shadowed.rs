//! Entries of a policy that decide nothing, because a list that is evaluated before them has all of their
//! sources.
//!
//! They come and go with the lists: a source that is denied during an attack keeps its override for the time
//! after it. So no edit is refused for what it shadows. Each such entry has the mark `shadowed: true` in a
//! document. The mark is computed whenever a document is written, and is no part of the policy.

mod search;

use std::{collections::HashMap, fmt};

use ipnet::IpNet;

use super::{
    lists::List,
    model::{OverrideWhom, Policy, Whom},
    units::printable,
};

/// An entry that decides nothing while lists have all of its sources, without an end.
#[derive(Clone, Debug)]
pub struct Shadowed<'p> {
    /// The entry.
    pub entry: Entry,
    what: What<'p>,
    by: By<'p>,
}

/// The lists that shadow an entry.
#[derive(Clone, Debug)]
struct By<'p> {
    /// The lists, in the order in which they are evaluated.
    lists: Vec<List>,
    /// The prefix of the list around the entry, and how it is listed; `None` if several prefixes make up the
    /// entry.
    around: Option<(IpNet, &'p Whom)>,
}

/// An entry, by its position in the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// An entry of a list.
    Listed {
        /// The list.
        list: List,
        /// The index of the entry.
        place: usize,
    },
    /// A limit.
    Limit {
        /// The index of the limit.
        limit: usize,
    },
    /// An override.
    Override {
        /// The index of the limit.
        limit: usize,
        /// The index of the override in the limit.
        place: usize,
    },
}

/// An entry in words, for messages.
#[derive(Clone, Copy, Debug)]
enum What<'p> {
    Listed(List, &'p Whom),
    /// The name of a limit.
    Limit(&'p str),
    /// The name of the limit, and the sources of the override.
    Override(&'p str, &'p OverrideWhom),
}

/// The sets and tenants of a document that have files, each with the prefixes that the document itself lists.
#[derive(Clone, Debug, Default)]
pub struct FromFiles {
    /// The sets.
    pub sets: HashMap<String, Vec<IpNet>>,
    /// The tenants.
    pub tenants: HashMap<String, Vec<IpNet>>,
    /// The paths of the files of sets, as the document has them.
    pub set_paths: HashMap<String, String>,
    /// The paths of the files of tenants.
    pub tenant_paths: HashMap<String, String>,
    /// Tenants without a file that have prefixes within their own wider ones. Whether such a prefix matters
    /// depends on the file of another tenant. Each is here with all prefixes of the document.
    pub nested: HashMap<String, Vec<IpNet>>,
}

impl FromFiles {
    /// Whether no set and no tenant has a file.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.tenants.is_empty()
    }

    /// Whether a set has a file, so that its prefixes can change at any time.
    pub(super) fn may_be_any(&self, whom: &Whom) -> bool {
        matches!(whom, Whom::Set(name) if self.sets.contains_key(name))
    }

    /// The prefixes of `whom` that do not depend on files.
    pub(super) fn certain<'a>(&'a self, whom: &'a Whom, policy: &'a Policy) -> &'a [IpNet] {
        let written = match whom {
            Whom::Set(name) => self.sets.get(name),
            Whom::Prefix(_) => None,
        };
        written.map_or_else(|| policy.prefixes(whom), Vec::as_slice)
    }

    /// The prefixes of a tenant that do not depend on files.
    pub(super) fn certain_of_tenant<'a>(&'a self, name: &str, policy: &'a Policy) -> &'a [IpNet] {
        let written = self.tenants.get(name).or_else(|| self.nested.get(name));
        let written = written.or_else(|| policy.tenants.get(name));
        written.map_or(&[], Vec::as_slice)
    }
}

impl Shadowed<'_> {
    /// What to change in a document.
    pub const fn remedy(&self) -> &'static str {
        match self.entry {
            Entry::Listed { .. } => {
                "remove one of the two, or write `{src: ..., shadowed: true}` to keep it for the \
                 time after"
            }
            Entry::Limit { .. } | Entry::Override { .. } => {
                "remove one of the two, or add `shadowed: true` to keep it for the time after"
            }
        }
    }
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(list, Whom::Prefix(prefix)) => write!(f, "`{}`: {prefix}", list.key()),
            Self::Listed(list, Whom::Set(name)) => {
                write!(f, "`{}`: set {}", list.key(), ticked(name))
            }
            Self::Limit(limit) => write!(f, "limit {}: each of its sources", ticked(limit)),
            Self::Override(limit, OverrideWhom::Prefix(prefix)) => {
                write!(f, "limit {}: the override for {prefix}", ticked(limit))
            }
            Self::Override(limit, OverrideWhom::Tenant(name)) => {
                write!(f, "limit {}: the override for tenant {}", ticked(limit), ticked(name))
            }
        }
    }
}

impl fmt::Display for Shadowed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists: Vec<_> = self.by.lists.iter().map(|list| format!("`{}`", list.key())).collect();
        write!(f, "{} is shadowed by {}, which ", self.what, lists.join(" and "))?;
        match self.by.around {
            None if lists.len() > 1 => write!(f, "have all of it"),
            None => write!(f, "has all of it"),
            Some((prefix, Whom::Prefix(_))) => write!(f, "has {prefix}"),
            Some((prefix, Whom::Set(name))) => write!(f, "has {prefix} of set {}", ticked(name)),
        }
    }
}

/// A name in backquotes, safe to print on a terminal.
fn ticked(name: &str) -> String {
    format!("`{}`", printable(name, 64))
}

#[cfg(test)]
mod tests;
