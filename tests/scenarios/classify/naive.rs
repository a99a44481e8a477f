//! Decides whether a limit applies to a packet, directly from the policy and the reference.

use std::net::IpAddr;

use limiter_tests::reference::{Reference, ReferenceFragment, UNKNOWN_PROTOCOL};
use limiter_userspace::policy::{
    Policy,
    model::{Count, Limit, TcpFlags, Whom},
};

use super::{ACK, SYN};

/// A packet as the reference reads it. A later fragment is one whose first fragment was not seen.
pub(super) struct Facts<'a> {
    pub(super) frame: &'a Reference,
    pub(super) bytes: u64,
    pub(super) interface: &'a str,
}

/// The TCP flags of a packet.
enum Flags {
    None,
    Unknown,
    /// In another fragment, which may open a connection; this packet does not.
    Elsewhere,
    Known(u8),
}

impl Facts<'_> {
    fn protocol(&self) -> u8 {
        match self.frame {
            // In IPv6, only the first fragment shows the protocol behind the extension headers.
            Reference::Ip { source, fragment: ReferenceFragment::Later(_), .. }
                if source.is_ipv6() =>
            {
                UNKNOWN_PROTOCOL
            }
            Reference::Ip { protocol, .. } => *protocol,
            _ => UNKNOWN_PROTOCOL,
        }
    }

    fn flags(&self) -> Flags {
        let Reference::Ip { tcp_flags, fragment, .. } = self.frame else { return Flags::Unknown };
        match (self.protocol(), fragment) {
            (6 | UNKNOWN_PROTOCOL, ReferenceFragment::Later(1)) => Flags::Unknown,
            (6 | UNKNOWN_PROTOCOL, ReferenceFragment::Later(_)) => Flags::Elsewhere,
            (UNKNOWN_PROTOCOL, _) => Flags::Unknown,
            (6, _) => tcp_flags.map_or(Flags::Unknown, Flags::Known),
            _ => Flags::None,
        }
    }

    /// Whether a header field that was not found may exist, because the packet may be of one of these
    /// protocols.
    fn hides(&self, protocols: &[u8]) -> bool {
        self.protocol() == UNKNOWN_PROTOCOL || protocols.contains(&self.protocol())
    }

    /// Whether a limit matches the packet, apart from its source.
    pub(super) fn fits(&self, limit: &Limit, policy: &Policy) -> bool {
        let it = &limit.matching;
        let (port, source_port, icmp_type, fragment, destination) = match self.frame {
            Reference::Ip { port, ports, icmp_type, fragment, destination, .. } => {
                let source_port = port.map(|_| ports.0);
                (
                    *port,
                    source_port,
                    *icmp_type,
                    *fragment != ReferenceFragment::Whole,
                    Some(*destination),
                )
            }
            _ => (None, None, None, false, None),
        };
        let protocol = self.protocol();
        let within = |whom: &[Whom]| destination.is_some_and(|it| is_within(whom, it, policy));
        (it.protocols.is_empty()
            || protocol == UNKNOWN_PROTOCOL
            || it.protocols.contains(&protocol))
            && (it.ports.is_empty()
                || port.map_or(self.hides(&[6, 17, 132]), |port| {
                    it.ports.iter().any(|range| range.contains(&port))
                }))
            && (it.source_ports.is_empty()
                || source_port.map_or(self.hides(&[6, 17, 132]), |port| {
                    it.source_ports.iter().any(|range| range.contains(&port))
                }))
            && (it.icmp_types.is_empty()
                || icmp_type.map_or(self.hides(&[1, 58]), |it_is| it.icmp_types.contains(&it_is)))
            && it.fragments.is_none_or(|wanted| wanted == fragment)
            && it.length.as_ref().is_none_or(|range| {
                // The greatest length that a policy can name also stands for all longer packets.
                range.contains(&u16::try_from(self.bytes).unwrap_or(u16::MAX))
            })
            && (it.interfaces.is_empty() || it.interfaces.iter().any(|name| name == self.interface))
            && (it.destinations.is_empty() || within(&it.destinations))
            && !within(&it.except_destinations)
            && it.tcp_flags.is_none_or(|wanted| self.has(wanted))
            && (limit.count != Count::Syns || self.opens())
    }

    fn opens(&self) -> bool {
        !matches!(self.flags(), Flags::Elsewhere) && self.has(TcpFlags { set: SYN, clear: ACK })
    }

    fn has(&self, wanted: TcpFlags) -> bool {
        match self.flags() {
            Flags::None => false,
            Flags::Unknown | Flags::Elsewhere => true,
            Flags::Known(flags) => flags & wanted.set == wanted.set && flags & wanted.clear == 0,
        }
    }
}

fn is_within(whom: &[Whom], address: IpAddr, policy: &Policy) -> bool {
    whom.iter().any(|whom| match whom {
        Whom::Prefix(prefix) => prefix.contains(&address),
        Whom::Set(name) => policy.sets[name].iter().any(|prefix| prefix.contains(&address)),
    })
}
