//! What each limit admits of each kind of traffic, counted on the wire.

use std::{net::IpAddr, time::Duration};

use limiter_tests::{
    packet::{Frame, SYN, set_source},
    traffic::{Receiver, datagrams, storm},
};

use super::{Net, assert_admitted, v4, v6};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn sources_are_held_to_their_own_rate_and_to_no_other() {
    let net = Net::attached("--pps 1kpps --burst 200");
    for (prefix, rate, burst) in [
        ("198.18.0.32/27", "10kpps", "1k"),
        ("198.18.0.40/32", "100/s", "10"),
        ("2001:db8:f00:2::/64", "5kpps", "1k"),
    ] {
        net.run(&format!("limit set source --src {prefix} --rate {rate} --burst {burst}"));
    }
    // Source, packets offered per second, and the rate and burst of its limit.
    let sources: [(IpAddr, u64, f64, u64); 7] = [
        (v4(10).into(), 20_000, 1e3, 200),
        (v4(11).into(), 1_100, 1e3, 200),
        (v4(12).into(), 500, 1e3, 200),
        (v4(33).into(), 15_000, 1e4, 1_000),
        (v4(40).into(), 2_000, 1e2, 10),
        (v6(1, 1).into(), 10_000, 1e3, 200),
        (v6(2, 1).into(), 10_000, 5e3, 1_000),
    ];
    let mut senders: Vec<_> = sources
        .iter()
        .map(|&(source, per_second, ..)| net.sender(per_second, net.udp(source)))
        .collect();
    let (sent, arrivals) = net.flood(&mut senders, 3 * SECOND, |_| {});
    for ((source, _, rate, burst), sent) in sources.iter().zip(&sent) {
        let passed = arrivals.from(*source).packets;
        assert_admitted(&source.to_string(), passed, sent, *rate, *burst);
        let name = match source {
            IpAddr::V4(_) => source.to_string(),
            IpAddr::V6(v6) => format!("2001:db8:f00:{}::/64", v6.segments()[3]),
        };
        assert_eq!(net.counted(&name), (passed, sent.packets - passed), "{name}");
    }
}

#[test]
fn no_frame_gets_past_the_limit_of_its_source() {
    let net = Net::attached("--pps 500pps --burst 50");
    let first_fragment = |frame: Frame| frame.payload(64).fragment(7, 0, true);
    let later_fragment = |frame: Frame| frame.payload(64).fragment(7, 8, false);
    let kinds: Vec<(&str, IpAddr, Frame)> = vec![
        ("tagged", v4(50).into(), net.udp(v4(50)).tag(0x8100, 5)),
        ("three tags", v4(51).into(), net.udp(v4(51)).tag(0x88a8, 5).tag(0x8100, 6).tag(0x8100, 7)),
        ("options", v4(52).into(), net.udp(v4(52)).options(&[7, 7, 4, 0, 0, 0, 0])),
        ("first fragments", v4(53).into(), first_fragment(net.udp(v4(53)))),
        ("later fragments", v4(54).into(), later_fragment(net.udp(v4(54)))),
        ("fragments of IPv6", v6(54, 1).into(), later_fragment(net.udp(v6(54, 1)))),
        ("an unknown protocol", v4(55).into(), Frame::ip(v4(55), v4(2), 200).payload(30)),
        ("echo", v6(55, 1).into(), Frame::echo(v6(55, 1), net.hosts.router_port.v6, 1, 1)),
    ];
    let mut senders: Vec<_> =
        kinds.iter().map(|(_, _, frame)| net.sender(4_000, frame.clone())).collect();
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    for ((kind, source, _), sent) in kinds.iter().zip(&sent) {
        assert_admitted(kind, arrivals.from(*source).packets, sent, 500.0, 50);
    }
}

#[test]
fn a_source_that_changes_its_address_within_its_prefix_stays_one_source() {
    let net = Net::attached("--pps 1kpps --burst 200 --ipv4-prefix 24");
    let hopping = |source: IpAddr| {
        net.sender(10_000, net.udp(source)).edited(move |number, frame| {
            let source = match source {
                IpAddr::V4(v4) => {
                    IpAddr::from((v4.to_bits() | (number as u32 % 256)).to_be_bytes())
                }
                IpAddr::V6(v6) => IpAddr::from((v6.to_bits() | u128::from(number)).to_be_bytes()),
            };
            assert!(set_source(frame, source));
        })
    };
    let mut senders = [hopping([203, 0, 113, 0].into()), hopping(v6(9, 0).into())];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    for (name, network, sent) in [
        ("203.0.113.0/24", IpAddr::from([203, 0, 113, 0]), &sent[0]),
        ("2001:db8:f00:9::/64", v6(9, 0).into(), &sent[1]),
    ] {
        let length = if network.is_ipv4() { 24 } else { 64 };
        let passed = arrivals.sum(|flow| flow.is_within(network, length)).packets;
        assert_admitted(name, passed, sent, 1e3, 200);
        assert_eq!(net.counted(name), (passed, sent.packets - passed));
    }
}

#[test]
fn syns_are_limited_and_nothing_else_of_their_source_is() {
    let net = Net::attached("--syn 50/s");
    net.run("limit set syn --rate 50/s --burst 20");
    let to = net.hosts.router_port.v4;
    let six = net.hosts.router_port.v6;
    let mut senders = [
        net.sender(10_000, Frame::tcp(v4(60), to, 40_000, 443, SYN)),
        net.sender(10_000, Frame::tcp(v6(60, 1), six, 40_000, 443, SYN)),
        net.sender(2_000, Frame::udp(v4(60), to, 40_000, 9)),
        net.sender(2_000, Frame::tcp(v4(61), to, 40_000, 443, SYN | limiter_tests::packet::ACK)),
    ];
    let (sent, arrivals) = net.flood(&mut senders, 2 * SECOND, |_| {});
    let four = arrivals.from(v4(60));
    assert_admitted("SYNs of IPv4", four.syns, &sent[0], 50.0, 20);
    assert_admitted("SYNs of IPv6", arrivals.from(v6(60, 1)).syns, &sent[1], 50.0, 20);
    assert_eq!(four.packets - four.syns, sent[2].packets, "other packets of the source");
    assert_eq!(arrivals.from(v4(61)).packets, sent[3].packets, "SYNs with ACK");
}

#[test]
fn each_connection_has_a_bucket_of_its_own() {
    let net = Net::attached("");
    net.run("limit set connection --rate 200/s --burst 20");
    let to = net.hosts.router_port.v4;
    let sender = |port| net.sender(2_000, Frame::udp(v4(70), to, port, 9).payload(18));
    let mut senders = [sender(1), sender(2), sender(3)];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    let passed = arrivals.from(v4(70)).packets;
    let most: f64 = sent.iter().map(|sent| 20.0 + 200.0 * sent.time.as_secs_f64() + 1.0).sum();
    assert!((passed as f64) <= most, "{passed} of {most}");
    assert!(passed as f64 >= most * 0.99 - 6.0, "{passed} of {most}");
}

#[test]
fn sockets_are_limited_like_anything_else() {
    let net = Net::attached("--pps 1kpps --burst 100 --syn 100/s");
    net.run("limit set syn --rate 100/s --burst 30");
    let (from, to) = (&net.hosts.client_port, &net.hosts.router_port);
    let client = &net.hosts.client.namespace;
    for address in [IpAddr::from(to.v4), to.v6.into()] {
        let source = from.address_like(address);
        let receiver = Receiver::start(&net.hosts.router.namespace, to).unwrap();
        // Shorter than a second, after which the kernel repeats a SYN.
        let storm = storm(client, (address, 9).into(), 1_000, SECOND * 9 / 10).unwrap();
        let arrivals = receiver.finish().unwrap();
        assert_admitted("connections", arrivals.from(source).syns, &storm, 100.0, 30);

        // Until the bucket of the source is full again.
        std::thread::sleep(SECOND / 5);
        let receiver = Receiver::start(&net.hosts.router.namespace, to).unwrap();
        let sent = datagrams(client, (address, 9).into(), 5_000, SECOND).unwrap();
        let arrivals = receiver.finish().unwrap();
        assert_admitted("datagrams", arrivals.from(source).packets, &sent, 1e3, 100);
    }
}
