//! The agent as a bouncer of CrowdSec.

mod pushes;

use std::{
    fmt::Write as _,
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, MapData};
use limiter_common::abi::policy::Head;
use limiter_tests::sandbox::BPFFS;
use serde_json::Value;

use super::{
    super::{
        Bench, Document, SMALL,
        agent::{Agent, REQUEST, ask},
        fail2ban::denied_at_run_time,
        json::send,
    },
    CrowdSec, PATIENCE,
};

const URL: &str = "http://127.0.0.1:8080";

/// A router with an API of CrowdSec, and a file with a key of it.
struct Setup<'b> {
    bench: &'b Bench,
    document: &'b Document,
    crowdsec: CrowdSec<'b>,
    key: PathBuf,
}

impl<'b> Setup<'b> {
    fn new(bench: &'b Bench, document: &'b Document) -> Self {
        let folder = document.path().parent().unwrap().to_owned();
        let crowdsec = CrowdSec::start(bench, &folder);
        let key = folder.join("crowdsec.key");
        write_key(&key, &crowdsec.key_as_shown(), 0o600);
        Self { bench, document, crowdsec, key }
    }

    fn agent(&self) -> Agent {
        Agent::start(self.bench, self.document, &self.arguments())
    }

    fn arguments(&self) -> String {
        let key = self.key.display();
        let options = format!("--crowdsec {URL} --crowdsec-key-file {key} --crowdsec-interval 1s");
        format!("-i eth0 --policy FILE --events none --listen 127.0.0.1:9180 {options}")
    }

    fn decide(&self, scope: &str, value: &str, more: &[&str]) {
        self.crowdsec
            .cscli(&[&["decisions", "add", "--scope", scope, "--value", value], more].concat());
    }

    /// As many bans, each of an address of its own, the first of which ends after so many seconds.
    fn import(&self, count: u32, first: u32) {
        let list = self.document.path().with_file_name("list.csv");
        fs::write(&list, many(count, first)).unwrap();
        self.crowdsec.cscli(&["decisions", "import", "-i", list.to_str().unwrap()]);
    }

    fn forgive(&self, option: &str, value: &str) {
        self.crowdsec.cscli(&["decisions", "delete", option, value]);
    }

    fn denied(&self) -> Value {
        self.bench.json("deny list -j")["entries"].take()
    }

    /// Waits until exactly these sources are on the run-time list `deny`.
    #[track_caller]
    fn wait_for(&self, sources: &[&str]) {
        let start = Instant::now();
        loop {
            let entries = self.denied();
            if denied_at_run_time(&entries) == sources {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{sources:?}: {entries}\n{}", self.crowdsec.told());
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the agent has been answered once more.
    fn wait_for_an_answer(&self) {
        let answers = || {
            let scrape = ask(self.bench, REQUEST);
            let of = |line: &str| {
                line.strip_prefix("limiter_crowdsec_pulls_total{result=\"ok\"} ").map(str::to_owned)
            };
            scrape.lines().find_map(of).unwrap().parse::<u64>().unwrap()
        };
        // The one after the next was asked for after this was called.
        let (first, start) = (answers(), Instant::now());
        while answers() < first + 2 {
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until a scrape has this line.
    #[track_caller]
    fn wait_for_metric(&self, line: &str) {
        let start = Instant::now();
        loop {
            let scrape = ask(self.bench, REQUEST);
            if scrape.contains(&format!("\n{line}\n")) {
                return;
            }
            let lines = scrape.lines().filter(|it| it.starts_with("limiter_crowdsec"));
            assert!(start.elapsed() < PATIENCE, "{line}: {:#?}", lines.collect::<Vec<_>>());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Whether packets of a source are dropped as denied.
    #[track_caller]
    fn is_dropped(&self, source: &str) -> bool {
        let denied = || self.bench.json("status -j")["reasons"]["deny"].as_u64().unwrap();
        let before = denied();
        send(self.bench, source.parse::<IpAddr>().unwrap(), 20);
        let dropped = denied() - before;
        assert!(dropped == 0 || dropped == 20, "{dropped}");
        dropped == 20
    }
}

fn write_key(file: &Path, key: &str, mode: u32) {
    fs::write(file, format!("{key}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

/// The next event with this name.
#[track_caller]
fn next_of(agent: &Agent, name: &str) -> Value {
    loop {
        let event = agent.next_within(PATIENCE);
        if event["event"] == name {
            return event;
        }
    }
}

/// How many bans are in force, are new, and ended, by an event.
#[track_caller]
fn counts(event: &Value) -> [u64; 3] {
    ["total", "added", "ended"].map(|name| event[name].as_u64().unwrap())
}

/// How often a policy was put in force.
fn changes(bench: &Bench) -> u64 {
    let router = &bench.hosts.router;
    let read = || {
        let head = MapData::from_pin(format!("{BPFFS}/limiter/maps/HEAD")).unwrap();
        let head: Array<_, Head> = aya::maps::Map::Array(head).try_into().unwrap();
        head.get(&0, 0).unwrap().epoch
    };
    router.sandbox.inside(&router.namespace, read).unwrap()
}

#[test]
fn who_crowdsec_bans_is_dropped_until_the_ban_is_deleted() {
    let bench = Bench::new();
    let document = Document::new("allow: [203.0.113.0/24]");
    let setup = Setup::new(&bench, &document);
    let hour = &["--duration", "1h"];
    setup.decide("Ip", "192.0.2.5", hour);
    let agent = setup.agent();
    let event = next_of(&agent, "decisions");
    assert_eq!((&event["total"], &event["added"]), (&1.into(), &1.into()), "{event}");
    assert!(setup.is_dropped("192.0.2.5") && !setup.is_dropped("192.0.2.6"));

    setup.decide("Range", "198.51.100.0/24", hour);
    setup.decide("Ip", "2001:db8:7::7", hour);
    setup.decide("Ip", "2001:db8:7::8", hour);
    let all = ["192.0.2.5/32", "198.51.100.0/24", "2001:db8:7::/64"];
    setup.wait_for(&all);
    assert!(setup.is_dropped("198.51.100.77") && setup.is_dropped("2001:db8:7::99"));
    let entries = setup.denied();
    for entry in entries.as_array().unwrap() {
        assert_eq!(entry["set"], "crowdsec", "{entry}");
        assert!(entry["reason"].as_str().unwrap().starts_with("crowdsec manual 'ban'"), "{entry}");
        assert!((3_400..=3_661).contains(&entry["seconds_left"].as_u64().unwrap()), "{entry}");
    }
    // What bans nobody is counted, and so is what allow has.
    setup.decide("Ip", "192.0.2.66", &["--type", "captcha", "--duration", "1h"]);
    setup.decide("Country", "DE", hour);
    setup.decide("Ip", "203.0.113.5", hour);
    setup.wait_for_metric("limiter_crowdsec_ignored_total{reason=\"remediation\"} 1");
    setup.wait_for_metric("limiter_crowdsec_left_out{reason=\"allow\"} 1");
    setup.wait_for_metric("limiter_crowdsec_decisions{origin=\"cscli\"} 5");
    setup.wait_for(&all);
    assert!(!setup.is_dropped("203.0.113.5"));
    // The ban by hand of the same source is another one.
    bench.done("deny add 192.0.2.5 --for 1h --reason hand");
    setup.forgive("--ip", "192.0.2.5");
    setup.forgive("--ip", "2001:db8:7::7");
    setup.wait_for_metric("limiter_crowdsec_decisions{origin=\"cscli\"} 3");
    setup.wait_for(&all);
    assert!(setup.is_dropped("192.0.2.5") && setup.is_dropped("2001:db8:7::99"));
    bench.done("deny del 192.0.2.5");
    setup.forgive("--ip", "2001:db8:7::8");
    setup.forgive("--range", "198.51.100.0/24");
    setup.wait_for(&[]);
    assert!(!setup.is_dropped("192.0.2.5") && !setup.is_dropped("198.51.100.77"));
    setup.wait_for_metric("limiter_agent_failing 0");
    agent.end_past_others();
}

#[test]
fn a_ban_stays_as_long_as_any_decision_has_its_addresses() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    let hour = &["--duration", "1h"];
    let ranges = ["198.51.100.4/24", "198.51.100.0/24"];
    ranges.iter().for_each(|range| setup.decide("Range", range, hour));
    let agent = setup.agent();
    setup.wait_for_metric("limiter_crowdsec_decisions{origin=\"cscli\"} 2");
    setup.wait_for(&["198.51.100.0/24"]);
    setup.forgive("--value", ranges[0]);
    setup.wait_for_metric("limiter_crowdsec_decisions{origin=\"cscli\"} 1");
    setup.wait_for(&["198.51.100.0/24"]);
    assert!(setup.is_dropped("198.51.100.77"));
    setup.forgive("--value", ranges[1]);
    setup.wait_for(&[]);
    agent.end_past_others();
}

#[test]
fn a_ban_waits_until_the_trial_of_a_policy_is_over() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    let agent = setup.agent();
    next_of(&agent, "decisions");
    let trial = Document::new("limits: [{name: other, key: source, rate: 7/s}]");
    bench.done(&trial.in_place("policy apply FILE --confirm 10m"));
    setup.decide("Ip", "192.0.2.5", &["--duration", "1h"]);
    let failed = next_of(&agent, "failed");
    assert!(failed["message"].as_str().unwrap().contains("policy confirm"), "{failed}");
    setup.wait_for(&[]);
    bench.done("policy confirm");
    setup.wait_for(&["192.0.2.5/32"]);
    setup.wait_for_metric("limiter_agent_failing 0");
    agent.end_past_others();
}

#[test]
fn allow_and_this_host_come_before_crowdsec() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    let hour = &["--duration", "1h"];
    let own = bench.hosts.router_port.address_like([192, 0, 2, 1].into()).to_string();
    setup.decide("Ip", "192.0.2.5", hour);
    setup.decide("Ip", &own, hour);
    setup.decide("Range", "0.0.0.0/0", hour);
    let agent = setup.agent();
    let event = next_of(&agent, "decisions");
    assert_eq!((&event["total"], &event["harmful"]), (&1.into(), &2.into()), "{event}");
    assert!(event["harm"].as_str().unwrap().contains("every address"), "{event}");
    setup.wait_for(&["192.0.2.5/32"]);
    setup.wait_for_metric("limiter_crowdsec_left_out{reason=\"harm\"} 2");
    assert!(setup.is_dropped("192.0.2.5") && !setup.is_dropped("192.0.2.6"));
    // A wider prefix on allow comes first too, and the ban is still there when that goes.
    bench.done("allow add 192.0.2.0/24");
    setup.wait_for(&[]);
    assert!(!setup.is_dropped("192.0.2.5"));
    bench.done("allow del 192.0.2.0/24");
    setup.wait_for(&["192.0.2.5/32"]);
    assert!(setup.is_dropped("192.0.2.5"));
    // Who takes an entry away by hand finds it there again.
    bench.done("deny flush --set crowdsec");
    setup.wait_for(&["192.0.2.5/32"]);
    agent.end_past_others();
}

#[test]
fn a_ban_stays_while_crowdsec_or_the_agent_is_away() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let mut setup = Setup::new(&bench, &document);
    setup.decide("Ip", "192.0.2.5", &["--duration", "1h"]);
    setup.decide("Ip", "192.0.2.6", &["--duration", "1h"]);
    let agent = setup.agent();
    next_of(&agent, "decisions");
    setup.wait_for(&["192.0.2.5/32", "192.0.2.6/32"]);
    setup.crowdsec.stop();
    let failed = next_of(&agent, "failed");
    assert!(
        failed["message"].as_str().unwrap().contains("nobody answers at 127.0.0.1:8080"),
        "{failed}"
    );
    assert!(failed["hint"].as_str().unwrap().contains("cscli lapi status"), "{failed}");
    setup.wait_for_metric("limiter_agent_failing 1");
    assert!(setup.is_dropped("192.0.2.5"));
    agent.end_past_others();
    // Another agent, and still nobody answers.
    let agent = setup.agent();
    next_of(&agent, "failed");
    bench.done("allow add 192.0.2.6 --for 1h");
    setup.wait_for(&["192.0.2.5/32"]);
    bench.done("allow del 192.0.2.6");
    setup.wait_for(&["192.0.2.5/32", "192.0.2.6/32"]);
    assert!(setup.is_dropped("192.0.2.5"));
    // As after a boot.
    bench.done("detach --all");
    next_of(&agent, "attached");
    assert!(setup.is_dropped("192.0.2.5") && setup.is_dropped("192.0.2.6"));
    agent.end_past_others();
    // What is decided meanwhile is known to the next agent, and nothing else changes.
    setup.crowdsec.serve();
    setup.forgive("--ip", "192.0.2.6");
    setup.decide("Ip", "192.0.2.7", &["--duration", "1h"]);
    let agent = setup.agent();
    let event = next_of(&agent, "decisions");
    assert_eq!(counts(&event), [2, 1, 1], "{event}");
    setup.wait_for(&["192.0.2.5/32", "192.0.2.7/32"]);
    agent.end_past_others();
    let before = changes(&bench);
    let agent = setup.agent();
    let event = next_of(&agent, "decisions");
    assert_eq!(counts(&event), [2, 0, 0], "{event}");
    setup.wait_for_an_answer();
    assert_eq!(changes(&bench), before, "what is there already is not put in force again");
    agent.end_past_others();
}

#[test]
fn a_ban_ends_by_itself() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let mut setup = Setup::new(&bench, &document);
    let agent = setup.agent();
    next_of(&agent, "decisions");
    setup.decide("Ip", "192.0.2.5", &["--duration", "8s"]);
    setup.wait_for(&["192.0.2.5/32"]);
    setup.crowdsec.stop();
    assert!(setup.is_dropped("192.0.2.5"));
    let start = Instant::now();
    while setup.is_dropped("192.0.2.5") {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(500));
    }
    agent.end_past_others();
}

#[test]
fn a_key_that_is_not_taken_is_told_and_another_one_needs_no_restart() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    setup.decide("Ip", "192.0.2.5", &["--duration", "1h"]);
    let key = fs::read_to_string(&setup.key).unwrap().trim().to_owned();
    write_key(&setup.key, "0123456789abcdef", 0o600);
    let agent = setup.agent();
    let failed = next_of(&agent, "failed");
    let words = |event: &Value, words: &str| {
        let text = event.to_string();
        assert!(
            text.contains(words) && !text.contains(&key) && !text.contains("0123456789abcdef"),
            "{text}"
        );
    };
    words(&failed, "does not take the key in");
    words(&failed, "cscli bouncers add");
    write_key(&setup.key, &key, 0o644);
    words(&next_of(&agent, "failed"), "its mode is 0644");
    write_key(&setup.key, &key, 0o600);
    assert_eq!(next_of(&agent, "decisions")["added"], 1);
    assert!(setup.is_dropped("192.0.2.5"));
    fs::remove_file(&setup.key).unwrap();
    words(&next_of(&agent, "failed"), "No such file");
    agent.end_past_others();
    bench.refused(&format!("agent --crowdsec {URL}"), 2, &["--crowdsec-key-file"]);
    bench.refused(
        "agent --crowdsec https://127.0.0.1 --crowdsec-key-file /k",
        2,
        &["speaks no TLS", "proxy"],
    );
    bench.refused(
        &format!("agent --crowdsec {URL} --crowdsec-key-file /k --crowdsec-interval 0.5s"),
        2,
        &["from 1s to 1h"],
    );
}

/// Decisions as `cscli decisions import` reads them, each with an end of its own, from so many seconds on.
fn many(count: u32, first: u32) -> String {
    let mut text = "duration,origin,reason,scope,value,type\n".to_owned();
    for number in 0..count {
        let [_, a, b, c] = number.to_be_bytes();
        let seconds = first + number;
        writeln!(text, "{seconds}s,cscli-import,scan,ip,100.{a}.{b}.{c},ban").unwrap();
    }
    text
}

#[test]
fn a_community_list_is_one_change() {
    const COUNT: u32 = 20_000;
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    setup.import(COUNT, 100_000);
    // The instance is there before, so that each change is counted.
    bench.done("attach eth0 --sources 1024");
    let before = changes(&bench);
    let agent = setup.agent();
    let event = next_of(&agent, "decisions");
    assert_eq!(counts(&event), [COUNT.into(), COUNT.into(), 0], "{event}");
    // The first one is that of the document.
    assert!(changes(&bench) - before <= 2, "{} changes", changes(&bench) - before);
    assert!(setup.is_dropped("100.0.0.7") && setup.is_dropped("100.0.78.31"));
    assert!(!setup.is_dropped("100.0.78.32"));
    setup.decide("Ip", "192.0.2.5", &["--duration", "1h"]);
    assert_eq!(counts(&next_of(&agent, "decisions")), [u64::from(COUNT) + 1, 1, 0]);
    assert!(setup.is_dropped("192.0.2.5") && setup.is_dropped("100.0.0.7"));
    let changed = changes(&bench);
    setup.wait_for_an_answer();
    assert_eq!(changes(&bench), changed);
    setup.crowdsec.cscli(&["decisions", "delete", "--all"]);
    let start = Instant::now();
    while !setup.denied().as_array().unwrap().is_empty() {
        assert!(start.elapsed() < PATIENCE, "{}", setup.crowdsec.told());
        thread::sleep(Duration::from_millis(200));
    }
    assert!(!setup.is_dropped("100.0.0.7") && !setup.is_dropped("192.0.2.5"));
    agent.end_past_others();
}

#[test]
fn bans_that_end_at_different_times_make_room_for_themselves() {
    const COUNT: u32 = 500;
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    // Less than an hour: each has its own end, and takes a profile.
    setup.import(COUNT, 2_000);
    bench.done(&format!("attach eth0 {SMALL}"));
    let agent = setup.agent();
    assert_eq!(counts(&next_of(&agent, "decisions")), [COUNT.into(), COUNT.into(), 0]);
    assert!(setup.is_dropped("100.0.0.7") && setup.is_dropped("100.0.1.243"));
    setup.wait_for_metric("limiter_agent_failing 0");
    agent.end_past_others();
}
