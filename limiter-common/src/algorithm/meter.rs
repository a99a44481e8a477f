//! The parameters of a limit, of whichever algorithm.

use crate::algorithm::{
    concurrent::Concurrent,
    debt,
    gcra::{Gcra, Scale},
    kind::{Kind, by_kind},
    policer::{Decision, Policer},
    sliding_log::SlidingLog,
    window::Window,
};

/// What a limit admits to one key, compiled.
///
/// The numbers are those of a bucket; the other algorithms have theirs in the same places.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meter {
    /// The number of the [`Kind`].
    pub kind: u64,
    /// The bucket, or the numbers of another algorithm.
    pub gcra: Gcra,
    /// 0, so that the size is a power of two.
    pub reserved: [u64; 2],
}

impl Meter {
    /// The algorithm.
    #[inline(always)]
    pub const fn kind(&self) -> Kind {
        Kind::of(self.kind)
    }

    /// Whether the state is more than a word.
    #[inline(always)]
    pub const fn is_wide(&self) -> bool {
        Kind::is_wide(self.kind)
    }

    /// The meter of a bucket.
    pub const fn bucket(gcra: Gcra) -> Self {
        Self { kind: Kind::Bucket.number(), gcra, reserved: [0; 2] }
    }

    /// The same, by which every packet is charged by the clock. Only buckets go by ticks.
    #[must_use]
    pub const fn precise(self) -> Self {
        match self.kind() {
            Kind::Bucket => Self { gcra: Gcra { precise: Gcra::PRECISE, ..self.gcra }, ..self },
            Kind::Fixed | Kind::Sliding | Kind::SlidingLog | Kind::Concurrent => self,
        }
    }

    /// The meter of a fixed window.
    pub const fn fixed(window: Window) -> Self {
        Self::of_window(Kind::Fixed, window)
    }

    /// The meter of a sliding window counter.
    pub const fn sliding(window: Window) -> Self {
        Self::of_window(Kind::Sliding, window)
    }

    /// The meter of a sliding log.
    pub const fn of_sliding_log(log: SlidingLog) -> Self {
        Self::new(Kind::SlidingLog, log.window, log.limit, 0, 0)
    }

    /// The meter of open connections.
    pub const fn of_concurrent(leases: Concurrent) -> Self {
        Self::new(Kind::Concurrent, leases.idle, leases.limit, 0, 0)
    }

    const fn of_window(kind: Kind, window: Window) -> Self {
        Self::new(kind, window.length, window.limit, window.unit as u16, window.bits as u16)
    }

    const fn new(kind: Kind, interval: u64, depth: u64, shift: u16, fraction: u16) -> Self {
        Self {
            kind: kind.number(),
            gcra: Gcra { interval, depth, shift, fraction, ..Gcra::NONE },
            reserved: [0; 2],
        }
    }

    /// The window, of a meter of that kind.
    #[inline(always)]
    pub const fn window(&self) -> Window {
        let Gcra { interval, depth, shift, fraction, .. } = self.gcra;
        Window { length: interval, limit: depth, unit: shift as u32, bits: fraction as u32 }
    }

    /// Whether that slides.
    #[inline(always)]
    const fn slides(&self) -> bool {
        Kind::slides(self.kind)
    }

    /// The log, of a meter of that kind.
    #[inline(always)]
    pub const fn sliding_log(&self) -> SlidingLog {
        SlidingLog { limit: self.gcra.depth, window: self.gcra.interval }
    }

    /// The leases, of a meter of that kind.
    #[inline(always)]
    pub const fn concurrent(&self) -> Concurrent {
        Concurrent { limit: self.gcra.depth, idle: self.gcra.interval }
    }

    /// The bucket, of a meter of that kind.
    #[inline(always)]
    pub const fn as_bucket(&self) -> Option<&Gcra> {
        by_kind!(self.kind, {
            Bucket => Some(&self.gcra),
        } else { Fixed | Sliding | SlidingLog | Concurrent => None })
    }

    /// What a word of this meter is measured in, to be kept beside it: see [`Measure`].
    #[inline(always)]
    pub const fn measure(&self) -> Measure {
        let scale = by_kind!(self.kind, {
            Bucket => return Measure { scale: self.gcra.scale().0, span: 0 },
        } else {
            Fixed | Sliding | SlidingLog | Concurrent => self.gcra.depth
                | (self.gcra.shift as u64) << Measure::UNIT
                | (self.gcra.fraction as u64) << Measure::BITS
                | self.kind << Measure::KIND
        });
        let span = by_kind!(self.kind, {
            Concurrent => self.concurrent().longest(),
        } else { Bucket | Fixed | Sliding | SlidingLog => self.gcra.interval });
        Measure { scale, span }
    }

    /// Whether the state of this word has no more charged to it at `now`, in nanoseconds, than [one
    /// packet](Gcra::of_one_packet).
    #[inline(always)]
    pub const fn is_single(&self, word: u64, now: u64) -> bool {
        by_kind!(self.kind, {
            Bucket => self.gcra.spent(word, now) <= self.gcra.of_one_packet(),
        } else {
            Fixed | Sliding | SlidingLog | Concurrent
                => self.window().fill(word, now, self.slides()) <= 1
        })
    }

    /// The word that carries state that was measured so over to this meter; see [`Gcra::carry`] and
    /// [`Window::carry`].
    #[inline(always)]
    pub const fn carry(&self, word: u64, from: Measure, now: u64) -> u64 {
        by_kind!(self.kind, {
            Bucket => self.gcra.carry(word, Scale(from.scale), now),
            // Events and connections are kept as they are under any numbers.
            SlidingLog | Concurrent => word,
        } else { Fixed | Sliding => self.window().carry(word, &from.window(), now, self.slides()) })
    }

    /// The word after a charge of this cost at `now` (nanoseconds), whether that conforms or not. For meters whose state is a
    /// word.
    #[must_use]
    pub fn charge_beyond(&self, word: u64, now: u64, cost: u64) -> u64 {
        match self.kind() {
            Kind::Bucket => self.gcra.charge_beyond(word, now, cost),
            Kind::Fixed | Kind::Sliding => {
                self.window().charge_beyond(word, now, cost, self.slides())
            }
            Kind::SlidingLog | Kind::Concurrent => word,
        }
    }

    /// The word after so much of what is charged was given back at `now` (nanoseconds), all of it at most. For meters whose
    /// state is a word.
    #[must_use]
    pub fn give_back(&self, word: u64, now: u64, cost: u64) -> u64 {
        match self.kind() {
            Kind::Bucket => self.gcra.give_back(word, now, cost),
            Kind::Fixed | Kind::Sliding => self.window().give_back(word, now, cost, self.slides()),
            Kind::SlidingLog | Kind::Concurrent => word,
        }
    }

    /// Nanoseconds until a packet of this cost conforms, unless others are charged meanwhile; 0 when
    /// it does at once, [`u64::MAX`] when it never does. For meters whose state is a word.
    pub const fn wait(&self, word: u64, now: u64, cost: u64) -> u64 {
        by_kind!(self.kind, {
            Bucket => self.gcra.wait(word, now, cost),
        } else {
            Fixed | Sliding | SlidingLog | Concurrent
                => self.window().wait(word, now, cost, self.slides())
        })
    }
}

/// What a word is measured in, in two words; all zero for no state.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// The [`Scale`] of a bucket; of a window the limit, and above it its unit and bits.
    pub scale: u64,
    /// The length of a window; 0 for a bucket. Of open connections, how long one has its place after the
    /// [stamp](Concurrent::stamp).
    pub span: u64,
}

impl Measure {
    const UNIT: u32 = 40;
    const BITS: u32 = 48;
    /// The kind of a meter of windows.
    const KIND: u32 = 56;

    /// How long after `now` a state of this word is as good as a new one, in nanoseconds; 0 if it is.
    #[inline(always)]
    pub const fn owes(self, word: u64, now: u64) -> u64 {
        if self.span == 0 {
            return debt::owes(word, self.scale, now);
        }
        if self.is_wide() {
            return SlidingLog { limit: 0, window: self.span }.owes(word, now);
        }
        self.window().rest(word, now, Kind::slides(self.kind()))
    }

    /// Whether a word of this measure has a [`WideState`](crate::abi::state::WideState) beside it.
    #[inline(always)]
    pub const fn is_wide(self) -> bool {
        Kind::is_wide(self.kind())
    }

    /// The number of the [`Kind`] of the meter.
    #[inline(always)]
    pub const fn kind(self) -> u64 {
        if self.span == 0 { Kind::Bucket.number() } else { self.scale >> Self::KIND }
    }

    /// The leases that the [stamp](Concurrent::stamp) of a key is of, of a meter of that kind.
    pub const fn concurrent(self) -> Concurrent {
        Concurrent { limit: self.scale & 0xffff_ffff, idle: Concurrent::idle_of(self.span) }
    }

    #[inline(always)]
    const fn window(self) -> Window {
        Window {
            length: self.span,
            limit: self.scale & 0xffff_ffff,
            unit: (self.scale >> Self::UNIT) as u32 & 0x3f,
            bits: (self.scale >> Self::BITS) as u32 & 0x3f,
        }
    }
}

/// For meters whose state is a word. One with a wide state is no policer: a word of it counts as a sliding window.
impl Policer for Meter {
    #[inline(always)]
    fn fresh(&self, now: u64) -> u64 {
        by_kind!(self.kind, {
            Bucket => self.gcra.fresh(now),
        } else { Fixed | Sliding | SlidingLog | Concurrent => self.window().full(now) })
    }

    #[inline(always)]
    fn decide(&self, word: u64, now: u64, cost: u64) -> Decision {
        by_kind!(self.kind, {
            Bucket => self.gcra.decide(word, now, cost),
        } else {
            Fixed | Sliding | SlidingLog | Concurrent
                => self.window().decide(word, now, cost, self.slides())
        })
    }

    #[inline(always)]
    fn is_near(&self, word: u64, now: u64) -> bool {
        by_kind!(self.kind, {
            Bucket => self.gcra.is_near(word, now),
        } else {
            Fixed | Sliding | SlidingLog | Concurrent
                => self.window().is_near(word, now, self.slides())
        })
    }

    #[inline(always)]
    fn undo(&self, word: u64, now: u64, cost: u64) -> u64 {
        by_kind!(self.kind, {
            Bucket => self.gcra.undo(word, now, cost),
        } else { Fixed | Sliding | SlidingLog | Concurrent => self.window().refund(word, now, cost) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::rate::{Rate, SECOND};

    const NOW: u64 = 1_000 * SECOND;

    /// How long a state owes that was charged so many packets at [`NOW`], and whether it may be forgotten.
    fn charged(meter: &Meter, packets: u64) -> (u64, bool) {
        let mut word = meter.fresh(NOW);
        for _ in 0..packets {
            let Decision::Conform(next) = meter.decide(word, NOW, 1) else { panic!("{packets}") };
            word = next;
        }
        let owes = meter.measure().owes(word, NOW);
        if owes != 0 {
            assert_ne!(
                meter.measure().owes(word, NOW + owes - 2),
                0,
                "too long by a nanosecond at most"
            );
        }
        assert_eq!(meter.measure().owes(word, NOW + owes), 0);
        (owes, meter.is_single(word, NOW))
    }

    #[test]
    fn a_state_says_by_itself_how_long_it_owes() {
        let bucket = Meter::bucket(Rate { packets: 1, period: SECOND }.bucket(5, 1).unwrap());
        let window = |kind: fn(Window) -> Meter| kind(Window::new(5, 10 * SECOND).unwrap());
        let [fixed, sliding] = [window(Meter::fixed), window(Meter::sliding)];
        for (meter, of_one, of_two) in [
            (bucket, SECOND + 1, 2 * SECOND + 1),
            (fixed, 10 * SECOND, 10 * SECOND),
            (sliding, 20 * SECOND, 20 * SECOND),
        ] {
            assert_eq!(charged(&meter, 0), (0, true), "{meter:?}");
            assert_eq!(charged(&meter, 1), (of_one, true), "{meter:?}");
            assert_eq!(charged(&meter, 2), (of_two, false), "{meter:?}");
        }
        assert_eq!(Measure::default().owes(77, NOW), 0, "state of nobody");
    }
}
