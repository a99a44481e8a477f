//! Exchanges table and program of a running instance, for another layout or other sizes.
//!
//! 1. The maps are made beside those in use, with the same policy and lists. A map whose values mean the same is shared; so
//!    are the arrays of main programs. A main program for the new maps is loaded.
//! 2. One store puts the new maps in use. One for each kind of packets puts the main program in use, for all interfaces
//!    between two of their packets. Links of versions before dispatchers get a dispatcher, one after the other.
//! 3. A source or key gets its old state with its new entry. `limiter_carry` carries over the rest.
//! 4. The main program is replaced by one without the old table. The old table is removed.
//!
//! If step 1 or 2 fails, the old maps stay in use and all interfaces run the old programs. If the process ends after the first
//! store, both tables stay, and some interfaces may run the old program. The next process that may attach goes on from step 2
//! (`resume.rs`).

mod make;
mod offences;
mod resume;
mod shared_sources;
mod switch;
mod wide;

use std::{os::fd::AsFd as _, thread, time::Duration};

use limiter_common::{
    abi::{
        description::{Description, OldTables, Request, Standing, carried},
        layout::{TALLIES, map, shared},
        table::{Set, WAYS},
    },
    base::seed::Seed,
};

use super::{
    bpffs::{Pins, c_path, sides::Beside},
    link::{Link, pinned_links},
    lock::{Lock, Right},
    main_program::{self, KINDS, held},
    maps::{Maps, described, has_further},
    object::object,
    open::{missing, pinned},
    policy::StoredPolicy,
    program::{CarryFrom, Clock, Program},
    sizes::Sizes,
    sys,
};
use crate::error::{Error, Result};

pub(crate) use self::resume::is_left;
pub(super) use self::resume::{Resumed, let_go, resume, resume_if_left};
use self::switch::{Switch, head};

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
    /// Sources and keys that owed something and found no room, or were in use by packets all the time. Of layouts before 26,
    /// also wide states of limits that no policy has.
    pub lost: u32,
    /// Maps whose values mean something else in this layout. They began empty.
    pub anew: Vec<&'static str>,
    /// Whether an exchange before it was interrupted, and its old table was removed with all that it had left.
    pub left_behind: bool,
}

impl Exchanged {
    /// What is to be told of both, where another exchange came before: what that lost is lost.
    #[must_use]
    pub fn after(self, before: Self) -> Self {
        let lost = self.lost.saturating_add(before.lost);
        let anew = [before.anew, self.anew].concat();
        let left_behind = self.left_behind || before.left_behind;
        Self { from: before.from, lost, anew, left_behind, ..self }
    }
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
    /// Whether there were wide states when they were looked up.
    has_wide: bool,
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
        let held = StoredPolicy::of_any_layout(pins)?.held;
        let beside = pinned(pins, map::FURTHER_LIMITS)?;
        let has_further = beside.map_or(Ok(false), |map| has_further(&map))?;
        // Before layout 30 all are in the entry.
        let is_asked = layout.entry_places == 0 && held.has_further();
        let sizes = Sizes::by(&layout, has_further || is_asked, capacity)?;
        let has_wide = layout.wide_sets != 0 && pinned(pins, map::WIDE_STATE)?.is_some();
        let tables = OldTables {
            source_sets: Set::count(sizes.sources),
            bucket_sets: Sizes::bucket_sets_in(capacity(map::BUCKETS)?, &layout),
            wide_sets: layout.wide_sets,
            has_wide: has_wide.into(),
            has_further: has_further.into(),
            reserved: 0,
            seed: held.table_seed(),
            layout,
        };
        Ok(Self { from: CarryFrom { pins: pins.clone(), tables }, layout, sizes, has_wide })
    }

    /// The value of the head.
    fn head(&self) -> Result<Vec<u8>> {
        head(&self.from.pins)
    }
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

/// Exchanges table and programs for those of this version, with these sizes, and another seed if one is given. The programs
/// go by this clock. The caller holds the lock to attach.
///
/// # Errors
/// If maps or programs cannot be made: the instance goes on as it was. If only the steps after the exchange failed, the
/// next process that may attach repeats them.
pub(super) fn exchange(
    pins: &Pins,
    sizes: &Sizes,
    seed: Option<Seed>,
    clock: Clock,
) -> Result<Exchanged> {
    let (in_use, new, beside) = pins.sides()?;
    let old = Old::of(&in_use)?;
    // Of an older layout: this version has no program that would carry over what is left there.
    let left_behind = beside == Beside::Old;
    new.clear_maps()?;
    match make::prepare(&old, &new, sizes, clock)
        .and_then(|made| put_in_use(pins, &old, &new, seed, made))
    {
        Ok((started, before)) => {
            let from = (old.layout.standing() == Standing::Older).then_some(old.layout.layout);
            let swept = finish(&new, &old.from, started, clock)?;
            let (buckets, lost) = (before.buckets + swept.buckets, before.lost + swept.lost);
            Ok(Exchanged { from, anew: before.anew, buckets, lost, left_behind, ..swept })
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

/// Puts the new maps in use, and the programs for them.
fn put_in_use(
    pins: &Pins,
    old: &Old,
    new: &Pins,
    seed: Option<Seed>,
    made: make::Made,
) -> Result<(Started, Exchanged)> {
    let make::Made { mut maps, mut programs, carrier, mut anew } = made;
    let Some(_changing) = Lock::take(pins, Right::Change)? else {
        return Err(Error::NoInstance { directory: pins.directory().to_path_buf() });
    };
    let make::Restored { monitor, anew: more, carried, mut lost } =
        make::restore(old, &mut maps, seed)?;
    anew.extend(more);
    sys::wait_for_packets().map_err(|error| Error::system("wait for packets", error))?;
    let head = maps.raw(map::HEAD)?.fd();
    let publish = |epoch| {
        sys::publish_epoch(head.as_fd(), epoch)
            .map_err(|error| Error::system("set the epoch", error))
    };
    lost += shared_sources::bring(old, &maps)?;
    let switch_before = Switch::of(&old.from.pins, &old.layout);
    let switch = Switch::of(new, &Description::OWN);
    publish(make::epoch(&old.head()?))?;
    if let Err(Stopped { cause, is_called, links }) = programs.start(new) {
        // All of them are tried, also if one fails.
        let started = programs.dispatchers.iter().take(links);
        let undone = started.map(|(slot, link, _)| undo(new, *slot, link)).filter(Result::is_err);
        if undone.count() == 0 && !is_called {
            let known = switch_before.follow(&switch, monitor);
            publish(0)?;
            // It may have been thrown in between. Who does it now finds the old maps in use.
            switch_before.follow(&switch, known?)?;
        }
        return Err(cause);
    }
    switch.follow(&switch_before, monitor)?;
    let exchanged = Exchanged { anew, buckets: carried, lost, ..Exchanged::default() };
    Ok((Started { dispatchers: programs.dispatchers, carrier }, exchanged))
}

/// The dispatchers that links get, with their slots.
type Dispatchers = Vec<(u32, Link, Program)>;

/// The programs for new maps.
struct Programs {
    /// The main programs, for packets in one piece or in several, with the old tables.
    main: Vec<(bool, Program)>,
    /// Of the links that run none for the arrays of these maps: those of versions before dispatchers.
    dispatchers: Dispatchers,
    /// Whether other links run one.
    is_called: bool,
}

/// What runs with the new maps and the old tables.
struct Started {
    dispatchers: Dispatchers,
    /// The program `limiter_carry`.
    carrier: Program,
}

/// Loads the programs for maps that take the place of `other` ones; with `from`, those that carry state over from there.
fn load(pins: &Pins, other: &Pins, from: Option<&CarryFrom>, clock: Clock) -> Result<Programs> {
    let mut wanted = KINDS.map(|_| false);
    let (mut dispatchers, mut is_called) = (Vec::new(), false);
    for (slot, link) in pinned_links(pins)? {
        if link.interface()?.is_none() {
            continue;
        }
        let runs = main_program::runs(pins, slot, &link)?;
        wanted[usize::from(runs.frags)] = true;
        is_called |= runs.is_dispatcher;
        if !runs.is_dispatcher {
            dispatchers.push((slot, link, Program::load_dispatcher(pins, slot, runs.frags)?));
        }
    }
    let (used, mut main) = (main_program::used(pins)?, Vec::new());
    for frags in KINDS {
        let is_held = || Ok::<_, Error>(held(pins, frags)?.or(held(other, frags)?).is_some());
        if wanted[usize::from(frags)] || used[usize::from(frags)] && is_held()? {
            let program = match from {
                Some(from) => Program::load_carrying(pins, from, frags, clock)?,
                None => Program::load(pins, frags, clock)?,
            };
            main.push((frags, program));
        }
    }
    Ok(Programs { main, dispatchers, is_called })
}

/// How far the new programs were put in use when that failed.
struct Stopped {
    cause: Error,
    /// Whether interfaces call a new main program.
    is_called: bool,
    /// The links that got their dispatcher.
    links: usize,
}

impl Programs {
    /// Puts the programs in use.
    fn start(&mut self, new: &Pins) -> std::result::Result<(), Stopped> {
        // Interfaces that call these arrays run a main program from its store on.
        let mut is_called = false;
        for (frags, program) in &mut self.main {
            main_program::put(new, program, *frags).map_err(|cause| Stopped {
                cause,
                is_called,
                links: 0,
            })?;
            is_called = self.is_called;
        }
        for (links, (_, link, program)) in self.dispatchers.iter_mut().enumerate() {
            match program.with_fd(|fd| link.replace(fd)).flatten() {
                Err(cause) if is_there(link) => return Err(Stopped { cause, is_called, links }),
                _ => {}
            }
        }
        Ok(())
    }
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

/// Runs the sweep, and removes the old maps. The new ones are in use, and their programs run.
fn finish(new: &Pins, from: &CarryFrom, started: Started, clock: Clock) -> Result<Exchanged> {
    let Started { dispatchers, carrier } = started;
    // Packets under way may charge the old table until then.
    sys::wait_for_packets().map_err(|error| Error::system("wait for packets", error))?;
    let done = sweep(from, carrier)?;
    let used = main_program::used(new)?;
    for frags in KINDS {
        if used[usize::from(frags)] && held(new, frags)?.is_some() {
            main_program::put(new, &mut Program::load(new, frags, clock)?, frags)?;
        }
    }
    remove_old(new, &from.pins, dispatchers)?;
    Ok(done)
}

/// Removes the old maps, which no program uses any more, and the programs before.
fn remove_old(new: &Pins, old: &Pins, dispatchers: Dispatchers) -> Result<()> {
    for (slot, link, mut program) in dispatchers {
        if link.interface()?.is_some() {
            program.pin(new, slot)?;
        }
    }
    main_program::remove_unused(new)?;
    old.clear_maps()
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
    let sources = shared::LEN + from.tables.source_sets * WAYS as u32;
    let (owing, without) = all(carried::SOURCES, sources)?;
    all(carried::IDLE, sources)?;
    let key_sets = from.tables.bucket_sets + from.tables.wide_sets;
    let buckets = key_sets * WAYS as u32 + TALLIES;
    let (buckets, keys_without) = all(carried::BUCKETS, buckets)?;
    Ok(Exchanged { sources: owing, buckets, lost: without + keys_without, ..Exchanged::default() })
}
