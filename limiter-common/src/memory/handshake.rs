//! Openings: which SYN is the first of its connection.
//!
//! A client that hears nothing sends its SYN again, with the same ports and the same initial
//! sequence number (RFC 9293, section 3.8.1), a second after the first one (RFC 6298) and then
//! later and later: Linux after 1, 2, 3, 4, 5, 7, 11 s and so on, others after 1, 3, 7 s. Who counts
//! new connections does not count that, so the first SYN is remembered once it is admitted.
//!
//! Who forges sequence numbers can end a connection and open the next one by the same SYN, so that
//! what belongs to one is bounded: [`Handshake::REPEATS`] SYNs, none much sooner than a real client
//! sends it.

use crate::{
    base::seed::Seed,
    packet::headers::{Packet, TcpFlags},
};

/// What to look a connection up by that a packet opens: a hash of its addresses, ports and initial
/// sequence number, never 0; `None` for packets that open none, or of which that is not known, and for later fragments.
#[inline(always)]
pub const fn key(packet: &Packet, seed: Seed) -> Option<u64> {
    match packet.tcp_flags.get() {
        Some(flags) if TcpFlags::open(flags) && !packet.is_later() => {
            let key = packet.hash(seed, packet.sequence);
            Some(if key == 0 { 1 } else { key })
        }
        _ => None,
    }
}

/// What is remembered of a connection: when its SYN was admitted, and how often it was repeated.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake(pub u64);

impl Handshake {
    /// Repetitions that belong to a connection.
    pub const REPEATS: u64 = 3;
    /// For how long they do, in nanoseconds.
    pub const SPAN: u64 = 8_000_000_000;
    /// How long it takes until the next one, in nanoseconds: a second, less what the one before may
    /// have waited longer on its way, for an address to be resolved or in a full queue.
    pub const STEP: u64 = 500_000_000;
    /// The low bits, which are the number of repetitions; times are exact to 256 ns.
    const NUMBER: u64 = 0xff;

    /// A connection whose SYN is admitted at `now` (nanoseconds).
    #[inline(always)]
    pub const fn new(now: u64) -> Self {
        Self(now & !Self::NUMBER)
    }

    /// The same after a SYN that comes at `now`; `None` if that is a new connection.
    #[inline(always)]
    pub const fn repeated(self, now: u64) -> Option<Self> {
        let number = (self.0 & Self::NUMBER) + 1;
        // CPUs read the clock one after the other: the first may seem to be later.
        let time = now.saturating_sub(self.0 & !Self::NUMBER);
        if number > Self::REPEATS || time > Self::SPAN || time < number * Self::STEP {
            return None;
        }
        Some(Self(self.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 40;
    const SECOND: u64 = 1_000_000_000;

    /// How many SYNs at these times, in seconds after the first, are of its connection.
    fn belong(times: &[u64]) -> usize {
        let mut opening = Handshake::new(NOW + 255);
        let mut number = 0;
        for time in times {
            if let Some(next) = opening.repeated(NOW + 255 + time * SECOND) {
                opening = next;
                number += 1;
            }
        }
        number
    }

    #[test]
    fn the_first_repetitions_of_real_clients_belong_to_a_connection() {
        assert_eq!(belong(&[1, 2, 3, 4, 5, 7, 11]), 3);
        assert_eq!(belong(&[1, 3, 7, 15, 31]), 3);
        assert_eq!(belong(&[3, 9, 21]), 1);
    }

    #[test]
    fn those_that_come_too_soon_do_not() {
        assert_eq!(belong(&[0; 100]), 0);
        assert_eq!(belong(&[1, 1, 1]), 2);
        // Two that come at once, because the first one waited on its way.
        assert_eq!(belong(&[0, 2, 6]), 2);
        let opening = Handshake::new(NOW);
        assert_eq!(opening.repeated(NOW + Handshake::STEP - 1), None);
        assert!(opening.repeated(NOW + Handshake::STEP).is_some());
        assert_eq!(Handshake::new(NOW + SECOND).repeated(NOW), None);
    }

    #[test]
    fn they_do_for_a_time() {
        let opening = Handshake::new(NOW);
        assert!(opening.repeated(NOW + Handshake::SPAN).is_some());
        assert_eq!(opening.repeated(NOW + Handshake::SPAN + 1), None);
    }
}
