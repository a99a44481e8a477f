//! Fills and clears whole maps of an instance.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use anyhow::{Context as _, Result, bail, ensure};
use aya::{
    Pod,
    maps::{Array, Map, MapData, MapInfo, MapType},
    programs::ProgramInfo,
    util::nr_cpus,
};
use limiter_common::abi::layout::map;

/// The maps of an instance by name: the pinned ones, and those that only the program refers to.
pub(super) struct Memory(BTreeMap<String, MapData>);

/// The flag of maps that programs cannot write (`BPF_F_RDONLY_PROG`). They hold the constants of the program
/// and are not cleared.
const CONSTANT: u32 = 1 << 7;

/// The members of `union bpf_attr` (bpf(2)) for commands on one element, and on many.
#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Batch {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

const DELETE: libc::c_int = 3;
const NEXT_KEY: libc::c_int = 4;
const UPDATE_BATCH: libc::c_int = 26;

impl Memory {
    /// Opens the maps that are pinned in `folder`, and the others that `program` uses.
    pub(super) fn open(folder: &Path, program: &ProgramInfo) -> Result<Self> {
        let mut maps = BTreeMap::new();
        for id in program.map_ids()?.context("the kernel does not tell the maps of a program")? {
            let map = MapData::from_id(id)?;
            let info = map.info()?;
            if info.map_flags() & CONSTANT == 0 {
                maps.insert(info.name_as_str().context("a map's name")?.to_owned(), map);
            }
        }
        let mut memory = Self(maps);
        memory.open_pins(folder)?;
        Ok(memory)
    }

    /// Opens the maps that are pinned in `folder`, of which a policy may have more than the one before.
    pub(super) fn open_pins(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).context("a map's name")?;
            if !self.0.contains_key(name) {
                self.0.insert(name.to_owned(), MapData::from_pin(&path)?);
            }
        }
        Ok(())
    }

    /// Writes `value` to every element of the array `name`.
    pub(super) fn fill<V: Pod>(&self, name: &str, value: V) -> Result<()> {
        // SAFETY: all bytes of a plain value of this type are initialised, and it outlives the slice.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const value).cast(), size_of::<V>()) };
        fill(self.map(name)?, bytes).with_context(|| format!("cannot fill the map {name}"))
    }

    /// Clears all maps, to the state in which they were created. The one with the description of the others is never
    /// changed.
    pub(super) fn blank(&self) -> Result<()> {
        let mut changed = self.0.keys().filter(|name| *name != map::LAYOUT);
        changed.try_for_each(|name| self.blank_map(name))
    }

    /// Clears one map, to the state in which it was created. One that no policy needed is so.
    pub(super) fn blank_map(&self, name: &str) -> Result<()> {
        let Some(map) = self.0.get(name) else { return Ok(()) };
        let info = map.info()?;
        let blanked = match info.map_type()? {
            MapType::Array | MapType::PerCpuArray => fill(map, &vec![0; element_size(&info)?]),
            MapType::ArrayOfMaps => (0..info.max_entries()).try_for_each(|slot| {
                match delete(map, &slot.to_ne_bytes()) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    removed => Ok(removed?),
                }
            }),
            MapType::Hash | MapType::LruHash => empty(map, info.key_size() as usize),
            // The program belongs to the maps, and stays.
            MapType::ProgramArray => Ok(()),
            // The consumer empties a ring buffer by reading it.
            MapType::RingBuf => Ok(()),
            kind => bail!("the map {name} is of type {kind:?}, which nobody knows how to blank"),
        };
        blanked.with_context(|| format!("cannot blank the map {name}"))
    }

    /// The elements of an array.
    pub(super) fn array<V: Pod>(&self, name: &str) -> Result<Array<MapData, V>> {
        let data = MapData::from_id(self.map(name)?.info()?.id())?;
        Ok(Map::Array(data).try_into()?)
    }

    pub(super) fn map(&self, name: &str) -> Result<&MapData> {
        self.0.get(name).with_context(|| format!("there is no map {name}"))
    }
}

/// Bytes of one element of an array. For a per-CPU array, those of all CPUs, each padded to a multiple of 8.
fn element_size(info: &MapInfo) -> Result<usize> {
    let size = info.value_size() as usize;
    Ok(match info.map_type()? {
        MapType::PerCpuArray => size.next_multiple_of(8) * nr_cpus().map_err(|(_, error)| error)?,
        _ => size,
    })
}

/// Writes these bytes to every element of an array.
fn fill(map: &MapData, value: &[u8]) -> Result<()> {
    let info = map.info()?;
    let size = element_size(&info)?;
    ensure!(value.len() == size, "an element has {size} bytes, not {}", value.len());
    let count = info.max_entries();
    let keys: Vec<u32> = (0..count).collect();
    let values = value.repeat(count as usize);
    let mut batch = Batch {
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count,
        map: number(map),
        ..Batch::default()
    };
    // SAFETY: the counts and sizes are those of the array, and the buffers outlive the call.
    let filled = unsafe { bpf(UPDATE_BATCH, &mut batch) };
    Ok(filled?)
}

/// Removes all elements of a hash map. The map must not change meanwhile.
fn empty(map: &MapData, key_size: usize) -> Result<()> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut key = vec![0_u8; key_size];
        let mut element = Element {
            map: number(map),
            key: keys.last().map_or(0, |last| last.as_ptr() as u64),
            value: key.as_mut_ptr() as u64,
            ..Element::default()
        };
        // SAFETY: both keys, the previous one if there is one and the next one, are of the map's key size.
        match unsafe { bpf(NEXT_KEY, &mut element) } {
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            found => found?,
        }
        keys.push(key);
    }
    Ok(keys.iter().try_for_each(|key| delete(map, key))?)
}

fn delete(map: &MapData, key: &[u8]) -> io::Result<()> {
    let mut element = Element { map: number(map), key: key.as_ptr() as u64, ..Element::default() };
    // SAFETY: the key is of the map's key size and outlives the call.
    unsafe { bpf(DELETE, &mut element) }
}

fn number(map: &MapData) -> u32 {
    map.fd().as_fd().as_raw_fd().cast_unsigned()
}

/// Calls bpf(2) with the members of its union that the command reads and writes.
///
/// # Safety
/// The pointers in `attributes` must be valid for `command`.
pub(super) unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<()> {
    // SAFETY: the size is that of the attributes; the caller vouches for the pointers in them.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
