//! Tests of the harness: it counts exactly what it sent.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use limiter_tests::{
    packet::{Frame, SYN, set_source},
    process,
    sandbox::{BPFFS, Sandbox},
    topology::{Host, Topology},
    traffic::{Flow, Receiver, Sender, Stop, datagrams, send_together, storm, transfer},
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn every_frame_that_is_sent_arrives_and_is_counted() {
    let Topology { client, router, client_port, router_port } =
        Topology::new(&Sandbox::new().unwrap()).unwrap();
    let macs = |frame: Frame| frame.macs(client_port.mac, router_port.mac).build();
    let sender = |per_second, frame| {
        Sender::new(&client.namespace, &client_port, per_second, frame).unwrap()
    };
    let udp = Frame::udp([198, 18, 0, 10], router_port.v4, 1, 2).payload(18);
    let syn = Frame::tcp([198, 18, 0, 11], router_port.v4, 1, 2, SYN);
    let tagged = Frame::udp([198, 18, 0, 12], router_port.v4, 1, 2).tag(0x8100, 7).tag(0x8100, 8);
    let hopping = Frame::udp(client_port.v6, router_port.v6, 1, 2);
    let network = u128::from(Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 0));
    let mut senders = [
        sender(20_000, macs(udp)),
        sender(5_000, macs(syn)),
        sender(3_000, macs(tagged)),
        sender(2_000, macs(hopping)).edited(move |number, frame| {
            let source = Ipv6Addr::from(network + u128::from(number));
            assert!(set_source(frame, source.into()));
        }),
    ];
    let lost_before = client.lost("eth0").unwrap();
    let receiver = Receiver::start(&router.namespace, &router_port).unwrap();
    let sent = send_together(&mut senders, SECOND, &Stop::default()).unwrap();
    let arrivals = receiver.finish().unwrap();

    let packets: Vec<_> = sent.iter().map(|sent| sent.packets).collect();
    assert_eq!(packets, [20_000, 5_000, 3_000, 2_000]);
    for sent in &sent {
        let seconds = sent.time.as_secs_f64();
        assert!((0.99..1.2).contains(&seconds), "{sent:?}");
    }
    assert_eq!(arrivals.from([198, 18, 0, 10]).packets, 20_000);
    assert_eq!(arrivals.from([198, 18, 0, 10]).bytes, 20_000 * 60);
    let syns = arrivals.from([198, 18, 0, 11]);
    assert_eq!((syns.packets, syns.syns), (5_000, 5_000));
    assert_eq!(arrivals.sum(|flow| flow.vlan == Some(7)).packets, 3_000);
    let hopped = |flow: &Flow| flow.is_within(Ipv6Addr::from(network).into(), 64);
    assert_eq!(arrivals.sum(hopped).packets, 2_000);
    assert_eq!(arrivals.flows.keys().filter(|flow| hopped(flow)).count(), 2_000);
    let refused: u64 = sent.iter().map(|sent| sent.refused).sum();
    assert_eq!(client.lost("eth0").unwrap() - lost_before, refused);
}

#[test]
fn sockets_of_two_hosts_talk() {
    let Topology { client, router, client_port, router_port } =
        Topology::new(&Sandbox::new().unwrap()).unwrap();
    for address in [IpAddr::from(router_port.v4), router_port.v6.into()] {
        let source = client_port.address_like(address);
        let (from, to) = (&client.namespace, &router.namespace);
        let speed = transfer(from, to, address, 8_000_000, SECOND / 5).unwrap();
        assert!(speed > 4e6, "{speed} bytes/s");
        let receiver = Receiver::start(&router.namespace, &router_port).unwrap();
        let storm = storm(&client.namespace, (address, 9).into(), 1_000, SECOND / 10).unwrap();
        let arrivals = receiver.finish().unwrap();
        assert_eq!((storm.packets, arrivals.from(source).syns), (100, 100), "{arrivals:?}");
        let receiver = Receiver::start(&router.namespace, &router_port).unwrap();
        let sent = datagrams(&client.namespace, (address, 9).into(), 1_000, SECOND / 10).unwrap();
        let arrivals = receiver.finish().unwrap();
        assert_eq!((sent.packets, arrivals.from(source).packets), (100, 100), "{arrivals:?}");
    }
}

#[test]
fn sandboxes_do_not_see_each_other() {
    let [a, b] = [Sandbox::new().unwrap(), Sandbox::new().unwrap()];
    let [a, b] = [Topology::new(&a).unwrap(), Topology::new(&b).unwrap()];
    let folder = format!("{BPFFS}/only-here");
    assert!(a.client.command("mkdir").arg(&folder).status().unwrap().success());
    assert!(a.router.command("test").args(["-d", &folder]).status().unwrap().success());
    assert!(!b.client.command("test").args(["-d", &folder]).status().unwrap().success());
    assert!(a.client.sandbox.processes().unwrap().is_empty());
    let mut sleeper = a.client.command("sleep").arg("60").spawn().unwrap();
    assert_eq!(a.client.sandbox.processes().unwrap(), [sleeper.id()]);
    process::kill(&mut sleeper);

    let bare = Sandbox::without_bpffs().unwrap();
    let host = Host::new(&bare, "bare").unwrap();
    assert!(!host.command("mkdir").arg(&folder).output().unwrap().status.success());
}
