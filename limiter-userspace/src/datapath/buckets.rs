//! Reading the table of buckets that are kept by other keys than the source.

use std::ops::Range;

use limiter_common::{
    abi::{
        description::Description,
        layout::{TALLIES, map},
        policy::Settings,
        state::{Bucket, WideState},
        table::{Set, WAYS},
    },
    algorithm::{binding::Binding, meter::Measure},
    policy::limit::BucketKey,
    table::set::Place,
};

use super::{maps::Maps, sizes::Sizes, sources::Mapping};
use crate::error::Result;

/// A bucket as it was read, with what its word is measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredBucket {
    /// The bucket.
    pub bucket: Bucket,
    /// What its word is measured in.
    pub measure: Measure,
}

/// A bucket with its wide state, as they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WideBucket {
    /// The bucket.
    pub bucket: Bucket,
    /// Its wide state.
    pub state: WideState,
}

impl Maps {
    /// Sets of buckets.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn bucket_sets(&self) -> Result<u32> {
        let layout = self.entry(map::LAYOUT, &0_u32)?.unwrap_or_default();
        Ok(Sizes::bucket_sets_in(self.capacity(map::BUCKETS)?, &layout))
    }

    /// Sets of wide states.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn wide_sets(&self) -> Result<u32> {
        let layout = self.entry::<u32, Description>(map::LAYOUT, &0)?;
        Ok(layout.map_or(0, |layout| layout.wide_sets))
    }

    /// These settings with the numbers of sets that the maps have.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn with_sets(&self, settings: Settings) -> Result<Settings> {
        let (sets, bucket_sets) = (self.source_sets()?, self.bucket_sets()?);
        let (wide_sets, offence_sets) = (self.wide_sets()?, self.offence_sets()?);
        let handshake_sets = self.capacity(map::SYN_DEDUP)?;
        Ok(Settings { sets, bucket_sets, wide_sets, offence_sets, handshake_sets, ..settings })
    }

    /// The bucket of a key; that of the keys without one for [such a key](BucketKey::shared). `None` if it has none, or
    /// if that is given away at this moment.
    ///
    /// # Errors
    /// What the system says.
    pub fn bucket(&self, key: &BucketKey) -> Result<Option<MeasuredBucket>> {
        let settings = self.with_sets(self.settings_in_force()?)?;
        Ok(self.find_bucket(&settings, key, 0, settings.bucket_sets)?.map(|(_, found)| found))
    }

    /// The same of a key whose limit has a wide state.
    ///
    /// # Errors
    /// What the system says.
    pub fn wide_bucket(&self, key: &BucketKey) -> Result<Option<WideBucket>> {
        let settings = self.with_sets(self.settings_in_force()?)?;
        let found = self.find_bucket(&settings, key, settings.bucket_sets, settings.wide_sets)?;
        let Some((entry, MeasuredBucket { bucket, .. })) = found else { return Ok(None) };
        let number = entry - settings.first_wide();
        let state = self.entry::<u32, WideState>(map::WIDE_STATE, &number)?;
        Ok(state.map(|state| WideBucket { bucket, state }))
    }

    /// Finds a bucket, with its number, among so many sets of keys behind the first ones.
    fn find_bucket(
        &self,
        settings: &Settings,
        key: &BucketKey,
        first: u32,
        sets: u32,
    ) -> Result<Option<(u32, MeasuredBucket)>> {
        let place = Place::of_key(key, settings.table_seed, settings.sets + first, sets);
        let Some(set) = self.entry::<u32, Set>(map::SETS, &place.set)? else { return Ok(None) };
        let ways = ((place.set - settings.sets) * WAYS as u32..).zip(set.tags);
        let own = ways.filter(|(_, tag)| *tag == place.tag).map(|(entry, _)| entry);
        let shared = settings.first_shared()..settings.first_shared() + TALLIES;
        let is_shared = *key == BucketKey::shared(key.limit_id);
        for entry in own.chain(shared.filter(|_| is_shared)) {
            let read = || self.entry::<u32, Bucket>(map::BUCKETS, &entry);
            let Some(before) = read()?.filter(|bucket| bucket.key == *key) else { continue };
            let measure = self.entry::<u32, Measure>(map::MEASURES, &entry)?;
            // One that changes hands is nobody's, or was when it was read.
            if let (Some(after), Some(measure)) = (read()?, measure)
                && after.binding == before.binding
                && after.key == *key
                && !Binding(after.binding).is_locked()
            {
                return Ok(Some((entry, MeasuredBucket { bucket: after, measure })));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with all buckets, those that keys share too, but for those with a wide state.
    ///
    /// # Errors
    /// What the system says.
    pub fn each_bucket(&self, mut visit: impl FnMut(&MeasuredBucket)) -> Result<()> {
        let settings = self.with_sets(Settings::default())?;
        self.each_in(&settings, 0..settings.bucket_sets, |_, found| {
            if !found.measure.is_wide() {
                visit(found);
            }
        })
    }

    /// Calls `visit` with all buckets that have a wide state, those that keys share too.
    ///
    /// # Errors
    /// What the system says.
    pub fn each_wide(&self, mut visit: impl FnMut(&WideBucket)) -> Result<()> {
        let settings = self.with_sets(Settings::default())?;
        let own = settings.bucket_sets..settings.bucket_sets + settings.wide_sets;
        let mut found = Vec::new();
        self.each_in(&settings, own, |entry, MeasuredBucket { bucket, measure }| {
            if measure.is_wide() {
                found.push((entry as u32 - settings.first_wide(), *bucket));
            }
        })?;
        for (number, bucket) in found {
            if let Some(state) = self.entry::<u32, WideState>(map::WIDE_STATE, &number)? {
                visit(&WideBucket { bucket, state });
            }
        }
        Ok(())
    }

    /// Calls `visit` with the buckets of these sets of keys and with all that keys share, and their numbers.
    fn each_in(
        &self,
        settings: &Settings,
        own: Range<u32>,
        mut visit: impl FnMut(usize, &MeasuredBucket),
    ) -> Result<()> {
        let first = settings.sets as usize;
        let all = Mapping::<Set>::new(self, map::SETS)?;
        let buckets = Mapping::<Bucket>::new(self, map::BUCKETS)?;
        let measures = Mapping::<Measure>::new(self, map::MEASURES)?;
        let own = own.map(|number| number as usize);
        let own = own.filter_map(|number| Some((number, all.get(first + number)?)));
        let own = own.flat_map(|(number, set)| (number * WAYS..).zip(set.tags));
        let own = own.filter(|(_, tag)| *tag != 0).map(|(entry, _)| entry);
        let shared = settings.first_shared() as usize..;
        for entry in own.chain(shared.take(TALLIES as usize)) {
            let (Some(bucket), Some(measure)) = (buckets.get(entry), measures.get(entry)) else {
                break;
            };
            let after = buckets.get(entry).map(|bucket| bucket.binding);
            let changes = after != Some(bucket.binding) || Binding(bucket.binding).is_locked();
            if bucket.key.limit_id != 0 && !changes {
                visit(entry, &MeasuredBucket { bucket, measure });
            }
        }
        Ok(())
    }
}
