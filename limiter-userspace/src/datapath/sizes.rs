//! How much an instance has room for.

use aya::util::nr_cpus;
use limiter_common::abi::{
    description::Description,
    layout::{TALLIES, map},
    table::{Set, WAYS},
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Entries of the maps whose size is the operator's choice, made when the first interface is
/// attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Sources that are tracked at once, in sets of [`WAYS`].
    pub sources: u32,
    /// States by other keys than the source that are tracked at once, in sets of [`WAYS`]: connections, prefixes, pairs.
    /// As many new connections are remembered, where those are counted.
    pub buckets: u32,
    /// Logs of events and lists of open connections that are kept at once, in sets of [`WAYS`]; each takes a kilobyte.
    pub wide_states: u32,
    /// Profiles and meters of a policy: distinct combinations of what holds for a source, at most one
    /// for each prefix and one for everybody else.
    pub overrides: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self::for_sources(1 << 20)
    }
}

impl Sizes {
    /// Room for so many sources, and in proportion for all else: a bucket by another key for 4 of them, an override for 16,
    /// a wide state for 128. No size is less than can be asked for on this machine.
    pub fn for_sources(sources: u32) -> Self {
        Self::for_cpus(sources, cpus())
    }

    fn for_cpus(sources: u32, cpus: u32) -> Self {
        let [_, buckets, wide_states, _] = Self::least(cpus);
        Self {
            sources,
            buckets: (sources / 4).max(buckets),
            wide_states: (sources / 128).max(wide_states),
            overrides: (sources / 16).max(Self::FEWEST_OVERRIDES),
        }
    }

    /// Those of maps with this description and so many entries.
    pub(super) fn by(
        layout: &Description,
        capacity: impl Fn(&'static str) -> Result<u32>,
    ) -> Result<Self> {
        Ok(Self {
            sources: capacity(map::SOURCES)?,
            buckets: capacity(map::BUCKETS)?
                .saturating_sub(TALLIES + layout.wide_sets.saturating_mul(WAYS as u32)),
            wide_states: match layout.wide_states {
                0 => capacity(map::WIDE_STATE)?,
                asked => asked,
            },
            overrides: (capacity(map::PROFILES)? / 2).saturating_sub(Self::UNNAMED),
        })
    }

    /// The room for sources, buckets or wide states that an instance has which is asked for room for so many: whole sets.
    pub const fn whole_sets(entries: u32) -> u32 {
        let sets = Set::count(entries);
        sets.saturating_mul(WAYS as u32)
    }

    /// Each with the option of `limiter attach` that sets it.
    pub const fn by_option(&self) -> [(&'static str, u32); 4] {
        [
            ("--sources", self.sources),
            ("--buckets", self.buckets),
            ("--wide-states", self.wide_states),
            ("--overrides", self.overrides),
        ]
    }

    /// Profiles beside those that `overrides` counts: that of the overflow entries.
    pub(super) const UNNAMED: u32 = 1;

    /// Overrides that there is room for unless fewer are asked for.
    const FEWEST_OVERRIDES: u32 = 1 << 12;

    /// The most entries of a map here.
    pub const MOST: u32 = 1 << 26;

    /// The least of each size, in the order of [`by_option`](Self::by_option): what the kernel's LRU needs to work, in which
    /// are the ends of connections, four for each wide state. It keeps up to 128 free
    /// entries to each CPU, and a map that is hardly larger throws out what was just used. The others have no less for that.
    fn least(cpus: u32) -> [u32; 4] {
        let tracked = cpus.saturating_mul(512).next_power_of_two().max(1024);
        [tracked, tracked, tracked, 1]
    }

    /// Checks the sizes against what can be asked for on this machine.
    ///
    /// # Errors
    /// [`Error::SizeRange`].
    pub fn check(&self) -> Result<()> {
        self.check_for(cpus())
    }

    fn check_for(&self, cpus: u32) -> Result<()> {
        for ((option, asked), least) in self.by_option().into_iter().zip(Self::least(cpus)) {
            if !(least..=Self::MOST).contains(&asked) {
                return Err(Error::SizeRange { option, asked, least, most: Self::MOST });
            }
        }
        Ok(())
    }
}

/// CPUs that the kernel has room for.
fn cpus() -> u32 {
    nr_cpus().map_or(1, |cpus| cpus as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usual_can_be_had_on_any_machine() {
        for cpus in [1, 2, 16, 17, 64, 256, 1_024] {
            let [least, ..] = Sizes::least(cpus);
            for sources in [1 << 20, 1 << 16, least] {
                Sizes::for_cpus(sources.max(least), cpus).check_for(cpus).unwrap();
            }
        }
    }

    #[test]
    fn all_sizes_go_with_that_of_the_sources() {
        let by_sources = |sources| Sizes::for_cpus(sources, 2).by_option().map(|(_, size)| size);
        assert_eq!(by_sources(1 << 20), [1 << 20, 1 << 18, 1 << 13, 1 << 16]);
        assert_eq!(by_sources(1 << 16), [1 << 16, 1 << 14, 1 << 10, 1 << 12]);
        assert_eq!(by_sources(1 << 10), [1 << 10, 1 << 10, 1 << 10, 1 << 12]);
    }
}
