//! Rates of bytes.

use limiter_common::algorithm::rate::{Rate, RateError, SECOND};

use super::{
    data::DataUnit,
    error::{Fault, Quantity, ValueError},
    number::{Decimal, with_multiplier},
    rate::{PACKETS, period_of},
    time,
};

/// Bits in a byte.
const BITS: u128 = 8;

/// Parses a rate of data to bytes: `2Mbit/s`, `64kB/s`, `200 MB/s`, `1GiB/h`. Bits without a period are per
/// second (`2mbit`). The rate is exact.
///
/// `bps`, `Mbps` and a lower-case `b` are refused: some use them for bits and others for bytes.
///
/// # Errors
/// A [`ValueError`] for other text, and for rates out of the bounds of [`Rate::check`] in bytes.
pub fn parse_data_rate(text: &str) -> Result<Rate, ValueError> {
    read(text).map_err(|fault| ValueError {
        quantity: Quantity::DataRate,
        value: text.to_owned(),
        fault,
    })
}

fn read(text: &str) -> Result<Rate, Fault> {
    let (number, unit) = Decimal::split(text).map_err(|fault| match fault {
        Fault::TooLarge => Fault::TooMuchData,
        fault => fault,
    })?;
    let (amount, period) = match unit.split_once('/') {
        Some((amount, period)) => (amount.trim_ascii_end(), Some(period)),
        None => (unit, None),
    };
    // Nothing is nothing in any unit.
    if amount.is_empty() && number.times(1).0 == 0 {
        return Err(Fault::Zero);
    }
    let data = unit_of(text, amount)?;
    let period = match period {
        Some(text) => period_of(text)?
            .ok_or_else(|| Fault::UnknownUnit { unit: unit.to_owned(), meant: None })?,
        None if data.bits => SECOND,
        None => return Err(Fault::NoPeriod),
    };
    let (bytes, period) = bytes_in(number, data, period).ok_or(Fault::TooPrecise)?;
    let rate = match (u64::try_from(bytes), u64::try_from(period)) {
        (Ok(packets), Ok(period)) => Rate { packets, period },
        _ if bytes > period => return Err(Fault::TooMuchData),
        _ if period / u128::from(Rate::MIN.period) >= bytes => return Err(Fault::TooLittleData),
        _ => return Err(Fault::TooPrecise),
    };
    match rate.check() {
        Ok(()) => Ok(rate),
        Err(RateError::TooFast) => Err(Fault::TooMuchData),
        Err(RateError::TooSlow) => Err(Fault::TooLittleData),
        Err(RateError::Zero | RateError::NoBurst | RateError::BurstTooLong) => Err(Fault::Zero),
    }
}

/// Bytes and the nanoseconds that they come in; `None` if those do not fit into 128 bits.
fn bytes_in(number: Decimal, data: DataUnit, period: u64) -> Option<(u128, u128)> {
    let (amount, divisor) = number.times(data.factor);
    if !data.bits {
        return Some((amount, divisor.checked_mul(u128::from(period))?));
    }
    // The factor that both share with 8 is divided out, so that 2 Mbit/s is 250 kB in a second and not 2 MB
    // in eight.
    let shared = if amount == 0 { BITS } else { 1 << amount.trailing_zeros().min(3) };
    let divisor = divisor.checked_mul(BITS / shared)?;
    Some((amount / shared, divisor.checked_mul(u128::from(period))?))
}

/// Parses `amount`, the unit of data in `text`.
pub(super) fn unit_of(text: &str, amount: &str) -> Result<DataUnit, Fault> {
    let packets = |noun: &str| {
        let noun = noun.trim_start_matches(['k', 'K', 'M', 'G']).trim_ascii_start();
        noun.is_empty() || PACKETS.are(noun) || noun.eq_ignore_ascii_case("pps")
    };
    let Some(data) = DataUnit::recognise(amount) else {
        return Err(match amount {
            "" if !text.contains('/') => Fault::NoUnit,
            _ if packets(amount) => Fault::Packets,
            _ => Fault::UnknownUnit { unit: amount.to_owned(), meant: None },
        });
    };
    if data.ambiguous || amount.ends_with('b') {
        let number: String = text
            .trim_ascii_start()
            .chars()
            .take_while(|digit| digit.is_ascii_digit() || *digit == '.')
            .take(LONGEST_NUMBER)
            .collect();
        let DataUnit { scale, letter, .. } = data;
        return Err(Fault::Ambiguous {
            unit: amount.to_owned(),
            scale,
            bits: format!("{number}{letter}bit/s"),
            bytes: format!("{number}{letter}B/s"),
        });
    }
    Ok(data)
}

/// The most digits of a number that a suggestion repeats.
const LONGEST_NUMBER: usize = 24;

/// Formats a rate of bytes as [`parse_data_rate`] reads it: `250kB/s`, `1GB/h`. Nothing is rounded.
pub fn format_data_rate(rate: Rate) -> String {
    let (number, letter) = with_multiplier(rate.packets);
    match time::largest_unit(rate.period) {
        (1, unit) => format!("{number}{letter}B/{unit}"),
        (count, unit) => format!("{number}{letter}B/{count}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn data_per_time_is_exact() {
        for (text, bytes, period) in [
            ("2Mbit/s", 250_000, SECOND),
            ("2 mbit", 250_000, SECOND),
            ("64kB/s", 64_000, SECOND),
            ("200 MB/s", 200_000_000, SECOND),
            ("1MiB/s", 1 << 20, SECOND),
            ("1GB/h", 1_000_000_000, 3600 * SECOND),
            ("1bit/s", 1, 8 * SECOND),
            ("1.5 kbit/s", 375, 2 * SECOND),
            ("12 bits/min", 3, 120 * SECOND),
            ("8Gbit/s", 1_000_000_000, SECOND),
            ("1000Gbit/s", Rate::MAX_PER_SECOND, SECOND),
            ("125GB/s", Rate::MAX_PER_SECOND, SECOND),
            ("100 bytes/10s", 100, 10 * SECOND),
        ] {
            let rate = parse_data_rate(text).unwrap();
            assert_eq!(rate, Rate { packets: bytes, period }, "{text}");
            assert_eq!(parse_data_rate(&format_data_rate(rate)), Ok(rate), "{text}");
        }
    }

    #[test]
    fn other_rates_are_refused() {
        let examples = "give data per time, such as 2Mbit/s, 64kB/s or 1GB/h";
        const ZERO: &str = "to drop all of a source, use `limiter deny add`; to switch a limit off, `limiter limit del NAME`";
        let meanings = "may mean kilobits or kilobytes per second";
        for (text, message, remedy) in [
            (
                "10 kbps",
                &*format!("is ambiguous: kbps {meanings}"),
                "did you mean 10kbit/s or 10kB/s?",
            ),
            ("1 kb/s", &format!("is ambiguous: kb {meanings}"), "did you mean 1kbit/s or 1kB/s?"),
            ("10k pps", "is an amount of packets, and this limit counts bytes", examples),
            ("100/s", "is an amount of packets, and this limit counts bytes", examples),
            ("100", "has no unit", examples),
            ("0", "is zero", ZERO),
            ("0/s", "is zero", ZERO),
            ("0 Mbit/s", "is zero", ZERO),
            ("64kB", "does not say in what time", examples),
            ("1.1Tbit/s", "is above 125 GB/s, which is 1 Tbit/s", examples),
            ("126GB/s", "is above 125 GB/s, which is 1 Tbit/s", examples),
            ("1B/367d", "is below one byte in 366 days", examples),
            ("5 bananas/s", "has the unknown unit \"bananas\"", examples),
            ("5 kB/fortnight", "has the unknown unit \"kB/fortnight\"", examples),
        ] {
            let error = parse_data_rate(text).unwrap_err();
            assert_eq!(error.to_string(), format!("rate \"{text}\" {message}"));
            assert_eq!(error.remedy(), remedy, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).*|[0-9.]{0,25} ?[kKMGTmi]{0,2}(B|b|bit|bps)?(/[0-9]{0,9}[a-z]{0,3})?") {
            if let Ok(rate) = parse_data_rate(&text) {
                prop_assert_eq!(parse_data_rate(&format_data_rate(rate)), Ok(rate));
            }
        }
    }
}
