//! Units of data. Limits of bytes read them; limits of packets refuse them with their meaning.

/// A unit of bits or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataUnit {
    /// The name of its prefix, such as mega; empty without one.
    pub(super) scale: &'static str,
    /// The letters of its prefix, in their proper case.
    pub(super) letter: &'static str,
    /// Whether it is a unit such as Mbps, which some use for bits and others for bytes.
    pub(super) ambiguous: bool,
    /// The factor of its prefix.
    pub(super) factor: u64,
    /// Whether it is a unit of bits.
    pub(super) bits: bool,
}

const SCALES: [(&str, &str, &str, u64); 9] = [
    ("", "", "", 1),
    ("k", "kilo", "k", 1_000),
    ("m", "mega", "M", 1_000_000),
    ("g", "giga", "G", 1_000_000_000),
    ("t", "tera", "T", 1_000_000_000_000),
    ("ki", "kibi", "Ki", 1 << 10),
    ("mi", "mebi", "Mi", 1 << 20),
    ("gi", "gibi", "Gi", 1 << 30),
    ("ti", "tebi", "Ti", 1 << 40),
];

impl DataUnit {
    /// Parses a unit of data, in any case; `None` for other units.
    pub(super) fn recognise(unit: &str) -> Option<Self> {
        let unit = unit.to_ascii_lowercase();
        SCALES.into_iter().find_map(|(prefix, scale, letter, factor)| {
            let unit = unit.strip_prefix(prefix)?;
            let amount = unit.split('/').next().unwrap_or(unit).trim_ascii_end();
            let ambiguous = unit == "bps";
            let known = ["b", "bit", "bits", "byte", "bytes"].contains(&amount);
            let bits = amount.starts_with("bit");
            (ambiguous || known).then_some(Self { scale, letter, ambiguous, factor, bits })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_told_from_packets() {
        for unit in ["bps", "kbps", "Mbps", "MBps", "Gbps", "MiBps", "Tbps"] {
            assert!(DataUnit::recognise(unit).is_some_and(|unit| unit.ambiguous), "{unit}");
        }
        for unit in ["bit/s", "Mbit/s", "mbit", "MB/s", "MiB/s", "B", "kB", "bytes/second", "k b"] {
            let found = DataUnit::recognise(unit);
            assert_eq!(found.is_some_and(|unit| !unit.ambiguous), unit != "k b", "{unit}");
        }
        for unit in ["", "pps", "kpps", "packets/s", "/s", "k", "M", "min", "bananas", "ms"] {
            assert_eq!(DataUnit::recognise(unit), None, "{unit}");
        }
    }
}
