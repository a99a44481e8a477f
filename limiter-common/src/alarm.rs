//! An alarm that tells a CPU when to read the clock again.
//!
//! A source that is over its limit is refused until a time that its bucket tells, which with 1,000/s is less than a
//! tick of the kernel away: it takes the clock to know that it has not come. Where many packets are refused, a CPU sets
//! an alarm instead, a timer of the kernel: as long as that has not gone off, it is before the time that it was set for.
//!
//! A timer never goes off early, but may be late, as it waits for the packets at hand: later, where more of them pass up
//! the stack. So it is set for one and a half times [what it was late lately](Alarm::late) before the time that it tells.
//! For what is later than that, and should one be lost, the clock is read now and then
//! [all the same](crate::refused::Refused::TRUST), and no alarm is believed for longer than the tick in which it was set
//! and the next one. None is believed of a bucket that could be full [by then](Alarm::LATEST): in any other, a token that
//! is taken too late is not lost.

use crate::gcra::Gcra;

/// A timer, as the kernel knows it in a map value: by this name and size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct bpf_timer {
    /// The kernel's.
    pub opaque: [u64; 2],
}

/// The alarm of a CPU; all zero at first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alarm {
    /// What makes it go off.
    pub timer: bpf_timer,
    /// While it has not gone off, it is before this time, in nanoseconds; 0 when it has, or none is set.
    pub before: u64,
    /// When it is, or last was, to go off, in nanoseconds; 0 if none was set.
    pub at: u64,
    /// The tick of the kernel in which it was set.
    pub tick: u64,
    /// When what is [counted](Self::refusals) began, in nanoseconds.
    pub since: u64,
    /// Refusals that the clock told since then.
    pub refusals: u64,
    /// How often it was to be set.
    pub times: u64,
    /// How late it was lately, at most, in nanoseconds: less with each [`PERIOD`](Self::PERIOD) of refusals.
    pub late: u64,
    /// 0: what CPUs write is no closer than a line of the cache, wherever the values begin.
    pub reserved: [u64; 7],
}

impl Alarm {
    /// CPUs that have one, by their numbers from 0 on; others read the clock.
    pub const CPUS: u32 = 1024;

    /// The least that it is set for before the time that it tells, in nanoseconds.
    const MARGIN: u64 = 20_000;
    /// The part of what it was late lately that is forgotten in a [`PERIOD`](Self::PERIOD): half of it in some 180.
    const FADING: u64 = 256;

    /// So many ticks after it was set it is believed no more, however late it is: the next tick has ended by then, also
    /// as the kernel [counts](Gcra::SLACK) it.
    pub const LATEST: u64 = Gcra::SLACK + 2;

    /// The shortest and the longest time that it is set for, in nanoseconds: to set it and to have it go off takes some
    /// microseconds, and of sources that are refused for less than it is set for, the clock tells.
    pub const SHORTEST: u64 = 250_000;
    /// See [`SHORTEST`](Self::SHORTEST).
    pub const LONGEST: u64 = 1_000_000;

    /// It is set where so many are refused in a [`PERIOD`](Self::PERIOD): to read the clock for them takes as long.
    pub const WORTH: u64 = 128;
    /// See [`WORTH`](Self::WORTH); in nanoseconds.
    pub const PERIOD: u64 = 1_000_000;

    /// The shortest time, in nanoseconds, that somebody is refused for of whom it can tell.
    pub const LEAST: u64 = Self::SHORTEST + Self::MARGIN;

    /// How much too early it is to be set, in nanoseconds: as late it may go off and still be in time.
    #[inline(always)]
    const fn margin(&self) -> u64 {
        let margin = self.late + self.late / 2;
        if margin > Self::MARGIN { margin } else { Self::MARGIN }
    }

    /// What is to be known of [how late](Self::late) it is, at `now`, when it went off, or when the clock finds that it
    /// has not: all in nanoseconds.
    #[inline(always)]
    pub const fn lateness(late: u64, at: u64, now: u64) -> u64 {
        // It was stopped meanwhile.
        if at == 0 {
            return late;
        }
        // As late as that, none is worth setting, until that is forgotten.
        let by = now.saturating_sub(at);
        let by = if by < Self::LONGEST { by } else { Self::LONGEST };
        if by > late { by } else { late }
    }

    /// Whether it tells, in a tick of the kernel, that a time (nanoseconds) has not come, until which somebody is
    /// refused.
    #[inline(always)]
    pub const fn tells(&self, until: u64, tick: u64) -> bool {
        // Where none is set, no time is late enough.
        self.before.wrapping_sub(1) < until && self.is_believed(tick)
    }

    /// Whether it is believed in a tick of the kernel.
    #[inline(always)]
    const fn is_believed(&self, tick: u64) -> bool {
        tick.wrapping_sub(self.tick) <= 1
    }

    /// For how long it is to be set, in nanoseconds, or 0, where the clock was read, which says `now` (nanoseconds), of
    /// somebody who is refused until a time (nanoseconds), if that has not come. It tells already what it will when it is
    /// set; one that is late, by the clock, tells nothing any more.
    #[inline(always)]
    pub const fn set(&mut self, now: u64, until: u64, tick: u64) -> u64 {
        if now < self.before && self.is_believed(tick) {
            // It goes on telling of those who are refused for longer.
            return 0;
        }
        // A clock that went back begins anew.
        if now.wrapping_sub(self.since) >= Self::PERIOD {
            (self.since, self.refusals) = (now, 0);
            self.late -= self.late / Self::FADING;
        }
        if self.before != 0 {
            self.late = Self::lateness(self.late, self.at, now);
            self.before = 0;
        }
        self.refusals = self.refusals.wrapping_add(1);
        let margin = self.margin();
        let wait = until.saturating_sub(now).saturating_sub(margin);
        if self.refusals < Self::WORTH || wait < Self::SHORTEST {
            return 0;
        }
        let wait = if wait < Self::LONGEST { wait } else { Self::LONGEST };
        self.at = now + wait;
        self.before = self.at + margin;
        self.tick = tick;
        self.times = self.times.wrapping_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5_000_000_000;
    const TICK: u64 = 1_000;

    /// An alarm that was asked often enough to be worth setting.
    fn busy() -> Alarm {
        Alarm { since: NOW, refusals: Alarm::WORTH, ..Alarm::default() }
    }

    /// One that is set for somebody who is refused for so long.
    fn set(wait: u64) -> Alarm {
        let mut alarm = busy();
        assert_ne!(alarm.set(NOW, NOW + wait, TICK), 0);
        alarm
    }

    #[test]
    fn it_tells_nothing_until_it_is_set_and_after_it_went_off() {
        let alarm = Alarm::default();
        for until in [0, 1, NOW, u64::MAX] {
            assert!(!alarm.tells(until, 0), "{until}");
        }
        let mut alarm = set(Alarm::LONGEST);
        assert!(alarm.tells(alarm.before, TICK));
        alarm.before = 0;
        assert!(!alarm.tells(u64::MAX, TICK));
    }

    #[test]
    fn it_goes_off_a_margin_before_the_time_that_it_tells_and_that_is_none_too_late() {
        for late in [0, 10_000, 100_000, Alarm::LONGEST] {
            for left in (0..4 * Alarm::LONGEST).step_by(997) {
                let mut alarm = Alarm { late, ..busy() };
                let margin = Alarm::MARGIN.max(late * 3 / 2);
                let wait = alarm.set(NOW, NOW + left, TICK);
                assert_eq!(wait != 0, left >= Alarm::SHORTEST + margin, "{left}");
                if wait == 0 {
                    assert_eq!((alarm.before, alarm.times), (0, 0));
                    continue;
                }
                assert!((Alarm::SHORTEST..=Alarm::LONGEST).contains(&wait));
                assert_eq!((alarm.at, alarm.before), (NOW + wait, NOW + wait + margin));
                assert_eq!(alarm.times, 1);
                assert!(alarm.before <= NOW + left, "it tells nothing that is not so");
                assert!(alarm.tells(NOW + left, TICK));
            }
        }
    }

    #[test]
    fn how_late_it_is_is_kept_for_a_while() {
        assert_eq!(Alarm::lateness(0, NOW, NOW + 30_000), 30_000);
        assert_eq!(Alarm::lateness(40_000, NOW, NOW + 30_000), 40_000);
        assert_eq!(Alarm::lateness(40_000, NOW, NOW - 1), 40_000, "it is not yet to go off");
        assert_eq!(Alarm::lateness(0, NOW, u64::MAX), Alarm::LONGEST);
        assert_eq!(Alarm::lateness(7, 0, NOW), 7, "none was set");
        // It is forgotten, so that one is set again.
        let set = |periods: u64| {
            let mut alarm = Alarm { late: Alarm::LONGEST, since: NOW, ..Alarm::default() };
            for period in 1..=periods {
                alarm.set(NOW + period * Alarm::PERIOD, 0, TICK);
            }
            alarm.refusals = Alarm::WORTH;
            let now = NOW + periods * Alarm::PERIOD;
            alarm.set(now, now + Alarm::LONGEST, TICK) != 0
        };
        assert!(!set(0) && !set(100) && set(200));
    }

    #[test]
    fn it_tells_of_those_who_are_refused_for_as_long_and_no_others() {
        let mut alarm = set(2 * Alarm::LONGEST);
        let before = alarm.before;
        assert!(alarm.tells(before, TICK) && alarm.tells(u64::MAX, TICK));
        assert!(!alarm.tells(before - 1, TICK) && !alarm.tells(NOW, TICK) && !alarm.tells(0, TICK));
        // For these the clock is read, and the alarm stays as it is.
        let seen = alarm;
        assert_eq!(alarm.set(before - 1, before + 9 * Alarm::LONGEST, TICK), 0);
        assert_eq!(alarm, seen);
    }

    #[test]
    fn one_that_is_late_or_lost_is_found_out_by_the_clock_and_by_the_tick() {
        let mut alarm = set(Alarm::LONGEST);
        let late = alarm.before;
        // By somebody who conforms by now as by one who does not.
        for until in [late, late + 2 * Alarm::LONGEST] {
            let mut alarm = alarm;
            assert_eq!(alarm.set(late, until, TICK), 0, "who asks begins anew");
            assert_eq!((alarm.before, alarm.refusals, alarm.late), (0, 1, Alarm::MARGIN));
        }
        alarm.since = late;
        assert_eq!(alarm.set(late, late + 2 * Alarm::LONGEST, TICK), Alarm::LONGEST);
        // Nobody asked for two ticks.
        for (tick, told) in [(TICK, true), (TICK + 1, true), (TICK + 2, false), (TICK - 1, false)] {
            assert_eq!(set(Alarm::LONGEST).tells(u64::MAX, tick), told, "{tick}");
        }
        let mut alarm = set(Alarm::LONGEST);
        assert_ne!(alarm.set(NOW, NOW + Alarm::LONGEST, TICK + 2), 0);
    }

    #[test]
    fn it_is_set_where_many_are_refused() {
        let ask = |apart: u64| {
            let mut alarm = Alarm::default();
            (0..1_000).any(|asked| {
                let now = NOW + asked * apart;
                !alarm.tells(now + 10 * Alarm::LONGEST, TICK)
                    && alarm.set(now, now + 10 * Alarm::LONGEST, TICK) != 0
            })
        };
        let most = Alarm::PERIOD / Alarm::WORTH;
        assert!(ask(0) && ask(most));
        assert!(!ask(most + most / 8) && !ask(Alarm::PERIOD) && !ask(10 * Alarm::PERIOD));
        // A clock that went back.
        let mut alarm = Alarm { since: NOW, refusals: 1_000, ..Alarm::default() };
        assert_eq!(alarm.set(NOW - 1, NOW + Alarm::LONGEST, TICK), 0);
        assert_eq!((alarm.since, alarm.refusals), (NOW - 1, 1));
    }
}
