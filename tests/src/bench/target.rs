//! The targets that the limiter has to reach.

use limiter_userspace::policy::dearest;
use serde_json::{Value, json};

use super::{
    case::{
        DEEP, MANY_OVERRIDES, NEW_OWING, NEW_SMALL, ONE_OVERRIDE, ORDINARY, ORDINARY_SMALL,
        REFERENCE,
    },
    contest::Contest,
    report::Report,
    survival::lost_at,
};

/// A figure and its bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The name of the figure.
    pub(crate) name: &'static str,
    /// The unit of the figure.
    pub(crate) unit: &'static str,
    /// The measured figure; NaN if it was not measured.
    pub(crate) measured: f64,
    /// The bound; a figure equal to it meets the target.
    pub(crate) bound: f64,
    /// Whether the bound is a minimum; otherwise it is a maximum.
    pub(crate) least: bool,
}

/// The kind of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    AtMost,
    AtLeast,
}
use Side::{AtLeast, AtMost};

/// Bytes in a MiB.
const MIB: f64 = (1 << 20) as f64;

/// Name of the figure, kind of bound, bound, unit, and the function that reads the figure from a report (NaN
/// if it was not measured).
type Row = (&'static str, Side, f64, &'static str, fn(&Report) -> f64);

#[rustfmt::skip]
const TARGETS: [Row; 75] = [
    ("known source with one limit, over nop", AtMost, 80.0, " ns", |at| cost(at, REFERENCE)),
    ("the same by the clock, which short bursts take", AtMost, 80.0, " ns", |at| cost(at, ORDINARY_SMALL)),
    ("the same by the tick of the kernel", AtMost, 50.0, " ns", |at| cost(at, DEEP)),
    ("an ordinary source, well under its limit", AtMost, 25.0, " ns", |at| cost(at, ORDINARY)),
    ("the same by the tick, of a deep bucket", AtMost, 25.0, " ns", |at| cost(at, DEEP)),
    ("the same of a limit with a small burst", AtMost, 50.0, " ns", |at| cost(at, ORDINARY_SMALL)),
    ("each further limit of the source", AtMost, 5.0, " ns", |at| (cost(at, "limits_8") - cost(at, REFERENCE)) / 7.0),
    ("over-limit drop against conforming, of small bursts", AtMost, 1.0, "x", |at| cost(at, "over_limit_often") / cost(at, ORDINARY_SMALL)),
    ("the same against a packet that was leased", AtMost, 1.0, "x", |at| cost(at, "over_limit_often") / cost(at, REFERENCE)),
    ("the same of a limit of 1/min", AtMost, 1.0, "x", |at| cost(at, "over_limit") / cost(at, REFERENCE)),
    ("known source of a large burst", AtMost, 12.0, " ns", |at| cost(at, ORDINARY)),
    ("known source of a burst of 999", AtMost, 15.0, " ns", |at| cost(at, ORDINARY_SMALL)),
    ("64 k known sources at random", AtMost, 120.0, " ns", |at| cost(at, "tracked_64k")),
    ("botnet of 256 sources over 1/min", AtMost, 25.0, " ns", |at| cost(at, "botnet_256")),
    ("botnet of 4,096 sources over 1/min", AtMost, 70.0, " ns", |at| cost(at, "botnet_4k")),
    ("botnet of 65,536 sources over 1/min", AtMost, 200.0, " ns", |at| cost(at, "botnet_64k")),
    ("known source over 10 kpps", AtMost, 15.0, " ns", |at| cost(at, "over_10kpps")),
    ("known source over 100 kpps", AtMost, 15.0, " ns", |at| cost(at, "over_100kpps")),
    ("offered near a limit of 500 k/s", AtMost, 30.0, " ns", |at| cost(at, "near_500k")),
    ("offered near a limit of 1 M/s", AtMost, 30.0, " ns", |at| cost(at, "near_1M")),
    ("offered near a limit of 3 M/s", AtMost, 30.0, " ns", |at| cost(at, "near_3M")),
    ("offered near a limit of 6 M/s", AtMost, 30.0, " ns", |at| cost(at, "near_6M")),
    ("key: all, known", AtMost, 30.0, " ns", |at| cost(at, "key_all")),
    ("key: connection, known", AtMost, 60.0, " ns", |at| cost(at, "key_connection")),
    ("key: destination, known", AtMost, 50.0, " ns", |at| cost(at, "key_destination")),
    ("key: source/24, known", AtMost, 50.0, " ns", |at| cost(at, "key_source_24")),
    ("SYN under `syn` and `source`", AtMost, 25.0, " ns", |at| cost(at, "syn_source")),
    ("new SYN every packet", AtMost, 100.0, " ns", |at| cost(at, "new_syn")),
    ("new source every packet, full table, 1 kpps", AtMost, 100.0, " ns", |at| cost(at, "new_source_1kpps")),
    ("new source every packet, full table, 10 kpps", AtMost, 90.0, " ns", |at| cost(at, "new_source_10kpps")),
    ("new source every packet, full table, 5/min", AtMost, 120.0, " ns", |at| cost(at, "new_source_5_min")),
    ("web-edge.yaml: one source's UDP", AtMost, 40.0, " ns", |at| cost(at, "web_edge_udp")),
    ("web-edge.yaml: one source's SYNs from new ports", AtMost, 120.0, " ns", |at| cost(at, "web_edge_syn")),
    ("web-edge.yaml: made-up sources' SYNs", AtMost, 250.0, " ns", |at| cost(at, "web_edge_made_up_syn")),
    ("web-edge.yaml: made-up sources' UDP", AtMost, 200.0, " ns", |at| cost(at, "web_edge_made_up_udp")),
    ("web-edge.yaml: made-up sources' IPv6 with 8 options", AtMost, 300.0, " ns", |at| cost(at, "web_edge_made_up_ipv6")),
    ("as many `concurrent` as can be on one packet, against 1 us or twice what `policy check` tells", AtMost, 1.0, "x", |at| beyond_told(at, "stacked_concurrent")),
    ("as many `sliding_log` as can be on one packet, against 1 us or twice what `policy check` tells", AtMost, 1.0, "x", |at| beyond_told(at, "stacked_sliding_log")),
    ("as many keyed buckets as can be on one packet, against 1 us or twice what `policy check` tells", AtMost, 1.0, "x", |at| beyond_told(at, "stacked_keyed")),
    ("10,000 overrides against one", AtMost, 1.1, "x", |at| cost(at, MANY_OVERRIDES) / cost(at, ONE_OVERRIDE)),
    ("100,000 overrides against none", AtMost, 1.1, "x", |at| cost(at, "overrides_100000") / cost(at, REFERENCE)),
    ("64 limits in the policy against one", AtMost, 1.1, "x", |at| cost(at, "scoped_64") / cost(at, REFERENCE)),
    ("new source every packet against a known one", AtMost, 1.0, "x", |at| cost(at, "new_source_64k") / cost(at, REFERENCE)),
    ("the same under a limit with a small burst", AtMost, 1.0, "x", |at| cost(at, NEW_SMALL) / cost(at, ORDINARY_SMALL)),
    ("the same where all in the table owe", AtMost, 1.0, "x", |at| cost(at, NEW_OWING) / cost(at, REFERENCE)),
    ("new source every packet against 64 k known ones at random", AtMost, 1.0, "x", |at| cost(at, "new_source_64k") / cost(at, "tracked_64k")),
    ("over-limit drop against bare XDP_DROP", AtLeast, 0.75, "x", |at| wire(at, Contest::Over) / wire(at, Contest::Drop)),
    ("over-limit drop against bare XDP_DROP, to reach", AtLeast, 0.92, "x", |at| wire(at, Contest::Over) / wire(at, Contest::Drop)),
    ("the same of a limit of 1/min, over the wire", AtLeast, 0.75, "x", |at| wire(at, Contest::LongOver) / wire(at, Contest::Drop)),
    ("over-limit drop against nftables at ingress", AtLeast, 3.0, "x", |at| wire(at, Contest::Over) / wire(at, Contest::NFTABLES)),
    ("two CPUs on different sources against one", AtLeast, 1.9, "x", |at| two_cpus(at, "apart")),
    ("two CPUs on one over-limit source against one", AtLeast, 1.7, "x", |at| two_cpus(at, "over")),
    ("hot source of a large burst: a packet on each of two CPUs against one alone", AtMost, 1.15, "x", |at| slowdown(at, "hot")),
    ("the same of a burst of 999, on two CPUs", AtMost, 1.4, "x", |at| slowdown(at, "hot_small")),
    ("the same without a limit, on two CPUs", AtMost, 1.15, "x", |at| slowdown(at, "hot_observed")),
    ("two CPUs on unreadable frames against one", AtLeast, 1.5, "x", |at| two_cpus(at, "unreadable")),
    ("two CPUs on later fragments of one source against one", AtLeast, 1.5, "x", |at| two_cpus(at, "later_fragment")),
    ("two CPUs on a new source every packet against one", AtLeast, 1.8, "x", |at| two_cpus(at, "new_source")),
    ("verdicts per second when nobody reads the events, against a reader", AtLeast, 0.95, "x", |at| at.unread.beginning()),
    ("state lost to a flood of 16 times the table", AtMost, 0.1, " %", |at| 100.0 * lost_at(&at.survival, 16.0)),
    ("wrongly refused in any flood", AtMost, 0.0, " sources", |at| f64::from(at.survival.most_refused())),
    ("gained by flooding the own state away", AtMost, 0.0, " bursts", |at| at.survival.most_gained()),
    ("loading the program", AtMost, 1_000.0, " ms", |at| 1e3 * at.cost.loading.time.as_secs_f64()),
    ("verified instructions", AtMost, 200_000.0, "", |at| at.cost.loading.instructions.map_or(f64::NAN, f64::from)),
    ("loading the program, to reach", AtMost, 400.0, " ms", |at| 1e3 * at.cost.loading.time.as_secs_f64()),
    ("verified instructions, to reach", AtMost, 150_000.0, "", |at| at.cost.loading.instructions.map_or(f64::NAN, f64::from)),
    ("memory of an instance with one limit and room for 64 k sources", AtMost, 24.0, " MiB", |at| at.cost.memory.small as f64 / MIB),
    ("memory of an instance with room for 1 M sources", AtMost, 160.0, " MiB", |at| at.cost.memory.default as f64 / MIB),
    ("100,000 overrides put in force", AtMost, 1_000.0, " ms", |at| 1e3 * at.cost.applying.time.as_secs_f64()),
    ("100,000 addresses listed by one `deny add`", AtMost, 1_000.0, " ms", |at| 1e3 * at.lists.many.as_secs_f64()),
    ("the first address more beside them", AtMost, 50.0, " ms", |at| 1e3 * at.lists.first.as_secs_f64()),
    ("a later address more beside them", AtMost, 50.0, " ms", |at| 1e3 * at.lists.one.as_secs_f64()),
    ("`top` over a full table of 1 M sources", AtMost, 500.0, " ms", |at| 1e3 * at.cost.inquiry.top.as_secs_f64()),
    ("`status` with a full table of 1 M sources", AtMost, 20.0, " ms", |at| 1e3 * at.cost.inquiry.status.as_secs_f64()),
    ("`metrics` with a full table of 1 M sources", AtMost, 20.0, " ms", |at| 1e3 * at.cost.inquiry.metrics.as_secs_f64()),
];

impl Target {
    /// Whether the measured figure meets the bound.
    pub(crate) fn is_met(&self) -> bool {
        // NaN fails both comparisons, so a figure that was not measured misses its target.
        if self.least { self.measured >= self.bound } else { self.measured <= self.bound }
    }

    /// The target as JSON.
    pub(crate) fn json(&self) -> Value {
        let Self { name, unit, measured, bound, least } = self;
        let bound_name = if *least { "at_least" } else { "at_most" };
        json!({
            "name": name, "unit": unit, "measured": measured, bound_name: bound, "met": self.is_met()
        })
    }
}

impl Report {
    /// All targets, with the measured figures.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let target = |(name, side, bound, unit, measure): Row| Target {
            name,
            unit,
            measured: measure(self),
            bound,
            least: side == AtLeast,
        };
        TARGETS.into_iter().map(target).collect()
    }
}

/// Nanoseconds per packet of a case over the baseline; NaN if it was not measured.
pub(crate) fn cost(report: &Report, id: &str) -> f64 {
    report
        .cost
        .costs
        .iter()
        .find(|cost| cost.case.id == id)
        .map_or(f64::NAN, |cost| cost.over.median)
}

/// The same in units of what it may be: 1 us, or where `policy check` warns, twice what it tells, as a busy host takes that
/// much.
fn beyond_told(report: &Report, id: &str) -> f64 {
    let found = report.cost.costs.iter().find(|cost| cost.case.id == id);
    let most = found.and_then(|cost| {
        let told = dearest(&cost.case.setting.policy().ok()?)?.nanoseconds;
        Some(if told > 1_000 { 2 * told } else { 1_000 })
    });
    most.map_or(f64::NAN, |most| cost(report, id) / most as f64)
}

/// The rate of two CPUs, in units of the rate of one; NaN if it was not measured.
fn two_cpus(report: &Report, id: &str) -> f64 {
    report.scaling.as_ref().map_or(f64::NAN, |scaling| scaling.times(id))
}

/// Nanoseconds per packet on each of two CPUs, in units of that on one alone; NaN if it was not measured.
fn slowdown(report: &Report, id: &str) -> f64 {
    report.scaling.as_ref().map_or(f64::NAN, |scaling| scaling.slowdown(id))
}

/// Frames per second of a contest; NaN if it was not measured.
pub(crate) fn wire(report: &Report, contest: Contest) -> f64 {
    let found = report.live.iter().find(|entry| entry.contest == contest);
    found.map_or(f64::NAN, |entry| entry.rate.median)
}

#[cfg(test)]
mod tests {
    use super::{
        super::cases::{FEW_TRACKED, cases},
        *,
    };

    #[test]
    fn the_bound_is_on_the_good_side_and_no_number_is_not() {
        for (least, measured, met) in [
            (false, 1.0, true),
            (false, 1.1, false),
            (true, 1.0, true),
            (true, 0.9, false),
            (false, f64::NAN, false),
            (true, f64::NAN, false),
        ] {
            let target = Target { name: "it", unit: "x", measured, bound: 1.0, least };
            assert_eq!(target.is_met(), met, "{target:?}");
            assert_eq!(target.json()["met"], met);
        }
    }

    #[test]
    fn targets_are_of_cases_that_there_are() {
        let ids = cases(&FEW_TRACKED).unwrap().into_iter().map(|case| case.id);
        let ids: Vec<_> = ids.collect();
        // The ids are read from the source of this file: each is the second argument of one of these functions.
        let source = include_str!("target.rs");
        let calls = ["cost(at, \"", "beyond_told(at, \""];
        for named in calls.iter().flat_map(|call| source.split(call).skip(1)) {
            let id = named.split('"').next().unwrap_or_default();
            assert!(ids.iter().any(|known| known == id), "{id}");
        }
    }

    #[test]
    fn targets_have_names_of_their_own() {
        let mut names: Vec<_> = TARGETS.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TARGETS.len());
    }
}
