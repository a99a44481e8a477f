//! What the limiter costs per packet, without a wire: the kernel runs it on one frame over and over.
//!
//! Batches of the case stand between batches of a baseline, so that what changes slowly (the clock
//! of the CPU, the neighbours) touches both, and cases take turns for the same reason.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::{
    sandbox::{BPFFS, Sandbox},
    topology::Host,
};
use limiter_userspace::datapath::{bpffs::Pins, instance::Instance};

use super::{
    case::{Case, REFERENCE, cases},
    inquiry::{self, Inquiry},
    memory::{self, Memory},
    part::{self, Part},
    place::Place,
    sample::{Figure, median},
    setting::Setting,
    test_bed::TestBed,
};

/// The cost of a case.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    /// The case.
    pub(crate) case: Case,
    /// Nanoseconds per packet over the baseline.
    pub(crate) over: Figure,
    /// Nanoseconds per packet of the baseline: the loop of the kernel, and for spoofed sources the
    /// making of one.
    pub(crate) baseline: f64,
    /// Nanoseconds per packet of case and baseline by the kernel's own clock, in whole ones.
    pub(crate) kernel: f64,
    /// Packets in a batch.
    pub(crate) runs: u32,
    /// How many times as long a batch of twice the size takes; 2 if what is measured is the packets.
    pub(crate) proportion: f64,
}

/// What it takes to put the longest policy in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applying {
    /// Its overrides.
    pub(crate) overrides: u32,
    /// Compiling it, writing the tables that no packet reads, and exchanging them.
    pub(crate) time: Duration,
}

/// What it takes to load the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading {
    /// Instructions that the verifier walked through, if the kernel tells.
    pub(crate) instructions: Option<u32>,
    /// Handshake the object and the maps, verification and compilation.
    pub(crate) time: Duration,
}

/// All that is measured where programs run without a wire.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// Of every case.
    pub(crate) costs: Vec<Cost>,
    /// Of what they all consist of.
    pub(crate) parts: Vec<Part>,
    /// Of the program.
    pub(crate) loading: Loading,
    /// Of the longest policy.
    pub(crate) applying: Applying,
    /// Of a full table.
    pub(crate) inquiry: Inquiry,
    /// Of the maps.
    pub(crate) memory: Memory,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Turns of each case.
    pub(crate) turns: usize,
    /// Samples in a turn.
    pub(crate) samples: usize,
    /// Numbers of sources that are tracked.
    pub(crate) tracked: &'static [u32],
}

/// Measures every case. The thread stays on one CPU.
pub(crate) fn measure(sandbox: &Sandbox, effort: Effort) -> Result<Measured> {
    inside(sandbox, || measure_all(effort))
}

/// Measures the cases whose ids contain one of these texts, and nothing else. The thread stays on one CPU.
pub(crate) fn measure_only(sandbox: &Sandbox, effort: Effort, only: &[&str]) -> Result<Vec<Cost>> {
    let mut cases = cases(effort.tracked)?;
    cases.retain(|case| only.iter().any(|text| case.id.contains(text)));
    ensure!(!cases.is_empty(), "no case has an id that contains `{}`", only.join("` or `"));
    inside(sandbox, || {
        let mut places = places()?;
        let instances = open(&cases)?;
        let mut beds = load(cases, &instances, &mut Vec::new())?;
        take_turns(&mut beds, &mut places, effort)?;
        Ok(beds.into_iter().map(TestBed::cost).collect())
    })
}

/// Does some work on a host that has the interfaces of [`places`].
fn inside<T: Send>(sandbox: &Sandbox, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let host = Host::new(sandbox, "bench")?;
    host.ip("link add case type veth peer name baseline\n")?;
    sandbox.inside(&host.namespace, work)?
}

/// The places of a case and of its baseline.
fn places() -> Result<[Place; 2]> {
    Ok([Place::new("case")?, Place::new("baseline")?])
}

fn measure_all(effort: Effort) -> Result<Measured> {
    let mut places = places()?;
    let cases = cases(effort.tracked)?;
    let mut instances = open(&cases)?;
    let applying = apply(&mut instances)?;
    let mut loading = Vec::new();
    let mut beds = load(cases, &instances, &mut loading)?;
    take_turns(&mut beds, &mut places, effort)?;
    let reference = beds.iter().find(|bed| bed.case().id == REFERENCE);
    let frame = reference.context("no case is the one to compare with")?.case().frame.clone();
    // After its case, the table is full.
    let full = instances.iter().find(|(setting, ..)| *setting == Setting::SpoofedDefault);
    let (_, pins, _) = full.context("no instance has a full table")?;
    let inquiry = inquiry::measure(pins)?;
    let time = median(&loading.iter().map(|load| load.time.as_secs_f64()).collect::<Vec<_>>());
    let instructions = loading.first().and_then(|load| load.instructions);
    let loading = Loading { instructions, time: Duration::from_secs_f64(time) };
    let (_, pins, _) = instances.first().context("there is no instance")?;
    let parts = part::measure(pins, &mut places, &frame, effort.turns * effort.samples)?;
    let costs = beds.into_iter().map(TestBed::cost).collect();
    let memory = memory::measure()?;
    Ok(Measured { costs, parts, loading, applying, inquiry, memory })
}

/// Opens an instance for each setting of these cases.
fn open(cases: &[Case]) -> Result<Vec<(Setting, Pins, Instance)>> {
    let mut instances: Vec<(Setting, Pins, Instance)> = Vec::new();
    for Case { setting, .. } in cases {
        if instances.iter().any(|(made, ..)| made == setting) {
            continue;
        }
        let pins = Pins::new(format!("{BPFFS}/{}", setting.directory()));
        let sizes = setting.sizes();
        let instance = Instance::open_or_create(&pins, &sizes, &setting.policy()?, None)
            .with_context(|| {
                let sources = sizes.sources;
                format!("cannot measure with room for {sources} sources; --quick takes fewer")
            })?;
        instances.push((*setting, pins, instance));
    }
    Ok(instances)
}

/// Loads the programs of these cases.
fn load<'a>(
    cases: Vec<Case>,
    instances: &'a [(Setting, Pins, Instance)],
    loading: &mut Vec<Loading>,
) -> Result<Vec<TestBed<'a>>> {
    let mut beds: Vec<TestBed<'a>> = Vec::new();
    for case in cases {
        // An instance has fewer slots than there are cases.
        let before = beds.iter().filter(|bed| bed.case().setting == case.setting);
        let slot = before.count() as u32;
        let found = instances.iter().find(|(setting, ..)| *setting == case.setting);
        let (_, pins, instance) = found.context("a case has no instance")?;
        beds.push(TestBed::new(case, slot, pins, instance, loading)?);
    }
    Ok(beds)
}

/// Has each case take its samples, and checks what became of the frames.
fn take_turns(beds: &mut [TestBed<'_>], places: &mut [Place; 2], effort: Effort) -> Result<()> {
    for bed in &mut *beds {
        bed.turn(places, TestBed::prepare)?;
    }
    let before = beds.iter().map(TestBed::snapshot).collect::<Result<Vec<_>>>()?;
    for _ in 0..effort.turns {
        for bed in &mut *beds {
            bed.turn(places, |bed| bed.sample(effort.samples))?;
        }
    }
    beds.iter().zip(&before).try_for_each(|(bed, before)| bed.check(before))
}

/// Puts the longest policy in force some times.
fn apply(instances: &mut [(Setting, Pins, Instance)]) -> Result<Applying> {
    const TIMES: usize = 5;
    let overrides = |setting: &Setting| match setting {
        Setting::Overrides(number) => *number,
        _ => 0,
    };
    let longest = instances.iter_mut().max_by_key(|(setting, ..)| overrides(setting));
    let (setting, _, instance) = longest.context("there is no instance")?;
    let policy = setting.policy()?;
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = Instant::now();
        instance.maps_mut().apply(&policy)?;
        times.push(start.elapsed().as_secs_f64());
    }
    let time = Duration::from_secs_f64(median(&times));
    Ok(Applying { overrides: overrides(setting), time })
}
