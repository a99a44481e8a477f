//! Frames to ask about: built from an operator's description of a packet, or captured.

use std::net::IpAddr;

pub use limiter_common::packet::frame::Sighting;
use limiter_common::packet::{
    control,
    protocol::{TCP, UDP},
};

use super::error::InquiryError;

/// An operator's description of a packet.
///
/// ```
/// use limiter_userspace::query::frame::Sketch;
///
/// let [source, destination] = ["192.0.2.1", "198.51.100.2"].map(|text| text.parse().unwrap());
/// let sketch = Sketch { ports: [40_000, 443], ..Sketch::new(source, destination, 6) };
/// assert_eq!(sketch.build().unwrap().len(), Sketch::SHORTEST);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// The IP protocol number.
    pub protocol: u8,
    /// The source port and the destination port. Protocols without ports ignore them.
    pub ports: [u16; 2],
    /// The TCP flags. Other protocols ignore them.
    pub flags: u8,
    /// The ICMP or ICMPv6 type. Other protocols ignore it.
    pub icmp: u8,
    /// Whether the packet is a first fragment, with more to follow.
    pub fragment: bool,
    /// The VLAN ids, the outermost first.
    pub tags: Vec<u16>,
    /// Bytes of the frame, from the Ethernet header on. If not given: the length of the headers,
    /// but at least [`Self::SHORTEST`].
    pub length: Option<usize>,
}

const SCTP: u8 = 132;

impl Sketch {
    /// Bytes of the shortest frame of Ethernet, without its checksum.
    pub const SHORTEST: usize = 60;
    /// Bytes of the longest frame that can be asked about.
    pub const LONGEST: usize = 1 << 16;

    /// A packet with all optional fields zero or absent.
    pub const fn new(source: IpAddr, destination: IpAddr, protocol: u8) -> Self {
        let (ports, flags, icmp, fragment) = ([0; 2], 0, 0, false);
        Self {
            source,
            destination,
            protocol,
            ports,
            flags,
            icmp,
            fragment,
            tags: Vec::new(),
            length: None,
        }
    }

    /// Builds the bytes of the frame. Checksums are zero, as the datapath does not read them.
    ///
    /// # Errors
    /// - [`InquiryError::Families`], if the addresses are of different families.
    /// - [`InquiryError::TooShort`], if `length` has no room for the headers.
    /// - [`InquiryError::TooLong`], if `length` is more than [`Self::LONGEST`].
    pub fn build(&self) -> Result<Vec<u8>, InquiryError> {
        // Locally administered addresses, which no device has by default.
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in &self.tags {
            frame.extend(0x8100_u16.to_be_bytes());
            frame.extend((tag & 0xfff).to_be_bytes());
        }
        let network = frame.len() + 2;
        let transport = self.transport();
        let header = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend(0x0800_u16.to_be_bytes());
                let field = u16::from(self.fragment) << 13;
                frame.extend([0x45, 0, 0, 0, 0, 1]);
                frame.extend(field.to_be_bytes());
                frame.extend([self.hops(), self.protocol, 0, 0]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                20
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                const FRAGMENT: u8 = 44;
                frame.extend(0x86dd_u16.to_be_bytes());
                let next = if self.fragment { FRAGMENT } else { self.protocol };
                frame.extend([0x60, 0, 0, 0, 0, 0, next, self.hops()]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
                if self.fragment {
                    frame.extend([self.protocol, 0, 0, 1, 0, 0, 0, 1]);
                }
                40
            }
            (from, to) => return Err(InquiryError::Families { from, to }),
        };
        frame.extend(transport);
        let least = frame.len();
        let length = self.length.unwrap_or(least.max(Self::SHORTEST));
        if length < least {
            return Err(InquiryError::TooShort { length, least });
        }
        if length > Self::LONGEST {
            return Err(InquiryError::TooLong { length, most: Self::LONGEST });
        }
        // A length that was given counts as payload up to the end. Padding to the shortest frame is
        // no payload.
        let end = if self.length.is_some() { length } else { least };
        frame.resize(length, 0);
        let (place, declared) = if header == 20 {
            (network + 2, end - network)
        } else {
            (network + 4, end - network - 40)
        };
        let declared = u16::try_from(declared).unwrap_or(u16::MAX);
        frame[place..place + 2].copy_from_slice(&declared.to_be_bytes());
        if self.protocol == UDP {
            let transport = least - 8;
            let length = u16::try_from(end - transport).unwrap_or(u16::MAX);
            frame[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
        }
        Ok(frame)
    }

    /// The hop limit or time to live. Control protocols demand a certain one, without which the
    /// packet would not count as control traffic.
    fn hops(&self) -> u8 {
        control::hops_of(self.protocol, self.ports[1], self.icmp).unwrap_or(64)
    }

    fn transport(&self) -> Vec<u8> {
        let ports = self.ports.iter().flat_map(|port| port.to_be_bytes());
        let mut header: Vec<u8> = Vec::new();
        match self.protocol {
            TCP => {
                header.extend(ports);
                header.extend([0; 8]);
                header.extend([0x50, self.flags, 0, 0, 0, 0, 0, 0]);
            }
            UDP => {
                header.extend(ports);
                // The length is filled in when the frame is complete.
                header.extend([0; 4]);
            }
            SCTP => {
                header.extend(ports);
                header.extend([0; 8]);
            }
            1 | 58 => header.extend([self.icmp, 0, 0, 0, 0, 0, 0, 0]),
            _ => {}
        }
        header
    }
}

#[cfg(test)]
mod tests {
    use limiter_common::{
        base::address::Address,
        packet::{
            headers::{Fragment, Packet},
            parse::parse,
            reason::Reason,
        },
    };

    use super::*;

    fn parsed(sketch: &Sketch) -> (Packet, usize) {
        let frame = sketch.build().unwrap();
        let mut packet = Packet::UNREADABLE;
        assert!(parse(&Sighting::whole(&frame), &mut packet).is_ok());
        (packet, frame.len())
    }

    fn pairs() -> [(IpAddr, IpAddr); 2] {
        [("192.0.2.1", "198.51.100.2"), ("2001:db8::1", "2001:db8:1::2")]
            .map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()))
    }

    #[test]
    fn what_is_said_of_a_packet_is_what_the_parser_reads() {
        for (source, destination) in pairs() {
            for protocol in [TCP, UDP, SCTP, 47, if source.is_ipv4() { 1 } else { 58 }] {
                for tags in [vec![], vec![5], vec![5, 100, 7, 4095]] {
                    for (fragment, length) in [(false, None), (true, None), (false, Some(1_514))] {
                        let sketch = Sketch {
                            ports: [40_000, 443],
                            flags: 0x12,
                            icmp: 8,
                            fragment,
                            tags: tags.clone(),
                            length,
                            ..Sketch::new(source, destination, protocol)
                        };
                        let (packet, bytes) = parsed(&sketch);
                        assert_eq!(packet.source, Address::from(source), "{sketch:?}");
                        assert_eq!(packet.destination, Address::from(destination).words);
                        assert_eq!(packet.protocol, protocol, "{sketch:?}");
                        assert_eq!(packet.fragment.get() == Fragment::First, fragment);
                        let has_ports = [TCP, UDP, SCTP].contains(&protocol);
                        assert_eq!(packet.port(), has_ports.then_some(443), "{sketch:?}");
                        assert_eq!(packet.icmp_type(), [1, 58].contains(&protocol).then_some(8));
                        assert_eq!(packet.tcp_flags.get(), (protocol == TCP).then_some(0x12));
                        let plain = if fragment { Reason::Fragment } else { Reason::Conform };
                        assert_eq!(Reason::conform(&packet), plain, "{sketch:?}");
                        assert!(bytes >= Sketch::SHORTEST && length.is_none_or(|it| it == bytes));
                    }
                }
            }
        }
    }

    #[test]
    fn frames_that_cannot_be_are_refused() {
        let [(four, other), (six, _)] = pairs();
        let mixed = Sketch::new(four, six, TCP).build();
        assert!(matches!(mixed, Err(InquiryError::Families { .. })), "{mixed:?}");
        for (length, least) in [(53, 54), (0, 54)] {
            let short = Sketch { length: Some(length), ..Sketch::new(four, other, TCP) };
            assert_eq!(short.build(), Err(InquiryError::TooShort { length, least }));
        }
        let long = Sketch { length: Some(1 << 17), ..Sketch::new(four, other, UDP) };
        assert!(matches!(long.build(), Err(InquiryError::TooLong { .. })));
    }

    #[test]
    fn a_captured_frame_is_as_long_as_it_was() {
        let [(source, destination), _] = pairs();
        let sketch = Sketch { length: Some(1_000), ..Sketch::new(source, destination, UDP) };
        let frame = sketch.build().unwrap();
        let cut = Sighting { bytes: &frame[..64], total: frame.len() };
        let mut packet = Packet::UNREADABLE;
        assert!(parse(&cut, &mut packet).is_ok());
        assert_eq!(Reason::conform(&packet), Reason::Conform, "cut by the capture, not malformed");
        assert!(parse(&Sighting::whole(&frame[..64]), &mut packet).is_ok());
        assert_eq!(Reason::conform(&packet), Reason::Malformed);
    }
}
