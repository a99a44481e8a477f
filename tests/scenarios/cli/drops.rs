//! `limiter drops`: packets that are dropped, while a flood goes on.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, MapData};
use limiter_common::{abi::layout::map, memory::sample::Sampling};
use limiter_tests::{
    process::{kill, signal},
    program::typed,
    sandbox::BPFFS,
};
use limiter_userspace::datapath::bpffs::Pins;
use serde_json::Value;

use super::{Bench, Document, SMALL, watch::while_sending};

/// Sources that send, each so many packets a second.
const FLOOD: [([u8; 4], u64); 2] = [([192, 0, 2, 7], 2_000), ([203, 0, 113, 9], 1_000)];

/// A router where one source is denied and another is over a limit.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --pps 10/s --burst 5"));
    bench.done("deny add 203.0.113.0/24");
    bench
}

fn start(bench: &Bench, arguments: &str) -> Child {
    bench.run(arguments).to(Stdio::piped()).start().unwrap()
}

fn finish(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// The lines of JSON that a process printed.
fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the datapath is asked for.
fn sampling(bench: &Bench) -> Sampling {
    let router = &bench.hosts.router;
    let read = || {
        let pins = Pins::new(format!("{BPFFS}/limiter"));
        let map: Array<MapData, Sampling> = typed(&pins, map::SAMPLING).unwrap();
        map.get(&0, 0).unwrap()
    };
    router.sandbox.inside(&router.namespace, read).unwrap()
}

#[test]
fn dropped_packets_are_told_with_reason_limit_and_headers() {
    let bench = bench();
    let output =
        while_sending(&bench, &FLOOD, || finish(start(&bench, "drops -j --for 2s --rate 200")));
    let lines = lines(&output);
    let (summary, packets) = lines.split_last().unwrap();
    // The budget of the time, and a burst of a tenth of a second.
    assert!((200..=500).contains(&packets.len()), "{}", packets.len());
    let word = |packet: &Value, name: &str| packet[name].as_str().unwrap_or("-").to_owned();
    let told: BTreeSet<_> = packets
        .iter()
        .map(|it| ["source", "reason", "limit", "verdict"].map(|name| word(it, name)))
        .collect();
    let expected =
        [["192.0.2.7", "exceed", "source", "dropped"], ["203.0.113.9", "deny", "-", "dropped"]];
    assert_eq!(told, expected.map(|row| row.map(str::to_owned)).into());
    let packet = &packets[0];
    assert_eq!(
        (&packet["schema"], &packet["interface"]),
        (&"limiter.drop/1".into(), &"eth0".into())
    );
    assert_eq!((&packet["protocol"], &packet["destination_port"]), (&"udp".into(), &9.into()));
    assert_eq!((&packet["source_port"], &packet["bytes"]), (&1.into(), &60.into()));
    assert_eq!(summary["schema"], "limiter.drops/1");
    assert_eq!(summary["packets"].as_u64().unwrap() as usize, packets.len());
    // Some 3,000 a second were dropped.
    assert!(summary["not_shown"].as_u64().unwrap() > 1_000, "{summary}");
    assert_eq!(summary["ports"][0]["value"], "9/udp");
    assert_eq!(sampling(&bench).until, 0, "it is taken back");
}

#[test]
fn packets_are_chosen_and_counted() {
    let bench = bench();
    while_sending(&bench, &FLOOD, || {
        for (options, source) in [
            ("--limit source", "192.0.2.7"),
            ("--reason deny", "203.0.113.9"),
            ("--reason exceed,too_deep", "192.0.2.7"),
            ("--source 203.0.113.0/24 -i eth*", "203.0.113.9"),
            ("--source 192.0.2.7", "192.0.2.7"),
        ] {
            let told = finish(start(&bench, &format!("drops -j --count 20 {options}")));
            let told = lines(&told);
            assert_eq!(told.len(), 21, "{options}");
            assert!(told[..20].iter().all(|it| it["source"] == source), "{options}: {told:?}");
        }
        let text = finish(start(&bench, "drops --count 3 --limit source")).stdout;
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("TIME             INTERFACE  VERDICT"), "{text}");
        let packet = "60  192.0.2.7:1 > ";
        assert!(lines[1..4].iter().all(|line| line.contains(packet)), "{text}");
        assert!(text.contains("\n3 packets were shown, and "), "{text}");
        assert!(
            text.contains("\nSOURCE     PACKETS   SHARE\n192.0.2.7        3  100.0%\n"),
            "{text}"
        );
        let top = finish(start(&bench, "drops --for 300ms --top")).stdout;
        let top = String::from_utf8(top).unwrap();
        assert!(!top.contains("INTERFACE") && top.contains("9/udp"), "{top}");
    });
    for (arguments, code, words) in [
        ("drops --limit nothing", 4, &["no limit", "nothing"][..]),
        ("drops --interface eth7", 4, &["eth7", "eth0"]),
        ("drops --source x", 2, &["x"]),
        ("drops --reason conform", 2, &["conform", "exceed"]),
        ("drops --rate 0", 2, &["0"]),
        ("drops --for soon", 2, &["soon"]),
    ] {
        bench.refused(arguments, code, words);
    }
    bench.done("detach --all");
    bench.refused("drops", 4, &["not attached", "limiter attach"]);
}

#[test]
fn what_is_only_monitored_is_marked() {
    let bench = bench();
    bench.done("monitor on");
    while_sending(&bench, &FLOOD, || {
        let told = lines(&finish(start(&bench, "drops -j --count 50")));
        assert!(told[..50].iter().all(|it| it["verdict"] == "monitored"), "{told:?}");
        let told: BTreeSet<_> =
            told[..50].iter().map(|it| format!("{} {}", it["reason"], it["limit"])).collect();
        assert_eq!(told, [r#""exceed" "source""#, r#""monitor" null"#].map(str::to_owned).into());
        let told = lines(&finish(start(&bench, "drops -j --for 300ms --reason exceed")));
        assert_eq!(told.len(), 1, "{told:?}");
    });
}

#[test]
fn a_pcap_file_is_read_as_any_other() {
    let bench = bench();
    let folder = Document::new("");
    let file = folder.in_place("FILE").replace("policy.yaml", "drops.pcap");
    while_sending(&bench, &FLOOD, || {
        let told = finish(start(&bench, &format!("drops --for 500ms --pcap {file}"))).stdout;
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains("packets were shown"), "{told}");
        // The summary is no part of the packets.
        let piped = finish(start(&bench, "drops --count 30 --pcap -"));
        assert!(String::from_utf8(piped.stderr).unwrap().contains("30 packets were shown"));
        fs::write(format!("{file}.2"), piped.stdout).unwrap();
    });
    for (path, least) in [(file.clone(), 100), (format!("{file}.2"), 30)] {
        let summary = bench.json(&format!("test -j --pcap {path}"));
        let packets = summary["packets"].as_u64().unwrap();
        assert!(packets >= least, "{summary}");
        assert_eq!(summary["bytes"], packets * 60, "{summary}");
        let denied = |it: &&Value| it["reason"] == "deny";
        assert!(summary["verdicts"].as_array().unwrap().iter().any(|it| denied(&it)), "{summary}");
    }
}

#[test]
fn one_process_reads_at_a_time_and_one_that_was_killed_leaves_nothing() {
    let bench = bench();
    let mut first = start(&bench, "drops");
    let mut titles = String::new();
    BufReader::new(first.stdout.as_mut().unwrap()).read_line(&mut titles).unwrap();
    assert!(titles.starts_with("TIME "), "{titles}");
    let words = ["reads the dropped packets", &format!("kill {}", first.id())];
    bench.refused("drops", 6, &words);
    kill(&mut first);
    assert_ne!(sampling(&bench).until, 0);
    // The next one need not wait for the time of the first to pass.
    let mut next = start(&bench, "drops --for 100ms");
    assert!(next.wait().unwrap().success());
    assert_eq!(sampling(&bench).until, 0);

    let mut killed = start(&bench, "drops");
    let begun = Instant::now();
    while sampling(&bench).until == 0 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(10));
    }
    kill(&mut killed);
    while_sending(&bench, &FLOOD, || {
        while sampling(&bench).until != 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it is asked for still");
            thread::sleep(Duration::from_millis(100));
        }
    });
}

/// A reader that stood still for longer than its time does not take samples beside the one that took over, nor ends those.
#[test]
fn a_reader_that_stood_still_leaves_the_next_one_alone() {
    let bench = bench();
    let first = start(&bench, "drops --reason exceed");
    let wait = |what: &str, holds: &dyn Fn(Sampling) -> bool| {
        let begun = Instant::now();
        while !holds(sampling(&bench)) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    wait("the first one reads", &|it| it.until != 0);
    signal(&first, libc::SIGSTOP);
    while_sending(&bench, &FLOOD, || wait("its time passes", &|it| it.until == 0));
    let mut next = start(&bench, "drops --reason deny");
    let own = u64::from(next.id());
    wait("the next one reads", &|it| it.process == own && it.until != 0);
    signal(&first, libc::SIGCONT);
    let first = first.wait_with_output().unwrap();
    let told = String::from_utf8(first.stderr).unwrap();
    assert!(first.status.code() == Some(6) && told.contains(&format!("kill {own}")), "{told}");
    let after = sampling(&bench);
    assert!(after.process == own && after.until != 0, "{after:?}");
    kill(&mut next);
}

#[test]
fn it_goes_on_while_tables_are_exchanged() {
    let bench = bench();
    while_sending(&bench, &FLOOD, || {
        let child = start(&bench, "drops -j --for 6s --rate 50");
        thread::sleep(Duration::from_secs(1));
        bench.done("attach eth0 --sources 8192");
        let told = lines(&finish(child));
        let (summary, packets) = told.split_last().unwrap();
        let time = |packet: &Value| packet["time"].as_f64().unwrap();
        let length = time(packets.last().unwrap()) - time(&packets[0]);
        assert!(length > 4.0, "for {length} s: {summary}");
    });
}

/// As `limiter drops | less` does when nobody scrolls.
#[test]
fn a_reader_whose_output_nobody_reads_ends_when_it_is_asked_to() {
    let bench = bench();
    let mut child = start(&bench, "drops --rate 10000");
    while_sending(&bench, &FLOOD, || {
        // A pipe holds 64 KiB, which are some 800 lines.
        thread::sleep(Duration::from_secs(2));
        signal(&child, libc::SIGTERM);
        let asked = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(asked.elapsed() < Duration::from_secs(20), "it goes on");
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    finish(start(&bench, "drops --for 100ms"));
}
