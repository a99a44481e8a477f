//! Plots of the figures of a run, as SVG.

mod bars;
mod curves;
mod svg;

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

use self::{
    bars::{Bar, Bars},
    curves::{Curve, Curves, Tick},
};
use super::{
    case::{REFERENCE, binary},
    contest::Contest,
    report::Report,
    setting::Setting,
    simulation::{CPUS, Load},
};

/// Colours that most people can tell apart, and that stand out from white.
const BLUE: &str = "#0072b2";
const ORANGE: &str = "#d55e00";
const GREEN: &str = "#00805c";
const GREY: &str = "#8c8c8c";
/// Colour of text and axes.
const INK: &str = "#222222";
/// Colour of the grid.
const FAINT: &str = "#dddddd";

/// Makes the folder for the plots before anything is measured, so that a bad path is reported at once.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).or_else(|error| {
        let folder = folder.display();
        bail!("cannot make the folder {folder}: {error}; give --plots one that you may write to")
    })
}

/// Writes all plots of a run into an existing folder.
pub(crate) fn write(report: &Report, folder: &Path) -> Result<()> {
    for (name, picture) in pictures(report) {
        let path = folder.join(name);
        fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The file names and contents of the plots.
fn pictures(report: &Report) -> [(&'static str, String); 5] {
    let fact = |name| report.machine.fact(name).unwrap_or("unknown");
    let caption = format!("{}, Linux {}, {}", fact("cpu"), fact("kernel"), fact("date"));
    [
        ("cost.svg", costs(report, &caption).draw()),
        ("wire.svg", wires(report, &caption).draw()),
        ("survival.svg", survival(report, &caption).draw()),
        ("tracked.svg", tracked(report, &caption).draw()),
        ("cpus.svg", cpus(report).draw()),
    ]
}

fn costs<'a>(report: &'a Report, caption: &'a str) -> Bars<'a> {
    let bar = |cost: &'a super::test_bed::Cost| Bar {
        name: &cost.case.name,
        figure: cost.over.median,
        label: format!("{:.0}", cost.over.median),
        colour: if cost.case.id == REFERENCE { ORANGE } else { BLUE },
    };
    let title = "Cost of a packet, ns over a program that does nothing";
    Bars { title, caption, bars: report.cost.costs.iter().map(bar).collect() }
}

fn wires<'a>(report: &'a Report, caption: &'a str) -> Bars<'a> {
    let bar = |live: &super::live::Throughput| Bar {
        name: live.contest.name(),
        figure: live.rate.median / 1e6,
        label: format!("{:.2}", live.rate.median / 1e6),
        colour: match live.contest {
            Contest::Over | Contest::LongOver | Contest::Within => ORANGE,
            Contest::Peer(_) => BLUE,
            Contest::Drop | Contest::Pass => GREY,
        },
    };
    let title = "Frames over a veth pair, one CPU that sends and receives, Mpps";
    Bars { title, caption, bars: report.live.iter().map(bar).collect() }
}

fn survival<'a>(report: &Report, caption: &'a str) -> Curves<'a> {
    let curve = |name, colour, dashes, points: Vec<(f64, f64)>| Curve {
        name,
        colour,
        dashes,
        points: points.into_iter().map(|(flood, share)| (flood, 100.0 * share)).collect(),
    };
    let survival = &report.survival;
    let tick = |flood: f64| Tick { at: flood, label: format!("{flood}") };
    Curves {
        title: "Established sources under a flood of made-up ones, %",
        caption,
        below: "made-up sources, in times the 65,536 that the table has room for",
        least_top: 100.0,
        ticks: survival.rounds.iter().map(|round| tick(round.flood)).collect(),
        curves: vec![
            curve("lost their state", ORANGE, "", survival.curve(|round| round.lost)),
            curve("wrongly refused", BLUE, "9 5", survival.curve(|round| round.refused)),
            curve(
                "wrongly refused, fast limit",
                GREEN,
                "2 5",
                survival.curve(|round| round.refused_fast),
            ),
        ],
    }
}

fn tracked<'a>(report: &Report, caption: &'a str) -> Curves<'a> {
    let costs = report.cost.costs.iter().filter_map(|cost| match cost.case.setting {
        Setting::Tracked(number) => Some((number, cost.over.median)),
        _ => None,
    });
    let costs: Vec<_> = costs.collect();
    let tick = |number: u32| Tick { at: number.into(), label: binary(number) };
    let points = costs.iter().map(|(number, cost)| (f64::from(*number), *cost)).collect();
    Curves {
        title: "Cost of a packet, ns, by the number of tracked sources",
        caption,
        below: "sources, all known, which come at random",
        least_top: 0.0,
        ticks: costs.iter().map(|(number, _)| tick(*number)).collect(),
        curves: vec![Curve {
            name: "over a program that makes the same sources",
            colour: BLUE,
            dashes: "",
            points,
        }],
    }
}

fn cpus(report: &Report) -> Curves<'_> {
    let curve = |(load, points): (Load, _)| {
        let (colour, dashes) = match load {
            Load::Hot => (ORANGE, ""),
            Load::Known => (BLUE, ""),
            Load::MadeUp => (GREEN, "2 5"),
            Load::All => (GREY, "9 5"),
        };
        Curve { name: load.name(), colour, dashes, points }
    };
    Curves {
        title: "Packets of each CPU by the number of CPUs, Mpps, simulated",
        caption: "any CPU gets any packet, and a cache line moves from one to another in 100 ns",
        below: "CPUs",
        least_top: 0.0,
        ticks: CPUS.map(|at| Tick { at: at.into(), label: at.to_string() }).into(),
        curves: report.simulation.curves().map(curve).collect(),
    }
}
