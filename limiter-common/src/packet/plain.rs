//! Plain packets, which most are: TCP or UDP in IPv4 without options, or in IPv6 without extension
//! headers, not tagged, not fragmented, whole, and no [control traffic](control).
//!
//! All of their headers are where constants say, so that they are read at once, with few checks. What is
//! not plain, or not well-formed, is left to the parser of any packet, which says the same of a plain one.

use network_types::{
    eth::EthHdr,
    ip::{Ipv4Hdr, Ipv6Hdr},
    tcp::TcpHdr,
    udp::UdpHdr,
};

use crate::{
    base::address::{Address, Mask},
    packet::{
        control,
        frame::Frame,
        headers::{Anomaly, Packet, Ports, TcpFlags, Transport, address},
        protocol::{ETHER_TYPE, IPV4, IPV6, TCP, TCP_FLAGS_END, UDP},
    },
};

/// Where the network header is.
const NETWORK: usize = EthHdr::LEN;

/// Reads a frame into `packet` if that is plain, and says whether it is.
#[inline(always)]
pub(crate) fn read<F: Frame + ?Sized>(frame: &F, packet: &mut Packet) -> bool {
    let read = match ether_type(frame) {
        Some(V4::ETHER_TYPE) => read_as::<V4, F>(frame, packet),
        Some(V6::ETHER_TYPE) => read_as::<V6, F>(frame, packet),
        _ => None,
    };
    read.is_some()
}

#[inline(always)]
fn read_as<V: Version, F: Frame + ?Sized>(frame: &F, packet: &mut Packet) -> Option<()> {
    let header = V::read(frame)?;
    let (source, destination) = (header.source(), header.destination());
    let found = without_addresses::<V, F>(frame, header.protocol(), header.end())?;
    *packet = Packet { source, destination, ..found };
    Some(())
}

/// The type that a frame says it is of, in network order in memory.
#[inline(always)]
pub fn ether_type<F: Frame + ?Sized>(frame: &F) -> Option<u16> {
    frame.read_at::<ETHER_TYPE, 2>().map(u16::from_ne_bytes)
}

/// The key of the source of a frame of a version of IP, and the transport protocol, if that is plain and no
/// [control traffic](control). Nothing else of it is read.
#[inline(always)]
pub fn source<V: Version, F: Frame + ?Sized>(frame: &F, mask: &Mask) -> Option<(Address, u8)> {
    let header = V::read(frame)?;
    let transport = match header.protocol() {
        TCP => TcpHdr::LEN,
        UDP => UdpHdr::LEN,
        _ => return None,
    };
    let end = header.end();
    if end > frame.total()
        || V::TRANSPORT + transport > end
        || V::TRANSPORT + transport > frame.len()
    {
        return None;
    }
    if header.protocol() == UDP && control::is_port(port::<V, F>(frame)?) {
        return None;
    }
    Some((header.source().masked(mask), header.protocol()))
}

/// The port that a plain packet is for. It is known that the header of its transport protocol is there.
#[inline(always)]
pub fn port<V: Version, F: Frame + ?Sized>(frame: &F) -> Option<u16> {
    // TCP and UDP have it at the same place.
    let [_, _, high, low] = V::behind::<4, F>(frame)?;
    Some(u16::from_be_bytes([high, low]))
}

/// What limits may ask of a plain packet besides its addresses, which are left out. It is of this protocol, and ends where its
/// network header says; the end of the frame will do where [`source`] has found that to be there. `None` if it is not plain, or not
/// all there.
#[inline(always)]
pub fn without_addresses<V: Version, F: Frame + ?Sized>(
    frame: &F,
    protocol: u8,
    end: usize,
) -> Option<Packet> {
    if end > frame.total() {
        return None;
    }
    let (anomaly, transport) = (Anomaly::None, Transport::PORTS);
    let plain = Packet { protocol, anomaly, transport, ..Packet::UNREADABLE };
    match protocol {
        TCP if V::TRANSPORT + TcpHdr::LEN <= end => {
            let header: [u8; TcpHdr::LEN] = V::behind(frame)?;
            Some(Packet {
                ports: Ports::new([header[0], header[1], header[2], header[3]]),
                sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                tcp_flags: TcpFlags::known(header[TCP_FLAGS_END - 1]),
                ..plain
            })
        }
        UDP if V::TRANSPORT + UdpHdr::LEN <= end => {
            let header: [u8; UdpHdr::LEN] = V::behind(frame)?;
            let ports = Ports::new([header[0], header[1], header[2], header[3]]);
            if control::is_port(ports.destination) {
                return None;
            }
            Some(Packet { ports, ..plain })
        }
        _ => None,
    }
}

/// A version of IP: its header, as plain packets have it.
pub trait Version: Sized {
    /// What frames of it say that they are of, in network order in memory.
    const ETHER_TYPE: u16;
    /// Where the transport header is.
    const TRANSPORT: usize;

    /// Reads it from a frame of this type, if it is plain.
    fn read<F: Frame + ?Sized>(frame: &F) -> Option<Self>;

    /// Bytes behind it.
    fn behind<const N: usize, F: Frame + ?Sized>(frame: &F) -> Option<[u8; N]>;

    /// Where in the frame the datagram ends, as it says.
    fn end(&self) -> usize;

    /// The transport protocol.
    fn protocol(&self) -> u8;

    /// The source.
    fn source(&self) -> Address;

    /// The words of the destination, as those of an [`Address`].
    fn destination(&self) -> [u32; 4];
}

/// IPv4: without options, of a whole datagram.
pub struct V4([u8; Ipv4Hdr::LEN]);

impl Version for V4 {
    const ETHER_TYPE: u16 = IPV4;
    const TRANSPORT: usize = NETWORK + Ipv4Hdr::LEN;

    #[inline(always)]
    fn read<F: Frame + ?Sized>(frame: &F) -> Option<Self> {
        /// Version 4, and a header of five words.
        const PLAIN: u8 = 0x45;
        /// All of the word but that it must not be fragmented, and a bit that means nothing.
        const FRAGMENT: u16 = 0x3fff;
        let header: [u8; Ipv4Hdr::LEN] = frame.read_at::<NETWORK, _>()?;
        let fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT;
        if header[0] == PLAIN && fragment == 0 { Some(Self(header)) } else { None }
    }

    #[inline(always)]
    fn behind<const N: usize, F: Frame + ?Sized>(frame: &F) -> Option<[u8; N]> {
        frame.read_at::<{ Self::TRANSPORT }, N>()
    }

    #[inline(always)]
    fn end(&self) -> usize {
        NETWORK + usize::from(u16::from_be_bytes([self.0[2], self.0[3]]))
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        self.0[9]
    }

    #[inline(always)]
    fn source(&self) -> Address {
        Address::v4([self.0[12], self.0[13], self.0[14], self.0[15]])
    }

    #[inline(always)]
    fn destination(&self) -> [u32; 4] {
        Address::v4([self.0[16], self.0[17], self.0[18], self.0[19]]).words
    }
}

/// IPv6: without extension headers, as its protocol says.
pub struct V6([u8; Ipv6Hdr::LEN]);

impl Version for V6 {
    const ETHER_TYPE: u16 = IPV6;
    const TRANSPORT: usize = NETWORK + Ipv6Hdr::LEN;

    #[inline(always)]
    fn read<F: Frame + ?Sized>(frame: &F) -> Option<Self> {
        let header: [u8; Ipv6Hdr::LEN] = frame.read_at::<NETWORK, _>()?;
        if header[0] >> 4 == 6 { Some(Self(header)) } else { None }
    }

    #[inline(always)]
    fn behind<const N: usize, F: Frame + ?Sized>(frame: &F) -> Option<[u8; N]> {
        frame.read_at::<{ Self::TRANSPORT }, N>()
    }

    #[inline(always)]
    fn end(&self) -> usize {
        Self::TRANSPORT + usize::from(u16::from_be_bytes([self.0[4], self.0[5]]))
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        self.0[6]
    }

    #[inline(always)]
    fn source(&self) -> Address {
        Address::v6(address::<8>(&self.0))
    }

    #[inline(always)]
    fn destination(&self) -> [u32; 4] {
        address::<24>(&self.0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use super::*;
    use crate::{
        packet::{frame::Sighting, link, parse::parse_any, reason::Reason},
        policy::{limit::Key, rest::Rest},
    };

    /// A frame of a header of IP, the first bytes of one of a transport protocol, and as many zeros.
    fn frame(ether_type: u16, ip: &[u8], transport: &[u8], zeros: usize) -> Vec<u8> {
        let ethernet = [&[2; 12][..], &ether_type.to_ne_bytes()].concat();
        [&ethernet[..], ip, transport, &vec![0; zeros]].concat()
    }

    fn frames() -> [Vec<u8>; 4] {
        let v4 = |protocol, length| {
            [0x45, 0, 0, length, 7, 7, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]
        };
        let v6 = |protocol, length| {
            let header = [0x60, 0, 0, 0, 0, length, protocol, 64];
            let addresses = core::array::from_fn::<u8, 32, _>(|at| at as u8 * 7 + 1);
            [&header[..], &addresses].concat()
        };
        let udp = [0x9c, 0x40, 0, 53, 0, 10, 0, 0];
        let tcp = [0x9c, 0x40, 1, 0xbb, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 0x12];
        [
            frame(IPV4, &v4(UDP, 30), &udp, 12),
            frame(IPV4, &v4(TCP, 42), &tcp, 10),
            frame(IPV6, &v6(UDP, 10), &udp, 4),
            frame(IPV6, &v6(TCP, 22), &tcp, 8),
        ]
    }

    /// What is known of a frame by its parts, if it is plain.
    fn by_parts<F: Frame + ?Sized>(frame: &F, mask: &Mask) -> Option<Packet> {
        fn parts<V: Version, F: Frame + ?Sized>(frame: &F, mask: &Mask) -> Option<Packet> {
            let (source, protocol) = source::<V, F>(frame, mask)?;
            let packet = without_addresses::<V, F>(frame, protocol, frame.total()).unwrap();
            assert_eq!(port::<V, F>(frame), packet.port());
            let mut whole = Packet::UNREADABLE;
            assert!(read(frame, &mut whole));
            for key in [Key(Key::CONNECTION), Key(Key::DESTINATION), Key(Key::PORT)] {
                assert_eq!(
                    Rest::of_plain::<V, F>(frame, protocol, key),
                    Some(Rest::of(&whole, key))
                );
            }
            Some(Packet { source, ..packet })
        }
        match ether_type(frame)? {
            V4::ETHER_TYPE => parts::<V4, F>(frame, mask),
            V6::ETHER_TYPE => parts::<V6, F>(frame, mask),
            _ => None,
        }
    }

    /// Whether a frame is plain, which is read as any other is.
    fn check<F: Frame + ?Sized>(frame: &F, what: &[u8]) -> bool {
        let (mut plain, mut any) = (Packet::UNREADABLE, Packet::UNREADABLE);
        let is_plain = read(frame, &mut plain);
        for (v4, v6) in [(32, 64), (25, 57), (0, 0), (32, 65), (24, 128)] {
            let mask = Mask::new(v4, v6);
            let source = plain.source.masked(&mask);
            let parts = is_plain.then_some(Packet { source, destination: [0; 4], ..plain });
            assert_eq!(by_parts(frame, &mask), parts, "{what:02x?} of {}", frame.total());
        }
        if is_plain {
            assert_eq!(parse_any(frame, &mut any, link::read(frame)), Ok(()));
            assert!(!control::may_be(&any));
            // Nobody asks for these.
            (any.hops, any.identification) = (0, 0);
            assert_eq!(Reason::conform(&plain), Reason::Conform);
        }
        assert_eq!(plain, any, "{what:02x?} of {}", frame.total());
        is_plain
    }

    fn is_plain(frame: &[u8]) -> bool {
        check(frame, frame)
    }

    #[test]
    fn it_is_read_as_any_packet_is_whatever_a_byte_of_it_is() {
        for frame in frames() {
            assert!(is_plain(&frame));
            let mut plain = 0;
            for at in 0..frame.len() {
                for byte in 0..=u8::MAX {
                    let mut other = frame.clone();
                    other[at] = byte;
                    plain += usize::from(is_plain(&other));
                }
            }
            assert!((1..frame.len() * 256).contains(&plain), "some are plain, and some not");
        }
    }

    #[test]
    fn it_is_read_as_any_packet_is_wherever_it_is_cut() {
        // What is declared, and what has to be there of it: the headers.
        let lengths = [(44, 42), (56, 54), (64, 62), (76, 74)];
        for (frame, (declared, headers)) in frames().into_iter().zip(lengths) {
            for length in 0..=frame.len() {
                let bytes = &frame[..length];
                assert_eq!(is_plain(bytes), length >= declared, "{length} of {declared}");
                for total in length..length + 100 {
                    let piece = Sighting { bytes, total };
                    let plain = length >= headers && total >= declared;
                    assert_eq!(check(&piece, bytes), plain, "{length} of {total}");
                }
            }
        }
    }

    #[test]
    fn one_without_payload_is_plain_and_one_that_may_be_fragmented() {
        for (frame, (at, least)) in
            frames().into_iter().zip([(17, 28), (17, 40), (19, 8), (19, 20)])
        {
            for length in 0..=least {
                let mut other = frame.clone();
                other[at] = length;
                assert_eq!(is_plain(&other), length == least, "{length}");
            }
        }
        let [mut udp, ..] = frames();
        udp[20] = 0;
        assert!(is_plain(&udp), "it may be fragmented");
    }
}
