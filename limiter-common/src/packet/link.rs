//! The headers before the network header, and frames that have none.
//!
//! They are read in this order, each part or nothing of it: the Ethernet header, up to [`TAG_BOUND`] VLAN tags, the
//! headers of a PPPoE session and of PPP, up to [`LABEL_BOUND`] MPLS labels. So labels may follow tags, PPPoE, or both.
//!
//! * Linux looks neither at the version, the type and the code of a PPPoE session frame, nor does this.
//! * The length that PPPoE declares bounds what follows, as that of an IP header does.
//! * The protocol of PPP has one byte if that is odd (protocol field compression). RFC 2516 advises against it, and
//!   Linux took such frames until 2026.
//! * Behind the last label is IP if the first four bits are 4 or 6. So a pseudowire without a control word whose inner
//!   destination address begins with 4 or 6 is taken for IP.
//! * A header that is cut short leaves a frame whose source cannot be read.
//!
//! A frame that is not IP is of one of two [kinds](NonIp). These are the protocols of the link itself, which no policy
//! limits:
//!
//! | protocol | is |
//! |---|---|
//! | ARP, RARP | 0x0806, 0x8035 |
//! | LLDP | 0x88cc |
//! | EAPOL and its pre-authentication (802.1X) | 0x888e, 0x88c7 |
//! | slow protocols: LACP, marker, OAM, synchronisation (802.3 annex 57A) | 0x8809 |
//! | flow control: PAUSE, PFC (802.3 annex 31B) | 0x8808 |
//! | MACsec (802.1AE) | 0x88e5 |
//! | registration: MVRP, MMRP, MSRP (802.1Q) | 0x88f5, 0x88f6, 0x22ea |
//! | CFM (802.1Q, Y.1731) | 0x8902 |
//! | PTP (1588, 802.1AS) | 0x88f7 |
//! | ring protection: MRP, HSR and PRP supervision (62439) | 0x88e3, 0x88fb |
//! | LLC that no bridge forwards: spanning tree and others | a length below 0x0600, to 01:80:c2:00:00:00 to :0f |
//! | IS-IS, ES-IS | a length below 0x0600, then 0xfe 0xfe |
//! | PPPoE discovery | 0x8863 |
//! | PPP control: LCP, PAP, CHAP, EAP, IPCP, IPV6CP and others | PPPoE session, protocol of 0x8000 and more |
//!
//! Everything else is other: SNAP (CDP and PVST+ too) and other LLC, the tags 0x9200 and 0x9300, labels in front of what is no IP, PPP in
//! compressed, encrypted or multilink form, and all unknown types.

use network_types::{
    eth::{EthHdr, EtherType},
    vlan::VlanHdr,
};

use crate::packet::{
    frame::Frame,
    protocol::{ETHER_TYPE, IPV4, IPV6},
};

/// VLAN tags that are walked.
pub const TAG_BOUND: usize = 4;
/// MPLS labels that are walked.
pub const LABEL_BOUND: usize = 4;

const TAGS: [u16; 3] =
    [EtherType::Ieee8021q as u16, EtherType::Ieee8021ad as u16, EtherType::Ieee8021QinQ1 as u16];
const PPPOE_SESSION: u16 = 0x8864_u16.to_be();
const MPLS: u16 = 0x8847_u16.to_be();
const MPLS_UPSTREAM: u16 = 0x8848_u16.to_be();

/// Types from here on are no lengths.
const LENGTHS: u16 = 0x0600;
/// The service access points of OSI network protocols, in the header of LLC.
const OSI: [u8; 2] = [0xfe, 0xfe];

/// Bytes of the header of PPPoE.
const PPPOE: usize = 6;
const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: u16 = 0x0281;
const PPP_MPLS_UPSTREAM: u16 = 0x0283;
/// The bit that all protocols have which control PPP itself (RFC 1661, section 2).
const PPP_CONTROL: u16 = 0x8000;

/// Bytes of an MPLS label.
const LABEL: usize = 4;

/// What a frame is that is not IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NonIp {
    /// A protocol of the link itself, see the [table](self).
    LinkProtocol,
    /// Anything else.
    Other,
}

/// What the link headers of a frame lead to.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// An IPv4 header.
    Ipv4 = 0,
    /// An IPv6 header.
    Ipv6 = 1,
    /// See [`NonIp::LinkProtocol`].
    LinkProtocol = 2,
    /// See [`NonIp::Other`].
    Other = 3,
    /// More tags or labels than are walked.
    TooDeep = 4,
    /// Nothing: a header is cut short.
    Cut = 5,
}

/// The link headers of a frame, as one word: the kernel's verifier knows nothing of a number that a function gives, and
/// so follows what comes after it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link(pub u64);

impl Link {
    /// What begins at `network` in the frame, below 2^16, and ends at `end`, below 2^32.
    #[inline(always)]
    const fn new(leads: Leads, network: usize, end: usize) -> Self {
        Self((leads as u64) << 56 | (network as u64) << 32 | end as u64 & 0xffff_ffff)
    }

    #[inline(always)]
    const fn without_network(leads: Leads) -> Self {
        Self::new(leads, 0, 0)
    }

    /// What they lead to.
    #[inline(always)]
    pub const fn leads(self) -> Leads {
        match (self.0 >> 56) as u8 {
            0 => Leads::Ipv4,
            1 => Leads::Ipv6,
            2 => Leads::LinkProtocol,
            3 => Leads::Other,
            4 => Leads::TooDeep,
            _ => Leads::Cut,
        }
    }

    /// Where the network header is in the frame, in bytes.
    #[inline(always)]
    pub(crate) const fn network(self) -> usize {
        (self.0 >> 32 & 0xffff) as usize
    }

    /// Where the link says that the datagram ends: with the frame, or before or behind that where PPPoE declares a
    /// length.
    #[inline(always)]
    pub(crate) const fn end(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    /// The first bytes of the network header; `None` if they are not all there.
    #[inline(always)]
    pub(crate) fn network_header<const N: usize, F: Frame + ?Sized>(
        self,
        frame: &F,
    ) -> Option<[u8; N]> {
        if self.network() + N > self.end() { None } else { frame.read(self.network()) }
    }
}

/// Reads the link headers of a frame.
#[inline(always)]
pub fn read<F: Frame + ?Sized>(frame: &F) -> Link {
    match walk(frame) {
        Some(link) => link,
        None => Link::without_network(Leads::Cut),
    }
}

#[inline(always)]
fn walk<F: Frame + ?Sized>(frame: &F) -> Option<Link> {
    let mut ether_type = u16::from_ne_bytes(frame.read(ETHER_TYPE)?);
    let mut network = EthHdr::LEN;
    for _ in 0..TAG_BOUND {
        if !is_tag(ether_type) {
            break;
        }
        ether_type = u16::from_ne_bytes(frame.read(network + VlanHdr::LEN - 2)?);
        network += VlanHdr::LEN;
    }
    let total = frame.total();
    Some(match ether_type {
        IPV4 => Link::new(Leads::Ipv4, network, total),
        IPV6 => Link::new(Leads::Ipv6, network, total),
        PPPOE_SESSION => session(frame, network)?,
        MPLS | MPLS_UPSTREAM => labels(frame, network, total)?,
        tag if is_tag(tag) => Link::without_network(Leads::TooDeep),
        other => {
            let ether_type = u16::from_be(other);
            let is_of_link = if ether_type < LENGTHS {
                is_llc_of_link(frame, network)
            } else {
                is_link_protocol(ether_type)
            };
            Link::without_network(if is_of_link { Leads::LinkProtocol } else { Leads::Other })
        }
    })
}

/// Reads the headers of PPPoE and PPP from `network` on.
#[inline(always)]
fn session<F: Frame + ?Sized>(frame: &F, mut network: usize) -> Option<Link> {
    let [_, _, _, _, high, low, first]: [u8; PPPOE + 1] = frame.read(network)?;
    network += PPPOE;
    let end = network + usize::from(u16::from_be_bytes([high, low]));
    let mut protocol = u16::from(first);
    network += 1;
    if first & 1 == 0 {
        let [second] = frame.read(network)?;
        protocol = protocol << 8 | u16::from(second);
        network += 1;
    }
    if network > end {
        return None;
    }
    Some(match protocol {
        PPP_IPV4 => Link::new(Leads::Ipv4, network, end),
        PPP_IPV6 => Link::new(Leads::Ipv6, network, end),
        PPP_MPLS | PPP_MPLS_UPSTREAM => labels(frame, network, end)?,
        control if control & PPP_CONTROL != 0 => Link::without_network(Leads::LinkProtocol),
        _ => Link::without_network(Leads::Other),
    })
}

/// Reads MPLS labels from `network` on, of what ends at `end`.
#[inline(always)]
fn labels<F: Frame + ?Sized>(frame: &F, mut network: usize, end: usize) -> Option<Link> {
    for _ in 0..LABEL_BOUND {
        // The label, the bottom of the stack in the lowest bit of the third byte, and the first byte behind.
        let [_, _, third, _]: [u8; LABEL] = frame.read(network)?;
        network += LABEL;
        if third & 1 != 0 {
            let [first] = frame.read(network)?;
            if network + 1 > end {
                return None;
            }
            return Some(match first >> 4 {
                4 => Link::new(Leads::Ipv4, network, end),
                6 => Link::new(Leads::Ipv6, network, end),
                _ => Link::without_network(Leads::Other),
            });
        }
    }
    if network > end { None } else { Some(Link::without_network(Leads::TooDeep)) }
}

#[inline(always)]
const fn is_tag(ether_type: u16) -> bool {
    let [q, ad, qinq] = TAGS;
    ether_type == q || ether_type == ad || ether_type == qinq
}

/// Whether a type of Ethernet, in host order, is of the [table](self).
#[inline(always)]
const fn is_link_protocol(ether_type: u16) -> bool {
    matches!(
        ether_type,
        0x0806
            | 0x8035
            | 0x22ea
            | 0x8808
            | 0x8809
            | 0x8863
            | 0x888e
            | 0x88c7
            | 0x88cc
            | 0x88e3
            | 0x88e5
            | 0x88f5..=0x88f7 | 0x88fb | 0x8902
    )
}

/// Whether LLC, which has a length in place of the type, is of the [table](self): it begins at `network`.
#[inline(always)]
fn is_llc_of_link<F: Frame + ?Sized>(frame: &F, network: usize) -> bool {
    let to = frame.read_at::<0, 6>();
    let is_reserved = matches!(to, Some([0x01, 0x80, 0xc2, 0x00, 0x00, last]) if last < 0x10);
    is_reserved || frame.read(network) == Some(OSI)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    fn frame(to: [u8; 6], ether_type: u16, rest: &[u8]) -> Vec<u8> {
        [&to[..], &[2; 6], &ether_type.to_be_bytes(), rest].concat()
    }

    fn leads(ether_type: u16, rest: &[u8]) -> Leads {
        read(&frame([2; 6], ether_type, rest)[..]).leads()
    }

    /// A session frame of this protocol, whose length is right.
    fn session(protocol: &[u8], rest: &[u8]) -> Vec<u8> {
        let length = (protocol.len() + rest.len()) as u16;
        [&[0x11, 0, 0, 7], &length.to_be_bytes()[..], protocol, rest].concat()
    }

    #[test]
    fn protocols_of_the_link_are_those_of_the_table() {
        let of_link = [
            0x0806, 0x8035, 0x88cc, 0x888e, 0x88c7, 0x8809, 0x8808, 0x88e5, 0x88f5, 0x88f6, 0x22ea,
            0x8902, 0x88f7, 0x88e3, 0x88fb, 0x8863,
        ];
        for ether_type in 0..=u16::MAX {
            let expected = match ether_type {
                0x0800 => Leads::Ipv4,
                0x86dd => Leads::Ipv6,
                0x8100 | 0x88a8 | 0x9100 | 0x8847 | 0x8848 | 0x8864 => Leads::Cut,
                it if of_link.contains(&it) => Leads::LinkProtocol,
                _ => Leads::Other,
            };
            assert_eq!(leads(ether_type, &[]), expected, "{ether_type:#x}");
            let tagged = leads(0x8100, &[&[0, 0], &ether_type.to_be_bytes()[..]].concat());
            assert_eq!(tagged, expected, "{ether_type:#x}, tagged");
        }
    }

    #[test]
    fn llc_is_of_the_link_where_no_bridge_forwards_it_and_for_is_is() {
        for last in 0..=u8::MAX {
            let expected = if last < 0x10 { Leads::LinkProtocol } else { Leads::Other };
            let to = [0x01, 0x80, 0xc2, 0, 0, last];
            for length in [0, 38, 1_500, 0x05ff] {
                assert_eq!(read(&frame(to, length, &[])[..]).leads(), expected, "{last:#x}");
            }
            assert_eq!(read(&frame(to, 0x0600, &[])[..]).leads(), Leads::Other, "it is a type");
        }
        for at in 0..5 {
            let mut to = [0x01, 0x80, 0xc2, 0, 0, 0];
            to[at] ^= 1;
            assert_eq!(read(&frame(to, 38, &[])[..]).leads(), Leads::Other, "{to:x?}");
        }
        for (service, expected) in
            [(&[0xfe, 0xfe, 3][..], Leads::LinkProtocol), (&[0xaa, 0xaa, 3], Leads::Other)]
        {
            for (ether_type, tag) in [(38_u16, &[][..]), (0x8100, &[0, 5, 0, 38])] {
                let frame = frame([9, 0, 0x2b, 0, 0, 5], ether_type, &[tag, service].concat());
                assert_eq!(read(&frame[..]).leads(), expected, "{service:x?}");
            }
        }
    }

    #[test]
    fn ppp_carries_ip_labels_control_and_others() {
        for protocol in 0..=u16::MAX {
            let [high, low] = protocol.to_be_bytes();
            let (bytes, number): (&[u8], _) = match high & 1 {
                // One byte, and what follows is of the datagram.
                1 => (&[high], u16::from(high)),
                _ => (&[high, low], protocol),
            };
            let label = [0, 0, 1, 64, 0x45];
            let expected = match number {
                0x21 => Leads::Ipv4,
                0x57 => Leads::Ipv6,
                0x281 | 0x283 => Leads::Ipv4,
                control if control >= 0x8000 => Leads::LinkProtocol,
                _ => Leads::Other,
            };
            assert_eq!(leads(0x8864, &session(bytes, &label)), expected, "{protocol:#x}");
        }
        // Linux looks at neither of them.
        for (version, code) in [(0x11, 9), (0x21, 0), (0, 0xff)] {
            let mut frame = session(&[0, 0x21], &[0x45]);
            (frame[0], frame[1]) = (version, code);
            assert_eq!(leads(0x8864, &frame), Leads::Ipv4);
        }
    }

    #[test]
    fn the_length_of_pppoe_bounds_what_follows() {
        for (protocol, declared) in [(&[0, 0x57][..], 42), (&[0x57], 41)] {
            let mut rest = session(protocol, &[0x60; 40]);
            let whole = frame([2; 6], 0x8864, &rest);
            let link = read(&whole[..]);
            assert_eq!((link.network(), link.end()), (20 + protocol.len(), whole.len()));
            assert_eq!(link.network_header::<40, [u8]>(&whole), Some([0x60; 40]));
            for length in 0..declared + 10 {
                rest[4..6].copy_from_slice(&(length as u16).to_be_bytes());
                let lies = frame([2; 6], 0x8864, &rest);
                let link = read(&lies[..]);
                if length < protocol.len() {
                    assert_eq!(link.leads(), Leads::Cut, "{length}");
                    continue;
                }
                assert_eq!((link.leads(), link.end()), (Leads::Ipv6, 20 + length));
                let header = link.network_header::<40, [u8]>(&lies);
                assert_eq!(header.is_some(), length >= declared, "{length}");
            }
        }
    }

    #[test]
    fn labels_are_walked_to_the_bottom_of_the_stack() {
        for (first, expected) in [(0x45, Leads::Ipv4), (0x6f, Leads::Ipv6), (0x00, Leads::Other)] {
            for labels in 1..=6 {
                let mut stack = [0xff, 0xff, 0xfe, 0xff].repeat(labels);
                stack[labels * 4 - 2] |= 1;
                stack.push(first);
                let expected = if labels <= 4 { expected } else { Leads::TooDeep };
                for (ether_type, rest) in [
                    (0x8847, stack.clone()),
                    (0x8848, stack.clone()),
                    (0x8100, [&[0, 0, 0x88, 0x47], &stack[..]].concat()),
                    (0x8864, session(&[2, 0x81], &stack)),
                ] {
                    assert_eq!(leads(ether_type, &rest), expected, "{labels} of {ether_type:#x}");
                }
                for cut in 0..labels.min(4) * 4 {
                    assert_eq!(leads(0x8847, &stack[..cut]), Leads::Cut, "{labels} cut to {cut}");
                    // What is there, and not declared.
                    let mut short = session(&[2, 0x81], &stack);
                    short[5] = cut as u8 + 2;
                    assert_eq!(leads(0x8864, &short), Leads::Cut, "{labels} of {cut} bytes");
                }
            }
        }
    }
}
