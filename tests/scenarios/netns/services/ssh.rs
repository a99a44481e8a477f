//! A login port with a limit of few connections per minute, next to a web port with many packets per second.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{
    packet::Frame,
    traffic::{Connection, Receiver, Service},
};

use super::{Counts, applied, attached_with, end, open, totals, used};
use crate::netns::{Net, assert_admitted, v4};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const GREETING: &str = "SSH-2.0-OpenSSH_9.2";

/// An exact limit of connections, and one of packets.
const POLICY: &str = "
services:
  web: { protocol: [tcp, udp], ports: [80, 443] }
limits:
  - name: ssh
    match: { protocol: tcp, ports: ssh }
    key: source
    count: connections
    algorithm: sliding_log
    rate: 5/min
  - name: web
    match: { service: web }
    key: source
    rate: 10k pps
    burst: 500";

fn ssh(net: &Net) -> Service {
    Service::start(&net.hosts.router.namespace, 22, GREETING).unwrap()
}

/// Sends one request to the web port.
#[track_caller]
fn request(net: &Net, from: impl Into<std::net::IpAddr>) {
    let mut connection = open(net, from, 80).unwrap();
    assert_eq!(connection.ask("GET / HTTP/1.0").unwrap(), "GET / HTTP/1.0");
    connection.close().unwrap();
}

/// Opens as many logins as a source may have in a minute, and reads their greetings.
#[track_caller]
fn logins(net: &Net, from: impl Into<std::net::IpAddr> + Copy) -> Vec<Connection> {
    let log_in = |number| {
        let login = open(net, from, 22);
        assert!(login.is_some(), "login {number} is refused");
        let mut login = login.unwrap();
        assert_eq!(login.hear().unwrap(), GREETING);
        login
    };
    (1..=5).map(log_in).collect()
}

#[test]
fn logins_are_few_and_what_else_their_source_does_is_not() {
    let net = attached_with(v4(10), POLICY);
    let hosts = &net.hosts;
    let (near, far) = (&hosts.client_port, &hosts.router_port);
    let ssh = ssh(&net);
    let _web = Service::start(&hosts.router.namespace, 80, "").unwrap();
    let source = near.v4;

    let receiver = Receiver::start(&hosts.router.namespace, far).unwrap();
    let start = Instant::now();
    let mut open_logins = logins(&net, source);
    let refused = (0..3).filter(|_| open(&net, source, 22).is_none()).count();
    assert!(start.elapsed() < MINUTE, "too slow to say anything");
    assert_eq!(refused, 3);
    assert_eq!(used(&net, &source.to_string(), "ssh"), (5, 5));
    // Other sources are not affected, nor are open connections.
    let mut others = logins(&net, v4(10));
    others.extend(logins(&net, near.v6));
    for login in open_logins.iter_mut().chain(&mut others) {
        assert_eq!(login.ask("whoami").unwrap(), "whoami");
    }
    assert_eq!(ssh.accepted(), 15);
    let arrived = receiver.finish().unwrap();
    assert_eq!(arrived.from(source).syns, 5);
    assert_eq!(Counts::of(&net, "ssh").packets(), (15, 3));
    assert_eq!(Counts::of(&net, "web").packets(), (0, 0));

    // The limit of logins does not match the web port.
    let receiver = Receiver::start(&hosts.router.namespace, far).unwrap();
    (0..20).for_each(|_| request(&net, source));
    let arrived = receiver.finish().unwrap().from(source);
    assert_eq!(arrived.syns, 20);
    let web = Counts::of(&net, "web");
    assert_eq!((web.conform, web.conform_bytes), (arrived.packets, arrived.bytes));
    assert_eq!(web.exceed, 0);
    assert_eq!(Counts::of(&net, "ssh").packets(), (15, 3));
    let [_, dropped] = totals(&net.json(&format!("get {source} -j")));
    // Three SYNs of 74 bytes.
    assert_eq!(dropped, (3, 3 * 74));
    end(&net);
}

#[test]
fn a_flood_of_the_web_port_is_held_and_logins_of_its_source_go_on() {
    let polite = v4(10);
    let net = attached_with(polite, POLICY);
    let hosts = &net.hosts;
    let (near, far) = (&hosts.client_port, &hosts.router_port);
    let _services = [ssh(&net), Service::start(&hosts.router.namespace, 80, "").unwrap()];
    let (source, stranger) = (near.v4, v4(30));
    let mut login = open(&net, source, 22).unwrap();
    assert_eq!(login.hear().unwrap(), GREETING);

    let frame = |from| Frame::udp(from, far.v4, 40_000, 443).payload(18);
    let mut senders = [net.sender(20_000, frame(source)), net.sender(20_000, frame(stranger))];
    let (sent, arrived) = net.flood(&mut senders, 2 * SECOND, |_| {
        for number in 0..20 {
            let line = format!("line {number}");
            assert_eq!(login.ask(&line).unwrap(), line);
        }
        let mut second = open(&net, source, 22).expect("the web limit is about no login");
        assert_eq!(second.hear().unwrap(), GREETING);
        (0..5).for_each(|_| request(&net, polite));
    });

    let web = Counts::of(&net, "web");
    // The passed frames of the flood are all passed frames minus those of the other sources.
    let others = [stranger, polite].map(|from| arrived.from(from).packets);
    let flood = web.conform - others.iter().sum::<u64>();
    assert_admitted("the source", flood, &sent[0], 10e3, 500);
    assert_admitted("a stranger", others[0], &sent[1], 10e3, 500);
    let refused = [sent[0].packets - flood, sent[1].packets - others[0]];
    assert_eq!(web.exceed, refused.iter().sum::<u64>());
    assert_eq!(Counts::of(&net, "ssh").packets(), (2, 0));
    // At least one packet for each line passed beside the flood.
    assert!(arrived.from(source).packets >= flood + 20, "{arrived:?}, {flood} of the flood");
    for (from, refused) in [(source, refused[0]), (stranger, refused[1]), (polite, 0)] {
        let [_, dropped] = totals(&net.json(&format!("get {from} -j")));
        assert_eq!(dropped, (refused, 60 * refused), "{from}");
    }
    end(&net);
}

/// A bucket admits a packet with part of a token, and some is refilled while connections are opened one after
/// the other. So a source gets one connection more than the burst, and owes it.
#[test]
fn a_bucket_of_connections_admits_its_burst_and_owes_one() {
    let net = applied(
        "
limits:
  - name: ssh
    match: { protocol: tcp, ports: ssh }
    key: source
    count: connections
    rate: 5/min
    burst: 5",
    );
    let ssh = ssh(&net);
    let source = net.hosts.client_port.v4;
    let start = Instant::now();
    let mut open_logins = Vec::new();
    while let Some(mut login) = open(&net, source, 22) {
        assert_eq!(login.hear().unwrap(), GREETING);
        open_logins.push(login);
    }
    let admitted = open_logins.len() as u64;
    let most = 5.0 + 5.0 * start.elapsed().as_secs_f64() / 60.0 + 1.0;
    assert!((6.0..most).contains(&(admitted as f64)), "{admitted}, less than {most:.2} may");
    assert_eq!(Counts::of(&net, "ssh").packets(), (admitted, 1));
    assert_eq!(ssh.accepted(), admitted);
    for login in &mut open_logins {
        assert_eq!(login.ask("whoami").unwrap(), "whoami");
    }
    end(&net);
}

/// A client that gets no answer at first repeats its SYN.
#[test]
fn a_syn_that_is_sent_again_is_of_one_connection() {
    const SYNS: &str = "
limits:
  - name: ssh
    match: { protocol: tcp, ports: ssh }
    key: source
    count: connections
    algorithm: sliding_log
    rate: 2/min
  - name: syns
    match: { protocol: tcp, ports: ssh }
    key: source
    count: syns
    rate: 1000/s";
    let net = applied(SYNS);
    let _ssh = ssh(&net);
    let hosts = &net.hosts;
    let (near, far) = (&hosts.client_port, &hosts.router_port);
    let from = v4(10);
    hosts.client.ip(&format!("address add {from}/24 dev {}\n", near.interface)).unwrap();
    let neighbour = |what: &str, mac: &str| {
        let neighbour = format!("neighbour {what} {from} lladdr {mac} dev {}", far.interface);
        hosts.router.ip(&format!("{neighbour} nud permanent\n")).unwrap();
    };
    neighbour("add", "02:00:00:00:ff:ff");
    let start = Instant::now();
    let mut login = thread::scope(|scope| {
        let to = SocketAddr::new(far.v4.into(), 22);
        let open =
            move || Connection::open_within(&hosts.client.namespace, from.into(), to, MINUTE);
        let opening = scope.spawn(open);
        while Counts::of(&net, "syns").conform < 3 {
            assert!(start.elapsed() < MINUTE, "the client does not try again");
            thread::sleep(Duration::from_millis(50));
        }
        let mac = near.mac.map(|byte| format!("{byte:02x}")).join(":");
        neighbour("replace", &mac);
        opening.join().unwrap().unwrap().expect("the connection is there at last")
    });
    assert_eq!(login.hear().unwrap(), GREETING);
    assert_eq!(Counts::of(&net, "ssh").packets(), (1, 0));
    assert!(open(&net, from, 22).is_some(), "the second of two");
    assert!(open(&net, from, 22).is_none(), "a third one");
    assert!(start.elapsed() < MINUTE, "too slow to say anything");
    assert_eq!(Counts::of(&net, "ssh").packets(), (2, 1));
    end(&net);
}
