//! What packets of a file begin with, by its link type, and how they become frames of Ethernet.

use std::fmt;

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// A link type (`LINKTYPE_` of the registry at tcpdump.org).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// An Ethernet header (1).
    Ethernet,
    /// Nothing before the IP header (101, 228, 229, and 12 and 14 of BSDs).
    Raw,
    /// An address family of four bytes (0, 108), as on loopback interfaces of BSDs.
    Loopback,
    /// A header of 16 bytes that ends with the type of Ethernet (113), as of `tcpdump -i any`.
    Cooked,
    /// A header of 20 bytes that begins with the type of Ethernet (276), the newer kind of that.
    Cooked2,
    /// Any other; its packets are not read.
    Other(u32),
}

impl Link {
    /// The link type of this number.
    pub(super) const fn of(number: u32) -> Self {
        match number {
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            0 | 108 => Self::Loopback,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            other => Self::Other(other),
        }
    }

    /// Whether packets of this link type are read.
    pub(super) const fn is_read(self) -> bool {
        !matches!(self, Self::Other(_))
    }

    /// Makes a frame of Ethernet of a packet, of which `total` bytes were on the wire, in place of what
    /// `frame` holds. Returns the length of the frame on the wire; `None` if the packets are not read.
    ///
    /// A packet that is shorter than its own header becomes a frame of no bytes.
    pub(super) fn make(self, bytes: &[u8], total: usize, frame: &mut Vec<u8>) -> Option<usize> {
        frame.clear();
        let (header, kind) = match self {
            Self::Ethernet => {
                frame.extend(bytes);
                return Some(total);
            }
            Self::Raw => (0, of_version(bytes.first())),
            Self::Loopback => (4, of_version(bytes.get(4))),
            Self::Cooked => (16, bytes.get(14..16)),
            Self::Cooked2 => (20, bytes.get(..2)),
            Self::Other(_) => return None,
        };
        if let (Some(payload), Some(kind)) = (bytes.get(header..), kind) {
            frame.extend([0; ETHERNET - 2]);
            frame.extend(kind);
            frame.extend(payload);
        }
        Some(total.saturating_sub(header) + ETHERNET)
    }
}

/// The type of Ethernet of a packet by the version in its first byte; that of no protocol if it is
/// neither IPv4 nor IPv6.
fn of_version(first: Option<&u8>) -> Option<&'static [u8]> {
    Some(match first? >> 4 {
        4 => &[0x08, 0x00],
        6 => &[0x86, 0xdd],
        _ => &[0xff, 0xff],
    })
}

impl fmt::Display for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, name) = match self {
            Self::Ethernet => (1, Some("Ethernet")),
            Self::Raw => (101, Some("IP")),
            Self::Loopback => (0, Some("loopback")),
            Self::Cooked => (113, Some("Linux cooked")),
            Self::Cooked2 => (276, Some("Linux cooked, version 2")),
            Self::Other(number) => (*number, name_of(*number)),
        };
        match name {
            Some(name) => write!(formatter, "{number} ({name})"),
            None => write!(formatter, "{number}"),
        }
    }
}

/// The name of a link type that is not read, for the most common ones.
const fn name_of(number: u32) -> Option<&'static str> {
    Some(match number {
        9 => "PPP",
        105 => "IEEE 802.11",
        119 => "IEEE 802.11 with Prism headers",
        127 => "IEEE 802.11 with radiotap headers",
        163 => "IEEE 802.11 with AVS headers",
        187 | 201 => "Bluetooth",
        189 | 220 | 249 => "USB",
        195 | 215 | 230 => "IEEE 802.15.4",
        227 => "CAN",
        239 => "NFLOG",
        253 => "Netlink",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(link: u32, bytes: &[u8], total: usize) -> Option<(Vec<u8>, usize)> {
        let mut frame = vec![7; 99];
        let total = Link::of(link).make(bytes, total, &mut frame)?;
        Some((frame, total))
    }

    /// A frame with this type and payload.
    fn frame(kind: [u8; 2], payload: &[u8]) -> Vec<u8> {
        [&[0; 12], &kind[..], payload].concat()
    }

    #[test]
    fn packets_of_other_links_get_an_ethernet_header() {
        let (four, six) = ([0x45, 1, 2], [0x60, 1, 2]);
        let (ip, ip6) = ([0x08, 0x00], [0x86, 0xdd]);
        for link in [12, 14, 101, 228, 229] {
            assert_eq!(made(link, &four, 40), Some((frame(ip, &four), 54)), "{link}");
            assert_eq!(made(link, &six, 40), Some((frame(ip6, &six), 54)), "{link}");
        }
        for link in [0, 108] {
            let bytes = [&[2, 0, 0, 0], &four[..]].concat();
            assert_eq!(made(link, &bytes, 44), Some((frame(ip, &four), 54)), "{link}");
            let other = [7, 0, 0, 0, 0x83];
            assert_eq!(made(link, &other, 5), Some((frame([0xff; 2], &[0x83]), 15)), "{link}");
        }
        let cooked = [&[0; 14], &ip6[..], &six].concat();
        assert_eq!(made(113, &cooked, 56), Some((frame(ip6, &six), 54)));
        let cooked = [&ip[..], &[0; 18], &four].concat();
        assert_eq!(made(276, &cooked, 60), Some((frame(ip, &four), 54)));
        assert_eq!(made(1, &four, 60), Some((four.to_vec(), 60)));
    }

    #[test]
    fn a_packet_that_ends_within_its_link_header_is_a_frame_of_no_bytes() {
        for (link, header) in [(101, 1), (0, 5), (113, 16), (276, 20)] {
            for length in 0..header {
                let (bytes, total) = made(link, &[0x45; 20][..length], length).unwrap();
                assert_eq!((bytes.len(), total), (0, 14), "{link} {length}");
            }
        }
    }

    #[test]
    fn other_link_types_are_named() {
        assert_eq!(made(127, &[1; 60], 60), None);
        assert_eq!(Link::of(127).to_string(), "127 (IEEE 802.11 with radiotap headers)");
        assert_eq!(Link::of(9_999).to_string(), "9999");
    }
}
