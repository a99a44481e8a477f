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

/// Copies them, unless entries have other fields in the old layout. No packet may go by the new ones.
pub(super) fn bring(old: &Old, maps: &Maps) -> Result<()> {
    if !old.layout.has_own_sources() {
        return Ok(());
    }
    let failed = |error| object("copy the entries that sources share", &error);
    let name = if old.layout.source_first == 0 { map::SHARED_SOURCES } else { map::SOURCES };
    let from: Array<MapData, Source> = typed(&old.from.pins, name)?;
    let mut to: Array<MapData, Source> = typed(&maps.pins, map::SOURCES)?;
    for number in (0..shared::LEN).filter(|number| *number != shared::UNTRACKED) {
        for _ in 0..TRIES {
            let entry = from.get(&number, 0).map_err(failed)?;
            let after = from.get(&number, 0).map_err(failed)?.binding;
            // While a packet brings it up to date, it is not whole.
            if !Binding(after).is_locked() && after == entry.binding {
                let (binding, none) = (Source::NEW.binding, Tally::default());
                let copy = Source { binding, pending: 0, passed: none, dropped: none, ..entry };
                to.set(number, copy, 0).map_err(failed)?;
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
