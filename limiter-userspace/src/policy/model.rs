//! The policy with every value parsed, independent of the document that it was read from (see
//! [`document`](super::document)) and of the tables that it is compiled to (see [`tables`](super::tables)).
//! Sets that name a file hold the prefixes of that file.
//!
//! These types check nothing. A policy that [`document`](super::document) read is valid; one that was built
//! by hand or deserialized from storage need not be.

mod allowance;
mod control;
mod limit;
mod matching;
mod overrides;
mod request;

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::{
    allowance::Allowance,
    control::{Control, ControlBudgets, ControlOverride},
    limit::{
        Costs, Count, Key, KeyPart, Layer, Limit, Mode, OfRequests, PacketKind, Penalty, Proxied,
        Unproven, name_of_layer,
    },
    matching::{Match, Service, TcpFlags, Whom},
    overrides::{Given, Override, OverrideWhom},
    request::{
        Attribute, AttributeSource, Field, HeaderSet, Idempotency, Missing, OnFailure, Pattern,
        RequestCost, RequestKey, RequestKeyPart, RequestLayer, RequestLimit, RequestMatch,
        RequestOverride,
    },
};
use super::{error::PolicyError, units::prefix::check_prefix};

/// A whole policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Whether any packet is dropped.
    pub mode: GlobalMode,
    /// The prefix lengths of a source: in lists, in tenants, and for keys without lengths of their own.
    pub key_prefix: KeyPrefix,
    /// Named sets of prefixes, for `match`, `allow` and `deny`; each sorted, without duplicates.
    pub sets: BTreeMap<String, Vec<IpNet>>,
    /// Named groups of prefixes, each sorted, without duplicates. A source belongs to the tenant with the
    /// longest prefix around it.
    pub tenants: BTreeMap<String, Vec<IpNet>>,
    /// The files that sets came from, by the name of the set. Only a document that was read by its path has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set_files: BTreeMap<String, PrefixFile>,
    /// The files that tenants came from.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tenant_files: BTreeMap<String, PrefixFile>,
    /// Protocols and ports by name, for `match`.
    pub services: BTreeMap<String, Service>,
    /// Sources that no limit and no penalty applies to.
    pub allow: Vec<Listed>,
    /// Sources whose packets are all dropped.
    pub deny: Vec<Listed>,
    /// Sources that are blocked by hand (`penalties` of the document), usually until a time.
    pub penalties: Vec<Listed>,
    /// The budgets of the link's own control traffic.
    #[serde(default)]
    pub control: Control,
    /// The budget of each interface for frames that are neither IP nor a protocol of the link; `None`: no
    /// budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_ip: Option<Allowance>,
    /// The limits, in the order in which they were written; at most 64.
    pub limits: Vec<Limit>,
    /// The properties of requests, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Attribute>,
    /// The limits on requests, in the order in which they were written; at most [`Policy::MOST_ON_REQUESTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_requests: Vec<RequestLimit>,
}

impl Policy {
    /// The largest number of prefixes in a policy: of its sets, tenants, lists and overrides together.
    pub const MOST_PREFIXES: usize = 1 << 20;
    /// The largest number of limits on requests.
    pub const MOST_ON_REQUESTS: usize = 256;

    /// How long a limit holds requests back at most, in ns; 0 if none does.
    pub fn longest_delay(&self) -> u64 {
        let delays = self.on_requests.iter().filter(|limit| limit.delays());
        delays.filter_map(|limit| limit.delay).max().unwrap_or(0)
    }

    /// The number of prefixes in all sets, tenants, lists and overrides. Each override counts as one, and an entry that names a set
    /// as none more.
    pub fn number_of_prefixes(&self) -> usize {
        let sets = self.sets.values().chain(self.tenants.values()).map(Vec::len).sum::<usize>();
        let is_prefix = |entry: &&Listed| matches!(entry.whom, Whom::Prefix(_));
        let lists = [&self.allow, &self.deny, &self.penalties].into_iter().flatten();
        let lists = lists.filter(is_prefix).count();
        let packets = self.limits.iter().map(|limit| limit.overrides.len());
        let requests = self.on_requests.iter().map(|limit| limit.overrides.len());
        sets + lists + packets.chain(requests).sum::<usize>()
    }
}

/// The file of a set or a tenant. Its prefixes are in the set; this is what names them in a saved document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixFile {
    /// The absolute path.
    pub path: String,
    /// The prefixes that the document lists beside the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<IpNet>,
}

/// Whether the limits of a policy drop packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GlobalMode {
    /// Each limit does what its own [`Mode`] says.
    #[default]
    Enforce,
    /// Nothing is dropped. Packets that would be are counted.
    Monitor,
}

/// The prefix lengths that make a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPrefix {
    /// For IPv4, 0 to 32.
    pub ipv4: u8,
    /// For IPv6, 0 to 128.
    pub ipv6: u8,
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

impl KeyPrefix {
    /// Checks that no length is longer than an address.
    ///
    /// # Errors
    /// [`PolicyError::KeyPrefixTooLong`].
    pub fn check(self) -> Result<(), PolicyError> {
        for (family, length, bits) in [("IPv4", self.ipv4, 32), ("IPv6", self.ipv6, 128)] {
            if length > bits {
                return Err(PolicyError::KeyPrefixTooLong { family, length, bits });
            }
        }
        Ok(())
    }

    /// Checks that `prefix` stands for whole sources: it is no narrower than one and has no host bits.
    ///
    /// # Errors
    /// [`PolicyError::OverrideTooNarrow`], or [`PolicyError::Value`] for a prefix with host bits.
    pub fn check_source(self, prefix: IpNet) -> Result<(), PolicyError> {
        check_prefix(prefix)?;
        let length = self.length_for(&prefix);
        if prefix.prefix_len() > length {
            return Err(PolicyError::OverrideTooNarrow { prefix, length });
        }
        Ok(())
    }

    /// `prefix`, or the source that it is a part of if it is narrower than one.
    pub fn widened(self, prefix: IpNet) -> IpNet {
        let length = self.length_for(&prefix);
        if prefix.prefix_len() <= length {
            return prefix;
        }
        IpNet::new(prefix.addr(), length).map_or(prefix, |wide| wide.trunc())
    }

    /// The length for the address family of `prefix`.
    pub const fn length_for(self, prefix: &IpNet) -> u8 {
        match prefix {
            IpNet::V4(_) => self.ipv4,
            IpNet::V6(_) => self.ipv6,
        }
    }
}

/// An entry of [`Policy::allow`], [`Policy::deny`] or [`Policy::penalties`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// The sources that the entry is for.
    pub whom: Whom,
    /// When the entry ends, in seconds of Unix time; `None`: never.
    pub until: Option<u64>,
}
