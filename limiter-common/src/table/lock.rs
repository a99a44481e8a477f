//! The lock of a set, which is a bit of the state of its [probation slots](crate::table::probation).
//!
//! **What happens before what.** A holder gives the lock back by a release store of the state. Whoever takes it then does so
//! by an exchange of that word, so all that holders before it wrote happens before all that it reads: tags, debt notes,
//! probation slots, addresses, scales and limit ids.
//!
//! A packet looks its source up without the lock. It loads the state first, by an acquire load, and the tags and debt
//! notes after that. So it sees all that was written before that state. If it finds no entry, and under the lock
//! the state has the same number still, then no entry was given away since, and its source has none. Tags and
//! notes need no order among each other: a packet that sees one of both too early finds another number under the lock.

use crate::{
    base::word::{StoreWord, Word},
    table::probation::SetState,
};

/// The lock in the word of a [`SetState`].
#[derive(Clone, Copy, Debug)]
pub struct SetLock<W>(pub W);

impl<W: Word> SetLock<W> {
    /// Takes it, unless another CPU has it, or takes it at this moment.
    #[inline(always)]
    pub fn try_take(&self) -> bool {
        let seen = self.0.load();
        seen & SetState::LOCK == 0 && self.0.compare_exchange(seen, seen | SetState::LOCK) == seen
    }

    /// The state of the set, whose lock is held.
    #[inline(always)]
    pub fn state(&self) -> SetState {
        SetState(self.0.load())
    }

    /// The state of the set, whose lock is not held, before its tags and debt notes are read.
    #[inline(always)]
    pub fn state_before(&self) -> SetState {
        SetState(self.0.load_acquire())
    }
}

impl<W: StoreWord> SetLock<W> {
    /// Gives it back, with another state. Nobody else writes the word meanwhile. An exchange would do as well, and
    /// wait for all stores.
    #[inline(always)]
    pub fn give_back_as(&self, state: SetState) {
        self.0.store_release(state.unlocked().0);
    }
}
