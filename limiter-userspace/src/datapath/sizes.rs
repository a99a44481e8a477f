//! How much an instance has room for.

use aya::util::nr_cpus;
use limiter_common::abi::{
    layout::{TALLIES, map},
    table::{Set, WAYS},
};

use super::maps::Maps;
use crate::error::{Error, Result};

/// Entries of the maps whose size is the operator's choice, made when the first interface is
/// attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Sources that are tracked at once, in sets of [`WAYS`].
    pub sources: u32,
    /// States by other keys than the source that are tracked at once, in sets of [`WAYS`]: connections, prefixes, pairs.
    /// As many new connections are remembered, where those are counted.
    pub buckets: u32,
    /// Logs of events and lists of open connections that are kept at once; each takes a kilobyte.
    pub wide_states: u32,
    /// Profiles and meters of a policy: distinct combinations of what holds for a source, at most one
    /// for each prefix and one for everybody else.
    pub overrides: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { sources: 1 << 20, buckets: 1 << 18, wide_states: 1 << 13, overrides: 1 << 17 }
    }
}

impl Sizes {
    /// Those of an instance.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(maps: &Maps) -> Result<Self> {
        Self::by(|name| maps.capacity(name))
    }

    /// Those of maps with so many entries.
    pub(super) fn by(capacity: impl Fn(&'static str) -> Result<u32>) -> Result<Self> {
        Ok(Self {
            sources: capacity(map::SOURCES)?,
            buckets: capacity(map::BUCKETS)?.saturating_sub(TALLIES),
            wide_states: capacity(map::WIDE_STATE)?,
            overrides: (capacity(map::PROFILES)? / 2).saturating_sub(Self::UNNAMED),
        })
    }

    /// The room for sources, or for buckets, that an instance has which is asked for room for so many: whole sets.
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

    /// The most entries of a map here.
    pub const MOST: u32 = 1 << 26;

    /// Checks the sizes against what the kernel's LRU needs to work, in which the wide states are, and offences and
    /// handshakes, of which there are as many as buckets: it keeps up to 128 free entries to each CPU, and a map that is
    /// hardly larger throws out what was just used. The sources have no less for that.
    ///
    /// # Errors
    /// [`Error::SizeRange`].
    pub fn check(&self) -> Result<()> {
        let cpus = nr_cpus().map_or(1, |cpus| cpus as u32);
        let tracked = cpus.saturating_mul(512).next_power_of_two().max(1024);
        let least = [tracked, tracked, tracked, 1];
        for ((option, asked), least) in self.by_option().into_iter().zip(least) {
            if !(least..=Self::MOST).contains(&asked) {
                return Err(Error::SizeRange { option, asked, least, most: Self::MOST });
            }
        }
        Ok(())
    }
}
