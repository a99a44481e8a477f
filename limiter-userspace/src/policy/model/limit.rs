//! A limit.

use std::collections::BTreeMap;

use limiter_common::policy::penalty;
use serde::{Deserialize, Serialize};

use super::{
    allowance::Allowance,
    matching::Match,
    overrides::{Given, Override},
};

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
    /// What requests of a source learn of the limit, by the bridge.
    #[serde(default, skip_serializing_if = "OfRequests::is_off")]
    pub requests: OfRequests,
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
    /// Drops every packet that the limit is about, whatever its rate. Overrides without a rate exempt from that.
    Drop,
    /// Nothing: the limit counts no packets.
    Off,
}

impl Mode {
    /// The word for it in a document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Monitor => "monitor",
            Self::Drop => "drop",
            Self::Off => "off",
        }
    }

    /// Whether a limit of this mode drops packets.
    pub const fn drops(self) -> bool {
        matches!(self, Self::Enforce | Self::Drop)
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
    /// The source address, masked to [`Policy::key_prefix`](super::Policy::key_prefix).
    Source,
    /// The source address, masked to other lengths. `source/24` (up to 32) is IPv4 /24, and IPv6 as in
    /// [`Policy::key_prefix`](super::Policy::key_prefix); `source/48` (above 32) is IPv6 /48 and IPv4 /32.
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
    /// Whether a peer may be blocked whose requests look as if another proxy handed them on. Of limits on requests.
    #[serde(default)]
    pub proxied: Proxied,
}

impl Penalty {
    /// A block of the same time, in ns, whenever a source stays over the limit for `after` ns. All else is as by default.
    pub const fn new(after: u64, block: u64) -> Self {
        let (unproven, proxied) = (Unproven::Ignore, Proxied::Spare);
        Self { after, block, backoff: 1, max: block, unproven, proxied }
    }

    /// The same for the decision. `limit` tells apart the limits that it is of.
    pub(crate) fn compiled(&self, limit: u32) -> penalty::Penalty {
        let bounded = |time: u64| time.clamp(1, penalty::Penalty::LONGEST);
        penalty::Penalty {
            after: bounded(self.after),
            block: bounded(self.block),
            most: bounded(self.max.max(self.block)),
            backoff: u64::from(self.backoff).clamp(1, penalty::Penalty::STEEPEST),
            limit,
            unproven: u32::from(self.unproven == Unproven::Block),
        }
    }
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

/// What a refused request with the fields of another proxy does. Such a peer may stand for many clients; a client can
/// forge the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proxied {
    /// It counts towards no block. It is refused like any other.
    #[default]
    Spare,
    /// It counts towards a block of its peer.
    Block,
}

/// What becomes of requests of a source, by what a limit on packets has left for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfRequests {
    /// Nothing: the bridge does not ask about it.
    #[default]
    Off,
    /// They pass, and the service is told what is left.
    Advise,
    /// They are refused while little is left, unless the kernel drops nothing of the source.
    Enforce,
}

impl OfRequests {
    /// Packets that a request takes: the handshake, the request, the acknowledgements of a short answer, and the end.
    const PACKETS: u64 = 10;
    /// The most bytes of one, as limits by bytes count them.
    const PACKET_BYTES: u64 = 1_500;

    /// Whether requests have nothing to do with the limit.
    pub const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// What a request takes of a limit that counts this.
    pub const fn request(count: &Count) -> u64 {
        match count {
            Count::Bytes => Self::PACKETS * Self::PACKET_BYTES,
            Count::Connections | Count::Syns => 1,
            Count::Packets | Count::Weighted(_) => Self::PACKETS,
        }
    }

    /// What has to be left for a request to pass, of a limit that admits `most` at once and of which a request takes `request`. It
    /// is what lets the client be told 429: the answer, and the next request with it, take packets too. By the time that the kernel
    /// drops, a client has no way to learn why. A fifth is what a packet limit calls [near](limiter_common::algorithm::near), and
    /// has room for the acknowledgements of a larger answer. A small limit keeps half for requests.
    pub fn reserve(most: u64, request: u64) -> u64 {
        (most / 5).max(request).min(most / 2)
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
            requests: OfRequests::Off,
            given: Given::default(),
        }
    }

    /// Whether every packet is dropped by it.
    pub fn drops_everything(&self) -> bool {
        self.mode == Mode::Drop && self.matching == Match::default()
    }

    /// Whether state is kept by `key`. If every layer has a key of its own, none is.
    pub(in crate::policy) fn uses_own_key(&self) -> bool {
        self.layers.is_empty() || self.layers.iter().any(|layer| layer.key.is_none())
    }

    /// The keys that state is kept by: that of the limit, if it is used, and those of layers.
    pub(in crate::policy) fn keys(&self) -> impl Iterator<Item = &Key> {
        let own = self.uses_own_key().then_some(&self.key);
        own.into_iter().chain(self.layers.iter().filter_map(|layer| layer.key.as_ref()))
    }

    /// Whether every key has the tenant, so that packets without a tenant are not limited.
    pub(in crate::policy) fn is_of_tenants(&self) -> bool {
        self.keys().all(|key| key.parts.contains(&KeyPart::Tenant))
    }

    /// Whether the other limit has the same match, key and count, in whatever order these are written.
    pub(in crate::policy) fn is_about_the_same_as(&self, other: &Self) -> bool {
        self.key == other.key
            && self.count == other.count
            && self.matching.plain() == other.matching.plain()
    }

    /// Whether the two could be layers of one limit: the same, and both go by what is open, or neither does.
    pub(in crate::policy) fn does_the_same_as(&self, other: &Self) -> bool {
        self.is_about_the_same_as(other) && self.counts_open() == other.counts_open()
    }

    /// Whether it limits what is open at once.
    fn counts_open(&self) -> bool {
        self.layers.iter().any(|layer| matches!(layer.allowance, Allowance::Concurrent { .. }))
    }

    /// The number of conditions on a packet, with that of [`Limit::count`].
    pub(in crate::policy) const fn conditions(&self) -> usize {
        let counts = matches!(self.count, Count::Syns | Count::Connections);
        self.matching.conditions() + counts as usize
    }

    /// What its layers and its overrides admit.
    pub(in crate::policy) fn allowances(&self) -> impl Iterator<Item = Allowance> {
        let layers = self.layers.iter().map(|layer| layer.allowance);
        let overrides = self.overrides.iter().filter_map(|one| one.layers.as_ref()).flatten();
        layers.chain(overrides.copied())
    }

    /// See [`name_of_layer`].
    pub fn name_of_layer(&self, layer: usize) -> String {
        name_of_layer(&self.name, layer)
    }

    /// The display name of the candidate.
    pub fn name_of_candidate(&self) -> String {
        format!("{} (candidate)", self.name)
    }

    /// The mode of the candidate: [`Mode::Off`] if the limit does not go by rates, else [`Mode::Monitor`].
    pub const fn mode_of_candidate(&self) -> Mode {
        match self.mode {
            Mode::Off | Mode::Drop => Mode::Off,
            Mode::Enforce | Mode::Monitor => Mode::Monitor,
        }
    }

    /// The key of layer `layer` (from 0): its own, or that of the limit.
    pub fn key_of_layer(&self, layer: usize) -> &Key {
        self.layers.get(layer).and_then(|layer| layer.key.as_ref()).unwrap_or(&self.key)
    }
}

/// The display name of layer `layer` (from 0) of the limit `name`: the first has the name of the limit.
pub fn name_of_layer(name: &str, layer: usize) -> String {
    if layer == 0 { name.to_owned() } else { format!("{name} (layer {})", layer + 1) }
}
