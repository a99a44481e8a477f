//! What passed of a source lately, and how many more packets it has paid for, in one word.
//!
//! Packets and their bytes are counted by one atomic instruction: before the word overflows, what is in it is
//! taken out and added to wider ones. Who reads in the moment between finds it in neither.
//!
//! A source of which many packets came pays for some [ahead](crate::gcra::Gcra::ahead): one packet is charged
//! to all limits for all of them, at once. Those that follow look at no limit, and no clock, but take one of
//! what is paid for, by the instruction that counts them. What is paid for stays so until it is taken, or the
//! policy changes, which gives it back unless it changes once more before the next packet of the source. So no more
//! pass than are charged, but that what was not taken before a rest comes to the burst after it: a source is
//! admitted more than its limits say by what is paid ahead once, at most. It is admitted less by that where packets
//! come that cannot take what is paid for, as another limit is about them too, or because one of them was refused, or
//! where it is lost by changes.

use crate::{
    contract::Tally,
    policer::{REFUND_TRIES, TRIES},
    word::Word,
};

/// So many packets are paid for, in the highest bits of the word; so many passed, in the middle, of so many
/// bytes in all, in the low ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recent(pub u64);

impl Recent {
    const BYTES: u32 = 39;
    const PAID: u32 = 57;
    const COUNTED: u64 = (1 << Self::PAID) - 1;

    /// Packets that stay when others are taken, so that nobody takes the source for one of few packets
    /// meanwhile.
    pub const KEPT: u64 = 64;

    /// The most packets that are paid ahead.
    pub const MOST_PAID: u64 = 125;

    /// From here on, what stands for those that are paid for while a CPU is about to pay, under an even epoch
    /// or an odd one. Others pay for theirs.
    const PAYING: u64 = Self::MOST_PAID + 1;

    /// One packet of so many bytes, below 2^20.
    #[inline(always)]
    pub const fn packet(bytes: u64) -> Self {
        Self(1 << Self::BYTES | bytes)
    }

    /// What passed.
    #[inline(always)]
    pub const fn tally(self) -> Tally {
        let Self(word) = self;
        Tally {
            packets: (word & Self::COUNTED) >> Self::BYTES,
            bytes: word & ((1 << Self::BYTES) - 1),
        }
    }

    /// Packets that are paid for, and did not pass yet; at most [`MOST_PAID`](Self::MOST_PAID).
    #[inline(always)]
    pub const fn paid(self) -> u64 {
        let paid = self.0 >> Self::PAID;
        if paid < Self::PAYING { paid } else { 0 }
    }

    /// Whether it is time to add what passed to wider words: there is room for as many packets as are in it, 131,072.
    #[inline(always)]
    pub const fn is_half_full(self) -> bool {
        self.0 & 1 << (Self::PAID - 1) != 0
    }

    /// The same, with so many packets that are paid for.
    #[inline(always)]
    const fn with_paid(self, paid: u64) -> Self {
        Self(self.0 & Self::COUNTED | paid << Self::PAID)
    }

    /// The same of which nothing passed.
    #[inline(always)]
    pub const fn untallied(self) -> Self {
        Self(self.0 & !Self::COUNTED)
    }

    /// Takes what passed out of a word that is half full, but for [`KEPT`](Self::KEPT) packets, to be added to wider
    /// ones. Of CPUs that do so at once, one gets it, and the others nothing; when packets are counted all
    /// the time, perhaps none does yet.
    #[inline(always)]
    pub fn take(word: &impl Word) -> Tally {
        for _ in 0..TRIES {
            let seen = Self(word.load());
            if !seen.is_half_full() {
                break;
            }
            let next = Self(Self::KEPT << Self::BYTES).with_paid(seen.paid());
            if word.compare_exchange(seen.0, next.0) == seen.0 {
                let Tally { packets, bytes } = seen.tally();
                return Tally { packets: packets - Self::KEPT, bytes };
            }
        }
        Tally { packets: 0, bytes: 0 }
    }

    /// Has a packet of so many bytes pass that is paid for, and counts it; `false` if none is, or another CPU is at
    /// the word: then it is to pay for itself. Whether the word is half full is asked when others are paid for, or not.
    #[inline(always)]
    pub fn pass(self, word: &impl Word, bytes: u64) -> bool {
        let Self(seen) = self;
        let paid = seen >> Self::PAID;
        if paid.wrapping_sub(1) >= Self::MOST_PAID {
            return false;
        }
        let change = Self::packet(bytes).0.wrapping_sub(1 << Self::PAID);
        word.compare_exchange(seen, seen.wrapping_add(change)) == seen
    }

    /// Whether the source is to pay ahead, as it is one of many packets, and nothing is paid for.
    #[inline(always)]
    pub const fn is_to_pay(self) -> bool {
        let Self(word) = self;
        Self::KEPT << Self::BYTES <= word && word >> (Self::PAID - 1) == 0
    }

    /// What stands for those that are paid for while a CPU is about to pay under an epoch.
    #[inline(always)]
    const fn paying(epoch: u32) -> u64 {
        Self::PAYING + (epoch & 1) as u64
    }

    /// Has this CPU alone pay ahead under an epoch, until the [end](Self::end_paying) of it, if the source is to.
    #[inline(always)]
    pub fn begin_paying(word: &impl Word, epoch: u32) -> bool {
        let seen = Self(word.load());
        let next = seen.with_paid(Self::paying(epoch));
        seen.is_to_pay() && word.compare_exchange(seen.0, next.0) == seen.0
    }

    /// Ends what [`begin_paying`](Self::begin_paying) began: so many more packets are paid for now.
    ///
    /// What is paid for an entry that was bound anew, or given away, or of which was [taken](Self::take), meanwhile is
    /// lost. So is what is paid while other CPUs count at each of many tries; then nobody pays ahead until what passed
    /// is taken.
    #[inline(always)]
    pub fn end_paying(word: &impl Word, epoch: u32, paid: u64) {
        for _ in 0..REFUND_TRIES {
            let seen = Self(word.load());
            if seen.0 >> Self::PAID != Self::paying(epoch)
                || word.compare_exchange(seen.0, seen.with_paid(paid).0) == seen.0
            {
                return;
            }
        }
    }

    /// Has nothing be paid for any more, also where a CPU is about to pay. Gives how many packets were.
    #[inline(always)]
    pub fn forfeit(word: &impl Word) -> u64 {
        for _ in 0..REFUND_TRIES {
            let seen = Self(word.load());
            if word.compare_exchange(seen.0, seen.with_paid(0).0) == seen.0 {
                return seen.paid();
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// The word of a source of which so many packets passed.
    fn after(packets: u64) -> Cell<u64> {
        Cell::new(Recent::packet(60).0 * packets)
    }

    const EPOCH: u32 = 7;
    const LONGEST: u64 = (1 << 20) - 1;
    const MOST: u64 = 1 << (Recent::PAID - Recent::BYTES);

    #[test]
    fn it_holds_packets_and_bytes() {
        let sum = [60, 1514, 0, LONGEST]
            .map(Recent::packet)
            .into_iter()
            .fold(Recent::default(), |sum, packet| Recent(sum.0 + packet.0));
        assert_eq!(sum.tally(), Tally { packets: 4, bytes: 60 + 1514 + LONGEST });
        assert_eq!(sum.with_paid(Recent::MOST_PAID).tally(), sum.tally());
        assert_eq!(Recent::default().tally(), Tally::default());
        assert_eq!(sum.with_paid(9).untallied(), Recent::default().with_paid(9));
    }

    #[test]
    fn it_is_half_full_long_before_it_overflows() {
        let longest = Recent::packet(LONGEST).0;
        for paid in [0, 1, Recent::MOST_PAID, Recent::PAYING, Recent::PAYING + 1] {
            let of = |packets| Recent(longest * packets).with_paid(paid);
            assert!(!of(MOST / 2 - 1).is_half_full());
            let half = of(MOST / 2);
            assert!(half.is_half_full() && half.tally().packets == MOST / 2);
            let all = of(MOST - 1);
            assert!(all.is_half_full());
            assert_eq!(all.tally(), Tally { packets: MOST - 1, bytes: (MOST - 1) * LONGEST });
            let word = Cell::new(all.0);
            assert_eq!(Recent::take(&word).packets, MOST - 1 - Recent::KEPT);
            assert_eq!(Recent(word.get()).tally(), Tally { packets: Recent::KEPT, bytes: 0 });
            assert_eq!(Recent(word.get()).paid(), if paid > Recent::MOST_PAID { 0 } else { paid });
            assert!(Recent(word.get()).0 >> Recent::PAID < Recent::PAYING, "it can pay again");
        }
    }

    #[test]
    fn what_is_paid_for_passes_once() {
        let word = after(Recent::KEPT);
        for ahead in [1, 25, Recent::MOST_PAID] {
            assert!(!Recent(word.get()).pass(&word, 60), "nothing is paid for");
            assert!(Recent::begin_paying(&word, EPOCH) && !Recent::begin_paying(&word, EPOCH));
            assert!(Recent(word.get()).paid() == 0 && !Recent(word.get()).pass(&word, 60));
            Recent::end_paying(&word, EPOCH, ahead);
            assert!(!Recent(word.get()).is_to_pay());
            let before = Recent(word.get()).tally();
            for passed in 1..=ahead {
                assert!(Recent(word.get()).pass(&word, 60));
                let Tally { packets, bytes } = before;
                let after = Tally { packets: packets + passed, bytes: bytes + 60 * passed };
                assert_eq!(Recent(word.get()).tally(), after);
                assert_eq!(Recent(word.get()).paid(), ahead - passed);
            }
        }
    }

    #[test]
    fn who_sent_few_packets_pays_for_none_ahead_nor_who_is_to_be_settled() {
        for (passed, pays) in [
            (0, false),
            (Recent::KEPT - 1, false),
            (Recent::KEPT, true),
            (MOST / 2 - 1, true),
            (MOST / 2, false),
        ] {
            assert_eq!(Recent::begin_paying(&after(passed), EPOCH), pays, "{passed} packets");
        }
    }

    #[test]
    fn what_is_paid_for_is_lost_where_the_entry_is_another_one_meanwhile() {
        let word = after(Recent::KEPT);
        assert!(Recent::begin_paying(&word, EPOCH));
        assert_eq!(Recent::forfeit(&word), 0);
        Recent::end_paying(&word, EPOCH, 7);
        assert_eq!(Recent(word.get()).paid(), 0);
        // Also where another CPU is about to pay under the next epoch.
        assert!(Recent::begin_paying(&word, EPOCH));
        assert_eq!(Recent::forfeit(&word), 0);
        assert!(Recent::begin_paying(&word, EPOCH + 1));
        Recent::end_paying(&word, EPOCH, 7);
        assert_eq!(Recent(word.get()).paid(), 0);
        Recent::end_paying(&word, EPOCH + 1, 8);
        assert_eq!(Recent(word.get()).paid(), 8);
        word.set(0);
        Recent::end_paying(&word, EPOCH, 7);
        assert_eq!(Recent(word.get()), Recent::default());
    }

    #[test]
    fn what_is_paid_for_is_forfeited_once() {
        let word = after(Recent::KEPT);
        assert!(Recent::begin_paying(&word, EPOCH));
        Recent::end_paying(&word, EPOCH, 20);
        assert_eq!([Recent::forfeit(&word), Recent::forfeit(&word)], [20, 0]);
        assert_eq!(
            Recent(word.get()).tally(),
            Tally { packets: Recent::KEPT, bytes: 60 * Recent::KEPT }
        );
    }
}
