//! The description of a layout, which is pinned with the maps, so that a later version finds the state in them.
//!
//! The loader writes a [`Description`] when it makes the maps of an instance. A later version reads the offsets from it,
//! and needs no code for each older layout. New fields replace words of `reserved`. A field that an older version did not
//! write is 0.

use core::mem::offset_of;

use crate::{
    abi::{
        layout::{LAYOUT_VERSION, map, shared},
        policy::Head,
        state::Bucket,
        table::{ENTRY_PLACES, FurtherLimits, Set, Source},
    },
    algorithm::meter::Measure,
    base::seed::Seed,
};

/// The version of all that offsets do not tell: the hash of a [`Place`](crate::table::set::Place), the ways of a set, the
/// words of a [`Binding`](crate::algorithm::binding::Binding), the inline limits of a source, addresses and keys, and what
/// the words of buckets mean under their scales. State under other rules is not carried over.
pub const RULES: u32 = 1;

/// Maps that a new layout takes over as they are, each with the version of its values, from 1 on. A map whose version or
/// shape differs begins anew. New maps are appended.
pub const SHARED: [(&str, u32); 23] = [
    (map::INTERFACES, 1),
    (map::OFFENCES, 2),
    (map::COUNTERS, 1),
    (map::TALLIES, 1),
    (map::TABLE_STATS, 1),
    (map::EVENTS, 1),
    (map::EVENT_STATS, 1),
    (map::JIFFY_CLOCK, 1),
    (map::TEST_CLOCK, 1),
    (map::SHARED_SOURCES, 1),
    (map::WIDE_STATE, 2),
    (map::ENDINGS, 1),
    (map::SYN_DEDUP, 3),
    (map::REFUSED_SYNS, 1),
    (map::FRAGMENTS, 1),
    (map::CACHE, 3),
    (map::CONTROL_LINKS, 1),
    (map::CONTROL_SOURCES, 1),
    (map::PROGRAM, 1),
    (map::PROGRAM_FRAGS, 1),
    (map::PACKET_SLOT, 1),
    (map::UNLOADED, 1),
    (map::BUILDS, 1),
];

/// The offsets of fields that another version has to find, in bytes from the beginning of their value.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// See [`LAYOUT_VERSION`].
    pub layout: u32,
    /// See [`RULES`].
    pub rules: u32,
    /// See [`Head::revert`].
    pub head_revert: u32,
    /// See [`Head::monitor`].
    pub head_monitor: u32,
    /// See [`Set::tags`].
    pub set_tags: u32,
    /// See [`Source::binding`].
    pub source_binding: u32,
    /// See [`Source::address`]; a multiple of 8.
    pub source_address: u32,
    /// See [`Source::words`].
    pub source_words: u32,
    /// See [`Source::scales`].
    pub source_scales: u32,
    /// See [`Source::limit_ids`].
    pub source_limit_ids: u32,
    /// See [`Source::pending`].
    pub source_pending: u32,
    /// See [`Source::dropped`].
    pub source_dropped: u32,
    /// See [`Source::passed`].
    pub source_passed: u32,
    /// See [`Source::episode`]. Before layout 30, that of a 64-bit time: when the source was refused last, in nanoseconds.
    pub source_refused: u32,
    /// Before layout 30, that of a second 64-bit time: when that was told last, in nanoseconds. 0 from then on. See
    /// [`Episode::of_times`](crate::memory::event::Episode::of_times).
    pub source_told: u32,
    /// See [`Bucket::binding`].
    pub bucket_binding: u32,
    /// See [`Bucket::word`].
    pub bucket_word: u32,
    /// See [`Bucket::key`]; a multiple of 8.
    pub bucket_key: u32,
    /// See [`Measure::scale`].
    pub measure_scale: u32,
    /// See [`Measure::span`].
    pub measure_span: u32,
    /// The versions of the values of the [`SHARED`] maps, in their order.
    pub shared: [u32; 24],
    /// Entries that [`map::WIDE_STATE`] is made with when a policy first needs it; 0 if it was made with all the others.
    pub wide_states: u32,
    /// Sets of wide states behind those of buckets; 0 if [`map::WIDE_STATE`] is a hash map by key.
    pub wide_sets: u32,
    /// Entries of [`map::SOURCES`] before those of the table. If it is 0, they are in [`map::SHARED_SOURCES`].
    pub source_first: u32,
    /// The inline limits that an entry of [`map::SOURCES`] has room for. 0 before layout 30: all.
    pub entry_places: u32,
    /// See [`FurtherLimits::words`].
    pub further_words: u32,
    /// See [`FurtherLimits::scales`].
    pub further_scales: u32,
    /// See [`FurtherLimits::limit_ids`].
    pub further_limit_ids: u32,
    /// Entries that [`map::BUCKETS`] has for buckets once a policy keeps some by other keys than `all`, in whole sets. 0 before
    /// layout 31: it has all.
    pub buckets: u32,
    /// 0.
    pub reserved: [u32; 12],
}

const _: () = assert!(size_of::<Description>() == 256 && offset_of!(Head, epoch) == 0);

impl Description {
    /// The description of this version's layout.
    pub const OWN: Self = Self {
        layout: LAYOUT_VERSION,
        rules: RULES,
        head_revert: offset_of!(Head, revert) as u32,
        head_monitor: offset_of!(Head, monitor) as u32,
        set_tags: offset_of!(Set, tags) as u32,
        source_binding: offset_of!(Source, binding) as u32,
        source_address: offset_of!(Source, address) as u32,
        source_words: offset_of!(Source, words) as u32,
        source_scales: offset_of!(Source, scales) as u32,
        source_limit_ids: offset_of!(Source, limit_ids) as u32,
        source_pending: offset_of!(Source, pending) as u32,
        source_dropped: offset_of!(Source, dropped) as u32,
        source_passed: offset_of!(Source, passed) as u32,
        source_refused: offset_of!(Source, episode) as u32,
        source_told: 0,
        bucket_binding: offset_of!(Bucket, binding) as u32,
        bucket_word: offset_of!(Bucket, word) as u32,
        bucket_key: offset_of!(Bucket, key) as u32,
        measure_scale: offset_of!(Measure, scale) as u32,
        measure_span: offset_of!(Measure, span) as u32,
        shared: Self::versions(),
        wide_states: 0,
        wide_sets: 0,
        source_first: shared::LEN,
        entry_places: ENTRY_PLACES as u32,
        further_words: offset_of!(FurtherLimits, words) as u32,
        further_scales: offset_of!(FurtherLimits, scales) as u32,
        further_limit_ids: offset_of!(FurtherLimits, limit_ids) as u32,
        buckets: 0,
        reserved: [0; 12],
    };

    const fn versions() -> [u32; 24] {
        let mut versions = [0; 24];
        let mut at = 0;
        while at < SHARED.len() {
            versions[at] = SHARED[at].1;
            at += 1;
        }
        versions
    }

    /// Whether this version made maps with this description, or can carry their state over.
    pub const fn standing(&self) -> Standing {
        if self.layout > LAYOUT_VERSION {
            Standing::Newer
        } else if self.layout == 0 || self.rules != RULES {
            Standing::Foreign
        } else if self.layout == LAYOUT_VERSION {
            Standing::Own
        } else {
            Standing::Older
        }
    }

    /// The map with the [`shared`] entries.
    pub const fn shared_sources(&self) -> &'static str {
        if self.source_first == 0 { map::SHARED_SOURCES } else { map::SOURCES }
    }

    /// Whether the fields of a [`Source`] are where they are in this version.
    pub fn has_own_sources(&self) -> bool {
        let fields = |it: &Self| {
            [
                it.source_binding,
                it.source_address,
                it.source_words,
                it.source_scales,
                it.source_limit_ids,
                it.source_pending,
                it.source_dropped,
                it.source_passed,
                it.source_refused,
                it.source_told,
                it.entry_places,
                it.further_words,
                it.further_scales,
                it.further_limit_ids,
            ]
        };
        fields(self) == fields(&Self::OWN)
    }

    /// Whether the layout has a map that other layouts may take over.
    pub fn knows(&self, name: &str) -> bool {
        let at = SHARED.iter().position(|(shared, _)| *shared == name);
        at.is_some_and(|at| self.shared[at] != 0)
    }

    /// Whether the values of a map mean what they mean in this version.
    pub fn shares(&self, name: &str) -> bool {
        let at = SHARED.iter().position(|(shared, _)| *shared == name);
        at.is_some_and(|at| self.shared[at] == SHARED[at].1)
    }
}

/// The relation of this version to the maps of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// They have the layout of this version.
    Own,
    /// They have an older layout, and their state can be carried over.
    Older,
    /// They have a newer layout, of which this version knows nothing.
    Newer,
    /// They have no description, or other [`RULES`].
    Foreign,
}

/// The tables that a program carries state over from.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldTables {
    /// By what sources and keys are hashed to their places there.
    pub seed: Seed,
    /// Sets of sources; 0 if there are no such tables.
    pub source_sets: u32,
    /// Sets of buckets.
    pub bucket_sets: u32,
    /// Sets of wide states.
    pub wide_sets: u32,
    /// 1 if there is an array of wide states; 0 if no policy needed one when the program was loaded, or if it is a hash map.
    pub has_wide: u32,
    /// 1 if there are the inline limits that entries have no room for.
    pub has_further: u32,
    /// 0.
    pub reserved: u32,
    /// Their description.
    pub layout: Description,
}

/// Kinds of entries that `limiter_carry` carries over, and how many it takes in one run.
pub mod carried {
    /// Entries that are looked at in one run.
    pub const BATCH: u32 = 128;
    /// Of [`Request::kind`](super::Request::kind): sources that owe something.
    pub const SOURCES: u32 = 0;
    /// Sources that owe nothing. Their totals are carried over where a way is free.
    pub const IDLE: u32 = 1;
    /// Buckets.
    pub const BUCKETS: u32 = 2;
}

/// The frame that `limiter_carry` is run on: the entries to carry over.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// A constant of [`carried`].
    pub kind: u32,
    /// The number of the first entry.
    pub first: u32,
    /// 0. No frame is shorter than these 16 bytes.
    pub unused: [u32; 2],
}

/// The result of a run of `limiter_carry`: three counts of entries in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch(pub u32);

impl Batch {
    /// An entry that is in the new table now.
    pub const CARRIED: Self = Self(1);
    /// An entry that owes and found no room.
    pub const LOST: Self = Self(1 << 10);
    /// An entry that another CPU held or moved. The batch has to be run again.
    pub const BUSY: Self = Self(1 << 20);

    /// Entries that are in the new table now.
    pub const fn carried(self) -> u32 {
        self.0 & 0x3ff
    }

    /// Entries that owe and found no room.
    pub const fn lost(self) -> u32 {
        self.0 >> 10 & 0x3ff
    }

    /// Entries that other CPUs held or moved.
    pub const fn busy(self) -> u32 {
        self.0 >> 20
    }

    /// Whether the batch has to be run again.
    pub const fn is_busy(self) -> bool {
        self.busy() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_made_maps_decides_what_becomes_of_them() {
        let own = Description::OWN;
        assert_eq!(own.standing(), Standing::Own);
        let of = |layout| Description { layout, ..own }.standing();
        assert_eq!(of(LAYOUT_VERSION - 1), Standing::Older);
        assert_eq!(of(LAYOUT_VERSION + 1), Standing::Newer);
        assert_eq!(of(0), Standing::Foreign);
        assert_eq!(Description::default().standing(), Standing::Foreign);
        // A newer one is called newer whatever its rules are.
        let newer = Description { layout: LAYOUT_VERSION + 1, rules: RULES + 1, ..own };
        assert_eq!(newer.standing(), Standing::Newer);
        assert_eq!(Description { rules: RULES + 1, ..own }.standing(), Standing::Foreign);
    }

    #[test]
    fn a_map_is_taken_over_if_its_values_mean_the_same() {
        let mut description = Description::OWN;
        assert!(SHARED.iter().all(|(name, _)| description.shares(name)));
        assert!(!description.shares(map::SOURCES));
        description.shared[1] += 1;
        assert!(!description.shares(map::OFFENCES) && description.shares(map::COUNTERS));
    }

    #[test]
    fn a_batch_counts_each_entry_in_its_place() {
        let of = |carried: u32, lost: u32, busy: u32| {
            Batch(carried * Batch::CARRIED.0 + lost * Batch::LOST.0 + busy * Batch::BUSY.0)
        };
        let most = carried::BATCH;
        for batch in [of(most, 0, 0), of(0, most, 0), of(1, most - 2, 1), of(0, 0, most)] {
            assert!(batch.carried() + batch.lost() <= most);
        }
        assert_eq!((of(3, 4, 0).carried(), of(3, 4, 0).lost()), (3, 4));
        assert!(of(0, 0, 1).is_busy() && !of(most, most, 0).is_busy());
    }
}
