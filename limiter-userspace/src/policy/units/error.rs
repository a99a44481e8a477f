//! The errors of values that are refused.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use thiserror::Error;

/// The most characters of a refused value that are repeated to the operator.
const ECHOED: usize = 48;

/// A text of foreign origin in quotes, cut to 48 characters and safe to print on a terminal.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", printable(text, ECHOED))
}

/// The first `most` characters of a text of foreign origin, escaped to be safe to print on a terminal;
/// followed by `…` if there are more.
pub fn printable(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    let (shown, more) = end.map_or((text, ""), |end| (&text[..end], "…"));
    format!("{}{more}", shown.escape_debug())
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The rate of a limit.
    Rate,
    /// The burst of a limit.
    Burst,
    /// A duration.
    Duration,
    /// An address or a prefix.
    Prefix,
    /// The rate of a limit that counts bytes.
    DataRate,
    /// The burst of a limit that counts bytes.
    DataBurst,
    /// The rate of a limit on requests.
    RequestRate,
    /// The burst of a limit on requests.
    RequestBurst,
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
            Self::RequestRate => "give requests per time, such as 100/s, 1k/s or 5/min",
            Self::RequestBurst => "give requests or time, such as 20, 2k or 10s",
        }
    }

    /// What is wrong with a value of this kind.
    fn told(self, fault: &Fault) -> String {
        if !matches!(self, Self::RequestRate | Self::RequestBurst) {
            return fault.to_string();
        }
        match fault {
            Fault::TooFast => "is above 1000000000 requests per second".to_owned(),
            Fault::TooSlow => "is below one request in 366 days".to_owned(),
            Fault::NotWhole => "is not a whole number of requests".to_owned(),
            Fault::Data => "is an amount of data, and this limit counts requests".to_owned(),
            fault => fault.to_string(),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate | Self::DataRate | Self::RequestRate => "rate",
            Self::Burst | Self::DataBurst | Self::RequestBurst => "burst",
            Self::Duration => "duration",
            Self::Prefix => "prefix",
        })
    }
}

/// A value that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{quantity} {} {}", quoted(value), quantity.told(fault))]
pub struct ValueError {
    /// The kind of value that was expected.
    pub quantity: Quantity,
    /// The text as it was given.
    pub value: String,
    /// The reason why it was refused.
    pub fault: Fault,
}

/// Why a value was refused. The message continues a sentence that begins with the value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The text is empty.
    #[error("is empty")]
    Empty,
    /// The text does not start with a number.
    #[error("does not start with a number")]
    NotANumber,
    /// The number is negative.
    #[error("is negative")]
    Negative,
    /// The number is zero.
    #[error("is zero")]
    Zero,
    /// A rate above [`HIGHEST`](super::rate::HIGHEST).
    #[error("is above 1000000000 packets per second")]
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
    /// A number that does not fit into 64 bits.
    #[error("is too large")]
    TooLarge,
    /// A time beyond [`time::LONGEST`](super::time::LONGEST).
    #[error("is longer than 366 days")]
    TooLong,
    /// A number that would have to be rounded.
    #[error("has more digits than can be kept exactly")]
    TooPrecise,
    /// A fraction of a packet.
    #[error("is not a whole number of packets")]
    NotWhole,
    /// A number that needs a unit and has none.
    #[error("has no unit")]
    NoUnit,
    /// An unknown unit.
    #[error("has the unknown unit {}", quoted(unit))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The value that was probably meant, if there is one.
        meant: Option<String>,
    },
    /// A unit such as Mbps, which some use for bits and others for bytes.
    #[error("is ambiguous: {unit} may mean {scale}bits or {scale}bytes per second")]
    Ambiguous {
        /// The unit.
        unit: String,
        /// The name of the unit's prefix, such as mega.
        scale: &'static str,
        /// The value, understood as bits per second.
        bits: String,
        /// The value, understood as bytes per second.
        bytes: String,
    },
    /// Bits or bytes for a limit that counts packets.
    #[error("is an amount of data, and this limit counts packets")]
    Data,
    /// Packets for a limit that counts bytes.
    #[error("is an amount of packets, and this limit counts bytes")]
    Packets,
    /// A fraction of a byte.
    #[error("is not a whole number of bytes")]
    NotWholeBytes,
    /// An amount of data without the period of a rate.
    #[error("does not say in what time")]
    NoPeriod,
    /// Neither an address nor a prefix.
    #[error("is neither an address nor a prefix")]
    NotAPrefix,
    /// A prefix length that is longer than an address.
    #[error("is longer than an {family} address, which has {bits} bits")]
    PrefixTooLong {
        /// The family.
        family: &'static str,
        /// The number of bits of an address.
        bits: u8,
    },
    /// A prefix whose bits beyond its length are not all zero.
    #[error("has host bits set")]
    HostBits {
        /// The prefix as it was given.
        prefix: IpNet,
    },
    /// An IPv4 address or prefix in IPv6 notation (IPv4-mapped).
    #[error("is an IPv4 address in IPv6 notation, and sources are counted by their own family")]
    Mapped {
        /// The same prefix in IPv4 notation.
        plain: IpNet,
    },
    /// A netmask with ones behind zeros.
    #[error("has a netmask whose ones are not all in front")]
    NotAMask,
    /// A range that ends before it begins, or in another address family.
    #[error("is no range: it ends before it begins, or in another family")]
    NotARange,
    /// An address beside another one in the next column of CSV: what is meant by the two is not certain.
    #[error("has another address in the column after it")]
    AddressAfter,
    /// An address with a zone.
    #[error("has a zone, which packets do not carry")]
    Zone {
        /// The address without the zone; `None` if it is malformed.
        address: Option<IpAddr>,
    },
}

impl ValueError {
    /// The message without the value, for readers who may not see that.
    pub fn unquoted(&self) -> String {
        match &self.fault {
            Fault::UnknownUnit { .. } => format!("a {} has an unknown unit", self.quantity),
            Fault::Ambiguous { .. } => format!("a {} is ambiguous", self.quantity),
            fault => format!("a {} {}", self.quantity, self.quantity.told(fault)),
        }
    }

    /// Examples of valid values of this kind; they do not depend on the value.
    pub const fn examples(&self) -> &'static str {
        self.quantity.examples()
    }

    /// Whether it is a rate of zero, which drops all that a limit is about.
    pub(crate) fn is_zero_rate(&self) -> bool {
        let is_rate =
            matches!(self.quantity, Quantity::Rate | Quantity::DataRate | Quantity::RequestRate);
        is_rate && self.fault == Fault::Zero
    }

    /// What to write instead.
    pub fn remedy(&self) -> String {
        let examples = self.quantity.examples();
        match (&self.fault, self.quantity) {
            (Fault::NotANumber, Quantity::Rate | Quantity::DataRate)
                if ["unlimited", "none", "off"].contains(&self.value.as_str()) =>
            {
                "to switch a limit off, use `limiter limit del NAME`".to_owned()
            }
            (Fault::Zero, Quantity::Rate | Quantity::DataRate) => {
                "to drop all of a source, use `limiter deny add`; to switch a limit off, `limiter limit del NAME`".to_owned()
            }
            (Fault::Zero, Quantity::Burst | Quantity::DataBurst | Quantity::RequestBurst) => {
                "a burst is at least 1; without one, it is chosen to suit the rate".to_owned()
            }
            (Fault::TooFast, Quantity::RequestRate) => "the highest rate is 1G/s".to_owned(),
            (Fault::TooFast, _) => {
                "to switch a limit off, use `limiter limit del NAME`; the highest rate is 1Gpps"
                    .to_owned()
            }
            (Fault::TooSlow, _) => "the lowest rate is 1/366day".to_owned(),
            (Fault::UnknownUnit { meant: Some(meant), .. }, _) => format!("did you mean {meant}?"),
            (Fault::Ambiguous { bits, bytes, .. }, Quantity::DataRate | Quantity::DataBurst) => {
                format!("did you mean {bits} or {bytes}?")
            }
            (Fault::Ambiguous { .. }, Quantity::RequestRate | Quantity::RequestBurst) => {
                examples.to_owned()
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
            (Fault::NotAMask, _) => "write its length, such as 203.0.113.0/24".to_owned(),
            (Fault::AddressAfter, _) => {
                "write a range as FIRST-LAST, or leave only the column that is meant".to_owned()
            }
            (Fault::NotARange, _) => {
                "write the lowest address first, such as 203.0.113.5-203.0.113.77".to_owned()
            }
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
