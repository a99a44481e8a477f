//! Packets and their bytes in one word, to be counted by one atomic addition.
//!
//! Such an addition takes a CPU as long as a hundred other instructions, so each packet of a source that
//! passes takes one and not two. Before the word overflows, what is in it is taken out and added to wider
//! ones: who reads in the moment between finds it in neither.

use crate::{contract::Tally, policer::TRIES, word::Word};

/// So many packets, in the high bits of the word, of so many bytes in all, in the low ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent(pub u64);

impl Recent {
    const BYTES: u32 = 42;

    /// Packets that stay, so that nobody takes the source for one of a single packet meanwhile.
    pub const KEPT: u64 = 2;

    /// One packet of so many bytes, below 2^20.
    #[inline(always)]
    pub const fn packet(bytes: u64) -> Self {
        Self(1 << Self::BYTES | bytes)
    }

    /// What is in it.
    #[inline(always)]
    pub const fn tally(self) -> Tally {
        Tally { packets: self.0 >> Self::BYTES, bytes: self.0 & ((1 << Self::BYTES) - 1) }
    }

    /// Whether it is time to add it to wider words: there is room for as many packets as are in it, more
    /// than 2 million.
    #[inline(always)]
    pub const fn is_half_full(self) -> bool {
        (self.0 as i64) < 0
    }

    /// Takes what is in a word that is half full, but for [`KEPT`](Self::KEPT) packets, to be added to wider
    /// ones. Of CPUs that do so at once, one gets it, and the others nothing; when packets are counted all
    /// the time, perhaps none does yet.
    #[inline(always)]
    pub fn take(word: &impl Word) -> Tally {
        for _ in 0..TRIES {
            let seen = Self(word.load());
            if !seen.is_half_full() {
                break;
            }
            if word.compare_exchange(seen.0, Self::KEPT << Self::BYTES) == seen.0 {
                let Tally { packets, bytes } = seen.tally();
                return Tally { packets: packets - Self::KEPT, bytes };
            }
        }
        Tally { packets: 0, bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_packets_and_bytes() {
        let sum = [60, 1514, 0, (1 << 20) - 1]
            .map(Recent::packet)
            .into_iter()
            .fold(Recent::default(), |sum, packet| Recent(sum.0 + packet.0));
        assert_eq!(sum.tally(), Tally { packets: 4, bytes: 60 + 1514 + (1 << 20) - 1 });
        assert_eq!(Recent::default().tally(), Tally::default());
    }

    #[test]
    fn it_is_half_full_long_before_it_overflows() {
        let longest = Recent::packet((1 << 20) - 1).0;
        let most = 1_u64 << (u64::BITS - Recent::BYTES);
        assert!(!Recent(longest * (most / 2 - 1)).is_half_full());
        let half = Recent(longest * (most / 2));
        assert!(half.is_half_full() && half.tally().packets == most / 2);
        let all = Recent(longest * (most - 1));
        assert!(all.is_half_full());
        assert_eq!(all.tally(), Tally { packets: most - 1, bytes: (most - 1) * ((1 << 20) - 1) });
    }
}
