//! Numbers that are shown.

/// How counts are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notation {
    /// Rounded, with a decimal multiplier: `1.2 M`.
    #[default]
    Human,
    /// In full.
    Raw,
}

impl Notation {
    /// A count, such as `1.2 M`.
    pub fn count(self, value: u64) -> String {
        self.with_unit(value, ["", "k", "M", "G", "T", "P", "E"])
    }

    /// An amount of data, such as `1.2 MB`; multipliers are decimal.
    pub fn bytes(self, value: u64) -> String {
        self.with_unit(value, ["B", "kB", "MB", "GB", "TB", "PB", "EB"])
    }

    fn with_unit(self, value: u64, units: [&str; 7]) -> String {
        let [smallest, larger @ ..] = units;
        if self == Self::Raw {
            return value.to_string();
        }
        if value < 1_000 {
            return format!("{value} {smallest}").trim_end().to_owned();
        }
        let mut scale = 1_000;
        let mut unit = larger[0];
        for next in &larger[1..] {
            if rounded(value, scale) < 1_000 {
                break;
            }
            scale *= 1_000;
            unit = next;
        }
        match rounded(value, scale / 10) {
            tenths if tenths < 1_000 => format!("{}.{} {unit}", tenths / 10, tenths % 10),
            _ => format!("{} {unit}", rounded(value, scale)),
        }
    }
}

/// `value` in units of `scale`, rounded to the nearest.
const fn rounded(value: u64, scale: u64) -> u64 {
    value / scale + (value % scale >= scale / 2) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0 k"),
            (1_249, "1.2 k"),
            (1_250, "1.3 k"),
            (99_949, "99.9 k"),
            (99_950, "100 k"),
            (123_456, "123 k"),
            (999_499, "999 k"),
            (999_500, "1.0 M"),
            (1_234_567, "1.2 M"),
            (u64::MAX, "18.4 E"),
        ] {
            assert_eq!(Notation::Human.count(value), text, "{value}");
            assert_eq!(Notation::Raw.count(value), value.to_string());
        }
        assert_eq!(Notation::Human.bytes(0), "0 B");
        assert_eq!(Notation::Human.bytes(64), "64 B");
        assert_eq!(Notation::Human.bytes(1_500_000), "1.5 MB");
        assert_eq!(Notation::Raw.bytes(1_500_000), "1500000");
    }
}
