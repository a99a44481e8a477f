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
}

/// What is known of the offences of a source; all zero at first.
pub struct Offence<W> {
    /// When it began to be over a limit without a rest, in nanoseconds; 0 when it is not.
    pub began: W,
    /// When it was last over.
    pub last: W,
    /// Until when it is blocked, or was.
    pub blocked: W,
    /// How many blocks came without a rest of [`Penalty::most`] between them.
    pub blocks: W,
    /// What `began` is about, see [`Over`].
    pub over: W,
}

/// Which limit the offence of a source is about, for how long a source has to be over that, and whether
/// another limit waits for the end of it.
///
/// A source has one offence at a time: what it does to one limit is not held against it by another. If
/// each limit began it anew, a source that is over two of them in turn would never be blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over(pub u64);

impl Over {
    const AWAITED: u64 = 1 << 32;
    /// Where the time begins.
    const TIME: u32 = 33;
    /// It is in units of this power of two, about a millisecond, rounded up.
    const UNIT: u32 = 20;

    #[inline(always)]
    const fn new(stamp: u32, penalty: &Penalty) -> Self {
        let units = (penalty.after >> Self::UNIT) + 1;
        let most = (1 << (u64::BITS - Self::TIME)) - 1;
        Self((if units < most { units } else { most }) << Self::TIME | stamp as u64)
    }

    #[inline(always)]
    const fn after(self) -> u64 {
        self.0 >> Self::TIME << Self::UNIT
    }

    #[inline(always)]
    const fn is_of(self, other: Self) -> bool {
        self.0 as u32 == other.0 as u32
    }

    #[inline(always)]
    const fn is_awaited(self) -> bool {
        self.0 & Self::AWAITED != 0
    }

    /// Whether an offence that is about this, and `began` and was `last` seen at these times, goes on
    /// at `now` though the source is over another limit. One that blocks sooner takes its place.
    #[inline(always)]
    const fn outlasts(self, other: Self, began: u64, last: u64, now: u64) -> bool {
        let after = self.after();
        let rest = if after > Penalty::REST { after } else { Penalty::REST };
        began != 0 && now.wrapping_sub(last) as i64 <= rest as i64 && after <= other.after()
    }
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

    /// Notes that a packet of a source was over the limit of a stamp at `now` (nanoseconds), and
    /// blocks it if it has been for long enough. Of several CPUs that find that, one does it.
    #[inline(always)]
    pub fn exceed<W: Word>(&self, stamp: u32, offence: &Offence<W>, now: u64) {
        let this = Over::new(stamp, self);
        let over = Over(offence.over.load());
        let mut began = offence.began.load();
        let last = offence.last.load();
        let rested = now.wrapping_sub(last) as i64 > self.rest() as i64;
        if !over.is_of(this) {
            if over.outlasts(this, began, last, now) {
                if !over.is_awaited() {
                    set(&offence.over, over.0, over.0 | Over::AWAITED);
                }
                return;
            }
            // Before it is about this one: no CPU must take the time of the other limit for its own.
            set(&offence.began, began, 0);
            began = 0;
        } else if over.is_awaited() && (began == 0) != rested {
            // It ended by a rest, and the other one is next, unless the source leaves that alone.
            if rested {
                set(&offence.began, began, 0);
                set(&offence.last, last, now);
            }
            return;
        }
        set(&offence.last, last, now);
        if began == 0 || rested {
            set(&offence.over, over.0, this.0);
            set(&offence.began, began, if now == 0 { 1 } else { now });
            return;
        }
        let time = now.wrapping_sub(began);
        if (time as i64) < self.after as i64 || !set(&offence.began, began, 0) {
            return;
        }
        set(&offence.over, over.0, this.0);
        let (until, blocks) = (offence.blocked.load(), offence.blocks.load());
        let rested = now.wrapping_sub(until) as i64 > self.most as i64;
        let number = if rested { 1 } else { blocks + 1 };
        set(&offence.blocks, blocks, number);
        set(&offence.blocked, until, now + self.length(number));
    }
}

/// Stores a value if nobody else did meanwhile.
#[inline(always)]
fn set<W: Word>(word: &W, seen: u64, new: u64) -> bool {
    word.compare_exchange(seen, new) == seen
}
