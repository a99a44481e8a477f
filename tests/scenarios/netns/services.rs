//! Real services, with limits as an operator writes them.

mod concurrent;
mod dns;
mod fragments;
mod penalty;
mod ssh;
mod tenant;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::Sub,
    time::Duration,
};

use limiter_tests::traffic::{Connection, Sent};
use serde_json::Value;

use super::{Net, SMALL};
use crate::cli::Document;

/// The tally of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    conform: u64,
    exceed: u64,
    conform_bytes: u64,
    exceed_bytes: u64,
}

impl Counts {
    #[track_caller]
    fn of(net: &Net, limit: &str) -> Self {
        let status = net.json("status -j");
        let limits = status["limits"].as_array().unwrap();
        let found = limits.iter().find(|found| found["name"] == limit).unwrap();
        let [conform, exceed, conform_bytes, exceed_bytes] =
            ["conform", "exceed", "conform_bytes", "exceed_bytes"]
                .map(|name| found[name].as_u64().unwrap());
        Self { conform, exceed, conform_bytes, exceed_bytes }
    }

    const fn packets(self) -> (u64, u64) {
        (self.conform, self.exceed)
    }
}

impl Sub for Counts {
    type Output = Self;

    /// The difference between two tallies.
    fn sub(self, before: Self) -> Self {
        Self {
            conform: self.conform - before.conform,
            exceed: self.exceed - before.exceed,
            conform_bytes: self.conform_bytes - before.conform_bytes,
            exceed_bytes: self.exceed_bytes - before.exceed_bytes,
        }
    }
}

/// Attaches limiter to these interfaces, with a policy document without its `version` line.
fn attach(net: &Net, interfaces: &str, policy: &str) {
    let document = Document::new(policy);
    let options = format!("{SMALL} --wide-states 1024 --policy FILE");
    net.run(&document.in_place(&format!("attach {interfaces} {options}")));
}

/// Two hosts with limiter on the router. The policy is applied to an instance that had no limit.
fn applied(policy: &str) -> Net {
    let net = Net::attached("");
    net.run(&Document::new(policy).in_place("policy apply FILE"));
    net
}

/// Detaches limiter, which must leave nothing behind.
fn end(net: &Net) {
    let footprint = net.footprint();
    net.run("detach --all");
    footprint.assert_gone().unwrap();
}

/// Two hosts with a policy on the router. The client has one more address.
fn attached_with(address: Ipv4Addr, policy: &str) -> Net {
    let net = Net::new();
    let hosts = &net.hosts;
    let (near, far) = (&hosts.client_port, &hosts.router_port);
    hosts.client.ip(&format!("address add {address}/24 dev {}\n", near.interface)).unwrap();
    let mac = near.mac.map(|byte| format!("{byte:02x}")).join(":");
    let neighbour = format!("neighbour add {address} lladdr {mac} dev {}", far.interface);
    hosts.router.ip(&format!("{neighbour} nud permanent\n")).unwrap();
    attach(&net, "eth0", policy);
    net
}

/// Tries to open a connection from an address of the client to a port of the router.
#[track_caller]
fn open(net: &Net, from: impl Into<IpAddr>, port: u16) -> Option<Connection> {
    let from = from.into();
    let to = SocketAddr::new(net.hosts.router_port.address_like(from), port);
    Connection::open(&net.hosts.client.namespace, from, to).unwrap()
}

/// The use of a limit by a source: what is used, and of how much. The source may be unknown.
#[track_caller]
fn used(net: &Net, source: &str, limit: &str) -> (u64, u64) {
    let outcome = net.limiter.run(&format!("get {source} -j")).outcome().unwrap();
    assert!([0, 4].contains(&outcome.code), "{outcome}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let limits = report["limits"].as_array().unwrap();
    let state = &limits.iter().find(|found| found["name"] == limit).unwrap()["state"];
    (state["used"].as_u64().unwrap(), state["limit"].as_u64().unwrap())
}

/// The packets and bytes of a source that passed and that were dropped.
#[track_caller]
fn totals(report: &Value) -> [(u64, u64); 2] {
    ["passed", "dropped"].map(|verdict| {
        let count = |what| report[verdict][what].as_u64().unwrap();
        (count("packets"), count("bytes"))
    })
}

/// Asserts that a full bucket admitted `admitted` packets or bytes, where one packet counts at most `packet`.
/// The least is what it admits in the time in which more was offered, the most what it admits until all had
/// arrived.
#[track_caller]
fn assert_within(
    admitted: u64,
    (rate, burst, packet): (f64, u64, u64),
    asked: &[Sent],
    arrived: Duration,
) {
    let admitted = admitted as f64;
    let holds = |time: Duration| burst as f64 + rate * time.as_secs_f64();
    let most = holds(arrived) + packet as f64;
    assert!(admitted <= most, "{admitted} passed, at most {most:.1} may");
    let time = asked.iter().map(Sent::busy).min().unwrap_or_default();
    let least = holds(time) * 0.99 - 2.0 * packet as f64;
    assert!(admitted >= least, "{admitted} passed, at least {least:.1} should; {asked:?}");
}
