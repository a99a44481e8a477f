//! What the limiter has to reach.

use serde_json::{Value, json};

use super::{
    case::{MANY_OVERRIDES, ONE_OVERRIDE, REFERENCE},
    contest::Contest,
    cost::Cost,
    live::Throughput,
};

/// A figure that has to be on one side of a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// What the figure is.
    pub(crate) name: &'static str,
    /// Its unit.
    pub(crate) unit: &'static str,
    /// What was measured.
    pub(crate) measured: f64,
    /// The bound, itself on the good side.
    pub(crate) bound: f64,
    /// Whether the bound is the least instead of the most.
    pub(crate) least: bool,
}

impl Target {
    /// Whether it is reached.
    pub(crate) fn is_met(&self) -> bool {
        // Written so that what is no number misses.
        if self.least { self.measured >= self.bound } else { self.measured <= self.bound }
    }

    /// The same for a script.
    pub(crate) fn json(&self) -> Value {
        let Self { name, unit, measured, bound, least } = self;
        let bound_name = if *least { "at_least" } else { "at_most" };
        json!({
            "name": name, "unit": unit, "measured": measured, bound_name: bound, "met": self.is_met()
        })
    }
}

/// The targets, with what was measured.
pub(crate) fn targets(costs: &[Cost], live: &[Throughput]) -> Vec<Target> {
    let cost = |id| over(costs, id);
    vec![
        Target {
            name: "known source with one limit, over nop",
            unit: " ns",
            measured: cost(REFERENCE),
            bound: 90.0,
            least: false,
        },
        Target {
            name: "over-limit drop against nftables",
            unit: "x",
            measured: rate(live, Contest::Over) / rate(live, Contest::NFTABLES),
            bound: 2.5,
            least: true,
        },
        Target {
            name: "10,000 overrides against one",
            unit: "x",
            measured: cost(MANY_OVERRIDES) / cost(ONE_OVERRIDE),
            bound: 1.1,
            least: false,
        },
    ]
}

/// Nanoseconds over the baseline of a case; no number if it was not measured.
pub(crate) fn over(costs: &[Cost], id: &str) -> f64 {
    costs.iter().find(|cost| cost.case.id == id).map_or(f64::NAN, |cost| cost.over.median)
}

/// Frames per second of a contest; no number if it was not measured.
pub(crate) fn rate(live: &[Throughput], contest: Contest) -> f64 {
    live.iter().find(|entry| entry.contest == contest).map_or(f64::NAN, |entry| entry.rate.median)
}
