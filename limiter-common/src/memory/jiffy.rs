//! The time of a tick of the kernel, which all CPUs agree on.
//!
//! The kernel counts ticks for all CPUs. The first packet in a tick reads the clock, and that time is the time
//! of the tick for all that come in it, whichever CPU they come to.

use crate::base::word::Word;

/// The tick that was agreed on last, and its time.
#[derive(Clone, Copy, Debug)]
pub struct JiffyClock<W> {
    /// Its number; [`NEVER`] at first, and a number that no tick has while its time is written.
    pub number: W,
    /// The time that was read first in it, in nanoseconds.
    pub time: W,
}

/// No tick.
pub const NEVER: u64 = 0;
/// No tick either: the time of one is being written.
const BUSY: u64 = u64::MAX;

impl<W: Word> JiffyClock<W> {
    /// The time of the tick with this number, which is the one at hand; `now` reads the clock.
    ///
    /// # Errors
    /// What the clock says, where another CPU is about to write a time, or is in a later tick already.
    #[inline(always)]
    pub fn sync(&self, tick: u64, now: impl FnOnce() -> u64) -> Result<u64, u64> {
        let seen = self.number.load();
        if seen == tick {
            let time = self.time.load();
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
