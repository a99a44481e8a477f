//! Runs the BPF program on frames through the kernel (`BPF_PROG_TEST_RUN`), without an interface, and in
//! virtual time with [`Clock::Test`].

mod cpu;
pub mod effects;
mod memory;
mod moving;
mod pool;
mod runner;

#[cfg(feature = "datapath-log")]
use std::sync::mpsc;
use std::{
    mem::offset_of,
    ops::{Deref, DerefMut},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::{
    maps::{Array, Map, MapData, MapError, PerCpuArray},
    programs::{ProgramInfo, loaded_programs},
};
use limiter_common::{
    abi::{
        counters::{Counters, LimitTally, SlotCounters},
        interface::Interface,
        layout::{map, shared},
        state::{Bucket, OffenceRecord, SLOTS},
        table::{
            Debts, FurtherLimits, JiffyClock, Set, Source, UntrackedTotals, WAYS, WholeSource,
        },
    },
    base::{address::Address, tally::Tally},
    memory::{event::SourceEvent, fragment::Datagram, sample::Sample},
    packet::{
        headers::{Fragment, Packet},
        parse::parse,
        reason::Reason,
    },
    policy::{limit::BucketKey, penalty::Penalty},
    table::set::DebtUntil,
};
#[cfg(feature = "datapath-log")]
use limiter_userspace::datapath::messages::{Messages, ring};
pub use limiter_userspace::datapath::{program::Clock, sizes::Sizes};
use limiter_userspace::{
    datapath::{
        bpffs::Pins,
        buckets::WideBucket,
        exchange::{self, Exchanged},
        instance::{Attached, Instance},
        main_program,
        maps::Maps,
        mode::Mode,
        program::Program,
        pushes::Pusher,
        ring::Ring,
    },
    policy::Policy,
};

pub use self::{
    cpu::{monotonic, pin_to_cpu, two_cpus},
    moving::MovingWord,
    runner::{LONGEST, Runner, SHORTEST, Verdict},
};
use self::{memory::Memory, pool::Kind, runner::Offered};
use crate::{
    leak::Footprint,
    sandbox::{BPFFS, Namespace, Sandbox},
    topology::Host,
};

/// Table sizes for some thousand sources and connections.
pub const SMALL: Sizes = Sizes {
    sources: 1 << 14,
    buckets: 1 << 14,
    wide_states: 1 << 11,
    overrides: 64,
    further: true,
    buckets_made: true,
};

/// A wide state, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wide {
    /// The control word of a log, or the stamp of a list of connections.
    pub word: u64,
    /// The slots.
    pub slots: [u64; SLOTS],
}

/// How long the kernel may take to free a program without references.
const PATIENCE: Duration = Duration::from_secs(20);

/// The interface slot that the program is loaded for.
const SLOT: Attached = attached(0);

/// A slot as if an interface were attached to it.
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

/// An instance without an interface, with a main program and a dispatcher for its first slot, by which packets come. A program from
/// [`new`](Self::new) goes back to a pool when it is dropped, with blank maps, and another test may take it.
pub struct TestProgram {
    loaded: Option<Loaded>,
    /// What another test has to ask for to get it from the pool; `None` if it does not go back to the pool.
    kind: Option<Kind>,
}

/// The program and the maps of a [`TestProgram`].
pub struct Loaded {
    // Fields are dropped in this order: open objects before the file system that holds their pins.
    dispatcher: Program,
    /// The main program, which the dispatcher calls.
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

/// Maps that the tests read and write directly.
struct Tables {
    clock: Array<MapData, u64>,
    ticked: Array<MapData, JiffyClock>,
    debts: Array<MapData, Debts>,
    fragments: Array<MapData, u64>,
    sources: Array<MapData, Source>,
    untracked: Array<MapData, UntrackedTotals>,
    further: Array<MapData, FurtherLimits>,
    counters: PerCpuArray<MapData, SlotCounters>,
}

impl Tables {
    fn open(pins: &Pins) -> Result<Self> {
        Ok(Self {
            clock: typed(pins, map::TEST_CLOCK)?,
            ticked: typed(pins, map::JIFFY_CLOCK)?,
            debts: typed(pins, map::DEBTS)?,
            fragments: typed(pins, map::FRAGMENTS)?,
            sources: typed(pins, map::SOURCES)?,
            untracked: typed(pins, map::SHARED_SOURCES)?,
            further: typed(pins, map::FURTHER_LIMITS)?,
            counters: typed(pins, map::COUNTERS)?,
        })
    }
}

/// The dispatcher for another slot of a [`TestProgram`], which calls the same main program.
pub struct Neighbour {
    program: Program,
    offered: Offered,
}

impl Neighbour {
    /// Returns the kernel's description of the program.
    ///
    /// # Errors
    /// Fails if the kernel refuses the query.
    pub fn info(&mut self) -> Result<ProgramInfo> {
        Ok(self.program.xdp()?.info()?)
    }

    /// Runs the program on the same frame `times` times.
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
    /// Makes an instance in a BPF file system of its own, with the program for packets in one piece. It may
    /// come from the pool.
    ///
    /// # Errors
    /// Fails if the program or the maps cannot be loaded. Needs root.
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

    /// Like [`new`](Self::new), with the program for packets in several pieces, which is not shared with
    /// other tests.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_frags(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        Ok(Self::kept(Loaded::load(Kind { sizes, clock, frags: true }, policy)?))
    }

    /// Like [`new`](Self::new), with a program that is loaded for this test and not shared with others.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn fresh(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        Ok(Self::kept(Loaded::load(Kind { sizes, clock, frags: false }, policy)?))
    }

    /// Like [`fresh`](Self::fresh), with the object file that has debug messages.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(feature = "datapath-log")]
    pub fn with_messages(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        let kind = Kind { sizes, clock, frags: false };
        Ok(Self::kept(Loaded::make(kind, policy, |open| ring::wanted(open))?))
    }

    /// Like [`with_frags`](Self::with_frags), with the object file that has debug messages.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(feature = "datapath-log")]
    pub fn with_frags_and_messages(sizes: Sizes, policy: &Policy, clock: Clock) -> Result<Self> {
        let kind = Kind { sizes, clock, frags: true };
        Ok(Self::kept(Loaded::make(kind, policy, |open| ring::wanted(open))?))
    }

    /// A program that does not go back to the pool.
    const fn kept(loaded: Loaded) -> Self {
        Self { loaded: Some(loaded), kind: None }
    }

    /// Removes the instance and waits until the kernel has freed its objects.
    ///
    /// # Errors
    /// Lists the remains if any are left after 20 s. Fails if a system call fails.
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
        // A failed test may have left the program in any state, so it does not go back to the pool.
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

    /// Makes an instance. `run` is called in the sandbox with a function that creates and opens it.
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
            let mut program = Program::load(&pins, frags, clock)?;
            main_program::put(&pins, &mut program, frags)?;
            let memory = Memory::open(&pins.maps(), &program.xdp()?.info()?)?;
            Ok(Self {
                dispatcher: Program::load_dispatcher(&pins, SLOT.slot, frags)?,
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

    /// Blanks the maps and counters, except for the policy in the kernel; the pool then applies another
    /// policy.
    fn blank(&mut self) -> Result<()> {
        self.memory.blank()?;
        self.notices()?;
        let Self { pins, host, offered, instance, .. } = self;
        // The cached policy belongs to the maps that were just blanked.
        *instance.maps_mut() = host.sandbox.inside(&host.namespace, || Maps::open(pins))??;
        *offered = Offered::default();
        Ok(())
    }

    /// Gives the instance other sizes, with its state, and loads the program for these. Tells what was carried over.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn resize(&mut self, sizes: &Sizes) -> Result<Exchanged> {
        self.exchange(sizes, false)
    }

    /// Gives the instance tables of these sizes, and another seed if that is asked for, and loads the program for these. Tells
    /// what was carried over.
    ///
    /// # Errors
    /// Why that cannot be.
    pub fn exchange(&mut self, sizes: &Sizes, new_seed: bool) -> Result<Exchanged> {
        let Self { pins, host, instance, goes_by, .. } = self;
        let exchanged = host.sandbox.inside(&host.namespace, || {
            let exchanged = instance.exchange(sizes, new_seed, *goes_by)?;
            let mut program = Program::load(pins, false, *goes_by)?;
            main_program::put(pins, &mut program, false)?;
            let memory = Memory::open(&pins.maps(), &program.xdp()?.info()?)?;
            Ok::<_, anyhow::Error>((exchanged, program, memory, Tables::open(pins)?))
        })??;
        (self.program, self.memory, self.tables) = (exchanged.1, exchanged.2, exchanged.3);
        Ok(exchanged.0)
    }

    /// Calls `work` with the pins of the instance, where they are.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn on_pins<T: Send>(&self, work: impl FnOnce(&Pins) -> T + Send) -> Result<T> {
        let Self { pins, host, .. } = self;
        host.sandbox.inside(&host.namespace, || work(pins))
    }

    /// Loads a program that carries state over, from the tables that there are, and looks at what the kernel tells of it while it
    /// is loaded.
    ///
    /// # Errors
    /// What the system says.
    pub fn on_carrying<T: Send>(
        &self,
        frags: bool,
        look: impl FnOnce(&ProgramInfo) -> T + Send,
    ) -> Result<T> {
        let Self { pins, host, goes_by, .. } = self;
        host.sandbox.inside(&host.namespace, || {
            let from = exchange::carry_from(pins)?;
            let mut program = Program::load_carrying(pins, &from, frags, *goes_by)?;
            Ok(look(&program.xdp()?.info()?))
        })?
    }

    /// Sets the time of a program with [`Clock::Test`], in nanoseconds. If it goes back, the jiffy clock is
    /// reset.
    ///
    /// # Errors
    /// Fails if a map cannot be written.
    pub fn at(&mut self, now: u64) -> Result<()> {
        // The jiffy clock follows the test clock, but the program never moves it back.
        if now < self.tables.clock.get(&0, 0)? {
            self.tables.ticked.set(0, JiffyClock::default(), 0)?;
        }
        self.tables.clock.set(0, now, 0).context("cannot set the clock")
    }

    /// Has the jiffy of a program with [`Clock::Ticking`] begun so many nanoseconds ago, as one that stands still has.
    ///
    /// # Errors
    /// Fails if a map cannot be written.
    pub fn stand_still(&mut self, length: u64, ago: u64) -> Result<()> {
        let now = self.tables.clock.get(&0, 0)?;
        self.tables.ticked.set(0, [now / length, now.saturating_sub(ago)], 0)?;
        Ok(())
    }

    /// Runs the program on a frame of at least [`SHORTEST`] bytes.
    ///
    /// # Errors
    /// Fails if the kernel refuses the run, or if the program returns neither `XDP_PASS` nor `XDP_DROP`.
    pub fn run(&mut self, frame: &[u8]) -> Result<Verdict> {
        self.runner()?.run(frame)
    }

    /// Runs the program on the same frame `times` times, and returns how many of these frames passed.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_many(&mut self, frame: &[u8], times: u32) -> Result<u64> {
        let before = self.passed()?;
        self.runner()?.run_many(frame, times)?;
        Ok(self.passed()? - before)
    }

    /// Returns the program, for several threads to run.
    ///
    /// # Errors
    /// Never, for a loaded program.
    pub fn runner(&mut self) -> Result<Runner<'_>> {
        Ok(self.split()?.0)
    }

    /// Returns the program, for several threads to run, and the maps, which may be changed meanwhile.
    ///
    /// # Errors
    /// Never, for a loaded program.
    pub fn split(&mut self) -> Result<(Runner<'_>, &mut Maps)> {
        let runner = Runner::new(self.dispatcher.xdp()?, self.longest, &self.offered);
        Ok((runner, self.instance.maps_mut()))
    }

    /// Applies a policy.
    ///
    /// # Errors
    /// Fails if the policy cannot be applied to the instance.
    pub fn apply(&mut self, policy: &Policy) -> Result<()> {
        let Self { host, instance, memory, pins, .. } = self;
        host.sandbox.inside(&host.namespace, || {
            instance.maps_mut().apply(policy)?;
            memory.open_pins(&pins.maps())
        })?
    }

    /// Opens it to push blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn pusher(&mut self) -> Result<Pusher> {
        let Self { host, instance, memory, pins, goes_by, .. } = self;
        host.sandbox.inside(&host.namespace, || {
            instance.maps_mut().begin_pushes()?;
            memory.open_pins(&pins.maps())?;
            Ok(Pusher::load(pins, *goes_by)?)
        })?
    }

    /// The maps.
    #[must_use]
    pub fn maps(&self) -> &Maps {
        self.instance.maps()
    }

    /// Returns the kernel's description of the main program.
    ///
    /// # Errors
    /// Fails if the kernel refuses the query.
    pub fn info(&mut self) -> Result<ProgramInfo> {
        Ok(self.program.xdp()?.info()?)
    }

    /// The frame counters of the slot, summed over all CPUs.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn counters(&self) -> Result<Counters> {
        let snapshot = self.maps().snapshot(&[SLOT])?;
        Ok(Counters { reasons: snapshot.reasons })
    }

    /// The tally of a limit, summed over all CPUs; zeros for a limit that does not exist.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn tally(&self, limit: impl AsRef<str>) -> Result<LimitTally> {
        Ok(self.maps().snapshot(&[SLOT])?.tally(limit))
    }

    /// Reads the events about sources since the last call.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn notices(&self) -> Result<Vec<SourceEvent>> {
        let pins = &self.pins;
        let listen = || Ring::events(pins);
        Ok(self.host.sandbox.inside(&self.host.namespace, listen)??.collect())
    }

    /// Takes the samples of dropped packets since the last call.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn samples(&self) -> Result<Vec<Sample>> {
        Ok(self.on_pins(|pins| {
            Ok::<_, limiter_userspace::error::Error>(Ring::samples(pins)?.collect())
        })??)
    }

    /// Reads the debug messages since the last call.
    ///
    /// # Errors
    /// Fails if a system call fails.
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

    /// The number of frames that passed, for each CPU.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn passed_by_cpu(&self) -> Result<Vec<u64>> {
        let passed = |counters: &SlotCounters| {
            let decided = Reason::ALL.into_iter().zip(counters.reasons);
            let passed = decided.filter(|(reason, _)| !reason.drops());
            passed.map(|(_, tally)| tally.packets).sum()
        };
        Ok(self.tables.counters.get(&SLOT.slot, 0)?.iter().map(passed).collect())
    }

    /// The number of frames that passed, summed over all CPUs.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn passed(&self) -> Result<u64> {
        Ok(self.passed_by_cpu()?.into_iter().sum())
    }

    /// Checks that the reasons count every frame the program was run on exactly once, with all its bytes, and
    /// that the passed and dropped frames of the slot add up to the same.
    ///
    /// # Errors
    /// Says which sums differ, or that a map cannot be read.
    pub fn check_accounts(&self) -> Result<()> {
        let snapshot = self.maps().snapshot(&[SLOT])?;
        let sum =
            |tallies: &mut dyn Iterator<Item = Tally>| tallies.fold(Tally::default(), Tally::plus);
        let offered = self.offered.tally();
        let received = sum(&mut snapshot.reasons.into_iter());
        ensure!(received == offered, "offered {offered:?}, counted {received:?}");
        let verdicts = sum(&mut snapshot.interfaces.iter().flat_map(|at| [at.passed, at.dropped]));
        ensure!(verdicts == offered, "offered {offered:?}, decided {verdicts:?}");
        Ok(())
    }

    /// The entry of a source, with totals that include what CPU caches hold; `None` if it has no entry.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn source(&self, key: &Address) -> Result<Option<Source>> {
        let Some(source) = self.maps().source(key)? else { return Ok(None) };
        self.with_outstanding(key, source).map(Some)
    }

    /// The same with the limits that have no room in the entry.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn whole_source(&self, key: &Address) -> Result<Option<WholeSource>> {
        let Some(mut source) = self.maps().whole_source(key)? else { return Ok(None) };
        source.entry = self.with_outstanding(key, source.entry)?;
        Ok(Some(source))
    }

    /// The number of the entry of a source.
    fn entry(&self, key: &Address) -> Result<u32> {
        let first = shared::entry(self.maps().place(key)?.set, 0);
        let find =
            |number: &u32| self.tables.sources.get(number, 0).is_ok_and(|it| it.address == *key);
        (first..first + WAYS as u32).find(find).context("the source has no entry")
    }

    /// The word of the limit at a place in the entry of a source, to be moved while the program runs.
    ///
    /// # Errors
    /// Fails if the source has no entry, or if a map cannot be mapped.
    pub fn moving_word(&self, key: &Address, place: usize) -> Result<MovingWord> {
        let entry = self.entry(key)? as usize * size_of::<Source>();
        let word = offset_of!(Source, words) + place * size_of::<u64>();
        MovingWord::new(self.memory.map(map::SOURCES)?, entry + word)
    }

    /// The same of the word of the first bucket that there is.
    ///
    /// # Errors
    /// Fails if there is none, or if a map cannot be mapped.
    pub fn moving_bucket(&self) -> Result<MovingWord> {
        let buckets = self.memory.array::<Bucket>(map::BUCKETS)?;
        let is_used = |number: &u32| buckets.get(number, 0).is_ok_and(|it| it.binding != 0);
        let entry = (0..buckets.len()).find(is_used).context("there is no bucket")?;
        let word = entry as usize * size_of::<Bucket>() + offset_of!(Bucket, word);
        MovingWord::new(self.memory.map(map::BUCKETS)?, word)
    }

    /// Changes the entry of a source through `change`.
    ///
    /// # Errors
    /// Fails if the source has no entry, or if a map cannot be read or written.
    pub fn change_source(&mut self, key: &Address, change: impl FnOnce(&mut Source)) -> Result<()> {
        let number = self.entry(key)?;
        let mut source = self.tables.sources.get(&number, 0)?;
        change(&mut source);
        Ok(self.tables.sources.set(number, source, 0)?)
    }

    /// The entries of the bucket table, with their keys.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn buckets(&self) -> Result<Vec<(BucketKey, Bucket)>> {
        let mut buckets = Vec::new();
        self.maps().each_bucket(|it| buckets.push((it.bucket.key, it.bucket)))?;
        Ok(buckets)
    }

    /// The wide states (sliding logs and lists of connections), with their keys.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn wide_states(&self) -> Result<Vec<(BucketKey, Wide)>> {
        let mut states = Vec::new();
        self.maps().each_wide(|it| {
            let WideBucket { bucket, state } = it;
            states.push((bucket.key, Wide { word: bucket.word, slots: state.slots }));
        })?;
        Ok(states)
    }

    /// Loads a dispatcher for another slot of the same instance, as if a second interface were attached.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn neighbour(&self, slot: u32) -> Result<Neighbour> {
        let pins = &self.pins;
        let load = || Program::load_dispatcher(pins, slot, false);
        let program = self.host.sandbox.inside(&self.host.namespace, load)??;
        Ok(Neighbour { program, offered: Offered::default() })
    }

    /// Frees a slot, as detaching its interface does.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn detach(&mut self, slot: u32) -> Result<()> {
        Ok(self.instance.detach(slot)?)
    }

    /// Records that an interface with this name is in a slot, as attaching one does. Policies that are
    /// applied later find the name.
    ///
    /// # Errors
    /// Fails if the name is longer than 16 bytes, or if the map cannot be written.
    pub fn name_interface(&self, slot: u32, name: &str) -> Result<()> {
        let mut interface = Interface { namespace: 1, ..Interface::default() };
        let place = interface.name.get_mut(..name.len()).context("the name is too long")?;
        place.copy_from_slice(name.as_bytes());
        let pins = &self.pins;
        let open = || typed::<Array<_, Interface>>(pins, map::INTERFACES);
        let mut interfaces = self.host.sandbox.inside(&self.host.namespace, open)??;
        interfaces.set(slot, interface, 0).context("cannot write an interface down")
    }

    /// The entry that all frames without a readable source share.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn unreadable(&self) -> Result<Source> {
        self.with_outstanding(&Address::NONE, self.shared_entry(shared::UNREADABLE)?)
    }

    /// The passed and dropped frames, in this order, of the overflow entries that sources without room share.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn shared_packets(&self) -> Result<[Tally; 2]> {
        let mut all = [Tally::default(); 2];
        for set in 0..shared::OVERFLOWS {
            let Source { passed, dropped, .. } = self.shared_entry(shared::overflow(set))?;
            for (all, one) in all.iter_mut().zip([passed, dropped]) {
                *all = all.plus(one);
            }
        }
        Ok(all)
    }

    /// The shared entry with the totals of sources that have no entry.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn untracked(&self) -> Result<UntrackedTotals> {
        let totals = self.tables.untracked.get(&shared::UNTRACKED, 0);
        totals.context("cannot read the totals of sources without an entry")
    }

    fn shared_entry(&self, number: u32) -> Result<Source> {
        let entry = self.tables.sources.get(&number, 0).context("cannot read a shared entry")?;
        Ok(entry.settled())
    }

    /// Adds what CPU caches hold for the source to its totals.
    fn with_outstanding(&self, key: &Address, mut source: Source) -> Result<Source> {
        self.maps().outstanding_of(key)?.add_to(&mut source);
        Ok(source)
    }

    /// Fills the source table with entries that belong to no address and owe nothing, so that the next new
    /// source finds a full table.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn crowd(&mut self) -> Result<()> {
        self.forget_sources()?;
        self.memory.fill(map::SETS, Set { tags: [1; WAYS], ..Set::default() })
    }

    /// The number of entries whose debt note says that they owe at `now` (nanoseconds), so that eviction
    /// skips them without reading them.
    ///
    /// # Errors
    /// Fails if a system call fails.
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

    /// Clears only the entries of all sources, as if they had been evicted.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn forget_sources(&mut self) -> Result<()> {
        let Tables { sources, further, .. } = &mut self.tables;
        let numbers = 0..shared::LEN;
        let shared: Vec<(Source, FurtherLimits)> = numbers
            .clone()
            .map(|number| Ok((sources.get(&number, 0)?, further.get(&number, 0)?)))
            .collect::<Result<_>>()?;
        self.memory.fill(map::SOURCES, Source::default())?;
        self.memory.fill(map::FURTHER_LIMITS, FurtherLimits::default())?;
        for (number, (entry, limits)) in numbers.zip(shared) {
            sources.set(number, entry, 0)?;
            further.set(number, limits, 0)?;
        }
        self.memory.fill(map::SETS, Set::default())?;
        self.memory.fill(map::DEBTS, Debts::default())?;
        self.memory.fill(map::UNTRACKED, 0_u64)
    }

    /// Clears all sources and all state by other keys, as if no frame had come. Counters and the policy stay.
    ///
    /// # Errors
    /// Fails if a system call fails.
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
        self.memory.fill(map::SOURCES, Source::default())?;
        self.memory.fill(map::FURTHER_LIMITS, FurtherLimits::default())?;
        self.memory.fill(map::SHARED_SOURCES, UntrackedTotals::default())
    }

    /// Clears only the addresses and ports of connections that have ended, as if the LRU map had evicted
    /// them.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn forget_endings(&mut self) -> Result<()> {
        self.memory.blank_map(map::ENDINGS)
    }

    /// Clears only the state of the datagram that `frame` is a fragment of. A frame that is no fragment
    /// changes nothing.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn forget_fragment(&mut self, frame: &[u8]) -> Result<()> {
        let mut packet = Packet::UNREADABLE;
        if parse(frame, &mut packet).is_ok() && packet.fragment.get() != Fragment::Whole {
            let seed = self.maps().in_force()?.held.seed();
            self.tables.fragments.set(Datagram::of(&packet, seed).place(), 0, 0)?;
        }
        Ok(())
    }

    /// Clears only the records of offences, as if commands had removed them.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn forget_offences(&mut self) -> Result<()> {
        self.memory.blank_map(map::OFFENCES)
    }

    /// Has the pushed blocks as they were before they had owners.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn forget_owners(&mut self) -> Result<()> {
        let mut records = self.memory.array::<OffenceRecord>(map::OFFENCES)?;
        for line in 0..records.len() {
            let mut record = records.get(&line, 0)?;
            if record.key.limit == Penalty::PUSHED {
                (record.offence.last, record.offence.began) = (0, 0);
                records.set(line, record, 0)?;
            }
        }
        Ok(())
    }

    /// Clears only the SYNs that limits with a penalty refused, as if the LRU map had evicted them.
    ///
    /// # Errors
    /// Fails if a system call fails.
    pub fn forget_refused_syns(&mut self) -> Result<()> {
        self.memory.blank_map(map::REFUSED_SYNS)
    }

    fn close(mut self) -> Result<()> {
        let id = self.info()?.id();
        let footprint = Footprint::of(&self.host, self.pins.directory())?;
        let Self { dispatcher, program, instance, tables, memory, host, .. } = self;
        drop((dispatcher, program, tables, memory));
        host.sandbox.inside(&host.namespace, || instance.close())??;
        let start = Instant::now();
        while loaded_programs().flatten().any(|info| info.id() == id) {
            ensure!(start.elapsed() < PATIENCE, "program {id} is left over");
            thread::sleep(Duration::from_millis(10));
        }
        footprint.assert_gone()
    }
}

/// Opens the map `name` that is pinned by the instance.
///
/// # Errors
/// Fails if the map cannot be opened or is of another type.
pub fn typed<T: TryFrom<Map, Error = MapError>>(pins: &Pins, name: &str) -> Result<T> {
    let open = || T::try_from(Map::from_map_data(MapData::from_pin(pins.map(name))?)?);
    open().with_context(|| format!("cannot open the map {name}"))
}
