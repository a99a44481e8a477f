//! SYNs that a limit with a penalty refused.
//!
//! A SYN can be forged, so a refused SYN is no offence of its source yet. A client that gets no answer sends the same SYN
//! again (RFC 9293, section 3.8.1). Once one of them is admitted and its connection has a full socket on this host, the
//! client has answered the sequence number of the host. Then the SYNs before were its own. So a refused SYN is remembered by
//! its connection until a packet of that [follows](RefusedSyn::is_followed_by) it.

use crate::{base::seed::Seed, packet::headers::Packet};

/// A SYN that was refused, with its repetitions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedSyn {
    /// When it was refused first, without a rest up to `last`, in nanoseconds.
    pub began: u64,
    /// When it was refused last.
    pub last: u64,
    /// Its sequence number, which its repetitions have too.
    pub sequence: u32,
    /// The limit that refused it last, see [`Penalty::limit`](crate::policy::penalty::Penalty::limit).
    pub limit: u32,
    /// The [`row`](crate::policy::limit::Limit::row) of that limit then.
    pub row: u32,
    /// 0, so that there is no padding.
    pub unused: u32,
}

impl RefusedSyn {
    /// Connections that are remembered. Where SYNs of more are refused at once, older ones are forgotten, and begin no
    /// block.
    pub const ENTRIES: u32 = 16_384;
    /// For how long after the last refusal, in nanoseconds. Linux waits for up to 32 s between two SYNs of a connection,
    /// and gives up after 63 s; others wait less.
    pub const SPAN: u64 = 64_000_000_000;
    /// Bytes from the SYN on in which a packet has to begin. Ten segments, which are sent before anything is heard (RFC
    /// 6928), are less. Who guesses a sequence number hits one in 262,144 times.
    const WINDOW: u32 = 1 << 14;

    /// By what the connection of a packet is remembered.
    #[inline(always)]
    pub const fn key(packet: &Packet, seed: Seed) -> u64 {
        packet.hash(seed, 0)
    }

    /// Since when the SYN is refused, if this is what was remembered of its connection: another one, or one that another
    /// limit refused, or that had a `rest` of so many nanoseconds, begins anew.
    #[inline(always)]
    pub const fn since(&self, known: &Self, rest: u64) -> u64 {
        let is_same = known.sequence == self.sequence && known.limit == self.limit;
        if is_same && self.last.saturating_sub(known.last) <= rest {
            known.began
        } else {
            self.began
        }
    }

    /// Whether a packet of the same connection with this sequence number, at `now` (nanoseconds), follows the SYN: a
    /// connection that was opened by another SYN has other numbers.
    #[inline(always)]
    pub const fn is_followed_by(&self, sequence: u32, now: u64) -> bool {
        let ahead = sequence.wrapping_sub(self.sequence).wrapping_sub(1);
        ahead < Self::WINDOW && !Self::is_forgotten(self.last, now)
    }

    /// Whether SYNs that were refused at `last` are followed by nothing at `now` any more, both in nanoseconds.
    #[inline(always)]
    pub const fn is_forgotten(last: u64, now: u64) -> bool {
        now.saturating_sub(last) > Self::SPAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn refused(at: u64) -> RefusedSyn {
        RefusedSyn { began: at, last: at, sequence: u32::MAX, limit: 1, row: 0, unused: 0 }
    }

    #[test]
    fn repetitions_go_on_until_there_is_a_rest() {
        let first = refused(SECOND);
        assert_eq!(refused(2 * SECOND).since(&first, SECOND), SECOND);
        assert_eq!(refused(2 * SECOND + 1).since(&first, SECOND), 2 * SECOND + 1);
        // The clocks of CPUs are a little apart.
        assert_eq!(refused(SECOND - 1).since(&first, SECOND), SECOND);
        let other = RefusedSyn { sequence: 7, ..refused(2 * SECOND) };
        assert_eq!(other.since(&first, SECOND), 2 * SECOND);
        let other = RefusedSyn { limit: 2, ..refused(2 * SECOND) };
        assert_eq!(other.since(&first, SECOND), 2 * SECOND);
    }

    #[test]
    fn what_begins_with_the_numbers_of_the_syn_follows_it() {
        let syn = refused(SECOND);
        for (sequence, follows) in [
            (u32::MAX, false),
            (0, true),
            (1, true),
            (RefusedSyn::WINDOW - 1, true),
            (RefusedSyn::WINDOW, false),
            (1 << 31, false),
        ] {
            assert_eq!(syn.is_followed_by(sequence, SECOND), follows, "{sequence}");
        }
        let last = SECOND + RefusedSyn::SPAN;
        assert!(syn.is_followed_by(0, last) && !syn.is_followed_by(0, last + 1));
        assert!(syn.is_followed_by(0, 0));
    }
}
