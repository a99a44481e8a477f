//! What a second CPU adds: the rate of two that run the limiter at once, against one alone.

use std::{sync::Barrier, thread};

use anyhow::{Context as _, Result, anyhow};
use aya::programs::Xdp;
use limiter_tests::{
    packet::Frame,
    program::pin_to_cpu,
    sandbox::{BPFFS, Sandbox},
    topology::Host,
};
use limiter_userspace::datapath::{
    bpffs::Pins,
    instance::Instance,
    program::{Clock, Program},
};
use serde_json::{Value, json};

use super::{
    batch,
    load::{Load, NOP},
    place::Place,
    sample::Figure,
    setting::Setting,
    text::figures,
};

/// How many times as many packets two CPUs take as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scaling {
    /// A program that does nothing: what the machine gives.
    pub(crate) nop: Figure,
    /// Within the limit, each CPU with a source of its own.
    pub(crate) apart: Figure,
    /// Both with one source, which is over its limit.
    pub(crate) over: Figure,
}

/// Measures it on these CPUs, so many times.
pub(crate) fn measure(sandbox: &Sandbox, cpus: [usize; 2], times: usize) -> Result<Scaling> {
    let host = Host::new(sandbox, "scaling")?;
    host.ip("link add scaling type veth peer name other\n")?;
    sandbox.inside(&host.namespace, || {
        let mut place = Place::new("scaling")?;
        let frame = |last| Frame::udp([10, 0, 0, last], [198, 51, 100, 1], 40_000, 53).padded();
        let frames = [1, 2].map(|last| frame(last).build());
        let [one, other] = frames;
        let same = [one.clone(), one.clone()];
        let apart = [one, other];
        let nop = with_instance(Setting::Source, |pins| {
            let mut load = Load::new(pins, 0, &[NOP])?;
            let nop = load.program_mut(NOP)?;
            let held = place.take(nop)?;
            let figure = scale(nop, &apart, cpus, times)?;
            place.leave(nop, held)?;
            Ok(figure)
        })?;
        let mut limiter = |setting, frames| {
            with_instance(setting, |pins| {
                let mut program = Program::load(pins, 0, false, Clock::Monotonic)?;
                let program = program.xdp()?;
                let held = place.take(program)?;
                let figure = scale(program, frames, cpus, times)?;
                place.leave(program, held)?;
                Ok(figure)
            })
        };
        Ok(Scaling {
            nop,
            apart: limiter(Setting::Source, &apart)?,
            over: limiter(Setting::Over, &same)?,
        })
    })?
}

fn with_instance<T>(setting: Setting, work: impl FnOnce(&Pins) -> Result<T>) -> Result<T> {
    let pins = Pins::new(format!("{BPFFS}/scaling-{}", setting.directory()));
    let instance = Instance::open_or_create(&pins, &setting.sizes(), &setting.policy()?, None)?;
    let result = work(&pins);
    instance.close()?;
    result
}

/// The rate of both CPUs at once, against that of the second alone right before.
fn scale(program: &Xdp, frames: &[Vec<u8>; 2], cpus: [usize; 2], times: usize) -> Result<Figure> {
    let runs = batch::calibrate(|runs| batch::run(program, &frames[1], runs))?;
    // Long enough for both to begin within a small part of it.
    let runs = runs * 8;
    let rate = |number: usize| -> Result<f64> {
        let time = batch::run(program, &frames[number], runs)?.time;
        Ok(f64::from(runs) / time.as_secs_f64())
    };
    let mut scales = Vec::new();
    for _ in 0..times {
        let alone = rate(1)?;
        let start = Barrier::new(2);
        let both: Result<f64> = thread::scope(|scope| {
            let runner = |number: usize| {
                let (rate, start) = (&rate, &start);
                move || {
                    let pinned = pin_to_cpu(cpus[number]);
                    start.wait();
                    pinned.context("cannot go to another CPU")?;
                    rate(number)
                }
            };
            let threads = [0, 1].map(|number| scope.spawn(runner(number)));
            let rates = threads.map(|thread| {
                thread.join().map_err(|_| anyhow!("a thread that measures has panicked"))?
            });
            rates.into_iter().sum()
        });
        scales.push(both? / alone);
    }
    Ok(Figure::of(&scales))
}

impl Scaling {
    fn rows(&self) -> [(&'static str, &'static str, Figure); 3] {
        [
            ("nop", "a program that does nothing", self.nop),
            ("apart", "known sources, one limit, a source for each CPU", self.apart),
            ("over", "one source over its limit, on both CPUs", self.over),
        ]
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        figures(["two CPUs", "times one"], 2, self.rows().map(|(_, name, figure)| (name, figure)))
    }

    /// For a script.
    pub(crate) fn json(&self) -> Value {
        let row = |(id, name, figure): (&str, &str, Figure)| {
            let Figure { median, spread, .. } = figure;
            json!({ "id": id, "name": name, "times_one": median, "spread": spread })
        };
        self.rows().map(row).into()
    }
}
