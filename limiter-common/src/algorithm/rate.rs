//! Rates, exact, as an operator states them.

use crate::algorithm::gcra::Gcra;

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
    /// Such a burst, or the dearest packet, takes longer to refill than [`Gcra::MAX_DEPTH`] units: 18
    /// years up to 244,000/s, 6 days at 250 M/s and more.
    BurstTooLong,
}

impl Rate {
    /// The highest rate: 1 Tbit/s in bytes; far above what packets come at.
    pub const MAX_PER_SECOND: u64 = 125_000_000_000;
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

    /// The token bucket that admits this rate after a burst of `burst`, for packets that cost
    /// `dearest` at most.
    ///
    /// The interval is kept in units of 2^-shift ns, with the smallest shift that gives it 12
    /// significant bits, and above 250 M/s with more digits after the point; so it is within 0.0123 %
    /// of the rate up to 250 G/s, while a word of state still spans months to centuries. A packet takes
    /// whole units, rounded down; where all cost 1, digits would be of no use, and the interval is the
    /// nearest number of units: within 0.05 % up to 1 G/s.
    ///
    /// # Errors
    /// Any [`RateError`].
    pub fn bucket(self, burst: u64, dearest: u64) -> Result<Gcra, RateError> {
        self.check()?;
        if burst == 0 {
            return Err(RateError::NoBurst);
        }
        let [packets, period] = [self.packets, self.period].map(u128::from);
        let coarse = |digits: u16| (period << digits) < packets << 12;
        let shift = (0..Gcra::MAX_SHIFT).find(|shift| !coarse(*shift)).unwrap_or(Gcra::MAX_SHIFT);
        let digits = if dearest > 1 { Gcra::MAX_FRACTION } else { 0 };
        let fraction = (0..digits).find(|fraction| !coarse(shift + fraction)).unwrap_or(digits);
        let interval = ((period << (shift + fraction)) + packets / 2) / packets;
        let units = |cost: u64| {
            let product = interval * u128::from(cost);
            let deep = u128::from(Gcra::MAX_DEPTH);
            u64::try_from(product)
                .ok()
                .filter(|_| product <= deep << fraction)
                .map(|it| it >> fraction)
        };
        let interval = u64::try_from(interval).map_err(|_| RateError::TooSlow)?;
        match (units(burst), units(dearest)) {
            (Some(depth), Some(dearest)) if dearest <= Gcra::MAX_DEPTH >> fraction => {
                let bucket = Gcra { interval, depth, dearest, shift, fraction, ..Gcra::NONE };
                Ok(bucket.with_marks())
            }
            _ => Err(RateError::BurstTooLong),
        }
    }

    /// The leaky bucket: a virtual queue that drains at this rate and has room for `depth`, for
    /// packets that cost `dearest` at most.
    ///
    /// # Errors
    /// Any [`RateError`].
    pub fn queue(self, depth: u64, dearest: u64) -> Result<Gcra, RateError> {
        let bucket = self.bucket(depth, dearest)?;
        Ok(Gcra { depth: bucket.depth + 1, strict: 1, ..bucket }.with_marks())
    }

    /// The generic cell rate algorithm with this rate and a tolerance in nanoseconds (ITU-T I.371:
    /// T is 1 / rate, tau the tolerance), for packets that cost `dearest` at most.
    ///
    /// # Errors
    /// Any [`RateError`].
    pub fn gcra(self, tolerance: u64, dearest: u64) -> Result<Gcra, RateError> {
        let bucket = self.bucket(1, dearest)?;
        let depth = u128::from(tolerance) << bucket.shift;
        match u64::try_from(depth) {
            Ok(depth) if depth < Gcra::MAX_DEPTH => {
                Ok(Gcra { depth: depth + 1, ..bucket }.with_marks())
            }
            _ => Err(RateError::BurstTooLong),
        }
    }
}
