//! Limits that no packet can meet, and overrides that apply to none of the limit's packets.
//!
//! If the document alone makes it so, that is an error, unless the entry says `shadowed: true`. If the
//! present contents of files do, it is a warning: the limit is compiled, and has an effect when the files
//! change.

use std::collections::HashSet;

use ipnet::IpNet;

use super::{
    model::{KeyPart, Limit, OverrideWhom, Policy},
    scopes::Scopes,
    shadowed::Entry,
};

/// Why a limit, or an override of it, applies to no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unmet {
    /// `except` has all addresses of `source`.
    Sources,
    /// `except_destination` has all addresses of `destination`.
    Destinations,
    /// `source` and `destination` are of different families.
    Families,
    /// A key has the tenant, and the match leaves all tenants out.
    Tenants,
    /// The match leaves out the sources of the override with this index.
    Override(usize),
}

impl Scopes<'_> {
    /// The reasons why a limit, or an override of it, applies to no packet.
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
            // A tenant without prefixes may get any.
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
    /// The entries without an effect: lists shadow them, or no packet meets them. A document marks them with
    /// `shadowed: true`.
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
