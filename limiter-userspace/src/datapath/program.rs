//! Loading the programs.

use std::{
    fs,
    hash::{DefaultHasher, Hasher as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{Array, HashMap, MapData},
    programs::{ProgramError, Xdp},
    util::KernelVersion,
};
use limiter_common::{
    abi::{
        build::Build,
        description::{Batch, Description, OldTables, Request},
        interface::Interface,
        layout::{BUILDS, CHUNK, TALLIES, global, map, program, shared},
        push::Push,
        table::{Set, WAYS},
    },
    memory::handshake,
    policy::limit::INTERFACES,
};

#[cfg(feature = "datapath-log")]
use super::messages::ring;
use super::{
    bpffs::{Pins, c_path, exists, unpin},
    layout::SHAPES,
    loader::wire::Kind,
    maps::has_further,
    object::{number, object},
    open::pinned,
    optional::create_arrays,
    sizes::Sizes,
    sys,
};
use crate::error::{Error, Result};

/// The object with the programs, compiled for this build.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/datapath"));

/// The same with debug messages.
#[cfg(feature = "datapath-log")]
static OBJECT_WITH_MESSAGES: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/datapath-messages"));

const BPF_F_NO_PREALLOC: u32 = 1;
/// The reason of a refusal and the totals, some hundred bytes. A log of each instruction takes up to 16 MiB, and aya
/// has the program verified again for each size of the buffer that is too small.
const SHORT_LOG: VerifierLogLevel = VerifierLogLevel::STATS;
/// The lines of a log that an error quotes, from its end.
const LOG_LINES: usize = 12;
/// The bytes of such a line, at most.
const LOG_LINE: usize = 200;
/// Maps that no program uses.
const CONTROLLERS: [&str; 4] = [map::INTERFACES, map::LAYOUT, map::DOCUMENT, map::BUILDS];
/// 64 MiB of policy documents: the one in force and the next.
const DOCUMENT_CHUNKS: u32 = 16_384;

/// A loaded program of an instance.
pub struct Program {
    held: Held,
    name: &'static str,
}

/// What keeps a program loaded.
enum Held {
    /// The object that this process loaded it from.
    Object(Ebpf),
    /// The descriptor that a [loader](super::loader) gave.
    Descriptor(OwnedFd),
}

/// What time a program goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's monotonic clock.
    Monotonic,
    /// The word in the map [`map::TEST_CLOCK`], for tests in virtual time.
    Test,
    /// The same, with a kernel that ticks every so many nanoseconds of it.
    Ticking(u64),
}

impl Clock {
    /// Nanoseconds from one tick to the next; 0 if there are none.
    pub fn tick(self) -> u64 {
        match self {
            Self::Monotonic => sys::tick(),
            Self::Test => 0,
            Self::Ticking(tick) => tick,
        }
    }
}

/// Tables that a program carries state over from.
#[derive(Clone, Debug)]
pub struct CarryFrom {
    /// Where they are pinned.
    pub(crate) pins: Pins,
    /// What the program has to know of them.
    pub(crate) tables: OldTables,
}

impl Program {
    /// Loads the main program, with the maps that are pinned. `frags` is the one for packets in several pieces.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub fn load(pins: &Pins, frags: bool, clock: Clock) -> Result<Self> {
        Self::load_or_ask(pins, Kind::Main { frags }, None, clock)
    }

    /// Loads the dispatcher for the interface of a slot, which calls the [main program](super::main_program) of the maps that
    /// are pinned.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub fn load_dispatcher(pins: &Pins, slot: u32, frags: bool) -> Result<Self> {
        Self::load_or_ask(pins, Kind::Dispatcher { slot, frags }, None, Clock::Monotonic)
    }

    /// Loads it as [`load`](Self::load) does, to carry over what old tables have of the sources and keys that come.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub fn load_carrying(pins: &Pins, from: &CarryFrom, frags: bool, clock: Clock) -> Result<Self> {
        Self::load_or_ask(pins, Kind::Carrying { frags }, Some(from), clock)
    }

    /// Loads the program that carries over what did not come by itself.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub(crate) fn load_carrier(pins: &Pins, from: &CarryFrom, clock: Clock) -> Result<Self> {
        Self::load_or_ask(pins, Kind::Carrier, Some(from), clock)
    }

    /// The program that blocks sources. The first process that needs it pins it beside the maps, as to load it takes longer than a
    /// block. One with a loader asks that for it.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub(super) fn load_pusher(pins: &Pins, clock: Clock) -> Result<Self> {
        if pins.loader().is_some() || clock != Clock::Monotonic {
            return Self::load_or_ask(pins, Kind::Pusher, None, clock);
        }
        let pins = &pins.in_use()?;
        let name = program::PUSH;
        // One of another build may mean other things by the same maps, and that of an instance before is about other maps.
        let path_of = |head| pins.map(&format!("{name}-{:016x}-{head}", object_hash(pins)));
        let head = || match pinned(pins, map::HEAD)? {
            Some(head) => number(&head),
            None => Ok(0),
        };
        let before = head()?;
        let path = path_of(before);
        if let Ok(fd) = sys::open(&c_path(path.as_os_str())?) {
            return Ok(Self { held: Held::Descriptor(fd), name });
        }
        let mut program = Self::load_or_ask(pins, Kind::Pusher, None, clock)?;
        if head()? != before {
            return Ok(program);
        }
        // Another process may do so at the same time, and this one may have no right to. The next one loads it then.
        let is_pinned = program.with_fd(|fd| pins.pin(fd, &path))?;
        let _: Result<()> = is_pinned.and_then(|()| unpin_others(&path, name));
        Ok(program)
    }

    /// Blocks a source, or ends that. Returns a constant of [`push`](limiter_common::abi::push).
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn push(&mut self, push: &Push) -> Result<u32> {
        let run = self.with_fd(|fd| sys::run(fd, push))?;
        run.map_err(|error| Error::system("push a block", error))
    }

    /// Carries a batch over.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn carry(&mut self, request: &Request) -> Result<Batch> {
        let run = self.with_fd(|fd| sys::run(fd, request))?;
        run.map(Batch).map_err(|error| Error::system("carry state over", error))
    }

    /// Loads it as [`load`](Self::load) does, with maps of its own, as small as can be, of which nothing
    /// stays.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub(crate) fn try_out(frags: bool) -> Result<Self> {
        Self::load_with(None, None, 0, name_of(frags), Clock::Monotonic)
    }

    /// Loads a program, or has it loaded by the loader of this process: main programs take `CAP_PERFMON`, and dispatchers are
    /// faster with it.
    fn load_or_ask(
        pins: &Pins,
        kind: Kind,
        from: Option<&CarryFrom>,
        clock: Clock,
    ) -> Result<Self> {
        let (name, slot) = match kind {
            Kind::Dispatcher { slot, frags } => (dispatcher_of(frags), slot),
            Kind::Main { frags } | Kind::Carrying { frags } => (name_of(frags), 0),
            Kind::Carrier => (program::CARRY, 0),
            Kind::Pusher => (program::PUSH, 0),
        };
        match pins.loader() {
            Some(loader) => {
                let fd = loader.load(kind, pins.is_second()?)?;
                Ok(Self { held: Held::Descriptor(fd), name })
            }
            None => Self::load_with(Some(pins), from, slot, name, clock),
        }
    }

    /// Loads the program with the maps that are pinned, or with its own.
    fn load_with(
        pins: Option<&Pins>,
        from: Option<&CarryFrom>,
        slot: u32,
        name: &'static str,
        clock: Clock,
    ) -> Result<Self> {
        let mut ebpf = open(pins, from, slot, clock, |loader| {
            loader.verifier_log_level(SHORT_LOG);
        })?;
        verify(&mut ebpf, name)?;
        Ok(Self { held: Held::Object(ebpf), name })
    }

    /// The program, to be run by `BPF_PROG_TEST_RUN` or looked at.
    ///
    /// # Errors
    /// For a program that another process loaded. Else never.
    pub fn xdp(&mut self) -> Result<&mut Xdp> {
        match &mut self.held {
            Held::Object(ebpf) => xdp(ebpf, self.name),
            Held::Descriptor(_) => Err(Error::Object {
                action: format!("look at the program {}", self.name),
                reason: "another process loaded it".to_owned(),
            }),
        }
    }

    /// Pins the program as that of a slot, in the place of another one.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn pin(&mut self, pins: &Pins, slot: u32) -> Result<()> {
        self.with_fd(|fd| pins.pin(fd, &pins.program(slot)))?
    }

    /// Calls `with` with the descriptor of the program.
    pub(crate) fn with_fd<T>(&mut self, with: impl FnOnce(BorrowedFd<'_>) -> T) -> Result<T> {
        let name = self.name;
        let ebpf = match &mut self.held {
            Held::Descriptor(fd) => return Ok(with(fd.as_fd())),
            Held::Object(ebpf) => ebpf,
        };
        let fd = xdp(ebpf, name)?
            .fd()
            .map_err(|error| object(format!("use the program {name}"), &error))?;
        Ok(with(fd.as_fd()))
    }
}

/// Removes the pins of a program that other builds left beside this one.
fn unpin_others(own: &Path, name: &str) -> Result<()> {
    let folder = own.parent().unwrap_or(own);
    let entries = fs::read_dir(folder)
        .map_err(|error| Error::system(format!("read {}", folder.display()), error))?;
    let is_of = |path: &Path| {
        let of = path.file_name().and_then(|it| it.to_str()).and_then(|it| it.strip_prefix(name));
        of.is_some_and(|rest| rest.starts_with('-'))
    };
    let others = entries.flatten().map(|entry| entry.path());
    others.filter(|path| path != own && is_of(path)).try_for_each(|path| unpin(&path))
}

/// The main program for packets in one piece, or for those in several.
const fn name_of(frags: bool) -> &'static str {
    if frags { program::FRAGS } else { program::LINEAR }
}

/// The dispatcher for packets in one piece, or for those in several.
const fn dispatcher_of(frags: bool) -> &'static str {
    if frags { program::DISPATCH_FRAGS } else { program::DISPATCH }
}

/// A hash of the object file that the programs of an instance are of.
pub(super) fn object_hash(pins: &Pins) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(object_of(Some(pins)));
    hasher.finish()
}

/// The object file for the maps that are pinned.
fn object_of(pins: Option<&Pins>) -> &'static [u8] {
    match pins {
        #[cfg(feature = "datapath-log")]
        Some(pins) if ring::are_told(pins) => OBJECT_WITH_MESSAGES,
        _ => OBJECT,
    }
}

/// Loads one program of the object.
fn verify(ebpf: &mut Ebpf, name: &'static str) -> Result<()> {
    xdp(ebpf, name)?.load().map_err(|error| match error {
        ProgramError::LoadError { io_error, verifier_log } => refused(
            name,
            [program::FRAGS, program::DISPATCH_FRAGS].contains(&name),
            io_error,
            &verifier_log.to_string(),
        ),
        error => object(format!("load the program {name}"), &error),
    })
}

/// Creates and pins the maps of a new instance, but for those that are pinned there already.
///
/// # Errors
/// What the kernel lacks or says.
pub(crate) fn create_maps(pins: &Pins, sizes: &Sizes) -> Result<()> {
    if let Some(loader) = pins.loader() {
        return loader.make_maps(sizes, pins.is_second()?);
    }
    create_arrays(pins)?;
    let halves = sizes.overrides.saturating_mul(2);
    let sets = Set::count(sizes.sources);
    let bucket_sets = sizes.bucket_sets();
    let wide_sets = Set::count(sizes.wide_states);
    let by_key = bucket_sets.saturating_add(wide_sets);
    let all_sets = sets.saturating_add(by_key);
    let buckets = by_key.saturating_mul(WAYS as u32).saturating_add(TALLIES);
    let sources = Sizes::whole_sets(sizes.sources).saturating_add(shared::LEN);
    let profiles = halves.saturating_add(2 * Sizes::UNNAMED);
    let meters = halves.saturating_add(2 * Sizes::METERS_OF_LIMITS);
    let further = if sizes.further { sources } else { 1 };
    drop(open(Some(pins), None, 0, Clock::Monotonic, |loader| {
        loader
            .map_max_entries(map::SETS, all_sets)
            .map_max_entries(map::DEBTS, all_sets)
            .map_max_entries(map::UNTRACKED, sets)
            .map_max_entries(map::SOURCES, sources)
            .map_max_entries(map::FURTHER_LIMITS, further)
            .map_max_entries(map::BUCKETS, buckets)
            .map_max_entries(map::MEASURES, buckets)
            .map_max_entries(map::SYN_DEDUP, handshake::sets(Set::count(sizes.buckets)))
            .map_max_entries(map::PROFILES, profiles)
            .map_max_entries(map::METERS, meters);
    })?);
    let failed =
        |name: &str, error: &dyn std::error::Error| object(format!("make the map {name}"), error);
    if !exists(&pins.map(map::INTERFACES))? {
        Array::<MapData, Interface>::create(INTERFACES, 0)
            .map_err(|error| failed(map::INTERFACES, &error))?
            .pin(pins.map(map::INTERFACES))
            .map_err(|error| failed(map::INTERFACES, &error))?;
    }
    if !exists(&pins.map(map::BUILDS))? {
        Array::<MapData, Build>::create(BUILDS, 0)
            .map_err(|error| failed(map::BUILDS, &error))?
            .pin(pins.map(map::BUILDS))
            .map_err(|error| failed(map::BUILDS, &error))?;
    }
    let mut layout =
        Array::<MapData, Description>::create(1, 0).map_err(|error| failed(map::LAYOUT, &error))?;
    let description = Description {
        wide_states: sizes.wide_states,
        wide_sets,
        buckets: Sizes::whole_sets(sizes.buckets),
        ..Description::OWN
    };
    layout.set(0, description, 0).map_err(|error| failed(map::LAYOUT, &error))?;
    layout.pin(pins.map(map::LAYOUT)).map_err(|error| failed(map::LAYOUT, &error))?;
    HashMap::<MapData, [u32; 2], [u8; CHUNK]>::create(DOCUMENT_CHUNKS, BPF_F_NO_PREALLOC)
        .map_err(|error| failed(map::DOCUMENT, &error))?
        .pin(pins.map(map::DOCUMENT))
        .map_err(|error| failed(map::DOCUMENT, &error))
}

/// Opens the maps that are pinned as the object has them, without a program.
///
/// # Errors
/// What the system says.
#[cfg(feature = "datapath-log")]
pub(super) fn open_maps(pins: &Pins) -> Result<Ebpf> {
    open(Some(pins), None, 0, Clock::Monotonic, |_| {})
}

/// Opens the object; its maps are those that are pinned, or its own.
fn open(
    pins: Option<&Pins>,
    from: Option<&CarryFrom>,
    slot: u32,
    clock: Clock,
    size: impl FnOnce(&mut EbpfLoader<'_>),
) -> Result<Ebpf> {
    let test = u32::from(clock != Clock::Monotonic);
    let tick = clock.tick();
    let tells_length = u32::from(kernel_has(5, 18));
    let tables = from.map(|from| from.tables).unwrap_or_default();
    // The maps in use may be exchanged meanwhile.
    let in_use = pins.map(Pins::in_use).transpose()?;
    let pins = in_use.as_ref();
    let further = pins.map(|pins| pinned(pins, map::FURTHER_LIMITS)).transpose()?.flatten();
    let has_further = u32::from(further.map_or(Ok(true), |map| has_further(&map))?);
    // The names in the object of maps of the tables that state is carried over from.
    let old = [
        map::SETS,
        map::SOURCES,
        map::BUCKETS,
        map::MEASURES,
        map::WIDE_STATE,
        map::FURTHER_LIMITS,
    ]
    .map(|of| (format!("OLD_{of}"), of));
    let mut loader = EbpfLoader::new();
    loader
        .override_global(global::HAS_FURTHER, &has_further, true)
        .override_global(global::SLOT, &slot, true)
        .override_global(global::TEST_CLOCK_ENABLED, &test, true)
        .override_global(global::TICK, &tick, true)
        .override_global(global::TELLS_LENGTH, &tells_length, true)
        .override_global(global::OLD_TABLES, &tables, true);
    for (shape, pins) in SHAPES.iter().filter_map(|shape| Some((shape, pins?))) {
        if !CONTROLLERS.contains(&shape.name) {
            loader.map_pin_path(shape.name, pins.map(shape.name));
        }
    }
    for (name, of) in &old {
        let Some(from) = from else { continue };
        let is_there = match *of {
            map::WIDE_STATE => from.tables.has_wide != 0,
            map::FURTHER_LIMITS => from.tables.has_further != 0,
            _ => true,
        };
        if is_there {
            loader.map_pin_path(name, from.pins.map(of));
        }
    }
    #[cfg(feature = "datapath-log")]
    if let Some(pins) = pins.filter(|pins| ring::are_told(pins)) {
        loader.map_pin_path(ring::RING, pins.map(ring::RING));
    }
    size(&mut loader);
    loader
        .load(object_of(pins))
        .map_err(|error| unmade(KernelVersion::current().ok(), object("make the maps", &error)))
}

/// The reason why a kernel of this version does not make the maps: the feature that it lacks, or `error`.
fn unmade(version: Option<KernelVersion>, error: Error) -> Error {
    match error {
        // The kernel says "invalid argument" of a flag or a type of map that it does not know.
        Error::System { .. } | Error::Object { .. } => {
            missing(version, false).map_or(error, lacking)
        }
        error => error,
    }
}

fn xdp<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp> {
    let program = ebpf.program_mut(name).ok_or_else(|| Error::Object {
        action: format!("load the program {name}"),
        reason: "the object does not have it".to_owned(),
    })?;
    program
        .try_into()
        .map_err(|error: ProgramError| object(format!("load the program {name}"), &error))
}

/// Why the kernel does not take a program.
fn refused(name: &'static str, frags: bool, error: std::io::Error, log: &str) -> Error {
    if matches!(error.raw_os_error(), Some(libc::EPERM)) {
        return Error::system(format!("load the program {name}"), error);
    }
    if let Some(feature) = missing(KernelVersion::current().ok(), frags) {
        return lacking(feature);
    }
    Error::Refused { program: name, kernel: release(), cause: error, log: tail(log) }
}

/// The end of a verifier's log, which has the reason. The time that it took differs from try to try, and is left out. So
/// are the totals of each function, which Linux 7.3 has a line for between the reason and the totals of the program.
fn tail(log: &str) -> String {
    let is_told =
        |line: &&str| !["verification time ", "subprog "].iter().any(|it| line.starts_with(it));
    let lines: Vec<&str> = log.lines().filter(is_told).collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
    let cut =
        |line: &&str| line.get(..line.floor_char_boundary(LOG_LINE)).unwrap_or(line).to_owned();
    last.iter().map(cut).collect::<Vec<_>>().join("\n")
}

/// The features that limiter needs, each with the first version of Linux that has it, from the oldest to the newest.
/// The last one is for packets in several pieces alone. Pointers as arguments of global functions came with
/// compare-and-exchange.
const FEATURES: [(u8, u8, &str); 7] = [
    (5, 5, "arrays of BPF that a process maps into its memory"),
    (5, 6, "programs of BPF that read the kernel's tick"),
    (5, 8, "ring buffers of BPF"),
    (5, 9, "links for XDP"),
    (5, 12, "atomic compare-and-exchange in BPF"),
    (5, 13, "batch updates of LPM tries"),
    (5, 18, "XDP for packets in several pieces"),
];
/// Whether the kernel is of this version or newer.
fn kernel_has(major: u8, minor: u8) -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(major, minor, 0))
}

/// The oldest feature that a program needs and a kernel of this version lacks.
fn missing(version: Option<KernelVersion>, frags: bool) -> Option<String> {
    let version = version?;
    let needed = if frags { FEATURES.len() } else { FEATURES.len() - 1 };
    FEATURES[..needed]
        .iter()
        .find(|(major, minor, _)| version < KernelVersion::new(*major, *minor, 0))
        .map(|(major, minor, what)| format!("{what} (since {major}.{minor})"))
}

/// The error for a feature that the kernel does not have.
pub(crate) fn lacking(feature: impl Into<String>) -> Error {
    Error::Kernel { kernel: release(), feature: feature.into() }
}

/// The release of the running kernel, as `uname -r` prints it.
fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |release| release.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(errno: i32, log: &str) -> Error {
        refused("limiter", false, std::io::Error::from_raw_os_error(errno), log)
    }

    #[test]
    fn a_program_that_is_refused_twice_is_so_in_the_same_words() {
        let said = |time| {
            let log = format!(
                "0: (95) exit\nR0 !read_ok\nverification time {time} usec\n{}processed 1 insns",
                "subprog 1 (charge) global insns_self 0 insns_total 0 stack 0\n".repeat(60)
            );
            refusal(libc::EACCES, &log).to_string()
        };
        assert!(said(12).ends_with("R0 !read_ok\nprocessed 1 insns"), "{}", said(12));
        assert_eq!(said(12), said(13));
    }

    #[test]
    fn a_refusal_tells_the_kernel_the_cause_and_the_remedy() {
        let kernel = release();
        let large = "BPF program is too large. Processed 1000001 insn\n\
                     verification time 2512345 usec\nstack depth 512\n\
                     processed 1000001 insns (limit 1000000) max_states_per_insn 30 total_states 9\n";
        let error = refusal(libc::E2BIG, large);
        assert_eq!(
            error.to_string(),
            format!(
                "this kernel ({kernel}) refuses the program limiter: its verifier gave up, as it takes too many \
                 instructions to verify (E2BIG)\n\
                 BPF program is too large. Processed 1000001 insn\nstack depth 512\n\
                 processed 1000001 insns (limit 1000000) max_states_per_insn 30 total_states 9"
            )
        );
        assert!(error.remedy().unwrap().contains("boot another kernel"), "{error:?}");
        assert_eq!(error.exit_code(), 1);

        let cases = [
            (libc::EACCES, "its verifier does not accept it (EACCES)", "boot another kernel"),
            (libc::EINVAL, "its verifier does not accept it (EINVAL)", "boot another kernel"),
            (libc::ENOMEM, "it has no memory to verify it (ENOMEM)", "free some memory"),
            (libc::EIO, "Input/output error", "boot another kernel"),
        ];
        for (errno, cause, remedy) in cases {
            let error = refusal(errno, "");
            let said = format!("this kernel ({kernel}) refuses the program limiter: ");
            let said = error.to_string().strip_prefix(&said).unwrap().to_owned();
            assert!(said.starts_with(cause) && !said.contains('\n'), "{said}");
            assert!(error.remedy().unwrap().contains(remedy), "{error:?}");
        }
        assert!(matches!(refusal(libc::EPERM, ""), Error::Permission { .. }));
    }

    #[test]
    fn the_log_of_a_refusal_is_bounded() {
        let line = format!("{}\u{e4}\n", "x".repeat(LOG_LINE - 1));
        let log = tail(&line.repeat(100_000));
        assert_eq!(log.lines().count(), LOG_LINES);
        assert!(log.lines().all(|line| line.len() == LOG_LINE - 1), "{log}");
    }

    #[test]
    fn an_old_kernel_is_told_what_it_lacks_and_since_when() {
        let missing =
            |major, minor, frags| missing(Some(KernelVersion::new(major, minor, 0)), frags);
        assert_eq!(missing(5, 7, false).unwrap(), "ring buffers of BPF (since 5.8)");
        assert_eq!(missing(5, 8, false).unwrap(), "links for XDP (since 5.9)");
        assert_eq!(
            missing(5, 10, true).unwrap(),
            "atomic compare-and-exchange in BPF (since 5.12)"
        );
        assert_eq!(missing(5, 12, false).unwrap(), "batch updates of LPM tries (since 5.13)");
        assert_eq!(missing(5, 13, false), None);
        assert_eq!(missing(5, 15, true).unwrap(), "XDP for packets in several pieces (since 5.18)");
        assert_eq!(missing(5, 15, false), None);
        assert_eq!(missing(6, 1, true), None);
    }

    #[test]
    fn documents_and_the_remedy_name_the_versions_that_are_needed() {
        let versions = FEATURES.map(|(major, minor, _)| (major, minor));
        assert!(versions.is_sorted());
        let [.., (major, minor), (frags_major, frags_minor)] = versions;
        let (linear, frags) = (format!("{major}.{minor}"), format!("{frags_major}.{frags_minor}"));
        let documents = [
            (
                include_str!("../../../README.md"),
                format!("It needs Linux {linear}, and {frags} for "),
            ),
            (include_str!("../../../packaging/debian/control"), format!("Linux {linear} or later")),
            (include_str!("trie.rs"), format!("batch updates of LPM tries (since {linear})")),
        ];
        for (document, words) in documents {
            assert!(document.contains(&words), "{words}");
        }
        let remedy = lacking("links for XDP (since 5.9)").remedy().unwrap();
        assert!(
            remedy.starts_with(&format!("boot Linux {linear} or later, {frags} or later")),
            "{remedy}"
        );
    }

    #[test]
    fn maps_that_an_old_kernel_does_not_make_are_told_by_what_it_lacks() {
        let said = |(major, minor), errno| {
            let error = std::io::Error::from_raw_os_error(errno);
            let version = Some(KernelVersion::new(major, minor, 0));
            unmade(version, Error::system("make the maps", error)).to_string()
        };
        let lacks = "lacks arrays of BPF that a process maps into its memory (since 5.5)";
        assert!(said((5, 4), libc::EINVAL).contains(lacks));
        assert!(said((5, 4), libc::EPERM).contains("no permission to make the maps"));
        assert!(said((5, 4), libc::ENOMEM).contains("no memory to make the maps"));
        assert!(said((6, 1), libc::EINVAL).contains("cannot make the maps"));
    }
}
