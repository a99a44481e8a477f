//! The agent: it attaches interfaces as they appear, follows a document, and may be killed at any moment.

mod guard;
pub(super) mod loader;
mod rights;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::{UnixDatagram, UnixStream},
    },
    process::{Child, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{command::LimiterCommand, process, sandbox::BPFFS};
use serde_json::Value;

use super::{Bench, Document, SMALL, json::send};

/// How long any expected event may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than two rounds of the reconciler.
const QUIET: Duration = Duration::from_secs(4);

/// A running agent; it is killed when this is dropped.
pub(crate) struct Agent {
    process: Child,
    events: Receiver<Value>,
    /// The events about interfaces that the agent waits for. They are separate because an interface that is
    /// away for a moment may or may not cause one.
    waits: Receiver<Value>,
}

impl Agent {
    /// Starts an agent; `FILE` in the arguments is replaced by the path of the document.
    pub(super) fn start(bench: &Bench, document: &Document, arguments: &str) -> Self {
        Self::of(bench.run(&document.in_place(&format!("-j agent {arguments}"))))
    }

    /// Starts an agent with this command.
    pub(crate) fn of(command: LimiterCommand) -> Self {
        Self::hear(command.to(Stdio::piped()).start().unwrap())
    }

    /// Takes over an agent that was started with its standard output in a pipe.
    fn hear(mut process: Child) -> Self {
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, events) = channel();
        let (waiting, waits) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(event["schema"], "limiter.agent/1");
                let time = event["time"].as_str().unwrap();
                assert!(
                    time.len() == 20 && time.starts_with("20") && time.ends_with('Z'),
                    "{time}"
                );
                let to = if event["event"] == "waiting" { &waiting } else { &sender };
                if to.send(event).is_err() {
                    break;
                }
            }
        });
        let agent = Self { process, events, waits };
        agent.expect("started");
        agent
    }

    /// Waits until its control socket answers and its policy is in force, whichever comes first.
    pub(super) fn until_it_answers(&self) {
        let (mut answers, mut in_force) = (false, false);
        while !(answers && in_force) {
            let event = self.next();
            answers |= event["event"] == "answering";
            in_force |= ["applied", "unchanged"].iter().any(|it| event["event"] == *it);
        }
    }

    /// Returns the next event, which has to have this name.
    #[track_caller]
    pub(crate) fn expect(&self, name: &str) -> Value {
        let event = self.next();
        assert_eq!(event["event"], name, "{event}");
        event
    }

    /// Returns the next event with this name. Warnings, and events about sources that are within their limits
    /// again, are skipped.
    #[track_caller]
    fn expect_past_others(&self, name: &str) -> Value {
        loop {
            let event = self.next();
            if event["event"] == "warned" || event["event"] == "released" {
                continue;
            }
            assert_eq!(event["event"], name, "{event}");
            return event;
        }
    }

    /// Returns the next event.
    #[track_caller]
    pub(crate) fn next(&self) -> Value {
        self.next_within(PATIENCE)
    }

    /// Returns the next event, which has to come within `time`.
    #[track_caller]
    pub(crate) fn next_within(&self, time: Duration) -> Value {
        self.events.recv_timeout(time).unwrap()
    }

    /// The next event about an interface that the agent waits for; `None` if none comes within `time`.
    pub(super) fn waits(&self, time: Duration) -> Option<Value> {
        self.waits.recv_timeout(time).ok()
    }

    /// The resident memory of the agent, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Asserts that no event comes for [`QUIET`].
    #[track_caller]
    pub(super) fn is_quiet(&self) {
        let told = self.events.recv_timeout(QUIET);
        assert!(matches!(told, Err(RecvTimeoutError::Timeout)), "{told:?}");
    }

    pub(crate) fn signal(&self, signal: i32) {
        process::signal(&self.process, signal);
    }

    /// Ends the agent with SIGTERM, as a service manager does.
    pub(crate) fn end(mut self) {
        self.signal(libc::SIGTERM);
        self.expect("stopped");
        assert!(self.process.wait().unwrap().success());
    }

    /// The same, whatever events come before the last one.
    pub(crate) fn end_past_others(mut self) {
        self.signal(libc::SIGTERM);
        while self.next()["event"] != "stopped" {}
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        process::kill(&mut self.process);
    }
}

fn limits(rate: &str) -> String {
    format!("version: 1\nlimits: [{{name: source, key: source, rate: {rate}, burst: 5}}]\n")
}

/// The rate of the limit `source` in force, per second.
#[track_caller]
fn rate(bench: &Bench) -> Value {
    rate_in(&bench.json("limit list -j")).unwrap()
}

/// The rate of the limit `source` in a list of limits; `None` if it is not in the list.
fn rate_in(list: &Value) -> Option<Value> {
    let source = list["limits"].as_array()?.iter().find(|limit| limit["name"] == "source");
    Some(source?["rate_per_second"].clone())
}

#[test]
fn the_last_good_policy_stays_whatever_becomes_of_the_document() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    assert_eq!(agent.expect("attached")["interface"], "eth0");
    agent.expect("unchanged");
    assert_eq!(rate(&bench), 10);
    let path = document.path();
    let write = |text: &str| fs::write(&path, text).unwrap();
    write(&limits("20/s"));
    assert_eq!(agent.expect("applied")["changes"], 1);
    assert_eq!(rate(&bench), 20);

    let whole = limits("30/s");
    for torn in ["", "version: 1\nlimits: [{name: sou", &whole[..whole.len() - 3]] {
        write(torn);
        let why = agent.expect("rejected");
        let file = why["faults"][0]["file"].as_str().unwrap();
        assert!(file.contains("policy.yaml"), "{why}");
        assert_eq!(rate(&bench), 20);
    }
    // Root cannot read the file either, because the agent has dropped the capability for it.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    agent.expect("rejected");
    fs::remove_file(&path).unwrap();
    agent.expect("rejected");
    fs::create_dir(&path).unwrap();
    agent.expect("rejected");
    agent.is_quiet();
    assert_eq!(rate(&bench), 20);
    fs::remove_dir(&path).unwrap();
    write(&whole);
    // If the agent looked between the two steps, it reports the missing document again.
    let mut event = agent.next();
    if event["event"] == "rejected" {
        event = agent.next();
    }
    assert_eq!(event["event"], "applied", "{event}");
    assert_eq!(rate(&bench), 30);

    // The document is replaced as editors do, and as volumes in a cluster are.
    let beside = path.with_extension("new");
    fs::write(&beside, limits("40/s")).unwrap();
    fs::rename(&beside, &path).unwrap();
    agent.expect("applied");
    let folder = path.parent().unwrap();
    for version in ["one", "two"] {
        fs::create_dir(folder.join(version)).unwrap();
    }
    fs::write(folder.join("one/policy.yaml"), limits("50/s")).unwrap();
    fs::write(folder.join("two/policy.yaml"), limits("60/s")).unwrap();
    symlink("one", folder.join("data")).unwrap();
    symlink("data/policy.yaml", &beside).unwrap();
    fs::rename(&beside, &path).unwrap();
    agent.expect("applied");
    assert_eq!(rate(&bench), 50);
    symlink("two", folder.join("next")).unwrap();
    fs::rename(folder.join("next"), folder.join("data")).unwrap();
    agent.expect("applied");
    assert_eq!(rate(&bench), 60);

    for rate in 1..=1_000 {
        fs::write(folder.join("two/policy.yaml"), limits(&format!("{rate}/s"))).unwrap();
    }
    while rate(&bench) != 1_000 {
        agent.expect("applied");
    }
    agent.is_quiet();
    let before = bench.state();
    agent.end();
    assert_eq!(bench.state(), before, "everything stays");
}

#[test]
fn sets_in_files_are_followed_too() {
    let bench = Bench::new();
    let document = Document::new("sets: {bad: {file: bad.txt}}\ndeny: [bad]");
    let list = document.path().with_file_name("bad.txt");
    fs::write(&list, "192.0.2.0/24\n").unwrap();
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    agent.expect("attached");
    agent.expect("unchanged");
    fs::write(&list, "192.0.2.0/24\n198.51.100.0/24\n").unwrap();
    agent.expect("applied");
    fs::write(&list, "nonsense\n").unwrap();
    agent.expect("rejected");
    agent.end();
}

#[test]
fn interfaces_are_attached_whenever_they_come() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s}]");
    let agent = Agent::start(&bench, &document, "-i late -i eth0 --policy FILE");
    agent.expect("attached");
    agent.expect("unchanged");
    for _ in 0..3 {
        router.ip("link add late type veth peer name other").unwrap();
        assert_eq!(agent.expect("attached")["interface"], "late");
        assert!(bench.programs()["late"].is_some());
        router.ip("link del late").unwrap();
    }
    // A renamed interface keeps its limits, and a new interface with the old name is attached too.
    router.ip("link add late type veth peer name other").unwrap();
    agent.expect("attached");
    router.ip("link set late name later").unwrap();
    agent.is_quiet();
    assert!(bench.programs()["later"].is_some());
    router.ip("link add late type veth peer name another").unwrap();
    agent.expect("attached");
    let programs = bench.programs();
    assert!(programs["later"].is_some() && programs["late"].is_some(), "{programs:?}");
    // The agent attaches an interface again that an operator detached.
    bench.done("detach eth0");
    assert_eq!(agent.expect("attached")["interface"], "eth0");
    agent.end();
    router.ip("link del late").unwrap();
    router.ip("link del later").unwrap();
}

/// An interface in another namespace, or with other properties, stays limited, and is recognised when it
/// comes back.
#[test]
fn an_interface_that_went_elsewhere_or_changed_is_the_same_when_it_is_back() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    router.ip("link add late type veth peer name other").unwrap();
    let agent = Agent::start(&bench, &document, "-i late --policy FILE");
    agent.expect("attached");
    agent.expect("unchanged");
    let program = || bench.programs().get("late").copied().flatten();
    let before = program();
    assert!(before.is_some());
    router.ip("link set late mtu 1400").unwrap();
    router.ip("link set late up").unwrap();
    router.ip("link set late down").unwrap();
    agent.is_quiet();
    // While the interface is in another namespace its index is taken, so it comes back with another one.
    let index =
        |name: &str| router.ip_json(&["link", "show", "dev", name]).unwrap()[0]["ifindex"].clone();
    let number = index("late");
    let client = &bench.hosts.client;
    router.ip(&format!("link set late netns {}", client.namespace.path())).unwrap();
    router.ip(&format!("link add filler index {number} type veth peer name filled")).unwrap();
    agent.is_quiet();
    client.ip(&format!("link set late netns {}", router.namespace.path())).unwrap();
    agent.is_quiet();
    assert_ne!(index("late"), number);
    assert_eq!(program(), before, "the same program, all along");
    router.ip("link del filler").unwrap();
    router.ip("link del late").unwrap();
    agent.end();
}

/// A full disk loses the events of the agent and nothing else.
#[test]
fn a_full_disk_stops_nothing_but_what_is_told() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let command = bench.run(&document.in_place("-j agent -i eth0 --policy FILE"));
    let mut process = command.to(full).start().unwrap();
    let until = |is_so: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(50));
        }
    };
    until(&|| bench.programs()["eth0"].is_some());
    fs::write(document.path(), limits("20/s")).unwrap();
    until(&|| rate(&bench) == 20);
    send(&bench, [192, 0, 2, 1], 50);
    bench.done("detach eth0");
    until(&|| bench.programs()["eth0"].is_some());
    assert!(process::terminate(&mut process).unwrap().success());
}

/// List entries with an end follow the wall clock when that is set.
#[test]
fn who_sets_the_clock_does_not_lengthen_a_list() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let clock = document.path().with_file_name("clock");
    fs::write(&clock, "+0").unwrap();
    let command = bench.run(&document.in_place("-j agent -i eth0 --policy FILE"));
    let command = command
        .env("LD_PRELOAD", LIBRARY)
        .env("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap())
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let agent = Agent::of(command);
    agent.expect("attached");
    agent.expect("unchanged");
    bench.done("deny add 198.51.100.7 --for 1h");
    let left = || {
        let known = bench.run("get 198.51.100.7 -j").outcome().unwrap();
        let known: Value = serde_json::from_str(&known.stdout).unwrap();
        known["denied"]["seconds_left"].as_f64().unwrap()
    };
    assert!((3_500.0..=3_602.0).contains(&left()), "{}", left());
    for (set, by, expected) in [("+3000", 3_000, 600.0), ("+0", -3_000, 3_600.0)] {
        fs::write(&clock, set).unwrap();
        let seconds = agent.expect("clock_set")["seconds"].as_i64().unwrap();
        assert!((seconds - by).abs() <= 1, "{seconds}");
        assert!((expected - 100.0..=expected + 2.0).contains(&left()), "{} of {expected}", left());
    }
    agent.is_quiet();
    agent.end();
}

#[test]
fn the_only_interface_comes_back_with_the_last_good_policy() {
    let bench = Bench::new();
    let document = Document::new("limits: nonsense");
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    agent.expect("rejected");
    let why = agent.expect("failed")["message"].as_str().unwrap().to_owned();
    assert!(why.contains("eth0 is not attached"), "{why}");
    agent.is_quiet();
    assert_eq!(bench.programs()["eth0"], None);
    fs::write(document.path(), limits("10/s")).unwrap();
    agent.expect("attached");
    agent.expect("unchanged");
    fs::write(document.path(), "nonsense").unwrap();
    agent.expect("rejected");
    for _ in 0..2 {
        // The instance is removed with its only interface.
        bench.done("detach eth0");
        agent.expect("attached");
        assert_eq!(rate(&bench), 10);
    }
    agent.end();
}

/// The agent adopts the instance that exists, whoever made it, as if it had been there from the start.
#[test]
fn an_instance_that_was_made_anew_by_hand_is_taken_over() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/h, burst: 5}]");
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE --events 10/s");
    agent.expect("attached");
    agent.expect("unchanged");
    for remove in ["detach --all", "pins"] {
        agent.signal(libc::SIGSTOP);
        if remove == "pins" {
            let mut rm = bench.hosts.router.command("rm");
            assert!(rm.args(["-r", &format!("{BPFFS}/limiter")]).status().unwrap().success());
        } else {
            bench.done(remove);
        }
        bench.done(&format!("attach eth0 {SMALL} --pps 99/s"));
        agent.signal(libc::SIGCONT);
        // Depending on where the agent was stopped, one event or the other comes first.
        let mut told = [agent.next(), agent.next()];
        told.sort_by_key(|event| event["event"].to_string());
        assert_eq!(told.each_ref().map(|event| &event["event"]), ["applied", "replaced"]);
        assert_eq!(told[1]["interface"], "eth0");
        assert_eq!(rate(&bench), 10.0 / 3600.0);
        send(&bench, [192, 0, 2, 1], 50);
        assert_eq!(agent.expect("limited")["source"], "192.0.2.1");
    }
    agent.end();
}

/// The agent learns of the detach from the network while the attach runs, and attaches what is missing.
#[test]
fn an_instance_that_is_made_anew_while_the_agent_looks_gets_the_policy_too() {
    let bench = Bench::new();
    let other = Document::new("limits: [{name: source, key: source, rate: 99/s}]");
    let document = Document::new("limits: [{name: source, key: source, rate: 10/h, burst: 5}]");
    let agent = Agent::start(&bench, &document, "-i eth0 -i lo --policy FILE");
    for attached in [(); 2].map(|()| agent.expect("attached")) {
        let words = attached["fallback"].as_str();
        if attached["interface"] == "lo" {
            assert!(words.unwrap().contains("does not support XDP in native mode"), "{attached}");
        } else {
            assert_eq!((&attached["mode"], words), (&"native".into(), None));
        }
    }
    agent.expect("unchanged");
    let rate = || {
        let outcome = bench.run("limit list -j").outcome().unwrap();
        rate_in(&serde_json::from_str(&outcome.stdout).ok()?)
    };
    for round in 0..6 {
        bench.done("detach --all");
        // The agent may attach the interface first, and its policy stays then.
        let attach = format!("attach eth0 {SMALL} --policy-if-new FILE");
        bench.run(&other.in_place(&attach)).outcome().unwrap();
        let start = Instant::now();
        while rate() != Some((10.0 / 3600.0).into()) {
            assert!(start.elapsed() < PATIENCE, "round {round}: {:?}", rate());
            thread::sleep(Duration::from_millis(50));
        }
    }
    agent.signal(libc::SIGTERM);
    while agent.next()["event"] != "stopped" {}
}

/// A failure is reported once and does not stop other work.
#[test]
fn one_interface_that_is_taken_is_one_less() {
    let bench = Bench::new();
    bench.done(&format!("--bpffs {BPFFS}/other attach lo {SMALL}"));
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    // The agent does not keep creating an instance without an interface.
    let agent = Agent::start(&bench, &document, "-i lo --policy FILE");
    let why = agent.expect("failed")["message"].as_str().unwrap().to_owned();
    assert!(why.contains("lo has an XDP program already"), "{why}");
    let mut folder = bench.hosts.router.command("test");
    assert!(!folder.args(["-e", &format!("{BPFFS}/limiter")]).status().unwrap().success());
    agent.end();
    let agent = Agent::start(&bench, &document, "-i lo -i eth0 --policy FILE");
    let mut told: Vec<String> =
        (0..3).map(|_| agent.next()["event"].as_str().unwrap().to_owned()).collect();
    told.sort_unstable();
    assert_eq!(told, ["attached", "failed", "unchanged"]);
    fs::write(document.path(), limits("20/s")).unwrap();
    agent.expect("applied");
    agent.is_quiet();
    bench.done(&format!("--bpffs {BPFFS}/other detach lo"));
    assert_eq!(agent.expect("attached")["interface"], "lo");
    agent.end();
}

#[test]
fn what_commands_changed_outlives_the_agent_and_a_reload_undoes_it_but_for_run_time_lists() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let start = || Agent::start(&bench, &document, "-i eth0 --policy FILE");
    let agent = start();
    agent.expect("attached");
    agent.expect("unchanged");
    bench.done("penalty add 198.51.100.7 --for 1h");
    bench.done("limit set source --rate 11/s");
    agent.signal(libc::SIGKILL);
    drop(agent);
    for _ in 0..2 {
        let agent = start();
        assert_eq!(agent.expect("replaced")["interface"], "eth0");
        agent.expect("unchanged");
        assert_eq!(rate(&bench), 11);
        assert_eq!(bench.json("penalty list -j")["entries"].as_array().unwrap().len(), 1);
        agent.end();
    }
    let agent = start();
    agent.expect("replaced");
    agent.expect("unchanged");
    agent.signal(libc::SIGHUP);
    agent.expect("applied");
    assert_eq!(rate(&bench), 10);
    assert_eq!(bench.json("penalty list -j")["entries"].as_array().unwrap().len(), 1);
    // When this ban ends, the document allows the source again; the datapath follows at the next compilation.
    document.write("allow: [192.0.2.0/24]\ndeny: [203.0.113.0/24]");
    agent.expect("applied");
    bench.done("deny add 192.0.2.7 --for 2s");
    let counts = || {
        let reasons = bench.json("status -j")["reasons"].take();
        ["allow", "deny"].map(|reason| reasons[reason].as_u64().unwrap())
    };
    let before = counts();
    send(&bench, [192, 0, 2, 7], 10);
    assert_eq!(counts(), [before[0], before[1] + 10]);
    thread::sleep(Duration::from_secs(5));
    send(&bench, [192, 0, 2, 7], 10);
    assert_eq!(counts(), [before[0] + 10, before[1] + 10]);
    agent.end();
}

#[test]
fn a_trial_is_not_cut_short() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let trial = Document::new("limits: [{name: source, key: source, rate: 1/s, burst: 5}]");
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE");
    agent.expect("attached");
    agent.expect("unchanged");
    bench.done(&trial.in_place("policy apply FILE --confirm 10m"));
    fs::write(document.path(), limits("20/s")).unwrap();
    assert!(agent.expect("failed")["hint"].as_str().unwrap().contains("policy confirm"));
    assert_eq!(rate(&bench), 1);
    agent.is_quiet();
    bench.done("policy revert");
    agent.expect("applied");
    assert_eq!(rate(&bench), 20);
    agent.end();
}

/// Connects to the metrics port of the agent, which may not listen yet.
#[track_caller]
fn connect(bench: &Bench) -> TcpStream {
    let begin = Instant::now();
    let connect = || loop {
        match TcpStream::connect("127.0.0.1:9180") {
            Ok(stream) => break stream,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    };
    bench.hosts.router.namespace.inside(connect).unwrap()
}

/// A request for metrics.
pub(super) const REQUEST: &str =
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Sends a request and returns the answer.
#[track_caller]
pub(super) fn ask(bench: &Bench, request: &str) -> String {
    let mut stream = connect(bench);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_to_this_host() {
    let bench = Bench::new();
    bench.hosts.router.ip("link set lo up").unwrap();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let folder = document.path().parent().unwrap().display().to_string();
    let arguments =
        format!("-i late --policy FILE --listen 127.0.0.1:9180 --listen unix:{folder}/m.sock");
    let agent = Agent::start(&bench, &document, &arguments);
    for address in ["127.0.0.1:9180", &format!("unix:{folder}/m.sock")] {
        let event = agent.expect("listening");
        assert_eq!((&event["address"], &event["tls"]), (&address.into(), &false.into()));
    }
    let before = ask(&bench, REQUEST);
    assert!(before.starts_with("HTTP/1.1 200 OK\r\n"), "{before}");
    assert!(before.contains("content-type: text/plain; version=0.0.4"), "{before}");
    assert!(before.contains("\nlimiter_agent_attachments_total 0\n"), "{before}");
    assert!(!before.contains("limiter_packets_total"), "{before}");

    bench.hosts.router.ip("link add late type veth peer name other").unwrap();
    agent.expect("attached");
    agent.expect("unchanged");
    fs::write(document.path(), "nonsense").unwrap();
    agent.expect("rejected");
    thread::sleep(Duration::from_secs(1));
    assert!(ask(&bench, &REQUEST.replace("metrics", "healthz")).ends_with("\r\n\r\nok\n"));
    assert!(ask(&bench, &REQUEST.replace("metrics", "readyz")).ends_with("\r\n\r\nok\n"));
    // Idle connections do not block others, even if there are more of them than the server has places for.
    let silent: Vec<_> = (0..80).map(|_| connect(&bench)).collect();
    let begin = Instant::now();
    let told = ask(&bench, REQUEST);
    assert!(begin.elapsed() < PATIENCE, "it took {:?}", begin.elapsed());
    drop(silent);
    for line in [
        "limiter_attached{interface=\"late\",mode=\"native\"} 1",
        "limiter_policy_reloads_total{result=\"unchanged\"} 1",
        "limiter_policy_reloads_total{result=\"rejected\"} 1",
        "limiter_policy_last_reload_successful 0",
        "limiter_agent_attachments_total 1",
        "limiter_agent_failures_total 0",
    ] {
        assert!(told.lines().any(|it| it == line), "{line} in {told}");
    }
    assert!(ask(&bench, &REQUEST.replace("metrics", "other")).starts_with("HTTP/1.1 404"));
    assert!(ask(&bench, &REQUEST.replace("GET", "POST")).starts_with("HTTP/1.1 405"));
    let mut socket = UnixStream::connect(format!("{folder}/m.sock")).unwrap();
    socket.write_all(REQUEST.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("limiter_agent_attachments_total 1"), "{answer}");
    agent.end();
    bench.refused("agent --listen 9180", 2, &["ADDRESS:PORT"]);
    bench.hosts.router.ip("link del late").unwrap();
}

#[test]
fn an_address_that_cannot_be_had_fails_and_is_tried_again() {
    let bench = Bench::new();
    bench.hosts.router.ip("link set lo up").unwrap();
    let document = Document::new("limits: []");
    let folder = document.path().with_file_name("later");
    let listen = format!("--listen 127.0.0.1:9180 --listen unix:{}/socket", folder.display());
    let agent = Agent::start(&bench, &document, &format!("-i late --policy FILE {listen}"));
    agent.expect_past_others("listening");
    let event = agent.expect_past_others("failed");
    assert!(event["message"].as_str().unwrap().contains("serve metrics on unix:"), "{event}");
    let wait_for = |line: &str| {
        let begin = Instant::now();
        while !ask(&bench, REQUEST).contains(&format!("\n{line}\n")) {
            assert!(begin.elapsed() < PATIENCE, "{line} in {}", ask(&bench, REQUEST));
            thread::sleep(Duration::from_millis(200));
        }
    };
    wait_for("limiter_agent_failing 1");
    assert!(ask(&bench, &REQUEST.replace("metrics", "readyz")).starts_with("HTTP/1.1 503"));
    fs::create_dir(&folder).unwrap();
    agent.expect_past_others("listening");
    wait_for("limiter_agent_failing 0");
    agent.end();
}

#[test]
fn the_service_manager_is_told() {
    const READY: &str = "READY=1\nSTATUS=attached to eth0\nWATCHDOG=1\n";
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 10/s, burst: 5}]");
    let path = document.path().with_file_name("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let command = bench.run(&document.in_place("agent -i eth0 --policy FILE"));
    let command = command.env("NOTIFY_SOCKET", path.to_str().unwrap()).to(Stdio::null());
    let mut process = command.start().unwrap();
    assert_eq!(hear(), READY);
    assert!(bench.programs()["eth0"].is_some(), "it is ready when packets are limited");
    process::signal(&process, libc::SIGHUP);
    let mut heard = hear();
    while heard == READY {
        heard = hear();
    }
    assert!(heard.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{heard}");
    assert_eq!(hear(), READY);
    process::signal(&process, libc::SIGTERM);
    while heard != "STOPPING=1\n" {
        heard = hear();
    }
    assert!(process.wait().unwrap().success());
}
