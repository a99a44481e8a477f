//! IPv6 works under a policy that denies all but a list, like IPv4: neighbour discovery passes.

use std::{
    net::{Ipv6Addr, SocketAddr, UdpSocket},
    sync::mpsc::{self, TryRecvError},
    thread,
    time::Duration,
};

use limiter_tests::sandbox::Namespace;

use super::Net;

const PORT: u16 = 9_000;
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 2);
const STRANGER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x98, 0, 0, 0, 0, 2);

/// Whether a datagram from this address of the client comes back within `tries` attempts.
fn echoes(client: &Namespace, from: Ipv6Addr, to: Ipv6Addr, tries: u32) -> bool {
    let ask = || {
        let socket = UdpSocket::bind(SocketAddr::from((from, 0))).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        (0..tries).any(|_| {
            socket.send_to(b"there", SocketAddr::from((to, PORT))).unwrap();
            socket.recv(&mut [0; 16]).is_ok()
        })
    };
    client.inside(ask).unwrap()
}

#[test]
fn neighbours_find_each_other_where_all_but_a_list_is_denied() {
    let net = Net::attached("");
    let hosts = &net.hosts;
    let (near, far) = (&hosts.client_port, &hosts.router_port);
    // Both ends have to be resolved, and have link-local addresses, which no list entry allows.
    for (host, local, peers) in [
        (&hosts.client, "fe80::c", [far.v6.to_string(), "fe80::d".to_owned()]),
        (&hosts.router, "fe80::d", [near.v6.to_string(), "fe80::c".to_owned()]),
    ] {
        host.ip(&format!(
            "address add {local}/64 dev eth0 nodad\nneighbour del {} dev eth0\n",
            peers[0]
        ))
        .unwrap();
    }
    for address in [CLIENT, STRANGER] {
        hosts.client.ip(&format!("address add {address}/128 dev lo nodad\n")).unwrap();
        hosts.router.ip(&format!("route add {address}/128 via fe80::c dev eth0\n")).unwrap();
    }
    net.run("allow add 2001:db8:99::/64");
    net.run("deny add ::/0");
    let server = hosts
        .router
        .namespace
        .inside(|| {
            let socket = UdpSocket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            socket
        })
        .unwrap();
    let (client, to) = (&hosts.client.namespace, far.v6);
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let mut bytes = [0; 16];
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                if let Ok((length, from)) = server.recv_from(&mut bytes) {
                    server.send_to(&bytes[..length], from).unwrap();
                }
            }
        });
        let counted = || net.json("status -j")["reasons"]["control"].as_u64().unwrap();
        let before = counted();
        for _ in 0..2 {
            assert!(echoes(client, CLIENT, to, 5), "an allowed source");
            for host in [&hosts.client, &hosts.router] {
                host.ip("neighbour flush dev eth0\n").unwrap();
            }
        }
        assert!(counted() > before, "neighbours were asked for");
        assert!(!echoes(client, STRANGER, to, 1), "another source is denied");
        // A failed assertion above drops `stop` too, so that the server ends and the test fails.
        drop(stop);
        echo.join().unwrap();
    });
}
