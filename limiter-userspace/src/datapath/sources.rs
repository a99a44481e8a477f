//! Reading the table of sources, as it is in the memory of the kernel.

use std::{marker::PhantomData, mem::offset_of, os::fd::AsFd as _, ptr::NonNull};

use aya::{
    Pod,
    maps::{Array, Map, MapData},
};
use limiter_common::{
    abi::{
        description::Description,
        layout::{map, shared},
        policy::Settings,
        table::{FurtherLimits, PROBATION_SLOTS, Set, Source, WAYS, WholeSource},
    },
    algorithm::binding::Binding,
    base::address::Address,
    table::{
        probation::{ProbationFacts, ProbationSlot, SetState},
        set::Place,
    },
};

use super::{
    bpffs::{Pins, sides::Beside},
    maps::{Maps, described},
    object::object,
    open::pinned,
    policy::in_force,
    sys,
};
use crate::error::{Error, Result};

/// How often what packets write at the same time is read, until it is whole.
const READS: u32 = 128;

/// The values of an array, mapped into memory to be read.
pub(super) struct Mapping<V> {
    memory: sys::Mapping,
    entries: usize,
    values: PhantomData<V>,
}

impl<V: Pod> Mapping<V> {
    /// Maps an array whose values are a multiple of eight bytes long, as the kernel lays them out.
    pub(super) fn new(maps: &Maps, name: &'static str) -> Result<Self> {
        const { assert!(size_of::<V>().is_multiple_of(8)) };
        let entries = maps.capacity(name)? as usize;
        let memory =
            sys::Mapping::read_only(maps.raw(name)?.fd().as_fd(), entries * size_of::<V>())
                .map_err(|error| Error::system(format!("map {name} into memory"), error))?;
        Ok(Self { memory, entries, values: PhantomData })
    }

    /// A value as it is; packets may be changing it.
    pub(super) fn get(&self, index: usize) -> Option<V> {
        let first: NonNull<V> = self.memory.start().cast();
        // SAFETY: the mapping is as long as all values and any bits are one. It begins at a page, so
        // values are as aligned as they ask. What packets write meanwhile are whole words.
        (index < self.entries).then(|| unsafe { first.add(index).read_volatile() })
    }
}

impl Mapping<Source> {
    /// The binding of an entry.
    fn binding(&self, index: usize) -> Option<Binding> {
        const { assert!(offset_of!(Source, binding) == 0) };
        let first: NonNull<Source> = self.memory.start().cast();
        // SAFETY: as in `get`; the binding is the first word of an entry.
        let word = || unsafe { first.add(index).cast::<u64>().read_volatile() };
        (index < self.entries).then(|| Binding(word()))
    }
}

impl Maps {
    /// Where a source is looked for under the policy in force.
    ///
    /// # Errors
    /// What the system says.
    pub fn place(&self, address: &Address) -> Result<Place> {
        Ok(Place::of(address, self.settings_in_force()?.table_seed, self.source_sets()?))
    }

    /// What holds under the policy in force.
    pub(super) fn settings_in_force(&self) -> Result<Settings> {
        let head = self.read_head()?;
        Ok(head.settings[in_force(&head, sys::monotonic()) as usize & 1])
    }

    /// Sets of sources.
    pub(crate) fn source_sets(&self) -> Result<u32> {
        Ok(self.source_capacity()? / WAYS as u32)
    }

    /// The sources that there are entries for.
    pub(crate) fn source_capacity(&self) -> Result<u32> {
        Ok(self.capacity(map::SOURCES)?.saturating_sub(shared::LEN))
    }

    /// The entry of a source, by its key; `None` when it has none.
    ///
    /// # Errors
    /// What the system says.
    pub fn source(&self, address: &Address) -> Result<Option<Source>> {
        Ok(self.find_source(address)?.map(|(_, source)| source.settled()))
    }

    /// The entry of a source, by its key, with the limits that have no room there; `None` when it has none.
    ///
    /// # Errors
    /// What the system says.
    pub fn whole_source(&self, address: &Address) -> Result<Option<WholeSource>> {
        let Some((number, _)) = self.find_source(address)? else { return Ok(None) };
        let found = self.whole_entry(number)?;
        Ok(found.filter(|found| found.entry.address == *address))
    }

    /// The entry of this number, with the limits that have no room there; `None` when there is none.
    ///
    /// # Errors
    /// What the system says.
    pub fn whole_entry(&self, number: u32) -> Result<Option<WholeSource>> {
        let read = || self.entry::<u32, Source>(map::SOURCES, &number);
        let Some(mut entry) = read()? else { return Ok(None) };
        if !self.has_further()? {
            return Ok(Some(WholeSource { entry, ..WholeSource::default() }.settled()));
        }
        let mut further = FurtherLimits::default();
        for _ in 0..READS {
            further = self.entry(map::FURTHER_LIMITS, &number)?.unwrap_or_default();
            let Some(after) = read()? else { return Ok(None) };
            // Otherwise it has changed hands, and they may be another source's.
            let is_same = after.binding == entry.binding;
            entry = after;
            if is_same {
                break;
            }
        }
        Ok(Some(WholeSource { entry, further }.settled()))
    }

    /// The entry of a source, by its key, with its number.
    fn find_source(&self, address: &Address) -> Result<Option<(u32, Source)>> {
        let place = self.place(address)?;
        let Some(set) = self.entry::<u32, Set>(map::SETS, &place.set)? else { return Ok(None) };
        for (number, tag) in (shared::entry(place.set, 0)..).zip(set.tags) {
            if tag == place.tag
                && let Some(source) = self.entry::<u32, Source>(map::SOURCES, &number)?
                && source.address == *address
            {
                return Ok(Some((number, source)));
            }
        }
        Ok(None)
    }

    /// The first packet of a source that has no entry yet; `None` when nothing is known of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn newcomer(&self, address: &Address) -> Result<Option<ProbationSlot>> {
        let place = self.place(address)?;
        for _ in 0..READS {
            let read = || self.entry::<u32, Set>(map::SETS, &place.set);
            let (Some(before), Some(after)) = (read()?, read()?) else { break };
            // What a packet writes meanwhile is not whole.
            if before == after && before.probation.state & SetState::LOCK == 0 {
                let found = before.probation.find(address);
                return Ok((found < PROBATION_SLOTS).then(|| before.probation.at(found)));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with the entries of all sources, each with its number.
    ///
    /// # Errors
    /// What the system says.
    pub fn each_source(&self, mut visit: impl FnMut(usize, &Source)) -> Result<()> {
        let sets = Mapping::<Set>::new(self, map::SETS)?;
        let sources = Mapping::<Source>::new(self, map::SOURCES)?;
        for number in 0..self.source_sets()? {
            let Some(Set { tags, .. }) = sets.get(number as usize) else { break };
            let entries = shared::entry(number, 0) as usize..;
            for (entry, _) in entries.zip(tags).filter(|(_, tag)| *tag != 0) {
                // One that changes hands is nobody's, or was when it was read.
                if let (Some(before), Some(source)) = (sources.binding(entry), sources.get(entry))
                    && !before.is_locked()
                    && sources.binding(entry) == Some(before)
                {
                    visit(entry, &source.settled());
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` with the number of the entry of each way that is taken, and tells of the table as a whole.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn each_way(&self, mut visit: impl FnMut(u32)) -> Result<TableOccupancy> {
        let sets = Mapping::<Set>::new(self, map::SETS)?;
        let number_of_sets = self.source_sets()?;
        let mut occupancy =
            TableOccupancy { sets: number_of_sets.into(), ..TableOccupancy::default() };
        for number in 0..number_of_sets {
            let Some(Set { tags, probation }) = sets.get(number as usize) else { break };
            let taken = used(&tags);
            occupancy.taken += taken;
            occupancy.full_sets += u64::from(taken == WAYS as u64);
            let is_there = |facts: &&u32| **facts != ProbationFacts::NONE.0;
            occupancy.newcomers += probation.facts.iter().filter(is_there).count() as u64;
            for (entry, _) in (shared::entry(number, 0)..).zip(tags).filter(|(_, tag)| *tag != 0) {
                visit(entry);
            }
        }
        Ok(occupancy)
    }

    /// Packets of sources that found no room and shared an entry, since the instance was made.
    ///
    /// # Errors
    /// What the system says.
    pub fn shared_packets(&self) -> Result<SharedPackets> {
        let mut packets = SharedPackets::default();
        packets.add(&self.pins, map::SOURCES)?;
        // What the table before an exchange has counted is carried over after the programs are exchanged.
        if let (_, old, Beside::Old) = self.pins.sides()?
            && let Some(layout) = described(&old)?.filter(Description::has_own_sources)
        {
            packets.add(&old, layout.shared_sources())?;
        }
        Ok(packets)
    }

    /// How many sources have an entry.
    ///
    /// # Errors
    /// What the system says.
    pub fn tracked(&self) -> Result<u64> {
        let sets = Mapping::<Set>::new(self, map::SETS)?;
        let used = |number| sets.get(number).map_or(0, |Set { tags, .. }| used(&tags));
        Ok((0..self.source_sets()? as usize).map(used).sum())
    }
}

/// Packets of the sources that share the overflow entries, as the table has no room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPackets {
    /// Packets that passed.
    pub passed: u64,
    /// Packets that were dropped: mostly of sources within their own limits.
    pub dropped: u64,
}

impl SharedPackets {
    /// Adds those of a table, unless it was removed meanwhile.
    fn add(&mut self, pins: &Pins, name: &str) -> Result<()> {
        let failed = |error| object(format!("read the map {name}"), &error);
        let Some(map) = pinned(pins, name)? else { return Ok(()) };
        let sources: Array<MapData, Source> =
            Map::from_map_data(map).and_then(Array::try_from).map_err(failed)?;
        for set in 0..shared::OVERFLOWS {
            let entry = sources.get(&shared::overflow(set), 0).map_err(failed)?;
            let Source { passed, dropped, .. } = entry.settled();
            self.passed += passed.packets;
            self.dropped += dropped.packets;
        }
        Ok(())
    }
}

/// What the table of sources has in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOccupancy {
    /// Sources that have an entry.
    pub taken: u64,
    /// The last sources that sent a single packet to a set without room, and have no entry.
    pub newcomers: u64,
    /// Sets.
    pub sets: u64,
    /// Sets without a free entry: who comes to one of those has to wait for somebody to make room.
    pub full_sets: u64,
}

fn used(tags: &[u8; WAYS]) -> u64 {
    tags.iter().filter(|tag| **tag != 0).count() as u64
}
