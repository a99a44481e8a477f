//! The results of a run, and the warnings about them.

use super::{
    cost::Measured, events::Unread, lists::Lists, live::Throughput, machine::Machine,
    scaling::Scaling, simulation::Simulation, survival::Survival, test_bed::Cost,
};

/// A spread above this share of its figure makes the figure doubtful.
const STEADY: f64 = 0.1;
/// A spread up to so many nanoseconds is never doubtful.
const GRAIN: f64 = 2.0;
/// How far the ratio of a batch of twice the size to a batch may be from 2, as a share.
const PROPORTION: f64 = 0.05;

/// The share of frames that the wire may lose.
const LOSS: f64 = 0.01;

/// Warnings about doubtful figures of cases.
pub(crate) fn doubts(costs: &[Cost]) -> Vec<String> {
    let mut warnings = Vec::new();
    for Cost { case, over, baseline, kernel, proportion, .. } in costs {
        let name = &case.name;
        if over.spread > GRAIN.max(STEADY * over.median) {
            warnings.push(format!("{name}: the spread is large, measure again"));
        }
        if (proportion / 2.0 - 1.0).abs() > PROPORTION {
            warnings.push(format!(
                "{name}: twice the packets took {proportion:.2} times as long, not 2"
            ));
        }
        let own = over.median + baseline;
        if (own - kernel).abs() > GRAIN.max(STEADY * own) {
            warnings.push(format!(
                "{name}: {own:.0} ns by the clock of the thread, {kernel:.0} ns by the kernel's"
            ));
        }
    }
    warnings
}

/// All results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The machine.
    pub(crate) machine: Machine,
    /// Whether it was a quick run.
    pub(crate) quick: bool,
    /// Costs without a wire.
    pub(crate) cost: Measured,
    /// Rates over a wire.
    pub(crate) live: Vec<Throughput>,
    /// The survival of established sources in a flood.
    pub(crate) survival: Survival,
    /// The cost of events without a reader.
    pub(crate) unread: Unread,
    /// The time of commands that edit a long list.
    pub(crate) lists: Lists,
    /// Scaling to two CPUs; `None` on a machine with one.
    pub(crate) scaling: Option<Scaling>,
    /// The simulation of many CPUs.
    pub(crate) simulation: Simulation,
}

impl Report {
    /// All warnings about the figures.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.machine.warnings();
        warnings.extend(doubts(&self.cost.costs));
        for Throughput { contest, rate, sent, received, .. } in &self.live {
            if (*received as f64) < (1.0 - LOSS) * *sent as f64 {
                warnings.push(format!(
                    "{}: of {sent} frames only {received} came out of the wire, so its work was \
                     not all on this CPU",
                    contest.name()
                ));
            }
            if rate.spread > STEADY * rate.median {
                warnings.push(format!("{}: the spread is large, measure again", contest.name()));
            }
        }
        warnings
    }
}
