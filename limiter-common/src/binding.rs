//! Tying state to a policy.
//!
//! Each entry of state names the epoch and the plan that its words are charged under. A packet that
//! finds it behind the epoch in force brings it up to date, once, carrying the words over. Entries
//! are created zeroed, which is behind every epoch, so a new source and a changed policy are the
//! same case.

use crate::{
    gcra::{Gcra, Scale},
    word::Word,
};

/// The epoch and the plan of an entry, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding(pub u64);

/// How an entry stands to the epoch that a packet found in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is bound under that epoch, or under a newer one that came into force since.
    Current,
    /// It is behind.
    Behind,
    /// Another CPU is bringing it up to date.
    Locked,
}

impl Binding {
    const LOCK: u64 = 1;
    /// Plans that a policy can have.
    pub const PLANS: u32 = 1 << 31;

    /// Bound to `plan` of `epoch`; plans are below [`Binding::PLANS`].
    #[inline(always)]
    pub const fn new(epoch: u32, plan: u32) -> Self {
        Self((epoch as u64) << 32 | (plan as u64) << 1)
    }

    /// The epoch that it is bound under.
    #[inline(always)]
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The plan that it is bound to.
    #[inline(always)]
    pub const fn plan(self) -> u32 {
        self.0 as u32 >> 1
    }

    /// How it stands to `epoch`.
    #[inline(always)]
    pub const fn standing(self, epoch: u32) -> Standing {
        if self.0 & Self::LOCK != 0 {
            Standing::Locked
        } else if (self.epoch().wrapping_sub(epoch) as i32) < 0 {
            Standing::Behind
        } else {
            Standing::Current
        }
    }

    /// How it stands to a binding that it should have. Connections of a source that had no entry for
    /// a while may have the plan of another.
    #[inline(always)]
    const fn standing_to(self, target: Self) -> Standing {
        match self.standing(target.epoch()) {
            Standing::Current if self.epoch() == target.epoch() && self.0 != target.0 => {
                Standing::Behind
            }
            standing => standing,
        }
    }

    #[inline(always)]
    const fn locked(self) -> Self {
        Self(self.0 | Self::LOCK)
    }
}

/// A bucket's word with the scale it is charged in.
pub struct Bucket<W> {
    /// The theoretical arrival time, see [`Gcra`].
    pub word: W,
    /// The [`Scale`] of the word.
    pub scale: W,
}

/// How often a packet looks whether another CPU is done with an entry that it needs.
pub const PATIENCE: u32 = 128;

/// Brings an entry that is behind to `target`, carrying the words of its buckets over to the
/// buckets in `plan`.
///
/// Exactly one CPU does it; the others wait for it, boundedly. Returns what the entry is bound to
/// then; `None` when it was not done in time.
#[inline(always)]
pub fn bind<W: Word, const N: usize>(
    entry: &W,
    target: Binding,
    buckets: &[Bucket<W>; N],
    plan: [&Gcra; N],
    now: u64,
) -> Option<Binding> {
    let seen = Binding(entry.load());
    if let Standing::Behind = seen.standing_to(target)
        && entry.compare_exchange(seen.0, target.locked().0) == seen.0
    {
        for (bucket, gcra) in buckets.iter().zip(plan) {
            carry(bucket, gcra, now);
        }
        // Nobody else writes a locked entry.
        let _: u64 = entry.compare_exchange(target.locked().0, target.0);
        return Some(target);
    }
    for _ in 0..PATIENCE {
        let seen = Binding(entry.load());
        match seen.standing_to(target) {
            Standing::Current => return Some(seen),
            Standing::Behind => return None,
            Standing::Locked => {}
        }
    }
    None
}

/// Re-scales one bucket; the caller holds the entry's lock.
#[inline(always)]
fn carry<W: Word>(bucket: &Bucket<W>, gcra: &Gcra, now: u64) {
    let from = bucket.scale.load();
    let to = gcra.scale();
    if from == to.0 {
        return;
    }
    // A packet that was bound before the change may still charge the word.
    let mut seen = bucket.word.load();
    for _ in 0..Gcra::TRIES {
        let found = bucket.word.compare_exchange(seen, gcra.carry(seen, Scale(from), now));
        if found == seen {
            break;
        }
        seen = found;
    }
    let _: u64 = bucket.scale.compare_exchange(from, to.0);
}
