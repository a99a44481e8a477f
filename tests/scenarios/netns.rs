//! Real traffic between network namespaces.

mod benchmark;
mod compare;
mod control;
mod demo;
mod dispatch;
mod exchange;
mod instances;
mod lifetime;
mod limits;
mod neighbour;
mod package;
mod services;
mod swap;
mod wire;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    panic::{self, AssertUnwindSafe},
    thread,
    time::Duration,
};

use limiter_tests::{
    command::{Limiter, Outcome},
    leak::Footprint,
    packet::Frame,
    sandbox::{BPFFS, Sandbox},
    topology::{Port, Topology},
    traffic::{Arrivals, Receiver, Sender, Sent, Stop, send_together},
};
use serde_json::Value;

/// Options for small maps, which are created faster.
const SMALL: &str = "--sources 4096 --buckets 4096 --overrides 64";

/// Two hosts, with limiter on the router.
struct Net {
    hosts: Topology,
    limiter: Limiter,
}

impl Net {
    /// Two hosts with nothing attached.
    fn new() -> Self {
        let hosts = Topology::new(&Sandbox::new().unwrap()).unwrap();
        let limiter = Limiter::new(&hosts.router).unwrap();
        Self { hosts, limiter }
    }

    /// Two hosts with limiter attached to `eth0` of the router, with these further options.
    fn attached(options: &str) -> Self {
        let net = Self::new();
        net.run(&format!("attach eth0 {SMALL} {options}"));
        net
    }

    /// Runs a command that has to succeed.
    #[track_caller]
    fn run(&self, arguments: &str) -> Outcome {
        self.limiter.run(arguments).done().unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &str) -> Value {
        self.limiter.run(arguments).json().unwrap()
    }

    fn footprint(&self) -> Footprint {
        Footprint::of(&self.hosts.router, format!("{BPFFS}/limiter")).unwrap()
    }

    /// A sender of a frame from the client to the router, with the MAC addresses of the two.
    fn sender(&self, per_second: u64, frame: Frame) -> Sender {
        let (from, to) = (&self.hosts.client_port, &self.hosts.router_port);
        let frame = frame.macs(from.mac, to.mac).build();
        Sender::new(&self.hosts.client.namespace, from, per_second, frame).unwrap()
    }

    /// A UDP datagram to the router.
    fn udp(&self, source: impl Into<IpAddr>) -> Frame {
        let source = source.into();
        let to = self.hosts.router_port.address_like(source);
        Frame::udp(source, to, 40_000, 9).payload(18)
    }

    /// Runs all senders for `length`, or until `meanwhile`, which runs on this thread, stops them. Returns
    /// what was sent and what arrived.
    fn flood(
        &self,
        senders: &mut [Sender],
        length: Duration,
        meanwhile: impl FnOnce(&Stop),
    ) -> (Vec<Sent>, Arrivals) {
        let Topology { router, router_port, .. } = &self.hosts;
        let receiver = Receiver::start(&router.namespace, router_port).unwrap();
        let sent = send(senders, length, meanwhile);
        (sent, receiver.finish().unwrap())
    }

    /// The packets of a source that limiter counted as passed and as dropped.
    fn counted(&self, source: &str) -> (u64, u64) {
        let top = self.json("top -j -n 100000")["sources"].take();
        let entry = top.as_array().unwrap().iter().find(|entry| entry["source"] == source);
        let count = |name| entry.map_or(0, |entry| entry[name].as_u64().unwrap());
        (count("passed"), count("dropped"))
    }
}

/// Runs all senders for `length`, or until `meanwhile`, which runs on this thread, stops them or panics.
fn send(senders: &mut [Sender], length: Duration, meanwhile: impl FnOnce(&Stop)) -> Vec<Sent> {
    let stop = Stop::default();
    thread::scope(|scope| {
        let sending = scope.spawn(|| send_together(senders, length, &stop).unwrap());
        let failure = panic::catch_unwind(AssertUnwindSafe(|| meanwhile(&stop))).err();
        if let Some(failure) = failure {
            stop.stop();
            panic::resume_unwind(failure);
        }
        sending.join().unwrap()
    })
}

/// Asserts that a limit of this rate and burst admitted `passed` of the packets of one source: at most what
/// it may, and at least 99 % of that, except for two packets.
#[track_caller]
fn assert_admitted(what: &str, passed: u64, sent: &Sent, per_second: f64, burst: u64) {
    let admits = |time: Duration| burst as f64 + per_second * time.as_secs_f64();
    let most = admits(sent.time);
    // Part of a token is enough for a packet, and the distances between frames vary on their way.
    assert!(
        passed as f64 <= most + 2.0,
        "{what}: {passed} passed, at most {most:.1} may; {sent:?}"
    );
    let least = admits(sent.busy()).min(sent.packets as f64) * 0.99 - 2.0;
    assert!(
        passed as f64 >= least,
        "{what}: {passed} passed, at least {least:.1} should; {sent:?}"
    );
}

/// The IPv4 source with this number.
const fn v4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, number)
}

/// An address in the IPv6 /64 with this number.
const fn v6(network: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xf00, network, 0, 0, 0, host)
}

/// The bytes of a frame, with the MAC addresses of another wire.
fn port_frame(frame: Frame, from: &Port, to: &Port) -> Vec<u8> {
    frame.macs(from.mac, to.mac).build()
}
