//! The token bucket, as the generic cell rate algorithm.
//!
//! A bucket of `burst` tokens, refilled at a constant rate, is one point in time: the theoretical
//! arrival time (TAT), at which the bucket is full again (ITU-T I.371, virtual scheduling). A packet
//! conforms while that is less than `depth` = burst * interval ahead of now, and moves it by one
//! `interval`. So the whole state is one word, and a refused packet need not write it.
//!
//! At one instant a full bucket admits exactly `burst` packets, and over any time `t` fewer than
//! burst + rate * t + 1. A packet for which part of a token is there passes and owes the rest: a
//! bucket that waited for the whole token would, with a burst of 1, waste what comes in while it is
//! full, and admit half the rate of a load just above it.
//!
//! Times are in units of 2^-shift nanoseconds and wrap: differences are taken modulo 2^64 and read
//! as signed, and every legitimate difference is far below 2^63.

use crate::word::Word;

/// The parameters of a bucket; made by [`Rate::bucket`](crate::rate::Rate::bucket).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gcra {
    /// Units between two packets at the rate, at most [`Gcra::MAX_DEPTH`].
    pub interval: u64,
    /// Units that a full bucket takes to refill: burst * interval, at most [`Gcra::MAX_DEPTH`].
    /// 0 means no bucket.
    pub depth: u64,
    /// A unit is 2^-shift nanoseconds; at most [`Gcra::MAX_SHIFT`].
    pub shift: u64,
}

/// What a bucket says of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It conforms; charging it stores this word.
    Conform(u64),
    /// It exceeds; nothing is to be stored.
    Exceed,
    /// The word lies further ahead than any charge can put it: the clock went far back, or the
    /// source was idle for half the span of the word. The packet is refused and this word, an empty
    /// bucket, is to be stored, so that the source is neither stuck nor given a burst.
    Lost(u64),
}

/// The outcome of looking at a bucket, to be given to [`Gcra::charge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    seen: u64,
    next: u64,
}

impl Look {
    /// No bucket was looked at.
    pub const NONE: Self = Self { seen: 0, next: 0 };
}

/// Why a bucket refuses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The packet exceeds, perhaps because other CPUs took what was left since the look.
    Exceed,
    /// Other CPUs moved the word at each of the tries, or the policy changed meanwhile.
    Contended,
}

impl Gcra {
    /// The largest shift.
    pub const MAX_SHIFT: u64 = 10;
    /// The deepest bucket, in units.
    pub const MAX_DEPTH: u64 = 1 << 59;
    /// How often a charge is tried.
    pub const TRIES: u32 = 8;
    /// How often taking back a charge is tried: far more, as a charge that stays is a token that
    /// nobody had.
    pub const REFUND_TRIES: u32 = 64;
    /// How far beyond any debt a word may lie before it counts as lost, in nanoseconds. No debt takes
    /// longer than the bucket itself, not even one made before the rate was changed.
    /// CPUs whose clocks or packets are apart by less than this are one sequence to a bucket.
    pub const TOLERANCE: u64 = 1_000_000_000;

    /// The word of a full bucket at `now` (nanoseconds).
    #[inline(always)]
    pub const fn full(&self, now: u64) -> u64 {
        now << self.shift
    }

    /// Decides about one packet at `now` (nanoseconds), given the word of its bucket.
    #[inline(always)]
    pub const fn decide(&self, word: u64, now: u64) -> Decision {
        let now = now << self.shift;
        let ahead = word.wrapping_sub(now);
        // A TAT that has passed is a full bucket.
        let ahead = if ahead as i64 > 0 { ahead } else { 0 };
        if ahead < self.depth {
            Decision::Conform(now.wrapping_add(ahead + self.interval))
        } else if ahead > 2 * self.depth + (Self::TOLERANCE << self.shift) {
            Decision::Lost(now.wrapping_add(self.depth))
        } else {
            Decision::Exceed
        }
    }

    /// Nanoseconds from `now` until a packet conforms, unless others are charged meanwhile; 0 when
    /// it does at once.
    #[inline(always)]
    pub const fn wait(&self, word: u64, now: u64) -> u64 {
        let ahead = word.wrapping_sub(now << self.shift);
        if ahead as i64 <= 0 || ahead < self.depth {
            0
        } else {
            ((ahead - self.depth) >> self.shift) + 1
        }
    }

    /// Looks whether a packet conforms, and charges nothing.
    ///
    /// # Errors
    /// Why it does not.
    #[inline(always)]
    pub fn look(&self, word: &impl Word, now: u64) -> Result<Look, Refusal> {
        self.judge(word, word.load(), now)
    }

    /// Decides about a packet, given what was just loaded from the word of its bucket.
    #[inline(always)]
    fn judge(&self, word: &impl Word, seen: u64, now: u64) -> Result<Look, Refusal> {
        if !word.bound() {
            return Err(Refusal::Contended);
        }
        match self.decide(seen, now) {
            Decision::Conform(next) => Ok(Look { seen, next }),
            Decision::Exceed => Err(Refusal::Exceed),
            Decision::Lost(empty) => {
                let _: u64 = word.compare_exchange(seen, empty);
                Err(Refusal::Exceed)
            }
        }
    }

    /// What [`look`](Self::look) says of a bucket that does not exist yet and will be created full.
    #[inline(always)]
    pub const fn look_full(&self, now: u64) -> Look {
        let seen = self.full(now);
        Look { seen, next: seen.wrapping_add(self.interval) }
    }

    /// Charges a packet that conformed at `look`.
    ///
    /// A lost race is decided anew, so that what is left is given out exactly once, at most
    /// [`TRIES`](Self::TRIES) times.
    ///
    /// # Errors
    /// Why it is refused after all; nothing is charged then.
    #[inline(always)]
    pub fn charge(&self, word: impl Word + Copy, look: Look, now: u64) -> Result<(), Refusal> {
        let found = word.compare_exchange(look.seen, look.next);
        if found == look.seen { Ok(()) } else { self.charge_again(word, found, now) }
    }

    /// Charges a packet whose bucket other CPUs move at the same time.
    #[inline(never)]
    fn charge_again(
        &self,
        word: impl Word + Copy,
        mut found: u64,
        now: u64,
    ) -> Result<(), Refusal> {
        for _ in 1..Self::TRIES {
            let look = self.judge(&word, found, now)?;
            found = word.compare_exchange(look.seen, look.next);
            if found == look.seen {
                return Ok(());
            }
        }
        Err(Refusal::Contended)
    }

    /// Takes back a charge whose packet is refused by another limit after all.
    ///
    /// Should the bucket have become full since the charge, one packet too many is given back.
    #[inline(never)]
    pub fn refund(&self, word: impl Word + Copy) {
        let mut seen = word.load();
        for _ in 0..Self::REFUND_TRIES {
            if !word.bound() {
                return;
            }
            let found = word.compare_exchange(seen, seen.wrapping_sub(self.interval));
            if found == seen {
                return;
            }
            seen = found;
        }
    }

    /// What a word of this bucket is measured in, to be kept beside it.
    #[inline(always)]
    pub const fn scale(&self) -> Scale {
        Scale(self.depth << Scale::SHIFT_BITS | self.shift)
    }

    /// The word that carries the state of a bucket over to this one.
    ///
    /// The fill is kept as a share of the burst, rounded down by at most 2^-20, and a debt as the
    /// time that it takes, up to one interval: an empty bucket stays empty and a full one full,
    /// whatever the new rate and burst. State of no bucket gives a full one.
    #[inline(never)]
    pub const fn carry(&self, word: u64, from: Scale, now: u64) -> u64 {
        if from.0 == self.scale().0 {
            return word;
        }
        let depth = from.depth();
        let ahead = word.wrapping_sub(now << from.shift());
        if depth == 0 || ahead as i64 <= 0 {
            return self.full(now);
        }
        if ahead >= depth {
            let debt = ((ahead - depth) >> from.shift()) + 1;
            let most = self.interval >> self.shift;
            let debt = if debt < most { debt } else { most };
            return self.full(now).wrapping_add(self.depth + (debt << self.shift));
        }
        // The share of the bucket that is spent, in 2^-20, rounded up; 43 bits keep it in a word.
        let bits = 64 - depth.leading_zeros();
        let drop = bits.saturating_sub(43);
        let spent = match (((ahead + ((1 << drop) - 1)) >> drop) << 20).checked_div(depth >> drop) {
            Some(share) => share + 1,
            None => 1 << 20,
        };
        let whole = (self.depth >> 20) * spent;
        let rest = ((self.depth & 0xf_ffff) * spent) >> 20;
        let ahead = whole + rest + 1;
        self.full(now).wrapping_add(if ahead < self.depth { ahead } else { self.depth })
    }
}

/// The depth and the shift that a word was charged under, in one word; 0 for no bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(pub u64);

impl Scale {
    const SHIFT_BITS: u32 = 4;

    /// See [`Gcra::depth`].
    #[inline(always)]
    pub const fn depth(self) -> u64 {
        self.0 >> Self::SHIFT_BITS
    }

    /// See [`Gcra::shift`].
    #[inline(always)]
    pub const fn shift(self) -> u64 {
        self.0 & ((1 << Self::SHIFT_BITS) - 1)
    }
}
