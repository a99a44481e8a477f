//! The chain of IPv6 extension headers.
//!
//! What is peculiar to a header is in a table, so that the walk is the same for all of them: the
//! BPF verifier would follow every combination of cases through the whole chain.

use crate::packet::{
    frame::Frame,
    headers::{Anomaly, Datagram, FragmentField, Packet},
    protocol::UNKNOWN_PROTOCOL,
};

/// Extension headers that are walked.
pub const EXTENSION_BOUND: usize = 8;

/// The protocol number of the hop-by-hop options.
pub(crate) const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// How a header that begins with the protocol of the next one is laid out.
#[derive(Clone, Copy)]
struct Shape {
    /// Whether it is an extension header; 0 or 1.
    extension: u8,
    /// The bits of its second byte that are its length,
    length: u8,
    /// which leaves out so many units
    less: u8,
    /// of 2^unit bytes.
    unit: u8,
    /// The bits of its first eight bytes, as they lie in memory, that are the fragment field and the identification.
    fragment: u64,
}

const FINAL: Shape = Shape { extension: 0, length: 0, less: 0, unit: 0, fragment: 0 };
const OPTIONS: Shape = Shape { extension: 1, length: 0xff, less: 1, unit: 3, fragment: 0 };

/// The shape of each protocol. ESP is final: it hides the rest.
static SHAPES: [Shape; 256] = {
    let mut shapes = [FINAL; 256];
    let options = [HOP_BY_HOP, ROUTING, DESTINATION, MOBILITY, HOST_IDENTITY, SHIM6];
    let mut index = 0;
    while index < options.len() {
        shapes[options[index] as usize] = OPTIONS;
        index += 1;
    }
    shapes[AUTHENTICATION as usize] = Shape { less: 2, unit: 2, ..OPTIONS };
    shapes[FRAGMENT as usize] = Shape { length: 0, fragment: bits(0xfff9, u32::MAX), ..OPTIONS };
    shapes
};

/// The first eight bytes of a header that has nothing but these, as they lie in memory.
const fn bits(field: u16, identification: u32) -> u64 {
    let ([a, b], [c, d, e, f]) = (field.to_be_bytes(), identification.to_be_bytes());
    u64::from_ne_bytes([0, 0, a, b, c, d, e, f])
}

/// Whether a header of this protocol is followed by another.
#[inline(always)]
pub(crate) fn is(protocol: u8) -> bool {
    SHAPES[usize::from(protocol)].extension != 0
}

const OFFSET: u64 = bits(0xfff8, 0);
/// The bit of what was seen for [`Packet::alert`].
const ALERTS: u64 = bits(ALERT_BIT, 0);
const ALERT_BIT: u16 = 2;
/// The router alert option, of multicast listener discovery.
const ALERT: [u8; 4] = [5, 2, 0, 0];

/// Walks the extension headers of a packet from `offset` on, whose protocol is that of the first one, and writes what they tell
/// of it. Says where the transport header is; 0 when none was reached. Out of line: few packets have any.
#[inline(never)]
pub(crate) fn walk<F: Frame + ?Sized>(
    packet: &mut Packet,
    frame: &F,
    datagram: &Datagram,
    mut offset: usize,
) -> usize {
    let mut protocol = packet.protocol;
    // The fragment fields seen, together, and behind them the identifications: an atomic fragment within a fragment takes
    // nothing back. Linux drops a packet with two of them. A bit that they do not have says whether there is a router alert.
    let mut seen = 0;
    // With what aligns it to 8 bytes behind it or before it, the option is all that the header has.
    if protocol == HOP_BY_HOP
        && let Some([_, 0, a, b, c, d, e, f]) = datagram.read::<8, F>(frame, offset)
        && ([a, b, c, d] == ALERT || [c, d, e, f] == ALERT)
    {
        seen = ALERTS;
    }
    let (transport, anomaly) = 'walk: {
        for _ in 0..EXTENSION_BOUND {
            let shape = SHAPES[usize::from(protocol)];
            // None is shorter than 8 bytes.
            let Some(header) = datagram.read::<8, F>(frame, offset) else {
                break 'walk (0, Anomaly::Malformed);
            };
            let units = usize::from(header[1] & shape.length) + usize::from(shape.less);
            offset += units << (shape.unit & 3);
            if offset > datagram.end {
                break 'walk (0, Anomaly::Malformed);
            }
            protocol = header[0];
            seen |= u64::from_ne_bytes(header) & shape.fragment;
            if seen & OFFSET != 0 {
                break 'walk (0, Anomaly::None);
            }
            if !is(protocol) {
                break 'walk (offset, Anomaly::None);
            }
        }
        (0, Anomaly::TooDeep)
    };
    packet.protocol = protocol;
    // What the chain says is graver than what the length says: what is too deep is dropped.
    if !matches!(anomaly, Anomaly::None) {
        (packet.anomaly, packet.protocol) = (anomaly, UNKNOWN_PROTOCOL);
    }
    let [.., a, b, c, d, e, f] = seen.to_ne_bytes();
    let field = u16::from_be_bytes([a, b]);
    packet.fragment = FragmentField(field & !ALERT_BIT);
    packet.identification = u32::from_ne_bytes([c, d, e, f]);
    packet.alert = (field & ALERT_BIT) as u8;
    transport
}
