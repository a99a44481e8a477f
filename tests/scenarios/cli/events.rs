//! Events of the agent about sources.

use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{packet::Frame, process, traffic::Sender};

use super::{Bench, Document, SMALL, agent::Agent, json::send};

/// Longer than a source has to be quiet until an episode ends, plus a round of the agent.
const RELEASE: Duration = Duration::from_secs(16);

#[test]
fn a_source_is_told_of_when_it_is_over_a_limit_is_blocked_and_is_not_any_more() {
    let bench = Bench::new();
    let document = Document::new(
        "limits:\n\
         - {name: source, key: source, rate: 1/min, burst: 20, \
         penalty: {after: 100ms, block: 2s, unproven: block}}\n\
         - {name: web, match: {protocol: tcp, ports: 80}, key: source, rate: 5/s}",
    );
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let agent = Agent::start(&bench, &document, "-i eth0");
    agent.expect("replaced");
    send(&bench, [192, 0, 2, 1], 50);
    let event = agent.expect("limited");
    assert_eq!((&event["source"], &event["interface"]), (&"192.0.2.1".into(), &"eth0".into()));
    let limit = &event["limit"];
    assert_eq!((&limit["name"], &limit["mode"]), (&"source".into(), &"enforce".into()));
    assert_eq!((&limit["algorithm"], &limit["burst"]), (&"token_bucket".into(), &20.into()));
    assert_eq!(limit["state"]["remaining"], 0);
    let wait = limit["state"]["next_packet_seconds"].as_f64().unwrap();
    assert!((1.0..=60.0).contains(&wait), "{wait}");
    let again = Instant::now();
    while again.elapsed() < Duration::from_millis(400) {
        send(&bench, [192, 0, 2, 1], 5);
    }
    let event = agent.expect("blocked");
    assert_eq!(
        (&event["source"], &event["limit"]["name"]),
        (&"192.0.2.1".into(), &"source".into())
    );
    let seconds = event["seconds"].as_f64().unwrap();
    assert!((1.9..=2.0).contains(&seconds), "{seconds}");
    let event = agent.next_within(RELEASE);
    assert_eq!((&event["event"], &event["source"]), (&"released".into(), &"192.0.2.1".into()));
    assert!(event["dropped"].as_u64().unwrap() >= 25, "{event}");
    let lasted = event["seconds"].as_f64().unwrap();
    assert!((1.0..5.0).contains(&lasted), "{lasted}");
    agent.end();
}

/// Events beyond the limit are counted, and the count is exact.
#[test]
fn what_is_not_told_is_counted() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 1/min, burst: 1}]");
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let agent = Agent::start(&bench, &document, "-i eth0 --events 1/h");
    agent.expect("replaced");
    let sources = 200;
    for number in 0..sources {
        send(&bench, [192, 0, 2, number], 4);
    }
    let event_stats = bench.json("metrics -j");
    let families = event_stats["metrics"].as_array().unwrap();
    let of = |name: &str| families.iter().find(|family| family["name"] == name).unwrap();
    let events = of("limiter_source_events_total")["series"].as_array().unwrap();
    let limited = events.iter().find(|one| one["labels"]["event"] == "limited").unwrap();
    assert_eq!(limited["value"], sources);
    // Each source begins and ends one episode. One or two of these events are printed.
    let (mut told, mut left_out) = (0, 0);
    while told + left_out < 2 * u64::from(sources) {
        let event = agent.next_within(2 * RELEASE);
        match event["event"].as_str() {
            Some("limited") => told += 1,
            Some("left_out") => left_out += event["events"].as_u64().unwrap(),
            _ => panic!("{event}"),
        }
    }
    assert_eq!(told + left_out, 2 * u64::from(sources));
    assert!(told <= 2, "{told}");
    agent.end();
}

/// Makes `sources` sources send four packets each, at a rate. The burst and the packet for part of a token
/// pass.
fn storm(bench: &Bench, sources: u64, rate: u64) {
    let (from, to) = (&bench.hosts.client_port, &bench.hosts.router_port);
    let frame = Frame::udp([10, 0, 0, 0], to.v4, 1, 9).payload(18).macs(from.mac, to.mac).build();
    let edit = move |number: u64, frame: &mut Vec<u8>| {
        let source = 0x0a40_0000 + (number / 4 % sources) as u32;
        frame[26..30].copy_from_slice(&source.to_be_bytes());
    };
    let sender = Sender::new(&bench.hosts.client.namespace, from, rate, frame).unwrap();
    let length = Duration::from_secs(4 * sources / rate);
    let sent = sender.edited(edit).send(length, &Default::default()).unwrap();
    assert!(sent.packets >= 4 * sources * 9 / 10, "{sent:?}");
}

/// In a flood of sources that all exceed their limits, some events are printed, all are counted, and the
/// memory of the agent does not grow.
#[test]
fn a_storm_of_events_is_counted_to_the_last_and_takes_no_memory() {
    const SOURCES: u64 = 60_000;
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 1/h, burst: 1}]");
    let room = "--sources 262144 --buckets 4096 --overrides 64";
    bench.done(&document.in_place(&format!("attach eth0 {room} --policy FILE")));
    let agent = Agent::start(&bench, &document, "-i eth0 --events 20/s");
    agent.expect("replaced");
    let before = agent.memory();
    storm(&bench, SOURCES, 40_000);
    let metrics = bench.json("metrics -j");
    let of = |name: &str| {
        let families = metrics["metrics"].as_array().unwrap();
        let family = families.iter().find(|family| family["name"] == name).unwrap();
        let series = family["series"].as_array().unwrap().iter();
        series.map(|one| one["value"].as_u64().unwrap()).sum::<u64>()
    };
    let happened = of("limiter_source_events_total");
    assert!(happened >= SOURCES * 9 / 10, "{happened}");
    // For each source whose excess the agent read, there is also the end of the episode.
    let expected = 2 * happened - of("limiter_source_events_left_out_total");
    let (mut told, mut left_out) = (0, 0);
    while told + left_out < expected {
        let event = agent.next_within(3 * RELEASE);
        match event["event"].as_str() {
            Some("limited" | "released") => told += 1,
            Some("left_out") => left_out += event["events"].as_u64().unwrap(),
            _ => panic!("{event}"),
        }
    }
    assert_eq!(told + left_out, expected);
    let after = agent.memory();
    assert!(after < before + (4 << 20), "from {before} to {after} bytes");
    agent.end();
}

/// A reader of the events that has stopped blocks no work of the agent, not even its end.
#[test]
fn a_reader_who_stopped_keeps_an_agent_from_nothing() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 1/h, burst: 1}]");
    let room = "--sources 65536 --buckets 4096 --overrides 64";
    bench.done(&document.in_place(&format!("attach eth0 {room} --policy FILE")));
    let command = bench.run(&document.in_place("-j agent -i eth0 --policy FILE --events 1k/s"));
    let mut agent = command.to(Stdio::piped()).start().unwrap();
    // More events than a pipe and the queue of the writer hold.
    for _ in 0..4 {
        storm(&bench, 2_000, 8_000);
    }
    document.write("limits: [{name: source, key: source, rate: 2/h, burst: 1}]");
    let begin = Instant::now();
    let rate = || bench.json("limit show source -j")["rate_per_second"].as_f64().unwrap();
    while rate() < 1.5 / 3600.0 {
        assert!(begin.elapsed() < RELEASE, "the document is not followed");
        thread::sleep(Duration::from_millis(100));
    }
    process::signal(&agent, libc::SIGTERM);
    let begin = Instant::now();
    while agent.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < RELEASE, "it does not end");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(agent.wait().unwrap().success());
}

#[test]
fn none_are_told_if_none_are_asked_for() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 1/min, burst: 1}]");
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let agent = Agent::start(&bench, &document, "-i eth0 --events none");
    agent.expect("replaced");
    send(&bench, [192, 0, 2, 1], 20);
    agent.is_quiet();
    agent.end();
    bench.refused("agent --events often", 2, &["--events", "often"]);
}
