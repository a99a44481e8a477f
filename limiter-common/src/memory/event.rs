//! What the datapath tells of sources: that one began to be over its limits, and that one was blocked.
//!
//! It tells of edges, not of packets, and of few: each CPU has a [budget](EventStats::BUDGET), and counts
//! what goes beyond.

use crate::base::{address::Address, word::Word};

/// Something that happened to a source.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceEvent {
    /// When, in nanoseconds of the clock that packets go by.
    pub time: u64,
    /// Until when the source is blocked, in nanoseconds; 0 if it is not.
    pub until: u64,
    /// Packets of the source that were dropped, with this one, as its entry has it.
    pub dropped: u64,
    /// The source.
    pub source: Address,
    /// The slot of the interface that its packet came in by.
    pub slot: u32,
    /// The slot of the tally of the limit that did it.
    pub tally: u32,
    /// What happened, see [`kind`].
    pub kind: u16,
    /// 1 if it was told before, and goes on.
    pub again: u16,
}

/// What a [`SourceEvent`] tells.
pub mod kind {
    /// A limit began to refuse packets of the source.
    pub const LIMITED: u16 = 0;
    /// A limit would have; it, or everything, is only monitored.
    pub const MONITORED: u16 = 1;
    /// The source was blocked because it stayed over a limit.
    pub const BLOCKED: u16 = 2;
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// What a CPU told, and what it did not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// How often each [`kind`] of thing happened, told or not; what goes on is not counted again.
    pub happened: [u64; kind::COUNT],
    /// How often of those that was not told: beyond the budget, or nobody had read what was told before.
    pub suppressed: [u64; kind::COUNT],
    /// Refused packets that counted towards a block, as something proved them or their limit asks for nothing. A SYN
    /// counts with its repetitions once, when a connection has followed it.
    pub proven: u64,
    /// Refused packets of limits with a penalty that did not, as nothing proved them then.
    pub unproven: u64,
    /// Since when the budget is used, in nanoseconds.
    since: u64,
    /// How much of it is.
    used: u64,
}

impl EventStats {
    /// EventStats of a CPU in each [`PERIOD`](Self::PERIOD).
    pub const BUDGET: u64 = 256;
    /// Nanoseconds.
    pub const PERIOD: u64 = 1_000_000_000;

    /// Whether there is budget at `now` (nanoseconds) for one more notice, which uses it. What goes on may
    /// use a quarter of it, what is only monitored half: that what begins to be dropped is told.
    #[inline(always)]
    pub const fn spend(&mut self, now: u64, kind: u16, again: bool) -> bool {
        // Of a clock that went back nothing is known.
        if now.wrapping_sub(self.since) >= Self::PERIOD {
            (self.since, self.used) = (now, 0);
        }
        let shares = if again { 4 } else { 1 + (kind == kind::MONITORED) as u64 };
        let has_some = self.used < Self::BUDGET / shares;
        self.used += has_some as u64;
        has_some
    }
}

/// Without a refusal for so long, in nanoseconds, a source is within its limits again.
pub const QUIET: u64 = 10_000_000_000;
/// While it is over them, that is told again after so many nanoseconds: for those who began to listen
/// meanwhile.
pub const AGAIN: u64 = 60_000_000_000;
/// Nanoseconds for which refusals leave no trace, so that a flood hardly writes. It is as long as a
/// CPU [refuses](crate::memory::cache::Cached::LONGEST) by what it remembers.
pub const STEP: u64 = 1_000_000_000;

/// The time in which a source is over its limits, as its entry has it: from a first refusal on, until
/// none came for so long as [`QUIET`].
///
/// Both words are times whose lowest bit says whether packets were dropped for it, or would have been
/// only: that the second becomes the first is told too.
pub struct Episode<W> {
    /// When it was refused last, give or take a [`STEP`], in nanoseconds; 0 if never.
    pub last: W,
    /// When that was told last; 0 if never.
    pub told: W,
}

/// What a refusal is to whoever watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emission {
    /// Nothing.
    Nothing,
    /// The source begins to be over its limits, or to be refused for it.
    Begins,
    /// It still is.
    GoesOn,
}

impl<W: Word> Episode<W> {
    /// Notes a refusal at `now` (nanoseconds), for which the packet is dropped unless that is only
    /// `monitored`, and what it is. Of several CPUs that meet at an edge, one is to tell it.
    #[inline(always)]
    pub fn refuse(&self, now: u64, monitored: bool) -> Emission {
        let level = !monitored as u64;
        let now = if now < 2 { 2 } else { now & !1 };
        let last = self.last.load();
        if is_noted(last, now, monitored) {
            return Emission::Nothing;
        }
        let is_new = is_over(last, now, QUIET);
        let told = self.told.load();
        let rises = told & 1 < level;
        let begins = is_new || rises;
        // Whoever saw the same edge, and was first, told it after the last refusal.
        let due = if begins { QUIET - STEP } else { AGAIN };
        let after = |word: u64| now | level | if is_new { 0 } else { word & 1 };
        let _: u64 = self.last.compare_exchange(last, after(last));
        if !rises && !is_over(told, now, due)
            || self.told.compare_exchange(told, after(told)) != told
        {
            return Emission::Nothing;
        }
        if begins { Emission::Begins } else { Emission::GoesOn }
    }
}

/// Whether a refusal at `now` (nanoseconds), for which the packet is dropped unless that is only `monitored`, is noted
/// already by the word [`last`](Episode::last), so that there is nothing to be told of it.
#[inline(always)]
pub const fn is_noted(last: u64, now: u64, monitored: bool) -> bool {
    (last & 1 != 0 || monitored) && !is_over(last, now, STEP)
}

/// Whether so much time, in nanoseconds, went by since the time of a word, which may have none. The clocks
/// of CPUs may be a little apart; one that went back by more than a step is another time.
#[inline(always)]
const fn is_over(word: u64, now: u64, time: u64) -> bool {
    let ago = now.wrapping_sub(word & !1) as i64;
    word == 0 || ago >= time as i64 || ago <= -(STEP as i64)
}

const _: () = {
    assert!(size_of::<SourceEvent>() == 56);
    assert!(size_of::<EventStats>() == 80);
};

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn episode() -> Episode<Cell<u64>> {
        Episode { last: Cell::new(0), told: Cell::new(0) }
    }

    #[test]
    fn a_budget_is_renewed_each_period_and_counts_exactly() {
        let mut stats = EventStats::default();
        for period in 1..4 {
            let now = period * EventStats::PERIOD;
            let mut spend = |kind: u16, again: bool| {
                (0..1_000).filter(|at| stats.spend(now + at, kind, again)).count() as u64
            };
            assert_eq!(spend(kind::LIMITED, true), EventStats::BUDGET / 4);
            assert_eq!(spend(kind::MONITORED, false), EventStats::BUDGET / 4);
            assert_eq!(spend(kind::BLOCKED, false), EventStats::BUDGET / 2);
            assert!(!stats.spend(now + EventStats::PERIOD - 1, kind::LIMITED, false));
        }
        assert!(stats.spend(0, kind::LIMITED, false), "a clock that went back");
    }

    #[test]
    fn a_source_begins_goes_on_and_begins_anew_after_a_rest() {
        let it = episode();
        assert_eq!(it.refuse(0, false), Emission::Begins, "at the very first moment");
        let it = episode();
        let mut now = 5 * SECOND;
        assert_eq!(it.refuse(now, false), Emission::Begins);
        let (mut begins, mut goes_on) = (0, 0);
        for _ in 0..300 {
            now += SECOND / 2;
            match it.refuse(now, false) {
                Emission::Begins => begins += 1,
                Emission::GoesOn => goes_on += 1,
                Emission::Nothing => {}
            }
        }
        assert_eq!((begins, goes_on), (0, 2), "150 s");
        now += QUIET - SECOND;
        assert_ne!(it.refuse(now, false), Emission::Begins, "no rest");
        now += QUIET;
        assert_eq!(it.refuse(now, false), Emission::Begins, "a rest");
    }

    #[test]
    fn a_clock_that_goes_back_tells_something() {
        let it = episode();
        assert_eq!(it.refuse(1_000 * SECOND, false), Emission::Begins);
        assert_eq!(it.refuse(SECOND, false), Emission::Begins);
        assert_eq!(it.refuse(2 * SECOND, false), Emission::Nothing);
    }

    #[test]
    fn who_came_second_at_an_edge_tells_nothing() {
        let it = episode();
        assert_eq!(it.refuse(SECOND, false), Emission::Begins);
        // Another CPU that had not seen that yet.
        it.last.set(0);
        assert_eq!(it.refuse(SECOND + 5, false), Emission::Nothing);
        assert_eq!(it.last.load() & !1, SECOND + 4);
    }

    #[test]
    fn that_packets_are_dropped_now_is_told_by_itself_and_the_other_way_round_not() {
        let it = episode();
        assert_eq!(it.refuse(SECOND, true), Emission::Begins);
        assert_eq!(it.refuse(SECOND + 2, true), Emission::Nothing);
        assert_eq!(it.refuse(SECOND + 4, false), Emission::Begins);
        for second in 1..50 {
            for monitored in [true, false, true] {
                assert_eq!(it.refuse(second * SECOND + 6, monitored), Emission::Nothing);
            }
        }
        // A new time begins with what it begins with.
        assert_eq!(it.refuse(50 * SECOND + QUIET, true), Emission::Begins);
        assert_eq!(it.refuse(51 * SECOND + QUIET, false), Emission::Begins);
    }

    #[test]
    fn who_came_between_tells_no_less() {
        // One CPU noted that packets are dropped, and another told first that they would be.
        let it = Episode { last: Cell::new(SECOND | 1), told: Cell::new(SECOND) };
        assert_eq!(it.refuse(SECOND + 8, false), Emission::Nothing);
        assert_eq!(it.refuse(SECOND + STEP, false), Emission::Begins, "a step later");
    }
}
