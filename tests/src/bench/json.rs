//! The report of a run as JSON.

use serde_json::{Value, json};

use super::{
    live::Throughput, part::Part, report::Report, sample::Figure, scaling::Scaling, target::Target,
    test_bed::Cost,
};

/// The name and version of the JSON report.
pub(crate) const SCHEMA: &str = "limiter.bench/1";

impl Report {
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
            "lists": self.lists.json(),
            "two_cpus": self.scaling.as_ref().map(Scaling::json),
            "simulated_cpus": self.simulation.json(),
            "targets": self.targets().iter().map(Target::json).collect::<Vec<_>>(),
            "warnings": self.warnings(),
        })
    }
}
