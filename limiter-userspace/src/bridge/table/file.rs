//! The file that a table is kept in.
//!
//! It begins with a header, in words of 64 bits in the byte order of the machine: [`MAGIC`], the version of the layout, the
//! three sizes of the layout, the seed (2), two zeros, the identifier of the boot (2), and 1 when the file is complete.

use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::atomic::Ordering,
};

use rustix::{
    fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, statfs},
    io::Errno,
    process::geteuid,
};

use super::{
    Entries, Owing, TableError,
    layout::{HEADER, Layout},
    memory::{Mapping, Memory},
};
use crate::datapath::sys;

/// The first word of each version's files.
const MAGIC: u64 = u64::from_be_bytes(*b"limiterB");
/// The version of what is in the file: of the header, of the entries, and of what is hashed.
const LAYOUT: u64 = 2;
/// The identifier of this boot, from the kernel.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// What `statfs` says of file systems in memory (`TMPFS_MAGIC`, `RAMFS_MAGIC`). An overlay mostly lies on a disk.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// How the state of a table began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    /// It is that which another process left.
    Kept,
    /// There was none.
    New,
    /// There was some of another version of the layout.
    OtherLayout,
    /// It was that of a table of another size. What owed something was moved.
    Resized {
        /// The keys that were moved.
        kept: usize,
        /// The keys that found no room.
        lost: usize,
    },
    /// There was some of another boot, whose clock began elsewhere.
    OtherBoot,
    /// There was a file that no process had completed.
    Unfinished,
}

impl Began {
    /// Whether all state that another process left is there.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Kept | Self::Resized { lost: 0, .. })
    }
}

/// A file that was opened.
pub(super) struct Opened {
    pub(super) memory: Memory,
    pub(super) seed: [u64; 2],
    pub(super) began: Began,
    /// What owed something in a table of another size.
    pub(super) before: Owing,
}

impl fmt::Display for Began {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resized { kept, lost: 0 } => {
                return write!(f, "the state of {kept} keys was moved to a table of another size");
            }
            Self::Resized { kept, lost } => {
                return write!(
                    f,
                    "the state of {kept} keys was moved to a table of another size, and that of {lost} keys found no room and is lost: \
                     they begin anew; start the bridge with more --keys"
                );
            }
            Self::Kept => "the state of the process before is kept",
            Self::New => "there was no state yet",
            Self::OtherLayout => "the state was of another version of limiter, and began anew",
            Self::OtherBoot => "the state was from before the host was started, and began anew",
            Self::Unfinished => "the file of the state was incomplete, and began anew",
        })
    }
}

/// Opens and locks a file, and makes it if need be, at `now` in nanoseconds.
pub(super) fn open(path: &Path, layout: &Layout, now: u64) -> Result<Opened, TableError> {
    let failed = |action| move |source| TableError::system(action, path, source);
    check_file_system(path)?;
    let file = open_file(path, true)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(TableError::InUse { path: path.to_owned() }),
        Err(error) => return Err(failed("lock")(error.into())),
    }
    let boot = boot()?;
    let mut header = [0; 12];
    let began = judge(&file, layout, boot, &mut header)
        .map_err(failed("read"))?
        .ok_or_else(|| TableError::Foreign { path: path.to_owned() })?;
    let map = |file, layout: &Layout| {
        let mapping = Mapping::new(file, layout.words()).map_err(failed("map"))?;
        Ok(Memory::Mapped(mapping.into()))
    };
    let [_, _, sizes @ .., a, b, _, _, _, _, _] = header;
    let (mut seed, mut before) = ([a, b], Owing::default());
    match (began, Layout::of_sizes(sizes)) {
        (Began::Kept, _) => {
            return Ok(Opened { memory: map(file, layout)?, seed, began, before });
        }
        (Began::Resized { .. }, Some(layout)) => {
            let file = file.try_clone().map_err(failed("open"))?;
            before = Entries { memory: map(file, &layout)?, layout }.owing(now);
        }
        _ => seed = sys::random().map_err(failed("draw random numbers for"))?,
    }
    reserve(&file, layout).map_err(|source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            TableError::NoSpace { path: path.to_owned(), bytes: layout.words() * size_of::<u64>() }
        }
        _ => failed("write")(source),
    })?;
    let memory = map(file, layout)?;
    let [keys, wide, shared] = layout.sizes();
    let ([a, b], [low, high]) = (seed, boot);
    let header = [MAGIC, LAYOUT, keys, wide, shared, a, b, 0, 0, low, high, 1];
    for (word, new) in memory.iter().zip(header) {
        word.store(new, Ordering::Release);
    }
    Ok(Opened { memory, seed, began, before })
}

/// Checks that a file that is made here would be in memory.
fn check_file_system(path: &Path) -> Result<(), TableError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match statfs(directory.unwrap_or(Path::new("."))) {
        Ok(found) if !IN_MEMORY.contains(&(found.f_type as u64)) => {
            Err(TableError::OnDisk { path: path.to_owned() })
        }
        // Why there is none is found where the file is opened.
        _ => Ok(()),
    }
}

/// Opens a regular file of this user, for this user alone. It is made if it is to be `created`. No link is followed.
///
/// # Errors
/// [`TableError`].
pub(in crate::bridge) fn open_file(path: &Path, created: bool) -> Result<File, TableError> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(created)
        .mode(0o600)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let file = opened.map_err(|source| {
        let is_there =
            path.parent().is_none_or(|parent| parent.as_os_str().is_empty() || parent.is_dir());
        match source.kind() {
            _ if source.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                TableError::NotAFile { path: path.to_owned() }
            }
            io::ErrorKind::NotFound if !is_there => TableError::NoDirectory {
                path: path.to_owned(),
                directory: path.parent().unwrap_or(path).to_owned(),
            },
            io::ErrorKind::IsADirectory => TableError::NotAFile { path: path.to_owned() },
            _ => TableError::system("open", path, source),
        }
    })?;
    let failed = |source| TableError::system("open", path, source);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(TableError::NotAFile { path: path.to_owned() });
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(TableError::Owner { path: path.to_owned(), user: metadata.uid() });
    }
    if metadata.mode() & 0o177 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
    }
    Ok(file)
}

/// What a file is good for; `None` if it is none of a table.
fn judge(
    file: &File,
    layout: &Layout,
    boot: [u64; 2],
    header: &mut [u64; 12],
) -> io::Result<Option<Began>> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Some(Began::New));
    }
    let mut read = 0;
    for (at, word) in header.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        match file.read_exact_at(&mut bytes, at as u64 * 8) {
            Ok(()) => (*word, read) = (u64::from_ne_bytes(bytes), at + 1),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    let [magic, version, sizes @ .., _, _, _, _, low, high, complete] = *header;
    Ok(match () {
        () if read == 0 || magic != MAGIC => None,
        () if read < header.len() || complete != 1 => Some(Began::Unfinished),
        () if version != LAYOUT => Some(Began::OtherLayout),
        () if [low, high] != boot => Some(Began::OtherBoot),
        () => Some(match Layout::of_sizes(sizes) {
            Some(own) if length != own.words() as u64 * 8 => Began::Unfinished,
            Some(own) if own == *layout => Began::Kept,
            Some(_) => Began::Resized { kept: 0, lost: 0 },
            None => Began::OtherLayout,
        }),
    })
}

/// Makes a file as long as a table, all of it zero but for the first word. All of its memory is there then: a store to a page
/// that a full file system cannot give would end the process.
fn reserve(file: &File, layout: &Layout) -> io::Result<()> {
    const { assert!(HEADER * size_of::<u64>() == 4_096, "a page") };
    let length = layout.words() as u64 * 8;
    file.set_len(0)?;
    // So that a file that is not completed is known.
    file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
    match fallocate(file, FallocateFlags::empty(), 0, length) {
        Err(Errno::OPNOTSUPP) => file.set_len(length),
        reserved => reserved.map_err(Into::into),
    }
}

/// The identifier of this boot.
fn boot() -> Result<[u64; 2], TableError> {
    let failed = |source| TableError::system("read", Path::new(BOOT), source);
    let text = fs::read_to_string(BOOT).map_err(failed)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16)
        .map_err(|_| failed(io::Error::from(io::ErrorKind::InvalidData)))?;
    Ok([number as u64, (number >> 64) as u64])
}
