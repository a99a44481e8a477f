//! Other limiters, on the same traffic.
//!
//! Each has the limit [`SCANT`](super::contest::SCANT), set up as an operator would do it. The tc action
//! `police` is not among them: it limits all sources that a filter matches together, and the kernel of the
//! published figures lacks it (`NET_ACT_POLICE`).

use anyhow::{Context as _, Result};
use limiter_tests::topology::Host;

use super::{iptables, nftables};

/// Another limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// nftables at the ingress hook of the interface, its earliest hook.
    Ingress,
    /// nftables at the prerouting hook of IPv4, where most rules are.
    Prerouting,
    /// The iptables match `hashlimit`, in the prerouting chain.
    Hashlimit,
}

impl Peer {
    /// The id in JSON.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Ingress => "nftables_over_limit",
            Self::Prerouting => "nftables_prerouting_over_limit",
            Self::Hashlimit => "iptables_over_limit",
        }
    }

    /// The name in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "nftables at ingress, over its limit: dropped",
            Self::Prerouting => "nftables at prerouting, over its limit: dropped",
            Self::Hashlimit => "iptables hashlimit, over its limit: dropped",
        }
    }

    /// Whether its hook is behind the check of the destination MAC address.
    pub(crate) const fn is_behind_ip(self) -> bool {
        !matches!(self, Self::Ingress)
    }

    /// The kernel options it needs.
    const fn needs(self) -> &'static str {
        match self {
            Self::Ingress => "NF_TABLES_NETDEV, NETFILTER_INGRESS and NFT_LIMIT",
            Self::Prerouting => "NF_TABLES_IPV4 and NFT_LIMIT",
            Self::Hashlimit => "IP_NF_RAW and NETFILTER_XT_MATCH_HASHLIMIT",
        }
    }

    /// Sets up the limit for packets that come in by `eth0` of a host.
    pub(crate) fn limit(self, host: &Host) -> Result<()> {
        match self {
            Self::Ingress => nftables::limit(host, nftables::INGRESS),
            Self::Prerouting => nftables::limit(host, nftables::PREROUTING),
            Self::Hashlimit => iptables::limit(host),
        }
        .with_context(|| {
            let (name, needs) = (self.name(), self.needs());
            format!("cannot measure `{name}`, which takes a kernel with {needs}")
        })
    }

    /// The number of frames that were within its limit.
    pub(crate) fn passed(self, host: &Host) -> Result<u64> {
        match self {
            Self::Ingress => nftables::passed(host, "netdev"),
            Self::Prerouting => nftables::passed(host, "ip"),
            Self::Hashlimit => iptables::passed(host),
        }
    }
}
