//! Open connections of real clients, ended in every possible way.

use std::{
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{
    packet::{ACK, FIN, Frame, RST},
    topology::{Host, lay_wire},
    traffic::{Connection, Service, Stop},
};

use super::{Counts, applied, attach, end, open, used};
use crate::netns::Net;

/// The port of the service.
const PORT: u16 = 5_432;
/// How long an expected state may take; far longer than it does.
const PATIENCE: Duration = Duration::from_secs(60);

fn policy(key: &str, limit: u32, idle: &str) -> String {
    format!(
        "
limits:
  - name: open
    match: {{ protocol: tcp, ports: {PORT} }}
    key: {key}
    algorithm: concurrent
    limit: {limit}
    idle: {idle}"
    )
}

fn service(net: &Net) -> Service {
    Service::start(&net.hosts.router.namespace, PORT, "ready").unwrap()
}

#[track_caller]
fn assert_answers(connection: &mut Connection) {
    assert_eq!(connection.ask("select 1").unwrap(), "select 1");
}

/// Opens a connection that has to be admitted.
#[track_caller]
fn admitted(net: &Net, from: IpAddr) -> Connection {
    let mut connection = open(net, from, PORT).unwrap();
    assert_eq!(connection.hear().unwrap(), "ready");
    connection
}

/// Resets a connection and waits until the router has closed its socket. A SYN in the same batch as the reset
/// would be decided before the router has processed either.
#[track_caller]
fn reset(net: &Net, connection: Connection) {
    let peer = format!(":{} ", connection.port().unwrap());
    connection.reset().unwrap();
    let start = Instant::now();
    loop {
        let sockets = net.hosts.router.command("ss").arg("-Htan").output();
        let sockets = String::from_utf8(sockets.unwrap().stdout).unwrap();
        if !sockets.lines().any(|socket| format!("{socket} ").contains(&peer)) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{sockets}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until so many slots of a source are in use.
#[track_caller]
fn wait_for(net: &Net, source: &str, places: u64) -> Instant {
    let start = Instant::now();
    while used(net, source, "open").0 != places {
        assert!(start.elapsed() < PATIENCE, "{:?} are used", used(net, source, "open"));
        thread::sleep(Duration::from_millis(20));
    }
    Instant::now()
}

#[test]
fn a_connection_that_ends_gives_its_place_to_another() {
    let net = applied(&policy("source", 3, "5m"));
    let service = service(&net);
    let from = IpAddr::from(net.hosts.client_port.v4);
    let source = from.to_string();
    let mut connections: Vec<_> = (0..3).map(|_| admitted(&net, from)).collect();
    assert_eq!(used(&net, &source, "open"), (3, 3));
    let before = Counts::of(&net, "open");
    assert!(open(&net, from, PORT).is_none(), "the fourth gets in");
    assert_eq!((Counts::of(&net, "open") - before).packets(), (0, 1));
    // Existing connections are not disturbed, and another source has slots of its own.
    connections.iter_mut().for_each(assert_answers);
    drop(admitted(&net, net.hosts.client_port.v6.into()));

    // However a connection ends, the next one gets its slot, because its socket is gone.
    reset(&net, connections.remove(0));
    connections.push(admitted(&net, from));
    assert!(open(&net, from, PORT).is_none());
    connections.remove(0).close().unwrap();
    connections.push(admitted(&net, from));
    assert!(open(&net, from, PORT).is_none());

    assert_eq!(used(&net, &source, "open"), (3, 3));
    connections.iter_mut().for_each(assert_answers);
    assert_eq!(service.accepted(), 6);
    assert_eq!(Counts::of(&net, "open").exceed, 3);

    // A client that opens and closes connections one after the other is never refused, with a single free
    // slot.
    drop(connections.remove(0).close());
    for number in 0..200 {
        let connection = admitted(&net, from);
        if number % 4 == 0 {
            reset(&net, connection);
        } else {
            connection.close().unwrap();
        }
    }
    assert_eq!(Counts::of(&net, "open").exceed, 3);
    end(&net);
}

/// The kernel ignores packets outside the window of their connection.
#[test]
fn a_forged_end_frees_no_place() {
    const LIMIT: usize = 10;
    const ATTEMPTS: usize = 400;
    let net = applied(&policy("source", LIMIT as u32, "5m"));
    let service = service(&net);
    let from = IpAddr::from(net.hosts.client_port.v4);
    let to = SocketAddr::new(net.hosts.router_port.address_like(from), PORT);
    let mut connections: Vec<Connection> = Vec::new();
    for _ in 0..ATTEMPTS {
        let patience = if connections.len() < LIMIT { PATIENCE } else { Duration::from_millis(5) };
        let client = &net.hosts.client.namespace;
        let opened = Connection::open_within(client, from, to, patience).unwrap();
        let Some(connection) = opened else { continue };
        let port = connection.port().unwrap();
        // A FIN takes a slot if its connection has none, so the resets come last: a slot that they free stays
        // free.
        for flags in [FIN | ACK, RST, RST | ACK] {
            let frame = Frame::tcp(from, to.ip(), port, PORT, flags).sequence(12_345);
            let mut sender = net.sender(1_000, frame);
            let sent = sender.send(Duration::from_millis(2), &Stop::default()).unwrap();
            assert!(sent.packets > 0);
        }
        connections.push(connection);
    }
    assert_eq!(connections.len(), LIMIT);
    for connection in &mut connections {
        assert_eq!(connection.hear().unwrap(), "ready");
        assert_answers(connection);
    }
    assert_eq!(service.accepted(), LIMIT as u64);
    // The sockets are gone, so the slots are free.
    connections.into_iter().for_each(|connection| connection.close().unwrap());
    drop(admitted(&net, from));
    end(&net);
}

/// A host on a wire of its own, which can be cut.
struct Away {
    host: Host,
    address: IpAddr,
    router: IpAddr,
}

impl Away {
    fn new(net: &Net) -> Self {
        let host = Host::new(&net.hosts.client.sandbox, "away").unwrap();
        let (near, far) = lay_wire(1, (&host, "eth0"), (&net.hosts.router, "eth1")).unwrap();
        Self { host, address: near.v4.into(), router: far.v4.into() }
    }

    fn open(&self) -> Option<Connection> {
        let to = SocketAddr::new(self.router, PORT);
        Connection::open(&self.host.namespace, self.address, to).unwrap()
    }
}

#[test]
fn a_connection_whose_client_vanishes_gives_its_place_up_when_it_was_silent_for_long_enough() {
    /// The shortest idle time that a policy may have.
    const IDLE: Duration = Duration::from_secs(1);
    let net = Net::new();
    let away = Away::new(&net);
    attach(&net, "eth0 eth1", &policy("all", 2, "1s"));
    let service = service(&net);
    let from = IpAddr::from(net.hosts.client_port.v4);
    let source = from.to_string();
    let stop = Stop::default();
    thread::scope(|scope| {
        // This connection is active for longer than it may be silent.
        let mut talker = admitted(&net, from);
        let begun = Instant::now();
        let seen = stop.clone();
        let talking = scope.spawn(move || {
            while !seen.is_stopped() && begun.elapsed() < 2 * PATIENCE {
                assert_answers(&mut talker);
                thread::sleep(IDLE / 20);
            }
            talker
        });
        let mut vanishing = away.open().expect("there is a place");
        assert_eq!(vanishing.hear().unwrap(), "ready");
        let start = Instant::now();
        assert_answers(&mut vanishing);
        away.host.ip("link set dev eth0 down\n").unwrap();
        let places = used(&net, &source, "open");
        assert!(places == (2, 2) || start.elapsed() > IDLE, "{places:?}");

        let mut attempts = 0;
        let mut newcomer = loop {
            attempts += 1;
            match open(&net, from, PORT) {
                Some(newcomer) => break newcomer,
                None => assert!(start.elapsed() < PATIENCE, "its place is never free"),
            }
        };
        let elapsed = start.elapsed();
        assert!(elapsed >= IDLE, "free after {elapsed:?}, at attempt {attempts}");
        assert_eq!(newcomer.hear().unwrap(), "ready");
        assert_answers(&mut newcomer);
        stop.stop();
        let _open = talking.join().unwrap();
        assert_eq!(service.accepted(), 3);
        assert_eq!(Counts::of(&net, "open").exceed, attempts - 1);
        // All connections are open but silent.
        wait_for(&net, &source, 0);
    });
    end(&net);
}
