//! The figures, for people and for scripts.

use limiter_userspace::output::table::{Cell, Column, GAP, Table};
use serde_json::{Value, json};

use super::{
    case::REFERENCE,
    contest::Contest,
    cost::{Applying, Cost, Loading},
    live::Throughput,
    machine::Machine,
    sample::Figure,
    target::{Target, over, rate, targets},
};

/// A spread that is a larger part of its figure than this makes the figure doubtful.
const STEADY: f64 = 0.1;
/// Nanoseconds of spread that no figure is doubted for.
const GRAIN: f64 = 2.0;
/// How far a batch of twice the size may be from taking twice the time.
const PROPORTION: f64 = 0.05;

/// The part of the frames that the wire may lose.
const LOSS: f64 = 0.01;

/// All that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// On what.
    pub(crate) machine: Machine,
    /// Whether it was a short run.
    pub(crate) quick: bool,
    /// Per packet.
    pub(crate) costs: Vec<Cost>,
    /// Of the program.
    pub(crate) loading: Loading,
    /// Of the longest policy.
    pub(crate) applying: Applying,
    /// Over wires.
    pub(crate) live: Vec<Throughput>,
}

impl Report {
    /// What has to be reached, with what was.
    pub(crate) fn targets(&self) -> Vec<Target> {
        targets(&self.costs, &self.live)
    }

    /// What makes the figures worth less.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.machine.warnings();
        for Cost { case, over, baseline, kernel, proportion, .. } in &self.costs {
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

    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let facts: Vec<_> =
            self.machine.facts().iter().map(|(a, b)| format!("{a:<12}{b}")).collect();
        let Loading { instructions, time } = self.loading;
        let instructions = instructions
            .map_or_else(|| "not told by this kernel".to_owned(), |count| count.to_string());
        let program = format!(
            "program     verified instructions {instructions}, loaded in {} ms",
            time.as_millis()
        );
        let Applying { overrides, time } = self.applying;
        let policy =
            format!("policy      {overrides} overrides put in force in {} ms", time.as_millis());
        let mut parts = vec![
            [facts.join("\n"), program, policy].join("\n"),
            self.cost_table() + "\n" + COST_NOTES,
            self.live_table() + "\n" + LIVE_NOTES,
            self.target_table(),
        ];
        let warnings = self.warnings();
        if !warnings.is_empty() {
            let lines: Vec<_> = warnings.iter().map(|text| format!("warning: {text}")).collect();
            parts.push(lines.join("\n"));
        }
        parts.join("\n\n") + "\n"
    }

    fn cost_table(&self) -> String {
        let reference = over(&self.costs, REFERENCE);
        let mut table = Table::new([
            Column::left("cost of a packet"),
            Column::right("ns over nop"),
            Column::right("spread"),
            Column::right("M/s"),
            Column::right("ratio"),
        ]);
        for Cost { case, over, .. } in &self.costs {
            table.row([
                Cell::from(case.name.as_str()),
                format!("{:.1}", over.median).into(),
                format!("{:.1}", over.spread).into(),
                format!("{:.1}", 1e3 / over.median).into(),
                format!("{:.2}", over.median / reference).into(),
            ]);
        }
        lines(&table)
    }

    fn live_table(&self) -> String {
        let [drop, nftables] =
            [Contest::Drop, Contest::Nftables].map(|contest| rate(&self.live, contest));
        let mut table = Table::new([
            Column::left("frames over a wire"),
            Column::right("Mpps"),
            Column::right("spread"),
            Column::right("to XDP_DROP"),
            Column::right("to nftables"),
        ]);
        for Throughput { contest, rate, .. } in &self.live {
            table.row([
                Cell::from(contest.name()),
                format!("{:.2}", rate.median / 1e6).into(),
                format!("{:.2}", rate.spread / 1e6).into(),
                format!("{:.2}", rate.median / drop).into(),
                format!("{:.2}", rate.median / nftables).into(),
            ]);
        }
        lines(&table)
    }

    fn target_table(&self) -> String {
        let mut table = Table::new([
            Column::left("target"),
            Column::right("bound"),
            Column::right("measured"),
            Column::left("verdict"),
        ]);
        for target in self.targets() {
            let Target { name, unit, measured, bound, least } = target;
            let side = if least { "at least" } else { "at most" };
            table.row([
                Cell::from(name),
                format!("{side} {bound}{unit}").into(),
                format!("{measured:.2}{unit}").into(),
                if target.is_met() { "met" } else { "MISSED" }.into(),
            ]);
        }
        lines(&table)
    }

    /// The report for a script.
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
            "schema": "limiter.bench/1",
            "quick": self.quick,
            "machine": self.machine.json(),
            "program": {
                "verified_instructions": self.loading.instructions,
                "load_ms": self.loading.time.as_secs_f64() * 1e3,
            },
            "policy": {
                "overrides": self.applying.overrides,
                "apply_ms": self.applying.time.as_secs_f64() * 1e3,
            },
            "cost": self.costs.iter().map(cost).collect::<Vec<_>>(),
            "live": self.live.iter().map(live).collect::<Vec<_>>(),
            "targets": self.targets().iter().map(Target::json).collect::<Vec<_>>(),
            "warnings": self.warnings(),
        })
    }
}

const COST_NOTES: &str = "\
ns over nop: the median of batches of about 10 ms, each less the batches of a program that does
nothing on both sides of it; for new sources, one that only makes the source. Spread: the range of
the middle half. M/s: what one CPU could do if it did nothing else. Ratio: to `known source, one
limit`. The kernel runs the program on the same frame again and again: frame, code and, but for new
sources, the source's entry are in the cache, which they may not be in traffic of many sources.";

const LIVE_NOTES: &str = "\
One CPU makes the frames, sends them through a veth pair and takes them in, so these are figures to
compare with each other, not those of a network card. All frames are 60 bytes, of one source.";

/// The lines of a table.
fn lines(table: &Table) -> String {
    let line =
        |cells: Vec<Cell>| cells.into_iter().map(|cell| cell.text).collect::<Vec<_>>().join(GAP);
    table.layout(usize::MAX).into_iter().map(line).collect::<Vec<_>>().join("\n")
}
