//! Deciding about a packet by one word of state that several CPUs move.
//!
//! Every algorithm whose state is one word is a [`Policer`]: it says what it makes of a word, and
//! looking, charging and taking back are the same for all.

use crate::base::word::Word;

/// What an algorithm says of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It conforms; charging it stores this word.
    Conform(u64),
    /// It exceeds; nothing is to be stored.
    Exceed,
    /// The word is none that a charge can have made: the clock went far back, or the state was idle
    /// for half the span of the word. The packet is refused and this word, one that has nothing
    /// left, is to be stored, so that nobody is stuck and nobody is given a burst.
    Lost(u64),
}

/// The outcome of looking at a word. [`commit`](Self::commit) charges it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The word as it was.
    pub seen: u64,
    /// What charging the packet makes of it.
    pub next: u64,
}

impl Look {
    /// Charges what was looked at, if nobody else moved the word since.
    ///
    /// # Errors
    /// What the word was found to be instead.
    #[inline(always)]
    pub fn commit(self, word: impl Word) -> Result<(), u64> {
        let found = word.compare_exchange(self.seen, self.next);
        if found == self.seen { Ok(()) } else { Err(found) }
    }
}

/// Why a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet exceeds, perhaps because other CPUs took what was left since the look.
    Exceed,
    /// Other CPUs moved the word at each of the tries, or the policy changed meanwhile.
    Contended,
}

/// An algorithm whose state is one word. Times are in nanoseconds.
pub trait Policer {
    /// The word of a state that nothing was charged to.
    fn fresh(&self, now: u64) -> u64;

    /// Decides about a packet of this cost.
    fn decide(&self, word: u64, now: u64, cost: u64) -> Decision;

    /// Whether a state of this word is [near](crate::algorithm::near).
    fn is_near(&self, word: u64, now: u64) -> bool;

    /// The word without a charge of this cost, which was made at `now`.
    fn undo(&self, word: u64, now: u64, cost: u64) -> u64;

    /// Looks whether a packet conforms, and charges nothing.
    ///
    /// # Errors
    /// Why it does not.
    #[inline(always)]
    fn look(&self, word: &impl Word, now: u64, cost: u64) -> Result<Look, Refusal> {
        let seen = word.load_acquire();
        if !word.bound() {
            return Err(Refusal::Contended);
        }
        match self.decide(seen, now, cost) {
            Decision::Conform(next) => Ok(Look { seen, next }),
            Decision::Exceed => Err(Refusal::Exceed),
            Decision::Lost(empty) => {
                let _: u64 = word.compare_exchange(seen, empty);
                Err(Refusal::Exceed)
            }
        }
    }

    /// What [`look`](Self::look) says of a state that does not exist yet and will be created fresh.
    ///
    /// # Errors
    /// [`Refusal::Exceed`] when it admits no packet of this cost at all.
    #[inline(always)]
    fn look_fresh(&self, now: u64, cost: u64) -> Result<Look, Refusal> {
        let seen = self.fresh(now);
        match self.decide(seen, now, cost) {
            Decision::Conform(next) => Ok(Look { seen, next }),
            Decision::Exceed | Decision::Lost(_) => Err(Refusal::Exceed),
        }
    }

    /// Takes back a charge, unless another CPU moves the word at that moment, which `false` says.
    /// What is no longer measured in what it was found under is left alone.
    #[inline(always)]
    fn try_refund(&self, word: impl Word, now: u64, cost: u64) -> bool {
        let seen = word.load_acquire();
        !word.bound() || word.compare_exchange(seen, self.undo(seen, now, cost)) == seen
    }
}
