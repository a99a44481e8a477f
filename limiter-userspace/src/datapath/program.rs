//! Loading the programs.

use std::{
    fs,
    os::fd::{AsFd as _, BorrowedFd},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData},
    programs::{ProgramError, Xdp},
    util::KernelVersion,
};
use limiter_common::{
    contract::{CHUNK, INTERFACES, Interface, Set, global, map, program},
    limit::LIMITS,
};

#[cfg(feature = "datapath-log")]
use super::messages;
use super::{bpffs::Pins, layout::SHAPES, maps::object, sizes::Sizes, sys, timers};
use crate::error::{Error, Result};

/// The object with the programs, compiled for this build.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/datapath"));

const BPF_F_NO_PREALLOC: u32 = 1;
/// 64 MiB of policy documents: the one in force and the next.
const DOCUMENT_CHUNKS: u32 = 16_384;

/// A loaded program of an instance.
pub struct Program {
    ebpf: Ebpf,
    name: &'static str,
    alarms: bool,
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

impl Program {
    /// Loads the program for the interface of a slot, with the maps that are pinned. `frags` is the
    /// one for packets in several pieces.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub fn load(pins: &Pins, slot: u32, frags: bool, clock: Clock) -> Result<Self> {
        Self::load_with(Some(pins), slot, frags, clock)
    }

    /// Loads it as [`load`](Self::load) does, with maps of its own, as small as can be, of which nothing
    /// stays.
    ///
    /// # Errors
    /// What the kernel lacks or says.
    pub(crate) fn try_out(frags: bool) -> Result<Self> {
        Self::load_with(None, 0, frags, Clock::Monotonic)
    }

    /// Loads it with the maps that are pinned, or its own, and with alarms, or without where they do not go by its clock
    /// or the kernel does not take it with them.
    fn load_with(pins: Option<&Pins>, slot: u32, frags: bool, clock: Clock) -> Result<Self> {
        let load = |alarms| {
            let mut ebpf = open(pins, slot, clock, alarms, |_| {})?;
            let name = verify(&mut ebpf, frags)?;
            Ok(Self { ebpf, name, alarms })
        };
        if clock == Clock::Monotonic
            && clock.tick() != 0
            && timers::may_be_set()
            && let Ok(program) = load(true)
        {
            return Ok(program);
        }
        load(false)
    }

    /// Whether it sets alarms.
    pub(crate) fn sets_alarms(&self) -> bool {
        self.alarms
    }

    /// The program, to be run by `BPF_PROG_TEST_RUN` or looked at.
    ///
    /// # Errors
    /// Never for a program that was loaded.
    pub fn xdp(&mut self) -> Result<&mut Xdp> {
        xdp(&mut self.ebpf, self.name)
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
        let xdp = self.xdp()?;
        let fd = xdp.fd().map_err(|error| object(format!("use the program {name}"), &error))?;
        Ok(with(fd.as_fd()))
    }
}

/// Loads one program of the object, and gives its name.
fn verify(ebpf: &mut Ebpf, frags: bool) -> Result<&'static str> {
    let name = if frags { program::FRAGS } else { program::LINEAR };
    xdp(ebpf, name)?.load().map_err(|error| match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            refused(name, frags, io_error, &verifier_log.to_string())
        }
        error => object(format!("load the program {name}"), &error),
    })?;
    Ok(name)
}

/// Creates and pins the maps of a new instance.
///
/// # Errors
/// What the kernel lacks or says.
pub(crate) fn create_maps(pins: &Pins, sizes: &Sizes) -> Result<()> {
    let halves = sizes.overrides.saturating_mul(2);
    let sets = Set::count(sizes.sources);
    // One for each override, and those that need none: of every limit, and that which admits all.
    let meters = halves.saturating_add(2 * (LIMITS + 1));
    drop(open(Some(pins), 0, Clock::Monotonic, false, |loader| {
        loader
            .map_max_entries(map::SETS, sets)
            .map_max_entries(map::AGES, sets)
            .map_max_entries(map::CREDITS, sets)
            .map_max_entries(map::SOURCES, Sizes::whole_sets(sizes.sources))
            .map_max_entries(map::BUCKETS, sizes.buckets)
            .map_max_entries(map::LEDGERS, sizes.ledgers)
            .map_max_entries(map::OPENINGS, sizes.buckets)
            .map_max_entries(map::OFFENCES, sizes.buckets)
            .map_max_entries(map::PROFILES, halves)
            .map_max_entries(map::METERS, meters);
    })?);
    let failed = |name: &str| format!("make the map {name}");
    Array::<MapData, Interface>::create(INTERFACES, 0)
        .map_err(|error| object(failed(map::INTERFACES), &error))?
        .pin(pins.map(map::INTERFACES))
        .map_err(|error| object(failed(map::INTERFACES), &error))?;
    HashMap::<MapData, [u32; 2], [u8; CHUNK]>::create(DOCUMENT_CHUNKS, BPF_F_NO_PREALLOC)
        .map_err(|error| object(failed(map::DOCUMENT), &error))?
        .pin(pins.map(map::DOCUMENT))
        .map_err(|error| object(failed(map::DOCUMENT), &error))
}

/// Opens the maps that are pinned as the object has them, without a program.
///
/// # Errors
/// What the system says.
#[cfg(feature = "datapath-log")]
pub(super) fn open_maps(pins: &Pins) -> Result<Ebpf> {
    open(Some(pins), 0, Clock::Monotonic, false, |_| {})
}

/// Opens the object; its maps are those that are pinned, or its own.
fn open(
    pins: Option<&Pins>,
    slot: u32,
    clock: Clock,
    alarms: bool,
    size: impl FnOnce(&mut EbpfLoader<'_>),
) -> Result<Ebpf> {
    let test = u32::from(clock != Clock::Monotonic);
    let tick = clock.tick();
    let alarms = u32::from(alarms);
    let mut loader = EbpfLoader::new();
    loader
        .override_global(global::SLOT, &slot, true)
        .override_global(global::TEST_CLOCK_ENABLED, &test, true)
        .override_global(global::TICK, &tick, true)
        .override_global(global::ALARMS_ENABLED, &alarms, true);
    for (shape, pins) in SHAPES.iter().filter_map(|shape| Some((shape, pins?))) {
        if ![map::INTERFACES, map::DOCUMENT].contains(&shape.name) {
            loader.map_pin_path(shape.name, pins.map(shape.name));
        }
    }
    #[cfg(feature = "datapath-log")]
    if let Some(pins) = pins {
        loader.map_pin_path(messages::RING, pins.map(messages::RING));
    }
    size(&mut loader);
    loader.load(OBJECT).map_err(|error| object("make the maps", &error))
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
fn refused(name: &str, frags: bool, error: std::io::Error, log: &str) -> Error {
    if matches!(error.raw_os_error(), Some(libc::EPERM)) {
        return Error::system(format!("load the program {name}"), error);
    }
    if let Some(feature) = missing(KernelVersion::current().ok(), frags) {
        return lacking(feature);
    }
    // The end of the log has the instruction and why it was refused; how long that took is another time with
    // each try, which makes it no other error.
    let lines: Vec<&str> =
        log.lines().filter(|line| !line.starts_with("verification time ")).collect();
    let tail = lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n");
    Error::Object { action: format!("load the program {name}"), reason: format!("{error}\n{tail}") }
}

/// The oldest feature that a program needs and a kernel of this version lacks.
fn missing(version: Option<KernelVersion>, frags: bool) -> Option<String> {
    const FEATURES: [(u8, u8, &str); 3] = [
        (5, 9, "links for XDP"),
        (5, 12, "atomic compare-and-exchange in BPF"),
        (5, 18, "XDP for packets in several pieces"),
    ];
    let version = version?;
    let needed = if frags { FEATURES.len() } else { FEATURES.len() - 1 };
    FEATURES[..needed]
        .iter()
        .find(|(major, minor, _)| version < KernelVersion::new(*major, *minor, 0))
        .map(|(major, minor, what)| format!("{what} (since {major}.{minor})"))
}

/// The error for a feature that the kernel does not have.
pub(crate) fn lacking(feature: impl Into<String>) -> Error {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |release| release.trim().to_owned());
    Error::Kernel { kernel, feature: feature.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_refused_twice_is_so_in_the_same_words() {
        let said = |time| {
            let log = format!(
                "0: (95) exit\nR0 !read_ok\nverification time {time} usec\nprocessed 1 insns"
            );
            let error = std::io::Error::from_raw_os_error(libc::EACCES);
            refused("limiter", false, error, &log).to_string()
        };
        assert!(said(12).ends_with("R0 !read_ok\nprocessed 1 insns"), "{}", said(12));
        assert_eq!(said(12), said(13));
    }

    #[test]
    fn an_old_kernel_is_told_what_it_lacks_and_since_when() {
        let missing =
            |major, minor, frags| missing(Some(KernelVersion::new(major, minor, 0)), frags);
        assert_eq!(missing(5, 8, false).unwrap(), "links for XDP (since 5.9)");
        assert_eq!(
            missing(5, 10, true).unwrap(),
            "atomic compare-and-exchange in BPF (since 5.12)"
        );
        assert_eq!(missing(5, 15, true).unwrap(), "XDP for packets in several pieces (since 5.18)");
        assert_eq!(missing(5, 15, false), None);
        assert_eq!(missing(6, 1, true), None);
    }
}
