//! What it costs that nobody reads the events: verdicts per second with a full ring, against one that is
//! drained.
//!
//! Both are measured on the same instance in turns, and checked by what the datapath counts.

use anyhow::{Context as _, Result, bail, ensure};
use aya::maps::{Array, MapData, PerCpuArray, PerCpuValues};
use limiter_common::{
    abi::{layout::map, table::Source},
    algorithm::rate::{Rate, SECOND},
    memory::event::EventStats,
};
use limiter_tests::{
    packet::Frame,
    program::typed,
    sandbox::{BPFFS, Sandbox},
    topology::Host,
};
use limiter_userspace::{
    datapath::{bpffs::Pins, events::Listener, instance::Instance, sizes::Sizes},
    policy::{Bucket, Builtin, Policy},
};
use serde_json::{Value, json};

use super::{
    batch,
    load::{LIMITER_IN_TURN, Load, Made},
    place::Place,
    sample::{Figure, median},
    text::figures,
};

/// Sources that come in turn, a power of two.
const SOURCES: u32 = 1 << 14;
/// Batches of a turn.
const BATCHES: usize = 9;
/// Nothing that a source sends after its first packets conforms while this is measured.
const SCANT: Bucket = Bucket { rate: Rate { packets: 1, period: 3_600 * SECOND }, burst: 1 };

/// How many times as many packets are decided about when nobody reads the events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    /// Each packet is of a source that begins to be over its limit, and each CPU has the budget of a whole
    /// second for its notices in every batch of some ms.
    pub(crate) beginning: Figure,
    /// All packets are of one source that is over its limit, of which hardly anything is told: both are the
    /// same here, and what they differ by is how far the other is to be trusted.
    pub(crate) over: Figure,
}

/// Measures it so many times. The thread stays on one CPU.
pub(crate) fn measure(sandbox: &Sandbox, times: usize) -> Result<Unread> {
    let host = Host::new(sandbox, "events")?;
    host.ip("link add events type veth peer name other\n")?;
    sandbox.inside(&host.namespace, || {
        let pins = Pins::new(format!("{BPFFS}/events"));
        // So much room that each has an entry of its own.
        let sizes =
            Sizes { sources: SOURCES * 8, buckets: 1 << 10, wide_states: 1 << 10, overrides: 1 };
        let mut policy = Policy::default();
        policy.set_default(Builtin::Source, SCANT)?;
        let instance = Instance::open_or_create(&pins, &sizes, &policy, None)?;
        let result = Field::new(&pins, &instance).and_then(|field| field.measure(times));
        instance.close()?;
        result
    })?
}

/// Whether somebody reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Reads,
    Nobody,
}

/// An instance whose events are read, or not.
struct Field<'a> {
    pins: &'a Pins,
    instance: &'a Instance,
    frame: Vec<u8>,
    sources: Array<MapData, Source>,
    event_stats: PerCpuArray<MapData, EventStats>,
    listener: Listener,
    /// The entries that have an owner, as they were when all of those had spent all.
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
            listener: Listener::open(pins)?,
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

    /// Has every source spend what it may send.
    fn spend(&mut self, load: &Load) -> Result<()> {
        for _ in 0..4 {
            batch::run(load.program(LIMITER_IN_TURN)?, &self.frame, SOURCES)?;
        }
        for number in 0..self.sources.len() {
            let source = self.sources.get(&number, 0)?;
            if source.binding != 0 {
                self.spent.push((number, Source { refused: 0, told: 0, ..source }));
            }
        }
        let count = self.spent.len();
        ensure!(count == SOURCES as usize, "{count} of {SOURCES} sources have an entry");
        Ok(())
    }

    /// Packets per second when nobody reads, in times those with a reader, in turns of both.
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
            // What the first of them warms up or spoils is not always for the same one.
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

    /// Packets per second where each of them begins something.
    fn begin(&mut self, load: &Load, reader: Reader) -> Result<f64> {
        self.rest()?;
        let time = batch::run(load.program(LIMITER_IN_TURN)?, &self.frame, SOURCES)?.time;
        let EventStats { happened: [happened, ..], suppressed: [left_out, ..], .. } =
            self.instance.maps().event_stats()?;
        let told = if reader == Reader::Reads { EventStats::BUDGET } else { 0 };
        // A CPU remembers some sources, and refuses them without a look at their entries.
        ensure!(happened > u64::from(SOURCES) / 2, "of {SOURCES} sources only {happened} began");
        ensure!(happened - left_out == told, "{} notices instead of {told}", happened - left_out);
        if reader == Reader::Reads {
            let read = self.drain();
            ensure!(read == told, "{read} notices were read of {told}");
        }
        Ok(f64::from(SOURCES) / time.as_secs_f64())
    }

    /// Makes all sources as they are after a rest, but for what they spent, and renews the budgets.
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

    /// Reads all that was told, and gives how much that was.
    fn drain(&mut self) -> u64 {
        self.listener.by_ref().count() as u64
    }

    /// Has as much told as there is room for.
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

    /// The one that it is about.
    pub(crate) fn beginning(&self) -> f64 {
        self.beginning.median
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let rows = self.rows().map(|(_, name, figure)| (name, figure));
        figures(["nobody reads the events", "times a reader"], 3, rows)
    }

    /// For a script.
    pub(crate) fn json(&self) -> Value {
        let row = |(id, name, figure): (&str, &str, Figure)| {
            let Figure { median, spread, .. } = figure;
            json!({ "id": id, "name": name, "times_reader": median, "spread": spread })
        };
        self.rows().map(row).into()
    }
}
