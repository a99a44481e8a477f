//! All interfaces of an instance run one main program, which their dispatchers call.

use std::time::Duration;

use aya::maps::{Array, MapData, ProgramArray};
use limiter_common::abi::{build::Build, layout::map};
use limiter_tests::{
    packet::Frame,
    program::typed,
    sandbox::Namespace,
    topology::{Port, Topology, lay_wire, lay_wire_to_index},
    traffic::{Receiver, Sender},
};

use limiter_userspace::datapath::{
    main_program,
    program::{Clock, Program},
};
use serde_json::Value;

use super::{
    Net, SMALL, assert_admitted,
    exchange::{on_pins, program},
    port_frame, send, v4,
};
use crate::cli::Document;

const SECOND: Duration = Duration::from_secs(1);

/// The id of the dispatcher on an interface of the router.
fn dispatcher(net: &Net, interface: &str) -> u64 {
    let link = net.hosts.router.ip_json(&["link", "show", "dev", interface]).unwrap();
    link[0]["xdp"]["prog"]["id"].as_u64().unwrap()
}

/// Sends a frame for a while to a port of a namespace, and returns how many were sent and how many came.
fn flood(net: &Net, frame: Frame, from: &Port, to: (&Namespace, &Port)) -> (u64, u64) {
    let frame = port_frame(frame, from, to.1);
    let sender = Sender::new(&net.hosts.client.namespace, from, 5_000, frame).unwrap();
    let receiver = Receiver::start(to.0, to.1).unwrap();
    let sent = send(&mut [sender], SECOND / 2, |_| {});
    (sent[0].packets, receiver.finish().unwrap().from(v4(10)).packets)
}

/// The packets of an interface that `limiter status` counts, passed and dropped.
fn packets(net: &Net, place: usize) -> (u64, u64) {
    let status = net.json("status -j");
    let packets = &status["interfaces"][place]["packets"];
    let count = |what| packets[what].as_u64().unwrap();
    (count("passed"), count("dropped"))
}

#[test]
fn one_main_program_is_for_all_interfaces() {
    let net = Net::new();
    lay_wire(1, (&net.hosts.client, "eth1"), (&net.hosts.router, "eth1")).unwrap();
    net.run(&format!("attach eth0 {SMALL} --pps 1kpps --burst 200"));
    let (main, first) = (program(&net).unwrap(), dispatcher(&net, "eth0"));
    net.run("attach eth1");
    let second = dispatcher(&net, "eth1");
    assert_eq!(program(&net), Some(main));
    // That of all is replaced, and the dispatcher of the one that is named.
    net.run("attach eth1 --replace");
    let main = program(&net).filter(|now| *now != main).unwrap();
    assert_eq!(dispatcher(&net, "eth0"), first);
    let replaced = dispatcher(&net, "eth1");
    assert!(replaced != second && replaced != first, "{first} {second} {replaced}");
    // Another table takes another main program, and touches no link.
    net.run("attach eth0 --sources 8192");
    assert_ne!(program(&net), Some(main));
    assert_eq!(["eth0", "eth1"].map(|name| dispatcher(&net, name)), [first, replaced]);
    let footprint = net.footprint();
    net.run("detach eth0");
    net.run("detach eth1");
    footprint.assert_gone().unwrap();
}

/// The slot of an interface is a constant of its dispatcher, so neither its index nor its namespace matters.
#[test]
fn an_interface_keeps_its_slot_whatever_its_index_and_namespace() {
    let net = Net::new();
    let (client, router) = (&net.hosts.client, &net.hosts.router);
    let (from, to) = lay_wire_to_index(1, (client, "eth1"), (router, "eth1"), 100_000).unwrap();
    assert_eq!(to.index, 100_000);
    let document = Document::new(
        "limits: [{name: some, match: {interface: eth1}, key: source, rate: 1/min, burst: 7}]",
    );
    net.run(&document.in_place(&format!("attach eth0 eth1 {SMALL} --policy FILE")));
    let (sent, came) = flood(&net, net.udp(v4(10)), &from, (&router.namespace, &to));
    assert!([7, 8].contains(&came), "{came}");
    let before = packets(&net, 1);
    assert!(before.0 >= came && before.1 >= sent - came, "{before:?} of {sent}");
    let (_, port) = (&net.hosts.client_port, &net.hosts.router_port);
    let (sent, came) =
        flood(&net, net.udp(v4(10)), &net.hosts.client_port, (&router.namespace, port));
    assert_eq!(came, sent, "the limit is about the other interface");
    let before = packets(&net, 1);

    let elsewhere = Namespace::new().unwrap();
    router.ip(&format!("link set dev eth1 netns {}", elsewhere.path())).unwrap();
    let set_up = || {
        let mut ip = router.sandbox.command(&elsewhere, "ip");
        assert!(ip.args(["link", "set", "dev", "eth1", "up"]).status().unwrap().success());
    };
    set_up();
    let index = || limiter_userspace::datapath::interface::Interface::find("eth1").unwrap().index;
    let moved = Port { index: elsewhere.inside(index).unwrap(), ..to };
    let (sent, came) = flood(&net, net.udp(v4(10)), &from, (&elsewhere, &moved));
    assert!(sent > 100 && came <= 1, "{came} of {sent}");
    let after = packets(&net, 1);
    assert!(after.1 - before.1 >= sent - came, "{before:?} {after:?}, {sent} sent");
    net.run("detach --all");
}

/// Has the wire to the router carry frames that lie in several pieces.
fn carry_large_frames(net: &Net) {
    let Topology { client, router, client_port, router_port } = &net.hosts;
    for (host, port) in [(client, client_port), (router, router_port)] {
        host.ip(&format!("link set {} mtu 9000", port.interface)).unwrap();
    }
}

/// Another interface may run the main program for packets in several pieces, of an older build.
#[test]
fn an_interface_that_takes_no_native_program_takes_none_from_others() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let held = |frags| on_pins(&net, move |pins| main_program::held(pins, frags).unwrap());
    net.run("attach lo");
    assert_eq!(held(true), None, "nobody runs it");
    net.run("detach eth0");
    carry_large_frames(&net);
    net.run("attach eth0");
    assert!(held(true).is_some());
    net.run("detach lo");
    on_pins(&net, |pins| {
        let mut other = Program::load(pins, true, Clock::Monotonic).unwrap();
        let mut programs: ProgramArray<MapData> = typed(pins, map::PROGRAM_FRAGS).unwrap();
        // Nobody wrote down what build it is of.
        programs.set(0, other.xdp().unwrap().fd().unwrap(), 0).unwrap();
    });
    net.run("attach lo");
    assert!(held(true).is_some());
    net.run("detach --all");
}

/// The array of the other kind holds none: it takes memory, and an exchange would load it again.
#[test]
fn no_main_program_stays_that_no_link_calls() {
    let net = Net::new();
    let held = || {
        on_pins(&net, |pins| {
            [false, true].map(|it| main_program::held(pins, it).unwrap().is_some())
        })
    };
    carry_large_frames(&net);
    net.run(&format!("attach eth0 {SMALL} --pps 1kpps --burst 200"));
    assert_eq!(net.json("status -j")["interfaces"][0]["mode"], "native");
    assert_eq!(held(), [false, true], "attached");
    net.run("attach lo");
    assert_eq!(held(), [true, true]);
    net.run("detach lo");
    assert_eq!(held(), [false, true], "detached");

    // As versions before left it.
    on_pins(&net, |pins| {
        let mut other = Program::load(pins, false, Clock::Monotonic).unwrap();
        main_program::put(pins, &mut other, false).unwrap();
    });
    net.run("attach eth0 --sources 8192");
    assert_eq!(held(), [false, true], "exchanged");
    net.run("attach eth0 --replace");
    assert_eq!(held(), [false, true], "replaced");
    let mut senders = [net.sender(10_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    assert_admitted("limited", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    let status = net.json("status -j");
    assert_eq!(status["reasons"]["unloaded"], 0, "{status}");

    net.run("attach lo");
    net.run("detach eth0");
    assert_eq!(held(), [true, false], "the other kind");
    net.run("detach --all");
}

/// A main program is large, and takes a second to verify. Each one that was ever in an array is written down.
#[test]
fn no_main_program_is_loaded_that_no_link_calls() {
    let net = Net::new();
    let loaded = || {
        on_pins(&net, |pins| {
            let builds: Array<MapData, Build> = typed(pins, map::BUILDS).unwrap();
            [0, 1].map(|kind| builds.get(&kind, 0).unwrap().program)
        })
    };
    carry_large_frames(&net);
    net.run(&format!("attach eth0 {SMALL} --pps 1kpps --burst 200"));
    let attached = loaded();
    assert!(attached[0] == 0 && attached[1] != 0, "{attached:?}");
    net.run("attach eth0 --replace");
    let replaced = loaded();
    assert!(replaced[0] == 0 && replaced[1] != attached[1], "{replaced:?}");
    let mut senders = [net.sender(10_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    assert_admitted("limited", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    // In generic mode, and of an interface that takes no program in native mode.
    net.run("attach lo");
    assert_ne!(loaded()[0], 0);
    assert_eq!(net.json("status -j")["reasons"]["unloaded"], 0);
    net.run("detach --all");
}

/// Nothing but a person takes the main program out of its array.
#[test]
fn what_finds_no_main_program_passes_and_is_counted() {
    let net = Net::attached("--pps 1kpps --burst 200");
    on_pins(&net, |pins| {
        let mut programs: ProgramArray<MapData> = typed(pins, map::PROGRAM).unwrap();
        programs.clear_index(&0).unwrap();
    });
    let status = net.run("status").stdout;
    let remedy = "limiter attach eth0 --replace";
    assert!(status.lines().any(|it| it.starts_with("eth0: ") && it.ends_with(remedy)), "{status}");
    assert_eq!(net.json("status -j")["interfaces"][0]["unloaded"], true);
    let checked = |code, verdict: &str| {
        let outcome = net.limiter.run("doctor -j").outcome().unwrap();
        outcome.assert_exit_code(code);
        let told: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let findings = told["findings"].as_array().unwrap();
        let finding = findings.iter().find(|it| it["check"] == "main program").unwrap();
        assert_eq!(finding["verdict"], verdict, "{told}");
        finding["remedy"].clone()
    };
    assert_eq!(checked(1, "fail"), remedy);
    let unloaded = || net.json("status -j")["reasons"]["unloaded"].as_u64().unwrap();
    let before = unloaded();
    let mut senders = [net.sender(10_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND / 2, |_| {});
    assert_eq!(arrivals.from(v4(10)).packets, sent[0].packets);
    assert!(unloaded() - before >= sent[0].packets);
    let (passed, dropped) = packets(&net, 0);
    assert!(passed >= sent[0].packets && dropped == 0, "{passed} {dropped}");
    let bytes = |kind: &str| {
        let metrics = net.run("metrics").stdout;
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        let of = |line: &&str| line.starts_with(kind) && line.contains("reason=\"unloaded\"");
        metrics.lines().filter(of).map(value).sum::<f64>()
    };
    let [packets, bytes] = ["limiter_packets_total", "limiter_bytes_total"].map(bytes);
    assert!(bytes >= 60.0 * packets && packets >= sent[0].packets as f64, "{packets} {bytes}");

    net.run("attach eth0 --replace");
    assert_eq!(checked(0, "ok"), Value::Null);
    assert_eq!(net.json("status -j")["interfaces"][0]["unloaded"], false);
    let before = unloaded();
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    assert_admitted("loaded", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    assert_eq!(unloaded(), before);
    // A new interface in the same slot begins with no counts.
    net.run("attach lo");
    net.run("detach eth0");
    net.run("attach eth0");
    assert_eq!(unloaded(), 0);
}
