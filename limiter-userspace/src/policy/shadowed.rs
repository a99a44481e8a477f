//! Entries of a policy that decide nothing, since a list is asked before them.
//!
//! They come and go with the lists: a source that is denied during an attack keeps its override for
//! the time after it. So no edit is refused for what it shadows. The document says `shadowed: true` of
//! each, which is found anew whenever it is written and no part of the policy.

mod search;

use std::{collections::HashMap, fmt};

use ipnet::IpNet;

use super::{
    lists::List,
    model::{OverrideWhom, Policy, Whom},
    units::printable,
};

/// An entry that decides nothing as long as lists have all that it is for, for ever.
#[derive(Clone, Debug)]
pub struct Shadowed<'p> {
    /// Which one it is.
    pub entry: Entry,
    what: What<'p>,
    by: By<'p>,
}

/// What an entry is shadowed by.
#[derive(Clone, Debug)]
struct By<'p> {
    /// The lists that are asked first.
    lists: Vec<List>,
    /// What of the list includes it; `None` for several prefixes that do together.
    around: Option<(IpNet, &'p Whom)>,
}

/// An entry, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Of a list.
    Listed {
        /// The list.
        list: List,
        /// Its place in the list.
        place: usize,
    },
    /// A limit.
    Limit {
        /// Its place.
        limit: usize,
    },
    /// An override.
    Override {
        /// The place of its limit.
        limit: usize,
        /// Its place in the limit.
        place: usize,
    },
}

/// What an entry is told as.
#[derive(Clone, Copy, Debug)]
enum What<'p> {
    Listed(List, &'p Whom),
    /// A limit, by its name.
    Limit(&'p str),
    /// An override of the limit of a name.
    Override(&'p str, &'p OverrideWhom),
}

/// Sets and tenants, by their names, of which a file has prefixes, each with those that it has
/// whatever is in the file.
#[derive(Clone, Debug, Default)]
pub struct FromFiles {
    /// The sets.
    pub sets: HashMap<String, Vec<IpNet>>,
    /// The tenants.
    pub tenants: HashMap<String, Vec<IpNet>>,
    /// Tenants without a file, some of whose prefixes are within others of theirs: which of these matter
    /// is up to files of others.
    pub nested: HashMap<String, Vec<IpNet>>,
}

impl FromFiles {
    /// Whether no set and no tenant has a file.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.tenants.is_empty()
    }

    /// Whether what is meant could be any prefixes.
    pub(super) fn may_be_any(&self, whom: &Whom) -> bool {
        matches!(whom, Whom::Set(name) if self.sets.contains_key(name))
    }

    /// The prefixes that are meant whatever the files have.
    pub(super) fn certain<'a>(&'a self, whom: &'a Whom, policy: &'a Policy) -> &'a [IpNet] {
        let written = match whom {
            Whom::Set(name) => self.sets.get(name),
            Whom::Prefix(_) => None,
        };
        written.map_or_else(|| policy.prefixes(whom), Vec::as_slice)
    }

    /// The prefixes of a tenant whatever the files have.
    pub(super) fn certain_of_tenant<'a>(&'a self, name: &str, policy: &'a Policy) -> &'a [IpNet] {
        let written = self.tenants.get(name).or_else(|| self.nested.get(name));
        let written = written.or_else(|| policy.tenants.get(name));
        written.map_or(&[], Vec::as_slice)
    }
}

impl Shadowed<'_> {
    /// What to do about it in a document.
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
