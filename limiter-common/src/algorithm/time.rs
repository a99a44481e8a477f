//! When a packet is charged.

/// A time, in nanoseconds, and how far apart the ticks are of the clock that it was read from; 0 for
/// one that is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// When, or a time in the same tick.
    pub now: u64,
    /// Nanoseconds from tick to tick.
    pub tick: u64,
}

impl Time {
    /// One that is exact.
    #[inline(always)]
    pub const fn exact(now: u64) -> Self {
        Self { now, tick: 0 }
    }
}
