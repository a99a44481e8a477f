//! Brings the logs and open connections of layouts before 26 into the table of wide states.
//!
//! Those layouts kept them in an LRU hash map: the key to a control word and slots. The new maps are not in use yet, so that
//! they are written without a lock. A change of the old map meanwhile may be missed.

use std::{collections::BTreeMap, os::fd::AsFd as _};

use aya::{Pod, maps::MapData};
use limiter_common::{
    abi::{
        layout::map,
        policy::Settings,
        state::{Bucket, SLOTS, WideState},
        table::{Debts, Set, WAYS},
    },
    algorithm::{
        kind::WideKind,
        meter::{Measure, Meter},
        sliding_log::SlidingLog,
    },
    policy::limit::{BucketKey, Limit},
    table::set::{DebtUntil, Place},
};

use super::Old;
use crate::{
    datapath::{
        maps::Maps,
        object::{object, pinned},
        sys,
    },
    error::{Error, Result},
    policy::Tables,
};

/// A value of the hash map.
#[repr(C)]
#[derive(Clone, Copy)]
struct Kept {
    control: u64,
    slots: [u64; SLOTS],
}

impl Default for Kept {
    fn default() -> Self {
        Self { control: 0, slots: [0; SLOTS] }
    }
}

// SAFETY: it is `repr(C)`, `Copy`, and made of words alone.
unsafe impl Pod for Kept {}

/// What became of them.
pub(super) enum Brought {
    /// They are in the table, but for so many that owe and found no room.
    All { carried: u32, lost: u32 },
    /// The map has another shape, or the policy has no such limit.
    None,
}

impl Old {
    /// The hash map, if the layout has one.
    pub(super) fn has_hash_of_wide(&self) -> Result<bool> {
        let is_older = self.layout.wide_sets == 0 && self.layout.knows(map::WIDE_STATE);
        Ok(is_older && pinned(&self.from.pins, map::WIDE_STATE)?.is_some())
    }
}

/// Writes the wide states of the hash map into the new maps, by the tables of the policy in force.
pub(super) fn bring(old: &Old, maps: &Maps, tables: &Tables) -> Result<Brought> {
    let (Some(from), Some(to)) =
        (pinned(&old.from.pins, map::WIDE_STATE)?, maps.find(map::WIDE_STATE)?)
    else {
        return Ok(Brought::None);
    };
    let info = from.info().map_err(|error| object("look at the map WIDE_STATE", &error))?;
    let sizes = [info.key_size(), info.value_size()].map(|size| size as usize);
    if sizes != [size_of::<BucketKey>(), size_of::<Kept>()] {
        return Ok(Brought::None);
    }
    let failed = |error| Error::system("copy the map WIDE_STATE", error);
    let mut table = Table::new(maps, tables)?;
    let (mut carried, mut lost) = (0, 0);
    sys::for_each(from.fd().as_fd(), |key: &BucketKey, kept: &Kept| {
        match table.insert(key, kept) {
            Some(true) => carried += 1,
            Some(false) => lost += 1,
            None => {}
        }
    })
    .map_err(failed)?;
    table.write(maps, &to)?;
    Ok(Brought::All { carried, lost })
}

/// The table as it is to be written.
struct Table<'a> {
    tables: &'a Tables,
    settings: Settings,
    now: u64,
    sets: BTreeMap<u32, (Set, Debts)>,
    entries: Vec<u32>,
    buckets: Vec<Bucket>,
    measures: Vec<Measure>,
    states: Vec<WideState>,
}

impl<'a> Table<'a> {
    fn new(maps: &Maps, tables: &'a Tables) -> Result<Self> {
        Ok(Self {
            tables,
            settings: maps.with_sets(tables.settings)?,
            now: sys::monotonic(),
            sets: BTreeMap::new(),
            entries: Vec::new(),
            buckets: Vec::new(),
            measures: Vec::new(),
            states: Vec::new(),
        })
    }

    /// The meter of a limit with wide state; `None` if the policy has no such limit.
    fn meter(&self, limit_id: u32) -> Option<&Meter> {
        let row: &Limit = self.tables.rows.iter().find(|row| row.limit_id == limit_id)?;
        // Where only some sources have a meter, that of all has no kind.
        let number = if row.meter == 0 { row.shared_meter } else { row.meter };
        let meter = self.tables.meters.get(number as usize)?;
        meter.is_wide().then_some(meter)
    }

    /// Inserts a state. `Some(false)` if it found no room, `None` if it owes nothing.
    fn insert(&mut self, key: &BucketKey, kept: &Kept) -> Option<bool> {
        let measure = self.meter(key.limit_id)?.measure();
        let word = match WideKind::of(measure.kind()) {
            WideKind::SlidingLog => kept.control,
            WideKind::Concurrent if kept.slots == [0; SLOTS] => 0,
            // How long connections have their places is not known here: as long as any has from now on.
            WideKind::Concurrent => SlidingLog::begun_at(self.now),
        };
        if measure.owes(word, self.now) == 0 {
            return None;
        }
        let settings = &self.settings;
        let first = settings.sets + settings.bucket_sets;
        let place = Place::of_key(key, settings.table_seed, first, settings.wide_sets);
        let (set, debts) = self.sets.entry(place.set).or_default();
        let mut ways = std::iter::once(usize::from(place.home)).chain(0..WAYS);
        let Some(way) = ways.find(|way| set.tags.get(*way) == Some(&0)) else { return Some(false) };
        if let (Some(tag), Some(debt)) = (set.tags.get_mut(way), debts.get_mut(way)) {
            *tag = place.tag;
            *debt = DebtUntil::past(self.now).with_tag_ext(place.tag_ext).0;
        }
        self.entries.push((place.set - settings.sets) * WAYS as u32 + way as u32);
        // The first packet binds it.
        self.buckets.push(Bucket { binding: 0, word, key: *key });
        self.measures.push(measure);
        self.states.push(WideState { slots: kept.slots });
        Some(true)
    }

    fn write(&self, maps: &Maps, wide: &MapData) -> Result<()> {
        let failed = |error| Error::system("write the table of wide states", error);
        let raw = |name| Ok::<_, Error>(maps.raw(name)?.fd());
        let sets: Vec<u32> = self.sets.keys().copied().collect();
        let (lines, debts): (Vec<Set>, Vec<Debts>) = self.sets.values().copied().unzip();
        sys::update(raw(map::SETS)?.as_fd(), &sets, &lines).map_err(failed)?;
        sys::update(raw(map::DEBTS)?.as_fd(), &sets, &debts).map_err(failed)?;
        sys::update(raw(map::BUCKETS)?.as_fd(), &self.entries, &self.buckets).map_err(failed)?;
        sys::update(raw(map::MEASURES)?.as_fd(), &self.entries, &self.measures).map_err(failed)?;
        let first = self.settings.first_wide();
        let numbers: Vec<u32> = self.entries.iter().map(|entry| entry - first).collect();
        sys::update(wide.fd().as_fd(), &numbers, &self.states).map_err(failed)
    }
}
