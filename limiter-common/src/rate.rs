//! Rates, exact, as an operator states them.

use crate::gcra::Gcra;

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// So many packets per period, kept as stated: no rounding happens here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Packets in a period, at least 1.
    pub packets: u64,
    /// The period in nanoseconds, at least 1.
    pub period: u64,
}

/// Why a rate and a burst make no bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateError {
    /// The rate or its period is zero.
    Zero,
    /// The rate is above [`Rate::MAX_PER_SECOND`].
    TooFast,
    /// The rate is below [`Rate::MIN`].
    TooSlow,
    /// The burst is zero.
    NoBurst,
    /// Such a burst takes longer to refill than [`Gcra::MAX_DEPTH`] units: 18 years up to 244,000/s,
    /// 6 days at 1 G/s.
    BurstTooLong,
}

impl Rate {
    /// The highest rate: a packet per nanosecond.
    pub const MAX_PER_SECOND: u64 = 1_000_000_000;
    /// The lowest rate: a packet in 366 days.
    pub const MIN: Self = Self { packets: 1, period: 366 * 24 * 3600 * SECOND };

    /// `packets` per second.
    pub const fn per_second(packets: u64) -> Self {
        Self { packets, period: SECOND }
    }

    /// Whether the rate is within [`Rate::MIN`] and [`Rate::MAX_PER_SECOND`].
    ///
    /// # Errors
    /// [`RateError::Zero`], [`RateError::TooFast`] or [`RateError::TooSlow`].
    pub fn check(self) -> Result<(), RateError> {
        let [packets, period] = [self.packets, self.period].map(u128::from);
        if packets == 0 || period == 0 {
            Err(RateError::Zero)
        } else if packets * u128::from(SECOND) > period * u128::from(Self::MAX_PER_SECOND) {
            Err(RateError::TooFast)
        } else if period > packets * u128::from(Self::MIN.period) {
            Err(RateError::TooSlow)
        } else {
            Ok(())
        }
    }

    /// The bucket that admits this rate after a burst of `burst` packets.
    ///
    /// The interval is kept in units of 2^-shift ns, with the smallest shift that gives it 12
    /// significant bits, so that it is within 0.0123 % of the rate up to 250 M/s and within 0.05 %
    /// up to 1 G/s, while a word of state still spans months to centuries.
    ///
    /// # Errors
    /// Any [`RateError`].
    pub fn bucket(self, burst: u64) -> Result<Gcra, RateError> {
        self.check()?;
        if burst == 0 {
            return Err(RateError::NoBurst);
        }
        let [packets, period] = [self.packets, self.period].map(u128::from);
        let mut shift = 0;
        while shift < Gcra::MAX_SHIFT && (period << shift) < packets << 12 {
            shift += 1;
        }
        let interval = ((period << shift) + packets / 2) / packets;
        let depth = interval * u128::from(burst);
        match (u64::try_from(interval), u64::try_from(depth)) {
            (Ok(interval), Ok(depth)) if depth <= Gcra::MAX_DEPTH => {
                Ok(Gcra { interval, depth, shift })
            }
            _ => Err(RateError::BurstTooLong),
        }
    }
}
