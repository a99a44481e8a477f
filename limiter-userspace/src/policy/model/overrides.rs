//! Other allowances of a limit, and the bursts that an operator wrote.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use crate::policy::units::Burst;

/// Another allowance of a limit, for some sources or for a tenant, in place of its layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// The sources or the tenant.
    pub whom: OverrideWhom,
    /// One allowance for each layer of the limit; `None`: not limited.
    pub layers: Option<Vec<Allowance>>,
}

/// The sources that an override is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideWhom {
    /// Each key within a prefix of source addresses. Of several prefixes around a key, the longest applies.
    Prefix(IpNet),
    /// Each key of a tenant of [`Policy::tenants`](super::Policy::tenants).
    Tenant(String),
}

impl fmt::Display for OverrideWhom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => write!(f, "{prefix}"),
            Self::Tenant(name) => write!(f, "tenant {name}"),
        }
    }
}

/// The bursts that were written, of a limit and of its overrides, in their original form (a count or a time).
/// A burst that is not here is the default of the rate. Only limits and overrides with one layer have
/// entries.
///
/// They are kept for commands that change only a rate. All values are equal, so that limits that differ only
/// in the form of a burst are equal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Given(Vec<(Option<OverrideWhom>, Burst)>);

impl Given {
    /// The written burst of the override for `whom`, or of the limit itself for `None`.
    pub fn get(&self, whom: Option<&OverrideWhom>) -> Option<Burst> {
        self.0.iter().find(|(other, _)| other.as_ref() == whom).map(|(_, burst)| *burst)
    }

    /// Stores the written burst of the override for `whom`, or of the limit itself for `None`. `burst: None`
    /// removes it.
    pub fn set(&mut self, whom: Option<&OverrideWhom>, burst: Option<Burst>) {
        self.0.retain(|(other, _)| other.as_ref() != whom);
        self.0.extend(burst.map(|burst| (whom.cloned(), burst)));
    }

    /// Whether no burst was written.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for Given {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Given {}
