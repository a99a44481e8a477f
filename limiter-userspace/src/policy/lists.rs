//! The lists of a policy: `allow`, `deny` and the penalties.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::model::{Listed, Policy, Whom};

/// One of the lists of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    /// [`Policy::allow`].
    Allow,
    /// [`Policy::deny`].
    Deny,
    /// [`Policy::penalties`].
    Penalty,
}

impl List {
    /// All lists, in the order in which a document evaluates them.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Deny, Self::Penalty];

    /// The name of the list's command.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Penalty => "penalty",
        }
    }

    /// The name of the list's key in a document.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Penalty => "penalties",
        }
    }
}

impl Listed {
    /// Whether the entry has ended at `now`, in seconds of Unix time.
    pub fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(name) => write!(f, "set {name}"),
            Self::Prefix(prefix) => write!(f, "{prefix}"),
        }
    }
}

impl Policy {
    /// The entries of a list.
    pub fn list(&self, list: List) -> &[Listed] {
        match list {
            List::Allow => &self.allow,
            List::Deny => &self.deny,
            List::Penalty => &self.penalties,
        }
    }

    pub(super) fn list_mut(&mut self, list: List) -> &mut Vec<Listed> {
        match list {
            List::Allow => &mut self.allow,
            List::Deny => &mut self.deny,
            List::Penalty => &mut self.penalties,
        }
    }

    /// Whether an entry of a list has an end.
    pub fn has_ends(&self) -> bool {
        let lists = [&self.allow, &self.deny, &self.penalties];
        lists.into_iter().flatten().any(|listed| listed.until.is_some())
    }

    /// Removes the entries of all lists that have ended at `now` (seconds of Unix time). Returns how many.
    pub fn drop_over(&mut self, now: u64) -> usize {
        List::ALL
            .map(|list| {
                let entries = self.list_mut(list);
                let before = entries.len();
                entries.retain(|listed| !listed.is_over(now));
                before - entries.len()
            })
            .iter()
            .sum()
    }

    /// The prefixes that `whom` stands for; none if the set does not exist.
    pub(crate) fn prefixes<'p>(&'p self, whom: &'p Whom) -> &'p [IpNet] {
        match whom {
            Whom::Prefix(prefix) => std::slice::from_ref(prefix),
            Whom::Set(name) => self.sets.get(name).map_or(&[], Vec::as_slice),
        }
    }
}
