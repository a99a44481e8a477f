//! Numbers as people read them.

use std::time::Duration;

const SCALES: [&str; 6] = ["", "k", "M", "G", "T", "P"];

/// Writes a count in full, with commas between thousands: `12,345,678`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a value with three digits and a decimal scale: `0`, `0.25`, `7.5`, `123`, `1.23k`,
/// `45.6M`. A negative value and NaN count as 0.
pub fn scaled(value: f64) -> String {
    let mut value = value.max(0.0);
    let mut scale = 0;
    while value >= 999.5 && scale + 1 < SCALES.len() {
        value /= 1000.0;
        scale += 1;
    }
    if scale == 0 {
        return small(value);
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}{}", SCALES[scale])
}

fn small(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.005 {
        "<0.01".to_owned()
    } else if value < 0.95 {
        format!("{value:.2}")
    } else if value < 9.95 && (value - value.round()).abs() >= 0.05 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Writes bytes per second as bits per second: `812Mbit/s`.
pub fn bit_rate(bytes_per_second: f64) -> String {
    format!("{}bit/s", scaled(bytes_per_second * 8.0))
}

/// Writes an amount of traffic in bytes: `204MB`, in powers of 1000.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn traffic(bytes: u64) -> String {
    format!("{}B", scaled(bytes as f64))
}

/// Writes an amount of memory in bytes: `164MiB`, in powers of 1024.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
pub fn memory(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let decimals = usize::from(value < 9.95 && unit != "B");
    format!("{value:.decimals$}{unit}")
}

/// The form in which amounts are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amounts {
    /// In three or four digits, see [`traffic`] and [`memory`].
    #[default]
    Rounded,
    /// In full: `204,000,123B`.
    Exact,
}

impl Amounts {
    /// Writes an amount of traffic, in bytes.
    pub fn traffic(self, bytes: u64) -> String {
        match self {
            Self::Rounded => traffic(bytes),
            Self::Exact => format!("{}B", grouped(bytes)),
        }
    }

    /// Writes an amount of memory, in bytes.
    pub fn memory(self, bytes: u64) -> String {
        match self {
            Self::Rounded => memory(bytes),
            Self::Exact => format!("{}B", grouped(bytes)),
        }
    }
}

/// Writes a part of a whole in percent. It is rounded down, so that only the whole is `100.0%`.
pub fn share(part: f64, whole: f64) -> String {
    let fraction = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    format!("{:.1}%", (fraction * 1000.0).floor() / 10.0)
}

/// Writes a duration in its two largest units: `800ms`, `1.5s`, `45s`, `1m 23s`, `2h 05m`, `3d
/// 04h`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if !duration.is_zero() => format!("{}ms", duration.as_millis()),
        0..60 if duration.subsec_millis() >= 100 && seconds < 10 => {
            format!("{:.1}s", duration.as_secs_f64())
        }
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Writes a time to wait: below 10 ms with a finer unit, as in `450us` and `2.3ms`, from there on
/// as [`duration`] does. Only zero is written as zero.
pub fn wait(wait: Duration) -> String {
    let nanoseconds = wait.as_nanos();
    match nanoseconds {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}us", nanoseconds / 1_000),
        1_000_000..10_000_000 => format!("{:.1}ms", (nanoseconds / 100_000) as f64 / 10.0),
        _ => duration(wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [0, 999, 1000, 12_345_678, u64::MAX].map(grouped),
            ["0", "999", "1,000", "12,345,678", "18,446,744,073,709,551,615"]
        );
    }

    #[test]
    fn values_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-1.0, "0"),
            (f64::NAN, "0"),
            (0.001, "<0.01"),
            (0.25, "0.25"),
            (1.0, "1"),
            (7.46, "7.5"),
            (9.96, "10"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (1234.0, "1.23k"),
            (9_996.0, "10.0k"),
            (45_600_000.0, "45.6M"),
            (999_600_000.0, "1.00G"),
            (f64::from(u32::MAX) * 1e12, "4294967P"),
        ] {
            assert_eq!(scaled(value), text, "{value}");
        }
        assert_eq!(bit_rate(101_500_000.0), "812Mbit/s");
        assert_eq!(traffic(204_000_000), "204MB");
        assert_eq!(Amounts::Exact.traffic(204_000_123), "204,000,123B");
        assert_eq!(Amounts::default().traffic(204_000_123), "204MB");
        assert_eq!(Amounts::Exact.memory(1 << 20), "1,048,576B");
        assert_eq!(Amounts::default().memory(1 << 20), "1.0MiB");
    }

    #[test]
    fn memory_is_binary() {
        assert_eq!(
            [512, 1024, 171_966_464, 9 << 30].map(memory),
            ["512B", "1.0KiB", "164MiB", "9.0GiB"]
        );
    }

    #[test]
    fn only_all_of_it_is_a_hundred_percent() {
        assert_eq!(share(9_999_999.0, 10_000_000.0), "99.9%");
        assert_eq!(share(1.0, 1.0), "100.0%");
        assert_eq!(share(1.0, 0.0), "0.0%");
    }

    #[test]
    fn a_wait_is_never_shown_as_none() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (1, "1ns"),
            (999, "999ns"),
            (450_900, "450us"),
            (1_290_000, "1.2ms"),
            (9_999_999, "9.9ms"),
            (12_345_678, "12ms"),
            (83_000_000_000, "1m 23s"),
        ] {
            assert_eq!(wait(Duration::from_nanos(nanoseconds)), text);
        }
    }

    #[test]
    fn a_duration_has_two_units() {
        for (milliseconds, text) in [
            (0, "0s"),
            (250, "250ms"),
            (1_000, "1s"),
            (1_500, "1.5s"),
            (59_999, "59s"),
            (83_000, "1m 23s"),
            (7_500_000, "2h 05m"),
            (273_600_000, "3d 04h"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
    }
}
