//! How full the state of limits is, told from a sample of it: what there is to know of a million of
//! sources without reading a million of entries.

use std::{collections::HashMap, time::Duration};

use limiter_common::{
    abi::{layout::map, state::WideState, table},
    algorithm::{binding::Binding, meter::Meter},
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

/// Entries of a table that are looked at, at most.
pub const MOST: usize = 1024;

/// What a sample of the state says.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The table of sources as a whole.
    pub occupancy: TableOccupancy,
    /// Entries of sources.
    pub sources: Looked,
    /// States by other keys.
    pub buckets: Looked,
    /// Logs of events and lists of open connections.
    pub wide_states: Looked,
    /// The limits, narrow before wide.
    pub limits: Vec<LimitSample>,
}

/// What was looked at of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Entries in it.
    pub entries: u64,
    /// Entries of these that were looked at.
    pub sampled: u64,
    /// Entries of those that owe something: that would be missed if they were lost.
    pub owing: u64,
}

/// How full a limit is for those that were looked at.
#[derive(Clone, Debug)]
pub struct LimitSample {
    /// The limit.
    pub limit: String,
    /// Which layer of it this is.
    pub layer: usize,
    /// Whether it is its candidate.
    pub candidate: bool,
    /// The states of it that were looked at.
    pub spread: Spread,
}

/// A limit whose states are looked for.
struct Wanted {
    limit: Limit,
    /// Its place in the entries of sources, if that is where its states are.
    place: Option<usize>,
}

impl Inquiry<'_> {
    /// Looks at up to [`MOST`] entries of each table, spread over all of it, and at the states of limits that
    /// have one for all packets.
    ///
    /// # Errors
    /// What the system says, or [`InquiryError::Changing`](crate::query::InquiryError::Changing).
    pub fn sample(&mut self, now: u64) -> Result<Sample> {
        self.steadily(now, |inquiry| inquiry.look(now).map(Some))
    }

    fn look(&self, now: u64) -> Result<Sample> {
        let (mut sample, mut wanted) = (Sample::default(), Vec::new());
        for entry in self.entries.iter() {
            let limit = self.tables.limit(entry.bit)?;
            wanted.push(Wanted { place: SourceState::place_of(&self.tables, &limit), limit });
            let mut spread = Spread::default();
            // Among many others it would hardly be found.
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
        let mut ways = Thinned::new(MOST, now);
        sample.occupancy = self.maps.each_way(|way| ways.offer(|| way))?;
        let mut sampled = 0;
        for way in ways.kept() {
            let entry = self.maps.entry::<u32, table::Source>(map::SOURCES, way)?;
            // One that changes hands is nobody's at the moment.
            let Some(entry) = entry.filter(|entry| !Binding(entry.binding).is_locked()) else {
                continue;
            };
            let Found::Source(source) = SourceState::of_entry(tables, entry, now)? else {
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
            // Those of limits that are there no more owe nobody.
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
        self.maps.each(map::WIDE_STATE, |key: &BucketKey, state: &WideState| {
            wide_states.offer(|| (*key, *state));
        })?;
        sample.wide_states.entries = wide_states.seen();
        for (key, state) in wide_states.kept() {
            sample.wide_states.sampled += 1;
            let Some((at, limit)) = wanted.get(&key.limit_id) else { continue };
            let Some(number) = meter_of(tables, limit, key, None)? else { continue };
            let meter = tables.meter(number)?;
            if meter.kind >= Meter::SLIDING_LOG {
                let fill = wide::Copy::of(tables, *state).fill(&meter, now);
                if limit.key != Key::ALL {
                    sample.limits[*at].spread.add(&fill);
                }
                sample.wide_states.owing += u64::from(fill.full != Duration::ZERO);
            }
        }
        Ok(())
    }
}

/// The number of the meter of a state, as far as that can be told without a packet of it.
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
