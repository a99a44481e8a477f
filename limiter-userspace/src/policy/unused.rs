//! Entries of a policy that decide nothing, since others are asked before them.
//!
//! They do no harm, and they come and go with the lists: a source that is denied during an attack
//! keeps its override for the time after it. So they are told, and never refused.

use std::fmt;

use ipnet::IpNet;

use super::{
    edit_lists::List,
    model::{Listed, OverrideWhom, Policy, Whom},
    spec::Cover,
    units::printable,
};

/// An entry that decides nothing as long as another is on a list for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unused {
    /// An override.
    Override {
        /// The place of its limit.
        limit: usize,
        /// Its place in the limit.
        place: usize,
        /// The name of the limit.
        name: String,
        /// For whom it is.
        prefix: IpNet,
        /// The list that is asked first.
        list: List,
        /// What of the list includes it.
        by: Around,
    },
    /// An entry of [`Policy::deny`].
    Deny {
        /// Its place in the list.
        place: usize,
        /// Whom it is for.
        whom: Whom,
        /// What of `allow` includes it; `None` for several that do together.
        by: Option<Around>,
    },
}

/// A prefix of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    prefix: IpNet,
    /// The set that it came from.
    set: Option<String>,
}

impl Policy {
    /// The entries that decide nothing.
    pub fn unused(&self) -> Vec<Unused> {
        let [allowed, denied] = [List::Allow, List::Deny].map(|list| self.cover(list));
        let mut found = Vec::new();
        for (place, listed) in self.deny.iter().enumerate() {
            let prefixes = self.prefixes(&listed.whom);
            // A set that is allowed in part still denies the rest.
            if prefixes.is_empty()
                || !prefixes.iter().all(|&prefix| allowed.around(prefix).is_some())
            {
                continue;
            }
            let by = match listed.whom {
                Whom::Prefix(prefix) => allowed.around(prefix).map(Around::new),
                Whom::Set(_) => None,
            };
            found.push(Unused::Deny { place, whom: listed.whom.clone(), by });
        }
        for (limit, one) in self.limits.iter().enumerate() {
            for (place, entry) in one.overrides.iter().enumerate() {
                let OverrideWhom::Prefix(prefix) = entry.whom else { continue };
                let lists = [(&allowed, List::Allow), (&denied, List::Deny)];
                let first = lists
                    .into_iter()
                    .find_map(|(cover, list)| Some((list, Around::new(cover.around(prefix)?))));
                if let Some((list, by)) = first {
                    let name = one.name.clone();
                    found.push(Unused::Override { limit, place, name, prefix, list, by });
                }
            }
        }
        found
    }

    fn cover(&self, list: List) -> Cover<&Whom> {
        let mut all = Vec::new();
        // One that ends hides nothing for ever.
        for Listed { whom, .. } in self.list(list).iter().filter(|listed| listed.until.is_none()) {
            all.extend(self.prefixes(whom).iter().map(|&prefix| (prefix, whom)));
        }
        Cover::new(all)
    }
}

impl Around {
    fn new((prefix, whom): &(IpNet, &Whom)) -> Self {
        let set = match whom {
            Whom::Set(name) => Some(name.clone()),
            Whom::Prefix(_) => None,
        };
        Self { prefix: *prefix, set }
    }
}

impl Unused {
    /// What to do about it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Override { list: List::Allow, .. } => "remove one; `allow` comes before limits",
            Self::Override { .. } => "remove one; `deny` comes before limits",
            Self::Deny { .. } => "`allow` is asked first; remove one of the two",
        }
    }
}

impl fmt::Display for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.set {
            None => write!(f, "{}", self.prefix),
            Some(set) => write!(f, "{} of set {}", self.prefix, ticked(set)),
        }
    }
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Override { name, prefix, list, by, .. } => {
                let (name, list) = (ticked(name), ticked(list.name()));
                write!(f, "limit {name}: the override for {prefix} is never used: {list} has {by}")
            }
            Self::Deny { whom: Whom::Prefix(prefix), by: Some(by), .. } => {
                write!(f, "`deny`: {prefix} is never denied: `allow` has {by}")
            }
            Self::Deny { whom: Whom::Prefix(prefix), by: None, .. } => {
                write!(f, "`deny`: {prefix} is never denied: `allow` has it")
            }
            Self::Deny { whom: Whom::Set(name), .. } => {
                let name = ticked(name);
                write!(f, "`deny`: set {name} is never denied: `allow` has all of it")
            }
        }
    }
}

/// A name in backquotes, safe to print on a terminal.
fn ticked(name: &str) -> String {
    format!("`{}`", printable(name, 64))
}

#[cfg(test)]
mod tests {
    use crate::policy::spec::parse;

    #[test]
    fn what_decides_nothing_is_told() {
        let text = "version: 1\nsets: {a: {cidrs: [192.0.2.7]}, b: {cidrs: [192.0.2.8, 10.0.0.1]}}\n\
             allow: [192.0.2.0/24, {src: 198.51.100.0/24, until: \"2030-01-01T00:00:00Z\"}]\n\
             deny: [a, b, 192.0.2.9, 198.51.100.7, 203.0.113.0/24]\n\
             limits:\n  - {name: web, key: source, overrides: [{src: 203.0.113.9, rate: 5/s},\
             {src: 192.0.2.9, unlimited: true}, {src: 198.51.100.8, rate: 1/s}]}\n";
        let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
        let told: Vec<_> = policy.unused().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "`deny`: set `a` is never denied: `allow` has all of it",
                "`deny`: 192.0.2.9/32 is never denied: `allow` has 192.0.2.0/24",
                "limit `web`: the override for 203.0.113.9/32 is never used: `deny` has \
                 203.0.113.0/24",
                "limit `web`: the override for 192.0.2.9/32 is never used: `allow` has \
                 192.0.2.0/24",
            ]
        );
    }
}
