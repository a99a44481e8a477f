//! Packets of the tests, by their headers and by the keys they share.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_tests::{
    packet::{ACK, Frame, SYN},
    reference::UNKNOWN_PROTOCOL,
};
use limiter_userspace::policy::{
    KeyPrefix, Policy,
    model::{Count, KeyPart, PacketKind},
};

use super::{mutation::Random, naive::truncated};

/// A packet that a test sends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sent {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) transport: Transport,
    /// Bytes behind the headers.
    pub(super) payload: usize,
    /// The slot of the interface it comes in by.
    pub(super) slot: u32,
}

/// The transport of a packet, with source and destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Transport {
    /// TCP, with its flags.
    Tcp([u16; 2], u8),
    Udp([u16; 2]),
    /// An echo request.
    Echo,
    /// A later fragment of a UDP datagram whose first fragment was not seen.
    Later,
}

/// A part of a key: what packets that are counted together have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    Address(IpAddr),
    Port(u8, u16),
    Connection(IpAddr, IpAddr, u8, [u16; 2]),
    Tenant(String),
    Slot(u32),
}

impl Sent {
    /// A short datagram.
    pub(super) fn udp(
        source: impl Into<IpAddr>,
        destination: impl Into<IpAddr>,
        ports: [u16; 2],
    ) -> Self {
        let (source, destination) = (source.into(), destination.into());
        Self { source, destination, transport: Transport::Udp(ports), payload: 18, slot: 0 }
    }

    /// A random one of a few packets that share many key parts.
    pub(super) fn any(random: &mut Random) -> Self {
        let few = |random: &mut Random| *random.pick(&[0_u8, 1, 0x80]);
        let bits: [u8; 5] = std::array::from_fn(|_| few(random));
        let [a, b, c, d, e] = bits.map(u16::from);
        let (source, destination): (IpAddr, IpAddr) = if random.below(2) == 0 {
            ([10, 0, bits[0], bits[1]].into(), [198, 51, 100, bits[4]].into())
        } else {
            let source = [0x2001, 0xdb8, a & 1, b & 1, c, 0, 0, d];
            (source.into(), [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, e].into())
        };
        let ports = [*random.pick(&[40_000, 40_001]), *random.pick(&[53, 443])];
        let transport = match random.below(8) {
            0..=2 => Transport::Tcp(ports, *random.pick(&[SYN, ACK])),
            3..=5 => Transport::Udp(ports),
            6 => Transport::Echo,
            _ => Transport::Later,
        };
        let slot = random.below(2) as u32;
        Self { source, destination, transport, payload: 18 + random.below(400), slot }
    }

    pub(super) fn frame(&self) -> Vec<u8> {
        let Self { source, destination, payload, .. } = *self;
        match self.transport {
            Transport::Tcp([from, to], flags) => Frame::tcp(source, destination, from, to, flags),
            Transport::Udp([from, to]) => Frame::udp(source, destination, from, to),
            Transport::Echo => Frame::echo(source, destination, 1, 2),
            Transport::Later => Frame::ip(source, destination, 17).fragment(7, 40, false),
        }
        .payload(payload)
        .build()
    }

    fn protocol(&self) -> u8 {
        match self.transport {
            Transport::Tcp(..) => 6,
            // In IPv6, only the first fragment tells the protocol.
            Transport::Later if self.source.is_ipv6() => UNKNOWN_PROTOCOL,
            Transport::Udp(_) | Transport::Later => 17,
            Transport::Echo if self.source.is_ipv4() => 1,
            Transport::Echo => 58,
        }
    }

    /// Source and destination port; 0 if the transport has none.
    fn ports(&self) -> [u16; 2] {
        match self.transport {
            Transport::Tcp(ports, _) | Transport::Udp(ports) => ports,
            Transport::Echo | Transport::Later => [0; 2],
        }
    }

    /// The key of the packet; `None` if the key has a tenant and the source belongs to none.
    pub(super) fn key(&self, parts: &[KeyPart], policy: &Policy) -> Option<Vec<Part>> {
        let masked = |prefix: KeyPrefix| {
            let KeyPrefix { ipv4, ipv6 } = prefix;
            Part::Address(truncated(self.source, if self.source.is_ipv4() { ipv4 } else { ipv6 }))
        };
        let part = |part: &KeyPart| {
            Some(match *part {
                KeyPart::Source => masked(policy.key_prefix),
                KeyPart::SourcePrefix { ipv4, ipv6 } => masked(KeyPrefix { ipv4, ipv6 }),
                KeyPart::Destination => Part::Address(self.destination),
                KeyPart::DestinationPort => Part::Port(self.protocol(), self.ports()[1]),
                KeyPart::Connection => {
                    let Self { source, destination, .. } = *self;
                    Part::Connection(source, destination, self.protocol(), self.ports())
                }
                KeyPart::Tenant => Part::Tenant(tenant(self.source, policy)?),
                KeyPart::Interface => Part::Slot(self.slot),
            })
        };
        parts.iter().map(part).collect()
    }

    /// The cost of the packet under a limit.
    pub(super) fn cost(&self, count: &Count) -> u64 {
        let Count::Weighted(costs) = count else {
            return if *count == Count::Bytes { self.frame().len() as u64 } else { 1 };
        };
        let fits = |kind: &PacketKind| match kind {
            PacketKind::Fragment => self.transport == Transport::Later,
            PacketKind::Syn => matches!(self.transport, Transport::Tcp(_, SYN)),
            PacketKind::Icmp => self.transport == Transport::Echo,
            PacketKind::Tcp => matches!(self.transport, Transport::Tcp(..)),
            PacketKind::Udp => self.protocol() == 17,
        };
        let first = costs.by_kind.iter().find(|(kind, _)| fits(kind));
        first.map_or(costs.default, |(_, cost)| *cost).into()
    }
}

/// The tenant of a source: that of the longest prefix that contains it.
fn tenant(source: IpAddr, policy: &Policy) -> Option<String> {
    let named = |(name, prefixes): (&String, &Vec<IpNet>)| {
        let of = prefixes.iter().filter(|prefix| prefix.contains(&source));
        Some((of.map(IpNet::prefix_len).max()?, name.clone()))
    };
    policy.tenants.iter().filter_map(named).max().map(|(_, name)| name)
}
