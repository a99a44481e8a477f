//! Points in time: `2027-01-31T18:00:00Z` (RFC 3339), a date, or seconds of Unix time.

const DAY: u64 = 24 * 3600;
/// 9999-12-31T23:59:59Z, the last second of a four-digit year.
const LAST: u64 = 253_402_300_799;

/// The remedy for a text that is no point in time.
pub const INSTANTS: &str = "give a date, or a time with its offset from UTC, such as 2027-01-31, 2027-01-31T18:00:00Z or \
     2027-01-31 18:00+01:00";

/// Parses a point in time to seconds of Unix time: RFC 3339, also with a space for the `T` and without seconds, a
/// date alone, which begins at 00:00 UTC, or seconds of Unix time. Fractions of a second are left out. `None` for other
/// text, and for years before 1970.
///
/// ```
/// use limiter_userspace::policy::document::parse_instant;
///
/// assert_eq!(parse_instant("2027-01-31T18:00:00Z"), Some(1_801_418_400));
/// assert_eq!(parse_instant("2027-01-31T19:00:00+01:00"), Some(1_801_418_400));
/// assert_eq!(parse_instant("2027-01-31"), Some(1_801_353_600));
/// assert_eq!(parse_instant("1801418400"), Some(1_801_418_400));
/// assert_eq!(parse_instant("2027-02-30T18:00:00Z"), None);
/// assert_eq!(parse_instant("2027-01-31T18:00:00"), None, "in which time zone?");
/// ```
pub fn parse_instant(text: &str) -> Option<u64> {
    if !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (text.get(..at)?, text.get(at + 1..)),
        None => (text, None),
    };
    let (year, date) = number(date, 4)?;
    let (month, date) = number(date.strip_prefix('-')?, 2)?;
    let (day, rest) = number(date.strip_prefix('-')?, 2)?;
    let valid = rest.is_empty()
        && year >= 1970
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day);
    if !valid {
        return None;
    }
    let days = days_before(year) + (1..month).map(|month| days_in(year, month)).sum::<u64>() + day;
    (days - 1).checked_mul(DAY)?.checked_add_signed(time.map_or(Some(0), time_of_day)?)
}

/// Parses a time of day with its offset from UTC, to the seconds since the day began in UTC.
fn time_of_day(text: &str) -> Option<i64> {
    let (hour, rest) = number(text, 2)?;
    let (minute, rest) = number(rest.strip_prefix(':')?, 2)?;
    let (second, rest) = match rest.strip_prefix(':') {
        Some(rest) => number(rest, 2)?,
        None => (0, rest),
    };
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
            (rest.len() < fraction.len()).then_some(rest)?
        }
        None => rest,
    };
    let zone = rest.trim_start();
    let seconds = |hour: u64, minute: u64| (hour * 3600 + minute * 60).cast_signed();
    let offset = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), offset) => {
            let (hour, rest) = number(offset, 2)?;
            let (minute, rest) = number(rest.strip_prefix(':').unwrap_or(rest), 2)?;
            if !rest.is_empty() || hour >= 24 || minute >= 60 {
                return None;
            }
            if sign == "+" { seconds(hour, minute) } else { -seconds(hour, minute) }
        }
        _ => return None,
    };
    let valid = hour < 24 && minute < 60 && second < 60;
    valid.then(|| seconds(hour, minute) + second.cast_signed() - offset)
}

/// The number of exactly `digits` digits that a text begins with, and what follows it.
fn number(text: &str, digits: usize) -> Option<(u64, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit());
    plain.then_some((number.parse().ok()?, rest))
}

/// Formats seconds of Unix time as [`parse_instant`] reads them: in UTC, or as a number after the year 9999.
pub fn format_instant(seconds: u64) -> String {
    if seconds > LAST {
        return seconds.to_string();
    }
    let (mut day, rest) = (seconds / DAY, seconds % DAY);
    let mut year = 1970 + day / 366;
    while days_before(year + 1) <= day {
        year += 1;
    }
    day -= days_before(year);
    let mut month = 1;
    while day >= days_in(year, month) {
        day -= days_in(year, month);
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

/// Days from 1970-01-01 to the first day of `year`, from 1970 on.
const fn days_before(year: u64) -> u64 {
    let past = year.saturating_sub(1);
    let leap = past / 4 - past / 100 + past / 400;
    // 477 leap years before 1970.
    (year.saturating_sub(1970)) * 365 + leap.saturating_sub(477)
}

const fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_those_of_the_clock() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2027-01-31T18:00:00Z", 1_801_418_400),
            ("9999-12-31T23:59:59Z", LAST),
        ] {
            assert_eq!(parse_instant(text), Some(seconds), "{text}");
            assert_eq!(format_instant(seconds), text);
        }
        for text in [
            "",
            "now",
            "2027-02-29T00:00:00Z",
            "2027-01-32",
            "2027-1-31",
            "20270-01-31",
            "2027-01-311",
            "2027-01-31T",
            "2027-01-31T18",
            "2027-01-31T18:00",
            "2027-01-31T18:00:00",
            "2027-01-31T18:00:60Z",
            "2027-01-31T18:00:00.Z",
            "2027-01-31T18:00:00ZZ",
            "2027-01-31T18:00:00+1",
            "2027-01-31T18:00:00+24:00",
            "2027-01-31T18:00:00+01:60",
            "2027-01-31T18:00:00 CET",
            "1970-01-01T00:00:00+01:00",
            "2027-01-31\u{e9}18:00Z",
            "1969-12-31T23:59:59Z",
            "2027-01-31T24:00:00Z",
            "2027-13-01T00:00:00Z",
            "2027-00-01T00:00:00Z",
        ] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }

    #[test]
    fn offsets_dates_and_short_forms_are_read() {
        let at = parse_instant("2027-01-31T18:00:00Z");
        for text in [
            "2027-01-31T19:00:00+01:00",
            "2027-01-31T19:00:00+0100",
            "2027-01-31T12:30:00-05:30",
            "2027-02-01T03:00:00+09:00",
            "2027-01-31 18:00:00Z",
            "2027-01-31 18:00Z",
            "2027-01-31 19:00 +01:00",
            "2027-01-31t18:00:00z",
            "2027-01-31T18:00:00.999Z",
        ] {
            assert_eq!(parse_instant(text), at, "{text}");
        }
        assert_eq!(parse_instant("2027-01-31"), parse_instant("2027-01-31T00:00:00Z"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).*|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]?[0-9:.]{0,12}[-+Zz]?[0-9:]{0,6}") {
            let _ = parse_instant(&text);
        }

        #[test]
        fn times_are_read_back(seconds: u64, soon in 0..=LAST) {
            prop_assert_eq!(parse_instant(&format_instant(seconds)), Some(seconds));
            prop_assert_eq!(parse_instant(&format_instant(soon)), Some(soon));
        }
    }
}
