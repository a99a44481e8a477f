//! Exchanges table and program of a running instance, for another layout or other sizes.
//!
//! 1. The maps are made beside those in use, with the same policy and lists. A map whose values mean the same is shared.
//!    Programs for the new maps are loaded.
//! 2. One store puts the new maps in use. The program of each link is replaced, between two packets.
//! 3. A source or key gets its old state with its new entry. `limiter_carry` carries over the rest.
//! 4. Each link gets a program without the old table. The old table is removed.
//!
//! If step 1 or 2 fails, the old maps stay in use and all links run the old programs. If the process ends later, both
//! tables stay, and the next process that may attach goes on from step 2.

mod make;

use std::{os::fd::AsFd as _, thread, time::Duration};

use aya::programs::ProgramInfo;
use limiter_common::abi::{
    description::{Description, OldTables, Request, Standing, carried},
    layout::{TALLIES, map, program},
    table::{Set, WAYS},
};

use super::{
    bpffs::{
        Pins, c_path,
        sides::{Beside, word},
    },
    instance::pinned_links,
    link::Link,
    lock::{Lock, Right},
    maps::{Maps, described, object, only_value, pinned},
    program::{CarryFrom, Clock, Program},
    sizes::Sizes,
    sys,
};
use crate::error::{Error, Result};

/// How often a batch is run while other CPUs hold or move entries of it.
const TRIES: u32 = 100;

/// What was carried over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// The old layout, if it was another one.
    pub from: Option<u32>,
    /// Sources that owed something.
    pub sources: u32,
    /// Keys of other limits that owed something.
    pub buckets: u32,
    /// Sources and keys that owed something and found no room, or were in use by packets all the time.
    pub lost: u32,
    /// Maps whose values mean something else in this layout. They began empty.
    pub anew: Vec<&'static str>,
}

/// The tables in use, to load a program that carries their state over.
///
/// # Errors
/// If the state cannot be carried over, or a system call fails.
pub fn carry_from(pins: &Pins) -> Result<CarryFrom> {
    Ok(Old::of(&pins.in_use()?)?.from)
}

/// The maps that are to be exchanged.
struct Old {
    from: CarryFrom,
    layout: Description,
    sizes: Sizes,
}

impl Old {
    /// Looks the maps up. Fails as [`Maps::open`] does if their state cannot be carried over.
    fn of(pins: &Pins) -> Result<Self> {
        let Some(layout) = described(pins)?
            .filter(|layout| matches!(layout.standing(), Standing::Own | Standing::Older))
        else {
            Maps::open_at(pins)?;
            return Err(missing(map::LAYOUT));
        };
        let capacity = |name| {
            let map = pinned(pins, name)?.ok_or_else(|| missing(name))?;
            let info = map.info();
            Ok::<_, Error>(info.map_err(|error| object("look at a map", &error))?.max_entries())
        };
        let sizes = Sizes::by(&layout, capacity)?;
        let tables = OldTables {
            source_sets: Set::count(sizes.sources),
            bucket_sets: Set::count(sizes.buckets),
            layout,
        };
        Ok(Self { from: CarryFrom { pins: pins.clone(), tables }, layout, sizes })
    }

    /// The value of the head.
    fn head(&self) -> Result<Vec<u8>> {
        let map = pinned(&self.from.pins, map::HEAD)?.ok_or_else(|| missing(map::HEAD))?;
        only_value(&map, map::HEAD)
    }
}

/// The error for a map that is not pinned.
fn missing(name: &str) -> Error {
    Error::Object { action: format!("use the map {name}"), reason: "it is not pinned".to_owned() }
}

/// The sizes of an instance of an older layout whose state can be carried over; `None` if there is none.
///
/// # Errors
/// If a system call fails.
pub(super) fn older(pins: &Pins) -> Result<Option<Sizes>> {
    let pins = &pins.in_use()?;
    match described(pins)?.map(|layout| layout.standing()) {
        Some(Standing::Older) => Ok(Some(Old::of(pins)?.sizes)),
        _ => Ok(None),
    }
}

/// Exchanges table and programs for those of this version, with these sizes. The programs go by this clock. The caller
/// holds the lock to attach.
///
/// # Errors
/// If maps or programs cannot be made: the instance goes on as it was. If only the steps after the exchange failed, the
/// next process that may attach repeats them.
pub(super) fn exchange(pins: &Pins, sizes: &Sizes, clock: Clock) -> Result<Exchanged> {
    let (in_use, new, _) = pins.sides()?;
    let old = Old::of(&in_use)?;
    new.clear_maps()?;
    match make::prepare(&old, &new, sizes, clock)
        .and_then(|made| put_in_use(pins, &old, &new, made))
    {
        Ok((carrier, anew)) => {
            let from = (old.layout.standing() == Standing::Older).then_some(old.layout.layout);
            Ok(Exchanged { from, anew, ..finish(&new, &old.from, carrier, clock)? })
        }
        Err(error) => {
            // Maps that a link may run on stay. The next process that may attach goes on.
            if pins.sides()?.0.maps() != new.maps() {
                new.clear_maps()?;
            }
            Err(error)
        }
    }
}

/// Puts the new maps in use, and replaces the programs of all links.
fn put_in_use(
    pins: &Pins,
    old: &Old,
    new: &Pins,
    make::Made { mut maps, programs, carrier, anew }: make::Made,
) -> Result<(Program, Vec<&'static str>)> {
    let Some(_changing) = Lock::take(pins, Right::Change)? else {
        return Err(Error::NoInstance { directory: pins.directory().to_path_buf() });
    };
    let monitor = make::restore(old, &mut maps)?;
    sys::wait_for_packets().map_err(|error| Error::system("wait for packets", error))?;
    let head = maps.raw(map::HEAD)?.fd();
    let publish = |epoch| {
        sys::publish_epoch(head.as_fd(), epoch)
            .map_err(|error| Error::system("set the epoch", error))
    };
    publish(make::epoch(&old.head()?))?;
    match replace_programs(new, programs) {
        Replaced::All => {}
        Replaced::None(cause) => {
            publish(0)?;
            return Err(cause);
        }
        Replaced::Some(cause) => return Err(cause),
    }
    // The monitor switch takes no lock: it may have been thrown since it was read.
    let thrown = word(&old.head()?, old.layout.head_monitor as usize);
    if thrown != monitor {
        maps.switch_monitor(thrown != 0)?;
    }
    Ok((carrier, anew))
}

/// The programs of the links, with their slots.
type Programs = Vec<(u32, Link, Program)>;

/// Loads a program for each interface that exists, with the old tables if there are some.
fn load(pins: &Pins, from: Option<&CarryFrom>, clock: Clock) -> Result<Programs> {
    let mut programs = Vec::new();
    for (slot, link) in pinned_links(pins)? {
        if link.interface()?.is_none() {
            continue;
        }
        let runs = ProgramInfo::from_pin(pins.program(slot)).ok();
        let frags = runs.is_some_and(|it| it.name_as_str() == Some(program::FRAGS));
        let program = match from {
            Some(from) => Program::load_carrying(pins, from, slot, frags, clock)?,
            None => Program::load(pins, slot, frags, clock)?,
        };
        programs.push((slot, link, program));
    }
    Ok(programs)
}

/// Which links run their new program.
enum Replaced {
    All,
    /// None: one did not take it, and the others run their old program again.
    None(Error),
    /// Some: one did not take it, and not all others could be put back.
    Some(Error),
}

/// Replaces the program of each link. If one fails, all run their old program again, which is pinned still.
fn replace_programs(pins: &Pins, mut programs: Programs) -> Replaced {
    for at in 0..programs.len() {
        let Some((_, link, program)) = programs.get_mut(at) else { break };
        if let Err(cause) = program.with_fd(|fd| link.replace(fd)).flatten()
            && is_there(link)
        {
            // All of them are tried, also if one fails.
            let undone = programs.iter().take(at).map(|(slot, link, _)| undo(pins, *slot, link));
            return match undone.filter(Result::is_err).count() {
                0 => Replaced::None(cause),
                _ => Replaced::Some(cause),
            };
        }
    }
    Replaced::All
}

/// Whether the interface of a link exists, or cannot be looked at.
fn is_there(link: &Link) -> bool {
    !matches!(link.interface(), Ok(None))
}

/// Puts the old program back on a link, unless its interface is gone.
fn undo(pins: &Pins, slot: u32, link: &Link) -> Result<()> {
    let path = c_path(pins.program(slot).as_os_str())?;
    let before =
        sys::open(&path).map_err(|error| Error::system("open the program before", error))?;
    match link.replace(before.as_fd()) {
        Err(error) if is_there(link) => Err(error),
        _ => Ok(()),
    }
}

/// Runs the sweep, and removes the old tables. The new maps are in use, and their programs run.
fn finish(new: &Pins, from: &CarryFrom, carrier: Program, clock: Clock) -> Result<Exchanged> {
    // Packets under way may charge the old table until then.
    sys::wait_for_packets().map_err(|error| Error::system("wait for packets", error))?;
    let done = sweep(from, carrier)?;
    let mut programs = load(new, None, clock)?;
    for (slot, link, program) in &mut programs {
        let replaced = program.with_fd(|fd| link.replace(fd))?;
        if link.interface()?.is_some() {
            replaced?;
            program.pin(new, *slot)?;
        }
    }
    from.pins.clear_maps()?;
    Ok(done)
}

/// Runs `limiter_carry` over all entries of the old tables.
fn sweep(from: &CarryFrom, mut carrier: Program) -> Result<Exchanged> {
    let mut all = |kind, entries: u32| {
        let (mut carried, mut lost) = (0, 0);
        for first in (0..entries).step_by(carried::BATCH as usize) {
            let request = Request { kind, first, ..Request::default() };
            let mut batch = carrier.carry(&request)?;
            for _ in 0..TRIES {
                if !batch.is_busy() {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
                batch = carrier.carry(&request)?;
            }
            carried += batch.carried();
            lost += batch.lost() + batch.busy();
        }
        Ok::<_, Error>((carried, lost))
    };
    let sources = from.tables.source_sets * WAYS as u32;
    let (owing, without) = all(carried::SOURCES, sources)?;
    all(carried::IDLE, sources)?;
    let buckets = from.tables.bucket_sets * WAYS as u32 + TALLIES;
    let (buckets, keys_without) = all(carried::BUCKETS, buckets)?;
    Ok(Exchanged { sources: owing, buckets, lost: without + keys_without, ..Exchanged::default() })
}

/// Finishes an exchange that another process began and did not finish. The caller holds the lock to attach.
///
/// This version has no program for the maps of an older one. If that began the exchange, the sweep is left out: what
/// sources and keys owe that did not send meanwhile is lost. An exchange of a newer version is left alone.
///
/// # Errors
/// If a program cannot be loaded or a system call fails. The next caller tries again.
pub(super) fn resume(pins: &Pins) -> Result<()> {
    let (in_use, other, beside) = pins.sides()?;
    if beside == Beside::Nothing {
        return Ok(());
    }
    pins.check_owners()?;
    match (beside, described(&in_use)?.map(|layout| layout.standing())) {
        (Beside::Old, Some(Standing::Own)) => {
            let from = Old::of(&other)?.from;
            let clock = Clock::Monotonic;
            let carrier = Program::load_carrier(&in_use, &from, clock)?;
            match replace_programs(&in_use, load(&in_use, Some(&from), clock)?) {
                Replaced::All => {}
                Replaced::None(cause) | Replaced::Some(cause) => return Err(cause),
            }
            finish(&in_use, &from, carrier, clock).map(drop)
        }
        (Beside::Remains, _) | (Beside::Old, Some(Standing::Older)) => other.clear_maps(),
        _ => Ok(()),
    }
}

/// The same for a caller without that lock. If another process holds it, the exchange is left to that.
///
/// # Errors
/// As [`resume`].
pub(super) fn resume_if_left(pins: &Pins) -> Result<()> {
    if pins.sides()?.2 == Beside::Nothing {
        return Ok(());
    }
    match Lock::try_take(pins, Right::Attach)? {
        Some(_attaching) => resume(pins),
        None => Ok(()),
    }
}
