//! Limits that no packet meets, and overrides for nobody of their limit.
//!
//! By the document alone that is a mistake, unless it says `shadowed: true`. It comes as well with what
//! files have, and then the limit is in force all the same, so that it counts when they change.

use std::collections::HashSet;

use ipnet::IpNet;

use super::{
    model::{KeyPart, Limit, OverrideWhom, Policy},
    scopes::Scopes,
    shadowed::Entry,
};

/// Why a limit, or what of it, is about nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unmet {
    /// `except` has all that `source` has.
    Sources,
    /// `except_destination` has all that `destination` has.
    Destinations,
    /// `source` and `destination` are of different families.
    Families,
    /// A key counts tenants only, and the match leaves all of them out.
    Tenants,
    /// The match leaves out whom the override at a place is for.
    Override(usize),
}

impl Scopes<'_> {
    /// What is about nobody in a limit of the policy.
    pub(super) fn unmet(&mut self, limit: &Limit) -> Vec<Unmet> {
        let [sources, destinations] = self.both(&limit.matching);
        let tenants = &self.policy.tenants;
        let nothing = if sources.is_empty() {
            Some(Unmet::Sources)
        } else if destinations.is_empty() {
            Some(Unmet::Destinations)
        } else {
            (sources.families() == [false; 2]).then_some(Unmet::Families)
        };
        if let Some(nothing) = nothing {
            return vec![nothing];
        }
        let tenant = |(name, prefixes): (&String, &Vec<IpNet>)| {
            // Of a tenant without prefixes, nobody knows which it will have.
            prefixes.is_empty()
                || self.files.tenants.contains_key(name)
                || prefixes.iter().any(|prefix| sources.has_part_of(*prefix))
        };
        let used = |whom: &OverrideWhom| match whom {
            OverrideWhom::Prefix(prefix) => sources.has_part_of(*prefix),
            OverrideWhom::Tenant(name) => tenants.get_key_value(name).is_none_or(tenant),
        };
        let overrides = limit.overrides.iter().enumerate();
        let unused = overrides.filter(|(_, one)| !used(&one.whom));
        let mut found: Vec<_> = unused.map(|(place, _)| Unmet::Override(place)).collect();
        if limit.keys().any(|key| key.parts.contains(&KeyPart::Tenant))
            && !tenants.iter().any(tenant)
        {
            found.push(Unmet::Tenants);
        }
        found
    }
}

impl Policy {
    /// The entries that have no effect, as lists shadow them or as no packet meets them: those of which
    /// a document says `shadowed: true`.
    pub fn without_effect(&self) -> HashSet<Entry> {
        let mut found: HashSet<_> = self.shadowed().iter().map(|it| it.entry).collect();
        let mut scopes = Scopes::now(self);
        for (limit, one) in self.limits.iter().enumerate() {
            let unmet = scopes.unmet(one).into_iter();
            found.extend(unmet.map(|unmet| match unmet {
                Unmet::Override(place) => Entry::Override { limit, place },
                _ => Entry::Limit { limit },
            }));
        }
        found
    }
}
