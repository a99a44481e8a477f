//! Values that are refused.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use thiserror::Error;

use super::rate::HIGHEST;

/// Characters of a refused value that are repeated to the operator.
const ECHOED: usize = 48;

/// A text of foreign origin in quotes, cut short and safe to print on a terminal.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", printable(text, ECHOED))
}

/// The first `most` characters of a text of foreign origin, safe to print on a terminal.
pub fn printable(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    let (shown, more) = end.map_or((text, ""), |end| (&text[..end], "…"));
    format!("{}{more}", shown.escape_debug())
}

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The rate of a limit.
    Rate,
    /// The burst of a limit.
    Burst,
    /// A length of time.
    Duration,
    /// An address or a prefix of addresses.
    Prefix,
    /// The rate of a limit that counts bytes.
    DataRate,
    /// The burst of a limit that counts bytes.
    DataBurst,
}

impl Quantity {
    const fn examples(self) -> &'static str {
        match self {
            Self::Rate => "give packets per time, such as 10kpps, 100/s or 5/min",
            Self::Burst => "give packets or time, such as 200, 2k or 100ms",
            Self::Duration => "give a number and a unit of time, such as 500ms, 10s, 5m or 1h",
            Self::Prefix => {
                "give an address or a prefix, such as 203.0.113.9, 203.0.113.0/24 or 2001:db8::/48"
            }
            Self::DataRate => "give data per time, such as 2Mbit/s, 64kB/s or 1GB/h",
            Self::DataBurst => "give data or time, such as 64kB, 1MiB or 100ms",
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate | Self::DataRate => "rate",
            Self::Burst | Self::DataBurst => "burst",
            Self::Duration => "duration",
            Self::Prefix => "prefix",
        })
    }
}

/// A value that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{quantity} {} {fault}", quoted(value))]
pub struct ValueError {
    /// What it is for.
    pub quantity: Quantity,
    /// The value as it was given.
    pub value: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a value, as what is said of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Nothing is there.
    #[error("is empty")]
    Empty,
    /// There is no number where one has to be.
    #[error("does not start with a number")]
    NotANumber,
    /// It is below zero.
    #[error("is negative")]
    Negative,
    /// It is zero.
    #[error("is zero")]
    Zero,
    /// A rate above [`HIGHEST`].
    #[error("is above {HIGHEST} packets per second")]
    TooFast,
    /// A rate below [`Rate::MIN`](limiter_common::algorithm::rate::Rate::MIN).
    #[error("is below one packet in 366 days")]
    TooSlow,
    /// A rate of bytes above [`Rate::MAX_PER_SECOND`](limiter_common::algorithm::rate::Rate::MAX_PER_SECOND).
    #[error("is above 125 GB/s, which is 1 Tbit/s")]
    TooMuchData,
    /// A rate of bytes below [`Rate::MIN`](limiter_common::algorithm::rate::Rate::MIN).
    #[error("is below one byte in 366 days")]
    TooLittleData,
    /// More than can be counted.
    #[error("is too large")]
    TooLarge,
    /// A time beyond [`time::LONGEST`](super::time::LONGEST).
    #[error("is longer than 366 days")]
    TooLong,
    /// It could only be kept rounded.
    #[error("has more digits than can be kept exactly")]
    TooPrecise,
    /// A part of a packet.
    #[error("is not a whole number of packets")]
    NotWhole,
    /// A bare number that may be anything.
    #[error("has no unit")]
    NoUnit,
    /// A unit that is not known.
    #[error("has the unknown unit {}", quoted(unit))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The value that was probably meant.
        meant: Option<String>,
    },
    /// A unit such as Mbps.
    #[error("is ambiguous: {unit} may mean {scale}bits or {scale}bytes per second")]
    Ambiguous {
        /// The unit.
        unit: String,
        /// What the unit's letter stands for, such as mega.
        scale: &'static str,
        /// The value in bits per second.
        bits: String,
        /// The value in bytes per second.
        bytes: String,
    },
    /// Bits or bytes where packets are counted.
    #[error("is an amount of data, and this limit counts packets")]
    Data,
    /// Packets where bytes are counted.
    #[error("is an amount of packets, and this limit counts bytes")]
    Packets,
    /// A part of a byte.
    #[error("is not a whole number of bytes")]
    NotWholeBytes,
    /// An amount of data where one per time has to be.
    #[error("does not say in what time")]
    NoPeriod,
    /// Neither an address nor a prefix.
    #[error("is neither an address nor a prefix")]
    NotAPrefix,
    /// A prefix longer than the address.
    #[error("is longer than an {family} address, which has {bits} bits")]
    PrefixTooLong {
        /// The family.
        family: &'static str,
        /// Bits of an address.
        bits: u8,
    },
    /// Bits beyond the prefix length are not zero.
    #[error("has host bits set")]
    HostBits {
        /// As it was given.
        prefix: IpNet,
    },
    /// An IPv4 address in IPv6 notation.
    #[error("is an IPv4 address in IPv6 notation, and sources are counted by their own family")]
    Mapped {
        /// The same in IPv4 notation.
        plain: IpNet,
    },
    /// An address with a zone.
    #[error("has a zone, which packets do not carry")]
    Zone {
        /// The address without it.
        address: Option<IpAddr>,
    },
}

impl ValueError {
    /// What is wrong, without the value: for one that not everybody may read.
    pub fn unquoted(&self) -> String {
        match &self.fault {
            Fault::UnknownUnit { .. } => format!("a {} has an unknown unit", self.quantity),
            Fault::Ambiguous { .. } => format!("a {} is ambiguous", self.quantity),
            fault => format!("a {} {fault}", self.quantity),
        }
    }

    /// What to give instead, whatever the value is.
    pub const fn examples(&self) -> &'static str {
        self.quantity.examples()
    }

    /// What to give instead.
    pub fn remedy(&self) -> String {
        let examples = self.quantity.examples();
        match (&self.fault, self.quantity) {
            (Fault::Zero, Quantity::Rate | Quantity::DataRate) => {
                "to switch a limit off, use `limiter limit del NAME`".to_owned()
            }
            (Fault::Zero, Quantity::Burst | Quantity::DataBurst) => {
                "a burst is at least 1; without one, it is chosen to suit the rate".to_owned()
            }
            (Fault::TooFast, _) => {
                "to switch a limit off, use `limiter limit del NAME`; the highest rate is 1Gpps"
                    .to_owned()
            }
            (Fault::TooSlow, _) => "the lowest rate is 1/366day".to_owned(),
            (Fault::UnknownUnit { meant: Some(meant), .. }, _) => format!("did you mean {meant}?"),
            (Fault::Ambiguous { bits, bytes, .. }, Quantity::DataRate | Quantity::DataBurst) => {
                format!("did you mean {bits} or {bytes}?")
            }
            (Fault::Ambiguous { bits, bytes, .. }, _) => format!(
                "where data is counted, write {bits} or {bytes}; this limit counts packets: \
                 {examples}"
            ),
            (Fault::HostBits { prefix }, _) => format!(
                "did you mean {}, or the single address {}/{}?",
                prefix.trunc(),
                prefix.addr(),
                prefix.max_prefix_len()
            ),
            (Fault::Mapped { plain }, _) => format!("write {plain}"),
            (Fault::Zone { address: Some(address) }, _) => format!("write {address}"),
            _ => examples.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_is_short_and_harmless() {
        assert_eq!(quoted("10kppz"), "\"10kppz\"");
        assert_eq!(quoted("a\x1b[2J\n\"\u{202e}"), "\"a\\u{1b}[2J\\n\\\"\\u{202e}\"");
        assert_eq!(quoted(&"9".repeat(1 << 20)), format!("\"{}…\"", "9".repeat(ECHOED)));
        assert_eq!(quoted(&"é".repeat(ECHOED)), format!("\"{}\"", "é".repeat(ECHOED)));
    }
}
