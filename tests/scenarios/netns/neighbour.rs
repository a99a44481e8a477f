//! A flood from other sources does not slow down a source within its limit.

use std::{net::IpAddr, time::Duration};

use limiter_tests::traffic::transfer;

use super::{Net, assert_admitted, v4, v6};

/// Bytes per second of the transfer: ten times what a source without an override may send, and so few that
/// the machine does not limit it.
const SPEED: u64 = 20_000_000;

#[test]
fn a_tcp_transfer_keeps_its_speed_beside_a_flood() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let (from, to) = (&net.hosts.client_port, &net.hosts.router_port);
    for address in [from.v4.into(), IpAddr::from(from.v6)] {
        let prefix = match address {
            IpAddr::V4(_) => format!("{address}/32"),
            IpAddr::V6(_) => "2001:db8::/64".to_owned(),
        };
        net.run(&format!("limit set source --src {prefix} --rate 10Mpps"));
    }
    let length = Duration::from_secs(1);
    for (address, flooder) in
        [(IpAddr::from(to.v4), IpAddr::from(v4(80))), (to.v6.into(), v6(80, 1).into())]
    {
        let hosts = &net.hosts;
        let speed = || {
            let (client, server) = (&hosts.client.namespace, &hosts.router.namespace);
            transfer(client, server, address, SPEED, length).unwrap()
        };
        let alone = speed();
        assert!(alone >= 0.8 * SPEED as f64, "{:.1} MB/s without a flood", alone / 1e6);
        let mut beside = 0.0;
        let mut senders = [net.sender(50_000, net.udp(flooder))];
        let (sent, arrivals) = net.flood(&mut senders, length + length / 2, |_| beside = speed());
        assert_admitted("the flooder", arrivals.from(flooder).packets, &sent[0], 1e3, 200);
        assert!(
            beside >= 0.8 * alone,
            "{address}: {:.1} MB/s beside a flood, {:.1} MB/s without",
            beside / 1e6,
            alone / 1e6
        );
    }
}

#[test]
fn a_polite_source_loses_nothing_beside_floods() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let mut senders = [
        net.sender(800, net.udp(v4(81))),
        net.sender(800, net.udp(v6(81, 1))),
        net.sender(40_000, net.udp(v4(82))),
        net.sender(40_000, net.udp(v6(82, 1))),
    ];
    let lost = net.hosts.client.lost("eth0").unwrap();
    let (sent, arrivals) = net.flood(&mut senders, Duration::from_secs(2), |_| {});
    let refused: u64 = sent.iter().map(|sent| sent.refused).sum();
    // The full queue drops packets of the kernel itself too.
    let lost = net.hosts.client.lost("eth0").unwrap() - lost;
    assert!(lost >= refused, "the sender counted {refused} refused frames, the wire {lost}");
    assert_eq!(arrivals.from(v4(81)).packets, sent[0].packets);
    assert_eq!(arrivals.from(v6(81, 1)).packets, sent[1].packets);
    assert_admitted("IPv4", arrivals.from(v4(82)).packets, &sent[2], 1e3, 200);
    assert_admitted("IPv6", arrivals.from(v6(82, 1)).packets, &sent[3], 1e3, 200);
}
