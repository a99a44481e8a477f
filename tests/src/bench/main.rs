//! `limiter-bench`: measures the cost of the limiter per packet, and its packet rate beside other limiters.
//!
//! Everything is made in namespaces that vanish with the process, however it ends.

mod batch;
mod case;
mod cases;
mod charges;
mod compare;
mod contest;
mod cost;
mod cpu;
mod events;
mod example;
mod flood;
mod inquiry;
mod iptables;
mod json;
mod lists;
mod live;
mod load;
mod machine;
mod memory;
mod nftables;
mod outcome;
mod part;
mod peer;
mod place;
mod plot;
mod programs;
mod report;
mod requests;
mod sample;
mod scaling;
mod setting;
mod shipped;
mod simulation;
mod slot;
mod survival;
mod tables;
mod target;
mod test_bed;
mod text;

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Parser;
use limiter_tests::{program::two_cpus, sandbox::Sandbox};

use crate::{compare::Earlier, cost::Effort, machine::Machine, report::Report, target::Target};

/// Measures the limiter: nanoseconds per packet over a program that does nothing, and packets per
/// second over a wire beside bare XDP, nftables and iptables.
#[derive(Parser)]
#[command(name = "limiter-bench", version)]
struct Arguments {
    /// Take about a third of the time, for less certain figures
    #[arg(long)]
    quick: bool,
    /// Also write all figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write plots of the figures into this folder, as SVG
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
    /// Also compare with an earlier run, whose figures `--json` wrote to this file
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Exit with 1 when a target is missed
    #[arg(long)]
    check: bool,
    /// Measure only the bridge, which answers proxies about requests
    #[arg(long, conflicts_with_all = ["json", "plots", "compare", "only"])]
    l7: bool,
    /// Measure only the cost of the cases whose ids, which are those of `--json`, contain this; where it begins with
    /// `two_cpus_`, the rows of two CPUs whose ids begin with the rest; `simulation` is that of many CPUs, `events` what it
    /// costs that nobody reads the events, `lists` the commands that edit a long list; may be given more than once
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["json", "plots", "compare", "check"])]
    only: Vec<String>,
}

/// The text for `--only` that selects the simulation.
const SIMULATION: &str = "simulation";
/// That which selects the cost of events that nobody reads.
const EVENTS: &str = "events";
/// That which selects the commands that edit a long list.
const LISTS: &str = "lists";

/// How much a run measures.
struct Extent {
    cost: Effort,
    live_rounds: usize,
    live_length: Duration,
    floods: &'static [f64],
    scaling: usize,
    events: usize,
}

const FULL: Extent = Extent {
    cost: Effort { turns: 10, samples: 10, tracked: &cases::TRACKED },
    live_rounds: 11,
    live_length: Duration::from_millis(800),
    floods: &survival::FLOODS,
    scaling: 25,
    events: 25,
};
const QUICK: Extent = Extent {
    cost: Effort { turns: 4, samples: 8, tracked: &cases::FEW_TRACKED },
    live_rounds: 5,
    live_length: Duration::from_millis(300),
    floods: &survival::FEW_FLOODS,
    scaling: 9,
    events: 9,
};

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    // Bad arguments are reported before minutes are spent on measuring.
    let earlier = arguments.compare.as_deref().map(Earlier::read).transpose()?;
    arguments.plots.as_deref().map(plot::prepare).transpose()?;
    let extent = if arguments.quick { QUICK } else { FULL };
    // On a machine with one CPU, only the measurements of two CPUs are left out.
    let cpus = two_cpus().ok();
    let machine = Machine::look(cpu::pin()?);
    let sandbox = Sandbox::new()?;
    if arguments.l7 {
        let requests = requests::measure(&sandbox, cpus, arguments.quick)?;
        let mut parts = vec![text::facts(&machine), requests.text()];
        parts.extend(text::warnings(&machine.warnings()));
        print(&(parts.join("\n\n") + "\n"))?;
        return Ok(code(arguments, &requests.targets()));
    }
    if !arguments.only.is_empty() {
        let text = measure_only(&arguments.only, &sandbox, &machine, &extent, cpus)?;
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("measuring the cost of a packet ...");
    let cost = cost::measure(&sandbox, extent.cost)?;
    eprintln!("measuring frames over a wire ...");
    let live = live::measure(&sandbox, extent.live_rounds, extent.live_length)?;
    eprintln!("measuring what a flood of made-up sources does ...");
    let survival = survival::measure(&sandbox, extent.floods)?;
    eprintln!("measuring what it costs that nobody reads the events ...");
    let unread = events::measure(&sandbox, extent.events)?;
    eprintln!("measuring commands that edit a long list ...");
    let lists = lists::measure(&sandbox)?;
    let scaling = cpus.map(|cpus| {
        eprintln!("measuring what a second CPU adds ...");
        scaling::measure(&sandbox, cpus, extent.scaling, |_| true)
    });
    let scaling = scaling.transpose()?;
    let simulation = simulation::run();
    let quick = arguments.quick;
    let report =
        Report { machine, quick, cost, live, survival, unread, lists, scaling, simulation };
    if let Some(path) = &arguments.json {
        let json = format!("{:#}\n", report.json());
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(folder) = &arguments.plots {
        plot::write(&report, folder)?;
    }
    let mut text = report.text();
    if let Some(earlier) = &earlier {
        text += &format!("\n{}\n", earlier.beside(&report));
    }
    print(&text)?;
    Ok(code(arguments, &report.targets()))
}

fn print(text: &str) -> Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot print the figures")
}

fn code(arguments: &Arguments, targets: &[Target]) -> ExitCode {
    let met = targets.iter().all(Target::is_met);
    if met || !arguments.check { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures the cases that `only` selects, and returns their report as text.
fn measure_only(
    only: &[String],
    sandbox: &Sandbox,
    machine: &Machine,
    extent: &Extent,
    cpus: Option<[usize; 2]>,
) -> Result<String> {
    let (mut of_two, mut of_one) = (Vec::new(), Vec::new());
    for text in only.iter().filter(|text| ![SIMULATION, EVENTS, LISTS].contains(&text.as_str())) {
        match text.strip_prefix(scaling::PREFIX) {
            Some(rest) => of_two.push(rest),
            None => of_one.push(text.as_str()),
        }
    }
    let mut parts = vec![text::facts(machine)];
    if !of_one.is_empty() {
        let costs = cost::measure_only(sandbox, extent.cost, &of_one)?;
        parts.push(text::costs(&costs));
        parts.extend(text::warnings(&report::doubts(&costs)));
    }
    if !of_two.is_empty() {
        let cpus = cpus.context("there is one CPU, and rows of two are asked for")?;
        let wanted = |id: &str| of_two.iter().any(|text| id.starts_with(text));
        parts.push(scaling::measure(sandbox, cpus, extent.scaling, wanted)?.text());
    }
    if only.iter().any(|text| text == EVENTS) {
        parts.push(events::measure(sandbox, extent.events)?.text());
    }
    if only.iter().any(|text| text == LISTS) {
        parts.push(lists::measure(sandbox)?.text());
    }
    if only.iter().any(|text| text == SIMULATION) {
        parts.push(simulation::run().text());
    }
    parts.extend(text::warnings(&machine.warnings()));
    Ok(parts.join("\n\n") + "\n")
}
