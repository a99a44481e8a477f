//! What the maps of an instance remember, all of it at once.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use anyhow::{Context as _, Result, bail, ensure};
use aya::{
    Pod,
    maps::{MapData, MapInfo, MapType},
    programs::ProgramInfo,
    util::nr_cpus,
};

/// Every map of an instance, and those that its program alone has.
pub(super) struct Memory(BTreeMap<String, MapData>);

/// The flag of maps that programs cannot write (`BPF_F_RDONLY_PROG`): what a program was loaded with.
const CONSTANT: u32 = 1 << 7;

/// The parts of `union bpf_attr` (bpf(2)) for one element, and for many.
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
    /// The maps that are pinned in a folder, and those that a program has beside them.
    pub(super) fn open(folder: &Path, program: &ProgramInfo) -> Result<Self> {
        let mut maps = BTreeMap::new();
        for id in program.map_ids()?.context("the kernel does not tell the maps of a program")? {
            let map = MapData::from_id(id)?;
            let info = map.info()?;
            if info.map_flags() & CONSTANT == 0 {
                maps.insert(info.name_as_str().context("a map's name")?.to_owned(), map);
            }
        }
        for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).context("a map's name")?;
            maps.insert(name.to_owned(), MapData::from_pin(&path)?);
        }
        Ok(Self(maps))
    }

    /// Has an array have the same in every element.
    pub(super) fn fill<V: Pod>(&self, name: &str, value: V) -> Result<()> {
        // SAFETY: a plain value of this type is as many bytes that are initialised, and lives until the end of this.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const value).cast(), size_of::<V>()) };
        fill(self.map(name)?, bytes).with_context(|| format!("cannot fill the map {name}"))
    }

    /// Has all maps be as they were made.
    pub(super) fn blank(&self) -> Result<()> {
        self.0.keys().try_for_each(|name| self.blank_map(name))
    }

    /// Has a map be as it was made.
    pub(super) fn blank_map(&self, name: &str) -> Result<()> {
        let map = self.map(name)?;
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
            // What is in it has to be taken.
            MapType::RingBuf => Ok(()),
            kind => bail!("the map {name} is of type {kind:?}, which nobody knows how to blank"),
        };
        blanked.with_context(|| format!("cannot blank the map {name}"))
    }

    fn map(&self, name: &str) -> Result<&MapData> {
        self.0.get(name).with_context(|| format!("there is no map {name}"))
    }
}

/// Bytes of an element of an array: of one for each CPU, those of all CPUs.
fn element_size(info: &MapInfo) -> Result<usize> {
    let size = info.value_size() as usize;
    Ok(match info.map_type()? {
        MapType::PerCpuArray => size.next_multiple_of(8) * nr_cpus().map_err(|(_, error)| error)?,
        _ => size,
    })
}

/// Has an array have these bytes in every element.
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
    // SAFETY: the keys and values are as many as are said, of the sizes that an array has, and live as long.
    let filled = unsafe { bpf(UPDATE_BATCH, &mut batch) };
    Ok(filled?)
}

/// Removes what is in a hash map that nobody changes meanwhile.
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
        // SAFETY: the key before, if there is one, and that which is written are of the size that the map has.
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
    // SAFETY: the key is of the size that the map has, and lives as long.
    unsafe { bpf(DELETE, &mut element) }
}

fn number(map: &MapData) -> u32 {
    map.fd().as_fd().as_raw_fd().cast_unsigned()
}

/// bpf(2) with the part of its union that a command reads, and may write to.
///
/// # Safety
/// What it points to has to be as the command says.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<()> {
    // SAFETY: the attributes are as large as is said; the rest is the caller's promise.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
