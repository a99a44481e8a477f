//! The loader of the agent: the process that has the right to load the main program, which the agent has not.

use std::{
    fs, io,
    os::{
        fd::{FromRawFd as _, OwnedFd},
        unix::net::UnixDatagram,
    },
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use aya::maps::{MapData, ProgramArray};
use limiter_common::abi::layout::{TALLIES, map};
use limiter_tests::{command, program::typed, sandbox::BPFFS};
use limiter_userspace::datapath::{bpffs::Pins, main_program::held};
use serde_json::json;

use super::{
    super::{Bench, Document, SMALL, json::send},
    Agent, PATIENCE,
};

/// The loader of the agent with this process id.
#[track_caller]
pub(in crate::cli) fn of(agent: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
    let loader = children.trim().parse().unwrap();
    let name = fs::read_to_string(format!("/proc/{loader}/comm")).unwrap();
    assert_eq!(name.trim(), "limiter-loader");
    loader
}

pub(super) fn kill(process: u32) {
    // SAFETY: the call has no pointers. The process is a child of an agent that has not waited for it.
    assert_eq!(unsafe { libc::kill(process.cast_signed(), libc::SIGKILL) }, 0);
}

/// Waits until a process has ended; whoever it was left to may not have asked for its exit code yet.
#[track_caller]
pub(in crate::cli) fn assert_ends(process: u32) {
    let begin = Instant::now();
    let status = || fs::read_to_string(format!("/proc/{process}/stat"));
    while status().is_ok_and(|status| !status.contains(") Z ")) {
        assert!(begin.elapsed() < PATIENCE, "process {process} goes on");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Two sockets that keep messages apart, each of which sees the end of the other one.
fn pair() -> [OwnedFd; 2] {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: memory for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    // SAFETY: the call gave them to us alone.
    ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) })
}

/// The service manager starts an agent anew that ends by an error.
#[test]
fn an_agent_ends_with_its_loader_and_what_is_attached_stays_limited() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let document = Document::new("limits: [{name: source, key: source, rate: 1/h, burst: 5}]");
    let start = |policy: &str| {
        let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE --events none");
        agent.expect("replaced");
        agent.expect(policy);
        agent
    };
    let mut agent = start("applied");
    kill(of(agent.process.id()));
    agent.expect("stopped");
    assert_eq!(agent.process.wait().unwrap().code(), Some(1));
    send(&bench, [192, 0, 2, 1], 20);
    let source = bench.json("get 192.0.2.1 -j");
    let [passed, dropped] = ["passed", "dropped"].map(|it| source[it]["packets"].as_u64().unwrap());
    // A token bucket passes a packet while there is part of a token.
    assert!((5..=6).contains(&passed) && passed + dropped == 20, "{source}");
    start("unchanged").end();
}

/// As a foreign `bpftool map delete` would. Where it is taken out again and again, it is loaded ever more rarely.
#[test]
fn a_main_program_that_was_taken_out_of_its_array_is_loaded_again() {
    let bench = Bench::new();
    let document = Document::new("limits: [{name: source, key: source, rate: 1/h, burst: 5}]");
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE --events none");
    agent.expect("attached");
    agent.expect("unchanged");
    let on_pins = |work: fn(&Pins) -> Option<u32>| {
        let router = &bench.hosts.router;
        let pins = Pins::new(format!("{BPFFS}/limiter"));
        router.sandbox.inside(&router.namespace, || work(&pins)).unwrap()
    };
    let in_array = || on_pins(|pins| held(pins, false).unwrap());
    let take_out = || {
        on_pins(|pins| {
            let mut programs: ProgramArray<MapData> = typed(pins, map::PROGRAM).unwrap();
            programs.clear_index(&0).unwrap();
            held(pins, false).unwrap()
        })
    };
    let first = in_array();
    assert_eq!(take_out(), None);
    let event = agent.expect("loaded");
    assert_eq!(event["interfaces"], json!(["eth0"]), "{event}");
    let second = in_array();
    assert!(second.is_some() && second != first, "{first:?} {second:?}");
    send(&bench, [192, 0, 2, 1], 20);
    let source = bench.json("get 192.0.2.1 -j");
    let [passed, dropped] = ["passed", "dropped"].map(|it| source[it]["packets"].as_u64().unwrap());
    // A token bucket passes a packet while there is part of a token.
    assert!((5..=6).contains(&passed) && passed + dropped == 20, "{source}");

    let begun = Instant::now();
    assert_eq!(take_out(), None);
    let event = agent.expect("failed");
    let said = event["message"].as_str().unwrap();
    assert!(said.starts_with("eth0: no main program is loaded"), "{event}");
    assert!(event["hint"].as_str().unwrap().contains("limiter attach IFACE --replace"), "{event}");
    agent.expect("loaded");
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(in_array().is_some());
    agent.is_quiet();
    agent.end();
}

/// What is sent to all processes of a service, or to all of that name, is for the agent.
#[test]
fn signals_that_are_for_the_agent_leave_the_loader_alone() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    router.ip("link set lo up").unwrap();
    let document = Document::new("limits: []");
    let agent = Agent::start(&bench, &document, "-i eth0 -i late");
    agent.expect("attached");
    let loader = of(agent.process.id());
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: the call has no pointers. The process is a child of an agent that has not waited for it.
        assert_eq!(unsafe { libc::kill(loader.cast_signed(), signal) }, 0);
    }
    router.ip("link add late type veth peer name other").unwrap();
    assert_eq!(agent.expect("attached")["interface"], "late");
    agent.end();
    assert_ends(loader);
}

/// The kernel adds guards to programs and arrays of who has no `CAP_PERFMON`, which cost each packet time.
#[test]
fn programs_of_an_agent_are_as_short_as_those_of_root() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let lengths = || {
        let dispatcher = bench.programs()["eth0"].unwrap();
        let main = || held(&Pins::new(format!("{BPFFS}/limiter")), false).unwrap().unwrap();
        let main = bench.hosts.router.sandbox.inside(&bench.hosts.router.namespace, main).unwrap();
        let programs = aya::programs::loaded_programs().filter_map(Result::ok);
        let ours =
            programs.filter(|program| [dispatcher, u64::from(main)].contains(&program.id().into()));
        let mut lengths: Vec<_> = ours.map(|program| program.size_jitted()).collect();
        lengths.sort_unstable();
        assert_eq!(lengths.len(), 2);
        lengths
    };
    bench.done(&format!("attach eth0 {SMALL}"));
    let of_root = lengths();
    bench.done("detach --all");
    let agent = Agent::start(&bench, &document, "-i eth0");
    agent.expect("attached");
    assert_eq!(lengths(), of_root);
    agent.end();
}

/// The kernel rounds an array up to a power of two whose maker has no `CAP_PERFMON`.
#[test]
fn an_array_that_a_policy_needs_is_as_large_as_that_of_root() {
    let bench = Bench::new();
    let document = Document::new(
        "limits: [{name: log, key: destination, algorithm: sliding_log, limit: 5, window: 1h}]",
    );
    // In whole sets, with one for each tally. No other test has as many.
    let (asked, bytes) = (5_008, (5_008 + u64::from(TALLIES)) << 10);
    let areas = || {
        let areas = fs::read_to_string("/proc/vmallocinfo").unwrap();
        let sizes = areas.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
        sizes.filter(|size: &u64| (bytes..bytes + (4 << 12)).contains(size)).count()
    };
    bench.done(&format!("attach eth0 {SMALL} --wide-states {asked}"));
    assert_eq!(areas(), 0, "no policy needs it");
    let agent = Agent::start(&bench, &document, "-i eth0 --policy FILE --events none");
    agent.expect("replaced");
    agent.expect("applied");
    assert_eq!(areas(), 1);
    agent.end();
}

#[test]
fn a_loader_ends_with_its_agent_however_that_ends() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL] {
        let mut agent = Agent::start(&bench, &document, "-i eth0");
        agent.next();
        let loader = of(agent.process.id());
        agent.signal(signal);
        agent.process.wait().unwrap();
        assert_ends(loader);
    }
    let footprint = bench.footprint();
    bench.done("detach --all");
    footprint.assert_gone().unwrap();
}

/// Whoever has taken an agent over can ask for the programs of limiter, with maps of limiter, and for nothing else.
#[test]
fn what_is_no_request_is_answered_by_an_error() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    bench.done(&format!("attach eth0 {SMALL}"));
    let second = Path::new(BPFFS).join("limiter/maps2");
    let mut mkdir = router.command("mkdir");
    assert!(mkdir.args(["-m", "700"]).arg(&second).status().unwrap().success());
    let [agent, theirs] = pair();
    let mut loader = router.command(command::binary().unwrap().to_str().unwrap());
    loader.args(["loader", "--bpffs", &format!("{BPFFS}/limiter")]);
    loader.stdin(theirs).stdout(Stdio::null());
    let mut process = loader.spawn().unwrap();
    drop(loader);
    // A type of the library that sends and receives whole messages.
    let agent = UnixDatagram::from(agent);
    agent.set_read_timeout(Some(PATIENCE)).unwrap();
    let ask = |request: &str| {
        agent.send(request.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let length = agent.recv(&mut answer).unwrap();
        String::from_utf8(answer[..length].to_vec()).unwrap()
    };
    const LOADED: &str = "{}";
    let main = |frags, second| {
        ask(&format!(
            r#"{{"wanted":{{"Program":{{"Main":{{"frags":{frags}}}}}}},"second":{second}}}"#
        ))
    };
    assert_eq!(main(false, false), LOADED);
    for request in [
        "{}",
        r#"{"wanted":{"Program":"Carrier"}}"#,
        r#"{"wanted":{"Program":"Carrier"},"second":7}"#,
        r#"{"wanted":{"Program":{"Main":{"frags":false,"path":"/"}}},"second":false}"#,
        &" ".repeat(60_000),
    ] {
        assert!(ask(request).contains("names none that an agent needs"), "{request}");
    }
    // There are no maps in the other directory, and none come to be there.
    let carrying = r#"{"wanted":{"Program":{"Carrying":{"frags":false}}},"second":true}"#;
    let sizes = r#"{"sources":0,"buckets":1,"wide_states":1,"overrides":1}"#;
    let made = format!(r#"{{"wanted":{{"Maps":{sizes}}},"second":true}}"#);
    for answer in [
        main(false, true),
        ask(carrying),
        ask(r#"{"wanted":{"Program":"Carrier"},"second":false}"#),
        ask(r#"{"wanted":{"Program":{"Dispatcher":{"slot":1,"frags":false}}},"second":true}"#),
        ask(&made),
        ask(r#"{"wanted":"WideState","second":true}"#),
    ] {
        assert!(answer.contains("\"exit_code\":"), "{answer}");
    }
    let files = || fs::read_dir(&second).unwrap().count();
    assert_eq!(router.sandbox.inside(&router.namespace, files).unwrap(), 0);
    assert_eq!(main(true, false), LOADED);
    drop(agent);
    assert!(process.wait().unwrap().success());

    let outcome = bench.run("loader").outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&["the agent, which alone starts a loader"]);
}
