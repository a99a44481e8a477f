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
    /// Its number; [`NEVER`] at first, and a number that no tick has while its time is written.
    pub number: W,
    /// The time that was read first in it, in nanoseconds.
    pub time: W,
    /// The longest time by which the end of a tick was late, in nanoseconds, as far as packets tell.
    pub lag: W,
}

/// No tick.
pub const NEVER: u64 = 0;
/// No tick either: the time of one is being written.
const BUSY: u64 = u64::MAX;

impl<W: Word> JiffyClock<W> {
    /// The time of the tick with this number, which is the one at hand; `now` reads the clock. Ticks are `length`
    /// nanoseconds long.
    ///
    /// # Errors
    /// What the clock says, where another CPU is about to write a time, or is in a later tick already.
    #[inline(always)]
    pub fn sync(&self, tick: u64, length: u64, now: impl FnOnce() -> u64) -> Result<u64, u64> {
        let seen = self.number.load_acquire();
        if seen == tick {
            let time = self.time.load_acquire();
            // A later tick may have come meanwhile, and its time.
            if self.number.load() == tick {
                return Ok(time);
            }
        } else if seen < tick && self.number.compare_exchange(seen, BUSY) == seen {
            let (before, now) = (self.time.load(), now());
            let late = if seen == NEVER {
                0
            } else {
                late(now.saturating_sub(before), tick - seen, length)
            };
            let longest = self.lag.load();
            if late > longest {
                let _: u64 = self.lag.compare_exchange(longest, late);
            }
            let _: u64 = self.time.compare_exchange(before, now);
            let _: u64 = self.number.compare_exchange(BUSY, tick);
            return Ok(now);
        }
        Err(now())
    }
}

/// By how much ticks were late at least, in nanoseconds, if so many of them ended in some time. That may be a tick longer
/// than these: it begins and ends anywhere in its ticks.
#[inline(always)]
const fn late(time: u64, ticks: u64, length: u64) -> u64 {
    time.saturating_sub((ticks + 1).wrapping_mul(length))
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const TICK: u64 = 4_000_000;

    /// The lag that is told after the clock was read in these ticks, each with its time.
    fn lag(reads: &[(u64, u64)]) -> u64 {
        let clock = JiffyClock { number: Cell::new(0), time: Cell::new(0), lag: Cell::new(0) };
        for (tick, time) in reads {
            assert_eq!(clock.sync(*tick, TICK, || *time), Ok(*time));
        }
        clock.lag.get()
    }

    #[test]
    fn a_tick_that_stands_still_is_told_by_what_it_is_late() {
        // What was before the first packet is not known.
        assert_eq!(lag(&[(1_000, 77 * TICK)]), 0);
        // It stood still for 50 ms.
        assert_eq!(lag(&[(10, 10 * TICK), (11, 10 * TICK + 50_000_000)]), 50_000_000 - 2 * TICK);
        // The longest one is kept.
        let late = [(10, 0), (11, 5 * TICK), (12, 6 * TICK), (13, 9 * TICK), (14, 10 * TICK)];
        assert_eq!(lag(&late), 3 * TICK);
    }

    #[test]
    fn ticks_that_are_not_late_have_no_lag() {
        for ticks in [1, 2, 250, 1_000_000_000] {
            // From the begin of a tick to the end of another one.
            assert_eq!(lag(&[(10, 10 * TICK), (10 + ticks, (11 + ticks) * TICK - 1)]), 0);
        }
        // A clock that goes back.
        assert_eq!(lag(&[(10, 10 * TICK), (11, 5 * TICK)]), 0);
        assert_eq!(lag(&[(1, u64::MAX), (u64::MAX - 1, u64::MAX)]), 0);
    }
}
