//! Measures parts of the path of a packet by themselves. No exact limiter can do without them, so they are
//! the lower bound to compare its cost with.

use anyhow::Result;
use limiter_userspace::datapath::bpffs::Pins;
use serde_json::{Value, json};

use super::{
    batch,
    load::{Load, NOP, PART_ADD, PART_CLOCK, PART_PARSE},
    place::Place,
    sample::Figure,
    tables::figures,
};

/// The parts: program, id in JSON, and name in the report.
const PARTS: [(&str, &str, &str); 3] = [
    (PART_CLOCK, "clock", "reading the precise clock"),
    (PART_ADD, "atomic", "one atomic addition"),
    (PART_PARSE, "parse", "reading the headers"),
];

/// The cost of one part.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    id: &'static str,
    name: &'static str,
    /// Nanoseconds per packet over a program that does nothing.
    over: Figure,
}

/// Measures all parts on the maps of an instance, with `samples` samples of each.
pub(crate) fn measure(
    pins: &Pins,
    places: &mut [Place; 2],
    frame: &[u8],
    samples: usize,
) -> Result<Vec<Part>> {
    let measure = |(program, id, name)| {
        let mut load = Load::new(pins, 0, &[program])?;
        let mut baseline = Load::new(pins, 0, &[NOP])?;
        let [place, place_baseline] = &mut *places;
        let held = place.take(load.program_mut(program)?)?;
        let held_baseline = place_baseline.take(baseline.program_mut(NOP)?)?;
        let nanoseconds = |load: &Load, program, runs| -> Result<f64> {
            Ok(batch::run(load.program(program)?, frame, runs)?.per_run(runs))
        };
        let runs = batch::calibrate(|runs| batch::run(load.program(program)?, frame, runs))?;
        let mut over = Vec::new();
        for _ in 0..samples {
            let before = nanoseconds(&baseline, NOP, runs)?;
            let part = nanoseconds(&load, program, runs)?;
            let after = nanoseconds(&baseline, NOP, runs)?;
            over.push(part - f64::midpoint(before, after));
        }
        place.leave(load.program_mut(program)?, held)?;
        place_baseline.leave(baseline.program_mut(NOP)?, held_baseline)?;
        Ok(Part { id, name, over: Figure::of(&over) })
    };
    PARTS.into_iter().map(measure).collect()
}

impl Part {
    /// The part as JSON.
    pub(crate) fn json(&self) -> Value {
        let Self { id, name, over } = self;
        json!({
            "id": id, "name": name,
            "over_nop_ns": { "median": over.median, "spread": over.spread },
        })
    }
}

/// The parts as text.
pub(crate) fn text(parts: &[Part]) -> String {
    let rows = parts.iter().map(|part| (part.name, part.over));
    figures(["parts of it alone", "ns over nop"], 1, rows) + "\n" + NOTES
}

const NOTES: &str = "\
What a packet of a source with one limit takes at least: its headers are read, the bucket is moved by an
atomic instruction, and another counts it under its source; a shallow bucket takes the precise clock.";
