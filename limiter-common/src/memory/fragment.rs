//! Later fragments follow the first one of their datagram.
//!
//! A later fragment has no transport header. The first fragment of a datagram is noted: its ports and flags of TCP, or its
//! type of ICMP. The note is for the fragments of the same source, destination and identification, and in IPv4 of the same
//! protocol. They are matched and charged as packets with the header of the first one. A later fragment without a note
//! could belong to any datagram, and counts as what it could be. In IPv6 that is any protocol: only the first fragment
//! tells which (RFC 8200, section 4.5).
//!
//! Two first fragments of one datagram may contradict each other. A sender could show one of them to the limiter, with a
//! fault for which the host drops it, and the other one to the host. So the note stands, and the second one is dropped.
//! RFC 6864, section 4.2, forbids a sender to use an identification again within two minutes.
//!
//! A note is one word, so that no CPU reads half of it. The words are a table with a keyed hash for an index. A note
//! replaces any other note at its index. A flood of first fragments replaces the notes of other senders, whose later
//! fragments then count as what they could be.

use crate::{
    base::{address::Address, seed::Seed, word::Word},
    packet::{
        headers::{Anomaly, Packet, Ports, TcpFlags, Transport},
        protocol::{ICMP, ICMPV6, SCTP, TCP, UDP, UNKNOWN_PROTOCOL},
    },
};

/// Words of the table.
pub const WORDS: u32 = 1 << 14;

/// Nanoseconds of a window: a note is of the window in which it was made.
pub const WINDOW: u64 = 16_000_000_000;

/// How many windows ago a note that is followed was made, at most.
const FOLLOWED: u64 = 1;

/// How many windows ago a note was made that first fragments must not contradict, at most. It is one window more than
/// notes are followed: a sender that waits for the end of a note makes the host keep the later fragments for a window.
/// Linux keeps 4 MB of them at most.
const BINDING: u64 = 2;

/// How often a note is tried, where other CPUs write the word at the same time.
const TRIES: u32 = 2;

/// Which datagram a fragment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    hash: u64,
}

impl Datagram {
    /// That of a fragment.
    #[inline(always)]
    pub const fn of(packet: &Packet, seed: Seed) -> Self {
        let is_ipv4 = packet.source.family == Address::IPV4;
        let protocol = if is_ipv4 { packet.protocol as u64 } else { 0 };
        let what = protocol << 32 | packet.identification as u64;
        Self { hash: packet.hash_addresses(seed).word(what).finish() }
    }

    /// The place of its word in the table, below [`WORDS`].
    #[inline(always)]
    pub const fn place(self) -> u32 {
        self.hash as u32 % WORDS
    }

    /// What a word says of it, if it does, and it was written at most so many windows before `window`.
    #[inline(always)]
    const fn said(self, word: u64, window: u64, most: u64) -> Option<Said> {
        let written = word >> Said::BITS ^ self.hash >> Said::BITS;
        let age = window.wrapping_sub(written) & (u64::MAX >> Said::BITS);
        // Of a word that nothing was written in, it could seem so.
        if word != 0 && age <= most { Some(Said(word & Said::ALL)) } else { None }
    }

    /// The word that says this of it. What tells it from other datagrams is mixed with the window.
    #[inline(always)]
    const fn word(self, said: Said, window: u64) -> u64 {
        (self.hash >> Said::BITS ^ window) << Said::BITS | said.0
    }
}

/// What a first fragment says, as the low bits of a word: the ports, or the type of ICMP, in 32 bits; above them the flags of TCP
/// with a bit that says so, or another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said(u64);

impl Said {
    const BITS: u32 = 41;
    const ALL: u64 = (1 << Self::BITS) - 1;
    const TCP: u64 = 1 << 40;
    const FLAGS: u32 = 32;
    /// Mostly, nothing is asked about it but by connection.
    const SOURCE_PORT: u64 = 0xffff_0000;
    /// It is malformed: perhaps its transport header goes on in another fragment.
    const NOTHING: Self = Self((UNKNOWN_PROTOCOL as u64) << Self::FLAGS);

    #[inline(always)]
    const fn by(first: &Packet) -> Self {
        if !matches!(first.anomaly, Anomaly::None) {
            return Self::NOTHING;
        }
        let Ports { source, destination } = first.ports;
        let header = match first.icmp_type() {
            Some(kind) => kind as u64,
            None => (source as u64) << 16 | destination as u64,
        };
        match first.tcp_flags.get() {
            Some(flags) => Self(Self::TCP | (flags as u64) << Self::FLAGS | header),
            None => Self((first.protocol as u64) << Self::FLAGS | header),
        }
    }

    /// Whether it says something else than `other`. The source port counts where a limit asks for it.
    #[inline(always)]
    const fn contradicts(self, other: Self, by_source_port: bool) -> bool {
        let ignored = if by_source_port { 0 } else { Self::SOURCE_PORT };
        (self.0 ^ other.0) & !ignored != 0
    }

    /// Gives a later fragment what is said.
    #[inline(always)]
    const fn give(self, packet: &mut Packet) {
        let byte = (self.0 >> Self::FLAGS) as u8;
        if self.0 & Self::TCP != 0 {
            packet.protocol = TCP;
            packet.tcp_flags = TcpFlags::known(byte);
        } else {
            packet.protocol = byte;
        }
        match packet.protocol {
            TCP | UDP | SCTP => {
                let (source, destination) = ((self.0 >> 16) as u16, self.0 as u16);
                packet.ports = Ports { source, destination };
                packet.transport = Transport::PORTS;
            }
            ICMP | ICMPV6 => packet.transport = Transport::icmp(self.0 as u8),
            _ => {}
        }
    }
}

/// Notes what a first fragment says, or gives a later one what its first said. `word` is the one at the
/// [`place`](Datagram::place) of the datagram, and `now` the monotonic time in nanoseconds. Returns whether a first
/// fragment contradicts one that was noted: it is to be dropped as [`Overlap`](crate::packet::reason::Reason::Overlap).
/// `by_source_port` says that a limit asks for source ports, so that another one is a contradiction.
#[inline(always)]
pub fn follow(
    packet: &mut Packet,
    datagram: Datagram,
    word: &impl Word,
    now: u64,
    by_source_port: bool,
) -> bool {
    let window = now / WINDOW;
    if packet.is_later() {
        match datagram.said(word.load(), window, FOLLOWED) {
            Some(said) if said.0 != Said::NOTHING.0 => said.give(packet),
            _ if packet.source.family != Address::IPV4 => packet.protocol = UNKNOWN_PROTOCOL,
            _ => {}
        }
        return false;
    }
    let said = Said::by(packet);
    let next = datagram.word(said, window);
    for _ in 0..TRIES {
        let seen = word.load();
        if let Some(before) = datagram.said(seen, window, BINDING)
            && said.contradicts(before, by_source_port)
        {
            return true;
        }
        if seen == next || word.compare_exchange(seen, next) == seen {
            break;
        }
    }
    // If other CPUs write the word each time, nothing is noted: the later fragments count as what they could be.
    false
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;
    use crate::packet::{headers::FragmentField, reason::Reason};

    const SEED: Seed = Seed([1, 2, 3, 4]);
    const SECOND: u64 = 1_000_000_000;
    /// A window begins.
    const NOW: u64 = 1_000 * WINDOW;
    const MORE: FragmentField = FragmentField(1);
    const LATER: FragmentField = FragmentField(9 << 3);

    fn first(protocol: u8, to: u16) -> Packet {
        let source = Address::v4([192, 0, 2, 1]);
        let destination = Address::v4([198, 51, 100, 1]).words;
        let ports = Ports { source: 5_000, destination: to };
        let anomaly = Anomaly::None;
        let found = Packet { source, destination, protocol, anomaly, ..Packet::UNREADABLE };
        let transport = Transport::PORTS;
        Packet { ports, transport, identification: 7, fragment: MORE, ..found }
    }

    fn syn(to: u16) -> Packet {
        Packet { tcp_flags: TcpFlags::known(2), ..first(TCP, to) }
    }

    fn esp() -> Packet {
        Packet { transport: Transport::NONE, ports: Ports::default(), ..first(50, 0) }
    }

    fn of_ipv6(packet: Packet) -> Packet {
        Packet { source: Address::v6([1, 2, 3, 4]), destination: [5, 6, 7, 8], ..packet }
    }

    /// A later fragment of its datagram.
    fn later(packet: &Packet) -> Packet {
        let Packet { source, destination, protocol, identification, .. } = *packet;
        let anomaly = Anomaly::None;
        let nothing = Packet { source, destination, protocol, anomaly, ..Packet::UNREADABLE };
        Packet { identification, fragment: LATER, ..nothing }
    }

    fn sees(word: &Cell<u64>, mut packet: Packet, now: u64) -> Result<Packet, Reason> {
        let datagram = Datagram::of(&packet, SEED);
        let contradicts = follow(&mut packet, datagram, word, now, false);
        if contradicts { Err(Reason::Overlap) } else { Ok(packet) }
    }

    #[test]
    fn a_later_fragment_has_the_header_of_its_first() {
        let ports = Ports::default();
        let echo = Packet { transport: Transport::icmp(8), ports, ..first(ICMP, 0) };
        for first in [first(UDP, 53), first(SCTP, 9), syn(443), echo, esp()] {
            for first in [first, of_ipv6(first)] {
                let (word, alone) = (Cell::new(0), later(&first));
                assert_eq!(sees(&word, first, NOW), Ok(first), "it is as it was");
                let expected = Packet { fragment: LATER, ..first };
                assert_eq!(sees(&word, alone, NOW), Ok(expected));
                // In IPv6, it may say another protocol.
                let other = Packet { protocol: 59, ..alone };
                let follows = sees(&word, other, NOW) == Ok(expected);
                assert_eq!(follows, first.source.family == Address::IPV6);
            }
        }
    }

    #[test]
    fn one_whose_first_was_not_seen_could_be_any() {
        let word = Cell::new(0);
        let four = later(&first(UDP, 53));
        assert_eq!(sees(&word, four, NOW), Ok(four));
        assert!(four.may_have_ports() && four.port().is_none() && !four.may_open());
        let six = of_ipv6(four);
        let any = Packet { protocol: UNKNOWN_PROTOCOL, ..six };
        assert_eq!(sees(&word, six, NOW), Ok(any));
        assert!(any.may_have_ports() && any.may_have_type() && !any.may_open());
        // Nor does a first say anything that has not all of its header.
        let short = Packet { anomaly: Anomaly::Malformed, ..first(UDP, 53) };
        assert_eq!(sees(&word, short, NOW), Ok(short));
        assert_eq!(sees(&word, four, NOW), Ok(four));
        assert_eq!(sees(&word, first(UDP, 53), NOW), Err(Reason::Overlap), "one hides the other");
    }

    #[test]
    fn a_note_is_followed_for_two_windows_at_most_and_binds_for_another() {
        for made in [NOW, NOW + WINDOW - 1] {
            let (word, first, other) = (Cell::new(0), first(UDP, 53), first(UDP, 54));
            sees(&word, first, made).unwrap();
            let follows = |now| sees(&word, later(&first), now).unwrap().port() == Some(53);
            for near in [made, made + 15 * SECOND + 900_000_000, made + WINDOW] {
                assert!(follows(near), "{near}");
            }
            assert!(follows(NOW + 2 * WINDOW - 1) && !follows(NOW + 2 * WINDOW));
            let binding = sees(&word, other, NOW + 3 * WINDOW - 1);
            assert_eq!(binding, Err(Reason::Overlap));
            assert!(sees(&word, other, NOW + 3 * WINDOW).is_ok());
            // Years later.
            assert!(!follows(NOW + (WINDOW << 20)));
        }
    }

    #[test]
    fn what_was_noted_stands() {
        for (one, other) in [
            (first(UDP, 53), first(UDP, 9_999)),
            (syn(22), syn(23)),
            (syn(22), Packet { tcp_flags: TcpFlags::known(16), ..syn(22) }),
            (of_ipv6(first(UDP, 53)), of_ipv6(esp())),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let word = Cell::new(0);
                sees(&word, one, NOW).unwrap();
                assert_eq!(sees(&word, other, NOW), Err(Reason::Overlap));
                let follows = sees(&word, later(&one), NOW).unwrap();
                assert_eq!((follows.port(), follows.tcp_flags), (one.port(), one.tcp_flags));
            }
        }
        // It is sent again, or by another socket to the same port.
        let word = Cell::new(0);
        sees(&word, first(UDP, 53), NOW).unwrap();
        let ports = Ports { source: 6_000, destination: 53 };
        let again = Packet { ports, ..first(UDP, 53) };
        sees(&word, again, NOW + 2 * WINDOW).unwrap();
        assert_eq!(sees(&word, later(&again), NOW + 3 * WINDOW).unwrap().ports, ports);
        // Not where a limit asks for the source port.
        let word = Cell::new(0);
        let contradicts = |mut packet: Packet| {
            let datagram = Datagram::of(&packet, SEED);
            follow(&mut packet, datagram, &word, NOW, true)
        };
        assert!(!contradicts(first(UDP, 53)) && !contradicts(first(UDP, 53)) && contradicts(again));
    }

    #[test]
    fn a_first_one_passes_where_other_cpus_write_the_word_each_time() {
        struct Racing(Cell<u64>);
        impl Word for Racing {
            fn load(&self) -> u64 {
                self.0.get()
            }
            fn load_acquire(&self) -> u64 {
                self.0.get()
            }
            fn compare_exchange(&self, _: u64, _: u64) -> u64 {
                77
            }
        }
        let mut packet = first(UDP, 53);
        let datagram = Datagram::of(&packet, SEED);
        let racing = Racing(Cell::new(0));
        assert!(!follow(&mut packet, datagram, &racing, NOW, false));
    }
}
