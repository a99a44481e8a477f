//! Sources that stay over a limit, blocked for a time.

use crate::{algorithm::binding::Binding, base::word::Word};

/// What happens to a source that stays over a limit; all zero when nothing does.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Penalty {
    /// Nanoseconds for which a source has to be over the limit, at least 1; 0 for no penalty.
    pub after: u64,
    /// Nanoseconds for which it is blocked then, at most [`Penalty::LONGEST`].
    pub block: u64,
    /// The longest block, in nanoseconds, at most [`Penalty::LONGEST`].
    pub most: u64,
    /// By what each block is longer than the one before, 1 to [`Penalty::STEEPEST`].
    pub backoff: u64,
    /// Which limit it is of: the [`limit_id`](crate::policy::limit::Limit::limit_id) of the layer that it began with.
    pub limit: u64,
}

/// What is known of a source that was over a limit; all zero at first.
pub struct Offence<W> {
    /// When it began to be over it without a rest, in nanoseconds; 0 when it is not.
    pub began: W,
    /// When it was last over it.
    pub last: W,
    /// Since when it is blocked for that, or was.
    pub since: W,
    /// Until when, by the penalty that it was blocked under; see [`Penalty::until`]. It is read after
    /// `since`.
    pub blocked: W,
    /// How many blocks came without a rest of [`Penalty::most`] between them.
    pub blocks: W,
}

impl Penalty {
    /// The longest block: 366 days.
    pub const LONGEST: u64 = 366 * 24 * 3600 * 1_000_000_000;
    /// The steepest back-off.
    pub const STEEPEST: u64 = 10;
    /// A source that is refused nothing for so long, in nanoseconds, and for `after`, is no longer over
    /// the limit.
    pub const REST: u64 = 1_000_000_000;
    /// After so many blocks they grow no further.
    const DOUBLINGS: u32 = 16;

    /// So long without a refusal, in nanoseconds, and a source is no longer over the limit.
    #[inline(always)]
    pub const fn rest(&self) -> u64 {
        if self.after > Self::REST { self.after } else { Self::REST }
    }

    /// Until when a block is one that was made at `since`, to end at `blocked`, in nanoseconds: if that
    /// was under another penalty, it is no longer than the longest of this one.
    #[inline(always)]
    pub const fn until(&self, since: u64, blocked: u64) -> u64 {
        let most = since + self.most;
        if blocked < most { blocked } else { most }
    }

    /// How long block number `blocks` is, from 1 on.
    #[inline(always)]
    pub const fn length(&self, blocks: u64) -> u64 {
        let mut length = self.block;
        let mut left = blocks;
        let mut step = 0;
        while step < Self::DOUBLINGS {
            step += 1;
            if left > 1 && length < self.most {
                length *= self.backoff;
                left -= 1;
            }
        }
        if length < self.most { length } else { self.most }
    }

    /// Notes that a packet of a source was over the limit at `now` (nanoseconds), and blocks it if it
    /// has been over it for long enough. Of several CPUs that find that, one does it. Gives until
    /// when it is blocked, or was.
    ///
    /// The offence is about this limit alone, so nothing that is done to another saves who stays
    /// over it, nor makes it worse.
    #[inline(always)]
    pub fn exceed<W: Word>(&self, offence: &Offence<W>, now: u64) -> u64 {
        let [began, last] = [&offence.began, &offence.last].map(Word::load);
        let [since, blocked] = [&offence.since, &offence.blocked].map(Word::load);
        let until = self.until(since, blocked);
        set(&offence.last, last, now);
        if began == 0 || now.wrapping_sub(last) as i64 > self.rest() as i64 {
            set(&offence.began, began, if now == 0 { 1 } else { now });
            return until;
        }
        let time = now.wrapping_sub(began);
        if (time as i64) < self.after as i64 || !set(&offence.began, began, 0) {
            return until;
        }
        let blocks = offence.blocks.load();
        let rested = now.wrapping_sub(until) as i64 > self.most as i64;
        let number = if rested { 1 } else { blocks + 1 };
        set(&offence.blocks, blocks, number);
        let end = now + self.length(number);
        // Who reads when it began, and then until when it is, sees the block before, one that is over, or
        // this one, perhaps cut as if it had begun with the one before: never a longer one.
        set(&offence.blocked, blocked, now);
        set(&offence.since, since, now);
        set(&offence.blocked, now, end);
        end
    }
}

/// A block as the entry of a source has it: until when the source is blocked, and the
/// [`version_tag`](Binding::version_tag) of the binding under which that was found. Whoever decides under another
/// one neither goes by it nor changes it, so that no block outlives the binding of the entry that it
/// was made under.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(pub u64);

impl Block {
    /// The low bits, which are those of the mark; times are exact to 256 ns.
    const VERSION_TAG: u64 = 0xff;

    /// One until then, in nanoseconds; 0 for none.
    #[inline(always)]
    pub const fn new(until: u64, binding: Binding) -> Self {
        Self(until & !Self::VERSION_TAG | binding.version_tag() as u64)
    }

    /// Until when it is one under a binding, in nanoseconds, or was; 0 if it never was.
    #[inline(always)]
    pub const fn until(self, binding: Binding) -> u64 {
        let until = self.0 & !Self::VERSION_TAG;
        if until != 0 && self.is_under(binding) { until } else { 0 }
    }

    #[inline(always)]
    const fn is_under(self, binding: Binding) -> bool {
        (self.0 ^ binding.version_tag() as u64) & Self::VERSION_TAG == 0
    }

    /// Makes the block in a word one until then at least, in nanoseconds, if it is of this binding.
    /// Where another CPU moves the word just now, the next packet that is refused does it. Whether it
    /// was made longer.
    #[inline(always)]
    pub fn extend<W: Word>(word: &W, until: u64, binding: Binding) -> bool {
        let (seen, block) = (word.load(), Self::new(until, binding));
        Self(seen).is_under(binding) && seen < block.0 && set(word, seen, block.0)
    }
}

/// Stores a value if nobody else did meanwhile.
#[inline(always)]
fn set<W: Word>(word: &W, seen: u64, new: u64) -> bool {
    word.compare_exchange(seen, new) == seen
}
