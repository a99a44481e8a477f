//! The parameters of a limit, of whichever algorithm.

use crate::{
    gcra::{Gcra, Scale},
    lease::Leases,
    log::Log,
    policer::{Decision, Policer},
    window::Window,
};

/// What a limit admits to one key, compiled.
///
/// The numbers are those of a bucket; the other algorithms have theirs in the same places.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Meter {
    /// One of the constants here.
    pub kind: u64,
    /// The bucket, or the numbers of another algorithm.
    pub gcra: Gcra,
    /// 0, so that the size is a power of two.
    pub reserved: [u64; 2],
}

impl Meter {
    /// Token bucket, leaky bucket or GCRA, which are one arithmetic.
    pub const BUCKET: u64 = 0;
    /// A fixed window.
    pub const FIXED: u64 = 1;
    /// A sliding window counter.
    pub const SLIDING: u64 = 2;
    /// A sliding log. From here on, the state is not one word but a
    /// [`Ledger`](crate::contract::Ledger).
    pub const LOG: u64 = 3;
    /// Open connections.
    pub const LEASES: u64 = 4;

    /// The meter of a bucket.
    pub const fn bucket(gcra: Gcra) -> Self {
        Self { kind: Self::BUCKET, gcra, reserved: [0; 2] }
    }

    /// The meter of a fixed window.
    pub const fn fixed(window: Window) -> Self {
        Self::of_window(Self::FIXED, window)
    }

    /// The meter of a sliding window counter.
    pub const fn sliding(window: Window) -> Self {
        Self::of_window(Self::SLIDING, window)
    }

    /// The meter of a sliding log.
    pub const fn of_log(log: Log) -> Self {
        Self::new(Self::LOG, log.window, log.limit, 0, 0)
    }

    /// The meter of open connections.
    pub const fn of_leases(leases: Leases) -> Self {
        Self::new(Self::LEASES, leases.idle, leases.limit, 0, 0)
    }

    const fn of_window(kind: u64, window: Window) -> Self {
        Self::new(kind, window.length, window.limit, window.unit as u16, window.bits as u16)
    }

    const fn new(kind: u64, interval: u64, depth: u64, shift: u16, fraction: u16) -> Self {
        Self {
            kind,
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

    /// The log, of a meter of that kind.
    #[inline(always)]
    pub const fn log(&self) -> Log {
        Log { limit: self.gcra.depth, window: self.gcra.interval }
    }

    /// The leases, of a meter of that kind.
    #[inline(always)]
    pub const fn leases(&self) -> Leases {
        Leases { limit: self.gcra.depth, idle: self.gcra.interval }
    }

    /// What a word of this meter is measured in, to be kept beside it: see [`Measure`].
    #[inline(always)]
    pub const fn measure(&self) -> Measure {
        match self.kind {
            Self::BUCKET => Measure { scale: self.gcra.scale().0, span: 0 },
            _ => Measure {
                scale: self.gcra.depth
                    | (self.gcra.shift as u64) << Measure::UNIT
                    | (self.gcra.fraction as u64) << Measure::BITS,
                span: self.gcra.interval,
            },
        }
    }

    /// The word that carries state that was measured so over to this meter; see [`Gcra::carry`] and
    /// [`Window::carry_fixed`].
    #[inline(always)]
    pub const fn carry(&self, word: u64, from: Measure, now: u64) -> u64 {
        match self.kind {
            Self::BUCKET => self.gcra.carry(word, Scale(from.scale), now),
            Self::FIXED => self.window().carry_fixed(word, &from.window(), now),
            _ => self.window().carry_sliding(word, &from.window(), now),
        }
    }

    /// Nanoseconds until a packet of this cost conforms, unless others are charged meanwhile; 0 when
    /// it does at once, [`u64::MAX`] when it never does. For meters whose state is a word.
    pub const fn wait(&self, word: u64, now: u64, cost: u64) -> u64 {
        match self.kind {
            Self::BUCKET => self.gcra.wait(word, now, cost),
            Self::FIXED => self.window().wait_fixed(word, now, cost),
            _ => self.window().wait_sliding(word, now, cost),
        }
    }
}

/// What a word is measured in, in two words; all zero for no state.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// The [`Scale`] of a bucket; of a window the limit, and above it its unit and bits.
    pub scale: u64,
    /// The length of a window; 0 for a bucket.
    pub span: u64,
}

impl Measure {
    const UNIT: u32 = 40;
    const BITS: u32 = 48;

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

impl Policer for Meter {
    #[inline(always)]
    fn fresh(&self, now: u64) -> u64 {
        match self.kind {
            Self::BUCKET => self.gcra.fresh(now),
            _ => self.window().full(now),
        }
    }

    #[inline(always)]
    fn decide(&self, word: u64, now: u64, cost: u64) -> Decision {
        match self.kind {
            Self::BUCKET => self.gcra.decide(word, now, cost),
            Self::FIXED => self.window().decide_fixed(word, now, cost),
            _ => self.window().decide_sliding(word, now, cost),
        }
    }

    #[inline(always)]
    fn is_near(&self, word: u64, now: u64) -> bool {
        match self.kind {
            Self::BUCKET => self.gcra.is_near(word, now),
            Self::FIXED => self.window().is_near_fixed(word, now),
            _ => self.window().is_near_sliding(word, now),
        }
    }

    #[inline(always)]
    fn undo(&self, word: u64, now: u64, cost: u64) -> u64 {
        match self.kind {
            Self::BUCKET => self.gcra.undo(word, now, cost),
            _ => self.window().refund(word, now, cost),
        }
    }
}
