//! Makes the new maps beside those in use, with the same policy and lists.

use std::os::fd::AsFd as _;

use aya::{Pod, maps::MapData};
use limiter_common::{
    abi::{description::SHARED, layout::map, policy::Revert},
    base::seed::Seed,
    memory::ending::Ending,
};

use super::{
    Old, Programs, load, offences,
    wide::{self, Brought},
};
use crate::{
    datapath::{
        bpffs::{Pins, sides::word},
        layout::{OPTIONAL, shape_of},
        maps::Maps,
        object::number,
        open::{missing, pinned, typed},
        policy::{StoredPolicy, document_of, epoch_word},
        program::{Clock, Program, create_maps},
        sizes::Sizes,
        sys,
    },
    error::{Error, Result},
    policy::{Tables, recompile},
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
    epoch_word(word(head, 0) as u32)
}

/// Makes maps beside the old ones, and loads the programs for them. None of them is in use yet.
pub(super) fn prepare(old: &Old, new: &Pins, sizes: &Sizes, clock: Clock) -> Result<Made> {
    new.make_maps()?;
    let anew = share(old, new, sizes)?;
    create_maps(new, sizes)?;
    new.hand_over_maps()?;
    let programs = load(new, &old.from.pins, Some(&old.from), clock)?;
    let carrier = Program::load_carrier(new, &old.from, clock)?;
    Ok(Made { maps: Maps::open_at(new)?, programs, carrier, anew })
}

/// Pins the old maps whose values mean the same beside the new ones, but for the optional ones. Returns the names of those
/// that begin empty.
fn share(old: &Old, new: &Pins, sizes: &Sizes) -> Result<Vec<&'static str>> {
    let mut anew = Vec::new();
    for (name, _) in SHARED {
        if is_optional(name) {
            continue;
        }
        match old.shared(name)? {
            // The SYNs of the last seconds are charged once more when they are repeated.
            Some(_) if name == map::SYN_DEDUP && sizes.buckets != old.sizes.buckets => {}
            Some(map) => new.pin(map.fd().as_fd(), &new.map(name))?,
            // Without it, interfaces would be unknown.
            None if name == map::INTERFACES => return Err(missing(name)),
            None if !old.layout.knows(name) => {}
            None => anew.push(name),
        }
    }
    Ok(anew)
}

/// The same for the optional maps that the old instance has. Another process may make one until the caller holds the lock to
/// change the policy. Returns how many sources are blocked and found no room, too.
fn share_optional(old: &Old, maps: &Maps) -> Result<(Vec<&'static str>, u32)> {
    let (mut anew, mut lost) = (Vec::new(), 0);
    for optional in &OPTIONAL {
        let name = optional.shape.name;
        if pinned(&old.from.pins, name)?.is_none() {
            continue;
        }
        match old.shared(name)? {
            // The programs fill it, as they do the buckets, but for what came after they were loaded.
            Some(_) if name == map::WIDE_STATE => {
                maps.make(optional)?;
                if !old.has_wide {
                    anew.push(name);
                }
            }
            // `copy` fills it.
            Some(_)
                if name == map::ENDINGS && maps.sizes()?.wide_states != old.sizes.wide_states =>
            {
                maps.make(optional)?;
            }
            Some(map) => maps.pins.pin(map.fd().as_fd(), &maps.pins.map(name))?,
            None if name == map::OFFENCES => {
                maps.make(optional)?;
                lost = offences::bring(old, maps)?;
            }
            // `restore` brings them over.
            None if name == map::WIDE_STATE && old.has_hash_of_wide()? => {}
            None => anew.push(name),
        }
    }
    Ok((anew, lost))
}

fn is_optional(name: &str) -> bool {
    OPTIONAL.iter().any(|optional| optional.shape.name == name)
}

impl Old {
    /// A map whose values mean in this version what they mean in the old one.
    fn shared(&self, name: &str) -> Result<Option<MapData>> {
        let map = pinned(&self.from.pins, name)?;
        let fits = |map: &MapData| {
            self.layout.shares(name) && shape_of(name).is_some_and(|shape| shape.fits(map))
        };
        Ok(map.filter(fits))
    }
}

/// What was written into the new maps before they are in use.
pub(super) struct Restored {
    /// The monitor switch.
    pub(super) monitor: u64,
    /// Optional maps that begin empty.
    pub(super) anew: Vec<&'static str>,
    /// Wide states of an older layout that are in the new maps, and that are not: see [`Brought::All`]. To those that are not,
    /// blocks of sources are added that found no room.
    pub(super) carried: u32,
    pub(super) lost: u32,
}

/// Writes policy, lists and monitor switch of the old maps into the new ones, and takes the optional maps over. With a seed,
/// the new tables are hashed by that. The caller holds the lock to change the policy.
pub(super) fn restore(old: &Old, maps: &mut Maps, seed: Option<Seed>) -> Result<Restored> {
    let (mut anew, unblocked) = share_optional(old, maps)?;
    let head = old.head()?;
    let epoch = word(&head, 0) as u32;
    let revert = Revert(word(&head, old.layout.head_revert as usize));
    let monitor = word(&head, old.layout.head_monitor as usize);
    let (mut settings, mut policies) = (Vec::new(), Vec::new());
    let (mut carried, mut lost) = (0, 0);
    let needed = needed(epoch, revert, sys::monotonic());
    if !needed.contains(&epoch) {
        keep_document(old, maps, epoch)?;
    }
    for epoch in needed {
        let tables = restore_half(old, maps, epoch, seed)?;
        settings.push((epoch, maps.with_sets(tables.settings)?));
        policies.push(tables);
    }
    if old.has_hash_of_wide()? {
        match wide::bring(old, maps, &policies)? {
            Brought::All { carried: of_them, lost: without } => {
                (carried, lost) = (of_them, without);
            }
            Brought::None => anew.push(map::WIDE_STATE),
        }
    }
    copy::<u32, Ending>(old, maps, map::ENDINGS)?;
    let head = maps.raw(map::HEAD)?.fd();
    sys::prepare(head.as_fd(), &settings, revert, monitor)
        .map_err(|error| Error::system("write the settings", error))?;
    Ok(Restored { monitor, anew, carried, lost: lost + unblocked })
}

/// The epochs whose tables packets go by from a time on. A policy that waits to be confirmed needs the other half: the policy
/// before, under the next epoch. Once it is taken back, that alone is needed.
fn needed(epoch: u32, revert: Revert, now: u64) -> Vec<u32> {
    match revert.at(epoch) {
        None => vec![epoch],
        Some(at) if now < at => vec![epoch, epoch.wrapping_add(1)],
        Some(_) => vec![epoch.wrapping_add(1)],
    }
}

/// Keeps the document of a policy that was taken back, as the next policy skips the numbers of tenants that it gave out. It is
/// no fault if there is none: a command may have died while it wrote the next one in its place.
fn keep_document(old: &Old, maps: &mut Maps, epoch: u32) -> Result<()> {
    match stored(old, epoch) {
        Ok(stored) => maps.write_document(&stored.without_tries().write()?, epoch & 1),
        Err(_) => Ok(()),
    }
}

/// The policy of an epoch as the old instance has it.
fn stored(old: &Old, epoch: u32) -> Result<StoredPolicy> {
    StoredPolicy::read(&document_of(&typed(&old.from.pins, map::DOCUMENT)?, epoch & 1)?)
}

/// Writes the tables and the document of an epoch as the old instance has them. Returns the tables.
fn restore_half(old: &Old, maps: &mut Maps, epoch: u32, seed: Option<Seed>) -> Result<Tables> {
    let mut stored = stored(old, epoch)?;
    if let Some(Seed(seed)) = seed {
        stored.held.set_table_seed(seed);
    }
    let tables = recompile(stored.layered(), &stored.held, &maps.context(epoch)?)?;
    maps.check_capacity(&tables)?;
    maps.make_for(&tables)?;
    maps.write_tables(&tables, None, epoch)?;
    maps.write_document(&stored.without_tries().write()?, epoch & 1)?;
    Ok(tables)
}

/// Copies a hash map, unless old and new are one map, or their values mean something else. A change during the copy may be
/// missed.
fn copy<K: Pod + Default, V: Pod + Default>(
    old: &Old,
    maps: &Maps,
    name: &'static str,
) -> Result<()> {
    let (Some(from), Some(to)) = (old.shared(name)?, maps.find(name)?) else {
        return Ok(());
    };
    if number(&from)? == number(&to)? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_was_taken_back_is_not_needed() {
        let trial = Revert::new(7, 1 << 30);
        assert_eq!(needed(7, Revert::NEVER, 1 << 31), [7]);
        assert_eq!(needed(7, trial, 1 << 29), [7, 8]);
        assert_eq!(needed(7, trial, 1 << 30), [8]);
        assert_eq!(needed(9, trial, 1 << 31), [9], "it is of another epoch");
    }
}
