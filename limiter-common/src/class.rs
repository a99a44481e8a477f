//! Which limits a packet is about, whatever their number.
//!
//! A policy asks about few properties of a packet: its protocol, its port, its flags. For each value
//! of a property there is a set of the limits that accept it, as bits, compiled beforehand; the
//! limits that a packet is about are those in the sets of all its values. Properties that no limit
//! asks about are not looked at.

use crate::packet::{Fragment, Packet, UNKNOWN_PROTOCOL};

/// A property, as its bit in [`Settings::sections`](crate::contract::Settings::sections).
pub mod section {
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
}

/// Where the sets of a property begin, and what they are of.
pub mod place {
    /// By protocol number. What has the number of an unknown one could be any.
    pub const PROTOCOL: u32 = 0;
    /// By flags of TCP; behind them TCP whose flags are unknown, and what is not TCP.
    pub const FLAGS: u32 = PROTOCOL + 256;
    /// TCP whose flags are unknown.
    pub const FLAGS_UNKNOWN: u32 = FLAGS + 256;
    /// What is not TCP.
    pub const FLAGS_NONE: u32 = FLAGS_UNKNOWN + 1;
    /// By type of ICMP or ICMPv6; behind them what has none.
    pub const ICMP: u32 = FLAGS_NONE + 1;
    /// What is not ICMP, or a later fragment, which has no type.
    pub const ICMP_NONE: u32 = ICMP + 256;
    /// What could have any type.
    pub const ICMP_UNKNOWN: u32 = ICMP_NONE + 1;
    /// What is whole; behind it fragments.
    pub const FRAGMENT: u32 = ICMP_UNKNOWN + 1;
    /// By slot of the interface.
    pub const INTERFACE: u32 = FRAGMENT + 2;
    /// By destination port; behind them what has none.
    pub const PORT: u32 = INTERFACE + crate::contract::INTERFACES;
    /// What has no ports, as later fragments.
    pub const PORT_NONE: u32 = PORT + 65_536;
    /// What could have any port.
    pub const PORT_UNKNOWN: u32 = PORT_NONE + 1;
    /// By bytes from the Ethernet header on; the last is for all that are longer.
    pub const LENGTH: u32 = PORT_UNKNOWN + 1;
    /// Number of sets.
    pub const COUNT: u32 = LENGTH + 65_536;
}

/// The sets that a packet is looked up in.
pub trait Sets {
    /// The set at one of the constants of [`place`].
    fn at(&self, place: u32) -> u64;

    /// The limits that accept the destination of a packet.
    fn destination(&self, packet: &Packet) -> u64;
}

/// The limits that a packet is about, of so many bytes, and received on the interface of a slot, which are asked for if a
/// limit does. Only the properties in `sections` are looked at.
///
/// What cannot be read counts as what it could be. Later fragments have no ports and no type, and never
/// pretend to.
#[inline(always)]
pub fn classify(
    packet: &Packet,
    bytes: impl FnOnce() -> u64,
    slot: impl FnOnce() -> u32,
    sections: u32,
    sets: &impl Sets,
) -> u64 {
    const HEADERS: u32 = section::PROTOCOL | section::FLAGS | section::ICMP | section::FRAGMENT;
    let mut limits = u64::MAX;
    if sections & section::PORT != 0 {
        limits &= sets.at(match packet.port() {
            Some(port) => place::PORT + port as u32,
            None if packet.may_have_ports() => place::PORT_UNKNOWN,
            None => place::PORT_NONE,
        });
    }
    // Most policies ask about few of them.
    let sections = sections & !section::PORT;
    if sections == 0 {
        return limits;
    }
    if sections & HEADERS != 0 {
        limits &= by_headers(packet, sections, sets);
    }
    if sections & section::INTERFACE != 0 {
        limits &= sets.at(place::INTERFACE + slot());
    }
    if sections & section::LENGTH != 0 {
        let most = place::COUNT - place::LENGTH - 1;
        let bytes = bytes();
        let length = if bytes < most as u64 { bytes as u32 } else { most };
        limits &= sets.at(place::LENGTH + length);
    }
    if sections & section::DESTINATION != 0 {
        limits &= sets.destination(packet);
    }
    limits
}

/// The same by what its headers are of.
#[inline(always)]
fn by_headers(packet: &Packet, sections: u32, sets: &impl Sets) -> u64 {
    let mut limits = u64::MAX;
    if sections & section::PROTOCOL != 0 {
        limits &= sets.at(place::PROTOCOL + packet.protocol as u32);
    }
    if sections & section::FLAGS != 0 {
        limits &= sets.at(flags(packet));
    }
    if sections & section::ICMP != 0 {
        limits &= sets.at(match packet.icmp_type() {
            Some(kind) => place::ICMP + kind as u32,
            None if packet.may_have_type() => place::ICMP_UNKNOWN,
            None => place::ICMP_NONE,
        });
    }
    if sections & section::FRAGMENT != 0 {
        let whole = matches!(packet.fragment.get(), Fragment::Whole);
        limits &= sets.at(place::FRAGMENT + !whole as u32);
    }
    limits
}

/// Where the flags of a packet are. A second fragment that could overwrite those of the first (RFC
/// 3128) has unknown ones, and so has a chain of headers whose end is unknown.
#[inline(always)]
const fn flags(packet: &Packet) -> u32 {
    const TCP: u8 = 6;
    match (packet.protocol, packet.fragment.get()) {
        (UNKNOWN_PROTOCOL, _) | (TCP, Fragment::Later(1)) => place::FLAGS_UNKNOWN,
        (TCP, Fragment::Whole | Fragment::First) => match packet.tcp_flags.get() {
            Some(flags) => place::FLAGS + flags as u32,
            None => place::FLAGS_UNKNOWN,
        },
        _ => place::FLAGS_NONE,
    }
}
