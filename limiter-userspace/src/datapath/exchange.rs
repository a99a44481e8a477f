//! Exchanging table and program of an instance that runs, for another layout or other sizes.
//!
//! 1. Other maps are made beside those in use. They get the policy and the lists; maps whose values mean the same are the
//!    same maps. Programs for them are loaded.
//! 2. One store makes the new maps those in use. The program of each link is replaced, between two packets.
//! 3. A source or key that comes gets what the old table has of it. A program that no interface runs carries over the rest.
//! 4. Each link gets a program that does not know the old table, and that is removed.
//!
//! What fails before the programs are replaced, and while they are, leaves the old maps in use and the old programs on all
//! links. A process that ends after that leaves both tables; whoever has the right to attach next goes on from
//! step 2.

mod make;

use std::{os::fd::AsFd as _, thread, time::Duration};

use aya::programs::ProgramInfo;
use limiter_common::abi::{
    description::{Description, Predecessor, Request, Standing, carried},
    layout::{map, program},
    table::{Set, WAYS},
};

use super::{
    bpffs::{
        Pins,
        sides::{Beside, word},
    },
    instance::pinned_links,
    link::Link,
    lock::{Lock, Right},
    maps::{Maps, described, object, only_value, pinned},
    program::{Before, Clock, Program},
    sizes::Sizes,
    sys,
};
use crate::error::{Error, Result};

/// How often a batch is run in which other CPUs kept an entry from being carried over.
const TRIES: u32 = 100;

/// What was carried over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// The layout before, if that was another one.
    pub from: Option<u32>,
    /// Sources that owed something.
    pub sources: u32,
    /// Keys of other limits that did.
    pub buckets: u32,
    /// Sources and keys that owed something, and for which there was no room.
    pub lost: u32,
    /// Maps whose values mean something else by now, and that began anew.
    pub anew: Vec<&'static str>,
}

/// The tables in use, as a program is told of them that carries their state over.
///
/// # Errors
/// What the system says, or that their state cannot be carried over.
pub fn before(pins: &Pins) -> Result<Before> {
    Ok(Old::of(&pins.in_use()?)?.before)
}

/// The maps that are to be exchanged.
struct Old {
    before: Before,
    layout: Description,
    sizes: Sizes,
}

impl Old {
    /// Those in use, if their state can be carried over; an error as for whoever opens them if it cannot.
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
        let sizes = Sizes::by(capacity)?;
        let tables = Predecessor {
            source_sets: Set::count(sizes.sources),
            bucket_sets: Set::count(sizes.buckets),
            layout,
        };
        Ok(Self { before: Before { pins: pins.clone(), tables }, layout, sizes })
    }

    /// The value of the head.
    fn head(&self) -> Result<Vec<u8>> {
        let map = pinned(&self.before.pins, map::HEAD)?.ok_or_else(|| missing(map::HEAD))?;
        only_value(&map, map::HEAD)
    }
}

/// A map that has to be there is not.
fn missing(name: &str) -> Error {
    Error::Object { action: format!("use the map {name}"), reason: "it is not pinned".to_owned() }
}

/// The sizes of an older instance whose state can be carried over to this version; `None` if it is of this version, or if
/// there is none.
///
/// # Errors
/// What the system says.
pub(super) fn older(pins: &Pins) -> Result<Option<Sizes>> {
    let pins = &pins.in_use()?;
    match described(pins)?.map(|layout| layout.standing()) {
        Some(Standing::Older) => Ok(Some(Old::of(pins)?.sizes)),
        _ => Ok(None),
    }
}

/// Exchanges table and programs for those of this version, with these sizes, which go by this clock. The caller may
/// attach.
///
/// # Errors
/// Why it cannot be; what runs goes on as it is then, unless only what came after the exchange failed, which the next
/// command does again.
pub(super) fn exchange(pins: &Pins, sizes: &Sizes, clock: Clock) -> Result<Exchanged> {
    let (in_use, new, _) = pins.sides()?;
    let old = Old::of(&in_use)?;
    new.clear_maps()?;
    match make::prepare(&old, &new, sizes, clock)
        .and_then(|made| put_in_use(pins, &old, &new, made))
    {
        Ok((carrier, anew)) => {
            let from = (old.layout.standing() == Standing::Older).then_some(old.layout.layout);
            Ok(Exchanged { from, anew, ..finish(&new, &old.before, carrier, clock)? })
        }
        Err(error) => {
            // Maps that a link may run on stay; whoever attaches next goes on.
            if pins.sides()?.0.maps() != new.maps() {
                new.clear_maps()?;
            }
            Err(error)
        }
    }
}

/// Makes new maps those in use, and has their programs run.
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
    match switch(new, programs) {
        Switched::All => {}
        Switched::None(cause) => {
            publish(0)?;
            return Err(cause);
        }
        Switched::Some(cause) => return Err(cause),
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

/// Loads a program for each interface that exists: with tables before, to carry state over from those.
fn load(pins: &Pins, before: Option<&Before>, clock: Clock) -> Result<Programs> {
    let mut programs = Vec::new();
    for (slot, link) in pinned_links(pins)? {
        if link.interface()?.is_none() {
            continue;
        }
        let runs = ProgramInfo::from_pin(pins.program(slot)).ok();
        let frags = runs.is_some_and(|it| it.name_as_str() == Some(program::FRAGS));
        let program = match before {
            Some(before) => Program::load_carrying(pins, before, slot, frags, clock)?,
            None => Program::load(pins, slot, frags, clock)?,
        };
        programs.push((slot, link, program));
    }
    Ok(programs)
}

/// Which links run their new program.
enum Switched {
    All,
    /// None, as one did not take it: the others were put back.
    None(Error),
    /// Some, as one did not take it, and others could not be put back.
    Some(Error),
}

/// Has each link run its program, or each one that which it ran, whose pin there is.
fn switch(pins: &Pins, mut programs: Programs) -> Switched {
    for at in 0..programs.len() {
        let Some((_, link, program)) = programs.get_mut(at) else { break };
        if let Err(cause) = program.with_fd(|fd| link.replace(fd)).flatten()
            && is_there(link)
        {
            // Each of them, also where one fails.
            let undone = programs.iter().take(at).map(|(slot, link, _)| undo(pins, *slot, link));
            return match undone.filter(Result::is_err).count() {
                0 => Switched::None(cause),
                _ => Switched::Some(cause),
            };
        }
    }
    Switched::All
}

/// Whether a link has its interface still; one that cannot be looked at has.
fn is_there(link: &Link) -> bool {
    !matches!(link.interface(), Ok(None))
}

/// Has a link run the program before, unless its interface is gone.
fn undo(pins: &Pins, slot: u32, link: &Link) -> Result<()> {
    let path = super::bpffs::c_path(pins.program(slot).as_os_str())?;
    let before =
        sys::open(&path).map_err(|error| Error::system("open the program before", error))?;
    match link.replace(before.as_fd()) {
        Err(error) if is_there(link) => Err(error),
        _ => Ok(()),
    }
}

/// Carries over what is left, and lets go of the tables before. The new maps are in use, and their programs run.
fn finish(new: &Pins, before: &Before, carrier: Program, clock: Clock) -> Result<Exchanged> {
    // A packet that came before charges the old table until then.
    sys::wait_for_packets().map_err(|error| Error::system("wait for packets", error))?;
    let done = sweep(before, carrier)?;
    let mut programs = load(new, None, clock)?;
    for (slot, link, program) in &mut programs {
        let replaced = program.with_fd(|fd| link.replace(fd))?;
        if link.interface()?.is_some() {
            replaced?;
            program.pin(new, *slot)?;
        }
    }
    before.pins.clear_maps()?;
    Ok(done)
}

/// Carries over what did not come by itself.
fn sweep(before: &Before, mut carrier: Program) -> Result<Exchanged> {
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
    let sources = before.tables.source_sets * WAYS as u32;
    let (owing, without) = all(carried::SOURCES, sources)?;
    all(carried::IDLE, sources)?;
    let buckets = before.tables.bucket_sets * WAYS as u32 + limiter_common::abi::layout::TALLIES;
    let (buckets, keys_without) = all(carried::BUCKETS, buckets)?;
    Ok(Exchanged { sources: owing, buckets, lost: without + keys_without, ..Exchanged::default() })
}

/// Ends an exchange that another process began and did not end; it may attach. One that an older version began loses
/// what did not come by itself: this version has no program for its maps. One of a newer version is left to that.
///
/// # Errors
/// What the system says; the next one tries again.
pub(super) fn settle(pins: &Pins) -> Result<()> {
    let (in_use, other, beside) = pins.sides()?;
    if beside == Beside::Nothing {
        return Ok(());
    }
    pins.check_owners()?;
    match (beside, described(&in_use)?.map(|layout| layout.standing())) {
        (Beside::Predecessor, Some(Standing::Own)) => {
            let before = Old::of(&other)?.before;
            let clock = Clock::Monotonic;
            let carrier = Program::load_carrier(&in_use, &before, clock)?;
            match switch(&in_use, load(&in_use, Some(&before), clock)?) {
                Switched::All => {}
                Switched::None(cause) | Switched::Some(cause) => return Err(cause),
            }
            finish(&in_use, &before, carrier, clock).map(drop)
        }
        (Beside::Remains, _) | (Beside::Predecessor, Some(Standing::Older)) => other.clear_maps(),
        _ => Ok(()),
    }
}

/// The same for whoever has no right yet: one that somebody is at is left to them.
///
/// # Errors
/// As [`settle`].
pub(super) fn settle_if_left(pins: &Pins) -> Result<()> {
    if pins.sides()?.2 == Beside::Nothing {
        return Ok(());
    }
    match Lock::try_take(pins, Right::Attach)? {
        Some(_attaching) => settle(pins),
        None => Ok(()),
    }
}
