//! Checks that an instance leaves no kernel object, process or directory behind.

use std::{
    collections::BTreeSet,
    ffi::CString,
    fs, io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::programs::loaded_programs;

use crate::topology::Host;

/// How long the kernel may take to free objects without references; it frees them after a grace period.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel objects of an instance, and the directory that they are pinned in.
#[derive(Clone, Debug)]
pub struct Footprint {
    host: Host,
    directory: PathBuf,
    objects: BTreeSet<Object>,
}

/// A kernel object, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Object {
    Program(u32),
    Map(u32),
    Link(u32),
}

impl Footprint {
    /// Lists the objects pinned in `directory` of the host's BPF file system, the main programs in pinned arrays of programs,
    /// and the maps of all these programs.
    ///
    /// # Errors
    /// Fails if the directory or the objects cannot be read, or if nothing is pinned there.
    pub fn of(host: &Host, directory: impl Into<PathBuf>) -> Result<Self> {
        let directory = directory.into();
        let collect = || {
            let mut objects = BTreeSet::new();
            collect(&directory, &mut objects)?;
            for info in loaded_programs().flatten() {
                if objects.contains(&Object::Program(info.id())) {
                    let maps = info.map_ids()?.unwrap_or_default();
                    objects.extend(maps.into_iter().map(Object::Map));
                }
            }
            Ok(objects)
        };
        let objects: Result<_> = host.sandbox.inside(&host.namespace, collect)?;
        let objects = objects.with_context(|| format!("cannot read {}", directory.display()))?;
        ensure!(!objects.is_empty(), "nothing is pinned in {}", directory.display());
        Ok(Self { host: host.clone(), directory, objects })
    }

    /// Waits until no object, no process in the sandbox and no directory is left.
    ///
    /// # Errors
    /// Lists the remains if any are left after 20 s.
    pub fn assert_gone(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let left = self.left()?;
            if left.is_empty() {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "left over: {}", left.join(", "));
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether an object, a process or the directory is left.
    ///
    /// # Errors
    /// Fails if the processes cannot be listed.
    pub fn is_left(&self) -> Result<bool> {
        Ok(!self.left()?.is_empty())
    }

    fn left(&self) -> Result<Vec<String>> {
        let programs = ids(NEXT_PROGRAM).into_iter().map(Object::Program);
        let maps = map_ids().into_iter().map(Object::Map);
        let links = ids(NEXT_LINK).into_iter().map(Object::Link);
        let existing: BTreeSet<_> = programs.chain(maps).chain(links).collect();
        let mut left: Vec<_> =
            self.objects.intersection(&existing).map(|object| format!("{object:?}")).collect();
        let sandbox = &self.host.sandbox;
        left.extend(sandbox.processes()?.iter().map(|process| format!("process {process}")));
        if sandbox.inside(&self.host.namespace, || self.directory.exists())? {
            left.push(self.directory.display().to_string());
        }
        Ok(left)
    }
}

fn collect(directory: &Path, objects: &mut BTreeSet<Object>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), objects)?;
        } else {
            let pin = open(&entry.path())?;
            // `fdinfo` is the only place where the kernel tells the type and id behind an arbitrary pin.
            let path = format!("/proc/thread-self/fdinfo/{}", pin.as_raw_fd());
            let told = fs::read_to_string(path)?;
            objects.extend(told.lines().filter_map(object));
            if told.lines().any(|line| line == format!("map_type:\t{PROGRAM_ARRAY}")) {
                objects.extend(first_id(&pin).map(Object::Program));
            }
        }
    }
    Ok(())
}

/// `BPF_MAP_TYPE_PROG_ARRAY`
const PROGRAM_ARRAY: u32 = 3;
/// Commands of bpf(2) that give the id after another one.
const NEXT_PROGRAM: libc::c_int = 11;
const NEXT_MAP: libc::c_int = 12;
const NEXT_LINK: libc::c_int = 31;

/// The ids of all maps. None of them is opened: to close an array of programs that is on its way out makes Linux 6.18 keep it
/// for ever.
#[must_use]
pub fn map_ids() -> BTreeSet<u32> {
    ids(NEXT_MAP)
}

/// The ids of all objects that this command goes through.
fn ids(command: libc::c_int) -> BTreeSet<u32> {
    /// The first members of `union bpf_attr` for these commands.
    #[repr(C)]
    struct Attributes {
        id: u32,
        next: u32,
        flags: u32,
    }
    let mut ids = BTreeSet::new();
    let mut attributes = Attributes { id: 0, next: 0, flags: 0 };
    let size = size_of::<Attributes>();
    // SAFETY: the kernel reads and writes attributes of that size.
    while unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attributes, size) } == 0 {
        ids.insert(attributes.next);
        attributes.id = attributes.next;
    }
    ids
}

/// The id of the first program in an array; `None` if there is none.
fn first_id(array: &OwnedFd) -> Option<u32> {
    const LOOKUP: libc::c_int = 1;
    /// The members of `union bpf_attr` for commands on one element.
    #[repr(C)]
    struct Attributes {
        map: u32,
        reserved: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let (key, mut id) = (0_u32, 0_u32);
    let mut attributes = Attributes {
        map: array.as_raw_fd().cast_unsigned(),
        reserved: 0,
        key: &raw const key as u64,
        value: &raw mut id as u64,
        flags: 0,
    };
    let size = size_of::<Attributes>();
    // SAFETY: key and value have the sizes of the array, and outlive the call.
    let found = unsafe { libc::syscall(libc::SYS_bpf, LOOKUP, &raw mut attributes, size) };
    (found == 0).then_some(id)
}

/// Parses one line of `/proc/.../fdinfo/N`; `None` if it holds no id of an object.
fn object(line: &str) -> Option<Object> {
    let (field, id) = line.split_once(':')?;
    let id = id.trim().parse();
    match field {
        "prog_id" => id.ok().map(Object::Program),
        "map_id" => id.ok().map(Object::Map),
        "link_id" => id.ok().map(Object::Link),
        _ => None,
    }
}

/// Opens a pin, whatever its type.
fn open(path: &Path) -> io::Result<OwnedFd> {
    const BPF_OBJ_GET: libc::c_int = 7;
    /// The first members of `union bpf_attr` for `BPF_OBJ_GET`; the kernel takes the rest as zero.
    #[repr(C)]
    struct Attributes {
        path: u64,
        descriptor: u32,
        flags: u32,
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attributes = Attributes { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    let size = size_of::<Attributes>();
    // SAFETY: the kernel reads attributes of that size and a C string that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_GET, &raw mut attributes, size) };
    match i32::try_from(result) {
        // SAFETY: the call gave a new descriptor to us alone.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_in_descriptions() {
        let text = "pos:\t0\nlink_type:\txdp\nlink_id:\t7\nprog_tag:\tab12\nprog_id:\t40\n";
        let objects: Vec<_> = text.lines().filter_map(object).collect();
        assert_eq!(objects, [Object::Link(7), Object::Program(40)]);
        assert_eq!(object("map_id:\t5"), Some(Object::Map(5)));
        assert_eq!(object("map_type:\t5"), None);
        assert_eq!(object("map_id:\tx"), None);
    }
}
