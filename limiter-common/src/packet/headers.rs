//! What is read of the headers of a packet.

use crate::{
    base::{address::Address, seed::Seed, siphash::SipHash},
    packet::{
        frame::Frame,
        link::Link,
        protocol::{ACK, ICMP, ICMPV6, SCTP, SYN, TCP, TCP_FLAGS_END, UDP, UNKNOWN_PROTOCOL},
    },
};
use network_types::{icmp::Icmpv4Hdr, ip::Ipv6Hdr, sctp::SctpHdr, tcp::TcpHdr, udp::UdpHdr};

/// An IP packet, or what could be one.
///
/// It is as aligned as words of 64 bits, and fields that are zero together lie together, so that few
/// instructions write them.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The source address, whole; [`Address::NONE`] when it cannot be read.
    pub source: Address,
    /// The transport protocol, or [`UNKNOWN_PROTOCOL`].
    pub protocol: u8,
    /// What is wrong with it.
    pub anomaly: Anomaly,
    /// The flags of TCP.
    pub tcp_flags: TcpFlags,
    /// The destination address, of the same family, in network order as it lies in memory.
    pub destination: [u32; 4],
    /// What else the transport header begins with.
    pub transport: Transport,
    /// Whether it is a fragment.
    pub fragment: FragmentField,
    /// The sequence number of TCP; zero unless it is really there.
    pub sequence: u32,
    /// The ports, both zero unless they are really there.
    pub ports: Ports,
    /// What a [fragment](Self::fragment) has in common with the others of its datagram: 16 bits in IPv4, 32 in IPv6,
    /// in network order as they lie in memory. It means nothing in other packets, and is 0 in [plain](mod@crate::packet::plain) ones.
    pub identification: u32,
    /// The time to live, or the hop limit; 0 for a [plain](mod@crate::packet::plain) packet, of which nobody asks for it.
    pub hops: u8,
    /// Not 0 if its first header is of hop-by-hop options with a router alert (RFC 2711) for multicast listener
    /// discovery.
    pub alert: u8,
}

impl Packet {
    /// What is known of a frame with more tags or labels than are [walked](crate::packet::link).
    pub const TOO_DEEP: Self = Self { anomaly: Anomaly::TooDeep, ..Self::UNREADABLE };
    /// What is known of a frame whose source cannot be read.
    pub const UNREADABLE: Self = Self {
        source: Address::NONE,
        destination: [0; 4],
        protocol: UNKNOWN_PROTOCOL,
        ports: Ports { source: 0, destination: 0 },
        sequence: 0,
        tcp_flags: TcpFlags { known: false, bits: 0 },
        fragment: FragmentField(0),
        anomaly: Anomaly::Unreadable,
        transport: Transport::NONE,
        identification: 0,
        hops: 0,
        alert: 0,
    };

    /// A hash of its connection: addresses, ports and protocol, and what else is given. Who does not
    /// know the seed cannot tell which connections have the same one.
    #[inline(always)]
    pub const fn hash(&self, seed: Seed, what: u32) -> u64 {
        let Ports { source, destination } = self.ports;
        let ports = (source as u64) << 48 | (destination as u64) << 32 | what as u64;
        self.hash_addresses(seed).word(ports).word(self.protocol as u64).finish()
    }

    /// A hash in the making, of its addresses.
    #[inline(always)]
    pub(crate) const fn hash_addresses(&self, seed: Seed) -> SipHash {
        let [a, b, c, d] = self.source.words;
        let [e, f, g, h] = self.destination;
        let mut hash = SipHash::new(seed.key()).word((a as u64) << 32 | e as u64);
        if self.source.family != Address::IPV4 {
            hash = hash.word((b as u64) << 32 | f as u64);
            hash = hash.word((c as u64) << 32 | g as u64);
            hash = hash.word((d as u64) << 32 | h as u64);
        }
        hash
    }

    /// The destination port; `None` if there is none, or none that could be read.
    #[inline(always)]
    pub const fn port(&self) -> Option<u16> {
        if self.transport.has_ports() { Some(self.ports.destination) } else { None }
    }

    /// The source port, likewise.
    #[inline(always)]
    pub const fn source_port(&self) -> Option<u16> {
        if self.transport.has_ports() { Some(self.ports.source) } else { None }
    }

    /// Whether it could have ports that could not be read.
    #[inline(always)]
    pub const fn may_have_ports(&self) -> bool {
        self.may_have_header() && matches!(self.protocol, TCP | UDP | SCTP | UNKNOWN_PROTOCOL)
    }

    /// Whether it could have a type of ICMP that could not be read.
    #[inline(always)]
    pub const fn may_have_type(&self) -> bool {
        self.may_have_header() && matches!(self.protocol, ICMP | ICMPV6 | UNKNOWN_PROTOCOL)
    }

    /// Whether it could have a transport header that could not be read, or be of a datagram with one.
    const fn may_have_header(&self) -> bool {
        self.transport.read == 0
    }

    /// Whether it tells of its connection by itself, as far as that can be told: later fragments do not.
    #[inline(always)]
    pub const fn has_connection(&self) -> bool {
        !self.is_later() && (self.port().is_some() || self.may_have_ports())
    }

    /// Whether it is a fragment that is not the first of its datagram.
    #[inline(always)]
    pub const fn is_later(&self) -> bool {
        matches!(self.fragment.get(), Fragment::Later(_))
    }

    /// The type of ICMP or ICMPv6; `None` if there is none, or none that could be read.
    #[inline(always)]
    pub const fn icmp_type(&self) -> Option<u8> {
        if self.transport.has_type() { Some(self.transport.icmp) } else { None }
    }

    /// Whether the packet opens a TCP connection, or that cannot be ruled out: SYN without ACK; TCP
    /// whose flags are out of reach; a second fragment that could overwrite the flags of the first
    /// (RFC 3128); a chain of headers whose end is unknown. Other later fragments open none, whatever their
    /// first one does.
    #[inline(always)]
    pub const fn may_open(&self) -> bool {
        match (self.protocol, self.fragment.get()) {
            (TCP | UNKNOWN_PROTOCOL, Fragment::Later(offset)) => offset == 1,
            (UNKNOWN_PROTOCOL, _) => true,
            (TCP, Fragment::Whole | Fragment::First) => self.tcp_flags.may_open(),
            _ => false,
        }
    }
}

/// What was read of the first bytes of a transport header: nothing, the ports, or the type of ICMP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    read: u8,
    icmp: u8,
}

impl Transport {
    const PORTS_READ: u8 = 1;
    const ICMP_READ: u8 = 2;
    /// Nothing.
    pub(crate) const NONE: Self = Self { read: 0, icmp: 0 };
    /// The ports.
    pub(crate) const PORTS: Self = Self { read: Self::PORTS_READ, icmp: 0 };

    /// This type of ICMP.
    #[inline(always)]
    pub(crate) const fn icmp(kind: u8) -> Self {
        Self { read: Self::ICMP_READ, icmp: kind }
    }

    const fn has_ports(self) -> bool {
        self.read == Self::PORTS_READ
    }

    const fn has_type(self) -> bool {
        self.read == Self::ICMP_READ
    }
}

/// The ports of TCP, UDP and SCTP, in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
}

impl Ports {
    /// The first four bytes of a transport header.
    #[inline(always)]
    pub(crate) const fn new([a, b, c, d]: [u8; 4]) -> Self {
        Self { source: u16::from_be_bytes([a, b]), destination: u16::from_be_bytes([c, d]) }
    }
}

/// The flags byte of a TCP header, or that it was out of reach.
///
/// Not an `Option`: its bits are zero when unknown, because the verifier refuses to see a register
/// used that holds something else by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFlags {
    known: bool,
    bits: u8,
}

impl TcpFlags {
    /// This flags byte.
    #[inline(always)]
    pub(crate) const fn known(bits: u8) -> Self {
        Self { known: true, bits }
    }

    /// The flags byte, if it is really there.
    #[inline(always)]
    pub const fn get(self) -> Option<u8> {
        if self.known { Some(self.bits) } else { None }
    }

    /// Whether these flags are those of a SYN without ACK.
    #[inline(always)]
    pub(crate) const fn open(flags: u8) -> bool {
        flags & (SYN | ACK) == SYN
    }

    /// Whether they are those of a SYN without ACK, or out of reach.
    #[inline(always)]
    const fn may_open(self) -> bool {
        !self.known || Self::open(self.bits)
    }
}

/// Whether and where a packet is part of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The whole datagram; an IPv6 atomic fragment (RFC 6946) too.
    Whole,
    /// The first part, with the transport header.
    First,
    /// A later part, at this offset in units of 8 bytes; it has no transport header.
    Later(u16),
}

/// A [`Fragment`], as IPv6 writes it: the offset in the high 13 bits, and in the lowest whether more
/// follows. An enum with a value in it would have bits that nobody wrote, which the verifier minds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentField(pub u16);

impl FragmentField {
    /// What it says.
    #[inline(always)]
    pub const fn get(self) -> Fragment {
        match (self.0 >> 3, self.0 & 1) {
            (0, 0) => Fragment::Whole,
            (0, _) => Fragment::First,
            (offset, _) => Fragment::Later(offset),
        }
    }
}

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// Nothing.
    None,
    /// The source cannot be read: too short, or not of the version that it is said to be.
    Unreadable,
    /// A header is cut short, or a length contradicts the frame.
    Malformed,
    /// More tags or labels than are [walked](crate::packet::link), or more than
    /// [`EXTENSION_BOUND`](crate::packet::extension::EXTENSION_BOUND) extension headers. The kernel strips any number of them, so such a packet is dropped, unless nothing is.
    TooDeep,
    /// The IP header declares a length of 0: a packet that the kernel merged beyond 64 kB (BIG TCP), or one that was
    /// captured before the network card cut it (TSO). Its headers are read by the length of the frame. On the wire
    /// the kernel drops such a packet, so it proves nothing of its connection.
    Unsized,
}

/// The address at offset `AT` of an IPv6 header.
#[inline(always)]
pub(crate) const fn address<const AT: usize>(header: &[u8; Ipv6Hdr::LEN]) -> [u32; 4] {
    let mut words = [0; 4];
    let mut word = 0;
    while word < words.len() {
        let at = AT + word * 4;
        words[word] =
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        word += 1;
    }
    words
}

/// The part of a frame that its IP header declares.
pub(crate) struct Datagram {
    /// Where it ends in the frame.
    pub(crate) end: usize,
}

impl Datagram {
    /// The datagram that declares `length` bytes from the network header on; more than the link has for it is an
    /// anomaly, and so is a link that declares more than the frame has. One whose length field is 0 ends where the link
    /// says.
    #[inline(always)]
    pub(crate) fn new<F: Frame + ?Sized>(
        packet: &mut Packet,
        frame: &F,
        link: Link,
        length: usize,
        field: usize,
    ) -> Self {
        let mut end = link.network() + length;
        if field == 0 {
            packet.anomaly = Anomaly::Unsized;
            end = link.end();
        }
        if end > link.end() || link.end() > frame.total() {
            packet.anomaly = Anomaly::Malformed;
        }
        let of_link = if link.end() < frame.len() { link.end() } else { frame.len() };
        Self { end: if end < of_link { end } else { of_link } }
    }

    #[inline(always)]
    pub(crate) fn read<const N: usize, F: Frame + ?Sized>(
        &self,
        frame: &F,
        offset: usize,
    ) -> Option<[u8; N]> {
        if offset + N > self.end { None } else { frame.read(offset) }
    }

    #[inline(always)]
    pub(crate) fn transport<F: Frame + ?Sized>(
        &self,
        frame: &F,
        packet: &mut Packet,
        offset: usize,
    ) {
        if let Fragment::Later(_) = packet.fragment.get() {
            return;
        }
        let (length, ports) = match packet.protocol {
            TCP => (TcpHdr::LEN, true),
            UDP => (UdpHdr::LEN, true),
            SCTP => (SctpHdr::LEN, true),
            ICMP | ICMPV6 => (Icmpv4Hdr::LEN, false),
            _ => return,
        };
        if offset + length > self.end {
            packet.anomaly = Anomaly::Malformed;
        }
        if packet.protocol == TCP
            && let Some(header) = self.read::<TCP_FLAGS_END, F>(frame, offset)
        {
            packet.ports = Ports::new([header[0], header[1], header[2], header[3]]);
            packet.sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            packet.tcp_flags = TcpFlags::known(header[TCP_FLAGS_END - 1]);
            packet.transport = Transport::PORTS;
        } else if ports && let Some(header) = self.read(frame, offset) {
            packet.ports = Ports::new(header);
            packet.transport = Transport::PORTS;
        } else if !ports && let Some([kind]) = self.read(frame, offset) {
            packet.transport = Transport::icmp(kind);
        }
    }
}
