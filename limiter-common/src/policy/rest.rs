//! What of the keys of a packet its source does not tell.

use crate::{
    base::seed::Seed,
    packet::{
        frame::Frame,
        headers::{Packet, Ports},
        plain::Version,
    },
    policy::limit::Key,
};

/// What of the keys of a packet its source does not tell: the parts by which limits are kept that packets are leased from.
/// All else is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// The destination; the ports, of which the source port is the higher one, and above them the protocol; the second half
    /// of an IPv6 source, as [`Key::SOURCE`].
    pub words: [u64; 4],
}

impl Rest {
    /// Nothing.
    pub const NONE: Self = Self { words: [0; 4] };

    /// These parts of a packet. The same packets have the same rest as have the same parts of a
    /// [`BucketKey`](crate::policy::limit::BucketKey).
    #[inline(always)]
    pub const fn of(packet: &Packet, parts: Key) -> Self {
        Self::new(packet.source.words, packet.destination, packet.ports, packet.protocol, parts)
    }

    /// The same of a plain packet. It is known that the header of its transport protocol is there.
    #[inline(always)]
    pub fn of_plain<V: Version, F: Frame + ?Sized>(
        frame: &F,
        protocol: u8,
        parts: Key,
    ) -> Option<Self> {
        let header = V::read(frame)?;
        let ports = Ports::new(V::behind::<4, F>(frame)?);
        Some(Self::new(header.source().words, header.destination(), ports, protocol, parts))
    }

    /// The same of a packet of which this is known.
    #[inline(always)]
    pub const fn new(
        source: [u32; 4],
        destination: [u32; 4],
        ports: Ports,
        protocol: u8,
        parts: Key,
    ) -> Self {
        let of_destination = parts.mask(Key::DESTINATION);
        let of_port = parts.mask(Key::PORT);
        let of_source_port = parts.mask(Key::SOURCE_PORT);
        let [.., x, y] = source;
        let [a, b, c, d] = destination;
        let port = (protocol as u64) << 32 | ports.destination as u64;
        Self {
            words: [
                (a as u64 | (b as u64) << 32) & of_destination,
                (c as u64 | (d as u64) << 32) & of_destination,
                port & of_port | (ports.source as u64) << 16 & of_source_port,
                (x as u64 | (y as u64) << 32) & parts.mask(Key::SOURCE),
            ],
        }
    }

    /// Whether it is the same as another one.
    #[inline(always)]
    pub const fn is(&self, other: &Self) -> bool {
        let ([a, b, c, d], [e, f, g, h]) = (self.words, other.words);
        (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) == 0
    }

    /// A hash of it, whose high bits count. Nobody who does not know the seed can have others collide.
    #[inline(always)]
    pub const fn hash(&self, seed: Seed) -> u64 {
        let ([a, b, c, d], Seed([k, l, m, n])) = (self.words, seed);
        let hash = a.wrapping_add(k).wrapping_mul(b.wrapping_add(l));
        let hash = hash.wrapping_add(c.wrapping_add(m).wrapping_mul(d.wrapping_add(n)));
        (hash ^ hash >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::address::Address;

    /// A packet of UDP, and others that differ from it in one part each: destination, ports,
    /// protocol, half of the source.
    fn packets() -> [Packet; 9] {
        let ports = |source, destination| Ports { source, destination };
        let one = Packet { protocol: 17, ports: ports(1, 2), ..Packet::UNREADABLE };
        [
            one,
            Packet { destination: [1, 0, 0, 0], ..one },
            Packet { destination: [0, 0, 0, 1 << 31], ..one },
            Packet { ports: ports(3, 2), ..one },
            Packet { ports: ports(1, 3), ..one },
            Packet { ports: ports(2, 1), ..one },
            Packet { protocol: 6, ..one },
            Packet { source: Address::v6([0, 0, 1, 0]), ..one },
            Packet { source: Address::v6([0, 0, 0, 1]), ..one },
        ]
    }

    #[test]
    fn keys_are_told_apart_by_the_parts_that_limits_are_kept_by() {
        for (parts, others) in [
            (Key(Key::CONNECTION), &[1, 2, 3, 4, 5, 6, 7, 8][..]),
            (Key(Key::DESTINATION), &[1, 2]),
            (Key(Key::PORT), &[4, 5, 6]),
            (Key(Key::DESTINATION | Key::SOURCE_PORT), &[1, 2, 3, 5]),
            (Key(Key::SOURCE), &[7, 8]),
        ] {
            let rests = packets().map(|packet| Rest::of(&packet, parts));
            for (at, rest) in rests.iter().enumerate() {
                let differs = others.contains(&at);
                assert_eq!(!rest.is(&rests[0]), differs, "{parts:?}: packet {at}");
                assert_eq!(*rest != rests[0], differs);
            }
        }
        assert_eq!(Rest::of(&packets()[0], Key::ALL), Rest::NONE);
    }
}
