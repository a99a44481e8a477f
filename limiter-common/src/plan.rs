//! The limits of a source, asked together.
//!
//! Every limit that applies is looked at, narrow before wide, and then all are charged or none: a
//! packet that any of them refuses costs the others nothing.

use crate::{
    gcra::{Gcra, Look, Refusal},
    limit::{LIMITS, Limit},
    packet::Packet,
    reason::Reason,
    word::Word,
};

/// The limits that apply to a source, compiled.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The buckets, at [`Limit::index`]; all zero where there is none.
    pub limits: [Gcra; LIMITS],
    /// The limits that are set, as [`Limit::bit`]s.
    pub active: u64,
}

impl Plan {
    /// The limits of this plan that are about a packet. What cannot be read of it counts as what it
    /// could be.
    #[inline(always)]
    pub const fn applicable(packet: &Packet) -> u64 {
        let always = Limit::Connection.bit() | Limit::Source.bit();
        if packet.may_open() { always | Limit::Syn.bit() } else { always }
    }
}

/// Where the words of a packet's buckets are.
pub trait State {
    /// The words: handles, cheap to copy.
    type Word: Word + Copy;

    /// The limits that are asked, of those in `applies`: this one's bit, or 0. Each is asked for once,
    /// and what is given is looked at again and again.
    #[inline(always)]
    fn applies(&self, applies: u64, limit: Limit) -> u64 {
        applies & limit.bit()
    }

    /// The word of a bucket that exists; `None` when a packet that conforms is to create it.
    fn find(&mut self, limit: Limit) -> Option<Self::Word>;

    /// The word of a bucket that [`find`](State::find) did not have, created full; `None` when no
    /// state can be had for it.
    fn create(&mut self, limit: Limit) -> Option<Self::Word>;
}

/// A bucket that a packet is charged to.
struct Account<W> {
    limit: Limit,
    /// Not 0 when the limit applies.
    applies: u64,
    word: Option<W>,
    look: Look,
}

impl Plan {
    /// Decides about one packet at `now` (nanoseconds) under the limits in `applies`, and charges
    /// them all if it conforms.
    ///
    /// # Errors
    /// The reason to drop the packet; then no bucket is charged.
    #[inline(always)]
    pub fn decide<S: State>(&self, applies: u64, state: &mut S, now: u64) -> Result<(), Reason> {
        let account = |limit| Account::new(limit, state.applies(applies, limit));
        let mut connection = account(Limit::Connection);
        let mut syn = account(Limit::Syn);
        let mut source = account(Limit::Source);
        self.look(&mut connection, state, now)?;
        self.look(&mut syn, state, now)?;
        self.look(&mut source, state, now)?;

        self.charge(&mut connection, state, now)?;
        if let Err(reason) = self.charge(&mut syn, state, now) {
            self.refund(&connection);
            return Err(reason);
        }
        if let Err(reason) = self.charge(&mut source, state, now) {
            self.refund(&connection);
            self.refund(&syn);
            return Err(reason);
        }
        Ok(())
    }

    #[inline(always)]
    const fn gcra(&self, limit: Limit) -> &Gcra {
        &self.limits[limit.index()]
    }

    #[inline(always)]
    fn look<S: State>(
        &self,
        account: &mut Account<S::Word>,
        state: &mut S,
        now: u64,
    ) -> Result<(), Reason> {
        let limit = account.limit;
        if account.applies == 0 {
            return Ok(());
        }
        account.word = state.find(limit);
        account.look = match &account.word {
            Some(word) => {
                self.gcra(limit).look(word, now).map_err(|refusal| reason(limit, refusal))?
            }
            None => self.gcra(limit).look_full(now),
        };
        Ok(())
    }

    #[inline(always)]
    fn charge<S: State>(
        &self,
        account: &mut Account<S::Word>,
        state: &mut S,
        now: u64,
    ) -> Result<(), Reason> {
        let limit = account.limit;
        if account.applies == 0 {
            return Ok(());
        }
        if account.word.is_none() {
            account.word = state.create(limit);
        }
        match account.word {
            Some(word) => self
                .gcra(limit)
                .charge(word, account.look, now)
                .map_err(|refusal| reason(limit, refusal)),
            None => Err(Reason::Contended),
        }
    }

    #[inline(always)]
    fn refund<W: Word + Copy>(&self, account: &Account<W>) {
        if let Some(word) = account.word {
            self.gcra(account.limit).refund(word);
        }
    }
}

impl<W> Account<W> {
    #[inline(always)]
    const fn new(limit: Limit, applies: u64) -> Self {
        Self { limit, applies, word: None, look: Look::NONE }
    }
}

#[inline(always)]
const fn reason(limit: Limit, refusal: Refusal) -> Reason {
    match refusal {
        Refusal::Exceed => Reason::exceed(limit),
        Refusal::Contended => Reason::Contended,
    }
}
