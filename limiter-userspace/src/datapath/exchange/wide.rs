//! Brings the logs and open connections of layouts before 26 into the table of wide states.
//!
//! Those layouts kept them in an LRU hash map: the key to a control word and slots. The new maps are not in use yet, so that
//! they are written without a lock. A change of the old map meanwhile may be missed.
//!
//! The hash map does not tell which source's numbers a state goes by: those of the limit, or those of an override. So each
//! state owes by the longest window, or silence, that a policy has for its limit, until the first packet of its key.

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
        concurrent::Table as Leases,
        kind::{Kind, WideKind},
        meter::{Measure, Meter},
        sliding_log::SlidingLog,
    },
    base::slots::Slots,
    policy::limit::BucketKey,
    table::set::{DebtUntil, Place},
};

use super::Old;
use crate::{
    datapath::{maps::Maps, object::object, open::pinned, sys},
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

/// The slots are those of a copy: a store to them has no effect.
impl Slots for Kept {
    fn load(&self, place: usize) -> u64 {
        self.slots.get(place).copied().unwrap_or(0)
    }

    fn store(&self, _: usize, _: u64) {}

    fn compare_exchange(&self, place: usize, _: u64, _: u64) -> u64 {
        self.load(place)
    }
}

impl Leases for Kept {}

/// What became of them.
pub(super) enum Brought {
    /// They are in the table, but for so many that owe and found no room, or are of limits that no policy has.
    All { carried: u32, lost: u32 },
    /// The map has another shape, or no policy has limits with wide state.
    None,
}

impl Old {
    /// The hash map, if the layout has one.
    pub(super) fn has_hash_of_wide(&self) -> Result<bool> {
        let is_older = self.layout.wide_sets == 0 && self.layout.knows(map::WIDE_STATE);
        Ok(is_older && pinned(&self.from.pins, map::WIDE_STATE)?.is_some())
    }
}

/// Writes the wide states of the hash map into the new maps, by the tables of the policy in force, and of that which it may be
/// reverted to.
pub(super) fn bring(old: &Old, maps: &Maps, policies: &[Tables]) -> Result<Brought> {
    let [in_force, ..] = policies else { return Ok(Brought::None) };
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
    let mut table = Table::new(maps.with_sets(in_force.settings)?, meters(policies));
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

/// The meter with the longest window, or silence, of each limit with wide state, by its limit id.
fn meters(policies: &[Tables]) -> BTreeMap<u32, Meter> {
    let mut longest = BTreeMap::new();
    for tables in policies {
        for row in tables.rows.iter().filter(|row| Kind::is_wide(row.kind.into())) {
            let column = row.override_column as usize;
            let own = tables.profiles.iter().filter_map(|profile| profile.meters.get(column));
            for number in own.chain([&row.meter, &row.shared_meter]) {
                // The meter of no limit has another kind.
                let meter = tables.meters.get(*number as usize);
                let Some(meter) = meter.filter(|meter| meter.kind == u64::from(row.kind)) else {
                    continue;
                };
                let known = longest.entry(row.limit_id).or_insert(*meter);
                if meter.measure().span > known.measure().span {
                    *known = *meter;
                }
            }
        }
    }
    longest
}

/// The table as it is to be written.
struct Table {
    settings: Settings,
    meters: BTreeMap<u32, Meter>,
    now: u64,
    sets: BTreeMap<u32, (Set, Debts)>,
    entries: Vec<u32>,
    buckets: Vec<Bucket>,
    measures: Vec<Measure>,
    states: Vec<WideState>,
}

impl Table {
    fn new(settings: Settings, meters: BTreeMap<u32, Meter>) -> Self {
        Self {
            settings,
            meters,
            now: sys::monotonic(),
            sets: BTreeMap::new(),
            entries: Vec::new(),
            buckets: Vec::new(),
            measures: Vec::new(),
            states: Vec::new(),
        }
    }

    /// Inserts a state. `Some(false)` if it found no room, or is of a limit that no policy has; `None` if it owes nothing.
    fn insert(&mut self, key: &BucketKey, kept: &Kept) -> Option<bool> {
        if kept.control == 0 && kept.slots == [0; SLOTS] {
            return None;
        }
        let Some(meter) = self.meters.get(&key.limit_id) else { return Some(false) };
        let measure = meter.measure();
        let (word, slots) = match WideKind::of(measure.kind()) {
            WideKind::SlidingLog => {
                // It was read word by word, while packets may have charged it.
                let slot = |place| SlidingLog::copied(kept, kept.control, kept.control, place);
                (kept.control, std::array::from_fn(slot))
            }
            WideKind::Concurrent if meter.concurrent().held(kept, self.now) == 0 => return None,
            // How long connections have their places is not known here: as long as any has from now on.
            WideKind::Concurrent => (SlidingLog::begun_at(self.now), kept.slots),
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
        self.states.push(WideState { slots });
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
