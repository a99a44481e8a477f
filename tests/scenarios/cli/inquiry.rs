//! Queries about sources and packets: `get`, `policy explain` and `test`.

use std::{
    fs,
    path::PathBuf,
    process::{self, Command},
    time::Duration,
};

use limiter_tests::{
    packet::{Frame, SYN},
    traffic::Sender,
};
use serde_json::Value;

use super::{Bench, Document, SMALL};

/// A source that sends in these tests, and one that does not.
const SENDER: [u8; 4] = [192, 0, 2, 1];
const SILENT: &str = "198.51.100.77";
const TO: [u8; 4] = [192, 0, 2, 99];

/// Limits of one packet a minute, so that spent bursts stay spent. Part of a token is still enough for one
/// packet.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    bench.done("limit set source --rate 1/min --burst 20");
    bench.done("limit set source --src 203.0.113.0/24 --rate 5/min --burst 3");
    bench.done("limit set syn --rate 1/min --burst 5");
    bench.done("limit set connection --rate 1/min --burst 15");
    bench
}

/// Sends a frame to the router `packets` times.
fn send(bench: &Bench, frame: Frame, packets: u64) {
    let (from, to) = (&bench.hosts.client_port, &bench.hosts.router_port);
    let frame = frame.macs(from.mac, to.mac).build();
    let length = Duration::from_millis(packets);
    let mut sender = Sender::new(&bench.hosts.client.namespace, from, 1_000, frame).unwrap();
    assert_eq!(sender.send(length, &Default::default()).unwrap().packets, packets);
}

fn udp(source: [u8; 4], port: u16) -> Frame {
    Frame::udp(source, TO, 5_000, port).payload(18)
}

fn limit<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut limits = report["limits"].as_array().unwrap().iter();
    limits.find(|limit| limit["name"] == name).unwrap()
}

/// A file that is removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("limiter-{}-{name}", process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The bytes of a capture file with these frames, in big-endian byte order.
pub(super) fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = [0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4].to_vec();
    bytes.extend([0; 8]);
    bytes.extend([65_535_u32, 1].map(u32::to_be_bytes).concat());
    for frame in frames {
        let length = frame.len() as u32;
        bytes.extend([1, 2, length, length].map(u32::to_be_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn get_tells_what_is_used_and_what_is_left() {
    let bench = bench();
    send(&bench, udp(SENDER, 53), 12);
    send(&bench, udp(SENDER, 54), 5);
    let report = bench.json("get 192.0.2.1 -j");
    assert_eq!(report["schema"], "limiter.source/1");
    assert_eq!((&report["source"], &report["known"]), (&"192.0.2.1".into(), &true.into()));
    assert_eq!(report["passed"]["packets"], 17);
    assert_eq!(report["dropped"]["packets"], 0);

    let source = limit(&report, "source");
    assert_eq!((&source["key"], &source["mode"]), (&"source".into(), &"enforce".into()));
    assert_eq!((&source["algorithm"], &source["burst"]), (&"token_bucket".into(), &20.into()));
    let state = &source["state"];
    assert_eq!((&state["used"], &state["limit"]), (&16.into(), &20.into()), "{report}");
    assert_eq!((&state["remaining"], &state["next_packet_seconds"]), (&4.into(), &0.0.into()));
    let full = state["full_seconds"].as_f64().unwrap();
    assert!((1_000.0..=1_020.0).contains(&full), "17 packets at one a minute: {full}");
    assert_eq!(limit(&report, "syn")["state"]["used"], 0);

    assert_eq!(limit(&report, "connection")["per_key"], true);
    assert_eq!(report["states_total"], 2);
    let states = report["states"].as_array().unwrap();
    let told: Vec<_> =
        states.iter().map(|it| (it["key"].as_str().unwrap(), &it["state"]["used"])).collect();
    assert_eq!(
        told,
        [
            ("192.0.2.1:5000 > 192.0.2.99:53/udp", &11.into()),
            ("192.0.2.1:5000 > 192.0.2.99:54/udp", &4.into()),
        ],
        "the fullest first"
    );
    let text = bench.done("get 192.0.2.1").stdout;
    for part in ["16 of 20", "11 of 15", "17 packets", "token_bucket", "1/min"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
}

#[test]
fn get_tells_when_the_next_packet_passes_and_what_was_dropped() {
    let bench = bench();
    send(&bench, udp(SENDER, 53), 15);
    send(&bench, udp(SENDER, 54), 15);
    let report = bench.json("get 192.0.2.1 -j");
    assert_eq!(
        (&report["passed"]["packets"], &report["dropped"]["packets"]),
        (&21.into(), &9.into())
    );
    let state = &limit(&report, "source")["state"];
    assert_eq!(state["remaining"], 0);
    let next = state["next_packet_seconds"].as_f64().unwrap();
    assert!((50.0..=60.0).contains(&next), "{next}");
    let top = bench.json("top -j")["sources"].take();
    assert_eq!(top[0]["dropped"], report["dropped"]["packets"], "the totals are those of top");
}

#[test]
fn an_unknown_source_is_shown_with_what_would_apply_and_ends_with_4() {
    let bench = bench();
    send(&bench, udp(SENDER, 53), 1);
    let outcome = bench.run(&format!("get {SILENT} -j")).outcome().unwrap();
    outcome.assert_exit_code(4);
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["known"], false);
    assert_eq!(limit(&report, "source")["state"]["remaining"], 20);
    let error: Value = serde_json::from_str(&outcome.stderr).unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains(SILENT), "{error}");

    let outcome = bench.run("get 203.0.113.9").outcome().unwrap();
    outcome.assert_exit_code(4).assert_says(&["nothing is known of 203.0.113.9", "hint: "]);
    assert!(outcome.stdout.contains("for 203.0.113.0/24"), "the override: {outcome}");
    assert!(outcome.stdout.contains("0 of 3"), "{outcome}");
}

/// Of a ban and a penalty one decides, by their lengths and ends.
#[test]
fn a_source_that_is_denied_and_blocked_has_both() {
    let bench = bench();
    bench.done("deny add 192.0.2.0/24 --for 1h --reason scans");
    for time in ["10m", "1h", "2h"] {
        bench.done(&format!("penalty add 192.0.2.1 --for {time}"));
        let told = bench.run("get 192.0.2.1").outcome().unwrap().stdout;
        let has = |name: &str| told.lines().any(|line| line.starts_with(name));
        assert!(has("denied ") && has("blocked "), "{time}: {told}");
        let outcome = bench.run("get 192.0.2.1 -j").outcome().unwrap();
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let lists: Vec<_> = report["lists"].as_array().unwrap().iter().collect();
        assert_eq!(lists.len(), 2, "{time}: {report}");
        assert_eq!((&lists[0]["list"], &lists[1]["list"]), (&"deny".into(), &"penalty".into()));
        bench.done("penalty del 192.0.2.1");
    }
}

#[test]
fn a_source_of_ipv6_is_a_prefix() {
    let bench = bench();
    for asked in ["2001:db8:1:2::", "2001:db8:1:2::7", "2001:db8:1:2::/64"] {
        let outcome = bench.run(&format!("get {asked} -j")).outcome().unwrap();
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(report["source"], "2001:db8:1:2::/64", "{asked}");
    }
    bench.refused("get 2001:db8::/32", 2, &["2001:db8::/32", "more than one source", "/64"]);
    bench.refused("get 10.0.0.0/8", 2, &["more than one source", "/32"]);
    bench.refused("get example.org", 2, &["example.org", "neither"]);
}

#[test]
fn a_test_says_what_then_happens_and_changes_nothing() {
    let bench = bench();
    send(&bench, udp(SENDER, 53), 16);
    let to_full = "test --src 192.0.2.1 --dst 192.0.2.99 --proto udp --sport 5000 --dport 53";
    let to_other = "test --src 192.0.2.1 --dst 192.0.2.99 --proto udp --sport 5000 --dport 54";
    let before = (bench.json("status -j"), bench.json("get 192.0.2.1 -j")["states"].clone());
    for _ in 0..10 {
        let full = bench.json(&format!("{to_full} -j"));
        assert_eq!((&full["verdict"], &full["reason"]), (&"drop".into(), &"exceed".into()));
        assert_eq!(full["limit"], "connection");
        let other = bench.json(&format!("{to_other} -j"));
        assert_eq!((&other["verdict"], &other["reason"]), (&"pass".into(), &"conform".into()));
        assert_eq!(other["charged"], serde_json::json!(["source", "connection"]));
    }
    let after = (bench.json("status -j"), bench.json("get 192.0.2.1 -j")["states"].clone());
    assert_eq!(before.0["limits"], after.0["limits"]);
    assert_eq!(before.0["interfaces"], after.0["interfaces"]);
    assert_eq!(before.0["buckets"], after.0["buckets"], "no state was made");
    assert_eq!(before.0["sources"], after.0["sources"]);
    let keys = |states: &Value| -> Vec<Value> {
        states.as_array().unwrap().iter().map(|it| it["key"].clone()).collect()
    };
    assert_eq!(keys(&before.1), keys(&after.1));
    send(&bench, udp(SENDER, 53), 1);
    assert_eq!(bench.json("get 192.0.2.1 -j")["dropped"]["packets"], 1, "as it was said");
    let text = bench.done(to_full).stdout;
    assert_eq!(text, "drop (exceed; limit connection)\n");
    let syn = "test --src 192.0.2.7 --dst 192.0.2.99 --dport https --flags syn --tagged 5";
    let text = bench.done(syn).stdout;
    assert_eq!(text, "pass (conform); charged to syn, source, connection\n");
}

#[test]
fn a_test_that_makes_no_packet_is_refused() {
    let bench = bench();
    let usage = |arguments: &str, words: &[&str]| {
        bench.refused(arguments, 2, words);
    };
    let packet = "test --src 192.0.2.1 --dst 192.0.2.99";
    usage("test", &["--src"]);
    usage("test --src 192.0.2.1", &["--dst"]);
    usage("test --src 192.0.2.1 --dst 2001:db8::1", &["different families", "hint: "]);
    usage("test --src nobody --dst 192.0.2.1", &["nobody", "is no address", "hint: "]);
    usage(&format!("{packet} --proto tpc"), &["tpc", "tcp"]);
    usage(&format!("{packet} --proto icmp --dport 22"), &["port \"22\"", "instead of icmp"]);
    usage(&format!("{packet} --proto icmp --sport 22"), &["source port \"22\"", "instead of icmp"]);
    usage(&format!("{packet} --dport 70000"), &["70000"]);
    usage(&format!("{packet} --flags sny"), &["sny", "syn"]);
    usage(&format!("{packet} --length 20"), &["20 bytes", "54"]);
    usage(&format!("{packet} --tagged 4096"), &["4096"]);
    usage(&format!("{packet} --pcap x.pcap"), &["--pcap"]);
    bench.refused(&format!("{packet} --in eth7"), 4, &["eth7", "eth0"]);
    for arguments in
        [&["test", "--src", "\u{1b}[2J", "--dst", "192.0.2.1"][..], &["get", "\u{1b}[2J"]]
    {
        let outcome = bench.limiter.with(arguments).outcome().unwrap();
        assert_eq!(outcome.code, 2, "{outcome}");
        assert!(!outcome.stderr.contains('\u{1b}'), "{:?}", outcome.stderr);
    }
}

#[test]
fn packets_of_a_file_are_judged_each_by_itself() {
    let bench = bench();
    send(&bench, udp(SENDER, 53), 16);
    let mut frames = vec![udp(SENDER, 53).build(), udp(SENDER, 54).build()];
    let fresh = Frame::tcp([192, 0, 2, 50], TO, 5_000, 443, SYN).build();
    // More packets than any limit admits at once, but a test charges none.
    frames.extend(vec![fresh; 100]);
    frames.push(Frame::other(0x0806, [0; 28]).build());
    // The source is the same inside a PPPoE session and behind an MPLS label.
    frames.extend([udp(SENDER, 53).pppoe().build(), udp(SENDER, 54).labels(1).build()]);
    let file = Scratch::new("packets.pcap", &pcap(&frames));
    let summary = bench.json(&format!("test -j --pcap {}", file.path()));
    assert_eq!(summary["packets"], 105);
    let told = summary["verdicts"].as_array().unwrap().iter().map(|it| {
        let word = |name: &str| it[name].as_str().unwrap_or("-");
        (word("verdict"), word("reason"), word("limit"), it["packets"].as_u64().unwrap())
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told,
        [
            ("pass", "conform", "-", 102),
            ("pass", "non_ip", "-", 1),
            ("drop", "exceed", "connection", 2),
        ]
    );
    let lines = bench.done(&format!("test -v --pcap {}", file.path())).stdout;
    assert!(lines.starts_with("1: drop (exceed; limit connection)\n2: pass (conform)"), "{lines}");
    assert!(lines.contains("\n103: pass (non_ip)\n"), "{lines}");
    assert!(
        lines.contains("\n104: drop (exceed; limit connection)\n105: pass (conform)"),
        "{lines}"
    );
    assert!(bench.done("test --help").stdout.contains("is judged by itself"));
}

#[test]
fn fragments_of_a_file_follow_the_first_one_of_their_datagram() {
    let bench = bench();
    send(&bench, udp(SENDER, 53), 16);
    let first = |port| udp(SENDER, port).payload(64).fragment(7, 0, true).build();
    let later = |id| Frame::ip(SENDER, TO, 17).payload(64).fragment(id, 9, false).build();
    let file = Scratch::new(
        "fragments.pcap",
        &pcap(&[later(7), first(53), later(7), later(8), first(54)]),
    );
    let lines = bench.done(&format!("test -v --pcap {}", file.path())).stdout;
    let told: Vec<_> = lines.lines().take(5).collect();
    let refused = "drop (exceed; limit connection)";
    let expected = ["pass (fragment)", refused, refused, "pass (fragment)", "drop (overlap)"];
    for (number, (told, expected)) in told.iter().zip(expected).enumerate() {
        assert!(told.starts_with(&format!("{}: {expected}", number + 1)), "{lines}");
    }
    // The fragments of the file change no state: the next test starts without them.
    let lines = bench.done(&format!("test -v --pcap {}", file.path())).stdout;
    assert!(lines.starts_with("1: pass (fragment)"), "{lines}");
}

#[test]
fn files_that_are_no_captures_are_refused_with_the_remedy() {
    let bench = bench();
    let other = Scratch::new("other.pcap", b"no capture");
    bench.refused(&format!("test --pcap {}", other.path()), 1, &["no capture file", "tcpdump -w"]);
    bench.refused("test --pcap /nowhere.pcap", 4, &["/nowhere.pcap"]);
    bench.refused("test --pcap /", 1, &["cannot read /"]);
}

#[test]
fn of_a_file_that_is_cut_what_is_there_is_judged() {
    let bench = bench();
    let whole = pcap(&vec![udp(SENDER, 53).build(); 3]);
    let cut = Scratch::new("cut.pcap", &whole[..whole.len() - 1]);
    let outcome = bench.run(&format!("test --pcap {}", cut.path())).outcome().unwrap();
    outcome.assert_exit_code(0).assert_says(&["warning: ", "ends within packet 3"]);
    assert!(outcome.stdout.contains("pass     conform               2"), "{outcome}");
    // Of one that nothing can be read of, there is nothing to tell.
    let cut = Scratch::new("nothing.pcap", &whole[..30]);
    bench.refused(&format!("test --pcap {}", cut.path()), 1, &["ends within packet 1"]);
}

/// Nothing is attached, and nothing is left.
#[test]
fn a_document_judges_without_an_instance() {
    let bench = Bench::new();
    let document = Document::new(
        "deny: [203.0.113.0/24]
limits: [{name: dns, match: {protocol: udp, ports: dns}, key: source, rate: 1/s, burst: 1}]",
    );
    let frames = [udp(SENDER, 53).build(), udp([203, 0, 113, 9], 9).build()];
    let file = Scratch::new("trial.pcap", &pcap(&frames));
    let before = bench.state();
    let judge = format!("test -v --pcap {} --policy FILE", file.path());
    let told = bench.done(&document.in_place(&judge)).stdout;
    assert!(told.starts_with("1: pass (conform); charged to dns\n2: drop (deny)\n"), "{told}");
    let packet = "test --policy FILE --src 203.0.113.1 --dst 192.0.2.1 --proto udp";
    assert_eq!(bench.done(&document.in_place(packet)).stdout, "drop (deny)\n");
    assert_eq!(bench.state(), before);
    // A running instance has no part in it.
    bench.done(&format!("attach eth0 {SMALL}"));
    assert_eq!(bench.done(&document.in_place(packet)).stdout, "drop (deny)\n");
    document.write("limits: [{name: x}]");
    bench.refused(&document.in_place(packet), 3, &["policy.yaml"]);
    bench.refused(&format!("{packet} --in eth0"), 2, &["--in"]);
}

/// A block of a pcapng file.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let length = (12 + body.len() + padding.len()) as u32;
    [&kind.to_le_bytes(), &length.to_le_bytes(), body, &padding, &length.to_le_bytes()].concat()
}

#[test]
fn captures_of_any_common_kind_are_judged() {
    let bench = bench();
    let frame = Frame::tcp([192, 0, 2, 50], TO, 5_000, 443, SYN).build();
    let raw = |link: u32, header: &[u8]| {
        let mut bytes = pcap(&[[header, &frame[14..]].concat()]);
        bytes[20..24].copy_from_slice(&link.to_be_bytes());
        bytes
    };
    let length = (frame.len() as u32).to_le_bytes();
    let next = [
        block(0x0a0d_0d0a, &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat()),
        block(1, &[1, 0, 0, 0, 0, 0, 0, 0]),
        block(6, &[&[0; 12][..], &length, &length, &frame].concat()),
    ];
    let cooked = [&[0; 14][..], &[8, 0]].concat();
    let cooked2 = [&[8, 0][..], &[0; 18]].concat();
    for (name, bytes) in [
        ("ethernet.pcap", pcap(std::slice::from_ref(&frame))),
        ("next.pcapng", next.concat()),
        ("raw.pcap", raw(101, &[])),
        ("ipv4.pcap", raw(228, &[])),
        ("null.pcap", raw(0, &[2, 0, 0, 0])),
        ("loop.pcap", raw(108, &[0, 0, 0, 2])),
        ("sll.pcap", raw(113, &cooked)),
        ("sll2.pcap", raw(276, &cooked2)),
    ] {
        let file = Scratch::new(name, &bytes);
        let line = "1: pass (conform); charged to syn, source, connection\n";
        // By its path and on standard input, each also compressed.
        let packed = Command::new("gzip").args(["-c", file.path()]).output().unwrap().stdout;
        let packed = Scratch::new("packed.gz", &packed);
        for path in [file.path(), packed.path()] {
            let told = bench.done(&format!("test -v --pcap {path}")).stdout;
            assert!(told.starts_with(line), "{name} by its path: {told}");
            let input = fs::File::open(path).unwrap();
            let told = bench.run("test -v --pcap -").reading(input).done().unwrap().stdout;
            assert!(told.starts_with(line), "{name} from standard input: {told}");
        }
    }
    let radio = Scratch::new("radiotap.pcap", &raw(127, &[]));
    bench.refused(&format!("test --pcap {}", radio.path()), 1, &["127", "radiotap"]);
}

#[test]
fn an_explanation_names_what_decides_and_why_the_others_do_not() {
    let bench = bench();
    send(&bench, udp(SENDER, 53), 12);
    let told = |arguments: &str| {
        let report = bench.json(&format!("policy explain {arguments} -j"));
        let limits = report["limits"].as_array().unwrap().iter();
        let told: Vec<_> = limits
            .map(|it| {
                format!("{} {} {}", it["name"], it["matches"], it["conditions"]).replace('"', "")
            })
            .collect();
        (told, report)
    };
    let (limits, report) = told("192.0.2.1");
    assert_eq!(limits, ["syn depends [flags]", "source yes []", "connection yes []"]);
    assert_eq!(limit(&report, "source")["state"]["used"], 11);
    assert_eq!(limit(&report, "connection")["per_key"], true, "of no port in particular");
    assert!(report["verdict"].is_null(), "{report}");

    let (limits, report) = told("192.0.2.1:53/udp");
    assert_eq!(limits, ["syn no [flags]", "source yes []", "connection yes []"]);
    assert!(report["verdict"].is_null(), "it depends on the connection: {report}");
    let (limits, _) = told("192.0.2.1:443/tcp --flags syn");
    assert_eq!(limits, ["syn yes []", "source yes []", "connection yes []"]);

    bench.done("limit del connection");
    let (limits, report) = told("192.0.2.1:53/udp --to 192.0.2.99");
    assert_eq!(limits, ["syn no [flags]", "source yes []"]);
    assert_eq!(report["verdict"]["verdict"], "pass");
    let (_, report) = told("203.0.113.9/icmp");
    assert_eq!(limit(&report, "source")["set_for"], "203.0.113.0/24");
    let text = bench.done("policy explain 192.0.2.1:53/udp").stdout;
    for part in ["source 192.0.2.1\n", "no: flags", "yes", "11 of 20", "now: pass (conform)"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    bench.refused("policy explain 192.0.2.1:53/icmp", 2, &["192.0.2.1:53/icmp", "hint: "]);
    for (asked, words) in [
        ("203.0.113.0/24", &["203.0.113.0/24", "prefix length"][..]),
        ("2001:db8::1:80/tcp", &["[2001:db8::1]:80/tcp"]),
        ("fe80::1%eth0", &["has a zone, which packets do not carry", "write fe80::1"]),
        ("192.0.2.1:53/udp --flags syn", &["flags", "tcp instead of udp"]),
        ("192.0.2.1:53 --icmp 8", &["ICMP has none"]),
    ] {
        bench.refused(&format!("policy explain {asked}"), 2, words);
    }
    // An IPv4 address in IPv6 notation is what logs of services have.
    let mapped = bench.done("policy explain ::ffff:192.0.2.1").stdout;
    assert!(mapped.starts_with("source 192.0.2.1\n"), "{mapped}");
    let mapped = bench.done("test --src ::ffff:192.0.2.1 --dst 192.0.2.99 --proto udp");
    assert!(mapped.stdout.starts_with("pass (conform); charged to "), "{mapped}");
    let zone = "test --src fe80::1%eth0 --dst fe80::2";
    bench.refused(zone, 2, &["has a zone, which packets do not carry", "write fe80::1"]);
    let flags = "test --src 192.0.2.1 --dst 192.0.2.99 --proto udp --flags syn";
    bench.refused(flags, 2, &["tcp instead of udp"]);
    bench.refused("policy explain 192.0.2.1 --to 2001:db8::1", 2, &["families"]);
    bench.refused("policy explain 192.0.2.1 --in eth7", 4, &["eth7", "eth0"]);
}

#[test]
fn questions_need_an_instance() {
    let bench = Bench::new();
    for command in
        ["get 192.0.2.1", "policy explain 192.0.2.1", "test --src 10.0.0.1 --dst 10.0.0.2"]
    {
        let outcome = bench.run(command).outcome().unwrap();
        outcome.assert_exit_code(4).assert_says(&["not attached", "limiter attach"]);
        assert_eq!(outcome.stdout, "", "{outcome}");
    }
}
