//! Durations.

use std::time::Duration;

use limiter_common::algorithm::rate::{Rate, SECOND};

use super::{
    error::{Fault, Quantity, ValueError},
    number::Decimal,
};

/// The longest duration, in nanoseconds: 366 days.
pub const LONGEST: u64 = Rate::MIN.period;

/// Units, longest first, with their names. The first name is the one that is printed.
const UNITS: [(u64, &[&str]); 7] = [
    (24 * 3600 * SECOND, &["day", "d", "days"]),
    (3600 * SECOND, &["h", "hour", "hours"]),
    (60 * SECOND, &["min", "m", "minute", "minutes"]),
    (SECOND, &["s", "sec", "second", "seconds"]),
    (1_000_000, &["ms"]),
    (1_000, &["us", "µs"]),
    (1, &["ns"]),
];

/// Parses a duration, such as `500ms`, `10s` or `1.5h`. The unit is needed.
///
/// # Errors
/// A [`ValueError`] for other text, for 0, and for more than [`LONGEST`].
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    let read = || {
        let (number, name) = Decimal::split(text)?;
        let unit = match unit(name) {
            Some(unit) => unit,
            None if name.is_empty() => return Err(Fault::NoUnit),
            None => return Err(Fault::UnknownUnit { unit: name.to_owned(), meant: None }),
        };
        nanoseconds(number, unit).map(Duration::from_nanos)
    };
    read().map_err(|fault| ValueError {
        quantity: Quantity::Duration,
        value: text.to_owned(),
        fault,
    })
}

/// The nanoseconds of `number` units of `unit` nanoseconds.
pub(super) fn nanoseconds(number: Decimal, unit: u64) -> Result<u64, Fault> {
    match number.whole(unit) {
        Ok(0) => Err(Fault::Zero),
        Ok(time) if time <= LONGEST => Ok(time),
        Ok(_) | Err(Fault::TooLarge) => Err(Fault::TooLong),
        Err(_) => Err(Fault::TooPrecise),
    }
}

/// The nanoseconds of the unit with this name.
pub(super) fn unit(name: &str) -> Option<u64> {
    UNITS.into_iter().find(|(_, names)| names.contains(&name)).map(|(unit, _)| unit)
}

/// The largest unit of which a duration above zero is a multiple: the number of units, and the name.
pub(super) fn largest_unit(nanoseconds: u64) -> (u64, &'static str) {
    let fits = |&(unit, _): &(u64, _)| nanoseconds.is_multiple_of(unit);
    UNITS
        .into_iter()
        .find(fits)
        .map_or((nanoseconds, "ns"), |(unit, names)| (nanoseconds / unit, names[0]))
}

/// Formats nanoseconds as [`parse_duration`] reads them: `5min`, `1500ms`. Nothing is rounded.
pub fn format_duration(nanoseconds: u64) -> String {
    let (count, unit) = largest_unit(nanoseconds);
    format!("{count}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, nanoseconds) in [
            ("10s", 10 * SECOND),
            ("10 s", 10 * SECOND),
            ("5m", 300 * SECOND),
            ("5min", 300 * SECOND),
            ("500ms", SECOND / 2),
            ("0.5s", SECOND / 2),
            ("1h", 3600 * SECOND),
            ("1.5 hours", 5400 * SECOND),
            ("366d", LONGEST),
            ("1ns", 1),
            ("10µs", 10_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn other_durations_are_refused() {
        let table = [
            ("", "duration \"\" is empty"),
            ("0s", "duration \"0s\" is zero"),
            ("-1s", "duration \"-1s\" is negative"),
            ("10", "duration \"10\" has no unit"),
            ("s", "duration \"s\" does not start with a number"),
            ("1h30m", "duration \"1h30m\" has the unknown unit \"h30m\""),
            ("5M", "duration \"5M\" has the unknown unit \"M\""),
            ("367d", "duration \"367d\" is longer than 366 days"),
            ("99999999999999999999d", "duration \"99999999999999999999d\" is longer than 366 days"),
            ("0.1ns", "duration \"0.1ns\" has more digits than can be kept exactly"),
        ];
        for (text, message) in table {
            let error = parse_duration(text).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(
                error.remedy(),
                "give a number and a unit of time, such as 500ms, 10s, 5m or 1h"
            );
        }
    }
}
