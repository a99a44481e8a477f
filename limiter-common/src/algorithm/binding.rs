//! Tying state to a policy.
//!
//! Each entry of state names the epoch and the profile that its words are charged under. A packet that
//! finds it behind the epoch in force brings it up to date, once, carrying the words over. Entries
//! are created zeroed, which is behind every epoch, so a new source and a changed policy are the
//! same case.
//!
//! **What happens before what.** The binding is a version word with a lock, as of a seqlock. A CPU locks it by an exchange,
//! changes the words by exchanges and the rest of the entry by plain stores, and unlocks the binding by an exchange. A
//! packet loads the binding by an acquire load, so it sees all that was written before that binding. It loads each word
//! by an acquire load, and then the binding again ([`Word::bound`]): if that is the same still, the word was
//! not changed by the next holder of the lock before it was loaded. If it is changed later, the exchange of the packet fails.
//!
//! The address of an entry, its scales and its limit ids need no order of their own: they are read after the binding, and a
//! packet that reads those of the next binding finds that one after the word.

use crate::{
    algorithm::{
        gcra::{Gcra, Scale},
        meter::{Measure, Meter},
        policer::Policer,
    },
    base::word::{LOCK_TRIES, TRIES, Word},
};

/// The epoch and the profile of an entry, in one word, and which of those it is that were in its place.
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
    const PROFILE_BITS: u32 = 27;
    /// Profiles that a policy can have.
    pub const PROFILES: u32 = 1 << Self::PROFILE_BITS;
    const GENERATION: u64 = 1 << (1 + Self::PROFILE_BITS);
    const GENERATIONS: u64 = 0xf * Self::GENERATION;

    /// Bound to `profile` of `epoch`; profiles are below [`Binding::PROFILES`].
    #[inline(always)]
    pub const fn new(epoch: u32, profile: u32) -> Self {
        Self((epoch as u64) << 32 | (profile as u64) << 1)
    }

    /// The epoch that it is bound under.
    #[inline(always)]
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The profile that it is bound to.
    #[inline(always)]
    pub const fn profile(self) -> u32 {
        self.0 as u32 >> 1 & (Self::PROFILES - 1)
    }

    /// This one, of an entry that is of the same generation as another: that was not given away since.
    #[inline(always)]
    pub const fn like(self, other: Self) -> Self {
        Self(self.0 & !Self::GENERATIONS | other.0 & Self::GENERATIONS)
    }

    /// Whether it is of an entry of the same generation as another.
    #[inline(always)]
    pub const fn is_like(self, other: Self) -> bool {
        (self.0 ^ other.0) & Self::GENERATIONS == 0
    }

    /// The binding of an entry that is taken away from whoever has it, while that is done; what was
    /// found out under the one before holds no longer. It is behind `epoch`, and behind the epoch before that:
    /// packets on other CPUs may still go by it.
    #[inline(always)]
    pub const fn vacated(self, epoch: u32) -> Self {
        let next = Self(self.0.wrapping_add(Self::GENERATION));
        Self::new(epoch.wrapping_sub(2), 0).like(next).locked()
    }

    /// The same when that is done.
    #[inline(always)]
    pub const fn unlocked(self) -> Self {
        Self(self.0 & !Self::LOCK)
    }

    /// Eight bits that are others under the epochs around, and of another generation under the same.
    #[inline(always)]
    pub const fn version_tag(self) -> u8 {
        let generation = (self.0 & Self::GENERATIONS) / Self::GENERATION;
        self.epoch() as u8 ^ (generation as u8) << 4
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

    /// Whether another CPU is at it.
    #[inline(always)]
    pub const fn is_locked(self) -> bool {
        self.0 & Self::LOCK != 0
    }

    /// Whether it is bound under `epoch`, and neither behind nor newer.
    #[inline(always)]
    pub const fn is_under(self, epoch: u32) -> bool {
        (self.0 ^ (epoch as u64) << 32) & (u64::MAX << 32 | Self::LOCK) == 0
    }

    /// How it stands to a binding that it should have. State by other keys may have come
    /// to the meter of another profile.
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

/// Brings an entry that is behind to `target`; `carry` brings what is in it over.
///
/// Exactly one CPU does it; the others wait for it, boundedly. Returns what the entry is bound to
/// then; `None` when it was not done in time, or when the entry was given away since `target` was found.
#[inline(always)]
pub fn bind<W: Word>(entry: &W, target: Binding, carry: impl FnOnce()) -> Option<Binding> {
    let seen = Binding(entry.load());
    if !seen.is_like(target) {
        return None;
    }
    if let Standing::Behind = seen.standing_to(target)
        && entry.compare_exchange(seen.0, target.locked().0) == seen.0
    {
        carry();
        // Nobody else writes a locked entry.
        let _: u64 = entry.compare_exchange(target.locked().0, target.0);
        return Some(target);
    }
    for tries in 0..LOCK_TRIES {
        entry.back_off(tries);
        let seen = Binding(entry.load_acquire());
        match seen.standing_to(target) {
            Standing::Current => return Some(seen),
            Standing::Behind => return None,
            Standing::Locked => {}
        }
    }
    None
}

/// The word of a bucket with the scale that it is charged in.
pub struct Bucket<W> {
    /// See [`Gcra`].
    pub word: W,
    /// The [`Scale`] of the word.
    pub scale: W,
}

impl<W: Word> Bucket<W> {
    /// Re-scales it; the caller holds the entry's lock.
    #[inline(always)]
    pub fn carry(&self, gcra: &Gcra, now: u64) {
        self.rescale(gcra.scale(), |word, from| gcra.carry(word, from, now));
    }

    /// Re-scales it, given how a word is carried over from a scale; the caller holds the entry's lock.
    #[inline(always)]
    pub fn rescale(&self, to: Scale, carry: impl Fn(u64, Scale) -> u64) {
        let from = self.scale.load();
        if from != to.0 {
            exchange(&self.word, |word| carry(word, Scale(from)));
            set(&self.scale, to.0);
        }
    }

    /// Begins anew, as another limit's, with so many units spent; the caller holds the entry's lock.
    #[inline(always)]
    pub fn renew(&self, gcra: &Gcra, now: u64, spent: u64) {
        let word = gcra.fresh(now).wrapping_add(spent);
        exchange(&self.word, |_| word);
        set(&self.scale, gcra.scale().0);
    }
}

/// A word of state of any algorithm with what it is measured in.
pub struct Measured<W> {
    /// See [`Policer`].
    pub word: W,
    /// See [`Measure::scale`].
    pub scale: W,
    /// See [`Measure::span`].
    pub span: W,
}

impl<W: Word> Measured<W> {
    /// Carries it over to a meter; the caller holds the entry's lock.
    #[inline(always)]
    pub fn carry(&self, meter: &Meter, now: u64) {
        self.rescale(meter.measure(), |word, from| meter.carry(word, from, now));
    }

    /// Carries it over, given how a word is from what it was measured in; the caller holds the
    /// entry's lock.
    #[inline(always)]
    pub fn rescale(&self, to: Measure, carry: impl Fn(u64, Measure) -> u64) {
        let from = Measure { scale: self.scale.load(), span: self.span.load() };
        if from.scale != to.scale || from.span != to.span {
            exchange(&self.word, |word| carry(word, from));
            set(&self.scale, to.scale);
            set(&self.span, to.span);
        }
    }
}

/// Stores the word `brought` in an entry that others may bring to another policy meanwhile, if it owes more than the word
/// there. `is_same` says whether both are measured alike by now, `owes` what a word of that measure owes.
///
/// Returns `false` if another CPU is at the entry, or moved the word: it is to be tried again.
#[inline(always)]
pub fn merge<W: Word>(
    entry: &W,
    word: &W,
    brought: u64,
    is_same: impl FnOnce() -> bool,
    owes: impl Fn(u64) -> u64,
) -> bool {
    let before = Binding(entry.load_acquire());
    if before.is_locked() {
        return false;
    }
    let is_same = is_same();
    let seen = word.load_acquire();
    // The word is changed before its measure is, so one of them may be of another policy. If the word is changed later, the
    // exchange fails.
    if entry.load() != before.0 {
        return false;
    }
    if !is_same || owes(seen) >= owes(brought) {
        return true;
    }
    word.compare_exchange(seen, brought) == seen
}

/// Changes a word that a packet may still charge that was bound before the change.
#[inline(always)]
fn exchange<W: Word>(word: &W, new: impl Fn(u64) -> u64) {
    let mut seen = word.load();
    for _ in 0..TRIES {
        let found = word.compare_exchange(seen, new(seen));
        if found == seen {
            break;
        }
        seen = found;
    }
}

/// Stores a word that nobody else writes.
#[inline(always)]
fn set<W: Word>(word: &W, new: u64) {
    let _: u64 = word.compare_exchange(word.load(), new);
}
