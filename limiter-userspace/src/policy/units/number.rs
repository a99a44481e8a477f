//! Exact decimal numbers.

use super::error::Fault;

/// The most digits of a number; enough for every `u64`.
const DIGITS: usize = 20;

/// The most digits of an exponent.
const EXPONENT_DIGITS: usize = 2;

/// A decimal number that is not negative: `digits / divisor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: u128,
    /// A power of ten.
    divisor: u128,
}

impl Decimal {
    /// Splits a text into a number and what follows it, without spaces around either. Commas may group thousands,
    /// as in `10,000`; an exponent may follow, as in `1e6`.
    pub(super) fn split(text: &str) -> Result<(Self, &str), Fault> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(Fault::Empty);
        }
        if text.starts_with('-') {
            return Err(Fault::Negative);
        }
        let (whole, rest) = thousands(text);
        let whole = whole.replace(',', "");
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("0", rest),
        };
        if whole.is_empty() || fraction.is_empty() {
            return Err(Fault::NotANumber);
        }
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        if whole.len() > DIGITS {
            return Err(Fault::TooLarge);
        }
        if whole.len() + fraction.len() > DIGITS {
            return Err(Fault::TooPrecise);
        }
        let (mut digits, mut divisor) = (0, 1);
        for digit in whole.bytes().chain(fraction.bytes()) {
            digits = digits * 10 + u128::from(digit - b'0');
        }
        for _ in fraction.bytes() {
            divisor *= 10;
        }
        let (exponent, rest) = exponent(rest)?;
        for _ in 0..exponent {
            match divisor {
                1 => digits *= 10,
                _ => divisor /= 10,
            }
            if digits >= 10_u128.pow(DIGITS as u32) {
                return Err(Fault::TooLarge);
            }
        }
        Ok((Self { digits, divisor }, rest.trim_ascii_start()))
    }

    /// The number times `factor`, as a reduced fraction.
    pub(super) fn times(self, factor: u64) -> (u128, u128) {
        // 10^20 * 2^64 is below 2^128.
        let digits = self.digits * u128::from(factor);
        let common = gcd(digits, self.divisor);
        (digits / common, self.divisor / common)
    }

    /// The number times `factor`; a fault if that is not a whole number of 64 bits.
    pub(super) fn whole(self, factor: u64) -> Result<u64, Fault> {
        let (value, divisor) = self.times(factor);
        if divisor > 1 {
            return Err(Fault::NotWhole);
        }
        u64::try_from(value).map_err(|_| Fault::TooLarge)
    }
}

/// Splits the decimal multiplier (`k`, `K`, `M` or `G`) off a unit; 1 if it has none.
pub(super) fn multiplier(unit: &str) -> (u64, &str) {
    let factor = match unit.bytes().next() {
        Some(b'k' | b'K') => 1_000,
        Some(b'M') => 1_000_000,
        Some(b'G') => 1_000_000_000,
        _ => return (1, unit),
    };
    (factor, unit[1..].trim_ascii_start())
}

/// Formats `value` with the largest multiplier that leaves at most three decimals. Nothing is rounded.
pub(super) fn with_multiplier(value: u64) -> (String, &'static str) {
    let scales = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    for (scale, letter) in scales {
        if value >= scale && value.is_multiple_of(scale / 1_000) {
            let thousandths = value % scale / (scale / 1_000);
            let number = format!("{}.{thousandths:03}", value / scale);
            let number = number.trim_end_matches('0').trim_end_matches('.');
            return (number.to_owned(), letter);
        }
    }
    (value.to_string(), "")
}

/// The digits that a text begins with, with the commas between groups of three of them.
fn thousands(text: &str) -> (&str, &str) {
    let (first, rest) = digits(text);
    if !(1..=3).contains(&first.len()) || first.starts_with('0') {
        return (first, rest);
    }
    let mut end = first.len();
    while let Some(group) = text[end..].strip_prefix(',')
        && digits(group).0.len() == 3
    {
        end += 4;
    }
    text.split_at(end)
}

/// The exponent that a text begins with; 0 if it has none.
fn exponent(text: &str) -> Result<(usize, &str), Fault> {
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return Ok((0, text)) };
    let (exponent, rest) = digits(rest.strip_prefix('+').unwrap_or(rest));
    match exponent.len() {
        0 => Ok((0, text)),
        1..=EXPONENT_DIGITS => {
            exponent.parse().map(|exponent| (exponent, rest)).map_err(|_| Fault::TooLarge)
        }
        _ => Err(Fault::TooLarge),
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The greatest common divisor of `a` and `b`; `b` is not zero.
const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Result<u64, Fault> {
        let (number, rest) = Decimal::split(text)?;
        let (factor, rest) = multiplier(rest);
        assert_eq!(rest, "");
        number.whole(factor)
    }

    #[test]
    fn numbers_are_exact() {
        for (text, value) in [
            ("0", 0),
            ("000", 0),
            ("0.000", 0),
            ("7", 7),
            (" 7 ", 7),
            ("007", 7),
            ("1.5k", 1_500),
            ("1.50 K", 1_500),
            ("0.001k", 1),
            ("2M", 2_000_000),
            ("1.000000001G", 1_000_000_001),
            ("10,000", 10_000),
            ("1,234,567.5k", 1_234_567_500),
            ("1e6", 1_000_000),
            ("1.5E+3", 1_500),
            ("2.5e1k", 25_000),
            ("0e99", 0),
            ("18446744073709551615", u64::MAX),
            ("18446744073.709551615G", u64::MAX),
        ] {
            assert_eq!(whole(text), Ok(value), "{text}");
        }
        for (text, fault) in [
            ("", Fault::Empty),
            ("  ", Fault::Empty),
            ("-1", Fault::Negative),
            ("k", Fault::NotANumber),
            (".5", Fault::NotANumber),
            ("5.", Fault::NotANumber),
            ("+5", Fault::NotANumber),
            ("NaN", Fault::NotANumber),
            ("inf", Fault::NotANumber),
            ("１０", Fault::NotANumber),
            ("٣", Fault::NotANumber),
            ("1.25e1", Fault::NotWhole),
            ("1e20", Fault::TooLarge),
            ("1e999", Fault::TooLarge),
            ("1.5", Fault::NotWhole),
            ("1.0001k", Fault::NotWhole),
            ("18446744073709551616", Fault::TooLarge),
            ("99999999999999999999G", Fault::TooLarge),
            ("100000000000000000000", Fault::TooLarge),
            ("0.000000000000000000001", Fault::TooPrecise),
        ] {
            assert_eq!(whole(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn a_comma_or_an_exponent_that_may_mean_something_else_is_left() {
        for (text, left) in [
            ("1,5", ",5"),
            ("1,0000", ",0000"),
            ("0,500", ",500"),
            ("1234,567", ",567"),
            ("1,234,5", ",5"),
            ("1e", "e"),
            ("1e-3", "e-3"),
            ("1every", "every"),
        ] {
            assert_eq!(Decimal::split(text).unwrap().1, left, "{text}");
        }
    }

    #[test]
    fn a_multiplier_never_rounds() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1k"),
            (1_500, "1.5k"),
            (1_234_567, "1234.567k"),
            (1_234_000, "1.234M"),
            (1_000_000_000, "1G"),
            (1_000_000_001, "1000000.001k"),
            (1_250_000_000, "1.25G"),
        ] {
            let (number, letter) = with_multiplier(value);
            assert_eq!(format!("{number}{letter}"), expected);
            assert_eq!(whole(expected), Ok(value));
        }
    }
}
