//! The time of a tick of the kernel, which all CPUs agree on.
//!
//! The kernel counts ticks for all CPUs. The first packet in a tick reads the clock, and that time is the time
//! of the tick for all that come in it, whichever CPU they come to.
//!
//! **What happens before what.** Two words are one value by a mark in the first one. The CPU that reads the clock takes the
//! number away by an exchange, exchanges the time, and sets the new number by an exchange. The others load the number and the
//! time by acquire loads, and then the number again: a time between two equal numbers is that of this number.

use crate::base::word::Word;

/// The tick that was agreed on last, and its time.
#[derive(Clone, Copy, Debug)]
pub struct JiffyClock<W> {
    /// Its number; 0 at first, as of no tick, and a number that no tick has while its time is written.
    pub number: W,
    /// The time that was read first in it, in nanoseconds.
    pub time: W,
}

/// No tick: the time of one is being written.
const BUSY: u64 = u64::MAX;

impl<W: Word> JiffyClock<W> {
    /// The time of the tick with this number, which is the one at hand; `now` reads the clock.
    ///
    /// # Errors
    /// What the clock says, where another CPU is about to write a time, or is in a later tick already.
    #[inline(always)]
    pub fn sync(&self, tick: u64, now: impl FnOnce() -> u64) -> Result<u64, u64> {
        let seen = self.number.load_acquire();
        if seen == tick {
            let time = self.time.load_acquire();
            // A later tick may have come meanwhile, and its time.
            if self.number.load() == tick {
                return Ok(time);
            }
        } else if seen < tick && self.number.compare_exchange(seen, BUSY) == seen {
            let now = now();
            let _: u64 = self.time.compare_exchange(self.time.load(), now);
            let _: u64 = self.number.compare_exchange(BUSY, tick);
            return Ok(now);
        }
        Err(now())
    }
}

/// By how much the end of a tick is late at `now`, in nanoseconds, whose time is `ticked` and which should last for `length`; 0
/// if it is not. A tick that stands still takes its packets to have come at its begin. When it ends, the kernel makes up
/// for what it missed, and nothing tells of it any more.
#[inline(always)]
pub const fn lag(now: u64, ticked: u64, length: u64) -> u64 {
    now.saturating_sub(ticked.saturating_add(length))
}

#[cfg(test)]
mod tests {
    use super::lag;

    #[test]
    fn a_tick_is_late_from_its_end_on() {
        const LENGTH: u64 = 4_000_000;
        for (now, late) in [(0, 0), (LENGTH, 0), (LENGTH + 1, 1), (50_000_000, 46_000_000)] {
            assert_eq!(lag(77 + now, 77, LENGTH), late);
        }
        // By another clock, or one that went back.
        assert_eq!(lag(5, 77, LENGTH), 0);
        assert_eq!(lag(u64::MAX, u64::MAX - 1, LENGTH), 0);
    }
}
