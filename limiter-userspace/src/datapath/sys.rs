//! System calls that no library here wraps.

use std::{
    ffi::CStr,
    fs::File,
    io,
    mem::{MaybeUninit, size_of, zeroed},
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use aya::{Pod, util::nr_cpus};
use aya_obj::generated::{
    bpf_attach_type, bpf_attr, bpf_cmd, bpf_insn, bpf_link_info, bpf_map_type, bpf_prog_info,
    bpf_prog_type,
};
use limiter_common::abi::policy::{Head, Revert, Settings};

/// A `bpf(2)` call.
fn bpf(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<libc::c_long> {
    // SAFETY: the attributes are a whole union, zeroed beyond what the command reads, and the
    // pointers that callers put into it are valid for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_long,
            std::ptr::from_mut(attributes),
            size_of::<bpf_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Zeroed attributes.
fn attributes() -> bpf_attr {
    // SAFETY: a union of plain old data, for which zeros are valid.
    unsafe { zeroed() }
}

/// The descriptor that a call returned.
fn descriptor(result: libc::c_long) -> OwnedFd {
    // SAFETY: the call succeeded and gave a new descriptor to us alone.
    unsafe { OwnedFd::from_raw_fd(result as RawFd) }
}

/// Loads a program for XDP that passes every packet: those in one piece, or also those in several.
pub(crate) fn load_passing_program(frags: bool) -> io::Result<OwnedFd> {
    const XDP_PASS: i32 = 2;
    const HAS_FRAGS: u32 = 1 << 5;
    // `r0 = XDP_PASS; exit`
    let code = [instruction(0xb7, XDP_PASS), instruction(0x95, 0)];
    let mut attributes = attributes();
    // SAFETY: writing to a member of a union of integers.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_XDP as u32;
    load.expected_attach_type = bpf_attach_type::BPF_XDP as u32;
    load.insn_cnt = code.len() as u32;
    load.insns = code.as_ptr() as u64;
    load.license = c"Dual MIT/GPL".as_ptr() as u64;
    load.prog_flags = if frags { HAS_FRAGS } else { 0 };
    for (to, from) in load.prog_name.iter_mut().zip(c"limiter_probe".to_bytes_with_nul()) {
        *to = *from as libc::c_char;
    }
    bpf(bpf_cmd::BPF_PROG_LOAD, &mut attributes).map(descriptor)
}

/// An instruction of BPF that names no register but `r0`.
fn instruction(code: u8, immediate: i32) -> bpf_insn {
    // SAFETY: plain old data, for which zeros are valid.
    let mut instruction: bpf_insn = unsafe { zeroed() };
    (instruction.code, instruction.imm) = (code, immediate);
    instruction
}

/// Attaches an XDP program to an interface by a link; `flags` are `XDP_FLAGS_*`.
pub(crate) fn create_xdp_link(
    program: BorrowedFd<'_>,
    interface: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attributes = attributes();
    // SAFETY: writing to members of unions of integers.
    let link = unsafe { &mut attributes.link_create };
    link.__bindgen_anon_1.prog_fd = program.as_raw_fd() as u32;
    link.__bindgen_anon_2.target_ifindex = interface;
    link.attach_type = bpf_attach_type::BPF_XDP as u32;
    link.flags = flags;
    bpf(bpf_cmd::BPF_LINK_CREATE, &mut attributes).map(descriptor)
}

/// Puts another program behind a link, between two packets.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = attributes();
    // SAFETY: writing to members of unions of integers.
    let update = unsafe { &mut attributes.link_update };
    update.link_fd = link.as_raw_fd() as u32;
    update.__bindgen_anon_1.new_prog_fd = program.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_LINK_UPDATE, &mut attributes).map(drop)
}

/// Detaches the program of a link at once, whoever else holds the link.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = attributes();
    attributes.link_detach.link_fd = link.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_LINK_DETACH, &mut attributes).map(drop)
}

/// Pins an object.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let mut attributes = attributes();
    // SAFETY: writing to members of unions of integers.
    let pin = unsafe { &mut attributes.__bindgen_anon_4 };
    pin.pathname = path.as_ptr() as u64;
    pin.bpf_fd = object.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_OBJ_PIN, &mut attributes).map(drop)
}

/// Makes an array of one map, which takes maps like this one.
pub(crate) fn create_array_of(like: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attributes = attributes();
    // SAFETY: writing to a member of a union of integers.
    let create = unsafe { &mut attributes.__bindgen_anon_1 };
    create.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY_OF_MAPS as u32;
    (create.key_size, create.value_size, create.max_entries) = (4, 4, 1);
    create.inner_map_fd = like.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_MAP_CREATE, &mut attributes).map(descriptor)
}

/// Opens a pinned object.
pub(crate) fn open(path: &CStr) -> io::Result<OwnedFd> {
    let mut attributes = attributes();
    attributes.__bindgen_anon_4.pathname = path.as_ptr() as u64;
    bpf(bpf_cmd::BPF_OBJ_GET, &mut attributes).map(descriptor)
}

/// What the kernel tells of a link for XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XdpLink {
    /// Its number.
    pub(crate) id: u32,
    /// The index of its interface, 0 once that is gone.
    pub(crate) interface: u32,
    /// The number of its program.
    pub(crate) program: u32,
}

/// Looks at a link for XDP.
pub(crate) fn xdp_link(link: BorrowedFd<'_>) -> io::Result<XdpLink> {
    // SAFETY: plain old data, for which zeros are valid.
    let mut info: bpf_link_info = unsafe { zeroed() };
    describe(link, &mut info)?;
    // SAFETY: for a link of this type the kernel filled in this member; all of them are integers.
    let interface = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Ok(XdpLink { id: info.id, interface, program: info.prog_id })
}

/// The number of a program, how often it ran while the kernel counted that, and for how many nanoseconds.
pub(crate) fn program_runs(program: BorrowedFd<'_>) -> io::Result<(u32, u64, u64)> {
    // SAFETY: plain old data, for which zeros are valid.
    let mut info: bpf_prog_info = unsafe { zeroed() };
    describe(program, &mut info)?;
    Ok((info.id, info.run_cnt, info.run_time_ns))
}

/// The numbers of the maps that a program uses, the first 64 of them.
pub(crate) fn program_maps(program: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut maps = [0_u32; 64];
    // SAFETY: plain old data, for which zeros are valid.
    let mut info: bpf_prog_info = unsafe { zeroed() };
    info.nr_map_ids = maps.len() as u32;
    info.map_ids = maps.as_mut_ptr() as u64;
    describe(program, &mut info)?;
    // The kernel tells how many there are, also if that is more.
    Ok(maps.into_iter().take(info.nr_map_ids as usize).collect())
}

/// Has the kernel write what it tells of an object; `T` is the structure for objects of that kind.
fn describe<T>(object: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let mut attributes = attributes();
    attributes.info.bpf_fd = object.as_raw_fd() as u32;
    attributes.info.info_len = size_of::<T>() as u32;
    attributes.info.info = std::ptr::from_mut(info) as u64;
    bpf(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attributes).map(drop)
}

/// Reads the entries of a hash map in batches, which takes a fraction of the time of reading them
/// one by one, and gives each to `visit`.
///
/// Entries that come and go meanwhile may be missed or seen twice.
pub(crate) fn for_each<K: Pod + Default, V: Pod + Default>(
    map: BorrowedFd<'_>,
    mut visit: impl FnMut(&K, &V),
) -> io::Result<()> {
    // A few megabytes at most; more than what has the same hash, which has to fit.
    const MOST: usize = 1 << 21;
    let length = (MOST / (size_of::<K>() + size_of::<V>())).clamp(1024, 16_384);
    let mut keys = vec![K::default(); length];
    let mut values = vec![V::default(); length];
    // The kernel's cursor; a hash map needs four bytes of it, no map more than a key.
    let mut cursor = [0_u8; 64];
    let mut first = true;
    loop {
        let mut attributes = attributes();
        // SAFETY: writing to a member of a union of integers.
        let batch = unsafe { &mut attributes.batch };
        let at = &raw mut cursor as u64;
        batch.in_batch = if first { 0 } else { at };
        batch.out_batch = at;
        batch.keys = keys.as_mut_ptr() as u64;
        batch.values = values.as_mut_ptr() as u64;
        batch.count = length as u32;
        batch.map_fd = map.as_raw_fd() as u32;
        let result = bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attributes);
        // SAFETY: the kernel writes the count back, also with ENOENT, which means the end.
        let count = unsafe { attributes.batch.count } as usize;
        let end = match result {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(error),
        };
        for (key, value) in keys.iter().zip(&values).take(count) {
            visit(key, value);
        }
        if end {
            return Ok(());
        }
        first = false;
    }
}

/// The values of these places of an array per CPU: those of all CPUs of the first place, then those of the next one.
pub(crate) fn per_cpu_values<V: Pod + Default>(
    map: BorrowedFd<'_>,
    places: Range<u32>,
) -> io::Result<Vec<V>> {
    // The kernel rounds the size of values up.
    const { assert!(size_of::<V>().is_multiple_of(8)) };
    let cpus = nr_cpus().map_err(|(_, error)| error)?;
    let mut keys = vec![0_u32; places.len()];
    let mut values = vec![V::default(); places.len() * cpus];
    // The cursor is the place before. That before the first one is none of the array.
    let mut cursor = places.start.wrapping_sub(1);
    let mut attributes = attributes();
    // SAFETY: writing to a member of a union of integers.
    let batch = unsafe { &mut attributes.batch };
    batch.in_batch = &raw mut cursor as u64;
    batch.out_batch = batch.in_batch;
    batch.keys = keys.as_mut_ptr() as u64;
    batch.values = values.as_mut_ptr() as u64;
    batch.count = keys.len() as u32;
    batch.map_fd = map.as_raw_fd() as u32;
    bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attributes)?;
    Ok(values)
}

/// Writes many entries of an array, a hash map or a trie at once.
pub(crate) fn update<K: Pod, V: Pod>(
    map: BorrowedFd<'_>,
    keys: &[K],
    values: &[V],
) -> io::Result<()> {
    const BATCH: usize = 16_384;
    /// The kernel makes entries of maps that grow without waiting for memory, and gets some free meanwhile.
    const WAITS: [u64; 4] = [1, 10, 50, 200];
    let write = |keys: &[K], values: &[V]| {
        let mut attributes = attributes();
        // SAFETY: writing to a member of a union of integers.
        let batch = unsafe { &mut attributes.batch };
        batch.keys = keys.as_ptr() as u64;
        batch.values = values.as_ptr() as u64;
        batch.count = keys.len().min(values.len()) as u32;
        batch.map_fd = map.as_raw_fd() as u32;
        bpf(bpf_cmd::BPF_MAP_UPDATE_BATCH, &mut attributes).map(drop)
    };
    for (keys, values) in keys.chunks(BATCH).zip(values.chunks(BATCH)) {
        let mut waits = WAITS.iter();
        while let Err(error) = write(keys, values) {
            let wait = waits.next().filter(|_| error.raw_os_error() == Some(libc::ENOMEM));
            thread::sleep(Duration::from_millis(*wait.ok_or(error)?));
        }
    }
    Ok(())
}

/// The value of a key of a map that is not per CPU; `None` when it has none. An LRU map does not take
/// this for a use of the entry.
pub(crate) fn lookup<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<Option<V>> {
    let mut value = MaybeUninit::<V>::uninit();
    let mut attributes = attributes();
    // SAFETY: writing to members of unions of integers.
    unsafe {
        let element = &mut attributes.__bindgen_anon_2;
        element.map_fd = map.as_raw_fd() as u32;
        element.key = std::ptr::from_ref(key) as u64;
        element.__bindgen_anon_1.value = value.as_mut_ptr() as u64;
    }
    match bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attributes) {
        // SAFETY: the kernel has written a value of the map, whose size is that of the type: pins of
        // another layout are not opened. Any bits are one.
        Ok(_) => Ok(Some(unsafe { value.assume_init() })),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value of a place of an array that is not per CPU, as bytes: what an older version wrote has another type.
pub(crate) fn value(map: BorrowedFd<'_>, place: u32, size: usize) -> io::Result<Vec<u8>> {
    // The kernel writes whole values, whose size it rounds up.
    let mut value = vec![0_u8; size.next_multiple_of(8)];
    let mut attributes = attributes();
    // SAFETY: writing to members of unions of integers.
    unsafe {
        let element = &mut attributes.__bindgen_anon_2;
        element.map_fd = map.as_raw_fd() as u32;
        element.key = &raw const place as u64;
        element.__bindgen_anon_1.value = value.as_mut_ptr() as u64;
    }
    bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM, &mut attributes)?;
    value.truncate(size);
    Ok(value)
}

/// Stores a program in the first place of an array of programs.
pub(crate) fn store_program(array: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let (place, value) = (0_u32, program.as_raw_fd());
    let mut attributes = attributes();
    // SAFETY: writing to members of unions of integers.
    unsafe {
        let element = &mut attributes.__bindgen_anon_2;
        element.map_fd = array.as_raw_fd() as u32;
        element.key = &raw const place as u64;
        element.__bindgen_anon_1.value = &raw const value as u64;
    }
    bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attributes).map(drop)
}

/// Runs a program on a frame, and gives what it returns.
pub(crate) fn run(program: BorrowedFd<'_>, frame: &impl Pod) -> io::Result<u32> {
    let mut attributes = attributes();
    // SAFETY: writing to a member of a union of integers.
    let test = unsafe { &mut attributes.test };
    test.prog_fd = program.as_raw_fd() as u32;
    test.data_in = std::ptr::from_ref(frame) as u64;
    test.data_size_in = size_of_val(frame) as u32;
    bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attributes)?;
    // SAFETY: the kernel wrote the result back.
    Ok(unsafe { attributes.test.retval })
}

/// Removes the entry of a key, which may have none: of a hash map, or of an array of maps.
pub(crate) fn remove<K: Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    let mut attributes = attributes();
    // SAFETY: writing to a member of a union of integers.
    let element = unsafe { &mut attributes.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = std::ptr::from_ref(key) as u64;
    match bpf(bpf_cmd::BPF_MAP_DELETE_ELEM, &mut attributes) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

/// Waits until no packet is under way that began before.
///
/// Programs run in read-side critical sections of RCU, and this call waits for a grace period.
pub(crate) fn wait_for_packets() -> io::Result<()> {
    const GLOBAL: libc::c_long = 1;
    // SAFETY: the call has no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } == 0 {
        return Ok(());
    }
    // Kernels with adaptive ticks refuse that. A packet takes microseconds.
    thread::sleep(Duration::from_millis(100));
    Ok(())
}

/// Takes the lock of an open file or directory; `false` when another process has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

/// While it is there, signals of a kind do not reach this thread: they come after that. Nothing keeps SIGSTOP and SIGKILL off.
#[derive(Debug)]
pub(crate) struct SignalsDeferred {
    before: libc::sigset_t,
}

impl SignalsDeferred {
    /// Ctrl-Z, and what else a terminal stops a process with.
    const STOPS: [libc::c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    /// Ctrl-C, and what else asks a process to end.
    const ENDS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

    /// From now on, those that would stop the process.
    pub(crate) fn stops() -> Self {
        Self::of(&[&Self::STOPS])
    }

    /// From now on, those that would stop or end the process.
    pub(crate) fn stops_and_ends() -> Self {
        Self::of(&[&Self::STOPS, &Self::ENDS])
    }

    fn of(kinds: &[&[libc::c_int]]) -> Self {
        // SAFETY: plain old data, for which zeros are valid.
        let (mut deferred, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { zeroed() };
        // SAFETY: sets that outlive the calls, of signals that there are.
        unsafe {
            libc::sigemptyset(&raw mut deferred);
            for signal in kinds.iter().copied().flatten() {
                libc::sigaddset(&raw mut deferred, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const deferred, &raw mut before);
        }
        Self { before }
    }
}

impl Drop for SignalsDeferred {
    fn drop(&mut self) {
        // SAFETY: the set that the same call gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

/// The magic number of the file system that holds `path`.
pub(crate) fn file_system(path: &CStr) -> io::Result<u64> {
    // SAFETY: plain old data, for which zeros are valid.
    let mut status: libc::statfs = unsafe { zeroed() };
    // SAFETY: a C string, and memory for the result.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut status) } == 0 {
        Ok(status.f_type as u64)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Mounts a BPF file system that is open to its owner alone.
pub(crate) fn mount_bpf(path: &CStr) -> io::Result<()> {
    let bpf = c"bpf".as_ptr();
    // SAFETY: C strings.
    if unsafe { libc::mount(bpf, path.as_ptr(), bpf, 0, c"mode=0700".as_ptr().cast()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives this process mounts of its own: what it mounts from here on, nobody else sees, and it goes with the process.
pub(crate) fn own_mounts() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    let none = std::ptr::null();
    // SAFETY: no memory is shared but that of this thread alone; the process has no other one yet. The path is a C string,
    // and the kernel reads none of the others with these flags.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unmounts a file system.
pub(crate) fn unmount(path: &CStr) -> io::Result<()> {
    // SAFETY: a C string.
    if unsafe { libc::umount2(path.as_ptr(), libc::UMOUNT_NOFOLLOW) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has this process go on whatever is sent to the group that it is of, as a terminal or a service manager does: a loader ends
/// with its agent.
pub(crate) fn ignore_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: no handler is set.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Gives memory that this process has freed back to the system. An object that is parsed takes some 40 MB for a moment, which
/// the C library of GNU keeps otherwise.
pub(crate) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The user that this process acts as.
pub(crate) fn user() -> u32 {
    // SAFETY: no precondition.
    unsafe { libc::geteuid() }
}

/// Writes the settings of an epoch into the map of the [`Head`], when they are to be taken back, and
/// then by one store the epoch, which makes them those that packets go by.
pub(crate) fn publish(
    map: BorrowedFd<'_>,
    epoch: u64,
    revert: Revert,
    settings: Settings,
) -> io::Result<()> {
    with_head(map, |head| {
        // SAFETY: the mapping is as long as the value. No packet goes by this half of the settings
        // until the epoch says so, and both words are only accessed as a whole, here and by the
        // programs. What is said of taking back is about this epoch alone.
        unsafe {
            (&raw mut (*head).settings[epoch as usize & 1]).write(settings);
            AtomicU64::from_ptr(&raw mut (*head).revert.0).store(revert.0, Ordering::Release);
            AtomicU64::from_ptr(&raw mut (*head).epoch).store(epoch, Ordering::Release);
        }
    })
}

/// Writes what maps that are not in use are to begin with: the settings of epochs, when the one in force is to be taken
/// back, and whether anything is dropped. They are in use from [`publish_epoch`] on.
pub(crate) fn prepare(
    map: BorrowedFd<'_>,
    settings: &[(u32, Settings)],
    revert: Revert,
    monitor: u64,
) -> io::Result<()> {
    with_head(map, |head| {
        // SAFETY: the mapping is as long as the value. No packet goes by it yet.
        unsafe {
            for (epoch, settings) in settings {
                (&raw mut (*head).settings[*epoch as usize & 1]).write(*settings);
            }
            (&raw mut (*head).revert).write(revert);
            (&raw mut (*head).monitor).write(monitor);
        }
    })
}

/// Makes what packets go by already the epoch that is written down.
pub(crate) fn publish_epoch(map: BorrowedFd<'_>, epoch: u64) -> io::Result<()> {
    with_head(map, |head| {
        // SAFETY: as in `publish`.
        unsafe { AtomicU64::from_ptr(&raw mut (*head).epoch).store(epoch, Ordering::Release) };
    })
}

/// Stores a word of the value of the map of the head, at an offset in bytes that is within the value and a multiple of 8: the
/// head of another version has another type.
pub(crate) fn store_word(map: BorrowedFd<'_>, offset: usize, word: u64) -> io::Result<()> {
    if !offset.is_multiple_of(size_of::<u64>()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let memory = Mapping::new(
        map,
        offset.saturating_add(size_of::<u64>()),
        libc::PROT_READ | libc::PROT_WRITE,
    )?;
    // SAFETY: the mapping ends behind the word, which is aligned, as the mapping begins at a page. It is only accessed as a
    // whole, here and by the programs.
    unsafe {
        let place = memory.start().as_ptr().byte_add(offset).cast();
        AtomicU64::from_ptr(place).store(word, Ordering::Release);
    }
    Ok(())
}

/// Random numbers. Just after the boot, this waits until the kernel has some to give.
pub(crate) fn random<const N: usize>() -> io::Result<[u64; N]> {
    let mut numbers = [0_u64; N];
    loop {
        // SAFETY: memory for the result.
        let got = unsafe { libc::getrandom(numbers.as_mut_ptr().cast(), size_of_val(&numbers), 0) };
        if got == size_of_val(&numbers) as isize {
            return Ok(numbers);
        }
        // Only a signal makes it give less.
        let error = io::Error::last_os_error();
        if got < 0 && error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Changes when the policy in force is taken back.
pub(crate) fn set_revert(map: BorrowedFd<'_>, revert: Revert) -> io::Result<()> {
    with_head(map, |head| {
        // SAFETY: as in `publish`.
        unsafe {
            AtomicU64::from_ptr(&raw mut (*head).revert.0).store(revert.0, Ordering::Release);
        }
    })
}

/// Has nothing dropped, or as the policy says.
pub(crate) fn set_monitor(map: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    with_head(map, |head| {
        // SAFETY: as in `publish`.
        unsafe {
            AtomicU64::from_ptr(&raw mut (*head).monitor).store(on.into(), Ordering::Release);
        }
    })
}

/// Nanoseconds of the monotonic clock, by which the programs go.
pub(crate) fn monotonic() -> u64 {
    // SAFETY: plain old data, for which zeros are valid.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: memory for the result; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds from one tick of the kernel to the next, which is how coarse its coarse clock is; 0 if
/// it does not tell.
pub(crate) fn tick() -> u64 {
    // SAFETY: plain old data, for which zeros are valid.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: memory for the result.
    if unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) } != 0 {
        return 0;
    }
    match u64::try_from(time.tv_nsec) {
        Ok(nanoseconds) if time.tv_sec == 0 => nanoseconds,
        _ => 0,
    }
}

/// Maps the value of the map of the [`Head`] into memory while `change` changes it.
fn with_head(map: BorrowedFd<'_>, change: impl FnOnce(*mut Head)) -> io::Result<()> {
    let memory = Mapping::new(map, size_of::<Head>(), libc::PROT_READ | libc::PROT_WRITE)?;
    change(memory.start().as_ptr().cast());
    Ok(())
}

/// The values of an array, mapped into memory.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

impl Mapping {
    /// So many bytes of the values, only to be read.
    pub(crate) fn read_only(map: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::new(map, length, libc::PROT_READ)
    }

    fn new(map: BorrowedFd<'_>, length: usize, access: libc::c_int) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self { start: first, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Where it begins: at a page.
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made, which nothing refers to any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this thread defers a signal.
    fn is_deferred(signal: libc::c_int) -> bool {
        // SAFETY: plain old data, for which zeros are valid.
        let mut deferred: libc::sigset_t = unsafe { zeroed() };
        // SAFETY: no set is given, and one is filled in.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut deferred);
            libc::sigismember(&raw const deferred, signal) == 1
        }
    }

    #[test]
    fn what_a_terminal_stops_a_process_with_comes_later() {
        let deferred = SignalsDeferred::stops();
        // SAFETY: plain old data, for which zeros are valid.
        let (mut stops, mut waiting): (libc::sigset_t, libc::sigset_t) = unsafe { zeroed() };
        // A signal that is not deferred would stop this process, and so the run of tests.
        for signal in SignalsDeferred::STOPS {
            assert!(is_deferred(signal), "signal {signal}");
        }
        // SAFETY: the signal is for this thread, which defers it, and is taken before it no longer does.
        unsafe {
            libc::pthread_kill(libc::pthread_self(), libc::SIGTSTP);
            assert_eq!(libc::sigpending(&raw mut waiting), 0);
            assert_eq!(libc::sigismember(&raw const waiting, libc::SIGTSTP), 1);
            libc::sigemptyset(&raw mut stops);
            libc::sigaddset(&raw mut stops, libc::SIGTSTP);
            let mut signal = 0;
            assert_eq!(libc::sigwait(&raw const stops, &raw mut signal), 0);
            assert_eq!(signal, libc::SIGTSTP);
        }
        assert!(!is_deferred(libc::SIGINT), "who waits may end it");
        drop(deferred);
        assert!(!is_deferred(libc::SIGTSTP));
    }

    #[test]
    fn what_ends_a_process_comes_later_where_that_is_asked_for() {
        let deferred = SignalsDeferred::stops_and_ends();
        for signal in SignalsDeferred::STOPS.into_iter().chain(SignalsDeferred::ENDS) {
            assert!(is_deferred(signal), "signal {signal}");
        }
        drop(deferred);
        assert!(!is_deferred(libc::SIGTERM));
    }
}
