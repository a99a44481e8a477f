//! Openings: which SYN is the first of its connection.
//!
//! A client that hears nothing sends its SYN again, with the same ports and the same initial
//! sequence number (RFC 9293, section 3.8.1). Who counts new connections does not count that, so the
//! first SYN is remembered once it is admitted. Whoever sends the same SYN on and on opens no
//! connection by it, but is no client either: after [`Opening::REPEATS`] it counts as a new one.

use crate::packet::Packet;

/// What is remembered of a connection: when its SYN was admitted, and how often it was repeated.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening(pub u64);

impl Opening {
    /// Repetitions that belong to a connection: what Linux sends (`tcp_syn_retries`), and nobody
    /// more by default.
    pub const REPEATS: u64 = 6;
    /// For how long they do, in nanoseconds: the last one is sent after 63 s, if the time to the
    /// next is doubled each time from one second on (RFC 6298).
    pub const SPAN: u64 = 64_000_000_000;
    /// The low bits, which are the number of repetitions; times are exact to 256 ns.
    const NUMBER: u64 = 0xff;

    /// What to look a connection up by: a hash of its addresses, ports and initial sequence number;
    /// `None` unless the flags of the packet are known to be those of TCP. Never 0.
    #[inline(always)]
    pub const fn key(packet: &Packet, seed: u32) -> Option<u64> {
        if packet.tcp_flags.get().is_none() {
            return None;
        }
        let sequence = (packet.sequence as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = packet.hash(seed) ^ sequence;
        Some(if key == 0 { 1 } else { key })
    }

    /// A connection whose SYN is admitted at `now` (nanoseconds).
    #[inline(always)]
    pub const fn new(now: u64) -> Self {
        Self(now & !Self::NUMBER)
    }

    /// The same after a SYN that comes at `now`; `None` if that is a new connection.
    #[inline(always)]
    pub const fn repeated(self, now: u64) -> Option<Self> {
        let first = self.0 & !Self::NUMBER;
        let number = self.0 & Self::NUMBER;
        // CPUs read the clock one after the other: the first may seem to be later.
        if number >= Self::REPEATS || now.saturating_sub(first) > Self::SPAN {
            return None;
        }
        Some(Self(self.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1 << 40;

    #[test]
    fn so_many_repetitions_belong_to_a_connection() {
        let mut opening = Opening::new(NOW + 255);
        for number in 1..=Opening::REPEATS {
            opening = opening.repeated(NOW + number).unwrap();
        }
        assert_eq!(opening.repeated(NOW + 10), None);
    }

    #[test]
    fn they_do_for_a_time() {
        let opening = Opening::new(NOW);
        assert!(opening.repeated(NOW + Opening::SPAN).is_some());
        assert_eq!(opening.repeated(NOW + Opening::SPAN + 1), None);
        // Of a first one that another CPU saw a moment later.
        assert!(Opening::new(NOW + 1_000).repeated(NOW).is_some());
    }
}
