//! `limit add`: limits without a document.

use std::time::Duration;

use limiter_tests::{
    packet::{Frame, SYN},
    traffic::Sender,
};
use serde_json::Value;

use super::{Bench, Document, SMALL};

const TO: [u8; 4] = [192, 0, 2, 99];

fn send(bench: &Bench, frame: Frame, packets: u64) {
    let (from, to) = (&bench.hosts.client_port, &bench.hosts.router_port);
    let frame = frame.macs(from.mac, to.mac).build();
    let length = Duration::from_millis(packets);
    let mut sender = Sender::new(&bench.hosts.client.namespace, from, 1_000, frame).unwrap();
    assert_eq!(sender.send(length, &Default::default()).unwrap().packets, packets);
}

/// Packets that a limit admitted, and those that it refused.
fn counted(bench: &Bench, limit: &str) -> (u64, u64) {
    let status = bench.json("status -j");
    let limits = status["limits"].as_array().unwrap();
    let limit = limits.iter().find(|it| it["name"] == limit).unwrap();
    let of = |what: &str| limit[what].as_u64().unwrap();
    (of("conform"), of("exceed"))
}

fn bench() -> Bench {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    bench
}

#[test]
fn a_limit_is_added_as_it_would_be_by_a_document() {
    let bench = bench();
    let added = bench.done("limit add ssh --match tcp:ssh --rate 5/min --count syns --per source");
    assert_eq!(
        added.stdout,
        "ssh limit (protocol: tcp, ports: 22): 5/min after a burst of 1 SYN\n"
    );
    let again = bench.done("limit add ssh --match tcp:22 --rate 5/min --count syns");
    assert_eq!(
        again.stdout,
        "ssh limit (protocol: tcp, ports: 22): there already: 5/min after a burst of 1 SYN\n"
    );
    bench.done(
        "limit add dns --match udp:53 --count bytes --rate 2Mbit/s --per source/24,destination",
    );
    let packets = bench.done("limit add packets --match tcp:ssh --rate 5/min").stdout;
    assert!(
        packets.contains("\nnote: it counts every packet, also of open connections"),
        "{packets}"
    );
    bench.done("limit del packets --all");
    bench.done("limit add open --match tcp:443 --open 20");
    bench.done("limit add slow --rate 1/min --action monitor --interface eth0");
    let saved = bench.done("policy show").stdout;
    let document = Document::new(
        "limits:\n\
         - {name: ssh, match: {protocol: tcp, ports: ssh}, key: source, count: syns, rate: 5/min}\n\
         - {name: dns, match: {protocol: udp, ports: dns}, key: [source/24, destination], count: bytes, rate: 2Mbit/s}\n\
         - {name: open, match: {protocol: tcp, ports: https}, key: source, algorithm: concurrent, limit: 20}\n\
         - {name: slow, match: {interface: eth0}, key: source, rate: 1/min, action: monitor}",
    );
    let diff = bench.done(&document.in_place("policy diff FILE")).stdout;
    assert!(diff.contains("no difference"), "{diff}\n{saved}");
    let syn = |port| Frame::tcp([10, 0, 0, 1], TO, 5_000, port, SYN);
    send(&bench, syn(22), 10);
    send(&bench, syn(23), 10);
    // Part of a token is enough for one packet.
    let (conform, exceed) = counted(&bench, "ssh");
    assert!(conform <= 2 && conform + exceed == 10, "{conform} {exceed}");
    let shown = bench.json("limit show ssh -j");
    assert_eq!((&shown["count"], &shown["burst"]), (&"syns".into(), &1.into()));
}

/// An entry has room for two limits of its source. A command makes room for more, and the source owes what it owed.
#[test]
fn room_is_made_for_a_third_limit_of_the_source() {
    let bench = bench();
    let udp = || Frame::udp([10, 0, 0, 1], TO, 5_000, 9).payload(18);
    let add = |name: &str, burst: u32| {
        bench.done(&format!("limit add {name} --rate 1/h --burst {burst}")).stdout
    };
    let made = |said: &str| said.contains("made room for the change first");
    assert!(!made(&add("a", 20)) && !made(&add("b --match udp", 30)));
    send(&bench, udp(), 5);
    let said = add("c --match udp:9", 10);
    assert!(made(&said), "{said}");
    send(&bench, udp(), 30);
    // Part of a token is enough for one packet.
    let (beside, _) = counted(&bench, "c");
    assert!([10, 11].contains(&beside), "{beside}");
    bench.done("limit del c --all");
    send(&bench, udp(), 30);
    let (conform, exceed) = counted(&bench, "a");
    assert!([20, 21].contains(&conform), "{conform}, of which 5 before there was room");
    assert_eq!(conform + exceed, 5 + beside + 30);
    assert!(!made(&add("d --match udp:10", 10)));
}

/// The buckets of other keys than `all` are made for the first limit that has such a key. Until then they take no memory, and
/// `status` says how many there can be.
#[test]
fn buckets_are_made_for_the_first_limit_that_needs_them() {
    let bench = bench();
    let looked = || {
        let status = bench.json("status -j");
        (status["memory_bytes"].as_u64().unwrap(), status["buckets"]["capacity"].as_u64().unwrap())
    };
    let (before, capacity) = looked();
    bench.done("limit add a --rate 1/h --burst 20");
    bench.done("limit add all --per all --rate 10kpps");
    send(&bench, Frame::udp([10, 0, 0, 1], TO, 5_000, 9).payload(18), 5);
    let (without, same) = looked();
    assert!(without < before + capacity * 8 && same == capacity, "{without} {before} {same}");
    let said = bench.done("limit add c --per connection --rate 1/h --burst 10").stdout;
    assert!(said.contains("made room for the change first"), "{said}");
    let (after, still) = looked();
    assert!(after > before + capacity * 64 && still == capacity, "{after} {before} {capacity}");
    for port in [1, 2, 3] {
        send(&bench, Frame::udp([10, 0, 0, 1], TO, 6_000, port).payload(18), 12);
    }
    // Part of a token is enough for one packet.
    let [(of_source, refused), (of_keys, _)] = ["a", "c"].map(|limit| counted(&bench, limit));
    assert!([20, 21].contains(&of_source), "{of_source}, of which 5 before");
    assert_eq!(of_keys, of_source - 5);
    assert!(refused > 0 && of_keys > 10);
}

/// Those that a policy on trial needs are made before it is in force, and what all owe together is owed after it.
#[test]
fn buckets_are_made_for_a_trial() {
    let bench = bench();
    bench.done("limit add all --per all --rate 1/h --burst 20");
    let udp = |port| Frame::udp([10, 0, 0, 1], TO, 5_000, port).payload(18);
    send(&bench, udp(9), 30);
    let before = counted(&bench, "all").0;
    let document = Document::new("limits: [{name: c, key: connection, rate: 1/h, burst: 5}]");
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    send(&bench, udp(9), 30);
    assert!([5, 6].contains(&counted(&bench, "c").0));
    bench.done("policy revert");
    send(&bench, udp(9), 30);
    let after = counted(&bench, "all").0;
    // Part of a token is enough for one packet.
    assert!(before >= 20 && after <= before + 1, "{before}, then {after}");
}

/// So does `attach`, with a limit for an instance that is there, and with a policy for a new one.
#[test]
fn room_is_made_by_attach() {
    let names = |bench: &Bench| {
        let limits = bench.json("limit list -j")["limits"].take();
        let of = |limit: &Value| limit["name"].as_str().unwrap().to_owned();
        limits.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let running = bench();
    for limit in ["a --match udp", "b --match tcp"] {
        running.done(&format!("limit add {limit} --rate 1/s"));
    }
    running.done("attach eth0 --pps 1k/s");
    assert_eq!(running.json("limit show source -j")["rate_per_second"], 1_000);
    let overrides = (1..=100).map(|it| format!("{{src: 10.0.0.{it}, rate: {it}/s}}"));
    let overrides = overrides.collect::<Vec<_>>().join(", ");
    let many = Document::new(&format!(
        "limits: [{{name: d, key: source, rate: 1k/s, overrides: [{overrides}]}}]"
    ));
    let new = Bench::new();
    new.done(&many.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert!(names(&new).iter().any(|name| name == "d"));
}

/// A limit that comes back at the end of a trial finds what was owed to it.
#[test]
fn what_a_trial_replaces_is_owed_still_when_it_comes_back() {
    let bench = bench();
    bench.done("limit add a --rate 1k/s --burst 1000");
    bench.done("limit add b --match udp --rate 1/h --burst 10");
    let udp = || Frame::udp([10, 0, 0, 1], TO, 5_000, 9).payload(18);
    send(&bench, udp(), 30);
    let before = counted(&bench, "b").0;
    let document = Document::new(
        "limits: [{name: a, key: source, rate: 1k/s, burst: 1000}, \
         {name: c, key: source, match: {protocol: udp, ports: 9}, rate: 1/h, burst: 5}]",
    );
    bench.done(&document.in_place("policy apply FILE --confirm 60s"));
    send(&bench, udp(), 30);
    assert!(counted(&bench, "c").0 <= 6);
    bench.done("policy revert");
    send(&bench, udp(), 30);
    let (conform, _) = counted(&bench, "b");
    // Part of a token is enough for one packet.
    assert!(conform <= before + 1, "{before}, then {conform}");
}

#[test]
fn a_limit_is_dropped_and_deleted() {
    let bench = bench();
    let added = bench.done("limit add reflection --match udp,tcp sport:53,123,11211 --action drop");
    assert_eq!(
        added.stdout,
        "reflection limit (protocol: [udp, tcp], source_ports: [53, 123, 11211]): drops all that it is about\n"
    );
    send(&bench, Frame::udp([10, 0, 0, 1], TO, 11_211, 9_999).payload(18), 20);
    send(&bench, Frame::udp([10, 0, 0, 1], TO, 11_212, 9_999).payload(18), 20);
    assert_eq!(counted(&bench, "reflection"), (0, 20));
    let list = bench.done("limit list").stdout;
    let row: Vec<&str> = list
        .lines()
        .find(|line| line.starts_with("reflection"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(row[..5], ["reflection", "source", "packets", "0", "drop"], "{list}");
    let status = bench.done("status").stdout;
    assert!(
        status.lines().any(|line| line.starts_with("reflection") && line.contains("drop")),
        "{status}"
    );
    let test = "test --src 192.0.2.9 --dst 192.0.2.99 --proto udp --dport 9999 --sport 53";
    assert!(bench.run(test).outcome().unwrap().stdout.contains("reflection"));
    let explained = bench.done("policy explain 192.0.2.9:9999/udp").stdout;
    assert!(explained.contains("source port"), "{explained}");
    let got = bench.done("get 10.0.0.1").stdout;
    assert!(
        got.lines().any(|line| line.starts_with("reflection") && line.contains("drop")),
        "{got}"
    );
    let metrics = bench.done("metrics").stdout;
    let info = "limiter_limit_info{limit=\"reflection\",layer=\"1\",key=\"source\",count=\"packets\",algorithm=\"\",mode=\"drop\"} 1";
    assert!(metrics.contains(info), "{metrics}");
    // It is in the document, and read back.
    let document = Document::new("");
    bench.done(&document.in_place("policy save FILE"));
    let diff = bench.done(&document.in_place("policy diff FILE")).stdout;
    assert!(diff.contains("no difference"), "{diff}");
    bench.done("limit set reflection --action off");
    bench.done("limit set reflection --action drop");
    bench.refused("limit set reflection --action enforce", 4, &["has no rate", "--rate"]);
    assert_eq!(bench.done("limit del reflection").stdout, "reflection limit: deleted\n");
    assert_eq!(find(&bench, "reflection"), None);

    bench.done("limit add web --match tcp:80 --rate 5/s");
    let deleted = bench.done("limit del web");
    assert_eq!(deleted.stdout, "web limit: off\n");
    deleted.assert_says(&["limiter limit del web --all"]);
    bench.done("limit add web --match tcp:80 --rate 7/s");
    bench.done("limit set web --action drop");
    bench.done("limit set web --action enforce");
    assert_eq!(find(&bench, "web").unwrap()["rate_per_second"], 7);
    assert_eq!(bench.done("limit del web --all").stdout, "web limit: deleted\n");
    assert_eq!(find(&bench, "web"), None);
}

fn find(bench: &Bench, name: &str) -> Option<Value> {
    let list = bench.json("limit list -j");
    let limits = list["limits"].as_array().unwrap();
    limits.iter().find(|limit| limit["name"] == name).cloned()
}

#[test]
fn what_cannot_be_added_is_told_with_what_to_do() {
    let bench = bench();
    bench.done("limit add ssh --match tcp:ssh --rate 5/min");
    for (arguments, code, words) in [
        (
            "limit add ssh --match tcp:ssh --rate 6/min",
            3,
            &["another limit ssh", "limit set ssh"][..],
        ),
        (
            "limit add other --match tcp:22 --rate 9/s",
            3,
            &["limit ssh has the match", "limit set ssh"],
        ),
        ("limit add source --rate 5/s", 3, &["source", "limit set source"]),
        ("limit add new --match ssh --rate 5/s", 2, &["tcp:ssh"]),
        ("limit add new --match tpc:22 --rate 5/s", 2, &["tpc:22", "tcp:22, udp:53"]),
        ("limit add new --match tcp:22 --rate 5/s --per flow", 2, &["no key `flow`", "connection"]),
        ("limit add new --match tcp:22 --rate 0 --burst 5", 2, &["`burst`", "drops all"]),
        ("limit add new --match tcp:22 --rate 0 --action monitor", 2, &["drops nothing"]),
        ("limit add new --rate 0", 3, &["would drop every packet"]),
        ("limit add new --match tcp:22", 2, &["limits nothing", "rate"]),
        ("limit add New --match tcp:22 --rate 5/s", 2, &["New"]),
    ] {
        bench.refused(arguments, code, words);
    }
    bench.done("limit add open --match tcp:22 --open 5");
    bench.refused("limit set open --rate 7/s", 2, &["is about open connections", "--burst N"]);
    bench.refused("limit set ssh --rate 0 --burst 5", 2, &["neither a burst nor another action"]);
    bench.refused("limit set ssh --rate 0 --action off", 2, &["neither a burst", "--action off"]);
    bench.refused("limit set ssh --rate 0 --src 192.0.2.1", 2, &["zero", "limiter deny add"]);
    let outcome = bench.done("limit set ssh --rate 0");
    assert_eq!(
        outcome.stdout, "ssh limit (protocol: tcp, ports: 22): drops all that it is about\n",
        "{outcome}"
    );
    let outcome = bench.done("limit set ssh --burst 5");
    assert!(outcome.stdout.contains("which is not used"), "{outcome}");
    let outcome = bench.done("limit set ssh --rate 5/min");
    assert!(outcome.stdout.ends_with(", enforce\n"), "{outcome}");
    let outcome = bench.done("limit add telnet --match tcp:23 --rate 0");
    assert_eq!(
        outcome.stdout, "telnet limit (protocol: tcp, ports: 23): drops all that it is about\n",
        "{outcome}"
    );
    assert!(bench.done("policy show").stdout.contains("action: drop"));
    // A word that was left out does not cut the host off.
    for command in ["limit add all --action drop", "limit set source --action drop"] {
        let words = ["would drop every packet, as it has no match", "--match udp:53", "hint: "];
        bench.refused(command, 3, &words);
    }
    // Without a match it would be about all packets, as another one is.
    bench.done("limit set source --rate 1kpps");
    let words = ["--match tcp:http --count connections --rate 5/min"];
    bench.refused("limit add http --rate 5/min", 3, &words);
}
