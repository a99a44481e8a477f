//! Builds Ethernet frames for tests, the demonstration and benchmarks. Lengths and checksums are those that a
//! real stack accepts, unless the caller sets others.
//!
//! ```
//! use limiter_tests::packet::{Frame, SYN};
//!
//! let syn = Frame::tcp([192, 0, 2, 1], [198, 51, 100, 1], 40_000, 443, SYN).tag(0x8100, 5).build();
//! assert_eq!(syn.len(), 14 + 4 + 20 + 20);
//! ```

mod addresses;
mod datagram;
mod extension;
mod kinds;
mod source;
mod transport;

use std::net::IpAddr;

use self::{addresses::Addresses, datagram::Datagram, transport::Transport};
pub use self::{
    extension::Extension,
    kinds::kinds,
    source::{network_layer, set_source},
};

/// TCP flag: the sender sends no more data.
pub const FIN: u8 = 0x01;
/// TCP flag: opens a connection.
pub const SYN: u8 = 0x02;
/// TCP flag: aborts a connection.
pub const RST: u8 = 0x04;
/// TCP flag: the receiver is to deliver the data at once.
pub const PSH: u8 = 0x08;
/// TCP flag: the acknowledgement number is valid.
pub const ACK: u8 = 0x10;

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethertype of the session frames of PPPoE.
pub const PPPOE: u16 = 0x8864;
/// Ethertype of MPLS labels.
pub const MPLS: u16 = 0x8847;
/// The ethertypes of VLAN tags: 802.1Q, 802.1ad and the older stacked one.
pub const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Shortest Ethernet frame, without its checksum.
pub const MINIMUM: usize = 60;

/// Builder of a frame; [`Frame::build`] returns its bytes.
#[derive(Clone, Debug)]
pub struct Frame {
    source_mac: [u8; 6],
    destination_mac: [u8; 6],
    tags: Vec<(u16, u16)>,
    session: Option<Session>,
    labels: usize,
    body: Body,
    padded: bool,
    trailer: Vec<u8>,
}

/// The headers of a PPPoE session.
#[derive(Clone, Copy, Debug)]
struct Session {
    /// Whether the PPP protocol field is compressed to one byte (RFC 1661, 6.5).
    compressed: bool,
    declared_length: Option<u16>,
}

#[derive(Clone, Debug)]
enum Body {
    Ip(Box<Datagram>),
    Other { ether_type: u16, bytes: Vec<u8> },
}

impl Frame {
    /// A UDP datagram without payload.
    pub fn udp(
        source: impl Into<IpAddr>,
        destination: impl Into<IpAddr>,
        source_port: u16,
        destination_port: u16,
    ) -> Self {
        let transport = Transport::Udp { ports: [source_port, destination_port] };
        Self::over_ip(source.into(), destination.into(), 17, transport)
    }

    /// A TCP segment without payload, with these flags ([`SYN`], [`ACK`], ...).
    pub fn tcp(
        source: impl Into<IpAddr>,
        destination: impl Into<IpAddr>,
        source_port: u16,
        destination_port: u16,
        flags: u8,
    ) -> Self {
        let ports = [source_port, destination_port];
        let transport = Transport::Tcp { ports, sequence: 1, flags };
        Self::over_ip(source.into(), destination.into(), 6, transport)
    }

    /// An echo request: ICMP between IPv4 addresses, ICMPv6 between IPv6 addresses.
    pub fn echo(
        source: impl Into<IpAddr>,
        destination: impl Into<IpAddr>,
        identifier: u16,
        sequence: u16,
    ) -> Self {
        let (source, destination) = (source.into(), destination.into());
        let transport = Transport::Echo { identifier, sequence };
        let protocol = if source.is_ipv4() && destination.is_ipv4() { 1 } else { 58 };
        Self::over_ip(source, destination, protocol, transport)
    }

    /// An SCTP common header; the payload holds the chunks.
    pub fn sctp(
        source: impl Into<IpAddr>,
        destination: impl Into<IpAddr>,
        source_port: u16,
        destination_port: u16,
    ) -> Self {
        let transport = Transport::Sctp { ports: [source_port, destination_port] };
        Self::over_ip(source.into(), destination.into(), 132, transport)
    }

    /// Any other protocol, or a protocol from above with raw bytes: the payload follows the IP headers
    /// directly.
    pub fn ip(source: impl Into<IpAddr>, destination: impl Into<IpAddr>, protocol: u8) -> Self {
        Self::over_ip(source.into(), destination.into(), protocol, Transport::Nothing)
    }

    /// A frame of any ethertype (or 802.3 length), followed by these bytes.
    pub fn other(ether_type: u16, bytes: impl Into<Vec<u8>>) -> Self {
        Self::with_body(Body::Other { ether_type, bytes: bytes.into() })
    }

    fn over_ip(source: IpAddr, destination: IpAddr, protocol: u8, transport: Transport) -> Self {
        let addresses = Addresses::new(source, destination);
        Self::with_body(Body::Ip(Box::new(Datagram::new(addresses, protocol, transport))))
    }

    fn with_body(body: Body) -> Self {
        Self {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            tags: Vec::new(),
            session: None,
            labels: 0,
            body,
            padded: false,
            trailer: Vec::new(),
        }
    }

    /// Sets the MAC addresses (`02:00:00:00:00:01` and `...:02` if not set).
    #[must_use]
    pub fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Self {
        (self.source_mac, self.destination_mac) = (source, destination);
        self
    }

    /// Adds a VLAN tag inside the present ones: its ethertype (see [`TAGS`]) and VLAN number.
    #[must_use]
    pub fn tag(mut self, ether_type: u16, vlan: u16) -> Self {
        self.tags.push((ether_type, vlan));
        self
    }

    /// Puts the datagram into a PPPoE session, behind the VLAN tags. For a frame that is not IP, the
    /// ethertype is used as the PPP protocol.
    #[must_use]
    pub fn pppoe(mut self) -> Self {
        self.session = Some(Session { compressed: false, declared_length: None });
        self
    }

    /// Like [`pppoe`](Self::pppoe), with a PPP protocol of one byte if the number is odd and below 256.
    #[must_use]
    pub fn compressed_pppoe(mut self) -> Self {
        self.session = Some(Session { compressed: true, declared_length: None });
        self
    }

    /// Sets the length field of the PPPoE header, instead of the true length.
    #[must_use]
    pub fn pppoe_length(mut self, length: u16) -> Self {
        if let Some(session) = &mut self.session {
            session.declared_length = Some(length);
        }
        self
    }

    /// Puts `count` MPLS labels before the datagram, behind VLAN tags and PPPoE.
    #[must_use]
    pub fn labels(mut self, count: usize) -> Self {
        self.labels = count;
        self
    }

    /// Fills the frame with zeros up to [`MINIMUM`], as a network card does.
    #[must_use]
    pub fn padded(mut self) -> Self {
        self.padded = true;
        self
    }

    /// Appends bytes behind the datagram that the length in the IP header does not include.
    #[must_use]
    pub fn trailer(mut self, bytes: &[u8]) -> Self {
        self.trailer.extend_from_slice(bytes);
        self
    }

    /// Adds a payload of this many bytes. This setter and all that follow have no effect on a frame that is
    /// not IP.
    #[must_use]
    pub fn payload(self, length: usize) -> Self {
        self.ip_part(|ip| ip.payload.extend((0..length).map(|i| i as u8)))
    }

    /// Adds these bytes to the payload.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.ip_part(|ip| ip.payload.extend_from_slice(bytes))
    }

    /// Sets the time to live or hop limit (64 if not set).
    #[must_use]
    pub fn ttl(self, ttl: u8) -> Self {
        self.ip_part(|ip| ip.ttl = ttl)
    }

    /// Sets the sequence number of TCP (1 if not set).
    #[must_use]
    pub fn sequence(self, number: u32) -> Self {
        self.ip_part(|ip| {
            if let Transport::Tcp { sequence, .. } = &mut ip.transport {
                *sequence = number;
            }
        })
    }

    /// Sets IPv4 options: at most 40 bytes, padded with zeros to a multiple of 4. Without effect on IPv6.
    #[must_use]
    pub fn options(self, options: &[u8]) -> Self {
        self.ip_part(|ip| {
            ip.options = options.iter().copied().take(40).collect();
            ip.options.resize(ip.options.len().next_multiple_of(4), 0);
        })
    }

    /// Adds an IPv6 extension header behind the present ones. Without effect on IPv4.
    #[must_use]
    pub fn extension(self, extension: Extension) -> Self {
        self.ip_part(|ip| ip.extensions.push(extension))
    }

    /// Makes the frame a fragment at `offset` (in units of 8 bytes); `more` sets the flag for more fragments.
    /// IPv4 keeps the low 16 bits of `identification`; for IPv6, a fragment header is added behind the
    /// present extension headers. A fragment with an offset has no transport header, only the payload.
    #[must_use]
    pub fn fragment(self, identification: u32, offset: u16, more: bool) -> Self {
        self.ip_part(|ip| match ip.addresses {
            Addresses::V4(..) => {
                ip.identification = identification as u16;
                ip.fragment = (u16::from(more) << 13) | (offset & 0x1fff);
            }
            Addresses::V6(..) => {
                ip.extensions.push(Extension::fragment(identification, offset, more));
            }
        })
    }

    /// Sets the length in the IP header instead of the true one. The length of IPv4 includes the header, that
    /// of IPv6 does not.
    #[must_use]
    pub fn declared_length(self, length: u16) -> Self {
        self.ip_part(|ip| ip.declared_length = Some(length))
    }

    fn ip_part(mut self, set: impl FnOnce(&mut Datagram)) -> Self {
        if let Body::Ip(datagram) = &mut self.body {
            set(datagram);
        }
        self
    }

    /// Returns the bytes of the frame, without the Ethernet checksum.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut frame = [self.destination_mac, self.source_mac].concat();
        for (ether_type, vlan) in &self.tags {
            frame.extend(ether_type.to_be_bytes());
            frame.extend(vlan.to_be_bytes());
        }
        let (mut ether_type, mut body) = match &self.body {
            Body::Ip(ip) => ip.build(),
            Body::Other { ether_type, bytes } => (*ether_type, bytes.clone()),
        };
        if self.labels > 0 {
            let stack = (1..=self.labels).flat_map(|number| {
                let label = (15 + number as u32) << 12 | u32::from(number == self.labels) << 8 | 64;
                label.to_be_bytes()
            });
            body.splice(0..0, stack);
            ether_type = MPLS;
        }
        if let Some(session) = self.session {
            body.splice(0..0, session.bytes(ether_type, body.len()));
            ether_type = PPPOE;
        }
        frame.extend(ether_type.to_be_bytes());
        frame.extend(body);
        frame.extend(&self.trailer);
        if self.padded && frame.len() < MINIMUM {
            frame.resize(MINIMUM, 0);
        }
        frame
    }

    /// Cuts the datagram into fragments of at most `size` bytes of its content (rounded down to a multiple of
    /// 8, at least 8), and returns their frames. A frame that is not IP is returned whole.
    #[must_use]
    pub fn fragments(&self, identification: u32, size: usize) -> Vec<Vec<u8>> {
        let Body::Ip(ip) = &self.body else {
            return vec![self.build()];
        };
        let whole = ip.transport_and_payload();
        let step = (size / 8).max(1) * 8;
        let pieces = whole.chunks(step).enumerate();
        pieces
            .map(|(number, piece)| {
                let start = number * step;
                let piece_of = |ip: &mut Datagram| {
                    ip.transport = Transport::Nothing;
                    ip.payload = piece.to_vec();
                };
                let more = start + piece.len() < whole.len();
                let frame = self.clone().ip_part(piece_of);
                frame.fragment(identification, (start / 8) as u16, more).build()
            })
            .collect()
    }
}

impl Session {
    /// The headers of PPPoE and PPP before `behind` bytes of the given ethertype.
    fn bytes(self, ether_type: u16, behind: usize) -> Vec<u8> {
        let protocol = match ether_type {
            IPV4 => 0x0021,
            IPV6 => 0x0057,
            MPLS => 0x0281,
            protocol => protocol,
        };
        let [high, low] = protocol.to_be_bytes();
        let is_short = self.compressed && high == 0 && low & 1 == 1;
        let protocol = if is_short { vec![low] } else { vec![high, low] };
        let length = (protocol.len() + behind) as u16;
        let length = self.declared_length.unwrap_or(length);
        [&[0x11, 0, 0, 7], &length.to_be_bytes()[..], &protocol].concat()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use etherparse::{
        IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv6Extensions, Ipv6Header,
        PacketBuilder, PacketBuilderStep,
    };

    const A4: [u8; 4] = [192, 0, 2, 1];
    const B4: [u8; 4] = [198, 51, 100, 1];
    const A6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
    const B6: [u16; 8] = [0x2001, 0xdb8, 0, 1, 0xffff, 0, 0, 0xfffe];

    fn step(headers: IpHeaders) -> PacketBuilderStep<IpHeaders> {
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ip(headers)
    }

    fn v4() -> PacketBuilderStep<IpHeaders> {
        let header = Ipv4Header::new(0, 64, IpNumber::UDP, A4, B4).unwrap();
        let header = Ipv4Header { dont_fragment: false, ..header };
        assert_eq!(header.fragment_offset, IpFragOffset::ZERO);
        step(IpHeaders::Ipv4(header, Ipv4Extensions::default()))
    }

    fn v6() -> PacketBuilderStep<IpHeaders> {
        let octets = |address: [u16; 8]| Ipv6Addr::from(address).octets();
        let (source, destination) = (octets(A6), octets(B6));
        let header = Ipv6Header { hop_limit: 64, source, destination, ..Ipv6Header::default() };
        step(IpHeaders::Ipv6(header, Ipv6Extensions::default()))
    }

    /// The frame that etherparse writes with a payload of the bytes 0, 1, 2, ..., as [`Frame::payload`] has.
    macro_rules! written {
        ($step:expr, $payload:expr) => {{
            let payload: Vec<u8> = (0..$payload).map(|i| i as u8).collect();
            let mut bytes = Vec::new();
            $step.write(&mut bytes, &payload).unwrap();
            bytes
        }};
    }

    #[test]
    fn frames_are_the_ones_that_etherparse_writes() {
        for length in [0, 1, 18, 255, 1_400] {
            let same = |frame: Frame, expected: Vec<u8>| {
                assert_eq!(frame.payload(length).build(), expected, "payload of {length}");
            };
            same(Frame::udp(A4, B4, 1, 2), written!(v4().udp(1, 2), length));
            same(Frame::udp(A6, B6, 1, 2), written!(v6().udp(1, 2), length));
            let tcp4 = v4().tcp(3, 4, 1, 64_240).syn();
            same(Frame::tcp(A4, B4, 3, 4, SYN), written!(tcp4, length));
            let tcp6 = v6().tcp(3, 4, 1, 64_240).fin().rst().psh().ack(0);
            same(Frame::tcp(A6, B6, 3, 4, FIN | RST | PSH | ACK), written!(tcp6, length));
            same(Frame::echo(A4, B4, 5, 6), written!(v4().icmpv4_echo_request(5, 6), length));
            same(Frame::echo(A6, B6, 5, 6), written!(v6().icmpv6_echo_request(5, 6), length));
        }
    }

    #[test]
    fn a_session_and_labels_are_put_before_the_datagram() {
        let plain = Frame::udp(A4, B4, 1, 2).payload(4);
        let datagram = &plain.build()[14..];
        let session = plain.clone().tag(0x8100, 5).pppoe();
        let header = [0x88, 0x64, 0x11, 0, 0, 7, 0, 34];
        let expected = [&header[..], &[0, 0x21], datagram].concat();
        assert_eq!(session.build()[16..], expected);
        let short = plain.clone().compressed_pppoe().pppoe_length(9).build();
        assert_eq!(short[12..], [&[0x88, 0x64, 0x11, 0, 0, 7, 0, 9, 0x21], datagram].concat());
        let labels = [0, 1, 0, 64, 0, 1, 0x11, 64];
        let expected = [&[0x88, 0x47], &labels[..], datagram].concat();
        assert_eq!(plain.clone().labels(2).build()[12..], expected);
        let both = plain.pppoe().labels(2).build();
        let header = [0x88, 0x64, 0x11, 0, 0, 7, 0, 42, 2, 0x81];
        assert_eq!(both[12..], [&header[..], &labels, datagram].concat());
        let control = Frame::other(0xc021, [9, 1]).pppoe().build();
        assert_eq!(control[12..], [0x88, 0x64, 0x11, 0, 0, 7, 0, 4, 0xc0, 0x21, 9, 1]);
    }

    #[test]
    fn fragments_hold_the_datagram() {
        let whole = Frame::udp(A4, B4, 1, 2).payload(100);
        let fragments = whole.fragments(77, 40);
        let put_together: Vec<u8> = fragments.iter().flat_map(|f| f[34..].to_vec()).collect();
        assert_eq!(put_together, whole.build()[34..]);
        let fields: Vec<_> = fragments.iter().map(|f| [f[18], f[19], f[20], f[21]]).collect();
        assert_eq!(fields, [[0, 77, 0x20, 0], [0, 77, 0x20, 5], [0, 77, 0, 10]]);

        let fragments = Frame::udp(A6, B6, 1, 2).payload(100).fragments(0x0102_0304, 64);
        let fields: Vec<_> = fragments.iter().map(|f| &f[54..62]).collect();
        assert_eq!(fields, [[17, 0, 0, 1, 1, 2, 3, 4], [17, 0, 0, 64, 1, 2, 3, 4]]);
    }

    #[test]
    fn kinds_are_many_and_have_names_of_their_own() {
        let mut names: Vec<_> = kinds().into_iter().map(|(name, _)| name).collect();
        assert!(names.len() >= 40);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kinds().len());
    }
}
