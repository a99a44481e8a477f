//! A limit, compiled: what of a packet it is kept by, and what a packet costs.

use crate::{
    base::address::{Address, Mask},
    packet::headers::{Fragment, Packet},
    policy::penalty::Penalty,
};

/// Limits that a policy can have, each with a bit in a set of them. The lowest bit is asked first.
pub const LIMITS: u32 = 64;

/// Limits whose state is in the entry of the source, so that no look-up is needed for it.
pub const INLINE: usize = 8;

/// Limits that are about one packet and kept by other keys than its source.
pub const KEYED: usize = 8;

/// Those among them whose state takes more than a word: sliding logs and open connections.
pub const WIDE: usize = 2;

/// Tenants that a policy can have.
pub const TENANTS: usize = 0xffff;

/// Limits that can have meters of their own for sources within a prefix: the inline ones, and four
/// others.
pub const COLUMNS: usize = INLINE + 4;

/// A limit, as the datapath has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Its bit, which is 0 in a row that is not in use.
    pub bit: u64,
    /// What a packet costs, at its [`CostClass`].
    pub costs: [u32; CostClass::COUNT],
    /// What of an address makes a source, for [`Key::SOURCE`].
    pub mask: Mask,
    /// The parts of the key.
    pub key: Key,
    /// Which limit its state belongs to, of all that ever were in this instance; not 0.
    pub limit_id: u32,
    /// Its place among the tallies.
    pub tally: u32,
    /// The number of its meter, for sources that have none of their own.
    pub meter: u32,
    /// The number of the meter of the shared bucket, which sources and keys without room in the table are charged to. It
    /// admits a multiple of what `meter` does.
    pub shared_meter: u32,
    /// 0, so that what follows is aligned.
    pub unused: u32,
    /// Where a source has the number of its own one; [`COLUMNS`] when none has.
    pub override_column: u32,
    /// 1 when a packet costs its bytes.
    pub bytes: u32,
    /// The kind of its meters, see [`Meter::kind`](crate::algorithm::meter::Meter::kind).
    pub kind: u32,
    /// What happens to a source that stays over it; all zero when nothing does.
    pub penalty: Penalty,
}

impl Limit {
    /// Bytes of the longest frame that is counted as it is: IP packets, merged ones too, with what is
    /// around them.
    pub const LONGEST: u64 = 1 << 17;

    /// The row of a limit among [`LIMITS`], by its bit.
    ///
    /// A multiplication by a de Bruijn sequence has, for every single bit, another number in its
    /// highest six bits; counting zeros, which BPF has no instruction for, takes twice as long.
    #[inline(always)]
    pub const fn row(bit: u64) -> u32 {
        (bit.wrapping_mul(0x03f7_9d71_b4cb_0a89) >> 58) as u32
    }

    /// What a packet of so many bytes costs.
    #[inline(always)]
    pub const fn cost(&self, class: CostClass, bytes: u64) -> u64 {
        if self.bytes != 0 {
            if bytes < Self::LONGEST { bytes } else { Self::LONGEST }
        } else {
            self.costs[class.0 as usize & (CostClass::COUNT - 1)] as u64
        }
    }
}

/// What a packet is, as far as its cost goes: its transport, and whether it is a fragment.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostClass(pub u32);

impl CostClass {
    /// How many there are.
    pub const COUNT: usize = 16;
    /// Neither of the others.
    pub const OTHER: u32 = 0;
    /// UDP.
    pub const UDP: u32 = 1;
    /// TCP that does not open a connection.
    pub const TCP: u32 = 2;
    /// ICMP and ICMPv6.
    pub const ICMP: u32 = 3;
    /// TCP that opens a connection, or could; see [`Packet::may_open`].
    pub const SYN: u32 = 4;
    /// Added for a fragment.
    pub const FRAGMENT: u32 = 8;

    /// What a packet is.
    #[inline(always)]
    pub const fn of(packet: &Packet) -> Self {
        let transport = if packet.may_open() {
            Self::SYN
        } else {
            match packet.protocol {
                6 => Self::TCP,
                17 => Self::UDP,
                1 | 58 => Self::ICMP,
                _ => Self::OTHER,
            }
        };
        match packet.fragment.get() {
            Fragment::Whole => Self(transport),
            Fragment::First | Fragment::Later(_) => Self(transport | Self::FRAGMENT),
        }
    }
}

/// The parts of a key, as a set of bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(pub u32);

impl Key {
    /// All packets have one state.
    pub const ALL: Self = Self(0);
    /// The source, masked.
    pub const SOURCE: u32 = 1;
    /// The destination.
    pub const DESTINATION: u32 = 2;
    /// The destination port, with the protocol; later fragments have that of their first, or port 0.
    pub const PORT: u32 = 4;
    /// The source port; with the other three, the connection.
    pub const SOURCE_PORT: u32 = 8;
    /// The tenant; sources that are nobody's have one state.
    pub const TENANT: u32 = 16;
    /// The interface.
    pub const INTERFACE: u32 = 32;
    /// A connection: source, destination, protocol and ports.
    pub const CONNECTION: u32 = Self::SOURCE | Self::DESTINATION | Self::PORT | Self::SOURCE_PORT;

    /// All ones when a part is in the key.
    #[inline(always)]
    pub(crate) const fn mask(self, part: u32) -> u64 {
        0_u64.wrapping_sub((self.0 & part != 0) as u64)
    }
}

/// What state is found by: the limit, and what of a packet it is kept by; all else is 0.
///
/// Six words of 64 bits, by which it is compared.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketKey {
    /// See [`Limit::limit_id`]; 0 for no key.
    pub limit_id: u32,
    /// The protocol number in the low 8 bits, with the ports; the family of the destination in the
    /// next 8, and that of the source above.
    pub protocol: u32,
    /// The source, masked, in network order as it lies in memory.
    pub source: [u32; 4],
    /// The destination, likewise.
    pub destination: [u32; 4],
    /// The source port in the high and the destination port in the low 16 bits.
    pub ports: u32,
    /// The tenant, at most [`TENANTS`], in the low and the slot of the interface, plus 1, in the high
    /// 16 bits.
    pub whose: u32,
}

impl BucketKey {
    /// Words of 64 bits.
    pub const WORDS: usize = size_of::<Self>() / 8;
    const SOURCE_FAMILY: u32 = 16;
    const DESTINATION_FAMILY: u32 = 8;

    /// The key of the state that packets share for whose keys a limit has no room.
    #[inline(always)]
    pub const fn shared(limit_id: u32) -> Self {
        let none = [u32::MAX; 4];
        Self { limit_id, protocol: u32::MAX, source: none, destination: none, ports: 0, whose: 0 }
    }

    /// Whether it is such a key, which no packet has.
    #[inline(always)]
    pub const fn is_shared(&self) -> bool {
        self.protocol == u32::MAX
    }

    /// The source; [`Address::NONE`] where that is not part of the key.
    pub const fn source(&self) -> Address {
        Address { family: self.protocol >> Self::SOURCE_FAMILY & 0xff, words: self.source }
    }

    /// The destination; [`Address::NONE`] where that is not part of the key.
    pub const fn destination(&self) -> Address {
        let family = self.protocol >> Self::DESTINATION_FAMILY & 0xff;
        Address { family, words: self.destination }
    }

    /// Writes the key of a packet for a limit, in place. Parts that the limit is not kept by are
    /// masked away, which takes no branches.
    #[inline(always)]
    pub const fn fill(&mut self, limit: &Limit, packet: &Packet, tenant: u32, slot: u32) {
        let key = limit.key;
        let Address { family, words: [a, b, c, d] } = packet.source.masked(&limit.mask);
        let source = key.mask(Key::SOURCE) as u32;
        let destination = key.mask(Key::DESTINATION) as u32;
        let port = key.mask(Key::PORT) as u32;
        let [e, f, g, h] = packet.destination;
        let source_port = (packet.ports.source as u32) << 16;
        self.limit_id = limit.limit_id;
        self.source = [a & source, b & source, c & source, d & source];
        self.destination = [e & destination, f & destination, g & destination, h & destination];
        self.ports = (packet.ports.destination as u32 & port)
            | (source_port & key.mask(Key::SOURCE_PORT) as u32);
        self.protocol = (packet.protocol as u32 & port)
            | (packet.source.family << Self::DESTINATION_FAMILY & destination)
            | (family << Self::SOURCE_FAMILY & source);
        self.whose = (tenant & key.mask(Key::TENANT) as u32)
            | ((slot + 1) << 16 & key.mask(Key::INTERFACE) as u32);
    }
}

/// Interfaces that can be attached at once.
pub const INTERFACES: u32 = 64;
