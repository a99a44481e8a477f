//! Points in time: `2027-01-31T18:00:00Z` (RFC 3339 in UTC), or seconds of Unix time.

const DAY: u64 = 24 * 3600;
/// 9999-12-31T23:59:59Z, the last second of a four-digit year.
const LAST: u64 = 253_402_300_799;

/// Parses a point in time to seconds of Unix time. `None` for other text, and for years before 1970.
///
/// ```
/// use limiter_userspace::policy::document::parse_instant;
///
/// assert_eq!(parse_instant("2027-01-31T18:00:00Z"), Some(1_801_418_400));
/// assert_eq!(parse_instant("1801418400"), Some(1_801_418_400));
/// assert_eq!(parse_instant("2027-02-30T18:00:00Z"), None);
/// ```
pub fn parse_instant(text: &str) -> Option<u64> {
    if !text.is_empty() && text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let shape = "dddd-dd-ddTdd:dd:ddZ";
    let fits = |(byte, form): (u8, u8)| match form {
        b'd' => byte.is_ascii_digit(),
        form => byte == form,
    };
    if text.len() != shape.len() || !text.bytes().zip(shape.bytes()).all(fits) {
        return None;
    }
    let number = |at: usize, length: usize| text.get(at..at + length)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let good = year >= 1970
        && (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let days = days_before(year) + (1..month).map(|month| days_in(year, month)).sum::<u64>() + day;
    good.then(|| (days - 1) * DAY + hour * 3600 + minute * 60 + second)
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
            "2027-01-31",
            "1969-12-31T23:59:59Z",
            "2027-01-31T24:00:00Z",
            "2027-13-01T00:00:00Z",
            "2027-00-01T00:00:00Z",
        ] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_are_read_back(seconds: u64, soon in 0..=LAST) {
            prop_assert_eq!(parse_instant(&format_instant(seconds)), Some(seconds));
            prop_assert_eq!(parse_instant(&format_instant(soon)), Some(soon));
        }
    }
}
