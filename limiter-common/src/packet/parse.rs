//! Reading a frame: the [link headers](link), IPv4 and IPv6, up to the transport header.
//!
//! Bytes beyond the length that the IP header declares, or PPPoE, are never read as a header, so padding
//! cannot pretend to be one. A header that declares no length at all is read by the length of the frame, see
//! [`Anomaly::Unsized`]. The network header that follows a broken chain is not guessed: such packets keep their
//! source, and [`Packet::may_open`] counts them as what they could be. A packet that is nested deeper than the
//! parser walks is [`Anomaly::TooDeep`].

use network_types::ip::{Ipv4Hdr, Ipv6Hdr};

use crate::{
    base::address::Address,
    packet::{
        extension,
        frame::Frame,
        headers::{Anomaly, Datagram, FragmentField, Packet, address},
        link::{self, Leads, Link, NonIp},
        plain,
        reason::Reason,
    },
};

/// Reads a frame into `packet`, and gives the reason to pass it if it is within its limits.
///
/// It is written in place because the kernel half keeps it in a map: as a value, its fields would be
/// moved to and fro between registers and stack wherever two ways through the parser meet.
///
/// # Errors
/// What it is if it is not IP; `packet` is as it was then.
#[inline(always)]
pub fn parse<F: Frame + ?Sized>(frame: &F, packet: &mut Packet) -> Result<Reason, NonIp> {
    parse_by(frame, packet, link::read)
}

/// The same, with the link headers as `link` [reads](link::read) them: in the kernel, that is verified by itself.
///
/// # Errors
/// As of [`parse`].
#[inline(always)]
pub fn parse_by<F: Frame + ?Sized>(
    frame: &F,
    packet: &mut Packet,
    link: impl FnOnce(&F) -> Link,
) -> Result<Reason, NonIp> {
    if plain::read(frame, packet) {
        return Ok(Reason::Conform);
    }
    frame.hide_provenance(
        #[inline(always)]
        |frame| match parse_any(frame, packet, link(frame)) {
            Ok(()) => Ok(Reason::conform(packet)),
            Err(what) => Err(what),
        },
    )
}

/// Reads any frame that has these link headers.
///
/// # Errors
/// As of [`parse`].
#[inline(always)]
pub(crate) fn parse_any<F: Frame + ?Sized>(
    frame: &F,
    packet: &mut Packet,
    link: Link,
) -> Result<(), NonIp> {
    let readable = match link.leads() {
        Leads::Ipv4 => ipv4(frame, link, packet),
        Leads::Ipv6 => ipv6(frame, link, packet),
        Leads::LinkProtocol => return Err(NonIp::LinkProtocol),
        Leads::Other => return Err(NonIp::Other),
        Leads::TooDeep => {
            *packet = Packet::TOO_DEEP;
            return Ok(());
        }
        Leads::Cut => None,
    };
    match readable {
        Some((datagram, transport)) if transport != 0 => {
            datagram.transport(frame, packet, transport);
        }
        Some(_) => {}
        None => *packet = Packet::UNREADABLE,
    }
    Ok(())
}

/// Reads the IPv4 header of a packet, and gives where its transport header is, 0 if it has none that is read; `None` if not
/// even its source can be read.
#[inline(always)]
fn ipv4<F: Frame + ?Sized>(
    frame: &F,
    link: Link,
    packet: &mut Packet,
) -> Option<(Datagram, usize)> {
    let header: [u8; Ipv4Hdr::LEN] = link.network_header(frame)?;
    if header[0] >> 4 != 4 {
        return None;
    }
    let field = u16::from_be_bytes([header[6], header[7]]);
    *packet = Packet {
        source: Address::v4([header[12], header[13], header[14], header[15]]),
        destination: Address::v4([header[16], header[17], header[18], header[19]]).words,
        protocol: header[9],
        fragment: FragmentField((field & 0x1fff) << 3 | (field & 0x2000) >> 13),
        anomaly: Anomaly::None,
        identification: u32::from(u16::from_ne_bytes([header[4], header[5]])),
        hops: header[8],
        ..Packet::UNREADABLE
    };
    let length = usize::from(header[0] & 0x0f) * 4;
    let declared = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let datagram = Datagram::new(packet, frame, link, declared, declared);
    let transport = link.network() + length;
    if length < Ipv4Hdr::LEN || transport > datagram.end {
        packet.anomaly = Anomaly::Malformed;
        return Some((datagram, 0));
    }
    Some((datagram, transport))
}

/// The same of an IPv6 packet.
#[inline(always)]
fn ipv6<F: Frame + ?Sized>(
    frame: &F,
    link: Link,
    packet: &mut Packet,
) -> Option<(Datagram, usize)> {
    let header: [u8; Ipv6Hdr::LEN] = link.network_header(frame)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let protocol = header[6];
    *packet = Packet {
        source: Address::v6(address::<8>(&header)),
        destination: address::<24>(&header),
        protocol,
        anomaly: Anomaly::None,
        hops: header[7],
        ..Packet::UNREADABLE
    };
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut transport = link.network() + Ipv6Hdr::LEN;
    // A jumbogram (RFC 2675) too, which tells its length in a hop-by-hop option.
    let datagram = Datagram::new(packet, frame, link, Ipv6Hdr::LEN + payload, payload);
    if extension::is(protocol) {
        transport = extension::walk(packet, frame, &datagram, transport);
    }
    Some((datagram, transport))
}
