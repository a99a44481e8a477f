//! The demonstration of requests: clients, nginx, the bridge, the agent and the kernel.
//!
//! nginx runs with the configuration that `limiter bridge config nginx` prints, in front of a small service. A client that
//! ignores 429 is to be blocked in the kernel, and nobody else.

mod clients;
mod report;
mod services;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use limiter_userspace::output::{
    stream::{Output, OutputError},
    tone::Tone,
};

use self::{
    clients::{Client, Tally, clients},
    report::Report,
    services::{Services, write},
};
use crate::{
    ending::Ending,
    interrupt,
    stage::{GLANCE, Stage},
};

/// Two requests a second for each source, five at once. Who goes on for two seconds after 429 is blocked.
const POLICY: &str = "version: 1
limits:
  - name: login
    on: requests
    match: { path: /login }
    key: source
    algorithm: leaky_bucket
    rate: 2/s
    depth: 5
    penalty: { after: 2s, block: 1h }
  - { name: packets, key: source, rate: 10k pps }
";
/// The least time in which a client can be blocked and be seen to be dropped, with some to spare.
const LEAST: Duration = Duration::from_secs(5);

/// Runs the demonstration for `length`.
pub(crate) fn run(stage: &Stage, length: Duration, output: &mut Output) -> Result<Ending> {
    ensure!(
        length >= LEAST,
        "--l7 takes {} s at least: a client is blocked after 2 s; give a longer --seconds",
        LEAST.as_secs()
    );
    let clients = clients(stage)?;
    introduce(output)?;
    write(stage, "policy.yaml", POLICY)?;
    let services = Services::start(stage, output)?;
    let footprint = stage.footprint()?;
    let report = compete(stage, &services, &clients, length, output)?;
    if let Some(report) = &report {
        report.print(output)?;
    }
    drop(services);
    stage.limiter("detach --all", output)?;
    footprint.assert_gone()?;
    let Some(report) = report else {
        writeln!(output, "\nStopped. Nothing is left of it.")?;
        return Ok(Ending::Interrupted);
    };
    advise(output)?;
    Ok(if report.is_exact() { Ending::Exact } else { Ending::Off })
}

/// Has all clients send requests at once. Returns `None` if the user asks to end.
fn compete(
    stage: &Stage,
    services: &Services,
    clients: &[Client],
    length: Duration,
    output: &mut Output,
) -> Result<Option<Report>> {
    writeln!(output, "\nThree clients ask for /login for {} s:", length.as_secs())?;
    output.flush()?;
    let start = Instant::now();
    let mut blocked = BTreeMap::new();
    let tallies = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|client| scope.spawn(move || client.run(stage, start + length)))
            .collect();
        let mut is_running = true;
        while is_running {
            thread::sleep(GLANCE);
            // Asked first, so that what was told before the last one ended is read.
            is_running = threads.iter().any(|thread| !thread.is_finished());
            for peer in services.blocks() {
                // While the first block is on its way, another one may be asked for.
                if let Entry::Vacant(vacant) = blocked.entry(peer) {
                    let after = *vacant.insert(start.elapsed());
                    writeln!(
                        output,
                        "  {:.1} s  {peer} is blocked in the kernel",
                        after.as_secs_f64()
                    )?;
                    output.flush()?;
                }
            }
        }
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<Tally>>>()
    })?;
    if interrupt::is_asked() {
        return Ok(None);
    }
    Report::new(stage, clients, tallies, &blocked).map(Some)
}

fn introduce(output: &mut Output) -> Result<(), OutputError> {
    writeln!(output)?;
    output.toned(Tone::Strong, "Three clients, nginx, and limiter below and beside it")?;
    writeln!(output, "\n")?;
    writeln!(output, "  clients ──▶ XDP, limiter agent ──▶ nginx ──▶ service")?;
    writeln!(output, "                     ▲                  │")?;
    writeln!(output, "                     └─ limiter bridge ◀┘")?;
    writeln!(output, "\npolicy.yaml:")?;
    POLICY.lines().try_for_each(|line| writeln!(output, "  {line}"))
}

/// Prints how to do the same on a real host.
fn advise(output: &mut Output) -> Result<(), OutputError> {
    writeln!(
        output,
        "\nOn a real host, with the packages, once the agent has its control socket (docs/l7.md, \"Up and down\"):"
    )?;
    for command in [
        "sudo systemctl enable --now limiter limiter-bridge",
        "limiter bridge config nginx",
        "sudo limiter penalty list",
    ] {
        writeln!(output, "  {command}")?;
    }
    Ok(())
}
