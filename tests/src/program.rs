//! The BPF program, run on frames by the kernel: without an interface, and in virtual time if asked.

mod cpu;
mod memory;
mod pool;
mod runner;

#[cfg(feature = "datapath-log")]
use std::sync::mpsc;
use std::{
    ops::{Deref, DerefMut},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::{
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray},
    programs::{ProgramInfo, loaded_programs},
};
use limiter_common::{
    abi::{
        counters::{Counters, LimitTally},
        interface::Interface,
        layout::{map, shared},
        state::{Bucket, WideState},
        table::{Debts, JiffyClock, Set, Source, WAYS},
    },
    base::{address::Address, tally::Tally},
    memory::{event::SourceEvent, fragment::Datagram},
    packet::{
        headers::{Fragment, Packet},
        parse::parse,
        reason::Reason,
    },
    policy::limit::BucketKey,
    table::set::DebtUntil,
};
#[cfg(feature = "datapath-log")]
use limiter_userspace::datapath::messages::{self, Messages};
pub use limiter_userspace::datapath::{program::Clock, sizes::Sizes};
use limiter_userspace::{
    datapath::{
        bpffs::Pins,
        events::Listener,
        exchange::{self, Exchanged},
        instance::{Attached, Instance},
        maps::Maps,
        mode::Mode,
        program::Program,
    },
    policy::Policy,
};

pub use self::{
    cpu::{monotonic, pin_to_cpu, two_cpus},
    runner::{LONGEST, Runner, SHORTEST, Verdict},
};
use self::{memory::Memory, pool::Kind, runner::Offered};
use crate::{
    leak::Footprint,
    sandbox::{BPFFS, Namespace, Sandbox},
    topology::Host,
};

/// Room for some thousand sources and connections.
pub const SMALL: Sizes =
    Sizes { sources: 1 << 14, buckets: 1 << 14, wide_states: 1 << 11, overrides: 64 };

/// How long the kernel may take to free a program that nothing refers to any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// The slot that the program is loaded for.
const SLOT: Attached = attached(0);

/// A slot, as if an interface were in it.
pub const fn attached(slot: u32) -> Attached {
    Attached {
        slot,
        name: String::new(),
        alternatives: Vec::new(),
        link: 0,
        index: 0,
        mode: Mode::Native,
        present: true,
        exists: true,
    }
}

/// An instance without an interface, with a program loaded for its first slot. When it is dropped, another test may get
/// it, as it was made.
pub struct TestProgram {
    loaded: Option<Loaded>,
    /// Which others it may do for; none if it is kept for nobody.
    kind: Option<Kind>,
}

/// What a [`TestProgram`] has.
pub struct Loaded {
    // In this order: what is open, before the place that it is pinned in.
    program: Program,
    longest: usize,
    instance: Instance,
    tables: Tables,
    memory: Memory,
    offered: Offered,
    goes_by: Clock,
    pins: Pins,
    host: Host,
}

/// Maps of an instance.
struct Tables {
    clock: Array<MapData, u64>,
    ticked: Array<MapData, JiffyClock>,
    debts: Array<MapData, Debts>,
    fragments: Array<MapData, u64>,
    sources: Array<MapData, Source>,
    wide_states: HashMap<MapData, BucketKey, WideState>,
    shared: Array<MapData, Source>,
    counters: PerCpuArray<MapData, Counters>,
}

impl Tables {
    fn open(pins: &Pins) -> Result<Self> {
        Ok(Self {
            clock: typed(pins, map::TEST_CLOCK)?,
            ticked: typed(pins, map::JIFFY_CLOCK)?,
            debts: typed(pins, map::DEBTS)?,
            fragments: typed(pins, map::FRAGMENTS)?,
            sources: typed(pins, map::SOURCES)?,
            wide_states: typed(pins, map::WIDE_STATE)?,
            shared: typed(pins, map::SHARED_SOURCES)?,
            counters: typed(pins, map::COUNTERS)?,
        })
    }
}

/// The program of another slot of a [`TestProgram`], which goes by the same clock.
pub struct Neighbour {
    program: Program,
    offered: Offered,
}

impl Neighbour {
    /// What the kernel tells of the program.
    ///
    /// # Errors
    /// What the system says.
    pub fn info(&mut self) -> Result<ProgramInfo> {
        Ok(self.program.xdp()?.info()?)
    }

    /// Runs the program on the same frame many times in a row.
    ///
    /// # Errors
    /// As [`Loaded::run`].
    pub fn run_many(&mut self, frame: &[u8], times: u32) -> Result<()> {
        Runner::new(self.program.xdp()?, LONGEST, &self.offered).run_many(frame, times)
    }

    /// Runs the program on a frame of at least [`SHORTEST`] bytes.
    ///
    /// # Errors
    /// As [`Loaded::run`].
    pub fn run(&mut self, frame: &[u8]) -> Result<Verdict> {
        Runner::new(self.program.xdp()?, LONGEST, &self.offered).run(frame)
    }
}

impl TestProgram {
    /// An instance in a BPF file system of its own, with the program for packets in one piece.
    ///
    /// # Errors
    /// What the system says; it takes root.
    pub fn new(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        let kind = Kind { sizes, clock, frags: false };
        let loaded = match pool::take(kind) {
            Some(mut loaded) => {
                loaded.apply(policy)?;
                loaded
            }
            None => Loaded::load(kind, policy)?,
        };
        Ok(Self { loaded: Some(loaded), kind: Some(kind) })
    }

    /// Does the same with the program for packets that may lie in several pieces.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_frags(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        Ok(Self::kept(Loaded::load(Kind { sizes, clock, frags: true }, policy)?))
    }

    /// Does the same as [`new`](Self::new) with a program that is loaded for it, and given to nobody else.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn fresh(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        Ok(Self::kept(Loaded::load(Kind { sizes, clock, frags: false }, policy)?))
    }

    /// Does the same as [`fresh`](Self::fresh) with the object that has debug messages.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(feature = "datapath-log")]
    pub fn with_messages(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        let kind = Kind { sizes, clock, frags: false };
        Ok(Self::kept(Loaded::make(kind, policy, |open| messages::wanted(open))?))
    }

    /// Does the same as [`with_frags`](Self::with_frags) with the object that has debug messages.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(feature = "datapath-log")]
    pub fn with_frags_and_messages(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        let kind = Kind { sizes, clock, frags: true };
        Ok(Self::kept(Loaded::make(kind, policy, |open| messages::wanted(open))?))
    }

    /// One that nobody else gets.
    const fn kept(loaded: Loaded) -> Self {
        Self { loaded: Some(loaded), kind: None }
    }

    /// Unmakes it all, and waits until the kernel has nothing of it any more.
    ///
    /// # Errors
    /// What is left, or what the system says.
    pub fn close(mut self) -> Result<()> {
        self.loaded.take().map_or(Ok(()), Loaded::close)
    }
}

#[expect(clippy::expect_used, reason = "it is there until it is closed or dropped")]
impl Deref for TestProgram {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        self.loaded.as_ref().expect("a loaded program")
    }
}

#[expect(clippy::expect_used, reason = "it is there until it is closed or dropped")]
impl DerefMut for TestProgram {
    fn deref_mut(&mut self) -> &mut Loaded {
        self.loaded.as_mut().expect("a loaded program")
    }
}

#[expect(clippy::expect_used, reason = "what is wrong with it fails the test")]
impl Drop for TestProgram {
    fn drop(&mut self) {
        // What a test that failed has done to it, nobody knows.
        if let (Some(kind), Some(loaded), false) =
            (self.kind, self.loaded.take(), thread::panicking())
        {
            pool::give(kind, loaded).expect("its maps can be made as they were");
        }
    }
}

impl Loaded {
    fn load(kind: Kind, policy: &Policy) -> Result<Self> {
        Self::make(kind, policy, |open| open())
    }

    /// Makes an instance by `run`, which gets what makes and opens it.
    fn make(
        Kind { sizes, clock, frags }: Kind,
        policy: &Policy,
        run: impl FnOnce(&dyn Fn() -> Result<Self>) -> Result<Self> + Send,
    ) -> Result<Self> {
        let (sandbox, namespace) = (Sandbox::new()?, Namespace::new()?);
        let host = Host { name: "program", namespace, sandbox };
        let pins = Pins::new(format!("{BPFFS}/limiter"));
        let open = || {
            let instance = Instance::open_or_create(&pins, &sizes, policy, None)?;
            let mut program = Program::load(&pins, SLOT.slot, frags, clock)?;
            let memory = Memory::open(&pins.maps(), &program.xdp()?.info()?)?;
            Ok(Self {
                program,
                longest: if frags { usize::MAX } else { LONGEST },
                instance,
                tables: Tables::open(&pins)?,
                memory,
                offered: Offered::default(),
                goes_by: clock,
                pins: pins.clone(),
                host: host.clone(),
            })
        };
        host.sandbox.inside(&host.namespace, || run(&open))?
    }

    /// Has everything be as it was made, but for a policy.
    fn blank(&mut self) -> Result<()> {
        self.memory.blank()?;
        self.notices()?;
        let Self { pins, host, offered, instance, .. } = self;
        // What was read of a policy is of one that is not there any more.
        *instance.maps_mut() = host.sandbox.inside(&host.namespace, || Maps::open(pins))??;
        *offered = Offered::default();
        Ok(())
    }

    /// Gives the instance other sizes, with its state, and loads the program for these. Tells what was carried over.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn resize(&mut self, sizes: &Sizes) -> Result<Exchanged> {
        let Self { pins, host, instance, goes_by, .. } = self;
        let exchanged = host.sandbox.inside(&host.namespace, || {
            let exchanged = instance.resize(sizes, *goes_by)?;
            let mut program = Program::load(pins, SLOT.slot, false, *goes_by)?;
            let memory = Memory::open(&pins.maps(), &program.xdp()?.info()?)?;
            Ok::<_, anyhow::Error>((exchanged, program, memory, Tables::open(pins)?))
        })??;
        (self.program, self.memory, self.tables) = (exchanged.1, exchanged.2, exchanged.3);
        Ok(exchanged.0)
    }

    /// Loads a program that carries state over, from the tables that there are, and gives what the kernel tells of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn load_carrying(&self, frags: bool) -> Result<ProgramInfo> {
        let Self { pins, host, goes_by, .. } = self;
        host.sandbox.inside(&host.namespace, || {
            let before = exchange::before(pins)?;
            let mut program = Program::load_carrying(pins, &before, SLOT.slot, frags, *goes_by)?;
            Ok(program.xdp()?.info()?)
        })?
    }

    /// Sets the time, in nanoseconds, of a program that goes by [`Clock::Test`].
    ///
    /// # Errors
    /// What the system says.
    pub fn at(&mut self, now: u64) -> Result<()> {
        // Ticks are counted by the clock here, but do not go back with it elsewhere.
        if now < self.tables.clock.get(&0, 0)? {
            self.tables.ticked.set(0, JiffyClock::default(), 0)?;
        }
        self.tables.clock.set(0, now, 0).context("cannot set the clock")
    }

    /// Runs the program on a frame of at least [`SHORTEST`] bytes.
    ///
    /// # Errors
    /// What the system says, or an answer that is no verdict.
    pub fn run(&mut self, frame: &[u8]) -> Result<Verdict> {
        self.runner()?.run(frame)
    }

    /// Runs the program on the same frame many times in a row, and tells how often it passed.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_many(&mut self, frame: &[u8], times: u32) -> Result<u64> {
        let before = self.passed()?;
        self.runner()?.run_many(frame, times)?;
        Ok(self.passed()? - before)
    }

    /// The program, to be run by several threads.
    ///
    /// # Errors
    /// Never for a program that was loaded.
    pub fn runner(&mut self) -> Result<Runner<'_>> {
        Ok(self.split()?.0)
    }

    /// The program, to be run by several threads, and the maps, to be changed meanwhile.
    ///
    /// # Errors
    /// Never for a program that was loaded.
    pub fn split(&mut self) -> Result<(Runner<'_>, &mut Maps)> {
        let runner = Runner::new(self.program.xdp()?, self.longest, &self.offered);
        Ok((runner, self.instance.maps_mut()))
    }

    /// Puts a policy in force.
    ///
    /// # Errors
    /// Why it is not possible.
    pub fn apply(&mut self, policy: &Policy) -> Result<()> {
        Ok(self.instance.maps_mut().apply(policy)?)
    }

    /// The maps.
    #[must_use]
    pub fn maps(&self) -> &Maps {
        self.instance.maps()
    }

    /// What the kernel tells of the program.
    ///
    /// # Errors
    /// What the system says.
    pub fn info(&mut self) -> Result<ProgramInfo> {
        Ok(self.program.xdp()?.info()?)
    }

    /// The counters, over all CPUs.
    ///
    /// # Errors
    /// What the system says.
    pub fn counters(&self) -> Result<Counters> {
        let snapshot = self.maps().snapshot(&[SLOT])?;
        Ok(Counters { reasons: snapshot.reasons })
    }

    /// What a limit admitted and refused, over all CPUs; nothing for one that is not set.
    ///
    /// # Errors
    /// What the system says.
    pub fn tally(&self, limit: impl AsRef<str>) -> Result<LimitTally> {
        Ok(self.maps().snapshot(&[SLOT])?.tally(limit))
    }

    /// What it told of sources since that was asked last.
    ///
    /// # Errors
    /// What the system says.
    pub fn notices(&self) -> Result<Vec<SourceEvent>> {
        let pins = &self.pins;
        let listen = || Listener::open(pins);
        Ok(self.host.sandbox.inside(&self.host.namespace, listen)??.collect())
    }

    /// What it told whoever works on it, since that was asked last.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(feature = "datapath-log")]
    pub fn messages(&self) -> Result<Vec<String>> {
        let pins = &self.pins;
        let (sender, messages) = mpsc::channel();
        let open = || {
            Messages::open(pins, move |message| drop(sender.send(message.to_string())))?.tell();
            Ok::<_, limiter_userspace::error::Error>(())
        };
        self.host.sandbox.inside(&self.host.namespace, open)??;
        Ok(messages.iter().collect())
    }

    /// Frames that passed, on each CPU.
    ///
    /// # Errors
    /// What the system says.
    pub fn passed_by_cpu(&self) -> Result<Vec<u64>> {
        let passed = |counters: &Counters| {
            let reasons = Reason::ALL.into_iter().filter(|reason| !reason.drops());
            reasons.map(|reason| counters.reasons[reason.index()].packets).sum()
        };
        Ok(self.tables.counters.get(&SLOT.slot, 0)?.iter().map(passed).collect())
    }

    /// Frames that passed, by the counters.
    ///
    /// # Errors
    /// What the system says.
    pub fn passed(&self) -> Result<u64> {
        Ok(self.passed_by_cpu()?.into_iter().sum())
    }

    /// Checks that every frame the program was run on is counted under exactly one reason, with all
    /// its bytes, and that the verdicts of the limits add up to those.
    ///
    /// # Errors
    /// What does not add up, or what the system says.
    pub fn check_accounts(&self) -> Result<()> {
        let snapshot = self.maps().snapshot(&[SLOT])?;
        let sum = |tallies: &mut dyn Iterator<Item = Tally>| {
            tallies.fold(Tally::default(), |sum, tally| Tally {
                packets: sum.packets + tally.packets,
                bytes: sum.bytes + tally.bytes,
            })
        };
        let offered = self.offered.tally();
        let received = sum(&mut snapshot.reasons.into_iter());
        ensure!(received == offered, "offered {offered:?}, counted {received:?}");
        let verdicts = sum(&mut snapshot.interfaces.iter().flat_map(|at| [at.passed, at.dropped]));
        ensure!(verdicts == offered, "offered {offered:?}, decided {verdicts:?}");
        Ok(())
    }

    /// The entry of a source, by its key; `None` when there is none.
    ///
    /// # Errors
    /// What the system says.
    pub fn source(&self, key: &Address) -> Result<Option<Source>> {
        let Some(source) = self.maps().source(key)? else { return Ok(None) };
        self.with_outstanding(key, source).map(Some)
    }

    /// Writes something else into the entry of a source, which it has to have.
    ///
    /// # Errors
    /// What the system says, or that there is none.
    pub fn change_source(&mut self, key: &Address, change: impl FnOnce(&mut Source)) -> Result<()> {
        let set = self.maps().place(key)?.set * WAYS as u32;
        let find =
            |number: &u32| self.tables.sources.get(number, 0).is_ok_and(|it| it.address == *key);
        let number = (set..set + WAYS as u32).find(find).context("the source has no entry")?;
        let mut source = self.tables.sources.get(&number, 0)?;
        change(&mut source);
        Ok(self.tables.sources.set(number, source, 0)?)
    }

    /// The state that is kept by other keys than the source, with the keys.
    ///
    /// # Errors
    /// What the system says.
    pub fn buckets(&self) -> Result<Vec<(BucketKey, Bucket)>> {
        let mut buckets = Vec::new();
        self.maps().each_bucket(|it| buckets.push((it.bucket.key, it.bucket)))?;
        Ok(buckets)
    }

    /// The logs and the lists of connections that are kept, with their keys.
    ///
    /// # Errors
    /// What the system says.
    pub fn wide_states(&self) -> Result<Vec<(BucketKey, WideState)>> {
        self.tables.wide_states.iter().collect::<Result<_, _>>().context("cannot read the ledgers")
    }

    /// The program for another slot of the same instance, as if a second interface were in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn neighbour(&self, slot: u32) -> Result<Neighbour> {
        let (pins, clock) = (&self.pins, self.goes_by);
        let load = || Program::load(pins, slot, false, clock);
        let program = self.host.sandbox.inside(&self.host.namespace, load)??;
        Ok(Neighbour { program, offered: Offered::default() })
    }

    /// Has a slot as if its interface were detached.
    ///
    /// # Errors
    /// What the system says.
    pub fn detach(&mut self, slot: u32) -> Result<()> {
        Ok(self.instance.detach(slot)?)
    }

    /// Writes down that an interface of this name is in a slot, as attaching one does; policies that
    /// are applied from then on know it.
    ///
    /// # Errors
    /// What the system says, or that no interface can have this name.
    pub fn name_interface(&self, slot: u32, name: &str) -> Result<()> {
        let mut interface = Interface { namespace: 1, ..Interface::default() };
        let place = interface.name.get_mut(..name.len()).context("the name is too long")?;
        place.copy_from_slice(name.as_bytes());
        let pins = &self.pins;
        let open = || typed::<Array<_, Interface>>(pins, map::INTERFACES);
        let mut interfaces = self.host.sandbox.inside(&self.host.namespace, open)??;
        interfaces.set(slot, interface, 0).context("cannot write an interface down")
    }

    /// The entry that frames without a readable source share.
    ///
    /// # Errors
    /// What the system says.
    pub fn unreadable(&self) -> Result<Source> {
        self.with_outstanding(&Address::NONE, self.shared_entry(shared::UNREADABLE)?)
    }

    /// What passed and what was dropped of the sources that found no room and share entries.
    ///
    /// # Errors
    /// What the system says.
    pub fn shared_packets(&self) -> Result<[Tally; 2]> {
        let mut all = [Tally::default(); 2];
        for set in 0..shared::OVERFLOWS {
            let Source { passed, dropped, .. } = self.shared_entry(shared::overflow(set))?;
            for (all, one) in all.iter_mut().zip([passed, dropped]) {
                all.packets += one.packets;
                all.bytes += one.bytes;
            }
        }
        Ok(all)
    }

    /// The entry with the totals of sources that have none.
    ///
    /// # Errors
    /// What the system says.
    pub fn nobody(&self) -> Result<Source> {
        self.shared_entry(shared::UNTRACKED)
    }

    fn shared_entry(&self, number: u32) -> Result<Source> {
        let entry = self.tables.shared.get(&number, 0).context("cannot read a shared entry")?;
        Ok(entry.settled())
    }

    /// The entry of a source, its totals up to date.
    fn with_outstanding(&self, key: &Address, mut source: Source) -> Result<Source> {
        self.maps().outstanding_of(key)?.add_to(&mut source);
        Ok(source)
    }

    /// Fills the table of sources with entries of nobody, which owe nothing: who comes now is a newcomer
    /// of a full table.
    ///
    /// # Errors
    /// What the system says.
    pub fn crowd(&mut self) -> Result<()> {
        self.forget_sources()?;
        self.memory.fill(map::SETS, Set { tags: [1; WAYS], ..Set::default() })
    }

    /// How many entries of the table are noted to owe at `now`, in nanoseconds, so that nobody has to look.
    ///
    /// # Errors
    /// What the system says.
    pub fn noted(&self, now: u64) -> Result<usize> {
        let mut noted = 0;
        for set in 0..self.tables.debts.len() {
            noted += self
                .tables
                .debts
                .get(&set, 0)?
                .iter()
                .filter(|debt| DebtUntil(**debt).owes(now))
                .count();
        }
        Ok(noted)
    }

    fn forget_sources(&self) -> Result<()> {
        self.memory.fill(map::SOURCES, Source::NEW)?;
        self.memory.fill(map::SETS, Set::default())?;
        self.memory.fill(map::DEBTS, Debts::default())?;
        self.memory.fill(map::UNTRACKED, 0_u64)
    }

    /// Forgets every source and all state by other keys, as if none had ever sent anything.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget(&mut self) -> Result<()> {
        self.forget_sources()?;
        for name in [
            map::BUCKETS,
            map::MEASURES,
            map::WIDE_STATE,
            map::OFFENCES,
            map::REFUSED_SYNS,
            map::SYN_DEDUP,
            map::FRAGMENTS,
            map::CACHE,
        ] {
            self.memory.blank_map(name)?;
        }
        self.memory.fill(map::SHARED_SOURCES, Source::NEW)
    }

    /// Forgets the addresses and ports of connections that said that they are done, as when others needed the room, and
    /// nothing else.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget_endings(&mut self) -> Result<()> {
        self.memory.blank_map(map::ENDINGS)
    }

    /// Forgets what was said of the datagram of a frame, if that is a fragment, and nothing else.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget_fragment(&mut self, frame: &[u8]) -> Result<()> {
        let mut packet = Packet::UNREADABLE;
        if parse(frame, &mut packet).is_ok() && packet.fragment.get() != Fragment::Whole {
            let seed = self.maps().in_force()?.held.seed();
            self.tables.fragments.set(Datagram::of(&packet, seed).place(), 0, 0)?;
        }
        Ok(())
    }

    /// Forgets what sources did to be blocked, as when others needed the room, and nothing else.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget_offences(&mut self) -> Result<()> {
        self.memory.blank_map(map::OFFENCES)
    }

    /// Forgets SYNs that limits with penalties refused, as when others needed the room, and nothing else.
    ///
    /// # Errors
    /// What the system says.
    pub fn forget_refused_syns(&mut self) -> Result<()> {
        self.memory.blank_map(map::REFUSED_SYNS)
    }

    fn close(mut self) -> Result<()> {
        let id = self.info()?.id();
        let footprint = Footprint::of(&self.host, self.pins.directory())?;
        let Self { program, instance, tables, memory, host, .. } = self;
        drop((program, tables, memory));
        host.sandbox.inside(&host.namespace, || instance.close())??;
        let start = Instant::now();
        while loaded_programs().flatten().any(|info| info.id() == id) {
            ensure!(start.elapsed() < PATIENCE, "program {id} is left over");
            thread::sleep(Duration::from_millis(10));
        }
        footprint.assert_gone()
    }
}

/// A map of the instance that is pinned there.
///
/// # Errors
/// What the system says, or that it is of another type.
pub fn typed<T: TryFrom<Map, Error = MapError>>(pins: &Pins, name: &str) -> Result<T> {
    let open = || T::try_from(Map::from_map_data(MapData::from_pin(pins.map(name))?)?);
    open().with_context(|| format!("cannot open the map {name}"))
}
