//! A second parser, written apart from the one in `limiter-common`, to compare it with.
//!
//! It shares nothing with that parser, neither code nor types nor structure: it first cuts the frame
//! into slices (etherparse does the fixed headers), walks extension headers by recursion, and only
//! then says what the pieces mean. It may be slow and it may allocate; it may not be clever.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpNumber, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice,
    Ipv6HeaderSlice, Ipv6RawExtHeaderSlice, SingleVlanHeaderSlice, UdpHeaderSlice,
};

/// What one frame is, by the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Neither IPv4 nor IPv6.
    NonIp,
    /// The source address cannot be read.
    Unreadable,
    /// More tags or labels than are read.
    TooDeep,
    /// A packet with a source address.
    Ip {
        /// Source address.
        source: IpAddr,
        /// Destination address.
        destination: IpAddr,
        /// Upper-layer protocol, [`UNKNOWN_PROTOCOL`] when the chain of headers hides it.
        protocol: u8,
        /// Source and destination port in host order, 0 when not present.
        ports: (u16, u16),
        /// Destination port, if the protocol has one and both ports are there.
        port: Option<u16>,
        /// Type of ICMP or ICMPv6, if it is there.
        icmp_type: Option<u8>,
        /// Byte 13 of the TCP header.
        tcp_flags: Option<u8>,
        /// The sequence number of TCP, 0 unless the flags are there too.
        sequence: u32,
        /// Which part of a datagram it is.
        fragment: ReferenceFragment,
        /// What is wrong with it.
        anomaly: ReferenceAnomaly,
        /// Whether it opens a TCP connection, or might.
        may_open: bool,
    },
}

/// Which part of a datagram a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceFragment {
    /// All of it.
    Whole,
    /// Its beginning.
    First,
    /// What starts at this offset, in units of 8 bytes.
    Later(u16),
}

/// What is wrong with a packet whose source can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceAnomaly {
    /// Nothing.
    None,
    /// A header is cut short or a length lies.
    Malformed,
    /// More extension headers than are walked.
    TooDeep,
    /// The IP header declares no length.
    Unsized,
}

/// The protocol of a packet whose extension headers do not lead to one.
pub const UNKNOWN_PROTOCOL: u8 = 255;

const MOST_TAGS: usize = 4;
const MOST_LABELS: usize = 4;
const MOST_EXTENSIONS: usize = 8;

impl Reference {
    /// The counter that a frame admitted by every limit is accounted under; one that is too deep is not.
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

/// Reads `frame` (from the destination MAC address on).
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

/// Whether `frame` is of a protocol of the link itself, which no policy limits.
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

/// The control traffic that `frame` is, by the name of its protocol, and whether it can be forged from afar.
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

/// What is behind the headers of the link.
struct Inner<'a> {
    ether_type: EtherType,
    /// No more than PPPoE declares.
    rest: &'a [u8],
    /// Whether all that it declares is there.
    complete: bool,
}

/// Takes off tags, PPPoE and labels. What is behind those and is not IP has the ethertype of the outermost of them.
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

/// What PPP carries, as an ethertype, and whether it is as long as PPPoE declares.
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

/// Takes off labels, if the ethertype says that there are any.
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

/// The ethertype behind all tags, and what follows it.
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

/// The bytes of the datagram alone, and whether the frame holds all that it declares.
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

/// Follows a chain of which at most `left` more extension headers are looked into.
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
            // An atomic fragment inside a fragment does not make that one whole.
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
            // Hop-by-hop options have number 0.
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

    /// The number of the header that follows and the length of this one, if `rest` holds all of it.
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
            // etherparse refuses a length field of 0, which is short but has a definite length.
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

/// What is above the IP headers.
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

    /// Reads the transport header at the start of `body`, unless `body` is from the middle of one.
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

    /// Notes that the IP header declares no length, unless something graver is wrong.
    fn declares(&mut self, length: u16) {
        if length == 0 && self.anomaly == ReferenceAnomaly::None {
            self.anomaly = ReferenceAnomaly::Unsized;
        }
    }

    fn may_open(&self) -> bool {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        match (self.protocol, self.fragment, self.tcp_flags) {
            // The flags are in the second unit of 8 bytes: only a fragment from there can set them.
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
                // Nothing is graver than that.
                ReferenceAnomaly::TooDeep => self.anomaly,
                anomaly if complete => anomaly,
                _ => ReferenceAnomaly::Malformed,
            },
            may_open,
        }
    }
}
