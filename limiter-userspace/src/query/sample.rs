//! How much of each limit is used, estimated from a sample of the states. Only the sampled entries
//! are read, not those of a million sources.

use std::{collections::HashMap, time::Duration};

use limiter_common::{
    abi::state::Bucket as BucketState,
    algorithm::binding::Binding,
    policy::limit::{BucketKey, COLUMNS, Key, Limit},
};

pub use super::spread::{SHARES, Spread, WAITS};
use super::{
    Inquiry,
    fill::Fill,
    limit::{fill_of_all, usual_cost},
    state::{Found, SourceState, State},
    tables::Tables,
    thinned::Thinned,
};
use crate::{datapath::sources::TableOccupancy, error::Result, query::wide};

/// The most entries of a table in a sample.
pub const MOST: usize = 1024;

/// A sample of the states of all limits.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// How full the source table is.
    pub occupancy: TableOccupancy,
    /// The sample of the source table.
    pub sources: Looked,
    /// The sample of the bucket table.
    pub buckets: Looked,
    /// The sample of the wide states: logs and lists of open connections.
    pub wide_states: Looked,
    /// The limits, in the order in which they are asked.
    pub limits: Vec<LimitSample>,
}

/// How many entries of a table were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Entries in the table.
    pub entries: u64,
    /// Entries that were sampled.
    pub sampled: u64,
    /// Sampled entries that owe.
    pub owing: u64,
}

/// How much of a limit is used, in the sampled states.
#[derive(Clone, Debug)]
pub struct LimitSample {
    /// The name of the limit.
    pub limit: String,
    /// The layer of the limit, from 0 on.
    pub layer: usize,
    /// Whether this is the limit's candidate.
    pub candidate: bool,
    /// The histograms of its sampled states.
    pub spread: Spread,
}

/// A limit whose states are sampled.
struct Wanted {
    limit: Limit,
    /// Its place in the entries of sources, if it is an inline limit.
    place: Option<usize>,
}

impl Inquiry<'_> {
    /// Samples up to [`MOST`] entries of each table, spread over the whole table. A limit that has
    /// one state for all packets is read in any case.
    ///
    /// # Errors
    /// Fails if a map cannot be read, and with
    /// [`InquiryError::Changing`](crate::query::InquiryError::Changing) if the policy changed
    /// during every attempt.
    pub fn sample(&mut self, now: u64) -> Result<Sample> {
        self.steadily(now, |inquiry| inquiry.look(now).map(Some))
    }

    fn look(&self, now: u64) -> Result<Sample> {
        let (mut sample, mut wanted) = (Sample::default(), Vec::new());
        for entry in self.entries.iter() {
            let limit = self.tables.limit(entry.bit)?;
            wanted.push(Wanted { place: SourceState::place_of(&self.tables, &limit), limit });
            let mut spread = Spread::default();
            // A sample of the bucket table would hardly ever contain this single state.
            if let Some(fill) = fill_of_all(&self.tables, &limit, now)? {
                spread.add(&fill);
            }
            sample.limits.push(LimitSample {
                limit: entry.limit.name.clone(),
                layer: entry.layer,
                candidate: entry.candidate,
                spread,
            });
        }
        self.look_at_sources(&mut sample, &wanted, now)?;
        let by_limit_id = wanted.iter().enumerate().filter(|(_, it)| it.place.is_none());
        let by_limit_id = by_limit_id.map(|(at, it)| (it.limit.limit_id, (at, it.limit))).collect();
        self.look_at_keys(&mut sample, &by_limit_id, now)?;
        Ok(sample)
    }

    fn look_at_sources(&self, sample: &mut Sample, wanted: &[Wanted], now: u64) -> Result<()> {
        let tables = &self.tables;
        let mut numbers = Thinned::new(MOST, now);
        sample.occupancy = self.maps.each_way(|number| numbers.offer(|| number))?;
        let mut sampled = 0;
        for number in numbers.kept() {
            let whole = self.maps.whole_entry(*number)?;
            // A locked entry belongs to no source at the moment.
            let Some(whole) = whole.filter(|it| !Binding(it.entry.binding).is_locked()) else {
                continue;
            };
            let Found::Source(source) = SourceState::of_entry(tables, whole, now)? else {
                continue;
            };
            let mut owes = false;
            for (it, told) in wanted.iter().zip(&mut sample.limits) {
                let Some(place) = it.place.filter(|_| it.limit.bit & source.profile.limits != 0)
                else {
                    continue;
                };
                let state = source.inline(tables, place)?;
                if let Some(fill) = Fill::of(&state, now, usual_cost(&it.limit)) {
                    told.spread.add(&fill);
                    owes |= fill.full != Duration::ZERO;
                }
            }
            sampled += 1;
            sample.sources.owing += u64::from(owes);
        }
        sample.sources = Looked { entries: sample.occupancy.taken, sampled, ..sample.sources };
        Ok(())
    }

    fn look_at_keys(
        &self,
        sample: &mut Sample,
        wanted: &HashMap<u32, (usize, Limit)>,
        now: u64,
    ) -> Result<()> {
        let tables = &self.tables;
        let mut buckets = Thinned::new(MOST, now);
        self.maps.each_bucket(|bucket| buckets.offer(|| *bucket))?;
        sample.buckets.entries = buckets.seen();
        for bucket in buckets.kept() {
            let key = &bucket.bucket.key;
            // The state of a limit that was removed owes nothing.
            sample.buckets.sampled += 1;
            let Some((at, limit)) = wanted.get(&key.limit_id) else { continue };
            let Some(number) = meter_of(tables, limit, key, Some(Binding(bucket.bucket.binding)))?
            else {
                continue;
            };
            let state = State::of_bucket(tables, bucket, (number, tables.meter(number)?), now);
            if let Some(fill) = Fill::of(&state, now, usual_cost(limit)) {
                if limit.key != Key::ALL {
                    sample.limits[*at].spread.add(&fill);
                }
                sample.buckets.owing += u64::from(fill.full != Duration::ZERO);
            }
        }
        let mut wide_states = Thinned::new(MOST, now);
        self.maps.each_wide(|kept| wide_states.offer(|| *kept))?;
        sample.wide_states.entries = wide_states.seen();
        for kept in wide_states.kept() {
            let BucketState { key, binding, .. } = &kept.bucket;
            sample.wide_states.sampled += 1;
            let Some((at, limit)) = wanted.get(&key.limit_id) else { continue };
            let Some(number) = meter_of(tables, limit, key, Some(Binding(*binding)))? else {
                continue;
            };
            let meter = tables.meter(number)?;
            if meter.is_wide() {
                let fill = wide::Copy::of(tables, *kept).fill(&meter, now);
                if limit.key != Key::ALL {
                    sample.limits[*at].spread.add(&fill);
                }
                sample.wide_states.owing += u64::from(fill.full != Duration::ZERO);
            }
        }
        Ok(())
    }
}

/// The number of the meter of a state. `None` if it depends on the source's profile, and the key
/// has no source.
fn meter_of(
    tables: &Tables<'_>,
    limit: &Limit,
    key: &BucketKey,
    bound: Option<Binding>,
) -> Result<Option<u32>> {
    if limit.override_column as usize >= COLUMNS {
        return Ok(Some(limit.meter));
    }
    match bound {
        Some(binding) if binding.is_under(tables.epoch) => Ok(Some(binding.profile())),
        _ if limit.key.0 & Key::SOURCE != 0 => {
            let profile = tables.profile_of(&key.source())?;
            Ok(profile.map(|profile| Tables::meter_of(limit, &profile)))
        }
        _ => Ok(None),
    }
}
