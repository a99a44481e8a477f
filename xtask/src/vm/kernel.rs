//! The kernels that are booted, and what is tested on each.

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
    /// The backports of Debian 13: the program-run tests
    #[value(name = "7.3")]
    V7_3,
}

impl Kernel {
    /// The kernels that are booted by default: the oldest supported one, the most common one, and the newest.
    /// Linux 5.10 is not among them, because Debian may remove it at any time.
    pub(crate) const DEFAULT: [Self; 3] = [Self::V6_1, Self::V6_12, Self::V7_3];

    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_3 => "7.3",
        }
    }

    /// The name in the table of suites.
    pub(super) const fn suite(self) -> &'static str {
        match self {
            Self::V5_10 => "vm 5.10",
            Self::V6_1 => "vm 6.1",
            Self::V6_12 => "vm 6.12",
            Self::V7_3 => "vm 7.3",
        }
    }

    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::V5_10 => "a kernel that is too old, to see that limiter says so",
            Self::V6_1 => "a kernel that the programs have to load and run on: Debian 12",
            Self::V6_12 => "a kernel that the programs have to load and run on: Debian 13",
            Self::V7_3 => "the newest kernel that the programs have to load and run on",
        }
    }

    /// The Debian release whose archive has the package; `None` for the release of this machine.
    pub(super) const fn release(self) -> Option<&'static str> {
        match self {
            Self::V5_10 => Some("bullseye"),
            Self::V6_1 | Self::V6_12 => None,
            Self::V7_3 => Some("trixie-backports"),
        }
    }

    /// The newest of these packages that has this kernel.
    pub(super) fn newest<'a>(self, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        let prefix = format!("{}.", self.prefix());
        names
            .filter(|name| name.starts_with(&prefix) && name.ends_with("-cloud-amd64"))
            .max_by_key(|name| numbers(name))
    }

    /// The prefix of the names of its packages.
    ///
    /// Since 7.0, `linux-image-*` is empty and depends on the package with the image.
    pub(super) fn prefix(self) -> String {
        let package = match self {
            Self::V5_10 | Self::V6_1 | Self::V6_12 => "linux-image",
            Self::V7_3 => "linux-binary",
        };
        format!("{package}-{}", self.version())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.version())
    }
}

/// The numbers in a name, to compare versions with.
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
            "linux-image-7.3.6+deb13-cloud-amd64",
            "linux-binary-7.3.4+deb13-cloud-amd64",
            "linux-binary-7.3.4+deb13-rt-amd64",
            "linux-binary-7.30.1+deb13-cloud-amd64",
        ];
        let newest = |kernel: Kernel| kernel.newest(names.into_iter());
        assert_eq!(newest(Kernel::V6_1), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(newest(Kernel::V6_12), Some("linux-image-6.12.117+deb12-cloud-amd64"));
        assert_eq!(newest(Kernel::V7_3), Some("linux-binary-7.3.4+deb13-cloud-amd64"));
        assert_eq!(newest(Kernel::V5_10), None);
    }
}
