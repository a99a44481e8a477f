//! What passed of a source lately, in one word.
//!
//! Packets and their bytes are counted by one atomic instruction: before the word overflows, what is in it is
//! taken out and added to wider ones. Who reads in the moment between finds it in neither.

use crate::base::{
    tally::Tally,
    word::{TRIES, Word},
};

/// So many packets passed, in the high bits of the word, of so many bytes in all, in the low ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingTally(pub u64);

impl PendingTally {
    const BYTES: u32 = 39;
    /// From here on it is time to [take](Self::take) what passed: there is room for 255 times as many yet, and for as
    /// many bytes if each packet has less than 2^20.
    const MANY: u64 = 1 << (Self::BYTES + 17);

    /// So many packets, at most [`u16::MAX`], of so many bytes in all.
    #[inline(always)]
    pub const fn of(tally: &Tally) -> Self {
        Self((tally.packets << Self::BYTES).wrapping_add(tally.bytes))
    }

    /// What passed.
    #[inline(always)]
    pub const fn tally(self) -> Tally {
        Tally { packets: self.0 >> Self::BYTES, bytes: self.0 & ((1 << Self::BYTES) - 1) }
    }

    /// Whether it is time to add what passed to wider words.
    #[inline(always)]
    pub const fn is_due(self) -> bool {
        self.0 >= Self::MANY
    }

    /// Takes what passed out of a word, to be added to wider ones, if that is due. Of CPUs that do so at once, one gets
    /// it, and the others nothing; when packets are counted all the time, perhaps none does yet.
    #[inline(always)]
    pub fn take(word: &impl Word) -> Tally {
        for _ in 0..TRIES {
            let seen = Self(word.load());
            if !seen.is_due() {
                break;
            }
            if word.compare_exchange(seen.0, 0) == seen.0 {
                return seen.tally();
            }
        }
        Tally { packets: 0, bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const LONGEST: u64 = (1 << 20) - 1;
    const MOST: u64 = PendingTally::MANY >> PendingTally::BYTES;

    #[test]
    fn it_holds_packets_and_bytes() {
        let sum = [60, 1514, 0, LONGEST]
            .map(|bytes| PendingTally::of(&Tally { packets: 1, bytes }))
            .into_iter()
            .fold(PendingTally::default(), |sum, packet| PendingTally(sum.0 + packet.0));
        assert_eq!(sum.tally(), Tally { packets: 4, bytes: 60 + 1514 + LONGEST });
        assert_eq!(PendingTally::default().tally(), Tally::default());
        assert_eq!(PendingTally::of(&sum.tally()), sum);
    }

    #[test]
    fn it_is_due_long_before_it_overflows() {
        let of = |packets| PendingTally::of(&Tally { packets, bytes: packets * LONGEST });
        assert!(!of(MOST - 1).is_due() && of(MOST).is_due());
        // As many again, with the longest lease of each of 64 CPUs.
        let more = MOST + MOST + 64 * u64::from(u16::MAX);
        let most = Tally { packets: more, bytes: (1 << PendingTally::BYTES) - 1 };
        assert_eq!(PendingTally::of(&most).tally(), most);
        let word = Cell::new(of(MOST).0);
        assert_eq!(PendingTally::take(&word), Tally { packets: MOST, bytes: MOST * LONGEST });
        assert_eq!(word.get(), 0);
        word.set(of(7).0);
        assert_eq!((PendingTally::take(&word), word.get()), (Tally::default(), of(7).0));
    }
}
