//! By what the socket of a connection is looked up, once it said that it is done.

use crate::{base::address::Address, packet::headers::Packet};

/// The addresses and ports of a connection, as the kernel's look-up of sockets wants them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// [`Address::IPV4`] or [`Address::IPV6`].
    pub family: u32,
    /// Source address, destination address, and both ports, in network order as they lie in memory:
    /// [`IPV4`](Self::IPV4) bytes or [`IPV6`](Self::IPV6), the rest zero.
    pub tuple: [u32; 9],
}

impl Ending {
    /// Bytes of [`tuple`](Self::tuple) that there are of IPv4.
    pub const IPV4: u32 = 12;
    /// And of IPv6.
    pub const IPV6: u32 = 36;
    /// Entries of the map of them for each wide state: a key rarely has more connections that close at once.
    pub const PER_WIDE_STATE: u32 = 4;

    /// Notes the connection of a packet. It is written in place, as the kernel half has no room for it
    /// on the stack.
    #[inline(always)]
    pub const fn note(&mut self, packet: &Packet) {
        let [s, t] = packet.ports.source.to_be_bytes();
        let [u, v] = packet.ports.destination.to_be_bytes();
        let ports = u32::from_ne_bytes([s, t, u, v]);
        let (source, destination) = (&packet.source.words, &packet.destination);
        self.family = packet.source.family;
        if self.family == Address::IPV4 {
            self.tuple = [0; 9];
            self.tuple[0] = source[0];
            self.tuple[1] = destination[0];
            self.tuple[2] = ports;
        } else {
            let [a, b, c, d] = *source;
            let [e, f, g, h] = *destination;
            self.tuple = [a, b, c, d, e, f, g, h, ports];
        }
    }
}
