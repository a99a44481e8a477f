//! Amounts of bytes.

use limiter_common::algorithm::rate::{Rate, SECOND};

use super::{
    burst::Burst,
    data_rate::unit_of,
    error::{Fault, Quantity, ValueError},
    number::{Decimal, with_multiplier},
    time,
};

/// Bytes of a full Ethernet frame without its checksum.
const FRAME: u64 = 1_514;

/// Parses a burst of data: an amount (`64kB`, `1MiB`, `512kbit`) or a time (`200ms`). [`Burst::Packets`] is
/// in bytes here.
///
/// # Errors
/// A [`ValueError`] for other text and for 0. Whether a bucket can hold the burst depends on the rate.
pub fn parse_data_burst(text: &str) -> Result<Burst, ValueError> {
    read(text).map_err(|fault| ValueError {
        quantity: Quantity::DataBurst,
        value: text.to_owned(),
        fault,
    })
}

fn read(text: &str) -> Result<Burst, Fault> {
    let (number, name) = Decimal::split(text)?;
    if time::is_time(name) {
        return time::parts(text).map(Burst::Time);
    }
    let data = unit_of(text, name)?;
    let amount = number.whole(data.factor).map_err(|fault| match fault {
        Fault::NotWhole => Fault::NotWholeBytes,
        fault => fault,
    })?;
    match (amount, data.bits) {
        (0, _) => Err(Fault::Zero),
        (bits, true) if bits.is_multiple_of(8) => Ok(Burst::Packets(bits / 8)),
        (_, true) => Err(Fault::NotWholeBytes),
        (bytes, false) => Ok(Burst::Packets(bytes)),
    }
}

/// The burst, in bytes, of a limit of bytes that was written without one.
///
/// It is 100 ms of the rate, or one second of it up to 64 full frames, whichever is more: a driver hands over
/// up to 64 frames at once. It is never less than one full frame, which would otherwise not pass.
pub fn default_data_burst(rate: Rate) -> u64 {
    let second = u128::from(rate.packets) * u128::from(SECOND);
    let second = second.div_ceil(u128::from(rate.period).max(1)).min(u128::from(64 * FRAME)) as u64;
    Burst::Time(SECOND / 10).packets(rate).max(second).max(FRAME)
}

/// Formats bytes as [`parse_data_burst`] reads them: `64kB`. Nothing is rounded.
pub fn format_size(bytes: u64) -> String {
    let (number, letter) = with_multiplier(bytes);
    format!("{number}{letter}B")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::units::parse_data_rate;

    #[test]
    fn sizes_are_exact() {
        for (text, burst) in [
            ("64kB", Burst::Packets(64_000)),
            ("64 KiB", Burst::Packets(65_536)),
            ("1500 bytes", Burst::Packets(1_500)),
            ("512kbit", Burst::Packets(64_000)),
            ("200ms", Burst::Time(SECOND / 5)),
            ("1m30s", Burst::Time(90 * SECOND)),
        ] {
            assert_eq!(parse_data_burst(text), Ok(burst), "{text}");
        }
        for (text, message) in [
            ("64", "has no unit"),
            ("2k", "is an amount of packets, and this limit counts bytes"),
            ("2k packets", "is an amount of packets, and this limit counts bytes"),
            ("1.5 B", "is not a whole number of bytes"),
            ("1bit", "is not a whole number of bytes"),
            ("0kB", "is zero"),
            ("64kb", "is ambiguous: kb may mean kilobits or kilobytes per second"),
        ] {
            let error = parse_data_burst(text).unwrap_err();
            assert_eq!(error.to_string(), format!("burst \"{text}\" {message}"));
        }
    }

    #[test]
    fn the_default_admits_frames() {
        for (rate, burst) in
            [("1bit/s", FRAME), ("2Mbit/s", 64 * FRAME), ("64kB/s", 64_000), ("1GB/s", 100_000_000)]
        {
            let rate = parse_data_rate(rate).unwrap();
            assert_eq!(default_data_burst(rate), burst, "{rate:?}");
            assert!(rate.bucket(burst, FRAME).is_ok());
        }
    }

    proptest! {
        #[test]
        fn sizes_are_read_back(bytes in 1_u64..) {
            prop_assert_eq!(parse_data_burst(&format_size(bytes)), Ok(Burst::Packets(bytes)));
        }

        #[test]
        fn no_text_panics(text in "(?s).*") {
            let _ = parse_data_burst(&text);
        }
    }
}
