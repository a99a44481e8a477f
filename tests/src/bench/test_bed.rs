//! A case during its measurement.

use anyhow::Result;
use limiter_common::packet::reason::Reason;
use limiter_userspace::datapath::{bpffs::Pins, instance::Instance, snapshot::Snapshot};

use super::{
    batch::{self, Batch},
    case::Case,
    charges::Charges,
    outcome::Outcome,
    place::Place,
    programs::{Loading, Programs},
    sample::{Figure, median},
    slot::{self, Counted},
};

/// Pairs of a batch and one of twice its size, for the check of proportion.
const PAIRS: usize = 5;
/// Batches that drain the bucket, which filled up while the baseline ran.
const DRAINING: u32 = 10;

/// The cost of a case.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    /// The measured case.
    pub(crate) case: Case,
    /// Nanoseconds per packet over the baseline.
    pub(crate) over: Figure,
    /// Nanoseconds per packet of the baseline: the loop of the kernel and, for made-up sources, writing the
    /// source.
    pub(crate) baseline: f64,
    /// Nanoseconds per packet of the case with its baseline, as the kernel reports them (whole nanoseconds).
    pub(crate) kernel: f64,
    /// Packets in a batch.
    pub(crate) runs: u32,
    /// The time of a batch of twice the size, in units of the time of a batch. It is near 2 if the batch
    /// measures packets and not a constant cost.
    pub(crate) proportion: f64,
}

/// A case with its loaded programs and its samples.
pub(crate) struct TestBed<'a> {
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
    /// Frames offered since the start.
    offered: u64,
    /// The tallies of the limits for these frames.
    charges: Charges,
}

impl<'a> TestBed<'a> {
    /// Loads the programs of a case for a slot of its instance.
    pub(crate) fn new(
        case: Case,
        slot: u32,
        pins: &Pins,
        instance: &'a Instance,
        loading: &mut Vec<Loading>,
    ) -> Result<Self> {
        let programs = Programs::load(&case, slot, pins, loading)?;
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

    /// The measured case.
    pub(crate) const fn case(&self) -> &Case {
        &self.case
    }

    /// Runs `work` with both programs attached.
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

    /// Puts the sources into the table, finds the batch sizes, which also warms up caches, and measures the
    /// proportion.
    pub(crate) fn prepare(&mut self) -> Result<()> {
        self.programs.meet_sources(&self.case)?;
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

    /// Takes `samples` samples and adds up the tallies. These are read for each turn, because the limits of
    /// an instance count the frames of all its cases.
    pub(crate) fn sample(&mut self, samples: usize) -> Result<()> {
        let before = self.snapshot()?;
        (0..samples).try_for_each(|_| self.sample_once())?;
        self.charges.add(&before, &self.snapshot()?);
        Ok(())
    }

    /// Takes one sample: a batch of the case between two of the baseline.
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

    /// Reads the counters of the slot.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        slot::snapshot(self.instance, self.slot)
    }

    /// Checks by the counters that every frame took the path of the case.
    pub(crate) fn check(&self, before: &Snapshot) -> Result<()> {
        let counted = Counted::between(before, &self.snapshot()?);
        counted.check(&self.case, self.offered)?;
        match (self.case.outcome, self.case.setting) {
            (Outcome::Each(reason), setting) if !setting.has_strays() => {
                self.charges.check(&self.case, counted.received(), counted.of(reason))
            }
            _ => {
                let (passed, refused) = (counted.passed(), counted.of(Reason::Exceed));
                self.charges.check_mixed(&self.case, passed, refused, counted.strays(&self.case))
            }
        }
    }

    /// The result.
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
