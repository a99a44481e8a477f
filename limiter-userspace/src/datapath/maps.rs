//! The maps of an instance, opened from their pins.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    sync::Arc,
};

use aya::maps::{Array, ArrayOfMaps, HashMap, MapData, PerCpuArray};
use limiter_common::{
    abi::{
        counters::{LimitTally, SlotCounters, TableStats},
        description::{Description, Standing},
        interface::Interface,
        layout::{CHUNK, LAYOUT_VERSION, map},
        policy::Head,
        table::ENTRY_PLACES,
    },
    base::tally::Tally,
    memory::event::EventStats,
    policy::limit::INLINE,
};

use super::{
    bpffs::Pins,
    layout::{OPTIONAL, Optional, SHAPES, shape_of},
    object::{number, object},
    open::{pinned, typed},
    prefix_rules::PrefixRules,
    sizes::Sizes,
    stored_policy::StoredPolicy,
};
use crate::{
    error::{Error, Result},
    policy::Tables,
};

/// What was put in force, and may be written into the other half.
pub(super) struct Unprepared {
    pub(super) tables: Tables,
    pub(super) document: Vec<u8>,
    pub(super) epoch: u32,
    /// Whether the trie of sources was written as a whole.
    pub(super) is_whole: bool,
}

/// The maps of an instance.
pub struct Maps {
    pub(crate) head: Array<MapData, Head>,
    pub(crate) prefixes: ArrayOfMaps<MapData, MapData>,
    pub(crate) destinations: ArrayOfMaps<MapData, MapData>,
    pub(crate) counters: PerCpuArray<MapData, SlotCounters>,
    pub(crate) unloaded: PerCpuArray<MapData, Tally>,
    pub(crate) tallies: PerCpuArray<MapData, LimitTally>,
    pub(crate) table_stats: PerCpuArray<MapData, TableStats>,
    pub(crate) event_stats: PerCpuArray<MapData, EventStats>,
    pub(crate) interfaces: Array<MapData, Interface>,
    pub(crate) document: HashMap<MapData, [u32; 2], [u8; CHUNK]>,
    /// The policy as it was read last, and its epoch.
    pub(super) read: RefCell<Option<(u32, Arc<StoredPolicy>)>>,
    /// What that policy says of prefixes, and its epoch.
    pub(super) rules: RefCell<Option<(u32, Arc<PrefixRules>)>>,
    /// What was put in force last, if the next change would take long without [`prepare`](Self::prepare).
    pub(super) unprepared: Option<Unprepared>,
    /// Where they are pinned, beside the links.
    pub(super) pins: Pins,
    /// Every map that each instance has, again, by name, for what is done with any map.
    raw: BTreeMap<&'static str, MapData>,
    /// Those of the [`OPTIONAL`] maps that were made and looked for.
    pub(super) optional: RefCell<BTreeMap<&'static str, Arc<MapData>>>,
}

impl Maps {
    /// Opens the maps of an instance, all of which must have the layout of this version.
    ///
    /// # Errors
    /// [`Error::Layout`] with every difference, [`Error::Older`], [`Error::Newer`], or what the system says.
    pub fn open(pins: &Pins) -> Result<Self> {
        loop {
            let in_use = pins.in_use()?;
            match Self::open_at(&in_use) {
                // They were exchanged meanwhile.
                Err(_) if pins.in_use()?.maps() != in_use.maps() => {}
                opened => return opened,
            }
        }
    }

    /// Opens maps that may not be in use; pins that do not say which are about those that are.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn open_at(pins: &Pins) -> Result<Self> {
        let directory = || pins.directory().to_path_buf();
        if let Some(described) = described(pins)? {
            let layout = described.layout;
            match described.standing() {
                Standing::Older => return Err(Error::Older { directory: directory(), layout }),
                Standing::Newer => return Err(Error::Newer { directory: directory(), layout }),
                Standing::Own | Standing::Foreign => {}
            }
        }
        let mut differences = Vec::new();
        let mut raw = BTreeMap::new();
        for shape in SHAPES {
            match pinned(pins, shape.name)? {
                Some(data) => {
                    differences.extend(shape.differences(&data));
                    raw.insert(shape.name, data);
                }
                None => differences.push(format!("{} is missing", shape.name)),
            }
        }
        let mut optional = BTreeMap::new();
        for Optional { shape, .. } in &OPTIONAL {
            if let Some(data) = pinned(pins, shape.name)? {
                differences.extend(shape.differences(&data));
                optional.insert(shape.name, Arc::new(data));
            }
        }
        let layout = |differences| Error::Layout { directory: directory(), differences };
        if !differences.is_empty() {
            return Err(layout(differences));
        }
        let maps = Self {
            head: typed(pins, map::HEAD)?,
            prefixes: typed(pins, map::PREFIXES)?,
            destinations: typed(pins, map::DESTINATIONS)?,
            counters: typed(pins, map::COUNTERS)?,
            unloaded: typed(pins, map::UNLOADED)?,
            tallies: typed(pins, map::TALLIES)?,
            table_stats: typed(pins, map::TABLE_STATS)?,
            event_stats: typed(pins, map::EVENT_STATS)?,
            interfaces: typed(pins, map::INTERFACES)?,
            document: typed(pins, map::DOCUMENT)?,
            read: RefCell::default(),
            rules: RefCell::default(),
            unprepared: None,
            pins: pins.clone(),
            raw,
            optional: RefCell::new(optional),
        };
        let version = (maps.read_head()?.epoch >> 32) as u32;
        if version != LAYOUT_VERSION && version != 0 {
            return Err(layout(vec![format!(
                "they are of layout {version}, and this is limiter for layout {LAYOUT_VERSION}"
            )]));
        }
        Ok(maps)
    }

    /// Which policy is in force.
    pub(crate) fn read_head(&self) -> Result<Head> {
        self.head.get(&0, 0).map_err(|error| object("read the epoch", &error))
    }

    /// How much they have room for.
    ///
    /// # Errors
    /// What the system says.
    pub fn sizes(&self) -> Result<Sizes> {
        let layout = self.entry(map::LAYOUT, &0_u32)?.unwrap_or_default();
        Sizes::by(&layout, self.has_further()?, |name| self.capacity(name))
    }

    /// A map by its name.
    pub(crate) fn raw(&self, name: &'static str) -> Result<&MapData> {
        self.raw.get(name).ok_or_else(|| Error::Object {
            action: format!("use the map {name}"),
            reason: "it was not opened".to_owned(),
        })
    }

    /// An [`OPTIONAL`] map by its name, if it was made, also by another process since these were opened.
    pub(super) fn find(&self, name: &'static str) -> Result<Option<Arc<MapData>>> {
        if let Some(map) = self.optional.borrow().get(name) {
            return Ok(Some(Arc::clone(map)));
        }
        let Some(map) = pinned(&self.pins, name)? else { return Ok(None) };
        let map = Arc::new(map);
        self.optional.borrow_mut().insert(name, Arc::clone(&map));
        Ok(Some(map))
    }

    /// Calls `with` with the descriptor of a map, if it was made, to read or change its entries.
    pub(super) fn with_map<T>(
        &self,
        name: &'static str,
        with: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Result<Option<T>> {
        let failed = |error| Error::system(format!("use the map {name}"), error);
        if let Some(map) = self.raw.get(name) {
            return with(map.fd().as_fd()).map(Some).map_err(failed);
        }
        let map = self.find(name)?;
        map.map(|map| with(map.fd().as_fd())).transpose().map_err(failed)
    }

    /// Whether sources have room for more inline limits than their entries have.
    pub(super) fn has_further(&self) -> Result<bool> {
        has_further(self.raw(map::FURTHER_LIMITS)?)
    }

    /// The inline limits that there is room for.
    pub(super) fn inline_room(&self) -> Result<usize> {
        Ok(if self.has_further()? { INLINE } else { ENTRY_PLACES })
    }

    /// Entries that a map has room for.
    pub(crate) fn capacity(&self, name: &'static str) -> Result<u32> {
        let info = self.raw(name)?.info();
        Ok(info.map_err(|error| object(format!("look at the map {name}"), &error))?.max_entries())
    }

    /// Whether these are the maps that are pinned now, and not those of an instance that was removed.
    ///
    /// # Errors
    /// What the system says.
    pub fn are_pinned(&self, pins: &Pins) -> Result<bool> {
        let Some(now) = pinned(pins, map::HEAD)? else { return Ok(false) };
        Ok(number(&now)? == self.number()?)
    }

    /// A number of the instance that these are of: one that is made in its place has another.
    ///
    /// # Errors
    /// What the system says.
    pub fn number(&self) -> Result<u32> {
        number(self.raw(map::HEAD)?)
    }

    /// Bytes of kernel memory that the pinned maps take, and the tries of the lists in them, as the kernel counts them. An
    /// agent without the right to open the tries leaves them out.
    ///
    /// # Errors
    /// What the system says.
    pub fn memory(&self) -> Result<u64> {
        let mut total = 0;
        for Optional { shape, .. } in &OPTIONAL {
            self.find(shape.name)?;
        }
        let optional = self.optional.borrow();
        for data in self.raw.values().chain(optional.values().map(Arc::as_ref)) {
            total += memory_of(data)?;
        }
        for tries in [&self.prefixes, &self.destinations] {
            for half in 0..tries.len() {
                // One may be exchanged meanwhile.
                if let Ok(trie) = tries.get(&half, 0) {
                    total += memory_of(&trie)?;
                }
            }
        }
        Ok(total)
    }
}

/// Whether the map of [`map::FURTHER_LIMITS`] has one for each source.
///
/// # Errors
/// What the system says.
pub(super) fn has_further(map: &MapData) -> Result<bool> {
    let info = map.info().map_err(|error| object("look at a map", &error))?;
    Ok(info.max_entries() > 1)
}

/// Bytes of kernel memory that a map takes.
fn memory_of(map: &MapData) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.fd().as_fd().as_raw_fd());
    let info =
        fs::read_to_string(&path).map_err(|error| Error::system(format!("read {path}"), error))?;
    let bytes = info.lines().find_map(|line| line.strip_prefix("memlock:"));
    Ok(bytes.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0))
}

/// What the maps of an instance say of their layout; `None` if they say nothing.
///
/// # Errors
/// What the system says.
pub(super) fn described(pins: &Pins) -> Result<Option<Description>> {
    let Some(map) = pinned(pins, map::LAYOUT)? else { return Ok(None) };
    if !shape_of(map::LAYOUT).is_some_and(|shape| shape.fits(&map)) {
        return Ok(None);
    }
    let described: Array<MapData, Description> = typed(pins, map::LAYOUT)?;
    described.get(&0, 0).map(Some).map_err(|error| object("read the layout", &error))
}
