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
mod stub;
mod turns;

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
    stub::Stub,
    turns::{Figures, TURN, Turns},
};
use super::{
    machine::stolen,
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
    /// What the hypervisor took of all CPUs while answers and made-up users were measured.
    stolen: Option<Duration>,
}

/// A load, and what the bridge made of it.
struct Rate {
    name: &'static str,
    connections: usize,
    is_half: bool,
    seen: Figures,
}

impl Rate {
    /// Answers per second of CPU time.
    fn of_cpu(&self) -> f64 {
        self.seen.rate / self.seen.cpu
    }
}

const AUTH: &str = "/v1/auth, HTTP";
const CALLS: &str = "ShouldRateLimit, gRPC";
const STUB: &str = "a stub, HTTP";
const NOTIFIES: &str = "SPOP, 16 at once";
/// The most askers of a load.
const MOST: usize = 64;

/// Measures all of it. This thread is on the CPU that is measured, and moves to the other one of these.
pub(crate) fn measure(
    sandbox: &Sandbox,
    cpus: Option<[usize; 2]>,
    quick: bool,
) -> Result<Requests> {
    let [other, _] = cpus.context("there is one CPU, and this takes two")?;
    let (samples, turns, users) = if quick { (3, 9, 1_000_000) } else { (10, 36, 10_000_000) };
    eprintln!("measuring decisions ...");
    let decisions = decisions::measure(samples)?;
    let (network, folder) = (Namespace::new()?, Folder::new("known", POLICY)?);
    // The servers stay on the CPU of this thread.
    let server = bridge(sandbox, &network, &folder, &[])?;
    let stub = Stub::start(&folder)?;
    let nginx = nginx::start(sandbox, &network, &folder)?;
    let flooded = flood::start(sandbox, &network)?;
    let rounds = if quick { 5 } else { 15 };
    let floors = pushes::start(sandbox, rounds)?;
    pin_to_cpu(other).with_context(|| format!("cannot move to CPU {other}"))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let before = stolen();
    eprintln!("measuring answers ...");
    let rates = runtime.block_on(rates((&server, &stub), &folder, turns))?;
    eprintln!("measuring nginx ...");
    let waits = runtime.block_on(nginx::measure(&network, turns))?;
    drop(nginx);
    eprintln!("measuring made-up users ...");
    let flood = runtime.block_on(flood::measure(&flooded, users, turns))?;
    let stolen = stolen().zip(before).map(|(after, before)| after.saturating_sub(before));
    eprintln!("measuring pushes ...");
    let pushes = floors.measure(rounds)?;
    Ok(Requests { decisions, rates, waits, flood, pushes, stolen })
}

async fn rates(
    (server, stub): (&Server, &Stub),
    folder: &Folder,
    turns: usize,
) -> Result<Vec<Rate>> {
    let mut rates = Vec::new();
    for connections in [1, 16] {
        let askers = askers(&folder.path(HTTP), connections, http::auth, http::answer).await?;
        rates.extend(full_and_half(server, AUTH, askers, None, turns).await?);
    }
    // The load that has a target, beside the stub.
    let auth = askers(&folder.path(HTTP), MOST, http::auth, http::answer).await?;
    let others = askers(&folder.path(stub::SOCKET), MOST, http::auth, http::answer).await?;
    rates.extend(full_and_half(server, AUTH, auth, Some((stub, others)), turns).await?);
    let calls = vec![Call::connect(&folder.path(GRPC)).await?; MOST];
    rates.extend(full_and_half(server, CALLS, calls, None, turns).await?);
    let mut engines = Vec::new();
    for _ in 0..4 {
        let mut engine = connect(&folder.path(SPOP), spop::hello, spop::answer).await?;
        engine.ask(0).await?;
        engine.write = spop::questions;
        engines.push(engine);
    }
    rates.extend(full_and_half(server, NOTIFIES, engines, None, turns).await?);
    Ok(rates)
}

/// So many connections with a server, whose requests `write` writes and whose answers `read` finds.
async fn askers(
    socket: &Path,
    connections: usize,
    write: fn(u64, &mut Vec<u8>) -> u64,
    read: fn(&[u8]) -> Result<Option<usize>>,
) -> Result<Vec<Connection<UnixStream>>> {
    let mut askers = Vec::new();
    for _ in 0..connections {
        askers.push(connect(socket, write, read).await?);
    }
    Ok(askers)
}

async fn connect(
    path: &Path,
    write: fn(u64, &mut Vec<u8>) -> u64,
    read: fn(&[u8]) -> Result<Option<usize>>,
) -> Result<Connection<UnixStream>> {
    let stream = UnixStream::connect(path).await.context("cannot connect to the bridge")?;
    Ok(Connection { stream, write, read, buffer: Vec::new() })
}

/// As fast as the bridge answers, and then half as fast, in turns with the stub if that is asked as well.
async fn full_and_half<A: Ask + Send>(
    server: &Server,
    name: &'static str,
    mut askers: Vec<A>,
    mut beside: Option<(&Stub, Vec<A>)>,
    turns: usize,
) -> Result<Vec<Rate>> {
    let connections = askers.len();
    // The first answers find caches cold.
    drive(&mut askers, TURN, None).await?;
    let [mut full, mut half, mut of_stub] = [const { Turns::new() }; 3];
    for _ in 0..turns {
        full.turn(server, &mut askers, None).await?;
    }
    let full = full.figures();
    let rate = Some(full.questions / 2.0);
    for _ in 0..turns {
        half.turn(server, &mut askers, rate).await?;
        if let Some((stub, askers)) = &mut beside {
            of_stub.turn(*stub, askers, rate).await?;
        }
    }
    let rate = |name, is_half, seen| Rate { name, connections, is_half, seen };
    let mut rates = vec![rate(name, false, full), rate(name, true, half.figures())];
    rates.extend(beside.map(|_| rate(STUB, true, of_stub.figures())));
    Ok(rates)
}

impl Requests {
    /// The report as text.
    pub(crate) fn text(&self) -> String {
        let Decisions { costs, users, growth, single } = &self.decisions;
        let costs = costs.iter().map(|(name, figure)| (*name, *figure));
        let decisions = figures(["decision of the core", "ns"], 0, costs);
        let memory = format!(
            "{} million made-up users: the process grew by {} KiB.",
            users / 1_000_000,
            growth >> 10
        );
        let stolen = self.stolen.map_or_else(String::new, |stolen| {
            format!(
                "\nThe hypervisor took {} ms of all CPUs until the end of made-up users.",
                stolen.as_millis()
            )
        });
        let mut table = Table::new([
            Column::left("single decisions"),
            Column::right("p50 ns"),
            Column::right("p99 ns"),
            Column::right("p99.9 ns"),
            Column::right("p99.99 ns"),
        ]);
        for (name, [p50, p99, p999, p9999]) in single {
            let [p50, p99, p999, p9999] =
                [p50, p99, p999, p9999].map(|it| format!("{it:.0}").into());
            table.row([Cell::from(*name), p50, p99, p999, p9999]);
        }
        [
            decisions + "\n" + &memory,
            lines(&table) + "\n" + SINGLE_NOTES,
            self.rate_table() + "\n" + RATE_NOTES + &stolen,
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
            Column::right("quartiles"),
            Column::right("p99 of all"),
            Column::right("waited"),
            Column::right("askers waited"),
        ]);
        for at in &self.rates {
            let Figures { rate, cpu, p50, p99, quartiles: [low, high], p99_of_all, waited, .. } =
                at.seen;
            let [waited, askers_waited] = waited.map(|share| format!("{:.1} %", 100.0 * share));
            table.row([
                Cell::from(at.name),
                at.connections.to_string().into(),
                if at.is_half { "half" } else { "full" }.into(),
                format!("{rate:.0}").into(),
                format!("{:.0} %", 100.0 * cpu).into(),
                format!("{:.0}", at.of_cpu()).into(),
                format!("{p50:.0}").into(),
                format!("{p99:.0}").into(),
                format!("{low:.0} to {high:.0}").into(),
                format!("{p99_of_all:.0}").into(),
                waited.into(),
                askers_waited.into(),
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
        let half = of(AUTH, true).map_or(f64::NAN, |at| at.seen.p99 / 1e3);
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
                "p99 beside made-up users against others, in quiet turns",
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

const SINGLE_NOTES: &str = "\
A million decisions of two limits, one by one, as if 70,000 came in a second. Each has the reading of a clock in it. Made-up users
owe for an hour, and have their share of all sets.";

const RATE_NOTES: &str = "\
The bridge is on one CPU, and who asks on another. Full: each asker waits for its answer and asks again.
Half: half as many, evenly; time counts from when a question was due. Per CPU second: answers in a second
of CPU time of the bridge, which other work on the machine does not change much. Targets take that of the
most askers. Figures are medians of turns of 100 ms. Quartiles: of the p99 of the turns. p99 of all: of all
turns together. Waited: the part of the time that the server was ready to run while other work had its
CPU, and the same of the thread that asks. The stub is a server that answers the same load at once, in
turns with the bridge. What its p99 has comes from the machine and the askers.";
