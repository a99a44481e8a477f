//! How long a cost has to wait.

use super::{Window, counts::Counts};

impl Window {
    /// Nanoseconds from `now` until `cost` conforms, unless others are charged meanwhile: exactly, 0 when it does at once,
    /// `u64::MAX` when it never does. `slides` for the sliding window counter.
    ///
    /// Not for the packet path.
    #[inline(never)]
    pub const fn wait(&self, word: u64, now: u64, cost: u64, slides: bool) -> u64 {
        let counts = self.at(word, now, slides);
        let cost = self.units(cost);
        if cost > self.limit {
            return u64::MAX;
        }
        let room = self.limit - cost;
        if !counts.lost && self.estimate(&counts) <= room {
            return 0;
        }
        let next = self.until_next(&counts);
        if !slides {
            return next;
        }
        if counts.current <= room {
            // The previous window has to be outweighed, which may take all of this one.
            let remaining = self.remaining(counts.previous, room - counts.current);
            if remaining > 0 {
                return next - remaining;
            }
        }
        // Then this window is the previous one, and perhaps the one after it has to come.
        next + (self.length - self.remaining(self.coarsen(counts.current), room))
    }

    /// Nanoseconds from `now` until nothing that was counted counts any more: 0 if nothing does.
    #[inline(always)]
    pub const fn rest(&self, word: u64, now: u64, slides: bool) -> u64 {
        let counts = self.at(word, now, slides);
        let next = self.until_next(&counts);
        if counts.current != 0 {
            if slides { next.saturating_add(self.length) } else { next }
        } else if counts.previous != 0 {
            next
        } else {
            0
        }
    }

    /// Nanoseconds until the window after the newest one.
    #[inline(always)]
    const fn until_next(&self, counts: &Counts) -> u64 {
        counts.early.wrapping_add(self.length.wrapping_sub(counts.elapsed))
    }

    /// The most nanoseconds that may remain of a window in which the previous one weighs `room` units
    /// at most.
    const fn remaining(&self, previous: u64, room: u64) -> u64 {
        let previous = previous << self.coarse();
        if previous <= room {
            return self.length;
        }
        let (length, _) = self.ticks(0);
        // room * length / previous, in two steps of 16 bits of the room.
        let high = (room >> 16).wrapping_mul(length);
        let low = (room & 0xffff).wrapping_mul(length);
        let Some(whole) = high.checked_div(previous) else { return self.length };
        let rest = high.wrapping_sub(whole.wrapping_mul(previous));
        let part = match (rest << 16).wrapping_add(low).checked_div(previous) {
            Some(part) => part,
            None => 0,
        };
        let ticks = (whole << 16).wrapping_add(part);
        if length == self.length { ticks } else { ticks << Self::TICK }
    }
}
