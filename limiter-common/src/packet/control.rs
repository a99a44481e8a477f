//! The link's own control traffic: what keeps neighbours, routers and addresses working.
//!
//! Such packets have budgets of their own, and no list, penalty or limit is about them. Each protocol is recognised by
//! what its standard demands of the receiver:
//!
//! | protocol | is | sent by | hops | to |
//! |---|---|---|---|---|
//! | `ndp` | ICMPv6 133 to 137: router and neighbour discovery, redirects | any | 255 | any |
//! | `mld` | ICMPv6 130, 131, 132, 143, with the router alert option | fe80::/10; reports also `::` | 1 | any |
//! | `igmp` | IP protocol 2, IPv4 | any | 1 | 224.0.0.0/4 |
//! | `vrrp` | IP protocol 112 | any | 255 | 224.0.0.18, ff02::12 |
//! | `bfd` | UDP to 3784 | any | 255 | any |
//! | `ospf` | IP protocol 89 | any | 1 | 224.0.0.5, 224.0.0.6, ff02::5, ff02::6 |
//! | `ospf`, from afar | the same | any | 1 | a unicast address |
//! | `dhcp` | UDP between 67 and 68 or between two 67, IPv4; likewise 546 and 547, IPv6 | any | any | 255.255.255.255, 169.254.0.0/16; fe80::/10, ff02::/16 |
//! | `dhcp`, from afar | the same | any | any | another unicast address |
//!
//! No router forwards a packet of the other rows to this link: its hop limit would be less than 255, or its destination
//! is of the link. What is in a row "from afar" can be forged by anybody, so each source of it has a small budget.
//!
//! Packets must be whole and well-formed. Of OSPF, which sends long updates in fragments, these count too.

use crate::{
    base::address::Address,
    packet::{
        headers::{Anomaly, Packet, Ports},
        named::named,
        protocol::{ICMPV6, UDP},
    },
};

named! {
    /// A row of the table of control protocols, by its name in a policy. Rows of the same protocol share it.
    #[repr(u8)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Protocol {
        /// Neighbour and router discovery.
        Ndp = 0, "ndp";
        /// Multicast listener discovery.
        Mld = 1, "mld";
        /// IGMP.
        Igmp = 2, "igmp";
        /// VRRP.
        Vrrp = 3, "vrrp";
        /// BFD over a single hop.
        Bfd = 4, "bfd";
        /// OSPF to the groups of routers.
        Ospf = 5, "ospf";
        /// DHCP and DHCPv6 to an address that no router forwards.
        Dhcp = 6, "dhcp";
        /// OSPF to a unicast address.
        OspfFar = 7, "ospf";
        /// DHCP and DHCPv6 to another unicast address.
        DhcpFar = 8, "dhcp";
    }
}

const IGMP: u8 = 2;
const OSPF: u8 = 89;
const VRRP: u8 = 112;
const BFD_PORT: u16 = 3784;
const DHCP_SERVER: u16 = 67;
const DHCP_CLIENT: u16 = 68;
const DHCPV6_CLIENT: u16 = 546;
const DHCPV6_SERVER: u16 = 547;

/// Whether UDP to this port may be control traffic.
#[inline(always)]
pub const fn is_port(port: u16) -> bool {
    matches!(port, DHCP_SERVER | DHCP_CLIENT | DHCPV6_CLIENT | DHCPV6_SERVER | BFD_PORT)
}

/// Whether a packet may be control traffic: a first look that few others pass.
#[inline(always)]
pub const fn may_be(packet: &Packet) -> bool {
    match packet.protocol {
        UDP => is_port(packet.ports.destination),
        ICMPV6 | IGMP | VRRP | OSPF => true,
        _ => false,
    }
}

/// The time to live or hop limit with which the link sends packets like this one, for a packet of which that is not
/// known; `None` if none is demanded.
pub const fn hops_of(protocol: u8, port: u16, icmp_type: u8) -> Option<u8> {
    match (protocol, port, icmp_type) {
        (ICMPV6, _, 133..=137) | (VRRP, ..) | (UDP, BFD_PORT, _) => Some(255),
        (ICMPV6, _, 130..=132 | 143) | (IGMP | OSPF, ..) => Some(1),
        _ => None,
    }
}

impl Protocol {
    /// The row of a packet; `None` for an ordinary one.
    #[inline(always)]
    pub const fn of(packet: &Packet) -> Option<Self> {
        if !matches!(packet.anomaly, Anomaly::None) {
            return None;
        }
        let is_whole = packet.fragment.0 == 0;
        let to = Destination::of(packet);
        match (packet.protocol, packet.hops) {
            (ICMPV6, _) if is_whole => Self::of_icmpv6(packet),
            (IGMP, 1) if is_whole && to.is_ipv4 && to.is_multicast() => Some(Self::Igmp),
            (VRRP, 255) if is_whole && to.is_group(18, 0x12) => Some(Self::Vrrp),
            (OSPF, 1) if to.is_group(5, 5) || to.is_group(6, 6) => Some(Self::Ospf),
            // In IPv6 a later fragment may be of any protocol, whatever it says.
            (OSPF, 1) if !to.is_multicast() && (is_whole || to.is_ipv4) => Some(Self::OspfFar),
            (UDP, 255) if is_whole && packet.ports.destination == BFD_PORT => Some(Self::Bfd),
            (UDP, _) if is_whole && is_dhcp(packet.ports, to.is_ipv4) => {
                if to.is_of_link() {
                    Some(Self::Dhcp)
                } else if to.is_multicast() {
                    None
                } else {
                    Some(Self::DhcpFar)
                }
            }
            _ => None,
        }
    }

    #[inline(always)]
    const fn of_icmpv6(packet: &Packet) -> Option<Self> {
        let Some(kind) = packet.icmp_type() else { return None };
        if packet.source.family != Address::IPV6 {
            return None;
        }
        match (kind, packet.hops) {
            (133..=137, 255) => Some(Self::Ndp),
            (130..=132 | 143, 1) if packet.alert != 0 => {
                let is_report = kind != 130;
                let from = packet.source.words;
                let may_send = is_link_local(from) || is_report && is_unspecified(from);
                if may_send { Some(Self::Mld) } else { None }
            }
            _ => None,
        }
    }

    /// Whether anybody can forge it, however far away.
    #[inline(always)]
    pub const fn is_far(self) -> bool {
        matches!(self, Self::OspfFar | Self::DhcpFar)
    }

    /// Its bit in [`Budgets::protocols`](crate::policy::control::Budgets::protocols).
    #[inline(always)]
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// The destination of a packet, in host order.
#[derive(Clone, Copy)]
struct Destination {
    is_ipv4: bool,
    words: [u32; 4],
}

impl Destination {
    #[inline(always)]
    const fn of(packet: &Packet) -> Self {
        let [a, b, c, d] = packet.destination;
        let words = [u32::from_be(a), u32::from_be(b), u32::from_be(c), u32::from_be(d)];
        Self { is_ipv4: packet.source.family == Address::IPV4, words }
    }

    #[inline(always)]
    const fn is_multicast(self) -> bool {
        if self.is_ipv4 { self.words[0] >> 28 == 0xe } else { self.words[0] >> 24 == 0xff }
    }

    /// Whether it is 224.0.0.x or ff02::x.
    #[inline(always)]
    const fn is_group(self, ipv4: u32, ipv6: u32) -> bool {
        let [a, b, c, d] = self.words;
        if self.is_ipv4 {
            a == 0xe000_0000 | ipv4
        } else {
            a == 0xff02_0000 && b | c == 0 && d == ipv6
        }
    }

    /// Whether no router forwards packets to it: broadcast, link-local, or a group of the link.
    #[inline(always)]
    const fn is_of_link(self) -> bool {
        let [a, ..] = self.words;
        if self.is_ipv4 {
            a == u32::MAX || a >> 16 == 0xa9fe
        } else {
            a >> 22 == 0x3fa || a >> 16 == 0xff02
        }
    }
}

/// Whether an address of IPv6, in network order, is of fe80::/10.
#[inline(always)]
const fn is_link_local(words: [u32; 4]) -> bool {
    u32::from_be(words[0]) >> 22 == 0x3fa
}

#[inline(always)]
pub(crate) const fn is_unspecified([a, b, c, d]: [u32; 4]) -> bool {
    a | b | c | d == 0
}

/// Whether these are the ports of DHCP, or of DHCPv6.
#[inline(always)]
const fn is_dhcp(Ports { source, destination }: Ports, is_ipv4: bool) -> bool {
    let (client, server) =
        if is_ipv4 { (DHCP_CLIENT, DHCP_SERVER) } else { (DHCPV6_CLIENT, DHCPV6_SERVER) };
    // Relays send from the port of servers to that of servers.
    source == server && (destination == client || destination == server)
        || source == client && destination == server
}
