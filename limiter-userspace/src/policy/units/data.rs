//! Units of data, recognised so that they can be refused with what they mean.

/// A unit of bits or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DataUnit {
    /// What its letter stands for, such as mega; empty without one.
    pub(super) scale: &'static str,
    /// The letter as it is properly written.
    pub(super) letter: &'static str,
    /// Whether it is one of those, such as Mbps, that some use for bits and others for bytes.
    pub(super) ambiguous: bool,
}

const SCALES: [(&str, &str, &str); 9] = [
    ("", "", ""),
    ("k", "kilo", "k"),
    ("m", "mega", "M"),
    ("g", "giga", "G"),
    ("t", "tera", "T"),
    ("ki", "kibi", "Ki"),
    ("mi", "mebi", "Mi"),
    ("gi", "gibi", "Gi"),
    ("ti", "tebi", "Ti"),
];

impl DataUnit {
    /// The unit of data that `unit` is, in any letter case.
    pub(super) fn recognise(unit: &str) -> Option<Self> {
        let unit = unit.to_ascii_lowercase();
        SCALES.into_iter().find_map(|(prefix, scale, letter)| {
            let unit = unit.strip_prefix(prefix)?;
            let amount = unit.split('/').next().unwrap_or(unit).trim_ascii_end();
            let ambiguous = unit == "bps";
            let known = ["b", "bit", "bits", "byte", "bytes"].contains(&amount);
            (ambiguous || known).then_some(Self { scale, letter, ambiguous })
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
