//! Reading a frame: Ethernet, VLAN tags, IPv4 and IPv6, up to the transport header.
//!
//! Bytes beyond the length that the IP header declares are never read as a header, so padding
//! cannot pretend to be one. A header that declares no length at all is read by the length of the frame, see
//! [`Anomaly::Unsized`]. The network header that follows a broken chain is not guessed: such packets keep their
//! source, and [`Packet::may_open`] counts them as what they could be. A packet that is nested deeper than the
//! parser walks is [`Anomaly::TooDeep`].

use network_types::{
    eth::{EthHdr, EtherType},
    ip::{Ipv4Hdr, Ipv6Hdr},
    vlan::VlanHdr,
};

use crate::{
    base::address::Address,
    packet::{
        extension::{self, Chain},
        frame::Frame,
        headers::{Anomaly, Datagram, FragmentField, Packet, Ports, TcpFlags, Transport, address},
        plain,
        protocol::{ETHER_TYPE, IPV4, IPV6},
        reason::Reason,
    },
};

/// VLAN tags that are walked.
pub const TAG_BOUND: usize = 4;
const TAGS: [u16; 3] =
    [EtherType::Ieee8021q as u16, EtherType::Ieee8021ad as u16, EtherType::Ieee8021QinQ1 as u16];

/// Reads a frame into `packet`, and gives the reason to pass it if it is within its limits; `None`, and
/// `packet` is as it was, if it is not IP.
///
/// It is written in place because the kernel half keeps it in a map: as a value, its fields would be
/// moved to and fro between registers and stack wherever two ways through the parser meet.
#[inline(always)]
pub fn parse<F: Frame + ?Sized>(frame: &F, packet: &mut Packet) -> Option<Reason> {
    if plain::read(frame, packet) {
        return Some(Reason::Conform);
    }
    frame.hide_provenance(
        #[inline(always)]
        |frame| if parse_any(frame, packet) { Some(Reason::conform(packet)) } else { None },
    )
}

/// Reads any frame, and says whether it is IP; `packet` is as it was if it is not.
#[inline(always)]
pub(crate) fn parse_any<F: Frame + ?Sized>(frame: &F, packet: &mut Packet) -> bool {
    let Some(mut ether_type) = frame.read(ETHER_TYPE).map(u16::from_ne_bytes) else {
        *packet = Packet::UNREADABLE;
        return true;
    };
    let mut network = EthHdr::LEN;
    for _ in 0..TAG_BOUND {
        if !is_tag(ether_type) {
            break;
        }
        let Some(inner) = frame.read(network + VlanHdr::LEN - 2) else {
            *packet = Packet::UNREADABLE;
            return true;
        };
        ether_type = u16::from_ne_bytes(inner);
        network += VlanHdr::LEN;
    }
    let readable = match ether_type {
        IPV4 => ipv4(frame, network, packet),
        IPV6 => ipv6(frame, network, packet),
        tag if is_tag(tag) => {
            *packet = Packet::TOO_DEEP;
            return true;
        }
        _ => return false,
    };
    if readable.is_none() {
        *packet = Packet::UNREADABLE;
    }
    true
}

#[inline(always)]
const fn is_tag(ether_type: u16) -> bool {
    let [q, ad, qinq] = TAGS;
    ether_type == q || ether_type == ad || ether_type == qinq
}

/// Reads an IPv4 packet; `None` if not even its source can be read.
#[inline(always)]
fn ipv4<F: Frame + ?Sized>(frame: &F, network: usize, packet: &mut Packet) -> Option<()> {
    let header: [u8; Ipv4Hdr::LEN] = frame.read(network)?;
    if header[0] >> 4 != 4 {
        return None;
    }
    let field = u16::from_be_bytes([header[6], header[7]]);
    *packet = Packet {
        source: Address::v4([header[12], header[13], header[14], header[15]]),
        destination: Address::v4([header[16], header[17], header[18], header[19]]).words,
        protocol: header[9],
        ports: Ports::default(),
        sequence: 0,
        tcp_flags: TcpFlags::default(),
        fragment: FragmentField((field & 0x1fff) << 3 | (field & 0x2000) >> 13),
        anomaly: Anomaly::None,
        transport: Transport::NONE,
        identification: u32::from(u16::from_ne_bytes([header[4], header[5]])),
        hops: header[8],
        alert: 0,
    };
    let length = usize::from(header[0] & 0x0f) * 4;
    let declared = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let datagram = Datagram::new(packet, frame, network, declared, declared);
    if length < Ipv4Hdr::LEN || network + length > datagram.end {
        packet.anomaly = Anomaly::Malformed;
    } else {
        datagram.transport(frame, packet, network + length);
    }
    Some(())
}

/// Reads an IPv6 packet; `None` if not even its source can be read.
#[inline(always)]
fn ipv6<F: Frame + ?Sized>(frame: &F, network: usize, packet: &mut Packet) -> Option<()> {
    let header: [u8; Ipv6Hdr::LEN] = frame.read(network)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let protocol = header[6];
    *packet = Packet {
        source: Address::v6(address::<8>(&header)),
        destination: address::<24>(&header),
        protocol,
        ports: Ports::default(),
        sequence: 0,
        tcp_flags: TcpFlags::default(),
        fragment: FragmentField(0),
        anomaly: Anomaly::None,
        transport: Transport::NONE,
        identification: 0,
        hops: header[7],
        alert: 0,
    };
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut transport = network + Ipv6Hdr::LEN;
    // A jumbogram (RFC 2675) too, which tells its length in a hop-by-hop option.
    let datagram = Datagram::new(packet, frame, network, Ipv6Hdr::LEN + payload, payload);
    if extension::is(protocol) {
        let mut chain = Chain::new(protocol);
        transport = chain.walk(frame, &datagram, transport);
        chain.conclude(packet);
        if transport == 0 {
            return Some(());
        }
    }
    datagram.transport(frame, packet, transport);
    Some(())
}
