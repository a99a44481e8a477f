//! Reading the table of buckets that are kept by other keys than the source.

use limiter_common::{
    abi::{
        layout::{TALLIES, map},
        state::Bucket,
        table::{Set, WAYS},
    },
    algorithm::{binding::Binding, meter::Measure},
    policy::limit::BucketKey,
    table::set::Place,
};

use super::{maps::Maps, sources::Mapping};
use crate::error::Result;

/// A bucket as it was read, with what its word is measured in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasuredBucket {
    /// The bucket.
    pub bucket: Bucket,
    /// What its word is measured in.
    pub measure: Measure,
}

impl Maps {
    /// Sets of buckets.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn bucket_sets(&self) -> Result<u32> {
        Ok(self.capacity(map::BUCKETS)?.saturating_sub(TALLIES) / WAYS as u32)
    }

    /// The bucket of a key; that of the keys without one for [such a key](BucketKey::shared). `None` if it has none, or
    /// if that is given away at this moment.
    ///
    /// # Errors
    /// What the system says.
    pub fn bucket(&self, key: &BucketKey) -> Result<Option<MeasuredBucket>> {
        let [first, sets] = [self.source_sets()?, self.bucket_sets()?];
        let settings = self.settings_in_force()?;
        let place = Place::of_key(key, settings.table_seed, first, sets);
        let Some(set) = self.entry::<u32, Set>(map::SETS, &place.set)? else { return Ok(None) };
        let ways = ((place.set - first) * WAYS as u32..).zip(set.tags);
        let own = ways.filter(|(_, tag)| *tag == place.tag).map(|(entry, _)| entry);
        let shared = sets * WAYS as u32..sets * WAYS as u32 + TALLIES;
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
                return Ok(Some(MeasuredBucket { bucket: after, measure }));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with all buckets, those that keys share too.
    ///
    /// # Errors
    /// What the system says.
    pub fn each_bucket(&self, mut visit: impl FnMut(&MeasuredBucket)) -> Result<()> {
        let [first, sets] = [self.source_sets()?, self.bucket_sets()?].map(|sets| sets as usize);
        let all = Mapping::<Set>::new(self, map::SETS)?;
        let buckets = Mapping::<Bucket>::new(self, map::BUCKETS)?;
        let measures = Mapping::<Measure>::new(self, map::MEASURES)?;
        let own = (0..sets).filter_map(|number| Some((number, all.get(first + number)?)));
        let own = own.flat_map(|(number, set)| (number * WAYS..).zip(set.tags));
        let own = own.filter(|(_, tag)| *tag != 0).map(|(entry, _)| entry);
        let shared = sets * WAYS..sets * WAYS + TALLIES as usize;
        for entry in own.chain(shared) {
            let (Some(bucket), Some(measure)) = (buckets.get(entry), measures.get(entry)) else {
                break;
            };
            let after = buckets.get(entry).map(|bucket| bucket.binding);
            let changes = after != Some(bucket.binding) || Binding(bucket.binding).is_locked();
            if bucket.key.limit_id != 0 && !changes {
                visit(&MeasuredBucket { bucket, measure });
            }
        }
        Ok(())
    }
}
