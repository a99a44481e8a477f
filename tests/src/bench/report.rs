//! The report of a run: its JSON, its targets and its warnings.

use serde_json::{Value, json};

use super::{
    cost::{Cost, Measured},
    events::Unread,
    live::Throughput,
    machine::Machine,
    part::Part,
    sample::Figure,
    scaling::Scaling,
    simulation::Simulation,
    survival::Survival,
    target::{Target, targets},
};

/// The name and version of the JSON report.
pub(crate) const SCHEMA: &str = "limiter.bench/1";

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
    /// Scaling to two CPUs; `None` on a machine with one.
    pub(crate) scaling: Option<Scaling>,
    /// The simulation of many CPUs.
    pub(crate) simulation: Simulation,
}

impl Report {
    /// The targets, with the measured figures.
    pub(crate) fn targets(&self) -> Vec<Target> {
        targets(self)
    }

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

    /// The report as JSON.
    pub(crate) fn json(&self) -> Value {
        let figure = |figure: &Figure| {
            json!({
                "median": figure.median, "spread": figure.spread,
                "samples": figure.kept, "outliers": figure.outliers,
            })
        };
        let cost = |cost: &Cost| {
            json!({
                "id": &cost.case.id, "name": &cost.case.name, "over_nop_ns": figure(&cost.over),
                "baseline_ns": cost.baseline, "kernel_ns": cost.kernel,
                "batch_packets": cost.runs, "proportion": cost.proportion,
            })
        };
        let live = |entry: &Throughput| {
            json!({
                "id": entry.contest.id(), "name": entry.contest.name(),
                "packets_per_second": figure(&entry.rate),
                "sent": entry.sent, "received": entry.received, "passed": entry.passed,
            })
        };
        json!({
            "schema": SCHEMA,
            "quick": self.quick,
            "machine": self.machine.json(),
            "program": {
                "verified_instructions": self.cost.loading.instructions,
                "load_ms": self.cost.loading.time.as_secs_f64() * 1e3,
            },
            "policy": {
                "overrides": self.cost.applying.overrides,
                "apply_ms": self.cost.applying.time.as_secs_f64() * 1e3,
            },
            "inquiry": {
                "sources": self.cost.inquiry.sources,
                "room": self.cost.inquiry.room,
                "top_ms": self.cost.inquiry.top.as_secs_f64() * 1e3,
                "status_ms": self.cost.inquiry.status.as_secs_f64() * 1e3,
                "metrics_ms": self.cost.inquiry.metrics.as_secs_f64() * 1e3,
            },
            "memory": {
                "small_bytes": self.cost.memory.small,
                "default_bytes": self.cost.memory.default,
            },
            "parts": self.cost.parts.iter().map(Part::json).collect::<Vec<_>>(),
            "cost": self.cost.costs.iter().map(cost).collect::<Vec<_>>(),
            "live": self.live.iter().map(live).collect::<Vec<_>>(),
            "survival": self.survival.json(),
            "unread_events": self.unread.json(),
            "two_cpus": self.scaling.as_ref().map(Scaling::json),
            "simulated_cpus": self.simulation.json(),
            "targets": self.targets().iter().map(Target::json).collect::<Vec<_>>(),
            "warnings": self.warnings(),
        })
    }
}
