//! A name server with a limit in bytes.

use std::{
    collections::BTreeMap,
    io,
    mem::replace,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{
    sandbox::Namespace,
    traffic::{Pace, Receiver, Sent, Stop},
};

use super::{Counts, assert_within, attached_with, end, totals};
use crate::netns::v4;

/// 50 kB/s with a burst of 20 kB.
const POLICY: &str = "
limits:
  - name: dns
    match: { protocol: udp, ports: dns }
    key: source
    count: bytes
    rate: 400kbit/s
    burst: 20kB";

/// The sizes of consecutive requests, in bytes, without packet headers.
const SIZES: [usize; 4] = [40, 512, 120, 1_232];
/// After so long without a packet, none is in flight any more.
const PATIENCE: Duration = Duration::from_millis(500);
const HEADER: usize = 12;

/// A socket with a receive buffer so large that no packet is lost.
fn socket(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    let open = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let room: libc::c_int = 64 << 20;
        let length = size_of_val(&room) as libc::socklen_t;
        let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE);
        let room = (&raw const room).cast();
        // SAFETY: a value of that length.
        match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, room, length) } {
            0 => Ok(socket),
            _ => Err(io::Error::last_os_error()),
        }
    };
    namespace.inside(open).unwrap().unwrap()
}

/// Answers each request with its header, marked as an answer, until it is stopped and no more requests come.
/// Returns the number of requests and their bytes by address.
fn respond(socket: &UdpSocket, stop: &Stop) -> BTreeMap<IpAddr, (u64, u64)> {
    let mut heard = BTreeMap::<_, (u64, u64)>::new();
    let mut request = [0; 2_048];
    loop {
        match socket.recv_from(&mut request) {
            Ok((length, from)) => {
                let (packets, bytes) = heard.entry(from.ip().to_canonical()).or_default();
                *packets += 1;
                *bytes += length as u64;
                request[2] |= 0x80;
                socket.send_to(&request[..HEADER], from).unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                if stop.is_stopped() {
                    return heard;
                }
            }
        }
    }
}

/// The requests of a client, and which of them were answered.
struct Asked {
    sent: Sent,
    /// The size of each request, in bytes.
    sizes: Vec<usize>,
    answered: Vec<bool>,
}

impl Asked {
    fn bytes(&self) -> u64 {
        self.sizes.iter().map(|size| *size as u64).sum()
    }

    fn answers(&self) -> u64 {
        self.answered.iter().filter(|answered| **answered).count() as u64
    }
}

/// Sends requests of these sizes at a pace, then reads the answers, which wait in the socket.
fn ask(socket: &UdpSocket, to: SocketAddr, sizes: &[usize], per_second: u64) -> Asked {
    let mut pace = Pace::new(per_second, Duration::from_secs(2));
    let mut asked = Vec::new();
    while pace.wait(1, &Stop::default()) > 0 {
        let mut request = vec![0; sizes[asked.len() % sizes.len()]];
        request[..2].copy_from_slice(&(asked.len() as u16).to_be_bytes());
        assert_eq!(socket.send_to(&request, to).unwrap(), request.len());
        asked.push(request.len());
    }
    let sent = Sent::until_now(&pace, asked.len() as u64);
    let mut answered = vec![false; asked.len()];
    for number in answers(socket, to) {
        assert!(!replace(&mut answered[usize::from(number)], true), "{number} is answered twice");
    }
    Asked { sent, sizes: asked, answered }
}

/// The numbers of the answered requests.
fn answers(socket: &UdpSocket, to: SocketAddr) -> Vec<u16> {
    let mut answers = Vec::new();
    let mut answer = [0; 2_048];
    loop {
        match socket.recv_from(&mut answer) {
            Ok((length, from)) => {
                let right = length == HEADER && from == to && answer[2] & 0x80 != 0;
                assert!(right, "{length} bytes from {from} are no answer");
                answers.push(u16::from_be_bytes([answer[0], answer[1]]));
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                return answers;
            }
        }
    }
}

#[test]
fn requests_pass_up_to_their_bytes() {
    let net = attached_with(v4(10), POLICY);
    let hosts = &net.hosts;
    let (near, far) = (&hosts.client_port, &hosts.router_port);
    // A limit in bytes also counts the headers of Ethernet, IP and UDP.
    let clients = [
        (IpAddr::from(near.v4), 1_000, &SIZES[..], 42),
        (near.v6.into(), 800, &SIZES, 62),
        (v4(10).into(), 50, &SIZES[..1], 42),
    ];
    let server = socket(&hosts.router.namespace, (Ipv6Addr::UNSPECIFIED, 53).into());
    let receiver = Receiver::start(&hosts.router.namespace, far).unwrap();
    let (stop, start) = (Stop::default(), Instant::now());
    let (asked, heard) = thread::scope(|scope| {
        let server = scope.spawn(|| respond(&server, &stop));
        let asking = clients.map(|(from, per_second, sizes, _)| {
            let socket = socket(&hosts.client.namespace, (from, 0).into());
            let to = SocketAddr::new(far.address_like(from), 53);
            scope.spawn(move || ask(&socket, to, sizes, per_second))
        });
        let asked = asking.map(thread::ScopedJoinHandle::join);
        stop.stop();
        (asked.map(Result::unwrap), server.join().unwrap())
    });
    let arrived_until = start.elapsed();
    let arrivals = receiver.finish().unwrap();

    for ((from, _, _, headers), asked) in clients.iter().zip(&asked) {
        let arrived = arrivals.from(*from);
        // Limiter, the wire behind it, the server and the client agree.
        let (requests, bytes) = heard[from];
        assert_eq!((arrived.packets, arrived.bytes), (requests, bytes + headers * requests));
        assert_eq!(asked.answers(), requests, "{from}");
        let refused = asked.sent.packets - requests;
        let refused_bytes = asked.bytes() - bytes + headers * refused;
        let source = if from.is_ipv4() { from.to_string() } else { "2001:db8::/64".to_owned() };
        let report = net.json(&format!("get {source} -j"));
        assert_eq!(
            totals(&report),
            [(arrived.packets, arrived.bytes), (refused, refused_bytes)],
            "{report}"
        );
        assert_eq!(report["limits"][0]["count"], "bytes");
    }
    let [heavy, heavy_six, light] = &asked;
    assert_eq!(light.answers(), light.sent.packets, "who asks little loses nothing");
    for (asked, (from, _, _, headers)) in [heavy, heavy_six].into_iter().zip(&clients) {
        let largest = 1_232 + headers;
        let bytes = arrivals.from(*from).bytes;
        assert_within(bytes, (5e4, 20_000, largest), &[asked.sent], arrived_until);
        // No request is refused before the burst is spent.
        let first = asked.answered.iter().position(|answered| !answered).unwrap();
        let before: u64 = asked.sizes[..first].iter().map(|size| *size as u64 + headers).sum();
        assert!(before >= 20_000, "{from}: request {first} was refused after {before} bytes");
    }
    let dns = Counts::of(&net, "dns");
    let all = arrivals.sum(|flow| clients.iter().any(|client| client.0 == flow.source));
    let sent: u64 = asked.iter().map(|asked| asked.sent.packets).sum();
    let sent_bytes: u64 = asked
        .iter()
        .zip(&clients)
        .map(|(asked, client)| asked.bytes() + client.3 * asked.sent.packets)
        .sum();
    assert_eq!((dns.conform, dns.conform_bytes), (all.packets, all.bytes));
    assert_eq!((dns.exceed, dns.exceed_bytes), (sent - all.packets, sent_bytes - all.bytes));
    end(&net);
}
