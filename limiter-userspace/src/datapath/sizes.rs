//! How much an instance has room for.

use aya::util::nr_cpus;
use limiter_common::{
    abi::{
        description::Description,
        layout::{TALLIES, map},
        table::{ENTRY_PLACES, FurtherLimits, Set, Source, WAYS},
    },
    policy::limit::LIMITS,
};
use serde::{Deserialize, Serialize};

use super::memory;
use crate::{
    error::{Error, Failure, INVALID, Result},
    output::number::grouped,
    policy::Tables,
};

/// Entries of the maps whose size is the operator's choice, made when the first interface is
/// attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Sources that are tracked at once, in sets of [`WAYS`].
    pub sources: u32,
    /// States by other keys than the source that are tracked at once, in sets of [`WAYS`], once they are made: connections,
    /// prefixes, pairs. As many new connections are remembered, where those are counted.
    pub buckets: u32,
    /// Logs of events and lists of open connections that are kept at once, in sets of [`WAYS`]; each takes a kilobyte.
    pub wide_states: u32,
    /// Profiles and meters of a policy: distinct combinations of what holds for a source, at most one
    /// for each prefix and one for everybody else.
    pub overrides: u32,
    /// Whether there is room for more inline limits of a source than its entry has.
    pub further: bool,
    /// Whether the buckets are made, and not only those that limits with `key: all` need.
    pub buckets_made: bool,
}

/// A policy was refused, as it needs more room than the instance has. An exchange of the tables makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy needs more room than there is: for {}", self.missing())]
pub struct NoRoom {
    /// What the instance has.
    pub has: Sizes,
    /// The same, or as much as the policy needs where that is more.
    pub needed: Sizes,
}

impl NoRoom {
    fn missing(&self) -> String {
        let Self { has, needed } = self;
        let overrides = || {
            let [has, needed] = [has, needed].map(|it| grouped(it.overrides.into()));
            format!("{needed} overrides (there is room for {has})")
        };
        let further = || format!("more than {ENTRY_PLACES} limits with the key `source`");
        let buckets = || "buckets of other keys than `all`".to_owned();
        [
            (needed.overrides > has.overrides).then(overrides),
            (needed.further && !has.further).then(further),
            (needed.buckets_made && !has.buckets_made).then(buckets),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("; for ")
    }
}

impl Failure for NoRoom {
    fn exit_code(&self) -> u8 {
        INVALID
    }

    fn remedy(&self) -> Option<String> {
        let Self { has, needed } = self;
        Some(if needed.overrides > has.overrides {
            format!(
                "make room with `limiter attach IFACE --overrides {}` or more, for an interface that is attached",
                needed.overrides.next_power_of_two()
            )
        } else {
            "make room with `limiter policy apply`".to_owned()
        })
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self::for_sources(1 << 20)
    }
}

impl Sizes {
    /// What an instance has room for unless it is asked for something else: the usual sizes, or less where those would take
    /// more than a 32nd of the memory of this machine, or of the control groups of this process.
    pub fn for_host() -> Self {
        memory::total().map_or_else(Self::default, |memory| Self::for_memory(memory, cpus()))
    }

    /// The largest of the usual sizes whose maps take at most a 32nd of so many bytes, with the number of sources a power of
    /// two; the least that can be asked for if none does.
    fn for_memory(memory: u64, cpus: u32) -> Self {
        let [least, ..] = Self::least(cpus);
        let mut sources = Self::default().sources;
        while sources / 2 >= least && Self::for_cpus(sources, cpus).bytes(cpus) > memory / 32 {
            sources /= 2;
        }
        Self::for_cpus(sources, cpus)
    }

    /// About how many bytes the maps of these sizes take, those that only some policies need included: the entries of
    /// section 3 of ARCHITECTURE.md.
    fn bytes(&self, cpus: u32) -> u64 {
        /// Sets, debts, and the untracked allowance of a set, for each entry.
        const SET: u64 = (64 + 64 + 8) / WAYS as u64;
        /// What does not go by the sizes, and what each CPU has.
        const FIXED: u64 = 5 << 20;
        const CPU: u64 = 160 << 10;
        let [sources, buckets, wide_states, overrides, cpus] =
            [self.sources, self.buckets, self.wide_states, self.overrides, cpus].map(u64::from);
        let offences = buckets * 2 * 64;
        let wide = wide_states * (1024 + 64 + 16 + SET + 4 * 44);
        let entry = (size_of::<Source>() + size_of::<FurtherLimits>()) as u64;
        sources * (entry + SET)
            + buckets * (64 + 16 + 16 + SET)
            + offences
            + wide
            + overrides * 2 * (128 + 64)
            + FIXED
            + cpus * CPU
    }

    /// About how many bytes the maps take on this machine.
    pub fn bytes_here(&self) -> u64 {
        self.bytes(cpus())
    }

    /// Room for so many sources, and in proportion for all else: a bucket by another key for 4 of them, an override for 64,
    /// a wide state for 128. No size is less than can be asked for on this machine.
    pub fn for_sources(sources: u32) -> Self {
        Self::for_cpus(sources, cpus())
    }

    /// The least room that can be asked for on this machine, but for so many overrides or the usual number.
    pub fn smallest() -> Self {
        let [sources, buckets, wide_states, _] = Self::least(cpus());
        let overrides = Self::FEWEST_OVERRIDES;
        Self { sources, buckets, wide_states, overrides, further: false, buckets_made: false }
    }

    fn for_cpus(sources: u32, cpus: u32) -> Self {
        let [_, buckets, wide_states, _] = Self::least(cpus);
        Self {
            sources,
            buckets: (sources / 4).max(buckets),
            wide_states: (sources / 128).max(wide_states),
            overrides: (sources / 64).max(Self::FEWEST_OVERRIDES),
            further: false,
            buckets_made: false,
        }
    }

    /// As much room, or as much as a policy needs where that is more.
    pub(super) fn needed_by(self, tables: &Tables) -> Self {
        let profiles = tables.profiles.len().saturating_sub(Self::UNNAMED as usize);
        let meters = tables.meters.len().saturating_sub(Self::METERS_OF_LIMITS as usize);
        let overrides = u32::try_from(profiles.max(meters)).unwrap_or(u32::MAX);
        Self {
            overrides: self.overrides.max(overrides),
            further: self.further || tables.places() > ENTRY_PLACES,
            buckets_made: self.buckets_made || tables.needs_buckets(),
            ..self
        }
    }

    /// The same with the room for want of which a policy was refused, and more overrides than that. None of the sizes is less.
    #[must_use]
    pub(super) fn enlarged(self, refused: &NoRoom) -> Self {
        let NoRoom { needed, .. } = refused;
        Self {
            overrides: match needed.overrides {
                needed if needed > self.overrides => needed.next_power_of_two(),
                _ => self.overrides,
            },
            further: self.further || needed.further,
            buckets_made: self.buckets_made || needed.buckets_made,
            ..self
        }
    }

    /// Sets of buckets that are made.
    pub(super) const fn bucket_sets(&self) -> u32 {
        Set::count(if self.buckets_made { self.buckets } else { Self::BUCKETS_OF_ALL })
    }

    /// Sets of buckets in a map of buckets with so many entries, and this description.
    pub(super) const fn bucket_sets_in(entries: u32, layout: &Description) -> u32 {
        (entries.saturating_sub(TALLIES) / WAYS as u32).saturating_sub(layout.wide_sets)
    }

    /// Those of maps with this description and so many entries.
    pub(super) fn by(
        layout: &Description,
        further: bool,
        capacity: impl Fn(&'static str) -> Result<u32>,
    ) -> Result<Self> {
        let buckets = Self::bucket_sets_in(capacity(map::BUCKETS)?, layout) * WAYS as u32;
        Ok(Self {
            sources: capacity(map::SOURCES)?.saturating_sub(layout.source_first),
            buckets: buckets.max(layout.buckets),
            wide_states: match layout.wide_states {
                0 => capacity(map::WIDE_STATE)?,
                asked => asked,
            },
            overrides: (capacity(map::PROFILES)? / 2).saturating_sub(Self::UNNAMED),
            further,
            buckets_made: buckets >= layout.buckets,
        })
    }

    /// The room for sources, buckets or wide states that an instance has which is asked for room for so many: whole sets.
    pub const fn whole_sets(entries: u32) -> u32 {
        let sets = Set::count(entries);
        sets.saturating_mul(WAYS as u32)
    }

    /// Those that an instance has which is asked for these.
    pub const fn in_whole_sets(self) -> Self {
        Self {
            sources: Self::whole_sets(self.sources),
            buckets: Self::whole_sets(self.buckets),
            wide_states: Self::whole_sets(self.wide_states),
            ..self
        }
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

    /// Buckets before they are made for other keys. A limit with `key: all` has one. Those of two policies, one of which is on
    /// trial, are so few of these that they do not fill a set.
    const BUCKETS_OF_ALL: u32 = 16 * LIMITS;

    /// Meters beside those of overrides: two for each limit (its own, and that of its shared bucket), and one for no limit.
    pub(super) const METERS_OF_LIMITS: u32 = 2 * LIMITS + 1;

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
    fn the_usual_sizes_take_a_32nd_of_the_memory_at_most() {
        const MIB: u64 = 1 << 20;
        for (memory, cpus, sources) in [
            (64 << 30, 64, 1 << 20),
            (16 << 30, 8, 1 << 20),
            (8 << 30, 4, 1 << 19),
            (4 << 30, 2, 1 << 18),
            (1 << 30, 1, 1 << 16),
            (512 * MIB, 1, 1 << 14),
            (300 * MIB, 2, 1 << 12),
            // What a kernel needs in any case.
            (64 * MIB, 1, 1 << 10),
            (0, 1, 1 << 10),
            (0, 256, 1 << 17),
        ] {
            let sizes = Sizes::for_memory(memory, cpus);
            assert_eq!(sizes.sources, sources, "{} MiB, {cpus} CPUs", memory / MIB);
            sizes.check_for(cpus).unwrap();
            let [least, ..] = Sizes::least(cpus);
            assert!(sizes.bytes(cpus) <= memory / 32 || sources == least);
        }
        assert_eq!(Sizes::for_memory(u64::MAX, 4), Sizes::for_cpus(1 << 20, 4));
    }

    #[test]
    fn maps_tell_how_much_they_have_room_for() {
        let of = |layout: &Description, buckets: u32| {
            let capacity = |name| {
                Ok(match name {
                    map::SOURCES => layout.source_first + 4_096,
                    map::BUCKETS => TALLIES + 1_024 + buckets,
                    map::PROFILES => 2 * 65,
                    _ => unreachable!("{name}"),
                })
            };
            Sizes::by(layout, false, capacity).unwrap()
        };
        let wide_sets = 1_024 / WAYS as u32;
        let asked =
            Description { wide_sets, wide_states: 1_000, buckets: 4_096, ..Description::OWN };
        let made = Sizes {
            sources: 4_096,
            buckets: 4_096,
            wide_states: 1_000,
            overrides: 64,
            further: false,
            buckets_made: true,
        };
        assert_eq!(of(&asked, 4_096), made);
        assert_eq!(of(&asked, 1_024), Sizes { buckets_made: false, ..made });
        // Layouts before 31 had them from the beginning.
        assert_eq!(of(&Description { buckets: 0, ..asked }, 4_096), made);
    }

    #[test]
    fn all_sizes_go_with_that_of_the_sources() {
        let by_sources = |sources| Sizes::for_cpus(sources, 2).by_option().map(|(_, size)| size);
        assert_eq!(by_sources(1 << 20), [1 << 20, 1 << 18, 1 << 13, 1 << 14]);
        assert_eq!(by_sources(1 << 16), [1 << 16, 1 << 14, 1 << 10, 1 << 12]);
        assert_eq!(by_sources(1 << 10), [1 << 10, 1 << 10, 1 << 10, 1 << 12]);
    }
}
