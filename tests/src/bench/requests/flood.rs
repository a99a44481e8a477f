//! Made-up users, one for each request: what they cost those who ask beside them, and the memory of the bridge.

use std::time::Duration;

use anyhow::Result;
use limiter_tests::sandbox::{Namespace, Sandbox};

use super::{
    TURNS, connect, http,
    load::{Connection, drive},
    medians,
    server::{Folder, HTTP, Server, bridge},
};

/// A limit of known sources, and one by which each made-up user owes for an hour.
const POLICY: &str = "version: 1
attributes: { user: { header: x-user-id } }
limits:
  - { name: known, on: requests, key: source, rate: 1000000/s, burst: 1000000 }
  - { name: user, on: requests, key: user, rate: 1/h, burst: 1 }
";
/// The connections of those who ask about known sources, and of the others.
const CONNECTIONS: usize = 32;
/// How long made-up users ask until it is counted how many came.
const TURN: Duration = Duration::from_millis(500);

/// What made-up users did.
pub(super) struct Flood {
    /// How many came.
    pub(super) users: u64,
    /// Answers to them per second of CPU time of the bridge.
    pub(super) rate: f64,
    /// Bytes of the memory of the bridge: before them, and after them.
    pub(super) memory: [u64; 2],
    /// Microseconds until 99 % of the answers about known sources: beside others, and beside made-up users.
    pub(super) latency: [f64; 2],
}

impl Flood {
    /// The latency beside made-up users, in units of that beside others.
    pub(super) fn slowdown(&self) -> f64 {
        let [others, made_up] = self.latency;
        made_up / others
    }

    /// Bytes by which the memory of the bridge grew.
    pub(super) fn growth(&self) -> u64 {
        let [before, after] = self.memory;
        after.saturating_sub(before)
    }

    /// The report as text.
    pub(super) fn text(&self) -> String {
        let ([before, after], [others, made_up]) = (self.memory.map(|it| it >> 10), self.latency);
        format!(
            "{} million made-up users asked /v1/auth, {:.0} in a CPU second of the bridge.\n\
             Memory of the bridge: {before} KiB before them, {after} KiB after them.\n\
             p99 of known sources, at half load: {others:.0} µs beside others, {made_up:.0} µs beside made-up users.",
            self.users / 1_000_000,
            self.rate
        )
    }
}

/// Starts a bridge on the CPU of this thread.
pub(super) fn start(sandbox: &Sandbox, network: &Namespace) -> Result<(Server, Folder)> {
    let folder = Folder::new("flood", POLICY)?;
    Ok((bridge(sandbox, network, &folder, &[])?, folder))
}

type Askers = Vec<Connection<tokio::net::UnixStream>>;

/// Has so many made-up users ask. `length` is that of a measurement of latency.
pub(super) async fn measure(
    (server, folder): &(Server, Folder),
    users: u64,
    length: Duration,
) -> Result<Flood> {
    // The bridge ends connections that are silent for long, so each measurement has its own.
    let (known, made_up) = (|| askers(folder, http::auth), || askers(folder, http::made_up));
    let full = drive(&mut known().await?, length / TURNS, None).await?;
    // Half of the load, in two halves.
    let rate = full.questions() / 4.0;
    let beside = latency([known().await?, known().await?], rate, length).await?;
    let mut made_up_askers = made_up().await?;
    // The first answers fill the buffers of connections, which last as long as those.
    drive(&mut made_up_askers, TURN, None).await?;
    let (memory, cpu, mut came) = (server.resident()?, server.cpu_time()?, 0);
    while came < users {
        came += drive(&mut made_up_askers, TURN, None).await?.answers;
    }
    let cpu = (server.cpu_time()? - cpu).as_secs_f64();
    let memory = [memory, server.resident()?];
    let beside_made_up = latency([known().await?, made_up().await?], rate, length).await?;
    let latency = [beside, beside_made_up];
    Ok(Flood { users: came, rate: came as f64 / cpu, memory, latency })
}

async fn askers(folder: &Folder, write: fn(u64, &mut Vec<u8>) -> u64) -> Result<Askers> {
    let mut askers = Askers::new();
    for _ in 0..CONNECTIONS {
        askers.push(connect(&folder.path(HTTP), write, http::any).await?);
    }
    Ok(askers)
}

/// Microseconds until 99 % of the answers about known sources, the first ones, while the others ask as often.
async fn latency([mut known, mut others]: [Askers; 2], rate: f64, length: Duration) -> Result<f64> {
    let mut turns = Vec::new();
    for _ in 0..TURNS {
        let length = length / TURNS;
        let (seen, others) = tokio::join!(
            drive(&mut known, length, Some(rate)),
            drive(&mut others, length, Some(rate))
        );
        others?;
        turns.push([seen?.latency(0.99)]);
    }
    let [p99] = medians(&turns);
    Ok(p99)
}
