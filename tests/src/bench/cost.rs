//! Measures the cost of the limiter per packet without a wire: the kernel runs the program on one frame over
//! and over.
//!
//! A batch of the case stands between two batches of a baseline, so that slow changes (clock frequency,
//! neighbours on the machine) affect both. Cases take turns for the same reason.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::{
    sandbox::{BPFFS, Sandbox},
    topology::Host,
};
use limiter_userspace::datapath::{bpffs::Pins, instance::Instance};

use super::{
    case::{Case, REFERENCE},
    cases::cases,
    inquiry::{self, Inquiry},
    memory::{self, Memory},
    part::{self, Part},
    place::Place,
    programs::Loading,
    sample::median,
    setting::Setting,
    test_bed::{Cost, TestBed},
};

/// The cost of applying the longest policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applying {
    /// Its number of overrides.
    pub(crate) overrides: u32,
    /// The time to compile the policy, write the inactive half of the maps, and switch to it.
    pub(crate) time: Duration,
}

/// All results of the measurements without a wire.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// One for each case.
    pub(crate) costs: Vec<Cost>,
    /// The costs of the parts that every packet pays for.
    pub(crate) parts: Vec<Part>,
    /// The cost of loading the program.
    pub(crate) loading: Loading,
    /// The cost of applying the longest policy.
    pub(crate) applying: Applying,
    /// The cost of queries to an instance with a full table.
    pub(crate) inquiry: Inquiry,
    /// The memory of the maps.
    pub(crate) memory: Memory,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// How often each case has a turn.
    pub(crate) turns: usize,
    /// Samples taken in each turn.
    pub(crate) samples: usize,
    /// The numbers of tracked sources.
    pub(crate) tracked: &'static [u32],
}

/// Measures every case. The calling thread has to be pinned to one CPU.
pub(crate) fn measure(sandbox: &Sandbox, effort: Effort) -> Result<Measured> {
    inside(sandbox, || measure_all(effort))
}

/// Measures the cases whose ids contain one of these texts. The calling thread has to be pinned to one CPU.
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

/// Runs `work` on a host with the interfaces that [`places`] needs.
fn inside<T: Send>(sandbox: &Sandbox, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let host = Host::new(sandbox, "bench")?;
    host.ip("link add case type veth peer name baseline\n")?;
    sandbox.inside(&host.namespace, work)?
}

/// The places to which a case and its baseline are attached.
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
    // The case of this setting has filled the table.
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

/// Opens one instance for each distinct setting of the cases.
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

/// Loads the programs of all cases, each in a slot of the instance of its setting.
fn load<'a>(
    cases: Vec<Case>,
    instances: &'a [(Setting, Pins, Instance)],
    loading: &mut Vec<Loading>,
) -> Result<Vec<TestBed<'a>>> {
    let mut beds: Vec<TestBed<'a>> = Vec::new();
    for case in cases {
        // An instance has fewer slots than there are cases, so they are counted per instance.
        let before = beds.iter().filter(|bed| bed.case().setting == case.setting);
        let slot = before.count() as u32;
        let found = instances.iter().find(|(setting, ..)| *setting == case.setting);
        let (_, pins, instance) = found.context("a case has no instance")?;
        beds.push(TestBed::new(case, slot, pins, instance, loading)?);
    }
    Ok(beds)
}

/// Lets each case take its samples in turns, then checks how its frames were counted.
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

/// Measures how long applying the longest policy takes.
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
