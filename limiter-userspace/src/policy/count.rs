//! Rates and amounts in the unit that a limit counts: parsing, defaults and display.

use limiter_common::algorithm::rate::Rate;

use super::{
    allowance::Bucket,
    error::PolicyError,
    model::{Allowance, Count},
    units::{
        Burst, ValueError, default_burst, default_data_burst, format_data_rate, format_rate,
        format_size, parse_burst, parse_data_burst, parse_data_rate, parse_rate,
    },
};
use crate::output::number::grouped;

/// Bytes of the smallest frame that a limit can be about: an Ethernet and an IPv4 header.
const SMALLEST_FRAME: u64 = 34;

impl Count {
    /// Parses a rate in the unit of this count.
    ///
    /// # Errors
    /// The [`ValueError`] of the parser.
    pub fn parse_rate(&self, text: &str) -> Result<Rate, ValueError> {
        if *self == Self::Bytes { parse_data_rate(text) } else { parse_rate(text) }
    }

    /// Parses a burst in the unit of this count, as an amount or as a time.
    ///
    /// # Errors
    /// The [`ValueError`] of the parser.
    pub fn parse_burst(&self, text: &str) -> Result<Burst, ValueError> {
        if *self == Self::Bytes { parse_data_burst(text) } else { parse_burst(text) }
    }

    /// The burst of a limit that was written without one.
    pub fn default_burst(&self, rate: Rate) -> u64 {
        match self {
            Self::Bytes => default_data_burst(rate),
            // Without room for the most expensive packet, that packet would never pass.
            Self::Weighted(_) => default_burst(rate).max(self.room()),
            Self::Packets | Self::Connections | Self::Syns => default_burst(rate),
        }
    }

    /// Parses a rate and a burst into a bucket. Without a burst, it has the default of the rate.
    ///
    /// # Errors
    /// [`PolicyError::Value`] if one cannot be parsed, [`PolicyError::NoRoom`] if some packet would never
    /// pass, or an error of [`Bucket::new`].
    pub fn bucket(&self, rate: &str, burst: Option<&str>) -> Result<Bucket, PolicyError> {
        let rate = self.parse_rate(rate)?;
        let burst = burst.map(|burst| self.parse_burst(burst)).transpose()?;
        self.bucket_of(rate, burst)
    }

    /// Like [`bucket`](Self::bucket), with values that are parsed already.
    ///
    /// # Errors
    /// As [`bucket`](Self::bucket), without [`PolicyError::Value`].
    pub fn bucket_of(&self, rate: Rate, burst: Option<Burst>) -> Result<Bucket, PolicyError> {
        let burst = burst.map_or_else(|| self.default_burst(rate), |burst| burst.packets(rate));
        let least = self.room();
        if burst < least {
            let [burst, least] = [burst, least].map(|amount| self.amount(amount));
            return Err(PolicyError::NoRoom { burst, least });
        }
        Bucket::new(rate, burst).map_err(|error| error.counting_bytes(*self == Self::Bytes))
    }

    /// The smallest burst with which a packet of each kind can pass.
    pub fn room(&self) -> u64 {
        match self {
            Self::Bytes => SMALLEST_FRAME,
            Self::Weighted(costs) => {
                u64::from(costs.by_kind.values().copied().fold(costs.default, u16::max))
            }
            Self::Packets | Self::Connections | Self::Syns => 1,
        }
    }

    /// A rate in the syntax of [`parse_rate`](Self::parse_rate).
    pub fn rate(&self, rate: Rate) -> String {
        if *self == Self::Bytes { format_data_rate(rate) } else { format_rate(rate) }
    }

    /// An amount in the syntax of [`parse_burst`](Self::parse_burst).
    pub fn amount(&self, amount: u64) -> String {
        if *self == Self::Bytes { format_size(amount) } else { amount.to_string() }
    }

    /// An amount with its unit in words, for people.
    pub fn described(&self, amount: u64) -> String {
        let one = match self {
            Self::Packets => "packet",
            Self::Bytes => return format_size(amount),
            Self::Connections => "connection",
            Self::Syns => "SYN",
            Self::Weighted(_) => "unit",
        };
        format!("{} {one}{}", grouped(amount), if amount == 1 { "" } else { "s" })
    }

    /// The value of `count` in a document; `weighted` for costs, which have a key of their own there.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Connections => "connections",
            Self::Syns => "syns",
            Self::Weighted(_) => "weighted",
        }
    }
}

impl Allowance {
    /// The long-run rate; `None` for open connections.
    pub const fn rate(self) -> Option<Rate> {
        match self {
            Self::Concurrent { .. } => None,
            Self::TokenBucket { .. }
            | Self::LeakyBucket { .. }
            | Self::Gcra { .. }
            | Self::FixedWindow { .. }
            | Self::SlidingWindow { .. }
            | Self::SlidingLog { .. } => Some(self.bucket().rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::policy::model::{Costs, PacketKind};

    fn weighted() -> Count {
        let by_kind = BTreeMap::from([(PacketKind::Syn, 200), (PacketKind::Udp, 2)]);
        Count::Weighted(Costs { default: 3, by_kind })
    }

    #[test]
    fn a_burst_that_no_bucket_holds_is_told_in_what_is_counted() {
        let said = |count: &Count, rate: &str, burst| {
            let error = count.bucket(rate, Some(burst)).unwrap_err();
            format!("{error}; {}", error.remedy().unwrap())
        };
        assert_eq!(
            said(&Count::Bytes, "1kB/day", "1GB"),
            "a burst of 1GB is more than a bucket holds at 1kB/day; the largest burst at 1kB/day is 6671.999kB"
        );
        assert_eq!(
            said(&Count::Syns, "1/day", "10000"),
            "a burst of 10000 is more than a bucket holds at 1/day; the largest burst at 1/day is 6671"
        );
    }

    #[test]
    fn rates_are_of_what_is_counted() {
        let bucket = |count: &Count, rate: &str, burst| count.bucket(rate, burst).unwrap();
        let bytes = bucket(&Count::Bytes, "2Mbit/s", Some("64kB"));
        assert_eq!((bytes.rate, bytes.burst), (Rate::per_second(250_000), 64_000));
        assert_eq!(Count::Bytes.rate(bytes.rate), "250kB/s");
        assert_eq!(Count::Bytes.amount(bytes.burst), "64kB");
        let packets = bucket(&Count::Packets, "10kpps", Some("2k"));
        assert_eq!((packets.rate, packets.burst), (Rate::per_second(10_000), 2_000));
        assert_eq!(Count::Packets.amount(packets.burst), "2000");
        assert_eq!(Count::Syns.described(2_000), "2,000 SYNs");
        assert_eq!(Count::Bytes.described(64_000), "64kB");
        for (count, rate, message) in [
            (&Count::Bytes, "10kpps", "and this limit counts bytes"),
            (&Count::Packets, "2Mbit/s", "and this limit counts packets"),
            (&weighted(), "2Mbit/s", "and this limit counts packets"),
        ] {
            let error = count.bucket(rate, None).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_burst_has_room_for_every_packet() {
        assert_eq!(Count::Bytes.bucket("1kB/s", Some("34B")).unwrap().burst, 34);
        let error = Count::Bytes.bucket("1kB/s", Some("33B")).unwrap_err();
        assert_eq!(error, PolicyError::NoRoom { burst: "33B".into(), least: "34B".into() });
        assert_eq!(weighted().bucket("1/s", None).unwrap().burst, 200, "the default has");
        let error = weighted().bucket("1/s", Some("199")).unwrap_err();
        assert_eq!(error, PolicyError::NoRoom { burst: "199".into(), least: "200".into() });
        assert_eq!(Count::Syns.bucket("1/s", Some("1")).unwrap().burst, 1);
    }

    #[test]
    fn open_connections_have_no_rate() {
        assert_eq!(Allowance::Concurrent { limit: 20, idle: 1 }.rate(), None);
        let window = Allowance::FixedWindow { limit: 5, window: 60 };
        assert_eq!(window.rate(), Some(Rate { packets: 5, period: 60 }));
    }
}
