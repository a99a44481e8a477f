//! Limits with a penalty block sources whose connections prove the excess, and no source that others forge.

use std::{
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{
    packet::{ACK, Frame, RST, SYN},
    traffic::{Connection, Service},
};
use serde_json::Value;

use super::{Counts, applied, attach, end, open};
use crate::netns::Net;

/// The port of the service.
const PORT: u16 = 22;
/// How long anything may take; far longer than it does.
const PATIENCE: Duration = Duration::from_secs(240);
const PENALTY: &str = "after: 100ms, block: 10m";

fn service(net: &Net) -> Service {
    Service::start(&net.hosts.router.namespace, PORT, "ready").unwrap()
}

/// The sources that limits block.
#[track_caller]
fn blocked(net: &Net) -> Vec<String> {
    let listed = net.json("penalty list -j");
    let by_limit = |entry: &&Value| entry["by"] == "limit";
    let entries = listed["entries"].as_array().unwrap().iter().filter(by_limit);
    entries.map(|entry| entry["src"].as_str().unwrap().to_owned()).collect()
}

/// The refusals by limits with a penalty that counted, and those without proof.
#[track_caller]
fn refusals(net: &Net) -> [u64; 2] {
    let metrics = net.json("metrics -j");
    let families = metrics["metrics"].as_array().unwrap();
    let family = families.iter().find(|it| it["name"] == "limiter_penalty_refusals_total");
    ["counted", "unproven"].map(|result| {
        let series = family.unwrap()["series"].as_array().unwrap().iter();
        let of = series.into_iter().find(|it| it["labels"]["result"] == result);
        of.unwrap()["value"].as_u64().unwrap()
    })
}

/// Sends these frames at once, for many times as long as it takes to be blocked.
#[track_caller]
fn send(net: &Net, frames: impl IntoIterator<Item = Frame>) {
    let mut senders: Vec<_> = frames.into_iter().map(|frame| net.sender(2_000, frame)).collect();
    let sent = crate::netns::send(&mut senders, Duration::from_secs(1), |_| {});
    assert!(!sent.is_empty() && sent.iter().all(|sent| sent.packets > 500), "{sent:?}");
}

/// Asserts that a ping and a datagram of the client reach the router.
#[track_caller]
fn assert_reached(net: &Net) {
    let (client, router) = (&net.hosts.client, &net.hosts.router);
    let to = net.hosts.router_port.v4;
    let from = net.hosts.client_port.v4;
    let mut pings = [net.sender(100, Frame::echo(from, to, 1, 1))];
    let (_, arrived) = net.flood(&mut pings, Duration::from_millis(100), |_| {});
    assert!(arrived.from(from).packets > 0, "{arrived:?}");
    let server = router.namespace.inside(|| UdpSocket::bind((to, 53))).unwrap().unwrap();
    server.set_read_timeout(Some(Duration::from_secs(9))).unwrap();
    let client = client.namespace.inside(|| UdpSocket::bind((from, 0)));
    client.unwrap().unwrap().send_to(b"?", (to, 53)).unwrap();
    assert_eq!(server.recv(&mut [0; 9]).unwrap(), 1);
}

#[test]
fn forged_packets_of_a_victim_with_an_open_connection_do_nothing_to_it() {
    let net = applied(&format!(
        "
limits:
  - name: ssh
    match: {{ protocol: tcp, ports: {PORT}, tcp_flags: 'syn,!ack' }}
    key: source
    rate: 5/min
    burst: 5
    penalty: {{ {PENALTY} }}
  - name: rest
    match: {{ protocol: tcp, ports: [{PORT}, 80] }}
    key: source
    rate: 500/s
    penalty: {{ {PENALTY} }}"
    ));
    let _service = service(&net);
    let (victim, router) = (net.hosts.client_port.v4, net.hosts.router_port.v4);
    let mut connection = open(&net, victim, PORT).unwrap();
    assert_eq!(connection.hear().unwrap(), "ready");
    let port = connection.port().unwrap();
    let tcp = |from, to, flags| Frame::tcp(victim, router, from, to, flags).sequence(7);
    // SYNs of other connections and of this one.
    send(&net, [2_001, 2_002, 2_003, port].map(|from| tcp(from, PORT, SYN)));
    assert!(Counts::of(&net, "ssh").exceed > 500);
    // Segments without a connection, to the listening socket and to closed ports.
    send(&net, [tcp(2_001, PORT, ACK), tcp(port, 80, ACK), tcp(port, PORT, RST)]);
    assert!(Counts::of(&net, "rest").exceed > 500);
    assert_eq!(blocked(&net), [""; 0]);
    let [counted, unproven] = refusals(&net);
    assert!(counted == 0 && unproven > 0, "{counted} counted, {unproven} did not");
    for line in 0..5 {
        assert_eq!(connection.ask(&format!("line {line}")).unwrap(), format!("line {line}"));
    }
    assert_reached(&net);
    end(&net);
}

/// The limit of the shipped example, enforced.
#[test]
fn whoever_tries_passwords_is_blocked() {
    let example =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/examples/ssh-guard.yaml");
    let example = fs::read_to_string(example).unwrap();
    let enforced = example.replace("mode: monitor", "mode: enforce").replace("version: 1", "");
    assert_ne!(enforced, example);
    let net = applied(&enforced);
    let _service = service(&net);
    let from = IpAddr::from(net.hosts.client_port.v4);
    let to = SocketAddr::new(net.hosts.router_port.address_like(from), PORT);
    let start = Instant::now();
    let is_blocked = || blocked(&net) == [from.to_string()];
    // Three logins at a time, as tools for guessing passwords do.
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_blocked() {
                    assert!(start.elapsed() < PATIENCE, "nobody is blocked: {:?}", refusals(&net));
                    let client = &net.hosts.client.namespace;
                    // Long enough for several SYNs.
                    let patience = Duration::from_secs(13);
                    let Some(mut login) =
                        Connection::open_within(client, from, to, patience).unwrap()
                    else {
                        continue;
                    };
                    // The acknowledgement of the greeting is the proof.
                    drop(login.hear());
                }
            });
        }
    });
    assert!(open(&net, from, PORT).is_none());
    let listed = net.json("penalty list -j");
    assert_eq!(listed["entries"][0]["limit"], "ssh", "{listed}");
    end(&net);
}

#[test]
fn an_open_connection_over_its_limit_is_blocked() {
    let net = applied(&format!(
        "
limits:
  - name: packets
    match: {{ protocol: tcp, ports: {PORT} }}
    key: source
    rate: 50/s
    burst: 20
    penalty: {{ {PENALTY} }}"
    ));
    let _service = service(&net);
    let (from, to) = (net.hosts.client_port.v4, net.hosts.router_port.v4);
    let connection = open(&net, from, PORT).unwrap();
    let port = connection.port().unwrap();
    send(&net, [Frame::tcp(from, to, port, PORT, ACK)]);
    assert_eq!(blocked(&net), [from.to_string()]);
    assert!(refusals(&net)[0] > 0);
    end(&net);
}

/// A datagram proves nothing, so the policy decides whether it blocks.
#[test]
fn a_flood_of_datagrams_has_its_source_blocked_where_the_policy_says_so() {
    for (unproven, is_blocked) in [("", false), (", unproven: block", true)] {
        let net = Net::new();
        let limit = format!(
            "limits: [{{name: udp, match: {{protocol: udp}}, key: source, rate: 50/s, \
             penalty: {{{PENALTY}{unproven}}}}}]"
        );
        attach(&net, "eth0", &limit);
        let from = net.hosts.client_port.v4;
        send(&net, [net.udp(from)]);
        let expected = if is_blocked { vec![from.to_string()] } else { Vec::new() };
        assert_eq!(blocked(&net), expected, "{unproven}");
        let [counted, did_not] = refusals(&net);
        assert_eq!((counted > 0, did_not > 0), (is_blocked, !is_blocked), "{unproven}");
        if !is_blocked {
            assert_reached(&net);
        }
        end(&net);
    }
}
