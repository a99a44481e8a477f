//! An instance: one policy, one set of buckets, and the interfaces that they are for.

use limiter_common::contract::{Counters, INTERFACES, Interface as Slot, map};

use super::{
    bpffs::{Pins, unpin},
    interface::{self, Interface},
    link::{Link, Refusal},
    lock::Lock,
    maps::{Maps, object},
    mode::Mode,
    program::{Clock, Program, create_maps},
    sizes::Sizes,
};
use crate::{
    error::{Error, Result},
    policy::Policy,
};

/// An instance that this process may change, because it has the lock.
pub struct Instance {
    pins: Pins,
    maps: Maps,
    /// Whether it was made just now, to be unmade when nothing gets attached.
    fresh: bool,
    _lock: Lock,
}

/// An attached interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its place in the tables.
    pub slot: u32,
    /// Its name; the one it had when it was attached, if it is gone or elsewhere.
    pub name: String,
    /// Its index in its network namespace.
    pub index: u32,
    /// How the program runs.
    pub mode: Mode,
    /// Whether it exists, in this network namespace.
    pub present: bool,
}

/// Which modes to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Native, or else generic.
    Auto,
    /// This one only.
    Only(Mode),
}

/// How an interface was attached.
#[derive(Debug)]
pub struct Outcome {
    /// The mode.
    pub mode: Mode,
    /// Why it is not native, if that was tried.
    pub fallback: Option<std::io::Error>,
}

impl Instance {
    /// The instance that exists; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Layout`], or what the system says.
    pub fn open(pins: &Pins) -> Result<Option<Self>> {
        let Some(lock) = Lock::take(pins)? else { return Ok(None) };
        if !pins.exist() {
            return Ok(None);
        }
        let maps = Maps::open(pins)?;
        Ok(Some(Self { pins: pins.clone(), maps, fresh: false, _lock: lock }))
    }

    /// The instance that exists, or a new one with these sizes under `policy`. What an attach left
    /// that did not come to its end is removed first.
    ///
    /// # Errors
    /// As [`open`](Self::open), or why no maps can be made.
    pub fn open_or_create(pins: &Pins, sizes: &Sizes, policy: &Policy) -> Result<Self> {
        sizes.check()?;
        // A command that detaches the last interface takes the directory away, and its lock.
        let lock = loop {
            pins.make()?;
            if let Some(lock) = Lock::take(pins)? {
                break lock;
            }
        };
        pins.make()?;
        if links(pins) > 0 {
            let maps = Maps::open(pins)?;
            return Ok(Self { pins: pins.clone(), maps, fresh: false, _lock: lock });
        }
        pins.clear()?;
        let made = create_maps(pins, sizes).and_then(|()| Maps::open(pins)).and_then(|mut maps| {
            maps.apply(policy)?;
            Ok(maps)
        });
        match made {
            Ok(maps) => Ok(Self { pins: pins.clone(), maps, fresh: true, _lock: lock }),
            Err(error) => {
                pins.remove()?;
                Err(error)
            }
        }
    }

    /// Its maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Its maps, to change them.
    pub fn maps_mut(&mut self) -> &mut Maps {
        &mut self.maps
    }

    /// What it has room for.
    ///
    /// # Errors
    /// What the system says.
    pub fn sizes(&self) -> Result<Sizes> {
        Ok(Sizes {
            sources: self.maps.capacity(map::SOURCES)?,
            connections: self.maps.capacity(map::CONNECTIONS)?,
            overrides: self.maps.capacity(map::PLANS)? / 2,
        })
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
        let mut program = Program::load(&self.pins, slot, false, Clock::Monotonic)?;
        let (link, outcome) = match choice {
            Choice::Only(mode) => {
                let link = create(&mut program, interface, mode)?.map_err(|error| Error::Mode {
                    interface: interface.name.clone(),
                    mode: mode.name(),
                    source: error,
                })?;
                (link, Outcome { mode, fallback: None })
            }
            Choice::Auto => self.attach_best(&mut program, slot, interface)?,
        };
        link.pin(&self.pins.link(slot))?;
        if let Err(error) = self.record(slot, interface, outcome.mode) {
            unpin(&self.pins.link(slot))?;
            return Err(error);
        }
        Ok(outcome)
    }

    /// Native with packets in one piece, native with packets in several, generic.
    fn attach_best(
        &self,
        program: &mut Program,
        slot: u32,
        interface: &Interface,
    ) -> Result<(Link, Outcome)> {
        let native = |link| (link, Outcome { mode: Mode::Native, fallback: None });
        let reason = match create(program, interface, Mode::Native)? {
            Ok(link) => return Ok(native(link)),
            Err(reason) => reason,
        };
        // A driver without XDP says that it is not supported; others may mind the MTU.
        if reason.raw_os_error() != Some(libc::EOPNOTSUPP) {
            let mut frags = Program::load(&self.pins, slot, true, Clock::Monotonic)?;
            if let Ok(link) = create(&mut frags, interface, Mode::Native)? {
                return Ok(native(link));
            }
        }
        match create(program, interface, Mode::Generic)? {
            Ok(link) => Ok((link, Outcome { mode: Mode::Generic, fallback: Some(reason) })),
            Err(source) => Err(Error::Mode {
                interface: interface.name.clone(),
                mode: Mode::Generic.name(),
                source,
            }),
        }
    }

    /// Puts the program of this version in the place of the one that runs on an interface; no
    /// packet passes between them, and no state is lost.
    ///
    /// # Errors
    /// Why it cannot be; the one that runs stays then.
    pub fn replace(&self, attached: &Attached) -> Result<()> {
        let link = Link::open(&self.pins.link(attached.slot))?;
        let mut program = Program::load(&self.pins, attached.slot, false, Clock::Monotonic)?;
        match program.with_fd(|fd| link.replace(fd))? {
            Ok(()) => Ok(()),
            // The one that runs may be the one for packets in several pieces.
            Err(first) => {
                let mut frags = Program::load(&self.pins, attached.slot, true, Clock::Monotonic)?;
                frags.with_fd(|fd| link.replace(fd))?.map_err(|_second| first)
            }
        }
    }

    /// Detaches an interface. The counters of its slot are gone with it.
    ///
    /// # Errors
    /// What the system says.
    pub fn detach(&mut self, slot: u32) -> Result<()> {
        let path = self.pins.link(slot);
        if path.exists() {
            Link::open(&path)?.detach()?;
            unpin(&path)?;
        }
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

    /// Gives the lock back; an instance without an interface is removed with all that it had.
    ///
    /// # Errors
    /// What the system says.
    pub fn close(self) -> Result<()> {
        if links(&self.pins) == 0 { self.pins.remove() } else { Ok(()) }
    }

    /// Detaches every interface and removes all that the instance had, whatever its layout.
    ///
    /// # Errors
    /// [`Error::NoInstance`], [`Error::Busy`], or what the system says.
    pub fn remove(pins: &Pins) -> Result<()> {
        let missing = || Error::NoInstance { directory: pins.directory().to_path_buf() };
        let _lock = Lock::take(pins)?.ok_or_else(missing)?;
        if !pins.exist() {
            return Err(missing());
        }
        for slot in 0..INTERFACES {
            let path = pins.link(slot);
            if path.exists() {
                Link::open(&path)?.detach()?;
            }
        }
        pins.remove()
    }

    fn free_slot(&self) -> Result<u32> {
        let taken: Vec<u32> = self.attached()?.iter().map(|attached| attached.slot).collect();
        (0..INTERFACES).find(|slot| !taken.contains(slot)).ok_or(Error::NoSlot)
    }

    fn reset_counters(&mut self, slot: u32) -> Result<()> {
        let failed = |error| object("reset the counters", &error);
        let cpus = self.maps.counters.get(&slot, 0).map_err(failed)?.len();
        let zero = aya::maps::PerCpuValues::try_from(vec![Counters::default(); cpus])
            .map_err(|error| Error::system("reset the counters", error))?;
        self.maps.counters.set(slot, zero, 0).map_err(failed)
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

/// The interfaces that are attached; needs no lock.
///
/// # Errors
/// What the system says.
pub fn attached(pins: &Pins, maps: &Maps) -> Result<Vec<Attached>> {
    let namespace = interface::namespace()?;
    let here = interface::list()?;
    let mut attached = Vec::new();
    for slot in 0..INTERFACES {
        let path = pins.link(slot);
        if !path.exists() {
            continue;
        }
        let record = maps
            .interfaces
            .get(&slot, 0)
            .map_err(|error| object("read the slot of an interface", &error))?;
        let index = Link::open(&path)?.interface()?;
        let name = here
            .iter()
            .find(|interface| Some(interface.index) == index && record.namespace == namespace);
        attached.push(Attached {
            slot,
            name: name.map_or_else(|| recorded(&record.name), |found| found.name.clone()),
            index: record.index,
            mode: Mode::from_code(record.mode).unwrap_or(Mode::Generic),
            present: name.is_some(),
        });
    }
    Ok(attached)
}

/// How many links are pinned.
fn links(pins: &Pins) -> usize {
    (0..INTERFACES).filter(|slot| pins.link(*slot).exists()).count()
}

/// The name in a record, fit for a terminal.
fn recorded(name: &[u8; 16]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    crate::policy::units::printable(&String::from_utf8_lossy(&name[..end]), name.len())
}

/// Attaches, telling a mode that is refused from what is wrong altogether.
fn create(
    program: &mut Program,
    interface: &Interface,
    mode: Mode,
) -> Result<Result<Link, std::io::Error>> {
    match program.with_fd(|fd| Link::create(fd, interface, mode))? {
        Ok(link) => Ok(Ok(link)),
        Err(Refusal::Mode(error)) => Ok(Err(error)),
        Err(Refusal::Final(error)) => Err(error),
    }
}
