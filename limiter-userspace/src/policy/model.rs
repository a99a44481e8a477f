//! The policy: what an operator means, with every value understood.
//!
//! Nothing here knows the form that it was written in (see `spec`) or the tables that it becomes
//! (see `tables`). Sets that were read from files are here with what was in them.
//!
//! Nothing here is checked either: a policy that came from `spec` is, one that was put together by
//! hand or read back from storage is only as good as whoever made it.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use ipnet::IpNet;
use limiter_common::algorithm::rate::Rate;
use serde::{Deserialize, Serialize};

use super::{control::Control, error::PolicyError, given::Given, units::prefix::check_prefix};

/// A whole policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Whether anything is dropped at all.
    pub mode: GlobalMode,
    /// What of an address makes a source.
    pub key_prefix: KeyPrefix,
    /// Named sets of prefixes, for `match`, `allow` and `deny`; each sorted, without duplicates.
    pub sets: BTreeMap<String, Vec<IpNet>>,
    /// Named groups of prefixes, each sorted, without duplicates; the longest prefix decides whose
    /// a source is.
    pub tenants: BTreeMap<String, Vec<IpNet>>,
    /// Names for ports.
    pub services: BTreeMap<String, Service>,
    /// Never limited, never penalised.
    pub allow: Vec<Listed>,
    /// Dropped.
    pub deny: Vec<Listed>,
    /// Sources that were blocked by hand until a time (`limiter penalty add`).
    pub penalties: Vec<Listed>,
    /// What the link's own control traffic may send.
    #[serde(default)]
    pub control: Control,
    /// What each interface admits of frames that are not IP, and of no protocol of the link; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_ip: Option<Allowance>,
    /// The limits, in the order in which they were written; at most 64.
    pub limits: Vec<Limit>,
}

/// Whether a policy drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GlobalMode {
    /// Each limit as its own [`Mode`] says.
    #[default]
    Enforce,
    /// Nothing is dropped; what would be is counted.
    Monitor,
}

/// The prefix lengths that make a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPrefix {
    /// Of IPv4, 0 to 32.
    pub ipv4: u8,
    /// Of IPv6, 0 to 128.
    pub ipv6: u8,
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self { ipv4: 32, ipv6: 64 }
    }
}

impl KeyPrefix {
    /// Whether these are lengths that addresses have.
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

    /// Whether sources can be told by a prefix: one that is no narrower than a source, without host
    /// bits.
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

    /// The length that makes a source of the family of `prefix`.
    pub const fn length_for(self, prefix: &IpNet) -> u8 {
        match prefix {
            IpNet::V4(_) => self.ipv4,
            IpNet::V6(_) => self.ipv6,
        }
    }
}

/// An entry of `allow`, of `deny` or of the penalties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listed {
    /// Whom it is about.
    pub whom: Whom,
    /// Until when it holds, in seconds of Unix time; `None` for ever.
    pub until: Option<u64>,
}

/// Addresses, by the name of a set or as a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// A set of [`Policy::sets`].
    Set(String),
    /// A prefix without host bits.
    Prefix(IpNet),
}

/// What a name for ports stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// IANA protocol numbers.
    pub protocols: Vec<u8>,
    /// Destination ports; none for those without ports.
    pub ports: Vec<RangeInclusive<u16>>,
}

/// A limit: which packets, counted how, per what, how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Unique in the policy: 1 to 32 of `a`-`z`, `0`-`9`, `_` and `-`.
    pub name: String,
    /// Which packets.
    pub matching: Match,
    /// Per what.
    pub key: Key,
    /// What of a packet is counted.
    pub count: Count,
    /// Whether it drops.
    pub mode: Mode,
    /// What it admits, all of which must; empty when only overrides admit anything in particular
    /// (then sources without an override are not limited).
    pub layers: Vec<Layer>,
    /// Counted beside the live one, never enforced; its algorithm is that of the first layer.
    pub candidate: Option<Allowance>,
    /// What becomes of a source that stays over the limit.
    pub penalty: Option<Penalty>,
    /// What it admits to some instead.
    pub overrides: Vec<Override>,
    /// By what its rate and burst are multiplied for the shared bucket, 1 to [`Limit::MOST_SHARED`]; `None` for 16, the
    /// entries of a set. Sources and keys are charged to the shared bucket when their set of the table is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u32>,
    /// Whether each packet is charged by the clock: none by the tick of the kernel, none from a lease.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub precise: bool,
    /// How its bursts were written.
    #[serde(default, skip_serializing_if = "Given::is_empty")]
    pub given: Given,
}

/// Whether a limit drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// What is over the limit is dropped.
    #[default]
    Enforce,
    /// What would be dropped is counted and passed.
    Monitor,
    /// Nothing is counted.
    Off,
}

impl Mode {
    /// The word of a document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Monitor => "monitor",
            Self::Off => "off",
        }
    }
}

/// A rate of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// What it admits.
    pub allowance: Allowance,
    /// A key of its own, in a ladder; `None` for that of the limit.
    pub key: Option<Key>,
}

/// What packets must share to be counted together; without parts, one state for all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// At most one of each kind, and of [`KeyPart::Source`] and [`KeyPart::SourcePrefix`] at most
    /// one.
    pub parts: Vec<KeyPart>,
}

/// A part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyPart {
    /// The source address, masked to [`Policy::key_prefix`].
    Source,
    /// The source address, masked to lengths of its own: `source/24` is IPv4 /24 and IPv6 as in
    /// [`Policy::key_prefix`]; `source/48` (above 32) is IPv6 /48 and IPv4 /32.
    SourcePrefix {
        /// Of IPv4, 0 to 32.
        ipv4: u8,
        /// Of IPv6, 0 to 128.
        ipv6: u8,
    },
    /// The destination address, whole.
    Destination,
    /// The destination port; 0 for packets without ports.
    DestinationPort,
    /// Addresses, ports and protocol.
    Connection,
    /// The tenant of the source; packets of no tenant are not limited.
    Tenant,
    /// The interface that the packet came in by.
    Interface,
}

/// What of a packet is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// 1 for each packet.
    #[default]
    Packets,
    /// The bytes of the frame, from the Ethernet header on.
    Bytes,
    /// 1 for the SYN of a new TCP connection, 0 when it is sent again and for all others; see
    /// [`Handshake`](limiter_common::memory::handshake::Handshake).
    Connections,
    /// 1 for a SYN without ACK, 0 for the others.
    Syns,
    /// By the kind of the packet.
    Weighted(Costs),
}

/// The cost of a packet by its kind: the first of [`PacketKind`], in their order, that is in
/// `by_kind` and fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Of packets of no kind in `by_kind`, 1 to 65535.
    pub default: u16,
    /// Of packets of a kind, 1 to 65535.
    pub by_kind: BTreeMap<PacketKind, u16>,
}

/// Kinds of packets that cost differently, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketKind {
    /// A fragment, the first one too.
    Fragment,
    /// TCP with SYN and without ACK.
    Syn,
    /// ICMP and ICMPv6.
    Icmp,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// How much, by which algorithm. Costs are in what the limit counts: packets, bytes, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Allowance {
    /// A bucket that fills with `rate` and holds `burst`.
    TokenBucket {
        /// What is admitted in the long run.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// What is admitted at once after a rest, at least 1.
        burst: u64,
    },
    /// A virtual queue that drains with `rate` and holds `depth`.
    LeakyBucket {
        /// The outflow.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// What the queue holds, at least 1.
        depth: u64,
    },
    /// The generic cell rate algorithm (ITU-T I.371).
    Gcra {
        /// What is admitted in the long run; its inverse is the increment T.
        #[serde(with = "RateFields")]
        rate: Rate,
        /// How much earlier than its time a packet may come, the limit tau, in ns.
        tolerance: u64,
    },
    /// So much in each window from a multiple of its length to the next.
    FixedWindow {
        /// What a window admits, at least 1.
        limit: u64,
        /// The length of a window in ns, at least 1.
        window: u64,
    },
    /// So much in a window that moves with the time, by two counters.
    SlidingWindow {
        /// What a window admits, at least 1.
        limit: u64,
        /// The length of the window in ns, at least 1.
        window: u64,
    },
    /// So much in a window that moves with the time, exactly.
    SlidingLog {
        /// What a window admits, 1 to 128.
        limit: u64,
        /// The length of the window in ns, at least 1.
        window: u64,
    },
    /// So many open connections at once.
    Concurrent {
        /// Open connections, 1 to 128.
        limit: u64,
        /// After how long without a packet a connection counts as closed, in ns, at least 1.
        idle: u64,
    },
}

/// The fields of a [`Rate`], which is of a crate without serde.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Rate", deny_unknown_fields)]
struct RateFields {
    packets: u64,
    period: u64,
}

/// Which packets: all that is given must hold; an empty list says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// IANA protocol numbers, one of which it must be.
    pub protocols: Vec<u8>,
    /// Destination ports, in one of which it must be.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Flags of TCP.
    pub tcp_flags: Option<TcpFlags>,
    /// Types of ICMP or ICMPv6, one of which it must be.
    pub icmp_types: Vec<u8>,
    /// `true` for only fragments, `false` for none.
    pub fragments: Option<bool>,
    /// Bytes of the frame, from the Ethernet header on.
    pub length: Option<RangeInclusive<u16>>,
    /// Names of interfaces, by one of which it must come in.
    pub interfaces: Vec<String>,
    /// In one of which the source must be.
    pub sources: Vec<Whom>,
    /// In one of which the destination must be.
    pub destinations: Vec<Whom>,
    /// In none of which the source may be.
    pub except_sources: Vec<Whom>,
    /// In none of which the destination may be.
    pub except_destinations: Vec<Whom>,
    /// The service that protocols and ports came from, so that it is shown as written.
    pub service: Option<String>,
}

/// Bits of the flags byte of TCP (FIN is 0x01, CWR 0x80).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpFlags {
    /// Bits that must be set.
    pub set: u8,
    /// Bits that must not; none of `set`.
    pub clear: u8,
}

/// The block of a source that stays over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Penalty {
    /// How long over the limit until it is blocked, in ns.
    pub after: u64,
    /// How long it is blocked the first time, in ns, at least 1.
    pub block: u64,
    /// How many times as long each next time, 1 to 10.
    pub backoff: u32,
    /// The longest block, in ns, at least `block`.
    pub max: u64,
    /// Whether refused packets count that could be forged.
    #[serde(default)]
    pub unproven: Unproven,
}

/// Whether refused packets count towards a block that no TCP connection to this host proves: such packets could be forged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unproven {
    /// They do not count. They are dropped all the same.
    #[default]
    Ignore,
    /// They count towards a block of their source.
    Block,
}

impl Match {
    /// How many things are asked about.
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
    /// The most that [`shared`](Self::shared) can be.
    pub const MOST_SHARED: u32 = 1 << 16;

    /// An enforced limit of packets by a key, which is about all of them and admits everything.
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

    /// Whether its own key counts: not if each layer has another.
    pub(super) fn uses_own_key(&self) -> bool {
        self.layers.is_empty() || self.layers.iter().any(|layer| layer.key.is_none())
    }

    /// The keys that it counts by.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        let own = self.uses_own_key().then_some(&self.key);
        own.into_iter().chain(self.layers.iter().filter_map(|layer| layer.key.as_ref()))
    }

    /// Whether all that it counts is of tenants.
    pub(super) fn is_of_tenants(&self) -> bool {
        self.keys().all(|key| key.parts.contains(&KeyPart::Tenant))
    }

    /// How many things of a packet it asks about, what it counts being one.
    pub(super) const fn conditions(&self) -> usize {
        let counts = matches!(self.count, Count::Syns | Count::Connections);
        self.matching.conditions() + counts as usize
    }
}

/// What a layer is called where each has a line: the first one as the limit.
pub fn name_of_layer(name: &str, layer: usize) -> String {
    if layer == 0 { name.to_owned() } else { format!("{name} (layer {})", layer + 1) }
}

impl Limit {
    /// See [`name_of_layer`].
    pub fn name_of_layer(&self, layer: usize) -> String {
        name_of_layer(&self.name, layer)
    }

    /// What the candidate is called where it has a line.
    pub fn name_of_candidate(&self) -> String {
        format!("{} (candidate)", self.name)
    }

    /// Whether the candidate is counted; it never drops.
    pub fn mode_of_candidate(&self) -> Mode {
        if self.mode == Mode::Off { Mode::Off } else { Mode::Monitor }
    }

    /// What has a state of its own under a layer.
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

/// What a limit admits to some instead of its layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// To whom.
    pub whom: OverrideWhom,
    /// One for each layer of the limit; `None`: not limited.
    pub layers: Option<Vec<Allowance>>,
}

/// To whom a limit admits something else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideWhom {
    /// To each key within a prefix of source addresses; the longest decides.
    Prefix(IpNet),
    /// To each key of a tenant of [`Policy::tenants`].
    Tenant(String),
}
