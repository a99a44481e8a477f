//! Transport headers with their checksums.

use etherparse::checksum::Sum16BitWords;

use super::addresses::Addresses;

/// The transport header of a datagram. `ports` are the source and destination port.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transport {
    Tcp { ports: [u16; 2], sequence: u32, flags: u8 },
    Udp { ports: [u16; 2] },
    Echo { identifier: u16, sequence: u16 },
    Sctp { ports: [u16; 2] },
    Nothing,
}

impl Transport {
    /// The bytes of the header and the payload, with the checksum.
    pub(super) fn bytes(&self, addresses: &Addresses, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (mut bytes, checksum_at) = self.header(protocol, payload.len());
        bytes.extend_from_slice(payload);
        let Some(at) = checksum_at else {
            return bytes;
        };
        let pseudo_header = || addresses.pseudo_header(protocol, bytes.len());
        let checksum = match self {
            Self::Sctp { .. } => crc32c(&bytes).to_le_bytes().to_vec(),
            // 0 would mean "no checksum" (RFC 768).
            Self::Udp { .. } => {
                let sum = pseudo_header().add_slice(&bytes);
                sum.to_ones_complement_with_no_zero().to_ne_bytes().to_vec()
            }
            _ => {
                // Only the checksum of ICMP (for IPv4) has no pseudo header.
                let sum = if protocol == 1 { Sum16BitWords::new() } else { pseudo_header() };
                sum.add_slice(&bytes).ones_complement().to_ne_bytes().to_vec()
            }
        };
        bytes[at..at + checksum.len()].copy_from_slice(&checksum);
        bytes
    }

    /// The header with a checksum of 0, and the offset of the checksum; `None` if the header has none.
    fn header(&self, protocol: u8, payload: usize) -> (Vec<u8>, Option<usize>) {
        let mut bytes = Vec::new();
        let checksum_at = match *self {
            Self::Tcp { ports, sequence, flags } => {
                bytes.extend(ports.map(u16::to_be_bytes).concat());
                bytes.extend(sequence.to_be_bytes());
                // Acknowledgement number, data offset and flags, window, checksum and urgent pointer.
                bytes.extend([0, 0, 0, 0, 5 << 4, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
                16
            }
            Self::Udp { ports } => {
                bytes.extend(ports.map(u16::to_be_bytes).concat());
                bytes.extend(saturate(8 + payload).to_be_bytes());
                bytes.extend([0, 0]);
                6
            }
            Self::Echo { identifier, sequence } => {
                bytes.extend([if protocol == 1 { 8 } else { 128 }, 0, 0, 0]);
                bytes.extend([identifier, sequence].map(u16::to_be_bytes).concat());
                2
            }
            Self::Sctp { ports } => {
                bytes.extend(ports.map(u16::to_be_bytes).concat());
                bytes.extend([0; 8]);
                8
            }
            Self::Nothing => return (bytes, None),
        };
        (bytes, Some(checksum_at))
    }
}

/// A length for a header; the largest one if it has no room for more.
pub(super) fn saturate(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x82f6_3b78 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}
