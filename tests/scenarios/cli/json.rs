//! The JSON output that scripts rely on.

use std::{net::IpAddr, time::Duration};

use limiter_common::packet::reason::Reason;
use limiter_tests::{packet::Frame, traffic::Sender};
use limiter_userspace::policy::Builtin;
use serde_json::{Value, json};

use super::{Bench, Document, SMALL};

/// Asserts that `value` has all members of `shape`, where a string in the shape names a type. More members
/// are allowed.
#[track_caller]
fn assert_shape(value: &Value, shape: &Value, place: &str) {
    match shape {
        Value::Object(members) => {
            for (name, shape) in members {
                let member = value.get(name);
                assert!(member.is_some(), "{place} has no {name}: {value}");
                assert_shape(member.unwrap(), shape, &format!("{place}.{name}"));
            }
        }
        Value::Array(shapes) => {
            let values = value.as_array().into_iter().flatten();
            assert!(value.is_array(), "{place} is no array: {value}");
            for (number, value) in values.enumerate() {
                assert_shape(value, &shapes[0], &format!("{place}[{number}]"));
            }
        }
        _ => {
            let right = match shape.as_str() {
                Some("count") => value.is_u64(),
                Some("number") => value.is_number(),
                Some("number or null") => value.is_number() || value.is_null(),
                Some("count or null") => value.is_u64() || value.is_null(),
                Some("text") => value.is_string(),
                _ => false,
            };
            assert!(right, "{place} is {value}, not {shape}");
        }
    }
}

fn status_shape() -> Value {
    let verdicts = json!({ "passed": "count", "dropped": "count" });
    json!({
        "schema": "text",
        "mode": "text",
        "interfaces": [{ "name": "text", "mode": "text", "packets": verdicts, "bytes": verdicts }],
        "limits": [{ "name": "text", "conform": "count", "exceed": "count" }],
        "sources": { "tracked": "count", "capacity": "count" },
        "buckets": { "tracked": "count", "capacity": "count" },
    })
}

fn limit_shape() -> Value {
    let of_override =
        json!({ "src": "text", "rate_per_second": "number or null", "burst": "count or null" });
    json!({
        "name": "text",
        "key": "text",
        "rate_per_second": "number or null",
        "burst": "count or null",
        "overrides": [of_override],
    })
}

/// Sends `packets` datagrams from a source to the router, quickly.
pub(super) fn send(bench: &Bench, source: impl Into<IpAddr>, packets: u64) {
    send_with(bench, source, 18, packets);
}

/// Sends packets of a source with this many bytes of payload.
fn send_with(bench: &Bench, source: impl Into<IpAddr>, payload: usize, packets: u64) {
    let (from, to) = (&bench.hosts.client_port, &bench.hosts.router_port);
    let source = source.into();
    let frame = Frame::udp(source, to.address_like(source), 1, 9)
        .payload(payload)
        .macs(from.mac, to.mac)
        .build();
    let rate = 10_000;
    let length = Duration::from_micros(packets * 1_000_000 / rate);
    let mut sender = Sender::new(&bench.hosts.client.namespace, from, rate, frame).unwrap();
    assert_eq!(sender.send(length, &Default::default()).unwrap().packets, packets);
}

#[test]
fn amounts_are_in_a_few_digits_or_as_json_has_them() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    send(&bench, [192, 0, 2, 1], 150);
    bench.hosts.router.ip("link set eth0 down").unwrap();
    let status = bench.json("status -j");
    let passed = status["interfaces"][0]["bytes"]["passed"].as_u64().unwrap();
    assert!((9_000..100_000).contains(&passed), "{status}");
    let exact = format!(" {},{:03}B", passed / 1_000, passed % 1_000);
    let memory = status["memory_bytes"].as_u64().unwrap();
    for (command, is_exact) in [("status", false), ("status -r", true), ("-r status", true)] {
        let text = bench.done(command).stdout;
        assert_eq!(text.contains(&exact), is_exact, "{exact} in {command}:\n{text}");
        assert_eq!(text.contains("MiB"), !is_exact, "{text}");
        let digits: String = text.lines().last().unwrap().matches(char::is_numeric).collect();
        assert_eq!(digits == memory.to_string(), is_exact, "{memory} in {text}");
    }
    let top = bench.done("top --raw").stdout;
    assert!(top.lines().any(|line| line.ends_with(" 9,000B")), "{top}");
    let get = bench.done("get 192.0.2.1 -r").stdout;
    assert!(get.contains("150 packets, 9,000B"), "{get}");
}

#[test]
fn status_accounts_for_every_frame() {
    let bench = Bench::attached();
    send(&bench, [192, 0, 2, 1], 900);
    send(&bench, [192, 0, 2, 2], 50);
    let status = bench.json("status -j");
    assert_shape(&status, &status_shape(), "status");
    assert_eq!(status["schema"], "limiter.status/1");
    assert_eq!(status["mode"], "enforce");
    assert_eq!(status["interfaces"].as_array().unwrap().len(), 1);
    assert_eq!(status["interfaces"][0]["name"], "eth0");
    assert_eq!(status["interfaces"][0]["mode"], "native");
    assert_eq!(status["sources"]["capacity"], 4096);
    assert_eq!(status["buckets"]["capacity"], 4096);
    // Each of the two sources has one connection. The host itself may have solicited a router, which adds one
    // of each.
    assert!(status["buckets"]["tracked"].as_u64().unwrap() >= 2);
    assert!(status["sources"]["tracked"].as_u64().unwrap() >= 2);

    let reasons = status["reasons"].as_object().unwrap();
    let names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(
        reasons.keys().map(String::as_str).collect::<std::collections::BTreeSet<_>>(),
        names.into_iter().collect()
    );
    let count = |reason: Reason| reasons[reason.name()].as_u64().unwrap();
    let sum = |drops| {
        Reason::ALL.into_iter().filter(|reason| reason.drops() == drops).map(count).sum::<u64>()
    };
    let packets = &status["interfaces"][0]["packets"];
    assert_eq!(packets["passed"], sum(false));
    assert_eq!(packets["dropped"], sum(true));
    assert!(sum(false) + sum(true) >= 950);

    let limits = status["limits"].as_array().unwrap();
    let names: Vec<_> = limits.iter().map(|limit| limit["name"].as_str().unwrap()).collect();
    assert_eq!(names, Builtin::LISTED.map(Builtin::name));
    // A refused frame is counted at the limit that refused it, and at no other.
    let exceed = |limit: &Value| limit["exceed"].as_u64().unwrap();
    assert_eq!(limits.iter().map(exceed).sum::<u64>(), count(Reason::Exceed), "{status}");
    assert!(count(Reason::Exceed) > 0, "{status}");
    let syn = limits.iter().find(|limit| limit["name"] == Builtin::Syn.name()).unwrap();
    assert_eq!(exceed(syn), 0, "no SYN was sent");
}

#[test]
fn the_list_of_limits_says_what_was_set() {
    let bench = Bench::attached();
    let list = bench.json("limit list -j")["limits"].take();
    assert_shape(&list, &json!([limit_shape()]), "list");
    let limits = list.as_array().unwrap();
    let find = |name: &str| limits.iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!(limits.len(), Builtin::ALL.len());
    let source = find("source");
    assert_eq!((&source["rate_per_second"], &source["burst"]), (&json!(1_000), &json!(200)));
    assert_eq!(source["key"], "source");
    assert_eq!(source["overrides"].as_array().unwrap().len(), 1);
    let of_override = &source["overrides"][0];
    assert_eq!(of_override["src"], "203.0.113.0/24");
    let rate = of_override["rate_per_second"].as_f64().unwrap();
    assert!((rate - 5.0 / 60.0).abs() < 1e-9, "{rate}");
    assert_eq!(find("syn")["rate_per_second"], 50);
    assert_eq!(find("connection")["rate_per_second"], 500);
    let shown = bench.json("limit show source -j");
    assert_shape(&shown, &limit_shape(), "source");
    let members = source.as_object().unwrap();
    assert!(!members.is_empty(), "{source}");
    assert!(members.iter().all(|(name, member)| shown[name] == *member), "{shown}");

    bench.done("limit del syn");
    let syn = bench.json("limit show syn -j");
    assert_eq!((&syn["rate_per_second"], &syn["burst"]), (&Value::Null, &Value::Null));
}

#[test]
fn top_is_in_the_order_of_drops() {
    let bench = Bench::attached();
    for (number, packets) in [(1, 600), (2, 900), (3, 20)] {
        send(&bench, [192, 0, 2, number], packets);
    }
    let top = bench.json("top -j")["sources"].take();
    assert_shape(
        &top,
        &json!([{ "source": "text", "passed": "count", "dropped": "count" }]),
        "top",
    );
    let entries = top.as_array().unwrap();
    let drops: Vec<_> = entries.iter().map(|entry| entry["dropped"].as_u64().unwrap()).collect();
    assert!(drops.is_sorted_by(|a, b| a >= b), "{top}");
    assert_eq!(
        (&entries[0]["source"], &entries[1]["source"]),
        (&json!("192.0.2.2"), &json!("192.0.2.1"))
    );
    let sent =
        |entry: &Value| entry["passed"].as_u64().unwrap() + entry["dropped"].as_u64().unwrap();
    assert_eq!((sent(&entries[0]), sent(&entries[1])), (900, 600));
    assert_eq!(bench.json("top -j -n 1")["sources"].as_array().unwrap().len(), 1);

    // Longer packets, of which fewer came.
    send_with(&bench, [192, 0, 2, 4], 1_400, 100);
    let first = |by: &str| bench.json(&format!("top -j -n 1 --by {by}"))["sources"][0].take();
    assert_eq!(first("drops")["source"], "192.0.2.2");
    assert_eq!(first("packets")["source"], "192.0.2.2");
    assert_eq!(first("bytes")["source"], "192.0.2.4");
    let most = first("passed")["passed"].as_u64().unwrap();
    assert!(!entries.is_empty());
    assert!(entries.iter().all(|entry| entry["passed"].as_u64().unwrap() <= most));
}

#[test]
fn a_watch_prints_one_object_per_line() {
    let bench = Bench::attached();
    let outcome = bench.done("watch -j --interval 50ms --count 3");
    assert_eq!(outcome.stdout.lines().count(), 3, "{outcome}");
    for line in outcome.stdout.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_shape(&value, &status_shape(), "watch");
        assert_eq!(value["schema"], "limiter.watch/1");
    }
    let once = bench.json("watch -j --once --interval 50ms");
    assert_shape(&once, &status_shape(), "watch");
}

#[test]
fn commands_that_change_something_answer_in_json_too() {
    let bench = Bench::new();
    let attached = bench.json(&format!("attach eth0 lo {SMALL} -j"));
    let interfaces = &attached["interfaces"];
    assert_shape(interfaces, &json!([{ "name": "text", "mode": "text" }]), "attach");
    assert_eq!(interfaces.as_array().unwrap().len(), 2);
    bench.json("limit set source --rate 1kpps -j");
    bench.json("limit del source -j");
    let detached = bench.json("detach --all -j");
    assert_eq!(detached["interfaces"].as_array().unwrap().len(), 2);
}

/// The page that documents each shape.
const SHAPES: &str = include_str!("../../../docs/json.md");

#[test]
fn every_answer_is_an_object_that_names_its_shape() {
    let bench = Bench::attached();
    let document = Document::new("limits: [{name: web, key: source, rate: 5/s}]");
    for (command, schema) in [
        ("status", "status"),
        ("top", "top"),
        ("watch --once --interval 50ms", "watch"),
        ("metrics", "metrics"),
        ("limit list", "limits"),
        ("limit show syn", "limit"),
        ("limit set syn --rate 9/s", "limit"),
        ("limit del syn", "limit"),
        ("deny add 198.51.100.9 --for 10m", "added"),
        ("deny list", "list"),
        ("deny del 198.51.100.9", "removed"),
        ("allow list", "list"),
        ("penalty add 198.51.100.9 --for 10m", "added"),
        ("penalty list", "penalties"),
        ("penalty del 198.51.100.9", "removed"),
        ("deny flush", "removed"),
        ("monitor", "monitor"),
        ("monitor on", "monitor"),
        ("monitor off", "monitor"),
        ("policy show", "policy"),
        ("policy check FILE", "check"),
        ("policy diff FILE", "diff"),
        ("policy apply FILE --confirm 60s", "apply"),
        ("policy revert", "revert"),
        ("policy apply FILE --confirm 60s", "apply"),
        ("policy confirm", "confirm"),
        ("limit del web --all", "limit"),
        ("policy explain 192.0.2.1", "explanation"),
        ("policy explain --request GET /", "request"),
        ("policy save -", "save"),
        ("policy save FILE --systemd", "unit"),
        ("policy save FILE", "save"),
        ("test --src 192.0.2.1 --dst 198.51.100.1 --proto udp --dport 9", "verdict"),
        ("completion bash", "completion"),
        ("version", "version"),
        ("attach lo", "attach"),
        ("detach lo", "detach"),
    ] {
        let told = bench.json(&format!("{} -j", document.in_place(command)));
        let schema = format!("limiter.{schema}/1");
        assert_eq!(told["schema"], schema, "{command}: {told}");
        assert!(SHAPES.contains(&format!("`{schema}`")), "no document tells of {schema}");
    }
    for (command, schema) in [("get 192.0.2.200 -j", "source"), ("doctor -j", "doctor")] {
        // The exit code of these commands shows what was found.
        let told = bench.run(command).outcome().unwrap().stdout;
        let told: Value = serde_json::from_str(&told).unwrap();
        let schema = format!("limiter.{schema}/1");
        assert_eq!(told["schema"], schema, "{command}: {told}");
        assert!(SHAPES.contains(&format!("`{schema}`")), "no document tells of {schema}");
    }
}

#[test]
fn errors_are_json_when_that_is_asked_for() {
    let bench = Bench::new();
    let outcome = bench.run("-j status").outcome().unwrap();
    outcome.assert_exit_code(4);
    assert_eq!(outcome.stdout, "");
    let error: Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert_shape(&error["error"], &json!({ "message": "text", "hint": "text" }), "error");
}
