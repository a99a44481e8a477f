//! Sources that stay over a limit, blocked for a time.

use crate::word::Word;

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
    /// Which limit it is of: the lowest [`stamp`](crate::limit::Limit::stamp) of its layers.
    pub limit: u64,
}

/// What is known of a source that was over a limit; all zero at first.
pub struct Offence<W> {
    /// When it began to be over it without a rest, in nanoseconds; 0 when it is not.
    pub began: W,
    /// When it was last over it.
    pub last: W,
    /// Until when it is blocked for that, or was.
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

    /// Until when a block that was to end at `until` is one at `now`, in nanoseconds: what is left of it
    /// when the penalty was another one is no longer than its longest.
    #[inline(always)]
    pub const fn bounded(&self, until: u64, now: u64) -> u64 {
        let most = now + self.most;
        if until < most { until } else { most }
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
        set(&offence.last, last, now);
        if began == 0 || now.wrapping_sub(last) as i64 > self.rest() as i64 {
            set(&offence.began, began, if now == 0 { 1 } else { now });
            return offence.blocked.load();
        }
        let time = now.wrapping_sub(began);
        if (time as i64) < self.after as i64 || !set(&offence.began, began, 0) {
            return offence.blocked.load();
        }
        let (until, blocks) = (offence.blocked.load(), offence.blocks.load());
        let rested = now.wrapping_sub(until) as i64 > self.most as i64;
        let number = if rested { 1 } else { blocks + 1 };
        set(&offence.blocks, blocks, number);
        let end = now + self.length(number);
        set(&offence.blocked, until, end);
        end
    }
}

/// Stores a value if nobody else did meanwhile.
#[inline(always)]
fn set<W: Word>(word: &W, seen: u64, new: u64) -> bool {
    word.compare_exchange(seen, new) == seen
}
