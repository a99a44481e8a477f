//! How fast an agent pushes blocks that it is asked for over its socket, and how soon who ignores 429 is dropped.

use std::{
    net::{IpAddr, Ipv4Addr},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::{
    command::binary,
    http::exchange,
    sandbox::Sandbox,
    topology::{Host, lay_wire},
    traffic::Connection,
};
use serde_json::{Value, json};

use super::{
    super::sample::median,
    nginx,
    server::{Folder, Server, bridge},
};

/// A limit that blocks who goes on after 429 for [`AFTER`].
const POLICY: &str = "version: 1
limits:
  - { name: it, key: source, rate: 100000/s, burst: 100000 }
  - { name: login, on: requests, key: source, rate: 5/min, burst: 5, penalty: { after: 1s, block: 1m } }
";
/// For how long a client may ignore 429.
const AFTER: Duration = Duration::from_secs(1);
/// How long an answer to a SYN may take. A dropped one is not repeated before.
const PATIENCE: Duration = Duration::from_millis(200);
/// For how long a client goes on at most.
const LONGEST: Duration = Duration::from_secs(5);
/// The last byte of the address of the first client; the wire ends at 1 and 2.
const FIRST_CLIENT: u8 = 10;
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
    /// Milliseconds beyond [`AFTER`] until the packets of a client were dropped that went on after 429.
    pub(super) ignored: f64,
}

impl Pushes {
    /// The report as text.
    pub(super) fn text(&self) -> String {
        let Self { first, alone, many, source, ignored } = self;
        format!(
            "The agent pushed {many:.0} blocks/s, {MANY} in each request, and {alone:.0}/s one by one; the first took {first:.1} ms.\n\
             It told of a source in {source:.0} µs. Each request is a connection.\n\
             A client of nginx that went on after 429 for {} s was dropped {ignored:.1} ms later.",
            AFTER.as_secs()
        )
    }
}

/// An agent, a bridge and nginx that answer, and the hosts and files that they need.
pub(super) struct Floors {
    // In this order they are stopped.
    _servers: [Server; 3],
    folder: Folder,
    /// Where nginx answers.
    nginx: Ipv4Addr,
    _router: Host,
    clients: Host,
}

/// Starts them on the CPU of this thread, for clients with so many addresses.
pub(super) fn start(sandbox: &Sandbox, clients: u8) -> Result<Floors> {
    let folder = Folder::new("pushes", POLICY)?;
    let (router, host) = (Host::new(sandbox, "router")?, Host::new(sandbox, "clients")?);
    let (port, _) = lay_wire(0, (&router, "eth0"), (&host, "eth0"))?;
    let addresses = (0..clients).map(|at| format!("address add {}/24 dev eth0\n", client(at)));
    host.ip(&addresses.collect::<String>())?;
    let program = binary()?;
    let program = program.to_str().context("the path of limiter is not UTF-8")?;
    let mut attach = router.command(program);
    attach.args(["attach", "eth0", "--policy"]).arg(folder.path("policy.yaml"));
    let attached = attach.stdout(Stdio::null()).status().context("cannot run limiter")?;
    ensure!(attached.success(), "limiter cannot attach: {attached}");
    let socket = format!("unix:{}", folder.path(SOCKET).display());
    let mut command = router.command(program);
    command.args(["agent", "--control", &socket, "--push-rate", "none", "--trusted", "0"]);
    command.stdout(Stdio::null());
    let answers = || UnixStream::connect(folder.path(SOCKET)).is_ok();
    let agent = Server::start(&mut command, answers)?;
    let bridge = bridge(sandbox, &router.namespace, &folder, &["--agent", &socket])?;
    let nginx = nginx::start(sandbox, &router.namespace, &folder)?;
    let servers = [nginx, bridge, agent];
    Ok(Floors { _servers: servers, folder, nginx: port.v4, _router: router, clients: host })
}

impl Floors {
    /// Measures so many rounds, each of which takes an address of a client, and takes the medians.
    pub(super) fn measure(&self, rounds: u8) -> Result<Pushes> {
        let asker = &mut Asker { socket: self.folder.path(SOCKET), next: 0 };
        let pushes = asker.measure(rounds.into())?;
        let ignored = (0..rounds).map(|at| self.ignore(client(at))).collect::<Result<Vec<_>>>()?;
        Ok(Pushes { ignored: median(&ignored), ..pushes })
    }

    /// Has a client ask until its packets are dropped. Returns the milliseconds beyond [`AFTER`], from before its first request
    /// that was refused.
    fn ignore(&self, client: IpAddr) -> Result<f64> {
        let to = (self.nginx, nginx::PORT).into();
        let begin = Instant::now();
        let mut refused = None;
        loop {
            let now = Instant::now();
            ensure!(now - begin < LONGEST, "{client} goes on and is not dropped");
            let namespace = &self.clients.namespace;
            match (Connection::open_within(namespace, client, to, PATIENCE)?, refused) {
                (Some(mut connection), _) => {
                    let line = connection.ask("GET /page HTTP/1.0\r\n\r")?;
                    if line.contains(" 429 ") {
                        refused.get_or_insert(now);
                    }
                }
                (None, Some(refused)) => {
                    let ignored = (now - refused).as_secs_f64();
                    ensure!(now - refused >= AFTER, "{client} was dropped after {ignored:.3} s");
                    return Ok(1e3 * (ignored - AFTER.as_secs_f64()));
                }
                (None, None) => bail!("{client} was dropped, and never refused"),
            }
        }
    }
}

/// The address of a client by its number.
fn client(number: u8) -> IpAddr {
    [198, 18, 0, FIRST_CLIENT + number].into()
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
        let (alone, many) = (1.0 / alone, MANY as f64 / many);
        Ok(Pushes { first, alone, many, source: 1e6 * source, ignored: f64::NAN })
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
