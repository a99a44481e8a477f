//! Numbers of protocols, and where their headers have what is read.

use network_types::{
    eth::{EthHdr, EtherType},
    ip::IpProto,
};

/// [`Packet::protocol`](crate::packet::headers::Packet::protocol) when the chain of headers does not tell it; reserved by IANA.
pub const UNKNOWN_PROTOCOL: u8 = 255;

/// Where the type of an Ethernet frame is that has no tags.
pub(crate) const ETHER_TYPE: usize = EthHdr::LEN - 2;

pub(crate) const IPV4: u16 = EtherType::Ipv4 as u16;

pub(crate) const IPV6: u16 = EtherType::Ipv6 as u16;

/// TCP.
pub const TCP: u8 = IpProto::Tcp as u8;

/// UDP.
pub const UDP: u8 = IpProto::Udp as u8;

pub(crate) const SCTP: u8 = IpProto::Sctp as u8;

/// ICMP.
pub const ICMP: u8 = IpProto::Icmp as u8;

/// ICMP for IPv6.
pub const ICMPV6: u8 = IpProto::Ipv6Icmp as u8;

/// Bytes of a TCP header up to and with its flags.
pub(crate) const TCP_FLAGS_END: usize = 14;

pub(crate) const SYN: u8 = 0x02;

pub(crate) const ACK: u8 = 0x10;
