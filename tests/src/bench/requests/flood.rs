//! Made-up users, one for each request: what they cost those who ask beside them, and the memory of the bridge.

use std::{path::Path, time::Duration};

use anyhow::Result;
use limiter_tests::sandbox::{Namespace, Sandbox};

use super::{
    askers, http,
    load::drive,
    server::{Folder, HTTP, Scheduling as _, Server, bridge},
    turns::{Figures, TURN, Turns, both},
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
const COUNTED: Duration = Duration::from_millis(500);

/// What made-up users did.
pub(super) struct Flood {
    /// How many came.
    pub(super) users: u64,
    /// Answers to them per second of CPU time of the bridge.
    pub(super) rate: f64,
    /// Bytes of the memory of the bridge: before them, and after them.
    pub(super) memory: [u64; 2],
    /// What askers about known sources saw: beside others, and beside made-up users.
    pub(super) known: [Figures; 2],
}

impl Flood {
    /// The latency of known sources beside made-up users, in units of that beside others, where the machine did not disturb it: the
    /// lower quartiles of the turns. A pause of the machine lifts the percentile of a turn from microseconds to milliseconds, and
    /// some half of the turns have one, so the medians say little.
    pub(super) fn slowdown(&self) -> f64 {
        let [others, made_up] = self.known.map(|seen| seen.quartiles[0]);
        made_up / others
    }

    /// Bytes by which the memory of the bridge grew.
    pub(super) fn growth(&self) -> u64 {
        let [before, after] = self.memory;
        after.saturating_sub(before)
    }

    /// The report as text.
    pub(super) fn text(&self) -> String {
        let [before, after] = self.memory.map(|it| it >> 10);
        let [others, made_up] = self.known.map(|seen| {
            let Figures { p50, p99, quartiles: [low, high], p99_of_all, waited, .. } = seen;
            let [waited, askers] = waited.map(|share| 100.0 * share);
            format!(
                "p50 {p50:.0} µs, p99 {p99:.0} µs (quartiles {low:.0} to {high:.0}, of all {p99_of_all:.0}); waited \
                 {waited:.1} %, askers {askers:.1} %"
            )
        });
        format!(
            "{} million made-up users asked /v1/auth, {:.0} in a CPU second of the bridge.\n\
             Memory of the bridge: {before} KiB before them, {after} KiB after them.\n\
             Known sources, at half load, in turns of two bridges:\n\
             beside others, of whom none was made up:  {others}\n\
             beside made-up users, and after all these: {made_up}",
            self.users / 1_000_000,
            self.rate
        )
    }
}

/// Bridges on the CPU of the thread that starts them: one that no made-up user comes to, and another one.
pub(super) type Bridges = [(Server, Folder); 2];

/// Starts them.
pub(super) fn start(sandbox: &Sandbox, network: &Namespace) -> Result<Bridges> {
    let start = |name| {
        let folder = Folder::new(name, POLICY)?;
        anyhow::Ok((bridge(sandbox, network, &folder, &[])?, folder))
    };
    Ok([start("calm")?, start("flood")?])
}

/// Has so many made-up users ask, and then known sources in so many turns.
pub(super) async fn measure([calm, flooded]: &Bridges, users: u64, turns: usize) -> Result<Flood> {
    let [calm_socket, socket] = [calm, flooded].map(|(_, folder)| folder.path(HTTP));
    let known = async |socket: &Path| askers(socket, CONNECTIONS, http::auth, http::answer).await;
    let (server, mut made_up) =
        (&flooded.0, askers(&socket, CONNECTIONS, http::made_up, http::any).await?);
    // The first answers fill the buffers of connections, which last as long as those.
    drive(&mut made_up, COUNTED, None).await?;
    let (memory, cpu, mut came) = (server.resident()?, server.scheduled()?.ran, 0);
    while came < users {
        came += drive(&mut made_up, COUNTED, None).await?.answers;
    }
    let cpu = (server.scheduled()?.ran - cpu).as_secs_f64();
    let memory = [memory, server.resident()?];
    // Only now, as the bridge ends connections that are silent for long.
    let mut loads = [
        (&calm.0, [known(&calm_socket).await?, known(&calm_socket).await?], Turns::new()),
        (server, [known(&socket).await?, made_up], Turns::new()),
    ];
    for (_, [known, _], _) in &mut loads {
        // The first answers find caches cold.
        drive(known, TURN, None).await?;
    }
    let full = drive(&mut loads[0].1[0], TURN, None).await?;
    // Half of the load, in two halves.
    let rate = Some(full.questions() / 4.0);
    for _ in 0..turns {
        // In the other order each time: what the machine does once a second would always hit the same one.
        loads.reverse();
        for (server, [known, others], seen) in &mut loads {
            let before = both(*server)?;
            let (of_known, of_others) =
                tokio::join!(drive(known, TURN, rate), drive(others, TURN, rate));
            of_others?;
            seen.add(&of_known?, before, both(*server)?);
        }
    }
    if turns % 2 == 1 {
        loads.reverse();
    }
    let known = loads.map(|(_, _, mut seen)| seen.figures());
    Ok(Flood { users: came, rate: came as f64 / cpu, memory, known })
}
