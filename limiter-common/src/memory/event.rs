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
    /// Notices of a CPU in each [`PERIOD`](Self::PERIOD).
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

/// Without a refusal for so long, in nanoseconds, a source is within its limits again. Like the next two, it is taken in whole
/// [`UNIT`]s: never as longer, and by less than two of them as shorter.
pub const QUIET: u64 = 10_000_000_000;
/// While it is over them, that is told again after so many nanoseconds: for those who began to listen
/// meanwhile.
pub const AGAIN: u64 = 60_000_000_000;
/// Nanoseconds for which refusals leave no trace, so that a flood hardly writes. It is as long as a
/// CPU [refuses](crate::memory::cache::Cached::LONGEST) by what it remembers.
pub const STEP: u64 = 1_000_000_000;
/// What an [`Episode`] has its times in, in nanoseconds.
pub const UNIT: u64 = 1 << UNIT_BITS;

/// The bits of a [`UNIT`].
const UNIT_BITS: u32 = 26;
/// The bits of half a word.
const HALF: u32 = 32;
/// The level of both halves of a word.
const LEVELS: u64 = 1 | 1 << HALF;

/// The time in which a source is over its limits, as its entry has it: from a first refusal on, until
/// none came for so long as [`QUIET`].
///
/// It is one word. The low half says when the source was refused last, give or take a [`STEP`], the high half when that was
/// told last. A half is a number of [`UNIT`]s of the clock that packets go by, of which 31 bits are kept, above its level: 1
/// if packets were dropped, 0 if they would have been only. That the second becomes the first is told too. A half that is 0
/// says never.
///
/// What is kept of a time recurs after 4.5 years. A source that is refused then, give or take the seconds that are asked for,
/// and was not in between, goes on where it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Episode<W>(pub W);

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
    /// `monitored`, and what it is. Of several CPUs that meet, one notes its refusal. The others tell nothing: what is not
    /// noted by then is by the next packet.
    #[inline(always)]
    pub fn refuse(&self, now: u64, monitored: bool) -> Emission {
        let word = self.0.load();
        let before = Episode(word);
        if before.is_noted(now, monitored) {
            return Emission::Nothing;
        }
        let (level, time) = (u32::from(!monitored), half(now));
        let is_new = is_over(before.last(), time, QUIET);
        let begins = is_new || before.told() & 1 < level;
        let is_due = begins || is_over(before.told(), time, AGAIN);
        let last = noted(time | level);
        let told = if is_due { last } else { before.told() };
        // A new time begins with what it begins with.
        let levels = if is_new { 0 } else { word & LEVELS };
        let after = Episode::of_halves(last, told).0 | levels;
        if self.0.compare_exchange(word, after) != word || !is_due {
            return Emission::Nothing;
        }
        if begins { Emission::Begins } else { Emission::GoesOn }
    }
}

impl Episode<u64> {
    /// Whether a refusal at `now` (nanoseconds), for which the packet is dropped unless that is only `monitored`, is noted
    /// already, so that there is nothing to be told of it.
    #[inline(always)]
    pub const fn is_noted(self, now: u64, monitored: bool) -> bool {
        (self.last() & 1 != 0 || monitored) && !is_over(self.last(), half(now), STEP)
    }

    /// When the source was refused last, in nanoseconds, as it is known at `now` (nanoseconds): by less than a [`STEP`] too
    /// early. 0 if it never was, or before the clock began.
    #[inline(always)]
    pub const fn last_at(self, now: u64) -> u64 {
        if self.last() == 0 {
            return 0;
        }
        let ago = ago(self.last(), half(now)) >> 1;
        (now >> UNIT_BITS).saturating_add_signed(-(ago as i64)) << UNIT_BITS
    }

    /// Of the two words that entries had before layout 30: times in nanoseconds with the level in the lowest bit, or 0.
    #[inline(always)]
    pub const fn of_times(last: u64, told: u64) -> Self {
        Self::of_halves(half_of(last), half_of(told))
    }

    #[inline(always)]
    const fn of_halves(last: u32, told: u32) -> Self {
        Self(last as u64 | (told as u64) << HALF)
    }

    /// The half that says when the source was refused last.
    #[inline(always)]
    const fn last(self) -> u32 {
        self.0 as u32
    }

    /// The half that says when that was told last.
    #[inline(always)]
    const fn told(self) -> u32 {
        (self.0 >> HALF) as u32
    }
}

/// A time in nanoseconds as a half has it, without a level.
#[inline(always)]
const fn half(time: u64) -> u32 {
    (time >> (UNIT_BITS - 1)) as u32 & !1
}

/// A half with its level as it is noted: as 0 says never, that is the next unit.
#[inline(always)]
const fn noted(half: u32) -> u32 {
    if half == 0 { 2 } else { half }
}

/// A word of an older layout as a half.
#[inline(always)]
const fn half_of(word: u64) -> u32 {
    if word == 0 { 0 } else { noted(half(word) | (word & 1) as u32) }
}

/// By how many halves of a unit the time of a half is before `now`, which has no level; less than 0 if it is to come.
#[inline(always)]
const fn ago(of: u32, now: u32) -> i32 {
    now.wrapping_sub(of & !1) as i32
}

/// Whether so much time, in nanoseconds, went by since the time of a half, which may have none. The clocks
/// of CPUs may be a little apart; one that went back by more than a step is another time.
#[inline(always)]
const fn is_over(of: u32, now: u32, time: u64) -> bool {
    let ago = ago(of, now);
    of == 0 || ago >= half(time) as i32 || ago <= -(half(STEP) as i32)
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

    /// More units than 31 bits count, in nanoseconds.
    const LAP: u64 = UNIT << 31;

    fn episode() -> Episode<Cell<u64>> {
        Episode(Cell::new(0))
    }

    fn seen(it: &Episode<Cell<u64>>) -> Episode<u64> {
        Episode(it.0.get())
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
        // Also where the number of units is 0, and where it wraps on the way.
        for start in [0, 5 * SECOND, LAP - 75 * SECOND, LAP, 3 * LAP - UNIT, u64::MAX / 2] {
            for monitored in [false, true] {
                let it = episode();
                let mut now = start;
                assert_eq!(it.refuse(now, monitored), Emission::Begins, "at the first moment");
                assert_eq!(it.refuse(now, monitored), Emission::Nothing);
                let (mut begins, mut goes_on) = (0, 0);
                for _ in 0..300 {
                    now += SECOND / 2;
                    match it.refuse(now, monitored) {
                        Emission::Begins => begins += 1,
                        Emission::GoesOn => goes_on += 1,
                        Emission::Nothing => {}
                    }
                }
                assert_eq!((begins, goes_on), (0, 2), "150 s from {start} on");
                now += QUIET - SECOND;
                assert_ne!(it.refuse(now, monitored), Emission::Begins, "no rest");
                now += QUIET;
                assert_eq!(it.refuse(now, monitored), Emission::Begins, "a rest");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_tells_something() {
        let it = episode();
        assert_eq!(it.refuse(1_000 * SECOND, false), Emission::Begins);
        assert_eq!(it.refuse(1_000 * SECOND - STEP / 2, false), Emission::Nothing, "a little");
        assert_eq!(it.refuse(SECOND, false), Emission::Begins);
        assert_eq!(it.refuse(2 * SECOND, false), Emission::Nothing);
    }

    /// A word that another CPU refuses by after it was loaded.
    struct Raced<F: Fn(&Cell<u64>)> {
        word: Cell<u64>,
        between: F,
    }

    impl<F: Fn(&Cell<u64>)> Word for Raced<F> {
        fn load(&self) -> u64 {
            self.word.load()
        }

        fn load_acquire(&self) -> u64 {
            self.word.load_acquire()
        }

        fn compare_exchange(&self, current: u64, new: u64) -> u64 {
            (self.between)(&self.word);
            self.word.compare_exchange(current, new)
        }
    }

    #[test]
    fn who_came_second_at_an_edge_tells_nothing() {
        let between = |word: &Cell<u64>| {
            assert_eq!(Episode(word).refuse(SECOND, false), Emission::Begins);
        };
        let it = Episode(Raced { word: Cell::new(0), between });
        assert_eq!(it.refuse(SECOND + 5, false), Emission::Nothing);
        let word = it.0.word.get();
        assert_eq!(word, Episode::of_times(SECOND | 1, SECOND | 1).0);
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
        // The refusal of a packet that is dropped meets one of a packet that would have been only, which is first.
        let between = |word: &Cell<u64>| {
            assert_eq!(Episode(word).refuse(SECOND, true), Emission::Begins);
        };
        let it = Episode(Raced { word: Cell::new(0), between });
        assert_eq!(it.refuse(SECOND + 4, false), Emission::Nothing);
        let it = Episode(it.0.word);
        assert_eq!(it.refuse(SECOND + 8, false), Emission::Begins, "the next one");
        // By an older layout, one CPU noted that packets are dropped, and another told first that they would be.
        let it = Episode(Cell::new(Episode::of_times(SECOND | 1, SECOND).0));
        assert_eq!(it.refuse(SECOND + 8, false), Emission::Nothing);
        assert_eq!(it.refuse(SECOND + STEP, false), Emission::Begins, "a step later");
    }

    #[test]
    fn the_last_time_is_known_to_a_step_and_never_means_never() {
        assert_eq!(Episode(0).last_at(LAP + SECOND), 0);
        for start in [SECOND, LAP - SECOND, 2 * LAP - 1, 5 * LAP + SECOND] {
            let it = episode();
            let mut last = start;
            for number in 0..500 {
                let now = start + number * STEP / 70;
                assert_ne!(it.refuse(now, false), Emission::GoesOn);
                last = now;
                assert!((last - STEP..=last).contains(&seen(&it).last_at(now)), "{now}");
            }
            let later = seen(&it).last_at(last + 300 * 86_400 * SECOND);
            assert!((last - STEP..=last).contains(&later), "{later}");
            // The clock of another CPU is behind.
            assert_eq!(seen(&it).last_at(last - SECOND / 2), later);
        }
        // Of a lap before the clock began.
        assert_eq!(Episode::of_times(LAP - UNIT, 0).last_at(SECOND), 0);
    }

    #[test]
    fn the_words_of_an_older_layout_say_the_same() {
        assert_eq!(Episode::of_times(0, 0), Episode(0));
        for time in [2, SECOND, LAP, LAP + 7 * SECOND] {
            for monitored in [false, true] {
                let word = time & !1 | u64::from(!monitored);
                let it = episode();
                assert_eq!(it.refuse(time, monitored), Emission::Begins);
                assert_eq!(Episode::of_times(word, word), seen(&it));
            }
        }
    }
}
