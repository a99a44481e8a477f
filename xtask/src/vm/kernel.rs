//! The kernels that are booted, and what each is to show.

use std::fmt;

use clap::ValueEnum;

/// A version of Linux, as Debian builds it for virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernel {
    /// Debian 11: too old, which `limiter attach` has to say
    #[value(name = "5.10")]
    V5_10,
    /// Debian 12: the program-run tests
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13, and an option in Debian 12: the program-run tests
    #[value(name = "6.12")]
    V6_12,
}

impl Kernel {
    /// What is booted when nothing else is asked for. The oldest is in no release of Debian that
    /// apt's sources have, and may go from its archive any day.
    pub(crate) const DEFAULT: [Self; 2] = [Self::V6_1, Self::V6_12];

    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// The row of the table of suites.
    pub(super) const fn suite(self) -> &'static str {
        match self {
            Self::V5_10 => "vm 5.10",
            Self::V6_1 => "vm 6.1",
            Self::V6_12 => "vm 6.12",
        }
    }

    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::V5_10 => "a kernel that is too old, to see that limiter says so",
            Self::V6_1 => "a kernel that the programs have to load and run on: Debian 12",
            Self::V6_12 => "a kernel that the programs have to load and run on: Debian 13",
        }
    }

    /// The release of Debian whose archive has it, when that is older than this machine's.
    pub(super) const fn release(self) -> Option<&'static str> {
        match self {
            Self::V5_10 => Some("bullseye"),
            Self::V6_1 | Self::V6_12 => None,
        }
    }

    /// Of the names of packages, the newest that has this kernel.
    pub(super) fn newest<'a>(self, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        let prefix = format!("{}.", self.prefix());
        names
            .filter(|name| name.starts_with(&prefix) && name.ends_with("-cloud-amd64"))
            .max_by_key(|name| numbers(name))
    }

    /// What the names of its packages begin with.
    pub(super) fn prefix(self) -> String {
        format!("linux-image-{}", self.version())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.version())
    }
}

/// The numbers in a name, by which versions are in their order.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|letter: char| !letter.is_ascii_digit()).filter_map(|run| run.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_taken_by_number_and_not_by_letter() {
        let names = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-57-cloud-amd64-dbg",
            "linux-image-6.1.0-58-cloud-amd64-unsigned",
            "linux-image-6.1.0-59-amd64",
            "linux-image-6.12.99+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12-cloud-amd64",
        ];
        let newest = |kernel: Kernel| kernel.newest(names.into_iter());
        assert_eq!(newest(Kernel::V6_1), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(newest(Kernel::V6_12), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(newest(Kernel::V5_10), None);
    }
}
