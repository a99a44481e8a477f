//! How fast an agent pushes blocks that it is asked for over its socket.

use std::{
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::{
    command::binary,
    http::exchange,
    sandbox::Sandbox,
    topology::{Host, lay_wire},
};
use serde_json::{Value, json};

use super::{
    super::sample::median,
    server::{Folder, Server},
};

/// A limit that pushes, so that the first push finds all that it takes.
const POLICY: &str = "version: 1
limits:
  - { name: it, key: source, rate: 100000/s, burst: 100000 }
  - { name: login, on: requests, key: source, rate: 5/min, burst: 5, penalty: { after: 1s, block: 1m } }
";
/// The socket of the agent.
const SOCKET: &str = "agent.sock";
/// Blocks of a large request.
const MANY: usize = 1_000;

/// How fast blocks are pushed.
pub(super) struct Pushes {
    /// Milliseconds until the first one was answered.
    pub(super) first: f64,
    /// Blocks per second, one in each request.
    pub(super) alone: f64,
    /// Blocks per second, [`MANY`] in each request.
    pub(super) many: f64,
    /// Microseconds until an answer about a source.
    pub(super) source: f64,
}

impl Pushes {
    /// The report as text.
    pub(super) fn text(&self) -> String {
        let Self { first, alone, many, source } = self;
        format!(
            "The agent pushed {many:.0} blocks/s, {MANY} in each request, and {alone:.0}/s one by one; the first took {first:.1} ms.\n\
             It told of a source in {source:.0} µs. Each request is a connection."
        )
    }
}

/// An agent that answers, and the hosts and files that it needs.
pub(super) struct Agent {
    _server: Server,
    folder: Folder,
    _hosts: [Host; 2],
}

/// Starts an agent on the CPU of this thread.
pub(super) fn start(sandbox: &Sandbox) -> Result<Agent> {
    let folder = Folder::new("pushes", POLICY)?;
    let (router, peer) = (Host::new(sandbox, "router")?, Host::new(sandbox, "peer")?);
    lay_wire(0, (&router, "eth0"), (&peer, "eth0"))?;
    let program = binary()?;
    let program = program.to_str().context("the path of limiter is not UTF-8")?;
    let mut attach = router.command(program);
    attach.args(["attach", "eth0", "--policy"]).arg(folder.path("policy.yaml"));
    let attached = attach.stdout(Stdio::null()).status().context("cannot run limiter")?;
    ensure!(attached.success(), "limiter cannot attach: {attached}");
    let mut command = router.command(program);
    command.arg("agent").arg("--control").arg(format!("unix:{}", folder.path(SOCKET).display()));
    command.args(["--push-rate", "none", "--trusted", "0"]).stdout(Stdio::null());
    let answers = || UnixStream::connect(folder.path(SOCKET)).is_ok();
    let server = Server::start(&mut command, answers)?;
    Ok(Agent { _server: server, folder, _hosts: [router, peer] })
}

impl Agent {
    /// Measures so many rounds, of which it takes the medians.
    pub(super) fn measure(&self, rounds: u32) -> Result<Pushes> {
        Asker { socket: self.folder.path(SOCKET), next: 0 }.measure(rounds)
    }
}

/// Asks the agent, by a connection for each request.
struct Asker {
    socket: PathBuf,
    /// Sources so far.
    next: u32,
}

impl Asker {
    fn measure(&mut self, rounds: u32) -> Result<Pushes> {
        let first = 1e3 * self.push(1)?;
        let median_of = |seconds: Result<Vec<f64>>| anyhow::Ok(median(&seconds?));
        let alone = median_of((0..50 * rounds).map(|_| self.push(1)).collect())?;
        let many = median_of((0..rounds).map(|_| self.push(MANY)).collect())?;
        let ask = |_| timed(&self.socket, "GET /v1/source/172.16.0.1", "").map(|(time, _)| time);
        let source = median_of((0..50 * rounds).map(ask).collect())?;
        Ok(Pushes { first, alone: 1.0 / alone, many: MANY as f64 / many, source: 1e6 * source })
    }

    /// The seconds until so many blocks were pushed by a request.
    fn push(&mut self, blocks: usize) -> Result<f64> {
        let many: Vec<Value> = (0..blocks)
            .map(|_| {
                self.next += 1;
                let source = Ipv4Addr::from_bits(0xac10_0000 + self.next);
                json!({ "subject": source, "for": 60 })
            })
            .collect();
        let body = json!(many).to_string();
        let (time, body) = timed(&self.socket, "POST /v1/penalties", &body)?;
        let pushed = body.matches("\"blocked\"").count();
        ensure!(pushed == blocks, "{pushed} of {blocks} blocks were pushed: {body:.200}");
        Ok(time)
    }
}

/// The seconds until an answer, and its body.
fn timed(socket: &Path, line: &str, body: &str) -> Result<(f64, String)> {
    let length = body.len();
    let request =
        format!("{line} HTTP/1.1\r\nHost: agent\r\nContent-Length: {length}\r\n\r\n{body}");
    let begin = Instant::now();
    let mut stream = UnixStream::connect(socket).context("cannot connect to the agent")?;
    let reply = exchange(&mut stream, request)?;
    let time = begin.elapsed().as_secs_f64();
    ensure!(reply.status == 200, "the agent answered {}: {}", reply.status, reply.body);
    Ok((time, reply.body))
}
