//! The main program of an instance: all its interfaces run it, as their dispatchers call what is in an array of programs.
//!
//! There are two arrays, as the kernel wants the programs of one to agree on whether packets may lie in several pieces. Another
//! program takes the place of the one in an array by one store, for all interfaces between two of their packets. The map
//! `BUILDS` tells which build and which maps the program in an array is of.

use std::os::fd::AsFd as _;

use aya::{
    maps::{Array, MapData},
    programs::ProgramInfo,
};
use limiter_common::abi::{
    build::Build,
    layout::{map, program as name},
};

use super::{
    bpffs::{Pins, c_path},
    link::{Link, pinned_links},
    object::{number, object},
    open::{missing, pinned, typed},
    program::{Clock, Program, object_hash},
    sys,
};
use crate::error::{Error, Result};

/// Both kinds of packets: in one piece, and in several.
pub(crate) const KINDS: [bool; 2] = [false, true];

/// The array that dispatchers call.
const fn array_of(frags: bool) -> &'static str {
    if frags { map::PROGRAM_FRAGS } else { map::PROGRAM }
}

/// The id of the program in an array; `None` if there is none, or no array.
///
/// # Errors
/// What the system says.
pub fn held(pins: &Pins, frags: bool) -> Result<Option<u32>> {
    let Some(array) = pinned(pins, array_of(frags))? else { return Ok(None) };
    sys::lookup::<u32, u32>(array.fd().as_fd(), &0)
        .map_err(|error| Error::system("look at the main program", error))
}

/// What a program of this build for these maps is written down as.
fn own(pins: &Pins, program: u32) -> Result<Build> {
    let head = pinned(pins, map::HEAD)?.ok_or_else(|| missing(map::HEAD))?;
    Ok(Build { program, head: number(&head)?, object: object_hash(pins) })
}

/// Whether the program in an array is of this build and of these maps.
///
/// # Errors
/// What the system says.
pub(crate) fn is_own(pins: &Pins, frags: bool) -> Result<bool> {
    let pins = &pins.in_use()?;
    let Some(held) = held(pins, frags)? else { return Ok(false) };
    let builds: Array<MapData, Build> = typed(pins, map::BUILDS)?;
    let written = builds
        .get(&frags.into(), 0)
        .map_err(|error| object("read the build of the main program", &error))?;
    Ok(written == own(pins, held)?)
}

/// Whether the main program that the link of a slot runs is known to be of these maps.
///
/// # Errors
/// What the system says.
pub(crate) fn runs_by(pins: &Pins, slot: u32, link: &Link) -> Result<bool> {
    let head = number(&pinned(pins, map::HEAD)?.ok_or_else(|| missing(map::HEAD))?)?;
    let runs = runs(pins, slot, link)?;
    if !runs.is_dispatcher {
        // One of a version before dispatchers decides by itself.
        let path = c_path(pins.program(slot).as_os_str())?;
        let is_of = || {
            let program = sys::open(&path)?;
            let runs = sys::program_runs(program.as_fd())?.0;
            Ok((runs, sys::program_maps(program.as_fd())?))
        };
        let found: std::io::Result<(u32, Vec<u32>)> = is_of();
        let running = link.program()?;
        return Ok(found.is_ok_and(|(program, maps)| program == running && maps.contains(&head)));
    }
    // Another version may write it down in another form.
    let builds: Result<Array<MapData, Build>> = typed(pins, map::BUILDS);
    let written = builds.ok().and_then(|builds| builds.get(&runs.frags.into(), 0).ok());
    let held = held(pins, runs.frags)?;
    Ok(written.is_some_and(|build| held == Some(build.program) && build.head == head))
}

/// Loads the main program and puts it into its array, unless one of this build and these maps is there. The caller holds
/// the lock to attach.
///
/// # Errors
/// What the kernel lacks or says; the program in the array stays then.
pub(crate) fn ensure(pins: &Pins, frags: bool) -> Result<()> {
    if is_own(pins, frags)? {
        return Ok(());
    }
    let mut program = Program::load(pins, frags, Clock::Monotonic)?;
    put(pins, &mut program, frags)
}

/// Puts a main program into its array, in the place of another one: all interfaces run it from then on.
///
/// # Errors
/// What the system says; the program in the array stays then.
pub fn put(pins: &Pins, program: &mut Program, frags: bool) -> Result<()> {
    let pins = &pins.in_use()?;
    let failed = |error: &dyn std::error::Error| object("put the main program in use", error);
    let id = program.with_fd(sys::program_runs)?.map_err(|error| failed(&error))?.0;
    // Written down first: if this process ends in between, the id tells that it is of another program.
    let mut builds: Array<MapData, Build> = typed(pins, map::BUILDS)?;
    builds.set(frags.into(), own(pins, id)?, 0).map_err(|error| failed(&error))?;
    let name = array_of(frags);
    let array = pinned(pins, name)?.ok_or_else(|| missing(name))?;
    let stored = program.with_fd(|fd| sys::store_program(array.fd().as_fd(), fd))?;
    stored.map_err(|error| Error::system("put the main program in use", error))
}

/// Which kinds of main programs links call, or may call: of a link that runs no dispatcher of these arrays it cannot be told.
///
/// # Errors
/// What the system says.
pub(crate) fn used(pins: &Pins) -> Result<[bool; 2]> {
    let mut used = KINDS.map(|_| false);
    for runs in run_by_links(pins)? {
        for frags in KINDS {
            used[usize::from(frags)] |= !runs.is_dispatcher || runs.frags == frags;
        }
    }
    Ok(used)
}

/// What the links of interfaces run that are there.
fn run_by_links(pins: &Pins) -> Result<Vec<Runs>> {
    let mut found = Vec::new();
    for (slot, link) in pinned_links(pins)? {
        if link.interface()?.is_some() {
            found.push(runs(pins, slot, &link)?);
        }
    }
    Ok(found)
}

/// Takes the main programs that no link calls out of their arrays. An exchange does not load them again, and the kernel has
/// their memory back. The caller holds the lock to attach.
///
/// # Errors
/// What the system says.
pub(crate) fn remove_unused(pins: &Pins) -> Result<()> {
    let pins = &pins.in_use()?;
    let used = used(pins)?;
    for frags in KINDS.into_iter().filter(|frags| !used[usize::from(*frags)]) {
        if let Some(array) = pinned(pins, array_of(frags))? {
            sys::remove(array.fd().as_fd(), &0_u32).map_err(|error| {
                Error::system("remove a main program that no link calls", error)
            })?;
        }
    }
    Ok(())
}

/// Whether the dispatcher on the link of a slot finds no main program, so that all packets pass as `unloaded`.
///
/// # Errors
/// What the system says.
pub(crate) fn is_missing(pins: &Pins, slot: u32) -> Result<bool> {
    let Some(link) = Link::open(&pins.link(slot))? else { return Ok(false) };
    runs(pins, slot, &link)?.finds_none(pins)
}

/// The same of all links: which kinds of main programs dispatchers call and do not find.
///
/// # Errors
/// What the system says.
pub(crate) fn missing_kinds(pins: &Pins) -> Result<[bool; 2]> {
    let mut missing = KINDS.map(|_| false);
    for runs in run_by_links(pins)? {
        missing[usize::from(runs.frags)] |= runs.finds_none(pins)?;
    }
    Ok(missing)
}

/// What the link of a slot runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Whether packets may lie in several pieces.
    pub(crate) frags: bool,
    /// Whether it is a dispatcher that calls the array of these maps.
    pub(crate) is_dispatcher: bool,
}

impl Runs {
    /// Whether it is a dispatcher that finds no main program in the array of these maps.
    fn finds_none(self, pins: &Pins) -> Result<bool> {
        Ok(self.is_dispatcher && held(pins, self.frags)?.is_none())
    }
}

/// Looks at the program of a link, which is pinned beside it. Instances of versions before dispatchers have full programs.
///
/// # Errors
/// What the system says.
pub(crate) fn runs(pins: &Pins, slot: u32, link: &Link) -> Result<Runs> {
    let path = pins.program(slot);
    let Ok(info) = ProgramInfo::from_pin(&path) else {
        return Ok(Runs { frags: false, is_dispatcher: false });
    };
    let frags = matches!(info.name_as_str(), Some(name::FRAGS | name::DISPATCH_FRAGS));
    let maps = sys::open(&c_path(path.as_os_str())?)
        .and_then(|program| sys::program_maps(program.as_fd()))
        .map_err(|error| Error::system(format!("look at {}", path.display()), error))?;
    let calls = match pinned(pins, array_of(frags))? {
        Some(array) => maps.contains(&number(&array)?),
        None => false,
    };
    Ok(Runs { frags, is_dispatcher: calls && info.id() == link.program()? })
}

/// Whether the interface in a slot has the programs for packets in several pieces.
///
/// # Errors
/// What the system says.
pub(crate) fn takes_pieces(pins: &Pins, slot: u32) -> Result<bool> {
    match Link::open(&pins.link(slot))? {
        Some(link) => Ok(runs(pins, slot, &link)?.frags),
        None => Ok(false),
    }
}
