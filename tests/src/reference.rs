//! A second parser, written independently of the one in `limiter-common`, to compare it with.
//!
//! The two share no code, types or structure. This one first cuts the frame into slices (etherparse reads the
//! fixed headers), follows extension headers by recursion, and then interprets the pieces. It may be slow and
//! may allocate, but it has to be simple.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice,
    Ipv6HeaderSlice, Ipv6RawExtHeaderSlice, SingleVlanHeaderSlice, UdpHeaderSlice,
};

/// The reference's reading of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Neither IPv4 nor IPv6.
    NonIp,
    /// The frame ends before the source address, or the headers are invalid.
    Unreadable,
    /// More VLAN tags or MPLS labels than the limiter reads.
    TooDeep,
    /// A packet with a source address.
    Ip {
        /// Source address.
        source: IpAddr,
        /// Destination address.
        destination: IpAddr,
        /// Upper-layer protocol; [`UNKNOWN_PROTOCOL`] if extension headers hide it.
        protocol: u8,
        /// Source and destination port in host byte order; 0 if not present.
        ports: (u16, u16),
        /// Destination port in host byte order, if the protocol has ports and both are present.
        port: Option<u16>,
        /// ICMP or ICMPv6 type, if present.
        icmp_type: Option<u8>,
        /// Byte 13 of the TCP header, if present.
        tcp_flags: Option<u8>,
        /// TCP sequence number in host byte order; 0 if the flags are not present.
        sequence: u32,
        /// The part of the datagram that the packet carries.
        fragment: ReferenceFragment,
        /// The defect of the packet.
        anomaly: ReferenceAnomaly,
        /// Whether the packet opens a TCP connection, or may open one.
        may_open: bool,
    },
}

/// The part of a datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceFragment {
    /// The whole datagram.
    Whole,
    /// The first fragment.
    First,
    /// A later fragment, at this offset in units of 8 bytes.
    Later(u16),
}

/// The defect of a packet whose source can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceAnomaly {
    /// None.
    None,
    /// A header is cut short, or a length field is wrong.
    Malformed,
    /// More extension headers than the limiter reads.
    TooDeep,
    /// The IP header declares a length of 0.
    Unsized,
}

/// Stands for the protocol of a packet whose extension headers do not lead to one.
pub const UNKNOWN_PROTOCOL: u8 = 255;

const MOST_TAGS: usize = 4;
const MOST_LABELS: usize = 4;
const MOST_EXTENSIONS: usize = 8;

impl Reference {
    /// The reason under which the frame is counted when every limit admits it. A frame that is too deep is
    /// dropped.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        let (fragment, anomaly) = match self {
            Self::NonIp => return "non_ip",
            Self::Unreadable => return "unreadable",
            Self::TooDeep => return "too_deep",
            Self::Ip { fragment, anomaly, .. } => (fragment, anomaly),
        };
        match (anomaly, fragment) {
            (ReferenceAnomaly::Malformed, _) => "malformed",
            (ReferenceAnomaly::TooDeep, _) => "too_deep",
            (_, ReferenceFragment::First | ReferenceFragment::Later(_)) => "fragment",
            (_, ReferenceFragment::Whole) => "conform",
        }
    }
}

/// Parses `frame`, which starts with the destination MAC address.
#[must_use]
pub fn reference(frame: &[u8]) -> Reference {
    let Inner { ether_type, rest, complete } = match strip_link(frame) {
        Ok(inner) => inner,
        Err(hidden) => return hidden,
    };
    let read = match ether_type {
        EtherType::IPV4 => ipv4(rest, complete),
        EtherType::IPV6 => ipv6(rest, complete),
        _ => return Reference::NonIp,
    };
    read.unwrap_or(Reference::Unreadable)
}

/// Whether `frame` belongs to a protocol of the link itself, which no policy limits.
#[must_use]
pub fn is_of_link(frame: &[u8]) -> bool {
    const TYPES: [u16; 16] = [
        0x0806, 0x22ea, 0x8035, 0x8808, 0x8809, 0x8863, 0x888e, 0x88c7, 0x88cc, 0x88e3, 0x88e5,
        0x88f5, 0x88f6, 0x88f7, 0x88fb, 0x8902,
    ];
    let Ok((EtherType(ether_type), rest)) = strip_tags(frame) else { return false };
    match ether_type {
        0x8864 => rest.len() >= 8 && rest[6] & 0x81 == 0x80 && strip_link(frame).is_ok(),
        0..0x600 => {
            frame[..5] == [0x01, 0x80, 0xc2, 0, 0] && frame[5] < 16 || rest.starts_with(&[0xfe; 2])
        }
        other => TYPES.contains(&other),
    }
}

/// The control traffic that `frame` belongs to: the name of its protocol, and whether a remote host could
/// forge it. `None` if it is not control traffic.
#[must_use]
pub fn control(frame: &[u8]) -> Option<(&'static str, bool)> {
    let Reference::Ip {
        source, destination, protocol, ports, icmp_type, fragment, anomaly, ..
    } = reference(frame)
    else {
        return None;
    };
    let Inner { rest, .. } = strip_link(frame).ok()?;
    let hops = if source.is_ipv4() { rest[8] } else { rest[7] };
    let whole = fragment == ReferenceFragment::Whole;
    if anomaly != ReferenceAnomaly::None || !whole && protocol != 89 {
        return None;
    }
    let to = |text: &str| text.parse::<IpAddr>() == Ok(destination);
    let is_local = |address: IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let near = |name| Some((name, false));
    match (protocol, hops, icmp_type) {
        (58, 255, Some(133..=137)) if source.is_ipv6() => near("ndp"),
        (58, 1, Some(kind @ (130..=132 | 143))) if source.is_ipv6() => {
            let reports = kind != 130 && source.is_unspecified();
            let alerts = rest[6] == 0
                && rest[41] == 0
                && (rest[42..46] == [5, 2, 0, 0] || rest[44..48] == [5, 2, 0, 0]);
            if alerts && (is_local(source) || reports) { near("mld") } else { None }
        }
        (2, 1, _) if source.is_ipv4() && destination.is_multicast() => near("igmp"),
        (112, 255, _) if to("224.0.0.18") || to("ff02::12") => near("vrrp"),
        (17, 255, _) if ports.1 == 3784 => near("bfd"),
        (89, 1, _) if ["224.0.0.5", "224.0.0.6", "ff02::5", "ff02::6"].into_iter().any(to) => {
            near("ospf")
        }
        (89, 1, _) if !destination.is_multicast() => Some(("ospf", true)),
        (17, ..) => {
            let [client, server] = if source.is_ipv4() { [67 + 1, 67] } else { [546, 547] };
            if ![(client, server), (server, client), (server, server)].contains(&ports) {
                return None;
            }
            let group = matches!(destination, IpAddr::V6(to) if to.segments()[0] == 0xff02);
            if is_local(destination) || group {
                near("dhcp")
            } else {
                (!destination.is_multicast()).then_some(("dhcp", true))
            }
        }
        _ => None,
    }
}

/// The content behind the link headers.
struct Inner<'a> {
    ether_type: EtherType,
    /// At most as many bytes as PPPoE declares.
    rest: &'a [u8],
    /// Whether the frame holds as many bytes as PPPoE declares.
    complete: bool,
}

/// Removes VLAN tags, PPPoE and MPLS labels. Content other than IP gets the ethertype of the outermost of
/// them.
fn strip_link(frame: &[u8]) -> Result<Inner<'_>, Reference> {
    let (ether_type, rest) = strip_tags(frame)?;
    match ether_type {
        EtherType(0x8864) => {
            let (ether_type, rest, complete) = strip_session(rest).ok_or(Reference::Unreadable)?;
            let (ether_type, rest) = strip_labels(ether_type, rest)?;
            Ok(Inner { ether_type, rest, complete })
        }
        _ => {
            let (ether_type, rest) = strip_labels(ether_type, rest)?;
            Ok(Inner { ether_type, rest, complete: true })
        }
    }
}

/// Returns the content of a PPP frame: its protocol as an ethertype, its bytes, and whether it has the length
/// that PPPoE declares. `None` if it is cut short.
fn strip_session(rest: &[u8]) -> Option<(EtherType, &[u8], bool)> {
    let (header, behind) = rest.split_first_chunk::<6>()?;
    let declared = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let (payload, complete) = cut(behind, declared);
    let (&first, datagram) = payload.split_first()?;
    let (protocol, datagram) = if first % 2 == 1 {
        (u16::from(first), datagram)
    } else {
        let (&second, datagram) = datagram.split_first()?;
        (u16::from_be_bytes([first, second]), datagram)
    };
    let ether_type = match protocol {
        0x0021 => EtherType::IPV4,
        0x0057 => EtherType::IPV6,
        0x0281 | 0x0283 => EtherType(0x8847),
        _ => EtherType(0x8864),
    };
    Some((ether_type, datagram, complete))
}

/// Removes MPLS labels, if the ethertype announces them.
fn strip_labels(ether_type: EtherType, rest: &[u8]) -> Result<(EtherType, &[u8]), Reference> {
    if ![0x8847, 0x8848].contains(&ether_type.0) {
        return Ok((ether_type, rest));
    }
    let words = rest.chunks_exact(4).take(MOST_LABELS);
    let bottom = words.clone().position(|label| label[2] & 1 != 0);
    match bottom {
        None if words.len() == MOST_LABELS => Err(Reference::TooDeep),
        None => Err(Reference::Unreadable),
        Some(number) => {
            let datagram = &rest[4 * (number + 1)..];
            match datagram.first().ok_or(Reference::Unreadable)? >> 4 {
                4 => Ok((EtherType::IPV4, datagram)),
                6 => Ok((EtherType::IPV6, datagram)),
                _ => Ok((ether_type, datagram)),
            }
        }
    }
}

/// Returns the ethertype behind all VLAN tags, and the bytes that follow it.
fn strip_tags(frame: &[u8]) -> Result<(EtherType, &[u8]), Reference> {
    let cut = |_| Reference::Unreadable;
    let ethernet = Ethernet2HeaderSlice::from_slice(frame).map_err(cut)?;
    let mut ether_type = ethernet.ether_type();
    let mut rest = &frame[ethernet.slice().len()..];
    let mut tags = 0;
    while is_tag(ether_type) {
        tags += 1;
        if tags > MOST_TAGS {
            return Err(Reference::TooDeep);
        }
        let tag = SingleVlanHeaderSlice::from_slice(rest).map_err(|_| Reference::Unreadable)?;
        ether_type = tag.ether_type();
        rest = &rest[tag.slice().len()..];
    }
    Ok((ether_type, rest))
}

fn is_tag(ether_type: EtherType) -> bool {
    [
        EtherType::VLAN_TAGGED_FRAME,
        EtherType::PROVIDER_BRIDGING,
        EtherType::VLAN_DOUBLE_TAGGED_FRAME,
    ]
    .contains(&ether_type)
}

/// Cuts off what follows the datagram; false if the frame is shorter than declared.
fn cut(rest: &[u8], declared: usize) -> (&[u8], bool) {
    match rest.get(..declared) {
        Some(datagram) => (datagram, true),
        None => (rest, false),
    }
}

fn ipv4(rest: &[u8], whole: bool) -> Option<Reference> {
    let fixed: &[u8; 20] = rest.first_chunk()?;
    if fixed[0] >> 4 != 4 {
        return None;
    }
    let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let address =
        |at: usize| Ipv4Addr::new(fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]).into();
    let declared = word(2);
    let (datagram, complete) =
        cut(rest, if declared == 0 { rest.len() } else { usize::from(declared) });
    let fragment = fragment_kind(word(6) & 0x1fff, word(6) & 0x2000 != 0);

    let mut upper = Upper::nothing(fixed[9], fragment);
    match Ipv4HeaderSlice::from_slice(datagram) {
        Ok(header) => upper.transport(&datagram[header.slice().len()..]),
        Err(_) => upper.anomaly = ReferenceAnomaly::Malformed,
    }
    upper.declares(declared);
    Some(upper.finish(address(12), address(16), whole && complete))
}

fn ipv6(rest: &[u8], whole: bool) -> Option<Reference> {
    let header = Ipv6HeaderSlice::from_slice(rest).ok()?;
    let payload = &rest[header.slice().len()..];
    let declared = match header.payload_length() {
        0 => payload.len(),
        declared => usize::from(declared),
    };
    let (payload, complete) = cut(payload, declared);

    let mut upper = walk(header.next_header(), payload, MOST_EXTENSIONS, ReferenceFragment::Whole);
    upper.declares(header.payload_length());
    let source: Ipv6Addr = header.source_addr();
    Some(upper.finish(source.into(), header.destination_addr().into(), whole && complete))
}

/// Follows a chain of extension headers; at most `left` more are read.
fn walk(next: IpNumber, rest: &[u8], left: usize, fragment: ReferenceFragment) -> Upper {
    let stuck = |anomaly| Upper { anomaly, ..Upper::nothing(UNKNOWN_PROTOCOL, fragment) };
    let Some(extension) = Extension::of(next) else {
        let mut upper = Upper::nothing(next.0, fragment);
        upper.transport(rest);
        return upper;
    };
    if left == 0 {
        return stuck(ReferenceAnomaly::TooDeep);
    }
    let Some((next, length)) = extension.measure(rest) else {
        return stuck(ReferenceAnomaly::Malformed);
    };
    let mut fragment = fragment;
    if extension == Extension::Fragment
        && let Ok(header) = Ipv6FragmentHeaderSlice::from_slice(rest)
    {
        let here = fragment_kind(header.fragment_offset().value(), header.more_fragments());
        match here {
            ReferenceFragment::Later(_) => return Upper::nothing(next.0, here),
            ReferenceFragment::First => fragment = here,
            // An atomic fragment (RFC 6946) inside a fragment does not make that fragment whole.
            ReferenceFragment::Whole => {}
        }
    }
    walk(next, &rest[length..], left - 1, fragment)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extension {
    Options,
    Authentication,
    Fragment,
}

impl Extension {
    fn of(number: IpNumber) -> Option<Self> {
        match number {
            // etherparse has no constant for hop-by-hop options, number 0.
            IpNumber(0)
            | IpNumber::IPV6_ROUTE_HEADER
            | IpNumber::IPV6_DESTINATION_OPTIONS
            | IpNumber::MOBILITY_HEADER
            | IpNumber::HIP
            | IpNumber::SHIM6 => Some(Self::Options),
            IpNumber::AUTHENTICATION_HEADER => Some(Self::Authentication),
            IpNumber::IPV6_FRAGMENTATION_HEADER => Some(Self::Fragment),
            _ => None,
        }
    }

    /// Returns the number of the next header and the length of this one; `None` if `rest` ends before.
    fn measure(self, rest: &[u8]) -> Option<(IpNumber, usize)> {
        let (next, length) = match self {
            Self::Options => {
                let header = Ipv6RawExtHeaderSlice::from_slice(rest).ok()?;
                (header.next_header(), header.slice().len())
            }
            Self::Fragment => {
                let header = Ipv6FragmentHeaderSlice::from_slice(rest).ok()?;
                (header.next_header(), header.slice().len())
            }
            // etherparse rejects a length field of 0, which is too short for the header but well-defined.
            Self::Authentication => {
                let &[next, words] = rest.first_chunk()?;
                (IpNumber(next), (usize::from(words) + 2) * 4)
            }
        };
        (length <= rest.len()).then_some((next, length))
    }
}

fn fragment_kind(offset: u16, more: bool) -> ReferenceFragment {
    match (offset, more) {
        (0, false) => ReferenceFragment::Whole,
        (0, true) => ReferenceFragment::First,
        (offset, _) => ReferenceFragment::Later(offset),
    }
}

/// The content above the IP headers.
struct Upper {
    protocol: u8,
    ports: Option<(u16, u16)>,
    icmp_type: Option<u8>,
    tcp_flags: Option<u8>,
    sequence: u32,
    fragment: ReferenceFragment,
    anomaly: ReferenceAnomaly,
}

impl Upper {
    fn nothing(protocol: u8, fragment: ReferenceFragment) -> Self {
        let anomaly = ReferenceAnomaly::None;
        Self {
            protocol,
            ports: None,
            icmp_type: None,
            tcp_flags: None,
            sequence: 0,
            fragment,
            anomaly,
        }
    }

    /// Reads the transport header at the start of `body`, unless the packet is a later fragment.
    fn transport(&mut self, body: &[u8]) {
        if matches!(self.fragment, ReferenceFragment::Later(_)) {
            return;
        }
        let port = |at: usize| {
            body.get(at..at + 2).and_then(|b| b.first_chunk().copied()).map(u16::from_be_bytes)
        };
        let pair = || port(0).zip(port(2));
        let complete = match IpNumber(self.protocol) {
            IpNumber::TCP => {
                self.ports = pair();
                self.tcp_flags = body.get(13).copied();
                if self.tcp_flags.is_some() {
                    self.sequence = body[4..8].iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
                }
                body.len() >= 20
            }
            IpNumber::UDP => match UdpHeaderSlice::from_slice(body) {
                Ok(header) => {
                    self.ports = Some((header.source_port(), header.destination_port()));
                    true
                }
                Err(_) => {
                    self.ports = pair();
                    false
                }
            },
            IpNumber::SCTP => {
                self.ports = pair();
                body.len() >= 12
            }
            IpNumber::ICMP | IpNumber::IPV6_ICMP => {
                self.icmp_type = body.first().copied();
                body.len() >= 8
            }
            _ => true,
        };
        if !complete {
            self.anomaly = ReferenceAnomaly::Malformed;
        }
    }

    /// Records that the IP header declares no length, unless the packet has a worse defect.
    fn declares(&mut self, length: u16) {
        if length == 0 && self.anomaly == ReferenceAnomaly::None {
            self.anomaly = ReferenceAnomaly::Unsized;
        }
    }

    fn may_open(&self) -> bool {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        match (self.protocol, self.fragment, self.tcp_flags) {
            // The TCP flags are in the second unit of 8 bytes, so only a fragment at offset 1 can change
            // them.
            (6 | UNKNOWN_PROTOCOL, ReferenceFragment::Later(offset), _) => offset == 1,
            (UNKNOWN_PROTOCOL, _, _) => true,
            (6, _, Some(flags)) => flags & SYN != 0 && flags & ACK == 0,
            (6, _, None) => true,
            _ => false,
        }
    }

    fn finish(self, source: IpAddr, destination: IpAddr, complete: bool) -> Reference {
        let may_open = self.may_open();
        Reference::Ip {
            source,
            destination,
            protocol: self.protocol,
            ports: self.ports.unwrap_or_default(),
            port: self.ports.map(|(_, destination)| destination),
            icmp_type: self.icmp_type,
            tcp_flags: self.tcp_flags,
            sequence: self.sequence,
            fragment: self.fragment,
            anomaly: match self.anomaly {
                // No other defect is worse.
                ReferenceAnomaly::TooDeep => self.anomaly,
                anomaly if complete => anomaly,
                _ => ReferenceAnomaly::Malformed,
            },
            may_open,
        }
    }
}
