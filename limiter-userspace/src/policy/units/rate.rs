//! Rates of packets and of requests.

use limiter_common::algorithm::rate::{Rate, RateError, SECOND};
use serde_json::Number;

use super::{
    data::DataUnit,
    error::{Fault, Quantity, ValueError},
    number::{Decimal, multiplier, with_multiplier},
    time,
};
use crate::policy::nearest::nearest;

/// The highest rate of packets per second. That of bytes is [`Rate::MAX_PER_SECOND`].
pub const HIGHEST: u64 = 1_000_000_000;

/// What rates and bursts are of.
pub(super) struct Events {
    /// Their rate a second as one word.
    per_second: &'static str,
    nouns: &'static [&'static str],
    /// Units of rates, for suggestions.
    units: [&'static str; 7],
}

pub(super) static PACKETS: Events = Events {
    per_second: "pps",
    nouns: &["packets", "packet", "pkts", "pkt", "SYNs", "SYN"],
    units: ["pps", "packets/s", "/s", "/sec", "/min", "/hour", "/day"],
};

pub(super) static REQUESTS: Events = Events {
    per_second: "rps",
    nouns: &["requests", "request", "reqs", "req"],
    units: ["rps", "requests/s", "/s", "/sec", "/min", "/hour", "/day"],
};

impl Events {
    /// Whether `noun` is a word for them.
    pub(super) fn are(&self, noun: &str) -> bool {
        self.nouns.iter().any(|name| noun.eq_ignore_ascii_case(name))
    }
}

/// Parses a rate of packets: `10kpps`, `1.5 Mpps`, `50 packets/s`, `5/min`, `100/10s`. A number without a
/// unit is per second. The rate is exact, and its period is kept: `60/min` is 60 packets in a minute.
///
/// # Errors
/// A [`ValueError`] for other text, and for rates below [`Rate::MIN`] or above [`HIGHEST`].
///
/// ```
/// use limiter_common::algorithm::rate::{Rate, SECOND};
/// use limiter_userspace::policy::units::parse_rate;
///
/// assert_eq!(parse_rate("10kpps"), Ok(Rate { packets: 10_000, period: SECOND }));
/// assert_eq!(parse_rate("60/min"), Ok(Rate { packets: 60, period: 60 * SECOND }));
/// assert!(parse_rate("10Mbps").is_err(), "bits or bytes?");
/// ```
pub fn parse_rate(text: &str) -> Result<Rate, ValueError> {
    parse(text, &PACKETS, Quantity::Rate)
}

/// Parses a rate of requests: `10/s`, `5/min`, `1k requests/s`, `100rps`; otherwise as [`parse_rate`].
///
/// # Errors
/// As [`parse_rate`].
pub fn parse_request_rate(text: &str) -> Result<Rate, ValueError> {
    parse(text, &REQUESTS, Quantity::RequestRate)
}

fn parse(text: &str, of: &Events, quantity: Quantity) -> Result<Rate, ValueError> {
    read(text, of).map_err(|fault| ValueError { quantity, value: text.to_owned(), fault })
}

fn read(text: &str, of: &Events) -> Result<Rate, Fault> {
    let (number, unit) = Decimal::split(text).map_err(|fault| match fault {
        Fault::TooLarge => Fault::TooFast,
        fault => fault,
    })?;
    let (factor, name) = multiplier(unit);
    let period = match period(name, of)? {
        Some(period) => period,
        None => return Err(of_others(text, unit, of)),
    };
    let (packets, divisor) = number.times(factor);
    let period = divisor.checked_mul(u128::from(period)).ok_or(Fault::TooPrecise)?;
    let rate = match (u64::try_from(packets), u64::try_from(period)) {
        (Ok(packets), Ok(period)) => Rate { packets, period },
        _ if packets > period => return Err(Fault::TooFast),
        _ if period / u128::from(Rate::MIN.period) >= packets => return Err(Fault::TooSlow),
        _ => return Err(Fault::TooPrecise),
    };
    let [packets, period] = [rate.packets, rate.period].map(u128::from);
    match rate.check() {
        Ok(()) if packets * u128::from(SECOND) > period * u128::from(HIGHEST) => {
            Err(Fault::TooFast)
        }
        Ok(()) => Ok(rate),
        Err(RateError::TooFast) => Err(Fault::TooFast),
        Err(RateError::TooSlow) => Err(Fault::TooSlow),
        Err(RateError::Zero | RateError::NoBurst | RateError::BurstTooLong) => Err(Fault::Zero),
    }
}

/// The period in nanoseconds of the unit of a rate, without its multiplier; `None` for an unknown unit.
fn period(unit: &str, of: &Events) -> Result<Option<u64>, Fault> {
    if unit.is_empty() || unit.eq_ignore_ascii_case(of.per_second) {
        return Ok(Some(SECOND));
    }
    let Some((noun, period)) = unit.split_once('/') else { return Ok(None) };
    let noun = noun.trim_ascii_end();
    if !noun.is_empty() && !of.are(noun) {
        return Ok(None);
    }
    period_of(period)
}

/// The period in nanoseconds after the `/` of a rate; `None` if it is malformed.
pub(super) fn period_of(text: &str) -> Result<Option<u64>, Fault> {
    let period = text.trim_ascii_start();
    if let Some(unit) = time::unit(period) {
        return Ok(Some(unit));
    }
    let Ok((number, name)) = Decimal::split(period) else { return Ok(None) };
    let Some(unit) = time::unit(name) else { return Ok(None) };
    match number.whole(unit) {
        Ok(0) => Ok(None),
        Ok(period) => Ok(Some(period)),
        Err(Fault::TooLarge) => Err(Fault::TooSlow),
        Err(_) => Err(Fault::TooPrecise),
    }
}

/// The fault of a rate whose unit is not one of such events. `unit` includes the multiplier.
fn of_others(text: &str, unit: &str, of: &Events) -> Fault {
    const LONGEST_NUMBER: usize = 24;
    let number = text.trim_ascii().strip_suffix(unit).unwrap_or_default().trim_ascii_end();
    let number = (number.len() <= LONGEST_NUMBER).then_some(number);
    match DataUnit::recognise(unit) {
        Some(DataUnit { scale, letter, ambiguous: true, .. }) => Fault::Ambiguous {
            unit: unit.to_owned(),
            scale,
            bits: format!("{}{letter}bit/s", number.unwrap_or("1")),
            bytes: format!("{}{letter}B/s", number.unwrap_or("1")),
        },
        Some(_) => Fault::Data,
        None => Fault::UnknownUnit {
            unit: unit.to_owned(),
            meant: number.and_then(|number| meant(number, unit, of)),
        },
    }
}

/// The rate that was probably meant.
fn meant(number: &str, unit: &str, of: &Events) -> Option<String> {
    // A multiplier in the wrong case.
    let (upper, rest) = (unit.get(..1)?.to_ascii_uppercase(), unit.get(1..)?);
    if let ("M" | "G", Ok(Some(_))) = (upper.as_str(), period(rest, of)) {
        return Some(format!("{number}{upper}{rest}"));
    }
    let (factor, name) = multiplier(unit);
    let letter = if factor > 1 { &unit[..1] } else { "" };
    nearest(name, of.units).map(|name| format!("{number}{letter}{name}"))
}

/// Formats a rate of packets: `10 kpps`, `5/min`, `1.5 kpps`, `1/2s`. Nothing is rounded.
pub fn format_rate(rate: Rate) -> String {
    let (number, letter) = with_multiplier(rate.packets);
    if rate.period == SECOND {
        return format!("{number} {letter}pps");
    }
    match time::largest_unit(rate.period) {
        (1, unit) => format!("{number}{letter}/{unit}"),
        (count, unit) => format!("{number}{letter}/{count}{unit}"),
    }
}

/// Formats a rate of requests: `10k/s`, `5/min`, `1.5k/s`, `1/2s`. Nothing is rounded.
pub fn format_request_rate(rate: Rate) -> String {
    if rate.period == SECOND {
        let (number, letter) = with_multiplier(rate.packets);
        return format!("{number}{letter}/s");
    }
    format_rate(rate)
}

/// A rate per second as a JSON number: an integer if it is one, else the nearest `f64`.
pub fn rate_per_second(rate: Rate) -> Number {
    let per_second = u128::from(rate.packets) * u128::from(SECOND);
    let period = u128::from(rate.period).max(1);
    let whole = || Number::from(u64::try_from(per_second / period).unwrap_or(u64::MAX));
    if per_second.is_multiple_of(period) {
        whole()
    } else {
        Number::from_f64(per_second as f64 / period as f64).unwrap_or_else(whole)
    }
}

#[cfg(test)]
mod tests;
