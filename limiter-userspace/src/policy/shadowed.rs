//! Entries of a policy that decide nothing, since a list is asked before them.
//!
//! They come and go with the lists: a source that is denied during an attack keeps its override for
//! the time after it. So no edit is refused for one, and the document says `shadowed: true` of each,
//! which is found anew whenever it is written and no part of the policy.

use std::fmt;

use ipnet::IpNet;

use super::{
    edit_lists::List,
    model::{Listed, OverrideWhom, Policy, Whom},
    spec::Cover,
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

/// What a list has for ever.
type Lasting<'p> = (List, Cover<&'p Whom>);

impl Policy {
    /// The entries that a list shadows.
    pub fn shadowed(&self) -> Vec<Shadowed<'_>> {
        let [allowed, denied] = [List::Allow, List::Deny].map(|list| self.lasting(list));
        let both: [&Lasting<'_>; 2] = [&allowed, &denied];
        let mut found = Vec::new();
        for (list, first) in [(List::Deny, &both[..1]), (List::Penalty, &both)] {
            for (place, Listed { whom, .. }) in self.list(list).iter().enumerate() {
                let single = matches!(whom, Whom::Prefix(_));
                if let Some(by) = behind(first, self.prefixes(whom), single) {
                    let (entry, what) = (Entry::Listed { list, place }, What::Listed(list, whom));
                    found.push(Shadowed { entry, what, by });
                }
            }
        }
        for (limit, one) in self.limits.iter().enumerate() {
            let sources = one.matching.sources.iter().flat_map(|whom| self.prefixes(whom));
            if let Some(by) = behind(&both, sources, false) {
                let (entry, what) = (Entry::Limit { limit }, What::Limit(&one.name));
                found.push(Shadowed { entry, what, by });
            }
            for (place, of) in one.overrides.iter().enumerate() {
                let (prefixes, single) = match &of.whom {
                    OverrideWhom::Prefix(prefix) => (std::slice::from_ref(prefix), true),
                    OverrideWhom::Tenant(name) => {
                        (self.tenants.get(name).map_or(&[][..], Vec::as_slice), false)
                    }
                };
                if let Some(by) = behind(&both, prefixes, single) {
                    let entry = Entry::Override { limit, place };
                    let what = What::Override(&one.name, &of.whom);
                    found.push(Shadowed { entry, what, by });
                }
            }
        }
        found
    }

    fn lasting(&self, list: List) -> Lasting<'_> {
        let mut all = Vec::new();
        // One that ends hides nothing for ever.
        for Listed { whom, .. } in self.list(list).iter().filter(|listed| listed.until.is_none()) {
            all.extend(self.prefixes(whom).iter().map(|&prefix| (prefix, whom)));
        }
        (list, Cover::new(all))
    }
}

/// The lists that have all of these prefixes, and what of them does; a set or a tenant is not a single
/// prefix also if it has only one. One that the lists have in part still does its work for the rest.
fn behind<'p, 'a>(
    lists: &[&Lasting<'p>],
    prefixes: impl IntoIterator<Item = &'a IpNet>,
    single: bool,
) -> Option<By<'p>> {
    let mut by = By { lists: Vec::new(), around: None };
    for &prefix in prefixes {
        let (list, around) = lists
            .iter()
            .find_map(|(list, cover)| cover.around(prefix).map(|around| (*list, *around)))?;
        if !by.lists.contains(&list) {
            by.lists.push(list);
        }
        by.around = Some(around).filter(|_| single);
    }
    (!by.lists.is_empty()).then_some(by)
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
mod tests {
    use super::*;
    use crate::policy::spec::parse;

    #[test]
    fn what_lists_have_together_shadows_a_set_and_a_tenant() {
        let text = "version: 1\nsets: {a: {cidrs: [192.0.2.7, 203.0.113.7]}}\n\
             tenants: {t: {cidrs: [192.0.2.7, 203.0.113.7]}, u: {cidrs: [192.0.2.8, 10.0.0.1]}}\n\
             allow: [192.0.2.0/24]\ndeny: [203.0.113.0/24, a]\n\
             penalties: [{src: a, shadowed: true}, {src: 203.0.113.9, shadowed: true}, 10.0.0.1]\n\
             limits:\n  - {name: web, key: source, overrides: [{tenant: t, rate: 5/s, \
             shadowed: true}, {tenant: u, rate: 1/s}]}\n";
        let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
        let told: Vec<_> = policy.shadowed().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "`penalties`: set `a` is shadowed by `allow` and `deny`, which have all of it",
                "`penalties`: 203.0.113.9/32 is shadowed by `deny`, which has 203.0.113.0/24",
                "limit `web`: the override for tenant `t` is shadowed by `allow` and `deny`, which \
                 have all of it",
            ]
        );
    }

    #[test]
    fn what_a_list_has_for_ever_shadows_others() {
        let text = "version: 1\nsets: {a: {cidrs: [192.0.2.7]}, b: {cidrs: [192.0.2.8, 10.0.0.1]}}\n\
             allow: [192.0.2.0/24, {src: 198.51.100.0/24, until: \"2030-01-01T00:00:00Z\"}]\n\
             deny: [{src: a, shadowed: true}, b, {src: 192.0.2.9, shadowed: true}, 198.51.100.7, \
             203.0.113.0/24]\n\
             limits:\n  - {name: web, key: source, overrides: [{src: 203.0.113.9, rate: 5/s, \
             shadowed: true}, {src: 192.0.2.9, unlimited: true, shadowed: true}, \
             {src: 198.51.100.8, rate: 1/s}]}\n";
        let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
        let told: Vec<_> = policy.shadowed().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "`deny`: set `a` is shadowed by `allow`, which has all of it",
                "`deny`: 192.0.2.9/32 is shadowed by `allow`, which has 192.0.2.0/24",
                "limit `web`: the override for 203.0.113.9/32 is shadowed by `deny`, which has \
                 203.0.113.0/24",
                "limit `web`: the override for 192.0.2.9/32 is shadowed by `allow`, which has \
                 192.0.2.0/24",
            ]
        );
        let entries: Vec<_> = policy.shadowed().iter().map(|shadowed| shadowed.entry).collect();
        let denied = |place| Entry::Listed { list: List::Deny, place };
        let overridden = |place| Entry::Override { limit: 0, place };
        assert_eq!(entries, [denied(0), denied(2), overridden(0), overridden(1)]);
    }
}
