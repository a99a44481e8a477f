//! Makes the new maps beside those in use, with the same policy and lists.

use std::os::fd::AsFd as _;

use aya::{Pod, maps::MapData};
use limiter_common::{
    abi::{
        description::SHARED,
        layout::map,
        policy::{Revert, Settings},
        state::WideState,
    },
    memory::ending::Ending,
    policy::limit::BucketKey,
};

use super::{Old, Programs, load, missing};
use crate::{
    datapath::{
        bpffs::{Pins, c_path, sides::word},
        layout::{OPTIONAL, shape_of},
        maps::{Maps, pinned, typed},
        policy::StoredPolicy,
        program::{Clock, Program, create_maps},
        sizes::Sizes,
        sys,
    },
    error::{Error, Result},
    policy::recompile,
};

/// Maps that are not in use, and the programs for them.
pub(super) struct Made {
    pub(super) maps: Maps,
    pub(super) programs: Programs,
    /// The program `limiter_carry`.
    pub(super) carrier: Program,
    /// Maps that begin empty, as their values mean something else.
    pub(super) anew: Vec<&'static str>,
}

/// The epoch of an old head, with this version's layout.
pub(super) fn epoch(head: &[u8]) -> u64 {
    crate::datapath::policy::epoch_word(word(head, 0) as u32)
}

/// Makes maps beside the old ones, and loads the programs for them. None of them is in use yet.
pub(super) fn prepare(old: &Old, new: &Pins, sizes: &Sizes, clock: Clock) -> Result<Made> {
    new.make_maps()?;
    let anew = share(old, new, sizes)?;
    create_maps(new, sizes)?;
    new.hand_over_maps()?;
    let programs = load(new, &old.from, clock)?;
    let carrier = Program::load_carrier(new, &old.from, clock)?;
    Ok(Made { maps: Maps::open_at(new)?, programs, carrier, anew })
}

/// Pins the old maps whose values mean the same beside the new ones. Returns the names of those that begin empty.
fn share(old: &Old, new: &Pins, sizes: &Sizes) -> Result<Vec<&'static str>> {
    let mut anew = Vec::new();
    for (name, _) in SHARED {
        let map = pinned(&old.from.pins, name)?;
        let fits = map.as_ref().is_some_and(|map| {
            old.layout.shares(name) && shape_of(name).is_some_and(|shape| shape.fits(map))
        });
        match map {
            Some(map) if fits => {
                let is_resized = match name {
                    // `copy_wide` fills them.
                    map::WIDE_STATE | map::ENDINGS => sizes.wide_states != old.sizes.wide_states,
                    // The SYNs of the last seconds are charged once more when they are repeated.
                    map::SYN_DEDUP => sizes.buckets != old.sizes.buckets,
                    _ => false,
                };
                if !is_resized {
                    sys::pin(map.fd().as_fd(), &c_path(new.map(name).as_os_str())?)
                        .map_err(|error| Error::system(format!("pin the map {name}"), error))?;
                }
            }
            // No policy needed it.
            None if OPTIONAL.iter().any(|it| it.shape.name == name) => {}
            // Without these maps, interfaces would be unknown, and blocks would end.
            _ if [map::INTERFACES, map::OFFENCES].contains(&name) => return Err(missing(name)),
            _ if !old.layout.knows(name) => {}
            _ => anew.push(name),
        }
    }
    Ok(anew)
}

/// Writes policy, lists and monitor switch of the old maps into the new ones, and copies wide states. Returns the switch.
/// The caller holds the lock to change the policy.
pub(super) fn restore(old: &Old, maps: &mut Maps) -> Result<u64> {
    let head = old.head()?;
    let epoch = word(&head, 0) as u32;
    let revert = Revert(word(&head, old.layout.head_revert as usize));
    let monitor = word(&head, old.layout.head_monitor as usize);
    // A policy that waits to be confirmed needs the other half: the policy before, under the next epoch.
    let next = revert.at(epoch).map(|_| epoch.wrapping_add(1));
    let mut settings = Vec::new();
    for epoch in [Some(epoch), next].into_iter().flatten() {
        settings.push((epoch, restore_half(old, maps, epoch)?));
    }
    copy_wide(old, maps)?;
    let head = maps.raw(map::HEAD)?.fd();
    sys::prepare(head.as_fd(), &settings, revert, monitor)
        .map_err(|error| Error::system("write the settings", error))?;
    Ok(monitor)
}

/// Writes the tables and the document of an epoch as the old instance has them. Returns the settings.
fn restore_half(old: &Old, maps: &mut Maps, epoch: u32) -> Result<Settings> {
    let document =
        crate::datapath::policy::document_of(&typed(&old.from.pins, map::DOCUMENT)?, epoch & 1)?;
    let stored = StoredPolicy::read(&document)?;
    let tables = recompile(stored.layered(), &stored.held, &maps.context(epoch)?)?;
    maps.check_capacity(&tables)?;
    maps.make_for(&tables)?;
    maps.write_tables(&tables, epoch)?;
    maps.write_document(&document, epoch & 1)?;
    let [sets, bucket_sets] = [maps.source_sets()?, maps.bucket_sets()?];
    Ok(Settings { sets, bucket_sets, ..tables.settings })
}

/// Copies wide states and endings into maps of another size. A change during the copy may be missed.
fn copy_wide(old: &Old, maps: &Maps) -> Result<()> {
    copy::<BucketKey, WideState>(old, maps, map::WIDE_STATE)?;
    copy::<u32, Ending>(old, maps, map::ENDINGS)
}

/// Copies a hash map, unless old and new are one map, or their values mean something else.
fn copy<K: Pod + Default, V: Pod + Default>(
    old: &Old,
    maps: &Maps,
    name: &'static str,
) -> Result<()> {
    let (Some(from), Some(to)) = (pinned(&old.from.pins, name)?, maps.find(name)?) else {
        return Ok(());
    };
    let number = |map: &MapData| map.info().map(|info| info.id()).ok();
    let fits = old.layout.shares(name) && shape_of(name).is_some_and(|shape| shape.fits(&from));
    if !fits || number(&from) == number(&to) {
        return Ok(());
    }
    let failed = |error| Error::system(format!("copy the map {name}"), error);
    let (mut keys, mut values) = (Vec::<K>::new(), Vec::<V>::new());
    let push = |key: &K, value: &V| {
        keys.push(*key);
        values.push(*value);
    };
    sys::for_each(from.fd().as_fd(), push).map_err(failed)?;
    sys::update(to.fd().as_fd(), &keys, &values).map_err(failed)
}
