//! Copies what the entries that sources share owe.
//!
//! They are copied shortly before the new program runs. What the old one charges to them after that, and all that it counted
//! there, `limiter_carry` merges.

use std::{thread, time::Duration};

use aya::maps::{Array, MapData};
use limiter_common::{
    abi::{
        layout::{map, shared},
        table::Source,
    },
    algorithm::binding::Binding,
    base::tally::Tally,
};

use super::{Old, TRIES};
use crate::{
    datapath::{
        maps::Maps,
        object::{object, typed},
    },
    error::Result,
};

/// Copies them, unless entries have other fields in the old layout. No packet may go by the new ones. Returns how many packets
/// brought up to date all the time: those begin anew.
pub(super) fn bring(old: &Old, maps: &Maps) -> Result<u32> {
    let mut lost = 0;
    if !old.layout.has_own_sources() {
        return Ok(lost);
    }
    let failed = |error| object("copy the entries that sources share", &error);
    let from: Array<MapData, Source> = typed(&old.from.pins, old.layout.shared_sources())?;
    let mut to: Array<MapData, Source> = typed(&maps.pins, map::SOURCES)?;
    for number in (0..shared::LEN).filter(|number| *number != shared::UNTRACKED) {
        let mut is_whole = false;
        for _ in 0..TRIES {
            let entry = from.get(&number, 0).map_err(failed)?;
            let after = from.get(&number, 0).map_err(failed)?.binding;
            // While a packet brings it up to date, it is not whole.
            if !Binding(after).is_locked() && after == entry.binding {
                let (binding, none) = (Source::NEW.binding, Tally::default());
                let copy = Source { binding, pending: 0, passed: none, dropped: none, ..entry };
                to.set(number, copy, 0).map_err(failed)?;
                is_whole = true;
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        lost += u32::from(!is_whole);
    }
    Ok(lost)
}
