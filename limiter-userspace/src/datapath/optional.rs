//! Maps that are made when a policy first needs them.
//!
//! The programs find each of them by an array of one map. A map that was made stays, also if the next policy does not need
//! it: what it knows of sources holds if a later one does.
//!
//! **What happens before what.** The kernel initializes a map before it puts it into the array, with a barrier in between. A
//! program loads the address of the map from the array and finds all else through that address, so it sees an
//! initialized map or none. The map is put there before the epoch that needs it is stored.

use std::{os::fd::AsFd as _, sync::Arc};

use aya::maps::{ArrayOfMaps, MapData};
use limiter_common::{
    abi::layout::{TALLIES, map},
    algorithm::kind::Kind,
    memory::{ending::Ending, offence, refused_syn::RefusedSyn},
};

use super::{
    bpffs::{Pins, c_path, exists},
    layout::{OPTIONAL, Optional, Shape},
    loader::wire::OptionalArray,
    maps::Maps,
    object::{number, object},
    open::typed,
    sizes::Sizes,
    sys,
};
use crate::{
    error::{Error, Result},
    policy::Tables,
};

/// Makes and pins the arrays of a new instance by which the programs find these maps, but for those that are pinned there
/// already.
///
/// The library would make them by the types that the object file has. Linux 6.1 takes a map into such an array only if that
/// has types too.
///
/// # Errors
/// What the system says.
pub(super) fn create_arrays(pins: &Pins) -> Result<()> {
    for Optional { shape, reference } in &OPTIONAL {
        let path = pins.map(reference);
        if exists(&path)? {
            continue;
        }
        let like = shape.create(1)?;
        let array = sys::create_array_of(like.fd().as_fd());
        let path = c_path(path.as_os_str())?;
        array
            .and_then(|array| sys::pin(array.as_fd(), &path))
            .map_err(|error| Error::system(format!("make the map {reference}"), error))?;
    }
    Ok(())
}

impl Maps {
    /// Makes the maps that these tables need and the instance does not have. The caller holds the lock to change the policy.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn make_for(&self, tables: &Tables) -> Result<()> {
        let has = |is: fn(u64) -> bool| tables.rows.iter().any(|row| is(row.kind.into()));
        let is_needed = |name| match name {
            map::WIDE_STATE => has(Kind::is_wide),
            map::ENDINGS => has(|kind| Kind::of(kind) == Kind::Concurrent),
            _ => tables.settings.penalties != 0,
        };
        OPTIONAL.iter().filter(|it| is_needed(it.shape.name)).try_for_each(|it| self.make(it))
    }

    /// Makes a map, unless there is one, and lets the programs find it. The caller holds that lock.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn make(&self, Optional { shape, reference }: &Optional) -> Result<()> {
        let name = shape.name;
        // The kernel rounds an array up to a power of two whose maker has no `CAP_PERFMON`.
        if let Some(loader) = self.pins.loader()
            && let Some(array) = OptionalArray::of(name)
            && self.find(name)?.is_none()
        {
            loader.make_array(array, self.pins.is_second()?)?;
        }
        let map = match self.find(name)? {
            Some(map) => map,
            None => self.create(shape)?,
        };
        let failed = |error: &dyn std::error::Error| object(format!("use the map {name}"), error);
        let found = sys::lookup(self.raw(reference)?.fd().as_fd(), &0_u32);
        // Whoever made it may have ended before the programs could find it.
        if found.map_err(|error| failed(&error))? == Some(number(&map)?) {
            return Ok(());
        }
        let mut array: ArrayOfMaps<MapData, MapData> = typed(&self.pins, reference)?;
        array.set(0, &map, 0).map_err(|error| failed(&error))
    }

    /// Makes an array, unless there is one, and lets the programs find it. The caller, or the agent that asks for it, holds that
    /// lock.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn make_array(&self, array: OptionalArray) -> Result<()> {
        let is_asked = |it: &&Optional| OptionalArray::of(it.shape.name) == Some(array);
        OPTIONAL.iter().filter(is_asked).try_for_each(|it| self.make(it))
    }

    /// Makes and pins a map.
    fn create(&self, shape: &Shape) -> Result<Arc<MapData>> {
        let map = Arc::new(shape.create(self.entries_of(shape.name)?)?);
        self.pins.pin(map.fd().as_fd(), &self.pins.map(shape.name))?;
        self.optional.borrow_mut().insert(shape.name, Arc::clone(&map));
        Ok(map)
    }

    /// The entries that a map is made with.
    fn entries_of(&self, name: &str) -> Result<u32> {
        let sizes = self.sizes()?;
        Ok(match name {
            map::WIDE_STATE => Sizes::whole_sets(sizes.wide_states).saturating_add(TALLIES),
            map::ENDINGS => sizes.wide_states.saturating_mul(Ending::PER_WIDE_STATE),
            map::REFUSED_SYNS => RefusedSyn::ENTRIES,
            // Of offences. The table is as large as a hash map with one for each bucket was.
            _ => sizes.buckets.saturating_mul(offence::PER_BUCKET).next_multiple_of(offence::LINES),
        })
    }
}
