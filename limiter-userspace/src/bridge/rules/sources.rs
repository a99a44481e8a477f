//! What a policy says of sources: its lists, its tenants, and which limits are about whom.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;
use limiter_common::base::address::Address;

use super::index::LimitSet;
use crate::policy::{
    List, LongestPrefix, PolicyError,
    model::{OverrideWhom, Policy, Whom},
    run_time::{Stated, listing},
    tables::Context,
    units::quoted,
};

/// What holds for the sources of a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::bridge) struct SourceProfile {
    /// Until when lists apply, in nanoseconds of the monotonic clock; 0 if they do not.
    allowed: u64,
    denied: u64,
    blocked: u64,
    /// The number of the tenant, from 1; 0 for none.
    pub(super) tenant: usize,
    /// The limits that are about these sources.
    pub(super) limits: LimitSet,
    /// The overrides for these sources: the limit, and the place among its overrides; in order.
    overrides: Vec<(usize, usize)>,
}

/// What the lists say of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::bridge) enum Listed {
    /// It passes.
    Allowed,
    /// It is refused.
    Denied,
}

impl SourceProfile {
    /// What the lists say at `now`, in nanoseconds; `None` if they say nothing.
    pub(in crate::bridge) const fn listed(&self, now: u64) -> Option<Listed> {
        if now < self.allowed {
            Some(Listed::Allowed)
        } else if now < self.denied || now < self.blocked {
            Some(Listed::Denied)
        } else {
            None
        }
    }

    /// The places of the overrides of a limit that are for these sources.
    pub(super) fn overrides(&self, limit: usize) -> impl Iterator<Item = usize> {
        let from = self.overrides.partition_point(|(of, _)| *of < limit);
        self.overrides[from..].iter().take_while(move |(of, _)| *of == limit).map(|(_, at)| *at)
    }
}

/// A single thing that a policy says of a prefix.
enum Item<'p> {
    Tenant(usize),
    Stated(Stated<'p>),
    /// The limits whose match names it, and those that except it.
    Limits([LimitSet; 2]),
    /// An override of a limit.
    Override(usize, usize),
}

/// What applies to a prefix.
#[derive(Clone, Default)]
struct Said<'p> {
    tenant: usize,
    stated: Vec<Stated<'p>>,
    named: LimitSet,
    excepted: LimitSet,
    overrides: Vec<(usize, usize)>,
}

/// The sources of a policy.
#[derive(Debug)]
pub(in crate::bridge) struct Sources {
    /// The first one is that of sources within no prefix, and of requests without a source.
    profiles: Vec<SourceProfile>,
    prefixes: Option<LongestPrefix<usize>>,
}

impl Sources {
    pub(super) fn new(policy: &Policy, context: &Context) -> Result<Self, PolicyError> {
        let mut anybodys = LimitSet::default();
        let mut of_tenants: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
        let tenants: HashMap<&String, usize> = policy.tenants.keys().zip(1..).collect();
        for (limit, it) in policy.on_requests.iter().enumerate() {
            if it.matching.sources.is_empty() {
                anybodys.insert(limit);
            }
            for (at, entry) in it.overrides.iter().enumerate() {
                if let Some(OverrideWhom::Tenant(name)) = &entry.whom {
                    let undefined =
                        || PolicyError::Undefined { what: "tenant", name: quoted(name) };
                    let number = tenants.get(name).ok_or_else(undefined)?;
                    of_tenants.entry(*number).or_default().push((limit, at));
                }
            }
        }
        let profile = |said: &Said<'_>| {
            let listing = listing(&said.stated, context.unix);
            let [allowed, denied, blocked] =
                [listing.allowed, listing.denied, listing.blocked].map(|unix| context.until(unix));
            let of_tenant = of_tenants.get(&said.tenant).into_iter().flatten();
            let mut overrides: Vec<_> = said.overrides.iter().chain(of_tenant).copied().collect();
            overrides.sort_unstable();
            let limits = anybodys.with(&said.named).without(&said.excepted);
            SourceProfile { allowed, denied, blocked, tenant: said.tenant, limits, overrides }
        };
        let mut profiles = vec![profile(&Said::default())];
        let mut numbers: HashMap<SourceProfile, usize> = HashMap::new();
        let mut prefixes = Vec::new();
        let mut items = items(policy)?;
        items.sort_by_key(|(prefix, _)| *prefix);
        // Sorted, a prefix follows those that contain it, so the prefixes around the present one are a stack.
        let mut around: Vec<(IpNet, Said<'_>)> = Vec::new();
        for of_prefix in items.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((prefix, _)) = of_prefix.first() else { continue };
            while around.pop_if(|(outer, _)| !outer.contains(prefix)).is_some() {}
            let mut said = around.last().map(|(_, said)| said.clone()).unwrap_or_default();
            for (_, item) in of_prefix {
                match item {
                    Item::Tenant(number) => said.tenant = *number,
                    Item::Stated(stated) => said.stated.push(*stated),
                    Item::Limits([named, excepted]) => {
                        said.named = said.named.with(named);
                        said.excepted = said.excepted.with(excepted);
                    }
                    Item::Override(limit, at) => said.overrides.push((*limit, *at)),
                }
            }
            let profile = profile(&said);
            let number = *numbers.entry(profile).or_insert_with_key(|profile| {
                profiles.push(profile.clone());
                profiles.len() - 1
            });
            let bits = Address::FAMILY_BITS + u32::from(prefix.prefix_len());
            prefixes.push((bits, prefix.addr().into(), number));
            around.push((*prefix, said));
        }
        let prefixes = (!prefixes.is_empty()).then(|| LongestPrefix::new(prefixes));
        Ok(Self { profiles, prefixes })
    }

    /// What holds for a source.
    #[inline]
    pub(in crate::bridge) fn profile(&self, source: Option<&Address>) -> &SourceProfile {
        let around = |prefixes: &LongestPrefix<usize>| prefixes.find(source?);
        &self.profiles[self.prefixes.as_ref().and_then(around).unwrap_or(0)]
    }
}

/// The prefixes that a policy says something of, in order.
#[derive(Debug)]
pub(in crate::bridge) struct Named(Vec<IpNet>);

impl Named {
    pub(in crate::bridge) fn new(policy: &Policy) -> Result<Self, PolicyError> {
        let mut named: Vec<_> = items(policy)?.into_iter().map(|(prefix, _)| prefix).collect();
        named.sort_unstable();
        named.dedup();
        Ok(Self(named))
    }

    /// Whether it says the same of all sources of a prefix.
    pub(in crate::bridge) fn is_one(&self, prefix: &IpNet) -> bool {
        let after = self.0.partition_point(|it| it <= prefix);
        !self.0.get(after).is_some_and(|next| prefix.contains(next))
    }
}

/// What a policy says of prefixes, in any order of those.
fn items(policy: &Policy) -> Result<Vec<(IpNet, Item<'_>)>, PolicyError> {
    let mut items = Vec::new();
    for (number, prefixes) in (1..).zip(policy.tenants.values()) {
        items.extend(prefixes.iter().map(|prefix| (*prefix, Item::Tenant(number))));
    }
    for list in List::ALL {
        for entry in policy.list(list) {
            for prefix in policy.prefixes_of(std::slice::from_ref(&entry.whom))? {
                items.push((prefix, Item::Stated(Stated::of_document(list, entry, prefix))));
            }
        }
    }
    // Many limits may name the same large set, whose prefixes are processed once.
    let mut asked: BTreeMap<&Whom, [LimitSet; 2]> = BTreeMap::new();
    for (limit, it) in policy.on_requests.iter().enumerate() {
        for (at, whoms) in [&it.matching.sources, &it.matching.except_sources].iter().enumerate() {
            for whom in *whoms {
                asked.entry(whom).or_default()[at].insert(limit);
            }
        }
        for (at, entry) in it.overrides.iter().enumerate() {
            if let Some(OverrideWhom::Prefix(prefix)) = entry.whom {
                items.push((prefix, Item::Override(limit, at)));
            }
        }
    }
    for (whom, limits) in asked {
        let prefixes = policy.prefixes_of(std::slice::from_ref(whom))?;
        items.extend(prefixes.into_iter().map(|prefix| (prefix, Item::Limits(limits))));
    }
    Ok(items)
}
