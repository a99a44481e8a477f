//! What a limit counts, as operators write its rates and amounts.

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

/// The least that a packet can have: the headers of Ethernet and IPv4.
const SMALLEST_FRAME: u64 = 34;

impl Count {
    /// Reads a rate of what is counted.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_rate(&self, text: &str) -> Result<Rate, ValueError> {
        if *self == Self::Bytes { parse_data_rate(text) } else { parse_rate(text) }
    }

    /// Reads how much of what is counted may come at once.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_burst(&self, text: &str) -> Result<Burst, ValueError> {
        if *self == Self::Bytes { parse_data_burst(text) } else { parse_burst(text) }
    }

    /// The burst of a limit that was given none.
    pub fn default_burst(&self, rate: Rate) -> u64 {
        match self {
            Self::Bytes => default_data_burst(rate),
            // Room for the dearest packet, or it would never pass.
            Self::Weighted(_) => default_burst(rate).max(self.room()),
            _ => default_burst(rate),
        }
    }

    /// The bucket of a rate and a burst as they were written; without a burst, the default one.
    ///
    /// # Errors
    /// What is wrong with them; [`PolicyError::NoRoom`] when some packet would never pass.
    pub fn bucket(&self, rate: &str, burst: Option<&str>) -> Result<Bucket, PolicyError> {
        let rate = self.parse_rate(rate)?;
        let burst = burst.map(|burst| self.parse_burst(burst)).transpose()?;
        self.bucket_of(rate, burst)
    }

    /// The same of what was read.
    ///
    /// # Errors
    /// As [`bucket`](Self::bucket).
    pub fn bucket_of(&self, rate: Rate, burst: Option<Burst>) -> Result<Bucket, PolicyError> {
        let burst = burst.map_or_else(|| self.default_burst(rate), |burst| burst.packets(rate));
        let least = self.room();
        if burst < least {
            let [burst, least] = [burst, least].map(|amount| self.amount(amount));
            return Err(PolicyError::NoRoom { burst, least });
        }
        Bucket::new(rate, burst)
    }

    /// The least burst with which a packet of each kind can pass.
    pub fn room(&self) -> u64 {
        match self {
            Self::Bytes => SMALLEST_FRAME,
            Self::Weighted(costs) => {
                u64::from(costs.by_kind.values().copied().fold(costs.default, u16::max))
            }
            _ => 1,
        }
    }

    /// A rate as operators write it.
    pub fn rate(&self, rate: Rate) -> String {
        if *self == Self::Bytes { format_data_rate(rate) } else { format_rate(rate) }
    }

    /// An amount as operators write it.
    pub fn amount(&self, amount: u64) -> String {
        if *self == Self::Bytes { format_size(amount) } else { amount.to_string() }
    }

    /// An amount with what it is of, in words.
    pub fn described(&self, amount: u64) -> String {
        match self {
            Self::Packets => format!("{} packets", grouped(amount)),
            Self::Bytes => format_size(amount),
            Self::Connections => format!("{} connections", grouped(amount)),
            Self::Syns => format!("{} SYNs", grouped(amount)),
            Self::Weighted(_) => format!("{} units", grouped(amount)),
        }
    }

    /// What is counted, in the word of a document; costs have none.
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
    /// The long-run rate, unless it has none.
    pub const fn rate(self) -> Option<Rate> {
        match self {
            Self::Concurrent { .. } => None,
            _ => Some(self.bucket().rate),
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
