//! Source and destination of a datagram.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::checksum::Sum16BitWords;

/// Both addresses, of one family.
#[derive(Clone, Copy, Debug)]
pub(super) enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    /// An IPv4 address next to an IPv6 address is mapped to IPv6 (`::ffff:0:0/96`).
    pub(super) fn new(source: IpAddr, destination: IpAddr) -> Self {
        let v6 = |address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Self::V4(source, destination),
            _ => Self::V6(v6(source), v6(destination)),
        }
    }

    /// The checksum so far: that of the pseudo header for a transport header and payload of `length` bytes.
    pub(super) fn pseudo_header(&self, protocol: u8, length: usize) -> Sum16BitWords {
        let sum = Sum16BitWords::new().add_2bytes([0, protocol]);
        let sum = sum.add_slice(&(length as u32).to_be_bytes());
        match self {
            Self::V4(a, b) => sum.add_slice(&a.octets()).add_slice(&b.octets()),
            Self::V6(a, b) => sum.add_slice(&a.octets()).add_slice(&b.octets()),
        }
    }
}
