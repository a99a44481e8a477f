//! What the bridge costs: decisions of its core alone, answers to proxies on one CPU, and what nginx waits for it.

mod decisions;
mod flood;
mod grpc;
mod http;
mod load;
mod nginx;
mod pushes;
mod server;
mod spop;

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use limiter_tests::{
    program::pin_to_cpu,
    sandbox::{Namespace, Sandbox},
};
use limiter_userspace::output::table::{Cell, Column, Table};
use tokio::{net::UnixStream, runtime::Builder};

use self::{
    decisions::Decisions,
    flood::Flood,
    grpc::Call,
    load::{Ask, Connection, drive},
    nginx::Waits,
    pushes::Pushes,
    server::{Folder, GRPC, HTTP, POLICY, SPOP, Server, bridge},
};
use super::{
    sample::median,
    tables::{figures, lines},
    target::Target,
    text,
};

/// What the bridge costs.
pub(crate) struct Requests {
    decisions: Decisions,
    rates: Vec<Rate>,
    waits: Waits,
    flood: Flood,
    pushes: Pushes,
}

/// A load, and what the bridge made of it.
struct Rate {
    name: &'static str,
    connections: usize,
    is_half: bool,
    /// Answers per second.
    rate: f64,
    /// The share of a CPU that the bridge took.
    cpu: f64,
    /// Microseconds until half of the answers, and until 99 % of them.
    latency: [f64; 2],
}

impl Rate {
    /// Answers per second of CPU time.
    fn of_cpu(&self) -> f64 {
        self.rate / self.cpu
    }
}

const AUTH: &str = "/v1/auth, HTTP";
const CALLS: &str = "ShouldRateLimit, gRPC";
const NOTIFIES: &str = "SPOP, 16 at once";

/// Measures all of it. This thread is on the CPU that is measured, and moves to the other one of these.
pub(crate) fn measure(
    sandbox: &Sandbox,
    cpus: Option<[usize; 2]>,
    quick: bool,
) -> Result<Requests> {
    let [other, _] = cpus.context("there is one CPU, and this takes two")?;
    let (samples, length, users) =
        if quick { (3, 900, 1_000_000) } else { (10, 3_600, 10_000_000) };
    let length = Duration::from_millis(length);
    eprintln!("measuring decisions ...");
    let decisions = decisions::measure(samples)?;
    let (network, folder) = (Namespace::new()?, Folder::new("known", POLICY)?);
    // The servers stay on the CPU of this thread.
    let server = bridge(sandbox, &network, &folder, &[])?;
    let nginx = nginx::start(sandbox, &network, &folder)?;
    let flooded = flood::start(sandbox, &network)?;
    let rounds = if quick { 5 } else { 15 };
    let floors = pushes::start(sandbox, rounds)?;
    pin_to_cpu(other).with_context(|| format!("cannot move to CPU {other}"))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    eprintln!("measuring answers ...");
    let rates = runtime.block_on(rates(&server, &folder, length))?;
    eprintln!("measuring nginx ...");
    let waits = runtime.block_on(nginx::measure(&network, length))?;
    drop(nginx);
    eprintln!("measuring made-up users ...");
    let flood = runtime.block_on(flood::measure(&flooded, users, length))?;
    eprintln!("measuring pushes ...");
    let pushes = floors.measure(rounds)?;
    Ok(Requests { decisions, rates, waits, flood, pushes })
}

async fn rates(server: &Server, folder: &Folder, length: Duration) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for connections in [1, 16, 64] {
        let path = folder.path(HTTP);
        let mut askers = Vec::new();
        for _ in 0..connections {
            askers.push(connect(&path, http::auth, http::answer).await?);
        }
        rates.extend(full_and_half(server, AUTH, askers, length).await?);
    }
    let calls = vec![Call::connect(&folder.path(GRPC)).await?; 64];
    rates.extend(full_and_half(server, CALLS, calls, length).await?);
    let mut engines = Vec::new();
    for _ in 0..4 {
        let mut engine = connect(&folder.path(SPOP), spop::hello, spop::answer).await?;
        engine.ask(0).await?;
        engine.write = spop::questions;
        engines.push(engine);
    }
    rates.extend(full_and_half(server, NOTIFIES, engines, length).await?);
    Ok(rates)
}

async fn connect(
    path: &Path,
    write: fn(u64, &mut Vec<u8>) -> u64,
    read: fn(&[u8]) -> Result<Option<usize>>,
) -> Result<Connection<UnixStream>> {
    let stream = UnixStream::connect(path).await.context("cannot connect to the bridge")?;
    Ok(Connection { stream, write, read, buffer: Vec::new() })
}

/// As fast as the bridge answers, and then half as fast.
async fn full_and_half<A: Ask + Send>(
    server: &Server,
    name: &'static str,
    mut askers: Vec<A>,
    length: Duration,
) -> Result<[Rate; 2]> {
    let connections = askers.len();
    // The first answers find caches cold.
    drive(&mut askers, length / TURNS, None).await?;
    let mut questions = None;
    let mut measure = async || {
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            let before = server.cpu_time()?;
            let seen = drive(&mut askers, length / TURNS, questions).await?;
            let cpu = (server.cpu_time()? - before).as_secs_f64() / seen.time.as_secs_f64();
            let latency = [0.5, 0.99].map(|share| seen.latency(share));
            turns.push([seen.rate(), cpu, latency[0], latency[1], seen.questions()]);
        }
        let [rate, cpu, p50, p99, asked] = medians(&turns);
        let is_half = questions.is_some();
        questions = Some(asked / 2.0);
        anyhow::Ok(Rate { name, connections, is_half, rate, cpu, latency: [p50, p99] })
    };
    Ok([measure().await?, measure().await?])
}

/// Turns of a load, of which the median is taken: other work on the machine disturbs some of them.
const TURNS: u32 = 9;

/// The medians of the figures of turns.
fn medians<const N: usize>(turns: &[[f64; N]]) -> [f64; N] {
    std::array::from_fn(|at| median(&turns.iter().map(|turn| turn[at]).collect::<Vec<_>>()))
}

impl Requests {
    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let Decisions { costs, users, growth } = &self.decisions;
        let costs = costs.iter().map(|(name, figure)| (*name, *figure));
        let decisions = figures(["decision of the core", "ns"], 0, costs);
        let memory = format!(
            "{} million made-up users: the process grew by {} KiB.",
            users / 1_000_000,
            growth >> 10
        );
        [
            decisions + "\n" + &memory,
            self.rate_table() + "\n" + RATE_NOTES,
            self.waits.text(),
            self.flood.text(),
            self.pushes.text(),
            text::targets(&self.targets()),
        ]
        .join("\n\n")
    }

    fn rate_table(&self) -> String {
        let mut table = Table::new([
            Column::left("answers of the bridge"),
            Column::right("askers"),
            Column::left("load"),
            Column::right("answers/s"),
            Column::right("CPU"),
            Column::right("per CPU second"),
            Column::right("p50 µs"),
            Column::right("p99 µs"),
        ]);
        for at in &self.rates {
            table.row([
                Cell::from(at.name),
                at.connections.to_string().into(),
                if at.is_half { "half" } else { "full" }.into(),
                format!("{:.0}", at.rate).into(),
                format!("{:.0} %", 100.0 * at.cpu).into(),
                format!("{:.0}", at.of_cpu()).into(),
                format!("{:.0}", at.latency[0]).into(),
                format!("{:.0}", at.latency[1]).into(),
            ]);
        }
        lines(&table)
    }

    /// The targets, with the measured figures.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let of = |name: &str, is_half: bool| {
            self.rates.iter().rfind(|at| at.name == name && at.is_half == is_half)
        };
        let rate = |name| of(name, false).map_or(f64::NAN, Rate::of_cpu);
        let half = of(AUTH, true).map_or(f64::NAN, |at| at.latency[1] / 1e3);
        let decisions = self.decisions.costs.first().map_or(f64::NAN, |(_, it)| 1e3 / it.median);
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (growth, flooded) = (mebibytes(self.decisions.growth), mebibytes(self.flood.growth()));
        let [p50, p99] = self.waits.added();
        let row =
            |name, measured, (least, bound), unit| Target { name, unit, measured, bound, least };
        let (at_least, at_most) = (|bound| (true, bound), |bound| (false, bound));
        vec![
            row("decisions of the core, of known sources", decisions, at_least(10.0), " M/s"),
            row("growth by made-up users", growth, at_most(1.0), " MiB"),
            row("/v1/auth of one CPU of the bridge", rate(AUTH), at_least(100_000.0), "/s"),
            row("p99 of /v1/auth at half load", half, at_most(1.0), " ms"),
            row("ShouldRateLimit of one CPU of the bridge", rate(CALLS), at_least(60_000.0), "/s"),
            row("p50 added by auth_request of nginx", p50, at_most(100.0), " µs"),
            row("p99 added by auth_request of nginx", p99, at_most(1_000.0), " µs"),
            row(
                "p99 beside made-up users against others",
                self.flood.slowdown(),
                at_most(1.5),
                "x",
            ),
            row("growth of the bridge by made-up users", flooded, at_most(1.0), " MiB"),
            row("first push of an instance", self.pushes.first, at_most(50.0), " ms"),
            row("429 ignored until dropped", self.pushes.ignored, at_most(50.0), " ms"),
            row("pushes of the agent", self.pushes.many, at_least(10_000.0), "/s"),
        ]
    }
}

const RATE_NOTES: &str = "\
The bridge is on one CPU, and who asks on another. Full: each asker waits for its answer and asks again.
Half: half as many, evenly; time counts from when a question was due. Per CPU second: answers in a second
of CPU time of the bridge, which other work on the machine does not change much. Targets take that of the
most askers. Figures are medians of nine turns.";
