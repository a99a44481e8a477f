//! Others that limit each source, set up on the same traffic.
//!
//! Each is given the limit of [`SCANT`](super::contest::SCANT), as anyone would deploy it.
//! The action `police` of tc is not among them: it limits what a filter matches, all sources together,
//! and the kernel of the published figures has none (`NET_ACT_POLICE`).

use anyhow::{Context as _, Result};
use limiter_tests::topology::Host;

use super::{iptables, nftables};

/// Another limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// nftables at the ingress hook of the interface, the earliest that it has.
    Ingress,
    /// nftables before the routing of IPv4, where most rules are.
    Prerouting,
    /// The match `hashlimit` of iptables, before routing too.
    Hashlimit,
}

impl Peer {
    /// Its name for scripts.
    pub(crate) const fn id(self) -> &'static str {
        match self {
            Self::Ingress => "nftables_over_limit",
            Self::Prerouting => "nftables_prerouting_over_limit",
            Self::Hashlimit => "iptables_over_limit",
        }
    }

    /// Its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "nftables at ingress, over its limit: dropped",
            Self::Prerouting => "nftables at prerouting, over its limit: dropped",
            Self::Hashlimit => "iptables hashlimit, over its limit: dropped",
        }
    }

    /// Whether it is asked only after the stack saw whom a frame is for.
    pub(crate) const fn is_behind_ip(self) -> bool {
        !matches!(self, Self::Ingress)
    }

    /// What a kernel has to have for it.
    const fn needs(self) -> &'static str {
        match self {
            Self::Ingress => "NF_TABLES_NETDEV, NETFILTER_INGRESS and NFT_LIMIT",
            Self::Prerouting => "NF_TABLES_IPV4 and NFT_LIMIT",
            Self::Hashlimit => "IP_NF_RAW and NETFILTER_XT_MATCH_HASHLIMIT",
        }
    }

    /// Has it limit what comes in by `eth0` of a host.
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

    /// The frames that were within its limit.
    pub(crate) fn passed(self, host: &Host) -> Result<u64> {
        match self {
            Self::Ingress => nftables::passed(host, "netdev"),
            Self::Prerouting => nftables::passed(host, "ip"),
            Self::Hashlimit => iptables::passed(host),
        }
    }
}
