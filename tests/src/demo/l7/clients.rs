//! The clients and how they behave.

use std::{
    io,
    net::{Ipv4Addr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use limiter_tests::{
    http::{Reply, exchange, request},
    traffic::Connection,
};

use super::services::PORT;
use crate::{
    interrupt,
    stage::{GLANCE, Stage},
};

/// What a client does about its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It goes on after 429.
    Ignores,
    /// It waits for `Retry-After`.
    BacksOff,
    /// It stays below the limit.
    StaysBelow,
}

impl Manner {
    /// The time between two requests, apart from `Retry-After`.
    const fn pause(self) -> Duration {
        Duration::from_millis(if matches!(self, Self::StaysBelow) { 1000 } else { 20 })
    }

    /// How long it waits for an answer. Who is not to be blocked waits while the kernel repeats a lost SYN.
    const fn patience(self) -> Duration {
        Duration::from_millis(if matches!(self, Self::Ignores) { 250 } else { 10_000 })
    }
}

/// A client with an address of its own.
pub(super) struct Client {
    /// What it is called in the report.
    pub(super) name: &'static str,
    pub(super) address: Ipv4Addr,
    pub(super) manner: Manner,
}

/// What became of the requests of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: u64,
    /// Answered with 200.
    pub(super) passed: u64,
    /// Answered with 429.
    pub(super) refused: u64,
    /// Those of `refused` that came after the client had waited for `Retry-After`.
    pub(super) refused_again: u64,
    /// Not answered.
    pub(super) unanswered: u64,
}

/// Makes the clients, each with its address.
pub(super) fn clients(stage: &Stage) -> Result<[Client; 3]> {
    let client = |name, number, manner| -> Result<Client> {
        let address = Ipv4Addr::new(198, 18, 0, number);
        let interface = &stage.hosts.client_port.interface;
        stage.hosts.client.ip(&format!("address add {address}/24 dev {interface}\n"))?;
        Ok(Client { name, address, manner })
    };
    Ok([
        client("scraper that goes on", 10, Manner::Ignores)?,
        client("client that backs off", 20, Manner::BacksOff)?,
        client("neighbour below", 30, Manner::StaysBelow)?,
    ])
}

impl Client {
    /// Sends requests until `end`, or until the user asks to end.
    pub(super) fn run(&self, stage: &Stage, end: Instant) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut has_waited = false;
        while Instant::now() < end && !interrupt::is_asked() {
            let reply = self.ask(stage)?;
            tally.requests += 1;
            let mut pause = self.manner.pause();
            let obeyed = std::mem::take(&mut has_waited);
            match reply {
                None => tally.unanswered += 1,
                Some(Reply { status: 200, .. }) => tally.passed += 1,
                Some(reply) if reply.status == 429 => {
                    tally.refused += 1;
                    tally.refused_again += u64::from(obeyed);
                    if self.manner == Manner::BacksOff {
                        let wait = reply.field("retry-after").and_then(|it| it.parse().ok());
                        let wait = wait.context("a 429 of nginx has no Retry-After in seconds")?;
                        (pause, has_waited) = (Duration::from_secs(wait), true);
                    }
                }
                Some(reply) => bail!("nginx answered {}: {}", reply.status, reply.body),
            }
            rest(end.min(Instant::now() + pause));
        }
        Ok(tally)
    }

    /// The answer to a request on a connection of its own; `None` if there is none.
    fn ask(&self, stage: &Stage) -> Result<Option<Reply>> {
        let (from, patience) = (self.address.into(), self.manner.patience());
        let to = (stage.hosts.router_port.v4, PORT).into();
        let client = &stage.hosts.client.namespace;
        let Some(connection) = Connection::open_within(client, from, to, patience)? else {
            return Ok(None);
        };
        let mut stream = TcpStream::from(connection);
        stream.set_read_timeout(Some(patience))?;
        match exchange(&mut stream, request("GET /login", &["Connection: close"])) {
            Ok(reply) => Ok(Some(reply)),
            // The socket option has the kernel say one or the other.
            Err(error)
                if [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("{}: no HTTP", self.name)),
        }
    }
}

/// Waits until then, or until the user asks to end.
fn rest(until: Instant) {
    while !interrupt::is_asked() {
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => thread::sleep(left.min(GLANCE)),
            _ => return,
        }
    }
}
