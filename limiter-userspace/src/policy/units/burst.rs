//! Bursts.

use limiter_common::algorithm::rate::{Rate, SECOND};
use serde::{Deserialize, Serialize};

use super::{
    data::DataUnit,
    error::{Fault, Quantity, ValueError},
    number::{Decimal, multiplier},
    rate::{Events, PACKETS, REQUESTS},
    time,
};

/// A burst as an operator wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Burst {
    /// An amount: packets, or bytes for a limit that counts those; at least 1.
    Packets(u64),
    /// What the rate admits in this many nanoseconds.
    Time(u64),
}

impl Burst {
    /// The amount at a rate: rounded to the nearest whole number, at least 1.
    pub fn packets(self, rate: Rate) -> u64 {
        match self {
            Self::Packets(packets) => packets.max(1),
            Self::Time(time) => {
                let period = u128::from(rate.period).max(1);
                let packets = u128::from(rate.packets) * u128::from(time);
                let rounded = packets / period + u128::from(packets % period >= period.div_ceil(2));
                u64::try_from(rounded).unwrap_or(u64::MAX).max(1)
            }
        }
    }
}

/// Parses a burst: packets (`200`, `2k`, `200 packets`) or a time (`200ms`, `2s`).
///
/// # Errors
/// A [`ValueError`] for other text and for 0. Whether a bucket can hold the burst depends on the rate, see
/// [`Bucket::new`](crate::policy::Bucket::new).
pub fn parse_burst(text: &str) -> Result<Burst, ValueError> {
    parse(text, &PACKETS, Quantity::Burst)
}

/// Parses a burst of requests (`200`, `2k`, `200 requests`) or a time (`200ms`, `2s`).
///
/// # Errors
/// As [`parse_burst`].
pub fn parse_request_burst(text: &str) -> Result<Burst, ValueError> {
    parse(text, &REQUESTS, Quantity::RequestBurst)
}

fn parse(text: &str, of: &Events, quantity: Quantity) -> Result<Burst, ValueError> {
    let read = || {
        let (number, unit) = Decimal::split(text)?;
        if time::is_time(unit) {
            return time::parts(text).map(Burst::Time);
        }
        let (factor, noun) = multiplier(unit);
        if noun.is_empty() || of.are(noun) {
            return match number.whole(factor)? {
                0 => Err(Fault::Zero),
                packets => Ok(Burst::Packets(packets)),
            };
        }
        match DataUnit::recognise(unit) {
            Some(_) => Err(Fault::Data),
            None => Err(Fault::UnknownUnit { unit: unit.to_owned(), meant: None }),
        }
    };
    read().map_err(|fault| ValueError { quantity, value: text.to_owned(), fault })
}

/// The burst, in packets, of a limit that was written without one.
///
/// It is 100 ms of the rate, or one second of it up to 64 packets, whichever is more: a driver hands over up
/// to 64 packets at once.
pub fn default_burst(rate: Rate) -> u64 {
    const HANDED_OVER_AT_ONCE: u128 = 64;
    let second = u128::from(rate.packets) * u128::from(SECOND);
    let second = second.div_ceil(u128::from(rate.period).max(1)).min(HANDED_OVER_AT_ONCE) as u64;
    Burst::Time(SECOND / 10).packets(rate).max(second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::units::parse_rate;

    #[test]
    fn bursts_are_packets_or_time() {
        for (text, burst) in [
            ("1", Burst::Packets(1)),
            ("200", Burst::Packets(200)),
            ("2k", Burst::Packets(2_000)),
            ("1.5 k", Burst::Packets(1_500)),
            ("200 packets", Burst::Packets(200)),
            ("2k packets", Burst::Packets(2_000)),
            ("1 packet", Burst::Packets(1)),
            ("20 SYNs", Burst::Packets(20)),
            ("2M", Burst::Packets(2_000_000)),
            ("200ms", Burst::Time(SECOND / 5)),
            ("2 s", Burst::Time(2 * SECOND)),
            ("2m", Burst::Time(120 * SECOND)),
            ("1m 30s", Burst::Time(90 * SECOND)),
            ("10,000", Burst::Packets(10_000)),
            ("1e3 packets", Burst::Packets(1_000)),
        ] {
            assert_eq!(parse_burst(text), Ok(burst), "{text}");
        }
    }

    #[test]
    fn bursts_of_requests_are_requests_or_time() {
        for (text, burst) in [
            ("20", Burst::Packets(20)),
            ("2k requests", Burst::Packets(2_000)),
            ("10s", Burst::Time(10 * SECOND)),
        ] {
            assert_eq!(parse_request_burst(text), Ok(burst), "{text}");
        }
        let examples = "give requests or time, such as 20, 2k or 10s";
        for (text, message) in [
            ("1.5", "burst \"1.5\" is not a whole number of requests"),
            ("2 packets", "burst \"2 packets\" has the unknown unit \"packets\""),
        ] {
            let error = parse_request_burst(text).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.remedy().as_str()), (message, examples));
        }
    }

    #[test]
    fn other_bursts_are_refused() {
        let examples = "give packets or time, such as 200, 2k or 100ms";
        let least = "a burst is at least 1; without one, it is chosen to suit the rate";
        for (text, message, remedy) in [
            ("", "burst \"\" is empty", examples),
            ("0", "burst \"0\" is zero", least),
            ("0ms", "burst \"0ms\" is zero", least),
            ("-2k", "burst \"-2k\" is negative", examples),
            ("1.5", "burst \"1.5\" is not a whole number of packets", examples),
            ("367d", "burst \"367d\" is longer than 366 days", examples),
            ("20000000000G", "burst \"20000000000G\" is too large", examples),
            (
                "64kB",
                "burst \"64kB\" is an amount of data, and this limit counts packets",
                examples,
            ),
            ("2kpps", "burst \"2kpps\" has the unknown unit \"kpps\"", examples),
        ] {
            let error = parse_burst(text).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.remedy(), remedy, "{text}");
        }
    }

    #[test]
    fn time_becomes_packets_at_the_rate() {
        for (burst, rate, packets) in [
            ("200ms", "10kpps", 2_000),
            ("2s", "1kpps", 2_000),
            ("1ms", "1kpps", 1),
            ("1ms", "1", 1),
            ("1.5ms", "1kpps", 2),
            ("1.4ms", "1kpps", 1),
            ("500ms", "5/s", 3),
            ("1s", "7/3s", 2),
            ("366d", "1Gpps", 31_622_400_000_000_000),
        ] {
            let rate = parse_rate(rate).unwrap();
            assert_eq!(parse_burst(burst).unwrap().packets(rate), packets, "{burst} {rate:?}");
        }
    }

    #[test]
    fn the_default_suits_the_rate() {
        for (rate, burst) in [
            ("1kpps", 100),
            ("640", 64),
            ("50/s", 50),
            ("0.5/s", 1),
            ("1.5/s", 2),
            ("10kpps", 1_000),
            ("5/min", 1),
            ("1/366day", 1),
            ("1Gpps", 100_000_000),
        ] {
            let rate = parse_rate(rate).unwrap();
            assert_eq!(default_burst(rate), burst, "{rate:?}");
            assert!(rate.bucket(burst, 1).is_ok());
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).*|[0-9.]{0,25} ?[kKMGm]?[a-zA-Z]{0,9}") {
            if let Ok(burst) = parse_burst(&text) {
                prop_assert!(burst.packets(Rate::MIN) >= 1);
                prop_assert!(burst.packets(Rate::per_second(Rate::MAX_PER_SECOND)) >= 1);
            }
        }
    }
}
