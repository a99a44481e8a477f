//! A case while it is measured.

use std::time::Instant;

use anyhow::{Result, ensure};
use aya::programs::Xdp;
use limiter_common::reason::Reason;
use limiter_userspace::datapath::{
    bpffs::Pins,
    instance::{Attached, Instance},
    mode::Mode,
    program::{Clock, Program},
    snapshot::Snapshot,
};

use super::{
    batch::{self, Batch},
    case::{Case, Sources},
    charges::Charges,
    cost::{Cost, Loading},
    load::{LIMITER_IN_TURN, LIMITER_SPOOFED, Load, Made, NOP, NOP_SPOOFED},
    outcome::Outcome,
    place::Place,
    sample::{Figure, median},
    setting::Setting,
};

/// Pairs of batches, one twice the other, that are compared in a check of proportion.
const PAIRS: usize = 5;
/// Batches that use up what a bucket gained while the baseline ran.
const DRAINING: u32 = 10;
/// Frames that a source over 1/min may pass during the measurement.
const STRAYS: u64 = 8;
/// Of how many that are offered one over 1,000/s may pass one.
const STRAYS_OF: u64 = 1_000;

/// Of how many of a shipped example one may come out otherwise: a made-up source may be one that a list or a tenant
/// names, and its SYN one that repeats another.
const STRAYS_OF_EXAMPLES: u64 = 10_000;

/// So many sources that are tracked are met often; more than that once.
const MET_OFTEN: u32 = 1 << 18;
/// How often that is.
const OFTEN: u64 = 65;

/// A case with its programs.
pub(crate) struct Subject<'a> {
    case: Case,
    slot: u32,
    instance: &'a Instance,
    programs: Programs,
    runs: u32,
    baseline_runs: u32,
    over: Vec<f64>,
    baselines: Vec<f64>,
    kernel: Vec<f64>,
    proportion: f64,
    /// Frames since the start.
    offered: u64,
    /// What the limits did with them.
    charges: Charges,
}

/// The limiter and its baseline.
enum Programs {
    Plain(Program, Load),
    /// Both are in the object that makes the sources.
    Made(Load),
}

impl Programs {
    fn limiter(&mut self) -> Result<&mut Xdp> {
        match self {
            Self::Plain(program, _) => Ok(program.xdp()?),
            Self::Made(load) => load.program_mut(LIMITER_SPOOFED),
        }
    }

    fn baseline(&mut self) -> Result<&mut Xdp> {
        match self {
            Self::Plain(_, load) => load.program_mut(NOP),
            Self::Made(load) => load.program_mut(NOP_SPOOFED),
        }
    }
}

impl<'a> Subject<'a> {
    /// A case, with its programs loaded for a slot of its instance.
    pub(crate) fn new(
        case: Case,
        slot: u32,
        pins: &Pins,
        instance: &'a Instance,
        loading: &mut Vec<Loading>,
    ) -> Result<Self> {
        let made = match case.sources {
            Sources::One => None,
            Sources::NewConnections => Some(Made::Syn),
            Sources::MadeUp => Some(Made::ANY),
            Sources::MadeUp6 => Some(Made::Source6),
            Sources::Tracked(number) => Some(Made::Source4(number - 1)),
        };
        let programs = if let Some(made) = made {
            let programs = [NOP_SPOOFED, LIMITER_SPOOFED, LIMITER_IN_TURN];
            Programs::Made(Load::making(pins, slot, made, &programs)?)
        } else {
            let start = Instant::now();
            let mut program = Program::load(pins, slot, false, Clock::Monotonic)?;
            let time = start.elapsed();
            let instructions = program.xdp()?.info()?.verified_instruction_count();
            loading.push(Loading { instructions, time });
            Programs::Plain(program, Load::new(pins, slot, &[NOP])?)
        };
        Ok(Self {
            case,
            slot,
            instance,
            programs,
            runs: 1_000,
            baseline_runs: 1_000,
            over: Vec::new(),
            baselines: Vec::new(),
            kernel: Vec::new(),
            proportion: 0.0,
            offered: 0,
            charges: Charges::default(),
        })
    }

    /// What is measured.
    pub(crate) const fn case(&self) -> &Case {
        &self.case
    }

    /// Does some work with both programs attached.
    pub(crate) fn turn(
        &mut self,
        places: &mut [Place; 2],
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let [case, baseline] = places;
        let held = case.take(self.programs.limiter()?)?;
        let held_baseline = baseline.take(self.programs.baseline()?)?;
        work(self)?;
        case.leave(self.programs.limiter()?, held)?;
        baseline.leave(self.programs.baseline()?, held_baseline)
    }

    fn run(&mut self, runs: u32) -> Result<Batch> {
        self.offered += u64::from(runs);
        batch::run(self.programs.limiter()?, &self.case.frame, runs)
    }

    fn run_baseline(&mut self, runs: u32) -> Result<Batch> {
        batch::run(self.programs.baseline()?, &self.case.frame, runs)
    }

    /// Has the sources met, finds the size of a batch with them, which warms everything up, and checks the proportion.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        self.meet_sources()?;
        self.runs = batch::calibrate(|runs| self.run(runs))?;
        self.baseline_runs = batch::calibrate(|runs| self.run_baseline(runs))?;
        let mut proportions = Vec::new();
        for _ in 0..PAIRS {
            let one = self.run(self.runs)?.time.as_secs_f64();
            let two = self.run(2 * self.runs)?.time.as_secs_f64();
            proportions.push(two / one);
        }
        self.proportion = median(&proportions);
        self.offered = 0;
        Ok(())
    }

    /// Has the sources in the table that are to be there.
    fn meet_sources(&mut self) -> Result<()> {
        match (self.case.sources, &self.programs) {
            // Full, so that every new source or connection takes the place of another.
            (Sources::MadeUp | Sources::MadeUp6 | Sources::NewConnections, _) => {
                for _ in 0..2 {
                    self.run(self.case.setting.sizes().sources)?;
                }
            }
            (Sources::Tracked(number), Programs::Made(load)) => {
                let times = if number <= MET_OFTEN { OFTEN } else { 1 };
                for _ in 0..times {
                    batch::run(load.program(LIMITER_IN_TURN)?, &self.case.frame, number)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes so many samples, and notes what they were charged: the limits of an instance count what
    /// all of its cases do.
    pub(crate) fn sample(&mut self, samples: usize) -> Result<()> {
        let before = self.snapshot()?;
        (0..samples).try_for_each(|_| self.sample_once())?;
        self.charges.add(&before, &self.snapshot()?);
        Ok(())
    }

    /// Takes one sample: the case between two of the baseline.
    fn sample_once(&mut self) -> Result<()> {
        let before = self.run_baseline(self.baseline_runs)?.per_run(self.baseline_runs);
        if self.case.setting.is_drained() {
            self.run(DRAINING * self.runs)?;
        }
        let batch = self.run(self.runs)?;
        let after = self.run_baseline(self.baseline_runs)?.per_run(self.baseline_runs);
        let baseline = f64::midpoint(before, after);
        self.over.push(batch.per_run(self.runs) - baseline);
        self.baselines.push(baseline);
        self.kernel.push(batch.kernel.as_secs_f64() * 1e9);
        Ok(())
    }

    /// The counters of the slot.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let slot = Attached {
            slot: self.slot,
            name: String::new(),
            alternatives: Vec::new(),
            link: 0,
            index: 0,
            mode: Mode::Native,
            present: true,
            exists: true,
        };
        Ok(self.instance.maps().snapshot(&[slot])?)
    }

    /// Checks by the counters that every frame went the way that the case is about.
    pub(crate) fn check(&self, before: &Snapshot) -> Result<()> {
        let after = self.snapshot()?;
        let Case { name, outcome, setting, .. } = &self.case;
        let counted =
            |place: usize| after.reasons[place].packets.wrapping_sub(before.reasons[place].packets);
        let received: u64 = (0..after.reasons.len()).map(counted).sum();
        ensure!(
            received == self.offered,
            "{name}: the limiter counted {received} of {} frames",
            self.offered
        );
        let counted = |reason: Reason| counted(reason.index());
        let reasons = outcome.reasons();
        let strays = match setting {
            Setting::OverOften => received / STRAYS_OF,
            Setting::Example(..) => STRAYS.max(received / STRAYS_OF_EXAMPLES),
            _ if reasons.iter().all(|reason| reason.drops()) => STRAYS,
            _ => 0,
        };
        outcome.check(name, received, counted, strays)?;
        match (outcome, setting) {
            (Outcome::Each(reason), setting) if !matches!(setting, Setting::Example(..)) => {
                self.charges.check(&self.case, received, counted(*reason))
            }
            _ => {
                // Where nothing is dropped, what is over a limit is counted at that limit alone.
                let passes = |reason: &Reason| !reason.drops() && *reason != Reason::Monitor;
                let passed = Reason::ALL.into_iter().filter(passes).map(counted).sum();
                self.charges.check_mixed(&self.case, passed, counted(Reason::Exceed), strays)
            }
        }
    }

    /// What was found.
    pub(crate) fn cost(self) -> Cost {
        Cost {
            over: Figure::of(&self.over),
            baseline: median(&self.baselines),
            kernel: median(&self.kernel),
            runs: self.runs,
            proportion: self.proportion,
            case: self.case,
        }
    }
}
