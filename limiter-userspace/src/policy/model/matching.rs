//! The packets that a limit is about.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Addresses, by prefix or by the name of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// A set of [`Policy::sets`](super::Policy::sets).
    Set(String),
    /// A prefix without host bits.
    Prefix(IpNet),
}

/// What the name of a service stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// IANA protocol numbers.
    pub protocols: Vec<u8>,
    /// Ranges of destination ports; empty when any port matches.
    pub ports: Vec<RangeInclusive<u16>>,
}

/// The packets that a limit is about: those that meet every condition. An empty list or `None` is no
/// condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// IANA protocol numbers; one must be the packet's.
    pub protocols: Vec<u8>,
    /// Ranges of destination ports; one must contain the packet's.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Ranges of source ports; one must contain the packet's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// Flags of the TCP header.
    pub tcp_flags: Option<TcpFlags>,
    /// Types of ICMP or ICMPv6; one must be the packet's.
    pub icmp_types: Vec<u8>,
    /// `true`: only fragments; `false`: no fragments.
    pub fragments: Option<bool>,
    /// The length of the frame in bytes, from the Ethernet header on.
    pub length: Option<RangeInclusive<u16>>,
    /// Names, patterns or indices of interfaces (see [`interfaces`](crate::policy::interfaces)); one must have
    /// received the packet.
    pub interfaces: Vec<String>,
    /// Sets and prefixes; one must contain the source.
    pub sources: Vec<Whom>,
    /// Sets and prefixes; one must contain the destination.
    pub destinations: Vec<Whom>,
    /// Sets and prefixes; none may contain the source.
    pub except_sources: Vec<Whom>,
    /// Sets and prefixes; none may contain the destination.
    pub except_destinations: Vec<Whom>,
    /// The service that `protocols` and `ports` were copied from; the document is written back with its name.
    pub service: Option<String>,
}

/// Bits of the flags byte of TCP (FIN is 0x01, CWR 0x80).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpFlags {
    /// Bits that must be set.
    pub set: u8,
    /// Bits that must not be set; none of them is in `set`.
    pub clear: u8,
}

impl Match {
    /// The same match in one order, without the name of its service.
    pub(super) fn plain(&self) -> Self {
        let mut plain = Self { service: None, ..self.clone() };
        plain.protocols.sort_unstable();
        for ports in [&mut plain.ports, &mut plain.source_ports] {
            ports.sort_unstable_by_key(|range| (*range.start(), *range.end()));
        }
        plain.icmp_types.sort_unstable();
        plain.interfaces.sort_unstable();
        for whoms in [
            &mut plain.sources,
            &mut plain.destinations,
            &mut plain.except_sources,
            &mut plain.except_destinations,
        ] {
            whoms.sort_unstable();
        }
        plain
    }

    /// The number of conditions.
    pub(super) const fn conditions(&self) -> usize {
        !self.protocols.is_empty() as usize
            + !self.ports.is_empty() as usize
            + !self.source_ports.is_empty() as usize
            + self.tcp_flags.is_some() as usize
            + !self.icmp_types.is_empty() as usize
            + self.fragments.is_some() as usize
            + self.length.is_some() as usize
            + !self.interfaces.is_empty() as usize
            + !self.sources.is_empty() as usize
            + !self.destinations.is_empty() as usize
            + !self.except_sources.is_empty() as usize
            + !self.except_destinations.is_empty() as usize
    }
}
