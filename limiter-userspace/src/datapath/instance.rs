//! An instance: one policy, one set of buckets, and the interfaces that they are for.

mod pieces;

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    time::{SystemTime, UNIX_EPOCH},
};

use aya::maps::PerCpuValues;
use limiter_common::{
    abi::{counters::SlotCounters, interface::Interface as Slot},
    base::{seed::Seed, tally::Tally},
    policy::limit::INTERFACES,
};

use super::{
    bpffs::{Pins, unpin},
    exchange::{self, Exchanged, Resumed},
    interface::{self, Interface},
    kept::{self, Writing},
    link::{Link, Refusal, exists, pinned_links},
    lock::{Lock, Right},
    main_program,
    maps::Maps,
    mode::Mode,
    object::object,
    policy::{Origin, StoredPolicy},
    program::{Clock, Program, create_maps},
    refusal::DriverRefusal,
    sizes::{NoRoom, Sizes},
    sys,
};
use crate::{
    error::{Error, Result},
    policy::{
        Layered, Layers, RunTime,
        interfaces::{Named, Port, listed},
    },
};

/// An instance that this process may change, because it has a [lock](super::lock) of it: that for changes of the
/// policy, or that to attach and detach.
pub struct Instance {
    pins: Pins,
    maps: Maps,
    /// Whether it was made just now, to be unmade when nothing gets attached.
    fresh: bool,
    /// Why its run-time lists were not restored, when it was made.
    unrestored: Option<Error>,
    /// How many run-time entries were restored, when it was made.
    restored: usize,
    /// Why an exchange that another process began could not be finished, and what became of it.
    unfinished: Option<Error>,
    lock: Lock,
}

/// The right to change the policy, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Changing(#[expect(dead_code, reason = "it is held")] Option<Lock>);

/// An attached interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its place in the tables.
    pub slot: u32,
    /// Its name; the one it had when it was attached, if it is gone or elsewhere.
    pub name: String,
    /// Its alternative names, if it is here.
    pub alternatives: Vec<String>,
    /// The number of its link: another one when it is detached and attached again.
    pub link: u32,
    /// Its index in its network namespace.
    pub index: u32,
    /// How the program runs.
    pub mode: Mode,
    /// Whether it exists, in this network namespace.
    pub present: bool,
    /// Whether it exists, in any.
    pub exists: bool,
}

impl Attached {
    /// The same as limits are about it.
    pub(crate) fn port(&self) -> Port {
        let index = if self.present { self.index } else { 0 };
        Port { alternatives: self.alternatives.clone(), ..Port::new(self.slot, &self.name, index) }
    }
}

impl Named for Attached {
    fn name(&self) -> &str {
        &self.name
    }

    fn alternatives(&self) -> &[String] {
        &self.alternatives
    }

    fn index(&self) -> u32 {
        if self.present { self.index } else { 0 }
    }
}

/// Which modes to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Native, or else generic.
    Auto,
    /// This one only.
    Only(Mode),
    /// Native, by the programs for packets in several pieces, which do not limit the MTU.
    Frags,
}

/// How an interface was attached.
#[derive(Debug)]
pub struct Outcome {
    /// The mode.
    pub mode: Mode,
    /// Why it is not native, if that was tried.
    pub fallback: Option<DriverRefusal>,
}

impl Instance {
    /// The instance that exists, to change its policy; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Layout`], or what the system says.
    pub fn open(pins: &Pins) -> Result<Option<Self>> {
        Self::open_with(pins, Right::Change)
    }

    /// The instance that exists, to attach and detach; `None` when there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_attach(pins: &Pins) -> Result<Option<Self>> {
        Self::open_with(pins, Right::Attach)
    }

    fn open_with(pins: &Pins, right: Right) -> Result<Option<Self>> {
        // The maps in use are whole without it, and a change is not to fail for what another one will do.
        let resumed = match right {
            Right::Change => exchange::resume_if_left(pins),
            Right::Attach => Ok(Resumed::Done),
        };
        let Some(lock) = Lock::take(pins, right)? else { return Ok(None) };
        if !exists(pins)? {
            return Ok(None);
        }
        let resumed = match right {
            Right::Change => resumed.unwrap_or_else(Resumed::Unfinished),
            Right::Attach => exchange::resume(pins)?,
        };
        let maps = Maps::open(pins)?;
        Ok(Some(Self { unfinished: resumed.error(), ..Self::of(pins, maps, lock) }))
    }

    /// The instance that exists, to attach and detach, or a new one with these sizes, this policy, and these
    /// run-time lists beside those that were kept. The sizes are larger where these need more room. The policy comes from a
    /// document that is followed if it has an origin. What an attach left that did not come to its end is removed first.
    ///
    /// # Errors
    /// As [`open`](Self::open), or why no maps can be made.
    pub fn open_or_create<'a>(
        pins: &Pins,
        sizes: &Sizes,
        layered: impl Into<Layered<'a>>,
        origin: Option<Origin>,
    ) -> Result<Self> {
        sizes.check()?;
        let lock = take_made(pins, Right::Attach)?;
        if exists(pins)? {
            let unfinished = exchange::resume(pins)?.error();
            return Ok(Self { unfinished, ..Self::of(pins, Maps::open(pins)?, lock) });
        }
        let _changing = take_made(pins, Right::Change)?;
        // It may be one whose lists could not be kept when its last interface was detached.
        keep_of_older(pins)?;
        pins.clear()?;
        // Who was banned before the machine started is, from the first packet on.
        let (mut run_time, unrestored) = restored(pins);
        let restored = run_time.entries().len();
        let Layered { policy, run_time: more } = layered.into();
        run_time.extend(more);
        let layers = Layers { policy: policy.clone(), run_time, unsorted: false };
        let make = |sizes: &Sizes| -> Result<Maps> {
            create_maps(pins, sizes)?;
            pins.hand_over_maps()?;
            let mut maps = Maps::open(pins)?;
            maps.put_in_force(layers.clone(), None, origin)?;
            Ok(maps)
        };
        // What the policy needs is known by then. To make them twice takes 50 ms more.
        let mut made = make(sizes);
        if let Err(refused) = &made
            && let Some(refused) = refused.failure()
        {
            let larger = sizes.enlarged(refused);
            pins.clear()?;
            made = make(&larger);
        }
        match made {
            Ok(maps) => {
                Ok(Self { fresh: true, unrestored, restored, ..Self::of(pins, maps, lock) })
            }
            Err(error) => {
                pins.remove()?;
                Err(error)
            }
        }
    }

    /// Brings an instance of an older version to this one, with its state, and gives what was carried over; `None` if there
    /// is none.
    ///
    /// # Errors
    /// Why that cannot be; what runs goes on as it is then. [`Error::Busy`], or what the system says.
    pub fn upgrade(pins: &Pins) -> Result<Option<Exchanged>> {
        // Without a lock, as it is rarely so.
        if !exists(pins)? || exchange::older(pins)?.is_none() {
            return Ok(None);
        }
        let Some(_attaching) = Lock::take(pins, Right::Attach)? else { return Ok(None) };
        // If it is undone, nothing of it is lost: what is in use then is brought over.
        let _: Resumed = exchange::resume(pins)?;
        let Some(sizes) = exchange::older(pins)? else { return Ok(None) };
        let to = |sizes: &Sizes| exchange::exchange(pins, sizes, None, Clock::Monotonic);
        let mut done = to(&sizes);
        // The policy that comes back at the end of a trial may need more than the one in force.
        if let Err(refused) = &done
            && let Some(refused) = refused.failure()
        {
            done = to(&sizes.enlarged(refused));
        }
        done.map(Some)
    }

    /// Gives it tables of these sizes, with its state, and programs that go by this clock. With `new_seed`, another seed tells
    /// which sources and keys share a set. Gives what was carried over.
    ///
    /// # Errors
    /// Why that cannot be; it goes on as it is then. [`Error::Unfinished`] while the old table of an exchange before is there.
    pub fn exchange(&mut self, sizes: &Sizes, new_seed: bool, clock: Clock) -> Result<Exchanged> {
        sizes.check()?;
        if let Some(error) = self.unfinished.take_if(|it| matches!(it, Error::Unfinished { .. })) {
            return Err(error);
        }
        let seed = if new_seed {
            let random = sys::random();
            Some(Seed(random.map_err(|error| Error::system("get random numbers", error))?))
        } else {
            None
        };
        let done = exchange::exchange(&self.pins, sizes, seed, clock)?;
        self.maps = Maps::open(&self.pins)?;
        Ok(done)
    }

    /// If a policy was refused for want of room, makes the room, with all state, and gives what was carried over; `None` if
    /// it was refused for something else, or if there is that room by now.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub(crate) fn make_room(&mut self, refused: &Error) -> Result<Option<Exchanged>> {
        let Some(refused) = refused.failure() else { return Ok(None) };
        let sizes = self.sizes()?;
        match sizes.enlarged(refused) {
            wanted if wanted == sizes => Ok(None),
            wanted => self.exchange(&wanted, false, Clock::Monotonic).map(Some),
        }
    }

    /// Calls `attempt`, and while that is refused for want of room, makes the room and calls it again. Returns also what was
    /// carried over; another process may have made the room by then. The caller holds no lock, as the one to attach comes
    /// before that to change the policy.
    ///
    /// # Errors
    /// As `attempt`, or as [`exchange`](Self::exchange).
    pub(crate) fn with_room<T>(
        pins: &Pins,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<(T, Option<Exchanged>)> {
        let mut exchanged = None;
        for _ in 0..Self::ROUNDS {
            let refused = match attempt() {
                Err(refused) if refused.failure::<NoRoom>().is_some() => refused,
                done => return Ok((done?, exchanged)),
            };
            if let Some(mut instance) = Self::open_to_attach(pins)? {
                exchanged = match (exchanged, instance.make_room(&refused)?) {
                    (Some(before), Some(made)) => Some(made.after(before)),
                    (before, made) => made.or(before),
                };
            }
        }
        Ok((attempt()?, exchanged))
    }

    /// How often room is made for one change. Once will do, unless others list more meanwhile.
    pub(crate) const ROUNDS: u32 = 3;

    fn of(pins: &Pins, maps: Maps, lock: Lock) -> Self {
        let (pins, fresh) = (pins.clone(), false);
        Self { pins, maps, fresh, unrestored: None, restored: 0, unfinished: None, lock }
    }

    /// Takes the right to change the policy, which whoever attaches does not have.
    ///
    /// # Errors
    /// [`Error::Busy`], or what the system says.
    pub fn lock_changes(&self) -> Result<Changing> {
        match self.lock.right() {
            Right::Change => Ok(Changing(None)),
            Right::Attach => Ok(Changing(Some(take_made(&self.pins, Right::Change)?))),
        }
    }

    /// How many run-time entries were restored in one that was made just now; 0 in any other.
    pub const fn restored(&self) -> usize {
        self.restored
    }

    /// Why the run-time lists of one that was made just now were not restored; told once.
    pub fn take_unrestored(&mut self) -> Option<Error> {
        self.unrestored.take()
    }

    /// Removes the old table of an exchange that another process began, if that could not be finished when this was
    /// [opened](Self::open). What sources and keys owed there that had no packet since is forgotten.
    ///
    /// # Errors
    /// [`Error::Unfinished`], if that cannot be either; both tables stay then.
    pub fn let_go(&mut self) -> Result<()> {
        let Some(Error::Unfinished { source }) =
            self.unfinished.take_if(|it| matches!(it, Error::Unfinished { .. }))
        else {
            return Ok(());
        };
        exchange::let_go(&self.pins)
            .map_err(|error| Error::Unfinished { source: Box::new(error) })?;
        self.unfinished = Some(Error::LetGo { source });
        Ok(())
    }

    /// Why an exchange that another process began could not be finished, and what became of it, if that was tried when this
    /// was [opened](Self::open); told once.
    pub fn take_unfinished(&mut self) -> Option<Error> {
        self.unfinished.take()
    }

    /// Gives the lock back, and then has the run-time lists in force in their file: nobody else's change waits for a
    /// disk. After a long list, the next change is prepared.
    ///
    /// # Errors
    /// What the system says. A file that cannot be read for another reason than what is in it stays.
    pub fn keep_run_time(self) -> Result<()> {
        let Self { pins, mut maps, lock, .. } = self;
        drop(lock);
        keep_and_prepare(&pins, &mut maps)
    }

    /// The same for whoever attaches, who keeps that lock and has given back the one of
    /// [`lock_changes`](Self::lock_changes).
    ///
    /// # Errors
    /// As [`keep_run_time`](Self::keep_run_time).
    pub fn keep_run_time_attaching(&mut self) -> Result<()> {
        keep_and_prepare(&self.pins, &mut self.maps)
    }

    /// Its maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Its maps, to change them under [`open`](Self::open) or [`lock_changes`](Self::lock_changes).
    pub fn maps_mut(&mut self) -> &mut Maps {
        &mut self.maps
    }

    /// What it has room for.
    ///
    /// # Errors
    /// What the system says.
    pub fn sizes(&self) -> Result<Sizes> {
        self.maps.sizes()
    }

    /// Whether it was made just now.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Attaches an interface that is not attached yet.
    ///
    /// # Errors
    /// Why it cannot be; nothing of it remains then.
    pub fn attach(&mut self, interface: &Interface, choice: Choice) -> Result<Outcome> {
        let slot = self.free_slot()?;
        self.reset_counters(slot)?;
        let ((link, mut program), outcome) = match choice {
            Choice::Only(mode) => {
                let link = self.try_mode(slot, interface, mode)?;
                (
                    link.map_err(|why| refused(interface, mode, why))?,
                    Outcome { mode, fallback: None },
                )
            }
            Choice::Frags => {
                let mode = Mode::Native;
                let link = self.try_frags(slot, interface)?;
                (
                    link.map_err(|why| refused(interface, mode, why))?,
                    Outcome { mode, fallback: None },
                )
            }
            Choice::Auto => match self.try_mode(slot, interface, Mode::Native)? {
                Ok(link) => (link, Outcome { mode: Mode::Native, fallback: None }),
                Err(reason) => {
                    let mode = Mode::Generic;
                    // The driver is asked before a program in the other mode is in its way.
                    let fallback = Some(DriverRefusal::of(interface, Mode::Native, reason));
                    let link = self.try_mode(slot, interface, mode)?;
                    (link.map_err(|why| refused(interface, mode, why))?, Outcome { mode, fallback })
                }
            },
        };
        program.pin(&self.pins, slot)?;
        // In this order: a record without a link is a free slot, a link without a record would be
        // one that nobody knows.
        self.record(slot, interface, outcome.mode)?;
        link.pin(&self.pins, slot)?;
        Ok(outcome)
    }

    /// Attaches in one mode, or says why the interface does not take it. A driver may refuse the plain program because of the
    /// MTU and take the one for packets in several pieces.
    ///
    /// The main program is there before a link calls it, so that no packet finds it unloaded. Where it is not known which one
    /// will be called, a link that passes all packets finds that out before.
    fn try_mode(
        &self,
        slot: u32,
        interface: &Interface,
        mode: Mode,
    ) -> Result<Result<(Link, Program), std::io::Error>> {
        let plain = if mode == Mode::Native && interface.is_jumbo() {
            let passing = sys::load_passing_program(false)
                .map_err(|error| Error::system("load a program that passes all packets", error))?;
            match create(passing.as_fd(), interface, mode)? {
                Ok(link) => Ok(self.put_behind(link, slot, false)?),
                Err(reason) => Err(reason),
            }
        } else {
            main_program::ensure(&self.pins, false)?;
            let mut dispatcher = Program::load_dispatcher(&self.pins, slot, false)?;
            let link = dispatcher.with_fd(|fd| create(fd, interface, mode))??;
            link.map(|link| (link, dispatcher))
        };
        // A kernel that cannot load it is a refusal too. If no link calls it afterwards, `close` takes it out again.
        if let (Err(_), Mode::Native) = (&plain, mode)
            && let Ok(Ok(attached)) = self.try_frags(slot, interface)
        {
            return Ok(Ok(attached));
        }
        Ok(plain)
    }

    /// Puts the dispatcher behind a link that passes all packets, when the main program is there.
    fn put_behind(&self, link: Link, slot: u32, frags: bool) -> Result<(Link, Program)> {
        main_program::ensure(&self.pins, frags)?;
        let mut dispatcher = Program::load_dispatcher(&self.pins, slot, frags)?;
        dispatcher.with_fd(|fd| link.replace(fd))??;
        Ok((link, dispatcher))
    }

    /// Loads the main program anew, also if the one that runs is of this build, and puts it in use for all interfaces at once.
    ///
    /// # Errors
    /// Why it cannot be loaded; the one that runs stays then.
    pub fn reload(&mut self) -> Result<()> {
        for frags in main_program::KINDS {
            if main_program::held(&self.pins, frags)?.is_some() {
                let mut program = Program::load(&self.pins, frags, Clock::Monotonic)?;
                main_program::put(&self.pins, &mut program, frags)?;
            }
        }
        Ok(())
    }

    /// Loads the main programs that interfaces find missing, as where somebody took them out of their arrays.
    ///
    /// # Errors
    /// Why one cannot be loaded; packets pass undecided until then.
    pub fn load_missing(&mut self) -> Result<()> {
        let missing = main_program::missing_kinds(&self.pins)?;
        main_program::KINDS
            .into_iter()
            .filter(|frags| missing[usize::from(*frags)])
            .try_for_each(|frags| main_program::ensure(&self.pins, frags))
    }

    /// Puts the programs of this version in the place of those that run on an interface: a dispatcher of its own, and, for all
    /// interfaces, the main program, unless that is of this build. No packet passes between them, and no state is lost. `frags` asks for
    /// the programs for packets in several pieces.
    ///
    /// # Errors
    /// Why it cannot be; the one that runs stays then.
    pub fn replace(&mut self, attached: &Attached, frags: bool) -> Result<()> {
        let Some(link) = Link::open(&self.pins.link(attached.slot))? else {
            return Err(Error::NotAttached {
                name: attached.name.clone(),
                attached: listed(self.attached()?.iter().map(|attached| &attached.name)),
            });
        };
        // The kind that runs is the one that the interface took.
        let kind = main_program::runs(&self.pins, attached.slot, &link)?.frags;
        if frags && !kind && attached.mode == Mode::Native {
            return self.attach_anew(&link, attached);
        }
        let Err(reason) = self.replace_by(&link, attached.slot, kind) else { return Ok(()) };
        self.replace_by(&link, attached.slot, !kind).map_err(|_second| reason)
    }

    /// Replaces them by programs for packets in one piece, or by those for packets in several.
    fn replace_by(&self, link: &Link, slot: u32, frags: bool) -> Result<()> {
        main_program::ensure(&self.pins, frags)?;
        let mut dispatcher = Program::load_dispatcher(&self.pins, slot, frags)?;
        dispatcher.with_fd(|fd| link.replace(fd))??;
        dispatcher.pin(&self.pins, slot)
    }

    /// Detaches an interface. The counters of its slot are gone with it.
    ///
    /// # Errors
    /// What the system says.
    pub fn detach(&mut self, slot: u32) -> Result<()> {
        let path = self.pins.link(slot);
        if let Some(link) = Link::open(&path)? {
            link.detach()?;
            unpin(&path)?;
        }
        unpin(&self.pins.program(slot))?;
        self.maps
            .interfaces
            .set(slot, Slot::default(), 0)
            .map_err(|error| object("free the slot of an interface", &error))
    }

    /// The interfaces that are attached.
    ///
    /// # Errors
    /// What the system says.
    pub fn attached(&self) -> Result<Vec<Attached>> {
        attached(&self.pins, &self.maps)
    }

    /// Gives the lock back after interfaces were attached, or their programs replaced: a new instance that got no interface
    /// is removed, and so is a main program that no link calls.
    ///
    /// # Errors
    /// What the system says.
    pub fn close(self) -> Result<()> {
        match self.fresh {
            true => self.close_detached(),
            false => main_program::remove_unused(&self.pins),
        }
    }

    /// Gives the lock back after interfaces were detached: an instance that is left without one that
    /// exists is removed with all that it had, and otherwise a main program that no link calls.
    ///
    /// # Errors
    /// [`Error::Busy`], or what the system says.
    pub fn close_detached(self) -> Result<()> {
        for (_, link) in pinned_links(&self.pins)? {
            if link.interface()?.is_some() {
                return main_program::remove_unused(&self.pins);
            }
        }
        let _changing = self.lock_changes()?;
        keep_of_older(&self.pins)?;
        self.pins.remove()
    }

    /// Detaches every interface and removes all that the instance had, whatever its layout.
    ///
    /// # Errors
    /// [`Error::NoInstance`], [`Error::Busy`], or what the system says.
    pub fn remove(pins: &Pins) -> Result<()> {
        let missing = || Error::NoInstance { directory: pins.directory().to_path_buf() };
        if !pins.exist()? {
            return Err(missing());
        }
        let _attaching = take_made(pins, Right::Attach)?;
        let _changing = take_made(pins, Right::Change)?;
        if !pins.exist()? {
            pins.remove()?;
            return Err(missing());
        }
        pins.check_owners()?;
        keep_of_older(pins)?;
        for (_, link) in pinned_links(pins)? {
            link.detach()?;
        }
        pins.remove()
    }

    /// Frees the slots of interfaces that are gone.
    ///
    /// # Errors
    /// What the system says.
    pub fn reclaim(&mut self) -> Result<()> {
        for (slot, link) in pinned_links(&self.pins)? {
            if link.interface()?.is_none() {
                self.detach(slot)?;
            }
        }
        Ok(())
    }

    fn free_slot(&mut self) -> Result<u32> {
        if let Some(slot) = self.first_free_slot()? {
            return Ok(slot);
        }
        self.reclaim()?;
        self.first_free_slot()?.ok_or(Error::NoSlot)
    }

    fn first_free_slot(&self) -> Result<Option<u32>> {
        let taken: Vec<u32> = pinned_links(&self.pins)?.map(|(slot, _)| slot).collect();
        Ok((0..INTERFACES).find(|slot| !taken.contains(slot)))
    }

    fn reset_counters(&mut self, slot: u32) -> Result<()> {
        let failed = |error| object("reset the counters", &error);
        let cpus = self.maps.counters.get(&slot, 0).map_err(failed)?.len();
        let system = |error| Error::system("reset the counters", error);
        let decided =
            PerCpuValues::try_from(vec![SlotCounters::default(); cpus]).map_err(system)?;
        let unloaded = PerCpuValues::try_from(vec![Tally::default(); cpus]).map_err(system)?;
        self.maps.counters.set(slot, decided, 0).map_err(failed)?;
        self.maps.unloaded.set(slot, unloaded, 0).map_err(failed)
    }

    fn record(&mut self, slot: u32, interface: &Interface, mode: Mode) -> Result<()> {
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(interface.name.bytes()) {
            *to = from;
        }
        let record = Slot {
            namespace: interface::namespace()?,
            index: interface.index,
            mode: mode.code(),
            name,
        };
        self.maps
            .interfaces
            .set(slot, record, 0)
            .map_err(|error| object("take the slot of an interface", &error))
    }
}

/// Keeps what commands of an older version listed, which had no file for it, of an instance that is about to be
/// removed. One whose policy cannot be read can be removed all the same.
///
/// # Errors
/// [`Error::Unkept`]: nothing else has what is lost then.
fn keep_of_older(pins: &Pins) -> Result<()> {
    let Ok(in_force) = StoredPolicy::of_any_layout(pins) else { return Ok(()) };
    let (now, path) = (unix(), pins.state());
    let lists = match in_force.unsorted {
        true => in_force.layers().kept(now),
        false => return Ok(()),
    };
    if lists.is_empty() {
        return Ok(());
    }
    Writing::take(path, pins.patience())
        .and_then(|writing| writing.add(&lists, now))
        .map_err(|error| Error::Unkept { source: Box::new(error) })
}

/// Does what [`keep`] does, and prepares the change after a long list.
fn keep_and_prepare(pins: &Pins, maps: &mut Maps) -> Result<()> {
    let kept = keep(pins, maps);
    // The change is in force and kept. If this fails, or somebody else changes something, the next change takes longer.
    if maps.unprepared.is_some()
        && let Ok(Some(_changing)) = Lock::try_take(pins, Right::Change)
        && pins.in_use().and_then(|in_use| maps.are_pinned(&in_use)).unwrap_or(false)
    {
        let _: Result<()> = maps.prepare();
    }
    maps.unprepared = None;
    kept
}

/// Has the run-time lists that are in force by now in their file.
fn keep(pins: &Pins, maps: &Maps) -> Result<()> {
    let path = pins.state();
    if maps.in_force()?.run_time.is_empty() && path.parent().is_some_and(|it| !it.exists()) {
        return Ok(());
    }
    let writing = Writing::take(path, pins.patience())?;
    // Only now: others may have changed them while this waited, and have written already. The maps may have been exchanged
    // meanwhile, and those in use have the lists then.
    match Maps::open(pins) {
        Ok(others) if others.number()? != maps.number()? => {
            writing.put(&others.in_force()?.run_time)
        }
        _ => writing.put(&maps.in_force()?.run_time),
    }
}

/// Seconds of Unix time.
fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The run-time lists that were kept of an instance, or none with the reason. A file that is broken is put aside:
/// it is no reason to attach nothing.
fn restored(pins: &Pins) -> (RunTime, Option<Error>) {
    match kept::read(pins.state(), unix()) {
        Ok(lists) => (lists, None),
        Err(error) => {
            let aside = match error {
                Error::State { .. } => kept::put_aside(pins.state()).err(),
                _ => None,
            };
            (RunTime::default(), Some(aside.unwrap_or(error)))
        }
    }
}

/// Takes the lock for a right, on a directory that is made if it is not there.
fn take_made(pins: &Pins, right: Right) -> Result<Lock> {
    // A command that detaches the last interface takes the directories away, and their locks.
    loop {
        pins.make()?;
        if let Some(lock) = Lock::take(pins, right)? {
            pins.make()?;
            return Ok(lock);
        }
    }
}

/// The interfaces that are attached; needs no lock.
///
/// # Errors
/// What the system says.
pub fn attached(pins: &Pins, maps: &Maps) -> Result<Vec<Attached>> {
    let here = interface::list()?;
    let mut attached = Vec::new();
    for (slot, link) in pinned_links(pins)? {
        let record = maps
            .interfaces
            .get(&slot, 0)
            .map_err(|error| object("read the slot of an interface", &error))?;
        let index = link.interface()?;
        // Another namespace may have an interface with the same index.
        let same = here.iter().find(|interface| Some(interface.index) == index);
        let found = match same {
            Some(interface) if runs_on(&link, interface)? => Some(interface),
            _ => None,
        };
        attached.push(Attached {
            slot,
            name: found
                .map_or_else(|| interface::recorded(&record.name), |found| found.name.clone()),
            alternatives: found.map_or_else(Vec::new, |found| found.alternatives.clone()),
            link: link.id()?,
            // It may have been elsewhere, and come back with another one.
            index: found.map_or(record.index, |found| found.index),
            mode: Mode::from_code(record.mode).unwrap_or(Mode::Generic),
            present: found.is_some(),
            exists: index.is_some(),
        });
    }
    Ok(attached)
}

/// Whether the program of a link is on an interface that was looked at just before.
fn runs_on(link: &Link, interface: &Interface) -> Result<bool> {
    let is_on = |program: Option<u32>| Ok::<_, Error>(program == Some(link.program()?));
    // It may have been replaced meanwhile, by a program of another number.
    Ok(is_on(interface.seen)? || is_on(interface.program())?)
}

fn refused(interface: &Interface, mode: Mode, error: std::io::Error) -> Error {
    let (name, source) = (interface.name.clone(), DriverRefusal::of(interface, mode, error));
    Error::Mode { interface: name, mode: mode.name(), source: source.into() }
}

/// Attaches, telling a mode that is refused from what is wrong altogether.
fn create(
    program: BorrowedFd<'_>,
    interface: &Interface,
    mode: Mode,
) -> Result<Result<Link, std::io::Error>> {
    match Link::create(program, interface, mode) {
        Ok(link) => Ok(Ok(link)),
        Err(Refusal::Mode(error)) => Ok(Err(error)),
        Err(Refusal::Final(error)) => Err(error),
    }
}
