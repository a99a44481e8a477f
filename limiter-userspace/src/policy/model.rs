//! The policy with every value parsed, independent of the document that it was read from (see
//! [`document`](super::document)) and of the tables that it is compiled to (see [`tables`](super::tables)).
//! Sets that name a file hold the prefixes of that file.
//!
//! These types check nothing. A policy that [`document`](super::document) read is valid; one that was built
//! by hand or deserialized from storage need not be.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use ipnet::IpNet;
use limiter_common::algorithm::rate::Rate;
use serde::{Deserialize, Serialize};

use super::{control::Control, error::PolicyError, given::Given, units::prefix::check_prefix};

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
}

impl Policy {
    /// The largest number of prefixes in a policy: of its sets, tenants, lists and overrides together.
    pub const MOST_PREFIXES: usize = 131_072;

    /// The number of prefixes in all sets, tenants, lists and overrides.
    pub fn number_of_prefixes(&self) -> usize {
        let sets = self.sets.values().chain(self.tenants.values()).map(Vec::len).sum::<usize>();
        let lists = self.allow.len() + self.deny.len() + self.penalties.len();
        sets + lists + self.limits.iter().map(|limit| limit.overrides.len()).sum::<usize>()
    }
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

/// Addresses, by prefix or by the name of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// A set of [`Policy::sets`].
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

/// A limit: which packets it is about, what of them it counts, by which key, and how much it admits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Unique in the policy: 1 to 32 of `a`-`z`, `0`-`9`, `_` and `-`.
    pub name: String,
    /// The packets that the limit is about.
    pub matching: Match,
    /// What packets must share to have one state; a [`Layer`] may have a key of its own.
    pub key: Key,
    /// What a packet costs.
    pub count: Count,
    /// Whether the limit drops packets, only counts them, or is off.
    pub mode: Mode,
    /// The allowances of the limit, all of which must admit a packet. Empty: only sources with an override
    /// are limited.
    pub layers: Vec<Layer>,
    /// Another allowance that is counted beside the layers and never drops a packet. Its algorithm is that of
    /// the first layer.
    pub candidate: Option<Allowance>,
    /// The block of a source that stays over the limit; `None`: no block.
    pub penalty: Option<Penalty>,
    /// Other allowances for some sources or tenants, each [`Override::whom`] once.
    pub overrides: Vec<Override>,
    /// How many times the rate and burst of the limit the shared bucket has, 1 to [`Limit::MOST_SHARED`];
    /// `None`: 16, the ways of a set. Sources and keys that find no room in the table are charged to the
    /// shared bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u32>,
    /// Whether each packet is charged at the exact time: never at jiffy time, never from a lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub precise: bool,
    /// The bursts of the limit and its overrides as the operator wrote them.
    #[serde(default, skip_serializing_if = "Given::is_empty")]
    pub given: Given,
}

/// What a limit does with packets that exceed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Drops them.
    #[default]
    Enforce,
    /// Counts them and lets them pass.
    Monitor,
    /// Nothing: the limit counts no packets.
    Off,
}

impl Mode {
    /// The word for it in a document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Monitor => "monitor",
            Self::Off => "off",
        }
    }
}

/// One of the allowances of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// How much the layer admits.
    pub allowance: Allowance,
    /// The layer's own key, as in a ladder of prefix lengths; `None`: the key of the limit.
    pub key: Option<Key>,
}

/// What packets must share to have one state. Without parts, all packets have the same state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Each kind of part at most once, and only one of [`KeyPart::Source`] and [`KeyPart::SourcePrefix`].
    pub parts: Vec<KeyPart>,
}

/// A part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyPart {
    /// The source address, masked to [`Policy::key_prefix`].
    Source,
    /// The source address, masked to other lengths. `source/24` (up to 32) is IPv4 /24, and IPv6 as in
    /// [`Policy::key_prefix`]; `source/48` (above 32) is IPv6 /48 and IPv4 /32.
    SourcePrefix {
        /// For IPv4, 0 to 32.
        ipv4: u8,
        /// For IPv6, 0 to 128.
        ipv6: u8,
    },
    /// The destination address, unmasked.
    Destination,
    /// The destination port with the protocol; port 0 for packets without ports.
    DestinationPort,
    /// Both addresses, both ports and the protocol.
    Connection,
    /// The tenant of the source. Packets of sources without a tenant are not limited.
    Tenant,
    /// The interface that received the packet.
    Interface,
}

/// What a packet costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// 1 for each packet.
    #[default]
    Packets,
    /// The bytes of the frame, from the Ethernet header on.
    Bytes,
    /// 1 for the SYN of a new TCP connection; 0 for its retransmissions and for all other packets. See
    /// [`Handshake`](limiter_common::memory::handshake::Handshake).
    Connections,
    /// 1 for a SYN without ACK, 0 for the others.
    Syns,
    /// A weight for each kind of packet.
    Weighted(Costs),
}

/// Weights by kind. A packet costs the weight of its kind, the first in the order of [`PacketKind`] that
/// `by_kind` has and that describes the packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// For packets of no kind in `by_kind`, 1 to 65535.
    pub default: u16,
    /// For packets of a kind, 1 to 65535.
    pub by_kind: BTreeMap<PacketKind, u16>,
}

/// Kinds of packets that can have different weights. If several describe a packet, the first one with a
/// weight counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketKind {
    /// A fragment, first or later.
    Fragment,
    /// TCP with SYN and without ACK.
    Syn,
    /// ICMP or ICMPv6.
    Icmp,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// An algorithm and its numbers. Amounts are in the unit of [`Limit::count`]: packets, bytes, connections,
/// SYNs or weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Allowance {
    /// A bucket that fills at `rate` and holds `burst`.
    TokenBucket {
        /// The long-run rate.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// The most that is admitted at once, at least 1.
        burst: u64,
    },
    /// A virtual queue that drains at `rate` and holds `depth`.
    LeakyBucket {
        /// The rate at which the queue drains.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// What the queue holds, at least 1.
        depth: u64,
    },
    /// The generic cell rate algorithm (ITU-T I.371).
    Gcra {
        /// The long-run rate, the inverse of the increment T.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// How much earlier than its theoretical time a packet may come, in ns: the limit tau of I.371.
        tolerance: u64,
    },
    /// At most `limit` in each window. Windows begin at multiples of their length on the monotonic clock.
    FixedWindow {
        /// What a window admits, at least 1.
        limit: u64,
        /// The length of a window in ns, 1 ms to 366 days.
        window: u64,
    },
    /// At most about `limit` in the last `window`, estimated from the counters of two fixed windows.
    SlidingWindow {
        /// What a window admits, at least 1.
        limit: u64,
        /// The length of the window in ns, 1 ms to 366 days.
        window: u64,
    },
    /// At most `limit` in any `window`, exactly: the time of each admitted packet is kept.
    SlidingLog {
        /// What a window admits, 1 to 128.
        limit: u64,
        /// The length of the window in ns, 1 ns to 366 days; a document gives at least 1 ms.
        window: u64,
    },
    /// At most `limit` open connections.
    Concurrent {
        /// Open connections, 1 to 128.
        limit: u64,
        /// Time without packets after which a connection counts as closed, in ns: 1 s to 30 days.
        idle: u64,
    },
}

/// The fields of a [`Rate`], whose crate does not use serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Rate", deny_unknown_fields)]
struct RateFields {
    packets: u64,
    period: u64,
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
    /// Flags of the TCP header.
    pub tcp_flags: Option<TcpFlags>,
    /// Types of ICMP or ICMPv6; one must be the packet's.
    pub icmp_types: Vec<u8>,
    /// `true`: only fragments; `false`: no fragments.
    pub fragments: Option<bool>,
    /// The length of the frame in bytes, from the Ethernet header on.
    pub length: Option<RangeInclusive<u16>>,
    /// Names, patterns or indices of interfaces (see [`interfaces`](super::interfaces)); one must have
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

/// The block of a source that stays over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Penalty {
    /// How long a source stays over the limit before it is blocked, in ns.
    pub after: u64,
    /// The length of the first block, in ns, at least 1.
    pub block: u64,
    /// The factor from one block to the next, 1 to 10.
    pub backoff: u32,
    /// The longest block, in ns, at least `block`.
    pub max: u64,
    /// Whether refused packets that no connection to this host proves begin a block.
    #[serde(default)]
    pub unproven: Unproven,
}

/// What a refused packet without a proof does. A packet is proven by a full socket of its own TCP connection
/// on this host; any other packet may be forged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unproven {
    /// It counts towards no block. It is dropped like any other.
    #[default]
    Ignore,
    /// It counts towards a block of its source.
    Block,
}

impl Match {
    /// The same match in one order, without the name of its service.
    fn plain(&self) -> Self {
        let mut plain = Self { service: None, ..self.clone() };
        plain.protocols.sort_unstable();
        plain.ports.sort_unstable_by_key(|range| (*range.start(), *range.end()));
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
    const fn conditions(&self) -> usize {
        !self.protocols.is_empty() as usize
            + !self.ports.is_empty() as usize
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

impl Limit {
    /// The largest value of [`shared`](Self::shared).
    pub const MOST_SHARED: u32 = 1 << 16;

    /// An enforced limit that counts all packets by a key, without layers: it limits nobody.
    pub fn new(name: impl Into<String>, parts: &[KeyPart]) -> Self {
        Self {
            name: name.into(),
            matching: Match::default(),
            key: Key { parts: parts.to_vec() },
            count: Count::Packets,
            mode: Mode::Enforce,
            layers: Vec::new(),
            candidate: None,
            penalty: None,
            overrides: Vec::new(),
            shared: None,
            precise: false,
            given: Given::default(),
        }
    }

    /// Whether state is kept by `key`. If every layer has a key of its own, none is.
    pub(super) fn uses_own_key(&self) -> bool {
        self.layers.is_empty() || self.layers.iter().any(|layer| layer.key.is_none())
    }

    /// The keys that state is kept by: that of the limit, if it is used, and those of layers.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        let own = self.uses_own_key().then_some(&self.key);
        own.into_iter().chain(self.layers.iter().filter_map(|layer| layer.key.as_ref()))
    }

    /// Whether every key has the tenant, so that packets without a tenant are not limited.
    pub(super) fn is_of_tenants(&self) -> bool {
        self.keys().all(|key| key.parts.contains(&KeyPart::Tenant))
    }

    /// Whether the other limit has the same match, key and count, in whatever order these are written.
    pub(super) fn does_the_same_as(&self, other: &Self) -> bool {
        self.key == other.key
            && self.count == other.count
            && self.matching.plain() == other.matching.plain()
    }

    /// The number of conditions on a packet, with that of [`Limit::count`].
    pub(super) const fn conditions(&self) -> usize {
        let counts = matches!(self.count, Count::Syns | Count::Connections);
        self.matching.conditions() + counts as usize
    }
}

/// The display name of layer `layer` (from 0) of the limit `name`: the first has the name of the limit.
pub fn name_of_layer(name: &str, layer: usize) -> String {
    if layer == 0 { name.to_owned() } else { format!("{name} (layer {})", layer + 1) }
}

impl Limit {
    /// See [`name_of_layer`].
    pub fn name_of_layer(&self, layer: usize) -> String {
        name_of_layer(&self.name, layer)
    }

    /// The display name of the candidate.
    pub fn name_of_candidate(&self) -> String {
        format!("{} (candidate)", self.name)
    }

    /// The mode of the candidate: [`Mode::Off`] if the limit is off, else [`Mode::Monitor`].
    pub fn mode_of_candidate(&self) -> Mode {
        if self.mode == Mode::Off { Mode::Off } else { Mode::Monitor }
    }

    /// The key of layer `layer` (from 0): its own, or that of the limit.
    pub fn key_of_layer(&self, layer: usize) -> &Key {
        self.layers.get(layer).and_then(|layer| layer.key.as_ref()).unwrap_or(&self.key)
    }
}

impl fmt::Display for OverrideWhom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => write!(f, "{prefix}"),
            Self::Tenant(name) => write!(f, "tenant {name}"),
        }
    }
}

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
    /// Each key of a tenant of [`Policy::tenants`].
    Tenant(String),
}
