//! Several interfaces, several instances, and interfaces without native XDP.

use std::time::Duration;

use limiter_tests::{
    leak::Footprint,
    sandbox::BPFFS,
    topology::{Port, lay_wire},
    traffic::{Receiver, Sender, Sent, datagrams},
};

use super::{Net, SMALL, assert_admitted, port_frame, send, v4};

const SECOND: Duration = Duration::from_secs(1);

/// Lays a second wire between the hosts.
fn second_wire(net: &Net) -> (Port, Port) {
    lay_wire(1, (&net.hosts.client, "eth1"), (&net.hosts.router, "eth1")).unwrap()
}

#[test]
fn interfaces_of_an_instance_share_their_buckets() {
    let net = Net::new();
    let (from, to) = second_wire(&net);
    net.run(&format!("attach eth0 eth1 {SMALL} --pps 1kpps --burst 200"));
    let frame = port_frame(net.udp(v4(10)), &from, &to);
    let mut senders = [
        net.sender(10_000, net.udp(v4(10))),
        Sender::new(&net.hosts.client.namespace, &from, 10_000, frame).unwrap(),
    ];
    let receiver = Receiver::start(&net.hosts.router.namespace, &to).unwrap();
    let (sent, arrivals) = net.flood(&mut senders, 2 * SECOND, |_| {});
    let others = receiver.finish().unwrap();
    let passed = [&arrivals, &others].map(|arrivals| arrivals.from(v4(10)).packets);
    // The senders do not start at the same moment, and one sends while the other pauses.
    let (one, other) = (sent[0], sent[1]);
    let start = one.start.min(other.start);
    let end = (one.start + one.time).max(other.start + other.time);
    let paused = one.paused.min(other.paused);
    let both = Sent { start, time: end - start, paused, ..one };
    assert_admitted("both", passed.iter().sum(), &both, 1e3, 200);

    let status = net.json("status -j");
    for (number, passed) in passed.iter().enumerate() {
        let interface = &status["interfaces"][number];
        assert_eq!(interface["name"], format!("eth{number}"));
        assert!(interface["packets"]["passed"].as_u64().unwrap() >= *passed, "{interface}");
    }
    let footprint = net.footprint();
    net.run("detach eth0");
    let frame = port_frame(net.udp(v4(11)), &from, &to);
    let mut senders = [Sender::new(&net.hosts.client.namespace, &from, 10_000, frame).unwrap()];
    let receiver = Receiver::start(&net.hosts.router.namespace, &to).unwrap();
    let sent = send(&mut senders, SECOND, |_| {});
    let passed = receiver.finish().unwrap().from(v4(11)).packets;
    assert_admitted("the one that stays", passed, &sent[0], 1e3, 200);
    net.run("detach eth1");
    footprint.assert_gone().unwrap();
}

#[test]
fn instances_do_not_touch_each_other() {
    let net = Net::new();
    let (from, to) = second_wire(&net);
    let [a, b] = ["a", "b"].map(|name| format!("{BPFFS}/{name}"));
    net.run(&format!("--bpffs {a} attach eth0 {SMALL} --pps 1kpps --burst 200"));
    net.run(&format!("--bpffs {b} attach eth1 {SMALL} --pps 300/s --burst 50"));
    let [foot_a, foot_b] = [&a, &b].map(|path| Footprint::of(&net.hosts.router, path).unwrap());
    let frame = port_frame(net.udp(v4(10)), &from, &to);
    let mut senders = [
        net.sender(10_000, net.udp(v4(10))),
        Sender::new(&net.hosts.client.namespace, &from, 10_000, frame).unwrap(),
    ];
    let receiver = Receiver::start(&net.hosts.router.namespace, &to).unwrap();
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {
        net.run(&format!("--bpffs {a} limit set source --src 203.0.113.0/24 --rate 1/s"));
    });
    let others = receiver.finish().unwrap();
    assert_admitted("a", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    assert_admitted("b", others.from(v4(10)).packets, &sent[1], 300.0, 50);

    let list = net.json(&format!("--bpffs {b} limit list -j"))["limits"].take();
    assert!(!list.to_string().contains("203.0.113.0/24"), "{list}");
    net.run(&format!("--bpffs {a} detach --all"));
    foot_a.assert_gone().unwrap();
    assert!(foot_b.is_left().unwrap(), "b is gone too");
    let receiver = Receiver::start(&net.hosts.router.namespace, &to).unwrap();
    let sent = send(&mut senders[1..], SECOND, |_| {});
    let passed = receiver.finish().unwrap().from(v4(10)).packets;
    assert_admitted("b, alone", passed, &sent[0], 300.0, 50);
    let status = net.limiter.run("status -j").env("LIMITER_BPFFS", &b).json().unwrap();
    assert_eq!(status["interfaces"][0]["name"], "eth1");
    net.limiter.run("detach eth1").env("LIMITER_BPFFS", &b).done().unwrap();
    foot_b.assert_gone().unwrap();
}

#[test]
fn an_interface_without_native_xdp_is_attached_in_generic_mode_which_is_said() {
    let net = Net::new();
    let outcome = net.run(&format!("attach lo {SMALL} --pps 500/s --burst 50"));
    assert!(outcome.stdout.contains("generic"), "{outcome}");
    assert!(outcome.stdout.contains("native"), "the reason is missing: {outcome}");
    let status = net.json("status -j");
    assert_eq!(status["interfaces"][0]["mode"], "generic");
    let router = &net.hosts.router.namespace;
    let before = net.counted("127.0.0.1");
    let sent = datagrams(router, ([127, 0, 0, 1], 9).into(), 5_000, SECOND).unwrap();
    let (passed, dropped) = net.counted("127.0.0.1");
    // ICMP errors for the closed port have the same source and count against the same limit.
    assert!(passed + dropped - before.0 - before.1 >= sent.packets);
    assert_admitted("lo", passed, &sent, 500.0, 50);
    net.limiter.run("attach eth0 --mode hw").outcome().unwrap().assert_exit_code(2);
    net.run("detach lo");
}

#[test]
fn generic_mode_limits_as_native_mode_does() {
    let net = Net::attached("--mode skb --pps 1kpps --burst 200");
    assert_eq!(net.json("status -j")["interfaces"][0]["mode"], "generic");
    let mut senders = [
        net.sender(10_000, net.udp(v4(10))),
        net.sender(10_000, net.udp(v4(11)).tag(0x8100, 9)),
        net.sender(10_000, net.udp(super::v6(1, 1))),
    ];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    assert_admitted("IPv4", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    assert_admitted("tagged", arrivals.from(v4(11)).packets, &sent[1], 1e3, 200);
    assert_admitted("IPv6", arrivals.from(super::v6(1, 1)).packets, &sent[2], 1e3, 200);
}
