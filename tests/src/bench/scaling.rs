//! Measures the rate of two CPUs that run the limiter at once, compared to one alone.

use std::{sync::Barrier, thread};

use anyhow::{Context as _, Result, anyhow, ensure};
use aya::programs::Xdp;
use limiter_common::packet::reason::Reason;
use limiter_tests::{
    packet::{Frame, SYN},
    program::pin_to_cpu,
    sandbox::{BPFFS, Sandbox},
    topology::Host,
};
use limiter_userspace::{
    datapath::{bpffs::Pins, instance::Instance},
    output::table::{Cell, Column, Table},
};
use serde_json::{Value, json};

use super::{
    batch,
    case::{Case, Sources, TARGET4, later_fragment, unreadable},
    cases::KEYS,
    place::Place,
    programs::Programs,
    sample::{Figure, median},
    setting::Setting,
    slot::{self, Counted},
    tables::lines,
};

/// The prefix of ids of these rows in `--only`.
pub(crate) const PREFIX: &str = "two_cpus_";

/// Batches in a run. Both CPUs start within a small part of that time.
const BATCHES: u32 = 8;
/// One frame in so many may be dropped as contended.
const CONTENDED_OF: u64 = 100_000;
/// One measurement in so many of a row is of its baseline.
const BASELINES: usize = 3;

/// The scaling of all kinds of packets.
#[derive(Clone, Debug)]
pub(crate) struct Scaling(Vec<Row>);

/// The scaling of one kind of packets.
#[derive(Clone, Debug)]
struct Row {
    id: String,
    name: String,
    /// The rate of two CPUs, in units of the rate of one.
    times: Figure,
    /// Nanoseconds per packet over the baseline when one CPU works. In the row of the baseline: of the
    /// baseline itself.
    alone: f64,
    /// The same on each of two CPUs that work at once.
    at_once: f64,
}

/// A case whose frames arrive on two CPUs.
struct Pair {
    case: Case,
    /// The frame for the other CPU.
    other: Vec<u8>,
}

/// The kinds of packets. Both CPUs get the same frame, except in the case `apart`.
fn pairs() -> Result<Vec<Pair>> {
    let udp = |last| Frame::udp([10, 0, 0, last], TARGET4, 40_000, 53);
    let [one, other] = [udp(1), udp(2)];
    let syn = Frame::tcp([10, 0, 0, 1], TARGET4, 40_000, 443, SYN);
    let (later, unreadable) = (later_fragment(), unreadable());
    let case = |id: &str, name: &str, setting, frame: &Frame| Case::new(id, name, setting, frame);
    let mut cases = vec![
        case("over", "one source over its limit", Setting::Over, &one)?,
        case("over_often", "one source over 1,000/s", Setting::OverOften, &one)?,
        case("hot", "one hot source, a large burst", Setting::Ordinary, &one)?,
        case("hot_small", "one hot source, a burst of 999", Setting::Small, &one)?,
        case("hot_observed", "one hot source, no limit", Setting::Observe, &one)?,
        case("unreadable", "unreadable frames", Setting::Source, &unreadable)?
            .passes(Reason::Unreadable),
        case("later_fragment", "later fragments of one source", Setting::Source, &later)?
            .passes(Reason::Fragment),
    ];
    for key in KEYS {
        let (id, name) =
            (format!("key_{}", key.name()), format!("one hot key: {}", key.document()));
        cases.push(Case::new(id, name, Setting::Keyed(key), &one)?);
    }
    let (id, name) = ("new_source", "new source every packet, room for 64 k");
    cases.push(case(id, name, Setting::Spoofed, &one)?.of(Sources::MadeUp));
    let (id, name) = ("new_syn", "one source, a new SYN every packet, count: connections");
    cases.push(case(id, name, Setting::NewSyn, &syn)?.of(Sources::NewConnections));
    let same = |case: Case| Pair { other: case.frame.clone(), case };
    let (id, name) = ("apart", "known sources, one limit, a source for each CPU");
    let apart =
        Pair { case: case(id, name, Setting::Source, &one)?, other: other.padded().build() };
    Ok([apart].into_iter().chain(cases.into_iter().map(same)).collect())
}

/// Measures the rows for which `wanted` returns true on these CPUs, `times` times each.
pub(crate) fn measure(
    sandbox: &Sandbox,
    cpus: [usize; 2],
    times: usize,
    wanted: impl Fn(&str) -> bool + Sync,
) -> Result<Scaling> {
    let host = Host::new(sandbox, "scaling")?;
    host.ip("link add scaling type veth peer name other\n")?;
    sandbox.inside(&host.namespace, || {
        let mut place = Place::new("scaling")?;
        let mut rows = Vec::new();
        for pair in pairs()? {
            // The row of the baseline is reported once, with the first case.
            let is_first = rows.is_empty();
            if wanted(&pair.case.id) {
                let [nop, row] = measure_pair(&pair, &mut place, cpus, times)?;
                rows.extend(Some(nop).filter(|_| is_first));
                rows.push(row);
            }
        }
        ensure!(!rows.is_empty(), "no row of two CPUs has such an id");
        Ok(Scaling(rows))
    })?
}

/// Measures a case; returns the row of its baseline and its own.
fn measure_pair(
    pair: &Pair,
    place: &mut Place,
    cpus: [usize; 2],
    times: usize,
) -> Result<[Row; 2]> {
    let Pair { case, other } = pair;
    let setting = case.setting;
    let pins = Pins::new(format!("{BPFFS}/scaling-{}", setting.directory()));
    let instance = Instance::open_or_create(&pins, &setting.sizes(), &setting.policy()?, None)?;
    let mut programs = Programs::load(case, 0, &pins, &mut Vec::new())?;
    let frames = [other.as_slice(), case.frame.as_slice()];

    let baseline = programs.baseline()?;
    let held = place.take(baseline)?;
    let nop = scale(baseline, frames, cpus, times.div_ceil(BASELINES))?;
    place.leave(programs.baseline()?, held)?;

    let held = place.take(programs.limiter()?)?;
    programs.meet_sources(case)?;
    // In cases over a limit, the burst has to be spent first.
    frames.iter().try_for_each(|frame| batch::run(programs.limiter()?, frame, 1_000).map(drop))?;
    let before = slot::snapshot(&instance, 0)?;
    let scale = scale(programs.limiter()?, frames, cpus, times)?;
    let counted = Counted::between(&before, &slot::snapshot(&instance, 0)?);
    place.leave(programs.limiter()?, held)?;
    let strays = counted.strays(case).max(scale.offered / CONTENDED_OF);
    counted.check_but(case, scale.offered, strays)?;
    drop(programs);
    instance.close()?;

    let row = Row {
        id: case.id.clone(),
        name: case.name.clone(),
        times: scale.times,
        alone: scale.alone - nop.alone,
        at_once: scale.at_once - nop.at_once,
    };
    let nop = Row {
        id: "nop".to_owned(),
        name: match case.sources {
            Sources::One => "a program that does nothing".to_owned(),
            _ => "a program that only makes the frame".to_owned(),
        },
        times: nop.times,
        alone: nop.alone,
        at_once: nop.at_once,
    };
    Ok([nop, row])
}

/// The measurement of one program.
struct Scale {
    times: Figure,
    /// Nanoseconds per packet on one CPU.
    alone: f64,
    /// Nanoseconds per packet on each of two CPUs at once.
    at_once: f64,
    /// Packets offered in all measurements.
    offered: u64,
}

/// Measures the rate of both CPUs at once, compared to that of the second one alone just before.
fn scale(program: &Xdp, frames: [&[u8]; 2], cpus: [usize; 2], times: usize) -> Result<Scale> {
    let mut offered = 0;
    let runs = batch::calibrate(|runs| {
        offered += u64::from(runs);
        batch::run(program, frames[1], runs)
    })?;
    let runs = runs * BATCHES;
    let nanoseconds = |number: usize| -> Result<f64> {
        Ok(batch::run(program, frames[number], runs)?.per_run(runs))
    };
    let (mut scales, mut alones, mut at_once) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        let alone = nanoseconds(1)?;
        let start = Barrier::new(2);
        let both: Result<[f64; 2]> = thread::scope(|scope| {
            let runner = |number: usize| {
                let (nanoseconds, start) = (&nanoseconds, &start);
                move || {
                    let pinned = pin_to_cpu(cpus[number]);
                    start.wait();
                    pinned.context("cannot go to another CPU")?;
                    nanoseconds(number)
                }
            };
            let [one, other] = [0, 1].map(|number| scope.spawn(runner(number)));
            let [one, other] = [one, other].map(|thread| {
                thread.join().map_err(|_| anyhow!("a thread that measures has panicked"))?
            });
            Ok([one?, other?])
        });
        let [one, other] = both?;
        scales.push(alone / one + alone / other);
        alones.push(alone);
        at_once.extend([one, other]);
        offered += 3 * u64::from(runs);
    }
    let (alone, at_once) = (median(&alones), median(&at_once));
    Ok(Scale { times: Figure::of(&scales), alone, at_once, offered })
}

impl Scaling {
    /// The rate of two CPUs, in units of the rate of one; NaN for a row that was not measured.
    pub(crate) fn times(&self, id: &str) -> f64 {
        self.row(id).map_or(f64::NAN, |row| row.times.median)
    }

    /// Nanoseconds per packet on each of two CPUs, in units of that on one alone; NaN for a row that was not
    /// measured.
    pub(crate) fn slowdown(&self, id: &str) -> f64 {
        self.row(id).map_or(f64::NAN, |row| row.at_once / row.alone)
    }

    fn row(&self, id: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.id == id)
    }

    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new([
            Column::left("two CPUs"),
            Column::right("times one"),
            Column::right("spread"),
            Column::right("ns of one"),
            Column::right("ns of each of two"),
        ]);
        for Row { name, times, alone, at_once, .. } in &self.0 {
            table.row([
                Cell::from(name.as_str()),
                format!("{:.2}", times.median).into(),
                format!("{:.2}", times.spread).into(),
                format!("{alone:.1}").into(),
                format!("{at_once:.1}").into(),
            ]);
        }
        lines(&table) + "\n" + NOTES
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> Value {
        let row = |Row { id, name, times, alone, at_once }: &Row| {
            json!({
                "id": id, "name": name, "times_one": times.median, "spread": times.spread,
                "one_ns": alone, "each_of_two_ns": at_once,
            })
        };
        self.0.iter().map(row).collect::<Vec<_>>().into()
    }
}

const NOTES: &str = "\
Times one: the packets per second of two CPUs, with the loop of the kernel, against those of one. Ns: over a
program that does nothing on as many CPUs, and its own are as they are. Both CPUs take the same frame,
unless it is said.";
