//! The edits of the lists: `allow`, `deny` and the penalties.

use std::fmt;

use ipnet::IpNet;

use super::{
    error::PolicyError,
    model::{Listed, Policy, Whom},
    spec::Cover,
};

/// A list of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// [`Policy::allow`].
    Allow,
    /// [`Policy::deny`].
    Deny,
    /// [`Policy::penalties`].
    Penalty,
}

/// What an entry took the place of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Displaced {
    /// Whether there was an entry for the same prefix.
    pub same: bool,
    /// Entries for prefixes within it, which it includes.
    pub narrower: usize,
}

impl List {
    /// The name that commands go by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Penalty => "penalty",
        }
    }

    /// The key of the document.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Penalty => "penalties",
        }
    }
}

impl Listed {
    /// Whether it holds no more at a time of Unix, in seconds.
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

    /// Puts a prefix on a list, until a time of Unix or for ever. Entries that are over at `now` are
    /// dropped, from all lists.
    ///
    /// What it gives can be written as a document and read back. What others of the policy decide
    /// nothing any more then is told by [`shadowed`](Self::shadowed).
    ///
    /// # Errors
    /// [`PolicyError::OverrideTooNarrow`] for less than a source, [`PolicyError::ListedAlready`]
    /// when another entry includes it for ever, [`PolicyError::Shadowed`] for what `allow` hides;
    /// nothing was changed then.
    pub fn add_listed(
        &mut self,
        list: List,
        prefix: IpNet,
        until: Option<u64>,
        now: u64,
    ) -> Result<Displaced, PolicyError> {
        self.key_prefix.check_source(prefix)?;
        let new = Whom::Prefix(prefix);
        let forever = self.forever(list).into_iter().filter(|(_, whom)| **whom != new).collect();
        if let Some((_, by)) = Cover::new(forever).around(prefix) {
            let (list, by) = (list.name(), by.to_string());
            return Err(PolicyError::ListedAlready { list, prefix, by });
        }
        if list != List::Allow
            && let Some((_, by)) = Cover::new(self.forever(List::Allow)).around(prefix)
        {
            let (list, by, entry) = (list.name(), by.to_string(), prefix.to_string());
            return Err(PolicyError::Shadowed { list, entry, by });
        }
        self.drop_over(now);
        let entries = self.list_mut(list);
        let before = entries.len();
        if until.is_none() {
            let within = |listed: &Listed| matches!(listed.whom, Whom::Prefix(other) if other != prefix && prefix.contains(&other));
            entries.retain(|listed| !within(listed));
        }
        let narrower = before - entries.len();
        let same = entries.iter_mut().find(|listed| listed.whom == new);
        let displaced = Displaced { same: same.is_some(), narrower };
        match same {
            Some(listed) => listed.until = until,
            None => entries.push(Listed { whom: new, until }),
        }
        Ok(displaced)
    }

    /// Checks that an entry of a list for a prefix does not hold longer already, in seconds of Unix time.
    ///
    /// # Errors
    /// [`PolicyError::ListedLonger`].
    pub fn check_longer(
        &self,
        list: List,
        prefix: IpNet,
        until: Option<u64>,
    ) -> Result<(), PolicyError> {
        let whom = Whom::Prefix(prefix);
        let same = self.list(list).iter().find(|listed| listed.whom == whom);
        match (same.map(|listed| listed.until), until) {
            (Some(None), Some(_)) => Err(PolicyError::ListedLonger { list: list.name(), prefix }),
            (Some(Some(before)), Some(until)) if before > until => {
                Err(PolicyError::ListedLonger { list: list.name(), prefix })
            }
            _ => Ok(()),
        }
    }

    /// Takes a prefix off a list. Entries that are over at `now` are dropped, from all lists.
    ///
    /// # Errors
    /// [`PolicyError::NotListed`]; nothing was changed then.
    pub fn del_listed(&mut self, list: List, prefix: IpNet, now: u64) -> Result<(), PolicyError> {
        let whom = Whom::Prefix(prefix);
        let Some(place) = self.list(list).iter().position(|listed| listed.whom == whom) else {
            let within = self.covering(list, prefix, now).map(ToString::to_string);
            return Err(PolicyError::NotListed {
                list: list.name(),
                whom: prefix.to_string(),
                within,
            });
        };
        self.list_mut(list).remove(place);
        self.drop_over(now);
        Ok(())
    }

    /// Whether an entry of a list has an end.
    pub fn has_ends(&self) -> bool {
        let lists = [&self.allow, &self.deny, &self.penalties];
        lists.into_iter().flatten().any(|listed| listed.until.is_some())
    }

    /// Drops the entries of all lists that are over at `now`, and says how many they were.
    pub fn drop_over(&mut self, now: u64) -> usize {
        [List::Allow, List::Deny, List::Penalty]
            .map(|list| {
                let entries = self.list_mut(list);
                let before = entries.len();
                entries.retain(|listed| !listed.is_over(now));
                before - entries.len()
            })
            .iter()
            .sum()
    }

    /// The first entry of a list that holds for a whole prefix at `now`.
    pub fn covering(&self, list: List, prefix: IpNet, now: u64) -> Option<&Whom> {
        let holds = |listed: &&Listed| {
            !listed.is_over(now)
                && self.prefixes(&listed.whom).iter().any(|it| it.contains(&prefix))
        };
        self.list(list).iter().find(holds).map(|listed| &listed.whom)
    }

    /// What of a list holds for ever.
    fn forever(&self, list: List) -> Vec<(IpNet, &Whom)> {
        let entries = self.list(list).iter().filter(|listed| listed.until.is_none());
        entries
            .flat_map(|Listed { whom, .. }| {
                self.prefixes(whom).iter().map(move |&prefix| (prefix, whom))
            })
            .collect()
    }

    /// The prefixes that are meant; none of a set that is not there.
    pub(super) fn prefixes<'p>(&'p self, whom: &'p Whom) -> &'p [IpNet] {
        match whom {
            Whom::Prefix(prefix) => std::slice::from_ref(prefix),
            Whom::Set(name) => self.sets.get(name).map_or(&[], Vec::as_slice),
        }
    }
}

#[cfg(test)]
mod tests;
