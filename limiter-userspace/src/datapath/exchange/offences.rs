//! Brings the offences of layouts before 27 into their table.
//!
//! Those layouts kept them in an LRU hash map. The new table is not in use yet, so that it is written without locks. A change
//! of the old map meanwhile is missed.

use std::{cmp::Reverse, collections::BTreeMap, os::fd::AsFd as _};

use aya::maps::MapData;
use limiter_common::{
    abi::{
        layout::map,
        state::{OffenceHead, OffenceKey, OffenceRecord},
    },
    memory::offence::Place,
    policy::penalty::Offence,
};

use super::Old;
use crate::{
    datapath::{
        maps::Maps,
        object::object,
        open::{missing, pinned},
        policy::StoredPolicy,
        sys,
    },
    error::{Error, Result},
};

impl Old {
    /// The hash map, if the layout has one.
    fn hash_of_offences(&self) -> Result<MapData> {
        let map = pinned(&self.from.pins, map::OFFENCES)?;
        let map = map.ok_or_else(|| missing(map::OFFENCES))?;
        let info = map.info().map_err(|error| object("look at the map OFFENCES", &error))?;
        let sizes = [info.key_size(), info.value_size()].map(|size| size as usize);
        // Without it, blocks would end.
        let is_known = sizes == [size_of::<OffenceKey>(), size_of::<Offence>()];
        if is_known { Ok(map) } else { Err(missing(map::OFFENCES)) }
    }
}

/// Writes the offences of the hash map into the new table, which is empty. Returns how many sources are blocked and found no
/// room: a set keeps the blocks that end last.
pub(super) fn bring(old: &Old, maps: &Maps) -> Result<u32> {
    let from = old.hash_of_offences()?;
    let mut records = Vec::new();
    let failed = |error| Error::system("copy the map OFFENCES", error);
    sys::for_each(from.fd().as_fd(), |key: &OffenceKey, offence: &Offence| {
        records.push(OffenceRecord { key: *key, offence: *offence });
    })
    .map_err(failed)?;
    records.sort_unstable_by_key(|record| Reverse(record.offence.blocked));
    let seed = StoredPolicy::of_any_layout(&old.from.pins)?.held.seed();
    let (sets, now, mut lost) = (maps.offence_sets()?, sys::monotonic(), 0);
    let mut heads = BTreeMap::<u32, (OffenceHead, u32)>::new();
    let (mut lines, mut kept) = (Vec::new(), Vec::new());
    for record in records {
        let place = Place::of(&record.key.source, seed, sets);
        let (head, used) = heads.entry(place.head).or_default();
        let Some(tag) = head.tags.get_mut(*used as usize + 1) else {
            lost += u32::from(record.offence.blocked > now);
            continue;
        };
        *tag = place.tag;
        *used += 1;
        lines.push(place.head + *used);
        kept.push(record);
    }
    let (places, heads): (Vec<u32>, Vec<OffenceHead>) =
        heads.into_iter().map(|(place, (head, _))| (place, head)).unzip();
    maps.with_map(map::OFFENCES, |table| {
        sys::update(table, &lines, &kept)?;
        sys::update(table, &places, &heads)
    })?;
    Ok(lost)
}
