//! Datagrams longer than a packet, to a service with a limit in bytes.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use limiter_tests::sandbox::Namespace;

use super::{Counts, end};

/// 100 kB at once, and almost nothing after that.
const POLICY: &str = "
limits:
  - name: service
    match: { protocol: udp, ports: 53 }
    key: source
    count: bytes
    rate: 1kbit/s
    burst: 100kB";

/// After so long without a datagram, none is in flight any more.
const PATIENCE: Duration = Duration::from_millis(500);

fn socket(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    let open = || {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok::<_, io::Error>(socket)
    };
    namespace.inside(open).unwrap().unwrap()
}

/// The lengths of the received datagrams.
fn lengths(socket: &UdpSocket) -> Vec<usize> {
    let mut datagram = vec![0; 1 << 16];
    let mut lengths = Vec::new();
    loop {
        match socket.recv(&mut datagram) {
            Ok(length) => lengths.push(length),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                return lengths;
            }
        }
    }
}

#[test]
fn a_long_datagram_is_charged_with_all_its_fragments() {
    for is_ipv6 in [false, true] {
        let net = super::applied(POLICY);
        let hosts = &net.hosts;
        let (near, far) = (&hosts.client_port, &hosts.router_port);
        let from: IpAddr = if is_ipv6 { near.v6.into() } else { near.v4.into() };
        let to = far.address_like(from);
        let of = |port| socket(&hosts.router.namespace, (Ipv6Addr::UNSPECIFIED, port).into());
        let (limited, free) = (of(53), of(5_353));
        let client = socket(&hosts.client.namespace, (from, 0).into());
        let send = |length: usize, port: u16| {
            assert_eq!(client.send_to(&vec![7; length], (to, port)).unwrap(), length);
        };

        // Datagrams within the limit arrive whole; datagrams to other ports do not count.
        send(60_000, 5_353);
        send(60_000, 53);
        assert_eq!((lengths(&limited), lengths(&free)), (vec![60_000], vec![60_000]));
        let within = Counts::of(&net, "service");
        assert!((60_000..64_000).contains(&within.conform_bytes), "{within:?}");
        assert_eq!(within.exceed, 0);

        // No more datagrams arrive whole, and little of them passes.
        for _ in 0..20 {
            send(60_000, 53);
        }
        assert_eq!(lengths(&limited), [0; 0]);
        let all = Counts::of(&net, "service");
        assert!((99_000 - 1_514..110_000).contains(&all.conform_bytes), "{all:?}");
        assert!(all.exceed_bytes > 1_000_000, "{all:?}");
        send(60_000, 5_353);
        assert_eq!(lengths(&free), [60_000]);
        end(&net);
    }
}
