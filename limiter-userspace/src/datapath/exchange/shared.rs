//! Copies the entries that sources share.
//!
//! They are copied at the last moment before the new maps are put in use. What the old program charges to them and counts
//! there after that is missed.

use aya::maps::{Array, MapData};
use limiter_common::{
    abi::{
        layout::{map, shared},
        table::Source,
    },
    algorithm::binding::{Binding, PATIENCE},
};

use super::Old;
use crate::{
    datapath::{
        maps::Maps,
        object::{object, typed},
    },
    error::Result,
};

/// Copies them. Returns whether that can be: not if entries have other fields in the old layout.
pub(super) fn bring(old: &Old, maps: &Maps) -> Result<bool> {
    if !old.layout.has_own_sources() {
        return Ok(false);
    }
    let failed = |error| object("copy the entries that sources share", &error);
    let name = if old.layout.source_first == 0 { map::SHARED_SOURCES } else { map::SOURCES };
    let from: Array<MapData, Source> = typed(&old.from.pins, name)?;
    let mut to: Array<MapData, Source> = typed(&maps.pins, map::SOURCES)?;
    for number in (0..shared::LEN).filter(|number| *number != shared::UNTRACKED) {
        for _ in 0..PATIENCE {
            let entry = from.get(&number, 0).map_err(failed)?;
            // A packet may be bringing it up to date.
            if !Binding(entry.binding).is_locked() {
                let binding = Source::NEW.binding;
                to.set(number, Source { binding, ..entry }, 0).map_err(failed)?;
                break;
            }
        }
    }
    Ok(true)
}
