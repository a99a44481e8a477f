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

/// The names of a week, which is read and never printed.
const WEEK: (u64, &[&str]) = (7 * 24 * 3600 * SECOND, &["w", "week", "weeks"]);

/// Parses a duration: a number with a unit, such as `500ms`, `10s` or `1.5h`, or several, of which each has a smaller unit
/// than the one before it: `1h30m`, `3d 04h`.
///
/// # Errors
/// A [`ValueError`] for other text, for 0, and for more than [`LONGEST`].
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    read(text, None)
}

/// Parses a time of the command line: as [`parse_duration`], or a number without a unit, in seconds.
///
/// # Errors
/// As [`parse_duration`].
///
/// ```
/// use limiter_userspace::policy::units::{parse_duration, parse_time};
///
/// assert_eq!(parse_time("600"), parse_duration("10m"));
/// assert!(parse_duration("600").is_err(), "a document says in what unit");
/// ```
pub fn parse_time(text: &str) -> Result<Duration, ValueError> {
    read(text, Some(SECOND))
}

/// Parses the time that something lasts: as [`parse_time`], or `forever`, which is `None`.
///
/// # Errors
/// As [`parse_duration`].
pub fn parse_lasting(text: &str) -> Result<Option<Duration>, ValueError> {
    const FOREVER: [&str; 5] = ["forever", "for ever", "permanent", "infinite", "infinity"];
    let word = text.trim_ascii();
    match FOREVER.iter().any(|name| word.eq_ignore_ascii_case(name)) {
        true => Ok(None),
        false => parse_time(text).map(Some),
    }
}

/// Parses a duration. `plain` is the unit of a number without one, in nanoseconds.
fn read(text: &str, plain: Option<u64>) -> Result<Duration, ValueError> {
    let nanoseconds = match (Decimal::split(text), plain) {
        (Ok((number, "")), Some(plain)) => nanoseconds(number, plain),
        _ => parts(text),
    };
    nanoseconds.map(Duration::from_nanos).map_err(|fault| ValueError {
        quantity: Quantity::Duration,
        value: text.to_owned(),
        fault,
    })
}

/// Splits the unit after a number from the parts of a duration that follow it.
fn split_unit(rest: &str) -> (&str, &str) {
    let end = rest.find(|letter: char| letter.is_ascii_digit() || letter == ' ');
    rest.split_at(end.unwrap_or(rest.len()))
}

/// Whether what follows a number makes it a duration.
pub(super) fn is_time(rest: &str) -> bool {
    unit(split_unit(rest).0).is_some()
}

/// The nanoseconds of all parts of a duration together, see [`parse_duration`].
pub(super) fn parts(text: &str) -> Result<u64, Fault> {
    let (mut total, mut left, mut larger) = (0_u64, text, u64::MAX);
    loop {
        let (number, rest) = Decimal::split(left)?;
        let (name, after) = split_unit(rest);
        let unit = match unit(name) {
            Some(unit) if unit < larger => unit,
            None if name.is_empty() => return Err(Fault::NoUnit),
            _ => return Err(Fault::UnknownUnit { unit: rest.to_owned(), meant: None }),
        };
        let part = match nanoseconds(number, unit) {
            // One part may be 0, as in `1h 00m`.
            Err(Fault::Zero) => 0,
            part => part?,
        };
        total = total.saturating_add(part);
        (left, larger) = (after.trim_ascii_start(), unit);
        if left.is_empty() {
            return match total {
                0 => Err(Fault::Zero),
                total if total > LONGEST => Err(Fault::TooLong),
                total => Ok(total),
            };
        }
    }
}

/// The nanoseconds of `number` units of `unit` nanoseconds.
fn nanoseconds(number: Decimal, unit: u64) -> Result<u64, Fault> {
    match number.whole(unit) {
        Ok(0) => Err(Fault::Zero),
        Ok(time) if time <= LONGEST => Ok(time),
        Ok(_) | Err(Fault::TooLarge) => Err(Fault::TooLong),
        Err(_) => Err(Fault::TooPrecise),
    }
}

/// The nanoseconds of the unit with this name.
pub(super) fn unit(name: &str) -> Option<u64> {
    let mut units = UNITS.into_iter().chain([WEEK]);
    units.find(|(_, names)| names.contains(&name)).map(|(unit, _)| unit)
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
            ("1h30m", 5400 * SECOND),
            ("1h 30m", 5400 * SECOND),
            ("1h 00m", 3600 * SECOND),
            ("3d 04h", 76 * 3600 * SECOND),
            ("1m 23s", 83 * SECOND),
            ("3h18m49.5s", 11_929 * SECOND + SECOND / 2),
            ("1w", 7 * 24 * 3600 * SECOND),
            ("2 weeks 1 day", 15 * 24 * 3600 * SECOND),
            ("1,500ms", 1_500_000_000),
            ("1e3s", 1_000 * SECOND),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn a_time_of_the_command_line_may_be_seconds_or_for_ever() {
        assert_eq!(parse_time("600"), Ok(Duration::from_secs(600)));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_lasting("1h30m"), Ok(Some(Duration::from_secs(5400))));
        for word in ["forever", "Forever", "for ever", "permanent"] {
            assert_eq!(parse_lasting(word), Ok(None), "{word}");
        }
        for text in ["0", "-1", "ever", ""] {
            assert!(parse_lasting(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_limiter_prints_is_read() {
        for seconds in [1, 59, 83, 3600, 5_400, 86_400, 273_600] {
            let duration = Duration::from_secs(seconds);
            let printed = crate::output::number::duration(duration);
            assert_eq!(parse_duration(&printed), Ok(duration), "{printed}");
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
            ("1h30", "duration \"1h30\" has no unit"),
            ("0h 00m", "duration \"0h 00m\" is zero"),
            ("30m1h", "duration \"30m1h\" has the unknown unit \"h\""),
            ("1h1h", "duration \"1h1h\" has the unknown unit \"h\""),
            ("1h x", "duration \"1h x\" does not start with a number"),
            ("52w 3d", "duration \"52w 3d\" is longer than 366 days"),
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
