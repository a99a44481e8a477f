//! The arithmetic of allowances: their meters, their rates and bursts, and comparing two of them.

use limiter_common::algorithm::{
    concurrent::Concurrent,
    gcra::Gcra,
    kind::Kind,
    meter::Meter,
    rate::{Rate, RateError, SECOND},
    sliding_log::SlidingLog,
    window::Window,
};

use super::{error::PolicyError, model::Allowance};

/// A rate and a burst, as a token bucket has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// The long-run rate.
    pub rate: Rate,
    /// The most that is admitted at once, at least 1.
    pub burst: u64,
}

impl Bucket {
    /// A bucket that the datapath can represent.
    ///
    /// # Errors
    /// [`PolicyError::RateOutOfBounds`], [`PolicyError::NoBurst`] or [`PolicyError::BurstTooLong`].
    pub fn new(rate: Rate, burst: u64) -> Result<Self, PolicyError> {
        let bucket = Self { rate, burst };
        Allowance::from(bucket).meter(1).map(|_| bucket)
    }
}

impl From<Bucket> for Allowance {
    fn from(Bucket { rate, burst }: Bucket) -> Self {
        Self::TokenBucket { rate, burst }
    }
}

impl Allowance {
    /// Compiles the allowance to what the datapath charges by. `dearest` is the largest cost of a packet.
    ///
    /// # Errors
    /// - [`PolicyError::RateOutOfBounds`], [`PolicyError::NoBurst`] or [`PolicyError::BurstTooLong`] for the
    ///   numbers of a bucket;
    /// - [`PolicyError::TooDear`] if a packet that costs `dearest` is longer, at this rate, than a bucket can
    ///   hold;
    /// - [`PolicyError::Algorithm`] for the numbers of a window, a log or open connections.
    pub fn meter(self, dearest: u64) -> Result<Meter, PolicyError> {
        let made = match self {
            Self::TokenBucket { rate, burst } => rate.bucket(burst, dearest),
            Self::LeakyBucket { rate, depth } => rate.queue(depth, dearest),
            Self::Gcra { rate, tolerance } => rate.gcra(tolerance, dearest),
            Self::FixedWindow { limit, window } => {
                return self.windowed(limit, window, Meter::fixed);
            }
            Self::SlidingWindow { limit, window } => {
                return self.windowed(limit, window, Meter::sliding);
            }
            Self::SlidingLog { limit, window } => {
                let log = SlidingLog::new(limit, window);
                return log.map(Meter::of_sliding_log).map_err(|_| self.out_of_bounds());
            }
            Self::Concurrent { limit, idle } => {
                let leases = Concurrent::new(limit, idle);
                return leases.map(Meter::of_concurrent).map_err(|_| self.out_of_bounds());
            }
        };
        made.map(Meter::bucket).map_err(|error| self.impossible(error, dearest))
    }

    fn windowed(
        self,
        limit: u64,
        window: u64,
        meter: impl FnOnce(Window) -> Meter,
    ) -> Result<Meter, PolicyError> {
        Window::new(limit, window).map(meter).map_err(|_| self.out_of_bounds())
    }

    /// The error for a limit or a time that is out of the algorithm's range.
    const fn out_of_bounds(self) -> PolicyError {
        PolicyError::Algorithm {
            name: self.algorithm(),
            bounds: match self {
                Self::SlidingLog { .. } => "1 to 128 in a window of up to 366 days",
                Self::Concurrent { .. } => "1 to 128 that are idle for 1 s to 30 days",
                Self::FixedWindow { .. }
                | Self::SlidingWindow { .. }
                | Self::TokenBucket { .. }
                | Self::LeakyBucket { .. }
                | Self::Gcra { .. } => "at least 1 in a window of 1 ms to 366 days",
            },
        }
    }

    fn impossible(self, error: RateError, dearest: u64) -> PolicyError {
        let Bucket { rate, burst } = self.bucket();
        let too_dear = |cost| rate.bucket(1, cost) == Err(RateError::BurstTooLong);
        match error {
            RateError::Zero | RateError::TooFast | RateError::TooSlow => {
                PolicyError::RateOutOfBounds { packets: rate.packets, period: rate.period }
            }
            RateError::NoBurst => PolicyError::NoBurst,
            RateError::BurstTooLong if too_dear(dearest) => {
                let (mut most, mut least) = (1, dearest);
                while least.saturating_sub(most) > 1 {
                    let middle = most + (least - most) / 2;
                    if too_dear(middle) { least = middle } else { most = middle }
                }
                PolicyError::TooDear { rate, cost: dearest, most, bytes: false }
            }
            RateError::BurstTooLong => {
                let Gcra { interval, fraction, .. } = rate.bucket(1, 1).unwrap_or_default();
                let most = (u128::from(Gcra::MAX_DEPTH) << fraction) / u128::from(interval.max(1));
                let largest = u64::try_from(most).unwrap_or(u64::MAX).max(1);
                PolicyError::BurstTooLong { rate, burst, largest, bytes: false }
            }
        }
    }

    /// The allowance as a rate and a burst. A window has its limit as both, per its length. Open connections
    /// have no rate; theirs is the limit per second.
    pub const fn bucket(self) -> Bucket {
        match self {
            Self::TokenBucket { rate, burst } | Self::LeakyBucket { rate, depth: burst } => {
                Bucket { rate, burst }
            }
            Self::Gcra { rate, tolerance } => {
                // The rate may be unchecked, and zero.
                let interval = match rate.period.checked_div(rate.packets) {
                    None | Some(0) => 1,
                    Some(interval) => interval,
                };
                Bucket { rate, burst: (tolerance / interval).saturating_add(1) }
            }
            Self::FixedWindow { limit, window }
            | Self::SlidingWindow { limit, window }
            | Self::SlidingLog { limit, window } => {
                Bucket { rate: Rate { packets: limit, period: window }, burst: limit }
            }
            Self::Concurrent { limit, .. } => {
                Bucket { rate: Rate { packets: limit, period: SECOND }, burst: limit }
            }
        }
    }

    /// The same algorithm with `times` the rate and the burst. A GCRA keeps its tolerance, which is a time.
    /// Sliding logs and open connections come to no more than a log or a list has places for.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        let many = |count: u64| count.saturating_mul(times.into());
        let faster = |rate: Rate| Rate { packets: many(rate.packets), ..rate };
        match self {
            Self::TokenBucket { rate, burst } => {
                Self::TokenBucket { rate: faster(rate), burst: many(burst) }
            }
            Self::LeakyBucket { rate, depth } => {
                Self::LeakyBucket { rate: faster(rate), depth: many(depth) }
            }
            Self::Gcra { rate, tolerance } => Self::Gcra { rate: faster(rate), tolerance },
            Self::FixedWindow { limit, window } => Self::FixedWindow { limit: many(limit), window },
            Self::SlidingWindow { limit, window } => {
                Self::SlidingWindow { limit: many(limit), window }
            }
            // A log or a list has no more places.
            Self::SlidingLog { limit, window } => {
                Self::SlidingLog { limit: many(limit).min(SlidingLog::MOST as u64), window }
            }
            Self::Concurrent { limit, idle } => {
                Self::Concurrent { limit: many(limit).min(Concurrent::MOST as u64), idle }
            }
        }
    }

    /// The meter of the state that many keys share, which admits `times` [as much](Self::times). If `meter` cannot represent
    /// that, the factor is halved until it can.
    ///
    /// # Errors
    /// What `meter` says of the allowance itself.
    pub(crate) fn shared_meter(
        self,
        mut times: u32,
        meter: impl Fn(Self) -> Result<Meter, PolicyError>,
    ) -> Result<Meter, PolicyError> {
        while times > 1 && meter(self.times(times)).is_err() {
            times /= 2;
        }
        meter(self.times(times))
    }

    /// The same algorithm with another rate and burst. Windows take the rate as their limit and length; open
    /// connections take the burst as their limit.
    pub const fn with(self, bucket: Bucket) -> Self {
        let Bucket { rate, burst } = bucket;
        let Rate { packets: limit, period: window } = rate;
        match self {
            Self::TokenBucket { .. } => Self::TokenBucket { rate, burst },
            Self::LeakyBucket { .. } => Self::LeakyBucket { rate, depth: burst },
            Self::Gcra { .. } => {
                let interval = match window.checked_div(limit) {
                    Some(interval) => interval,
                    None => 0,
                };
                Self::Gcra { rate, tolerance: interval.saturating_mul(burst.saturating_sub(1)) }
            }
            Self::FixedWindow { .. } => Self::FixedWindow { limit, window },
            Self::SlidingWindow { .. } => Self::SlidingWindow { limit, window },
            Self::SlidingLog { .. } => Self::SlidingLog { limit, window },
            Self::Concurrent { idle, .. } => Self::Concurrent { limit: burst, idle },
        }
    }

    /// Whether the allowance admits everything that `other` admits, of the same packets by the same key, so
    /// that beside `other` it never refuses a packet. False if the two cannot be compared, such as different
    /// algorithms.
    pub fn never_refuses_beside(self, other: Self) -> bool {
        // If two buckets are charged alike, the larger one that fills faster always holds more.
        let is_wider = |rate: Rate, held: u64, than: Rate, than_held: u64| {
            let [rate_packets, rate_period] = [rate.packets, rate.period].map(u128::from);
            let [packets, period] = [than.packets, than.period].map(u128::from);
            rate_packets * period >= packets * rate_period && held >= than_held
        };
        match (self, other) {
            (Self::TokenBucket { rate, burst }, Self::TokenBucket { rate: than, burst: held })
            | (
                Self::LeakyBucket { rate, depth: burst },
                Self::LeakyBucket { rate: than, depth: held },
            )
            | (Self::Gcra { rate, tolerance: burst }, Self::Gcra { rate: than, tolerance: held }) => {
                is_wider(rate, burst, than, held)
            }
            // Each of its windows lies within one of the other's.
            (
                Self::FixedWindow { limit, window },
                Self::FixedWindow { limit: least, window: longest },
            ) => limit >= least && longest.checked_rem(window) == Some(0),
            (
                Self::SlidingWindow { limit, window },
                Self::SlidingWindow { limit: least, window: same },
            )
            | (
                Self::Concurrent { limit, idle: window },
                Self::Concurrent { limit: least, idle: same },
            ) => limit >= least && window == same,
            (
                Self::SlidingLog { limit, window },
                Self::SlidingLog { limit: least, window: longest },
            ) => limit >= least && window <= longest,
            _ => false,
        }
    }

    /// The kind of its meters.
    pub const fn kind(self) -> Kind {
        match self {
            Self::TokenBucket { .. } | Self::LeakyBucket { .. } | Self::Gcra { .. } => Kind::Bucket,
            Self::FixedWindow { .. } => Kind::Fixed,
            Self::SlidingWindow { .. } => Kind::Sliding,
            Self::SlidingLog { .. } => Kind::SlidingLog,
            Self::Concurrent { .. } => Kind::Concurrent,
        }
    }

    /// The name of the algorithm in a document.
    pub const fn algorithm(self) -> &'static str {
        match self {
            Self::TokenBucket { .. } => "token_bucket",
            Self::LeakyBucket { .. } => "leaky_bucket",
            Self::Gcra { .. } => "gcra",
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::SlidingLog { .. } => "sliding_log",
            Self::Concurrent { .. } => "concurrent",
        }
    }

    /// Whether the state is one GCRA word, which fits into the entry of a source.
    pub const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket { .. } | Self::LeakyBucket { .. } | Self::Gcra { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One allowance of each algorithm.
    fn every(rate: Rate, burst: u64) -> [Allowance; 7] {
        let Rate { packets: limit, period: window } = rate;
        [
            Allowance::TokenBucket { rate, burst },
            Allowance::LeakyBucket { rate, depth: burst },
            Allowance::Gcra { rate, tolerance: burst },
            Allowance::FixedWindow { limit, window },
            Allowance::SlidingWindow { limit, window },
            Allowance::SlidingLog { limit, window },
            Allowance::Concurrent { limit: burst, idle: window },
        ]
    }

    #[test]
    fn what_was_never_checked_is_refused_and_nothing_worse() {
        for packets in [0, 1, u64::MAX] {
            for period in [0, 1, u64::MAX] {
                for burst in [0, 1, u64::MAX] {
                    for allowance in every(Rate { packets, period }, burst) {
                        let bucket = allowance.bucket();
                        let _ = allowance
                            .with(bucket)
                            .meter(burst)
                            .map_err(|error| (error.to_string(), error.remedy()));
                        if packets == 0 || period == 0 {
                            assert!(allowance.meter(1).is_err(), "{allowance:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_wider_never_refuses_beside_what_is_narrower() {
        let per = |packets, seconds| Rate { packets, period: seconds * SECOND };
        let buckets = |rate: Rate, burst| {
            let bucket = Allowance::TokenBucket { rate, burst };
            let queue = Allowance::LeakyBucket { rate, depth: burst };
            [bucket, queue, Allowance::Gcra { rate, tolerance: burst }]
        };
        for (wide, narrow, expected) in [
            (buckets(per(100, 1), 64), buckets(per(1_000, 60), 17), true),
            (buckets(per(100, 1), 64), buckets(per(1_000, 60), 64), true),
            (buckets(per(100, 1), 64), buckets(per(6_000, 60), 64), true),
            (buckets(per(100, 1), 64), buckets(per(1_000, 60), 65), false),
            (buckets(per(1_000, 60), 1_000), buckets(per(100, 1), 64), false),
        ] {
            for (wide, narrow) in wide.into_iter().zip(narrow) {
                assert_eq!(wide.never_refuses_beside(narrow), expected, "{wide:?} {narrow:?}");
            }
        }
        let fixed = |limit, window| Allowance::FixedWindow { limit, window };
        assert!(fixed(10, 20).never_refuses_beside(fixed(10, 60)));
        assert!(!fixed(10, 25).never_refuses_beside(fixed(10, 60)), "they overlap");
        assert!(!fixed(9, 20).never_refuses_beside(fixed(10, 60)));
        let log = |limit, window| Allowance::SlidingLog { limit, window };
        assert!(log(10, 25).never_refuses_beside(log(10, 60)));
        assert!(!log(10, 61).never_refuses_beside(log(10, 60)));
        let sliding = Allowance::SlidingWindow { limit: 10, window: 20 };
        assert!(sliding.never_refuses_beside(sliding));
        assert!(!sliding.never_refuses_beside(fixed(1, 20)));
    }

    #[test]
    fn a_packet_that_costs_too_much_is_told_from_a_burst_that_is_too_long() {
        let slow = Rate { packets: 1, period: 24 * 3600 * SECOND };
        for allowance in [
            Allowance::TokenBucket { rate: slow, burst: 10 },
            Allowance::LeakyBucket { rate: slow, depth: 10 },
            Allowance::Gcra { rate: slow, tolerance: 0 },
        ] {
            assert!(allowance.meter(1).is_ok());
            let error = allowance.meter(60_000).unwrap_err();
            let PolicyError::TooDear { cost: 60_000, most, .. } = error else {
                unreachable!("{error}");
            };
            assert!(allowance.meter(most).is_ok() && allowance.meter(most + 1).is_err());
            let text = format!("{error}: {}", error.remedy().unwrap());
            assert!(text.contains("costs 60000") && !text.contains("burst"), "{text}");
        }
        let long = Allowance::TokenBucket { rate: slow, burst: 10_000 };
        assert!(matches!(long.meter(1), Err(PolicyError::BurstTooLong { burst: 10_000, .. })));
    }

    #[test]
    fn another_rate_keeps_the_algorithm() {
        let new = Bucket { rate: Rate::per_second(20), burst: 7 };
        for allowance in every(Rate::per_second(3), 5) {
            let changed = allowance.with(new);
            assert_eq!(changed.algorithm(), allowance.algorithm());
            let shown = changed.bucket();
            match allowance {
                // A window has no burst of its own.
                Allowance::FixedWindow { .. }
                | Allowance::SlidingWindow { .. }
                | Allowance::SlidingLog { .. } => {
                    assert_eq!(shown, Bucket { burst: 20, ..new }, "{allowance:?}");
                }
                Allowance::Concurrent { .. } => assert_eq!(shown.burst, 7),
                _ => assert_eq!(shown, new, "{allowance:?}"),
            }
        }
    }
}
