//! Which limits a packet is about, whatever their number.
//!
//! A policy asks about few properties of a packet: its protocol, its port, its flags. For each value
//! of a property there is a set of the limits that accept it, as bits, compiled beforehand; the
//! limits that a packet is about are those in the sets of all its values. Properties that no limit
//! asks about are not looked at.

use crate::packet::{
    headers::{Fragment, Packet, TcpFlags},
    protocol::{TCP, UNKNOWN_PROTOCOL},
};

/// A property, as its bit in [`Settings::match_fields`](crate::abi::policy::Settings::match_fields).
pub mod match_field {
    /// The protocol.
    pub const PROTOCOL: u32 = 1;
    /// The flags of TCP.
    pub const FLAGS: u32 = 2;
    /// The type of ICMP.
    pub const ICMP: u32 = 4;
    /// Whether it is a fragment.
    pub const FRAGMENT: u32 = 8;
    /// The interface.
    pub const INTERFACE: u32 = 16;
    /// The destination port.
    pub const PORT: u32 = 32;
    /// The length.
    pub const LENGTH: u32 = 64;
    /// The destination address, which has a table of its own.
    pub const DESTINATION: u32 = 128;
    /// The source port.
    pub const SOURCE_PORT: u32 = 256;
}

/// Where the sets of a property begin, and what they are of.
pub mod offset {
    /// By protocol number. What has the number of an unknown one could be any.
    pub const PROTOCOL: u32 = 0;
    /// By flags of TCP; behind them TCP whose flags are unknown, what is not TCP, and later fragments.
    pub const FLAGS: u32 = PROTOCOL + 256;
    /// TCP whose flags are unknown.
    pub const FLAGS_UNKNOWN: u32 = FLAGS + 256;
    /// What is not TCP.
    pub const FLAGS_NONE: u32 = FLAGS_UNKNOWN + 1;
    /// A later fragment of TCP whose first one has unknown flags, or opens a connection: it could have any flags, and opens
    /// no connection by itself.
    pub const FLAGS_LATER: u32 = FLAGS_NONE + 1;
    /// By type of ICMP or ICMPv6; behind them what has none.
    pub const ICMP: u32 = FLAGS_LATER + 1;
    /// What is not ICMP.
    pub const ICMP_NONE: u32 = ICMP + 256;
    /// What could have any type.
    pub const ICMP_UNKNOWN: u32 = ICMP_NONE + 1;
    /// What is whole; behind it fragments.
    pub const FRAGMENT: u32 = ICMP_UNKNOWN + 1;
    /// By slot of the interface.
    pub const INTERFACE: u32 = FRAGMENT + 2;
    /// By destination port; behind them what has none.
    pub const PORT: u32 = INTERFACE + crate::policy::limit::INTERFACES;
    /// What has no ports.
    pub const PORT_NONE: u32 = PORT + 65_536;
    /// What could have any port.
    pub const PORT_UNKNOWN: u32 = PORT_NONE + 1;
    /// By bytes from the Ethernet header on; the last is for all that are longer.
    pub const LENGTH: u32 = PORT_UNKNOWN + 1;
    /// By source port; behind them what has none.
    pub const SOURCE_PORT: u32 = LENGTH + 65_536;
    /// What has no ports.
    pub const SOURCE_PORT_NONE: u32 = SOURCE_PORT + 65_536;
    /// What could have any port.
    pub const SOURCE_PORT_UNKNOWN: u32 = SOURCE_PORT_NONE + 1;
    /// Number of sets.
    pub const COUNT: u32 = SOURCE_PORT_UNKNOWN + 1;
}

/// The sets that a packet is looked up in.
pub trait Sets {
    /// The set at one of the constants of [`offset`].
    fn at(&self, place: u32) -> u64;

    /// The limits that accept the destination of a packet.
    fn destination(&self, packet: &Packet) -> u64;
}

/// The limits that a packet is about, of so many bytes, and received on the interface of a slot, which are asked for if a
/// limit does. Only the properties in `match_fields` are looked at.
///
/// What cannot be read counts as what it could be. So does a later fragment, unless it
/// [follows](crate::memory::fragment) its first one: then it has the ports, the type and the flags of that.
#[inline(always)]
pub fn classify(
    packet: &Packet,
    bytes: impl FnOnce() -> u64,
    slot: impl FnOnce() -> u32,
    match_fields: u32,
    sets: &impl Sets,
) -> u64 {
    const HEADERS: u32 = match_field::PROTOCOL
        | match_field::FLAGS
        | match_field::ICMP
        | match_field::FRAGMENT
        | match_field::SOURCE_PORT;
    let mut limits = u64::MAX;
    if match_fields & match_field::PORT != 0 {
        limits &= sets.at(match packet.port() {
            Some(port) => offset::PORT + port as u32,
            None if packet.may_have_ports() => offset::PORT_UNKNOWN,
            None => offset::PORT_NONE,
        });
    }
    // Most policies ask about few of them.
    let match_fields = match_fields & !match_field::PORT;
    if match_fields == 0 {
        return limits;
    }
    if match_fields & HEADERS != 0 {
        limits &= by_headers(packet, match_fields, sets);
    }
    if match_fields & match_field::INTERFACE != 0 {
        limits &= sets.at(offset::INTERFACE + slot());
    }
    if match_fields & match_field::LENGTH != 0 {
        let most = offset::SOURCE_PORT - offset::LENGTH - 1;
        let bytes = bytes();
        let length = if bytes < most as u64 { bytes as u32 } else { most };
        limits &= sets.at(offset::LENGTH + length);
    }
    if match_fields & match_field::DESTINATION != 0 {
        limits &= sets.destination(packet);
    }
    limits
}

/// The same by what its headers are of.
#[inline(always)]
fn by_headers(packet: &Packet, match_fields: u32, sets: &impl Sets) -> u64 {
    let mut limits = u64::MAX;
    if match_fields & match_field::PROTOCOL != 0 {
        limits &= sets.at(offset::PROTOCOL + packet.protocol as u32);
    }
    if match_fields & match_field::FLAGS != 0 {
        limits &= sets.at(flags(packet));
    }
    if match_fields & match_field::ICMP != 0 {
        limits &= sets.at(match packet.icmp_type() {
            Some(kind) => offset::ICMP + kind as u32,
            None if packet.may_have_type() => offset::ICMP_UNKNOWN,
            None => offset::ICMP_NONE,
        });
    }
    if match_fields & match_field::SOURCE_PORT != 0 {
        limits &= sets.at(match packet.source_port() {
            Some(port) => offset::SOURCE_PORT + port as u32,
            None if packet.may_have_ports() => offset::SOURCE_PORT_UNKNOWN,
            None => offset::SOURCE_PORT_NONE,
        });
    }
    if match_fields & match_field::FRAGMENT != 0 {
        let whole = matches!(packet.fragment.get(), Fragment::Whole);
        limits &= sets.at(offset::FRAGMENT + !whole as u32);
    }
    limits
}

/// Where the flags of a packet are. A second fragment that could overwrite those of the first (RFC
/// 3128) has unknown ones, and so has a chain of headers whose end is unknown.
#[inline(always)]
const fn flags(packet: &Packet) -> u32 {
    match (packet.protocol, packet.fragment.get()) {
        (TCP | UNKNOWN_PROTOCOL, Fragment::Later(1)) => offset::FLAGS_UNKNOWN,
        (TCP | UNKNOWN_PROTOCOL, Fragment::Later(_)) => match packet.tcp_flags.get() {
            Some(flags) if !TcpFlags::open(flags) => offset::FLAGS + flags as u32,
            _ => offset::FLAGS_LATER,
        },
        (UNKNOWN_PROTOCOL, _) => offset::FLAGS_UNKNOWN,
        (TCP, Fragment::Whole | Fragment::First) => match packet.tcp_flags.get() {
            Some(flags) => offset::FLAGS + flags as u32,
            None => offset::FLAGS_UNKNOWN,
        },
        _ => offset::FLAGS_NONE,
    }
}
