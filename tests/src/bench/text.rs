//! The report of a run as text.

use limiter_userspace::output::table::{Cell, Column, Table};

use super::{
    case::REFERENCE,
    contest::Contest,
    cost::Applying,
    inquiry::Inquiry,
    live::Throughput,
    machine::Machine,
    part,
    programs::Loading,
    report::Report,
    scaling::Scaling,
    tables::lines,
    target::{Target, wire},
    test_bed::Cost,
};

impl Report {
    /// The full report.
    pub(crate) fn text(&self) -> String {
        let facts = facts(&self.machine);
        let Loading { instructions, time } = self.cost.loading;
        let instructions = instructions
            .map_or_else(|| "not told by this kernel".to_owned(), |count| count.to_string());
        let program = format!(
            "program     verified instructions {instructions}, loaded in {} ms",
            time.as_millis()
        );
        let Applying { overrides, time } = self.cost.applying;
        let policy =
            format!("policy      {overrides} overrides put in force in {} ms", time.as_millis());
        let Inquiry { sources, room, top, status, metrics } = self.cost.inquiry;
        let inquiry = format!(
            "inquiry     top in {} ms, status in {} ms, metrics in {} ms, of {sources} sources where {room} \
             have room",
            top.as_millis(),
            status.as_millis(),
            metrics.as_millis()
        );
        let [small, default] =
            [self.cost.memory.small, self.cost.memory.default].map(|bytes| bytes >> 20);
        let memory = format!(
            "memory      {small} MiB where 64 k sources have room, {default} MiB where 1 M have"
        );
        let mut parts = vec![
            [facts, program, policy, inquiry, memory, self.lists.text()].join("\n"),
            costs(&self.cost.costs),
            part::text(&self.cost.parts),
            self.live_table() + "\n" + LIVE_NOTES,
            self.survival.text(),
            self.unread.text(),
        ];
        parts.extend(self.scaling.as_ref().map(Scaling::text));
        parts.push(self.simulation.text());
        parts.push(targets(&self.targets()));
        parts.extend(warnings(&self.warnings()));
        parts.join("\n\n") + "\n"
    }

    fn live_table(&self) -> String {
        let [drop, nftables] =
            [Contest::Drop, Contest::NFTABLES].map(|contest| wire(self, contest));
        let mut table = Table::new([
            Column::left("frames over a wire"),
            Column::right("Mpps"),
            Column::right("spread"),
            Column::right("to XDP_DROP"),
            Column::right("to nftables at ingress"),
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
}

/// The table of targets.
pub(crate) fn targets(targets: &[Target]) -> String {
    let mut table = Table::new([
        Column::left("target"),
        Column::right("bound"),
        Column::right("measured"),
        Column::left("verdict"),
    ]);
    for target in targets {
        let Target { name, unit, measured, bound, least } = target;
        let side = if *least { "at least" } else { "at most" };
        table.row([
            Cell::from(*name),
            format!("{side} {bound}{unit}").into(),
            format!("{measured:.2}{unit}").into(),
            if target.is_met() { "met" } else { "MISSED" }.into(),
        ]);
    }
    lines(&table)
}

/// The table of the costs of some cases, with notes.
pub(crate) fn costs(costs: &[Cost]) -> String {
    cost_table(costs) + "\n" + COST_NOTES
}

/// The facts about the machine, one per line.
pub(crate) fn facts(machine: &Machine) -> String {
    let line = |(name, fact): &(_, _)| format!("{name:<12}{fact}");
    machine.facts().iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The warnings, one per line; `None` if there are none.
pub(crate) fn warnings(warnings: &[String]) -> Option<String> {
    let lines: Vec<_> = warnings.iter().map(|text| format!("warning: {text}")).collect();
    Some(lines.join("\n")).filter(|lines| !lines.is_empty())
}

fn cost_table(costs: &[Cost]) -> String {
    let reference = costs.iter().find(|cost| cost.case.id == REFERENCE);
    let mut table = Table::new([
        Column::left("cost of a packet"),
        Column::right("ns over nop"),
        Column::right("spread"),
        Column::right("M/s"),
        Column::right("ratio"),
    ]);
    for Cost { case, over, .. } in costs {
        let ratio = reference.map(|reference| over.median / reference.over.median);
        table.row([
            Cell::from(case.name.as_str()),
            format!("{:.1}", over.median).into(),
            format!("{:.1}", over.spread).into(),
            format!("{:.1}", 1e3 / over.median).into(),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")).into(),
        ]);
    }
    lines(&table)
}

const COST_NOTES: &str = "\
ns over nop: the median of batches of about 10 ms, each less the batches of a program that does
nothing on both sides of it; for sources that are made, one that only makes the source. Spread: the
range of the middle half. M/s: what one CPU could do if it did nothing else. Ratio: to `known source,
one limit`. The kernel runs the program on the same frame again and again: frame, code and, but for
sources that are made, the source's entry are in the cache. At random: each source is known, and has
one limit.";

const LIVE_NOTES: &str = "\
One CPU makes the frames, sends them through a veth pair and takes them in, so these are figures to
compare with each other, not those of a network card. All frames are 60 bytes, of one source. What is
over its limit admits 1,000 a second with a burst of 200, which is checked.";
