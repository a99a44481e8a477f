//! Limits on up to 64 CPUs, simulated, as the machines that measure have two.
//!
//! What is decided is decided by the code of the datapath: `Gcra`, `Cached` and `Place`. What it costs is assumed:
//!
//! * All CPUs have packets all the time, and any CPU may get any packet: a network card that keeps a source on one CPU
//!   does better.
//! * Where all that a packet touches is at hand, it takes the time of a constant of the [`machine`], which is what one
//!   CPU takes by `cargo xtask bench`, rounded. That is spread evenly from half of it to one and a half, as CPUs would go
//!   on in lockstep otherwise.
//! * A cache line that another CPU wrote is moved in some 100 ns, as is one that is to be written and that another CPU read.
//!   A line that is to be written moves to one CPU at a time, in the order in which they ask. Lines that nobody writes
//!   cost nothing, nor does memory.
//! * A load and an exchange that follow are two accesses: another CPU may come between them. An exchange that finds another
//!   value is tried again after some work, from the load on. What was to be leased is charged alone then. After so many
//!   tries as the datapath makes, the packet is dropped undecided, which does not count.
//! * No packet is refused: the limits of known sources and of `key: all` admit more than all CPUs offer, and made-up
//!   sources send one packet each.
//!
//! Random numbers are the same in each run, and so are the figures.

mod machine;

use limiter_userspace::output::table::{Cell, Column, Table};
use serde_json::{Value, json};

use self::machine::{Machine, TIMES};
use super::text::lines;

/// The numbers of CPUs.
pub(crate) const CPUS: [u8; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What all CPUs get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// One source within its limit.
    Hot,
    /// Known sources at random.
    Known,
    /// Each packet of another made-up source, in a full table.
    MadeUp,
    /// One bucket for all packets.
    All,
}

impl Load {
    /// Each, in the order of the report.
    pub(crate) const ALL: [Self; 4] = [Self::Hot, Self::Known, Self::MadeUp, Self::All];

    /// Its name for people.
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

/// Packets per second of each CPU, by the number of CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Simulation(Vec<(Load, [f64; CPUS.len()])>);

/// Simulates all loads.
pub(crate) fn run() -> Simulation {
    let rates = |load| CPUS.map(|cpus| Machine::new(load, cpus, TIMES).run());
    Simulation(Load::ALL.into_iter().map(|load| (load, rates(load))).collect())
}

impl Simulation {
    /// What each load comes to: millions of packets per second of each CPU, by the number of CPUs.
    pub(crate) fn curves(&self) -> impl Iterator<Item = (Load, Vec<(f64, f64)>)> {
        self.0.iter().map(|(load, rates)| {
            let points = CPUS.into_iter().zip(rates);
            (*load, points.map(|(cpus, rate)| (f64::from(cpus), rate / 1e6)).collect())
        })
    }

    /// For people.
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

    /// For a script.
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
