//! The limits of the policy in force, with their bits in the tables.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use limiter_common::base::address::Address;

use crate::{
    datapath::{maps::Maps, policy::StoredPolicy},
    error::Result,
    policy::{
        KeyPrefix, Layered, Policy,
        model::{Allowance, Key, Limit, Mode, OverrideWhom, Whom},
        tables::Tallied,
        tallies,
    },
};

/// The layers and candidates of a policy, in the order in which they are asked.
pub(super) struct Entries {
    in_force: Arc<StoredPolicy>,
    tallied: Vec<Tallied>,
}

/// A layer of a limit, or its candidate.
pub(super) struct Entry<'a> {
    pub(super) bit: u64,
    pub(super) name: &'a String,
    pub(super) limit: &'a Limit,
    /// The slot that its packets are counted in.
    pub(super) tally: u32,
    pub(super) layer: usize,
    pub(super) candidate: bool,
}

/// The sources that a setting of a limit is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// All sources that no override is for.
    Default,
    /// The sources in a prefix.
    Prefix(IpNet),
    /// The sources of a tenant.
    Tenant(String),
    /// All sources; the setting is a candidate, which is counted and never enforced.
    Candidate,
}

impl Entries {
    pub(super) fn read(maps: &Maps) -> Result<Self> {
        let in_force = maps.in_force()?;
        let tallied = tallies(&in_force.policy, &in_force.held)?;
        Ok(Self { in_force, tallied })
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.in_force.policy
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let policy = self.policy();
        self.tallied.iter().enumerate().filter_map(move |(at, tallied)| {
            let limit = policy.limit(&tallied.limit)?;
            let Tallied { name, layer, candidate, place, .. } = tallied;
            let (bit, layer, candidate) = (1 << at, *layer, *candidate);
            Some(Entry { bit, name, limit, tally: *place, layer, candidate })
        })
    }

    /// The name of the tenant that has `number` in the tables.
    pub(super) fn tenant(&self, number: u32) -> Option<&String> {
        self.in_force.held.tenant_of(number)
    }

    /// The policy and the run-time lists.
    pub(super) fn layered(&self) -> Layered<'_> {
        self.in_force.layered()
    }
}

impl Entry<'_> {
    /// The key that the limit keeps its state by: the layer's own, or else that of the limit.
    pub(super) fn key(&self) -> &Key {
        let own = self.limit.layers.get(self.layer).and_then(|layer| layer.key.as_ref());
        own.filter(|_| !self.candidate).unwrap_or(&self.limit.key)
    }

    /// The mode, in a word of the policy, or `candidate`.
    pub(super) const fn mode(&self) -> &'static str {
        match self.limit.mode {
            _ if self.candidate => "candidate",
            Mode::Enforce => "enforce",
            Mode::Monitor => "monitor",
            Mode::Drop => "drop",
            Mode::Off => "off",
        }
    }

    /// What the limit admits to a source, and which sources that setting is for. `None` admits
    /// everything. The longest prefix of the overrides goes before the tenant.
    pub(super) fn set_for(
        &self,
        source: IpAddr,
        tenant: Option<&String>,
    ) -> (Option<Allowance>, Origin) {
        if self.candidate {
            return (self.limit.candidate, Origin::Candidate);
        }
        let longest = self
            .limit
            .overrides
            .iter()
            .filter_map(|entry| match &entry.whom {
                OverrideWhom::Prefix(prefix) => Some((entry, *prefix)),
                OverrideWhom::Tenant(_) => None,
            })
            .filter(|(_, prefix)| prefix.contains(&source))
            .max_by_key(|(_, prefix)| prefix.prefix_len());
        let (found, origin) = if let Some((entry, prefix)) = longest {
            (entry, Origin::Prefix(prefix))
        } else {
            let own = self.limit.overrides.iter().find_map(|entry| match &entry.whom {
                OverrideWhom::Tenant(name) if Some(name) == tenant => Some((entry, name)),
                _ => None,
            });
            let Some((entry, name)) = own else {
                let layer = self.limit.layers.get(self.layer);
                return (layer.map(|layer| layer.allowance), Origin::Default);
            };
            (entry, Origin::Tenant(name.clone()))
        };
        let allowance = found.layers.as_ref().and_then(|layers| layers.get(self.layer));
        (allowance.copied(), origin)
    }
}

/// The longest prefix in `whom` that contains an address; the prefixes of a set count as listed.
pub(super) fn prefix_having(policy: &Policy, whom: &[Whom], address: IpAddr) -> Option<IpNet> {
    let prefixes = whom.iter().flat_map(|whom| match whom {
        Whom::Prefix(prefix) => std::slice::from_ref(prefix),
        Whom::Set(name) => policy.sets.get(name).map_or(&[][..], Vec::as_slice),
    });
    let having = prefixes.filter(|prefix| prefix.contains(&address));
    having.max_by_key(|prefix| prefix.prefix_len()).copied()
}

/// The prefix that counts as one source, for a source's key.
pub(super) fn source_of(prefix: KeyPrefix, key: &Address) -> Option<IpNet> {
    let address = IpAddr::try_from(*key).ok()?;
    let length = if address.is_ipv4() { prefix.ipv4 } else { prefix.ipv6 };
    IpNet::new(address, length).ok()
}
