//! Simulates limits on up to 64 CPUs, because the machines of the measurements have two.
//!
//! Decisions are made by the code of the datapath: `Gcra`, `Cached` and `Place`. Costs are assumptions:
//!
//! * All CPUs are always busy, and any CPU may get any packet. A network card that keeps each source on one
//!   CPU does better.
//! * A packet whose data is in the cache takes a constant time of the [`machine`], from `cargo xtask bench`
//!   on one CPU, rounded. Times vary evenly from half of it to one and a half, because CPUs would otherwise
//!   run in lockstep.
//! * A cache line that another CPU wrote takes about 100 ns to move. So does a line to be written that
//!   another CPU read. A line to be written moves to one CPU at a time, in the order of the requests. Lines
//!   that no CPU writes, and memory, cost nothing.
//! * A load and a following exchange are two accesses: another CPU may come between them. A failed exchange
//!   is tried again, starting with the load, after the wait of the datapath. After as many races as there, packets to be leased are
//!   charged one by one, and at last the packet is dropped as contended and not counted.
//! * No packet is refused: the limits of known sources and of `key: all` admit more than all CPUs offer, and
//!   made-up sources send one packet each.
//!
//! The random numbers, and so the figures, are the same in each run.

mod machine;

use limiter_userspace::output::table::{Cell, Column, Table};
use serde_json::{Value, json};

use self::machine::{Machine, TIMES};
use super::tables::lines;

/// The simulated numbers of CPUs.
pub(crate) const CPUS: [u8; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The traffic of all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// One source within its limit.
    Hot,
    /// Random known sources.
    Known,
    /// A new made-up source for each packet, in a full table.
    MadeUp,
    /// One bucket for all packets.
    All,
}

impl Load {
    /// All loads, in the order of the report.
    pub(crate) const ALL: [Self; 4] = [Self::Hot, Self::Known, Self::MadeUp, Self::All];

    /// The name in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hot => "one hot source",
            Self::Known => "64 k sources",
            Self::MadeUp => "made-up sources",
            Self::All => "key: all",
        }
    }

    const fn id(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Known => "known_64k",
            Self::MadeUp => "made_up",
            Self::All => "key_all",
        }
    }
}

/// Packets per second of each CPU, by load and number of CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Simulation(Vec<(Load, [f64; CPUS.len()])>);

/// Simulates all loads.
pub(crate) fn run() -> Simulation {
    let rates = |load| CPUS.map(|cpus| Machine::new(load, cpus, TIMES).run());
    Simulation(Load::ALL.into_iter().map(|load| (load, rates(load))).collect())
}

impl Simulation {
    /// For each load, millions of packets per second of each CPU, by number of CPUs.
    pub(crate) fn curves(&self) -> impl Iterator<Item = (Load, Vec<(f64, f64)>)> {
        self.0.iter().map(|(load, rates)| {
            let points = CPUS.into_iter().zip(rates);
            (*load, points.map(|(cpus, rate)| (f64::from(cpus), rate / 1e6)).collect())
        })
    }

    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let mut columns = vec![Column::left("simulated CPUs")];
        columns.extend(self.0.iter().map(|(load, _)| Column::right(load.name())));
        let mut table = Table::new(columns);
        for (number, cpus) in CPUS.iter().enumerate() {
            let mut cells = vec![Cell::from(cpus.to_string())];
            let rates = self.0.iter().map(|(_, rates)| rates[number] / 1e6);
            cells.extend(rates.map(|rate| Cell::from(format!("{rate:.3}"))));
            table.row(cells);
        }
        lines(&table) + "\n" + NOTES
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> Value {
        let load = |(load, rates): &(Load, [f64; CPUS.len()])| {
            let points = CPUS.into_iter().zip(rates);
            let points: Vec<_> = points
                .map(|(cpus, rate)| json!({ "cpus": cpus, "packets_per_second_of_each": rate }))
                .collect();
            json!({ "id": load.id(), "name": load.name(), "points": points })
        };
        self.0.iter().map(load).collect::<Vec<_>>().into()
    }
}

const NOTES: &str = "\
Millions of packets per second of each CPU, simulated, not measured: any CPU gets any packet, and a cache line
moves from one CPU to another in some 100 ns.";
