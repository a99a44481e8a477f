//! Measures the cost of events that nobody reads: the packet rate with a full ring, compared to one with a
//! reader.
//!
//! Both are measured on the same instance in turns, and checked by what the datapath counts.

use anyhow::{Context as _, Result, bail, ensure};
use aya::maps::{Array, MapData, PerCpuArray, PerCpuValues};
use limiter_common::{
    abi::{layout::map, table::Source},
    algorithm::rate::{Rate, SECOND},
    memory::event::{EventStats, SourceEvent},
};
use limiter_tests::{
    packet::Frame,
    program::typed,
    sandbox::{BPFFS, Sandbox},
    topology::Host,
};
use limiter_userspace::{
    datapath::{
        bpffs::Pins,
        instance::Instance,
        main_program,
        program::{Clock, Program},
        ring::Ring,
        sizes::Sizes,
    },
    policy::{Bucket, Builtin, Policy},
};
use serde_json::{Value, json};

use super::{
    batch,
    load::{LIMITER_IN_TURN, Load, Made},
    place::Place,
    sample::{Figure, median},
    tables::figures,
};

/// Sources that send in turn; a power of two.
const SOURCES: u32 = 1 << 14;
/// Batches in each turn.
const BATCHES: usize = 9;
/// A limit under which no packet after a source's first one conforms during the measurement.
const SCANT: Bucket = Bucket { rate: Rate { packets: 1, period: 3_600 * SECOND }, burst: 1 };

/// Packet rates without a reader, in units of the rate with one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    /// Every packet comes from a source that begins to be over its limit. Each CPU gets the event budget of a
    /// whole second for every batch of some milliseconds.
    pub(crate) beginning: Figure,
    /// All packets come from one source over its limit, about which hardly any event is emitted. The ratio
    /// should be 1; its difference from 1 is the error of the other figure.
    pub(crate) over: Figure,
}

/// Measures both cases, `times` times each. The calling thread has to be pinned to one CPU.
pub(crate) fn measure(sandbox: &Sandbox, times: usize) -> Result<Unread> {
    let host = Host::new(sandbox, "events")?;
    host.ip("link add events type veth peer name other\n")?;
    sandbox.inside(&host.namespace, || {
        let pins = Pins::new(format!("{BPFFS}/events"));
        // So much room that each source gets an entry of its own.
        let sizes = Sizes {
            sources: SOURCES * 8,
            buckets: 1 << 10,
            wide_states: 1 << 10,
            overrides: 1,
            further: false,
            buckets_made: false,
        };
        let mut policy = Policy::default();
        policy.set_default(Builtin::Source, SCANT)?;
        let instance = Instance::open_or_create(&pins, &sizes, &policy, None)?;
        main_program::put(&pins, &mut Program::load(&pins, false, Clock::Monotonic)?, false)?;
        let result = Field::new(&pins, &instance).and_then(|field| field.measure(times));
        instance.close()?;
        result
    })?
}

/// Whether the ring has a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Reads,
    Nobody,
}

/// An instance with an event ring.
struct Field<'a> {
    pins: &'a Pins,
    instance: &'a Instance,
    frame: Vec<u8>,
    sources: Array<MapData, Source>,
    event_stats: PerCpuArray<MapData, EventStats>,
    listener: Ring<SourceEvent>,
    /// The entries that have an owner, saved after each source spent its burst.
    spent: Vec<(u32, Source)>,
}

impl<'a> Field<'a> {
    fn new(pins: &'a Pins, instance: &'a Instance) -> Result<Self> {
        Ok(Self {
            pins,
            instance,
            frame: Frame::udp([10, 0, 0, 0], [198, 51, 100, 1], 40_000, 53).padded().build(),
            sources: typed(pins, map::SOURCES)?,
            event_stats: typed(pins, map::EVENT_STATS)?,
            listener: Ring::events(pins)?,
            spent: Vec::new(),
        })
    }

    fn measure(mut self, times: usize) -> Result<Unread> {
        let mut place = Place::new("events")?;
        let mut load = Load::making(self.pins, 0, Made::Source4(SOURCES - 1), &[LIMITER_IN_TURN])?;
        let held = place.take(load.program_mut(LIMITER_IN_TURN)?)?;
        self.spend(&load)?;
        let beginning = self.compare(&load, times, |field, reader| field.begin(&load, reader))?;
        place.leave(load.program_mut(LIMITER_IN_TURN)?, held)?;

        let mut one = Load::making(self.pins, 1, Made::Source4(0), &[LIMITER_IN_TURN])?;
        let held = place.take(one.program_mut(LIMITER_IN_TURN)?)?;
        let program = one.program(LIMITER_IN_TURN)?;
        let runs = batch::calibrate(|runs| batch::run(program, &self.frame, runs))?;
        let over = self.compare(&load, times, |field, _| {
            let time = batch::run(program, &field.frame, runs)?.time;
            Ok(f64::from(runs) / time.as_secs_f64())
        })?;
        place.leave(one.program_mut(LIMITER_IN_TURN)?, held)?;
        Ok(Unread { beginning, over })
    }

    /// Lets every source spend its burst.
    fn spend(&mut self, load: &Load) -> Result<()> {
        for _ in 0..4 {
            batch::run(load.program(LIMITER_IN_TURN)?, &self.frame, SOURCES)?;
        }
        for number in 0..self.sources.len() {
            let source = self.sources.get(&number, 0)?;
            if source.binding != 0 {
                self.spent.push((number, Source { episode: 0, ..source }));
            }
        }
        let count = self.spent.len();
        ensure!(count == SOURCES as usize, "{count} of {SOURCES} sources have an entry");
        Ok(())
    }

    /// Measures the rate without a reader in units of the rate with one, in alternating order.
    fn compare(
        &mut self,
        load: &Load,
        times: usize,
        mut rate: impl FnMut(&mut Self, Reader) -> Result<f64>,
    ) -> Result<Figure> {
        let mut ratios = Vec::new();
        for time in 0..times {
            let mut of = |reader| -> Result<f64> {
                match reader {
                    Reader::Reads => drop(self.drain()),
                    Reader::Nobody => self.fill(load)?,
                }
                let rates: Result<Vec<f64>> = (0..BATCHES).map(|_| rate(self, reader)).collect();
                Ok(median(&rates?))
            };
            // The order alternates, so that warming up favours neither.
            let (reads, nobody) = if time % 2 == 0 {
                let reads = of(Reader::Reads)?;
                (reads, of(Reader::Nobody)?)
            } else {
                let nobody = of(Reader::Nobody)?;
                (of(Reader::Reads)?, nobody)
            };
            ratios.push(nobody / reads);
        }
        Ok(Figure::of(&ratios))
    }

    /// The packet rate when every packet begins an episode.
    fn begin(&mut self, load: &Load, reader: Reader) -> Result<f64> {
        self.rest()?;
        let time = batch::run(load.program(LIMITER_IN_TURN)?, &self.frame, SOURCES)?.time;
        let EventStats { happened: [happened, ..], suppressed: [left_out, ..], .. } =
            self.instance.maps().event_stats()?;
        let told = if reader == Reader::Reads { EventStats::BUDGET } else { 0 };
        // The CPU cache refuses some sources without looking at their entries.
        ensure!(happened > u64::from(SOURCES) / 2, "of {SOURCES} sources only {happened} began");
        ensure!(happened - left_out == told, "{} notices instead of {told}", happened - left_out);
        if reader == Reader::Reads {
            let read = self.drain();
            ensure!(read == told, "{read} notices were read of {told}");
        }
        Ok(f64::from(SOURCES) / time.as_secs_f64())
    }

    /// Ends all episodes, so that every source can begin one again, and renews the event budgets. The spent
    /// bursts stay.
    fn rest(&mut self) -> Result<()> {
        for (number, source) in &self.spent {
            self.sources.set(*number, source, 0).context("cannot write an entry")?;
        }
        self.renew()
    }

    fn renew(&mut self) -> Result<()> {
        let cpus = self.event_stats.get(&0, 0)?.len();
        let new = PerCpuValues::try_from(vec![EventStats::default(); cpus])?;
        self.event_stats.set(0, new, 0).context("cannot renew the budgets")
    }

    /// Reads all events and returns their number.
    fn drain(&mut self) -> u64 {
        self.listener.by_ref().count() as u64
    }

    /// Fills the ring with events.
    fn fill(&mut self, load: &Load) -> Result<()> {
        self.rest()?;
        for _ in 0..u64::from(SOURCES) / EventStats::BUDGET {
            self.renew()?;
            let budget = EventStats::BUDGET as u32;
            batch::run(load.program(LIMITER_IN_TURN)?, &self.frame, budget)?;
            let EventStats { happened, suppressed: left_out, .. } =
                self.instance.maps().event_stats()?;
            if happened[0] != 0 && happened == left_out {
                return Ok(());
            }
        }
        bail!("there is room for more notices");
    }
}

impl Unread {
    fn rows(&self) -> [(&'static str, &'static str, Figure); 2] {
        [
            (
                "beginning",
                "every packet of a source that begins to be over its limit",
                self.beginning,
            ),
            ("over", "one source over its limit, which tells nothing", self.over),
        ]
    }

    /// The ratio for sources that begin to be over their limits.
    pub(crate) fn beginning(&self) -> f64 {
        self.beginning.median
    }

    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let rows = self.rows().map(|(_, name, figure)| (name, figure));
        figures(["nobody reads the events", "times a reader"], 3, rows)
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> Value {
        let row = |(id, name, figure): (&str, &str, Figure)| {
            let Figure { median, spread, .. } = figure;
            json!({ "id": id, "name": name, "times_reader": median, "spread": spread })
        };
        self.rows().map(row).into()
    }
}
