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

use limiter_tests::{command, sandbox::BPFFS};

use super::{
    super::{Bench, Document, SMALL, json::send},
    Agent, PATIENCE, QUIET, REQUEST, ask,
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

#[test]
fn the_end_of_the_loader_is_told_once_and_what_is_attached_stays_limited() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    router.ip("link set lo up").unwrap();
    bench.done(&format!("attach eth0 {SMALL}"));
    let document = Document::new("limits: [{name: source, key: source, rate: 1/h, burst: 5}]");
    let start = || {
        let options = "-i eth0 -i late --policy FILE --listen 127.0.0.1:9180 --events 100/s";
        let agent = Agent::start(&bench, &document, options);
        for event in ["replaced", "applied", "listening"] {
            agent.expect(event);
        }
        agent
    };
    let agent = start();
    let loader = of(agent.process.id());
    kill(loader);
    let event = agent.expect("failed");
    let message = event["message"].as_str().unwrap();
    assert!(message.starts_with("the loader of this agent has ended (signal: 9"), "{event}");
    assert!(event["hint"].as_str().unwrap().starts_with("restart the agent"), "{event}");
    agent.is_quiet();
    assert!(ask(&bench, &REQUEST.replace("metrics", "readyz")).starts_with("HTTP/1.1 503"));

    send(&bench, [192, 0, 2, 1], 20);
    assert_eq!(agent.expect("limited")["limit"]["name"], "source");
    let source = bench.json("get 192.0.2.1 -j");
    // A token bucket passes its burst, and one packet more while any part of a token is there.
    let of = |field: &str| source[field]["packets"].as_u64().unwrap();
    assert!((5..=6).contains(&of("passed")) && of("passed") + of("dropped") == 20, "{source}");
    // The agent loads dispatchers by itself.
    router.ip("link add late type veth peer name other").unwrap();
    assert_eq!(agent.expect("attached")["interface"], "late");
    // A new instance takes a new main program. None is made, again and again, for want of that.
    bench.done("detach --all");
    let maps = Path::new(BPFFS).join("limiter/maps");
    let begin = Instant::now();
    while begin.elapsed() < QUIET {
        // An agent that looked while an interface was still attached may make directories, once.
        let is_late = begin.elapsed() > QUIET / 2;
        let is_made = || if is_late { maps.exists() } else { maps.join("HEAD").exists() };
        assert!(!router.sandbox.inside(&router.namespace, is_made).unwrap());
        thread::sleep(Duration::from_millis(5));
    }
    agent.is_quiet();
    bench.refused("status", 4, &["not attached"]);
    bench.done(&format!("attach eth0 {SMALL}"));
    agent.end();
    router.ip("link del late").unwrap();
    start().end();
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
    let ask = |request: &[u8]| {
        agent.send(request).unwrap();
        let mut answer = [0; 4096];
        let length = agent.recv(&mut answer).unwrap();
        String::from_utf8(answer[..length].to_vec()).unwrap()
    };
    const LOADED: &str = "{}";
    assert_eq!(ask(&[0, 0]), LOADED);
    for bytes in [&[0][..], &[0, 2], &[5, 0], &[255; 2], &[0, 0, 0], &[0; 60_000]] {
        assert!(ask(bytes).contains("names none that an agent needs"), "{bytes:?}");
    }
    // There are no maps in the other directory, and none come to be there.
    for request in [[0, 1], [2, 1], [2, 0], [4, 0], [4, 1]] {
        let answer = ask(&request);
        assert!(answer.contains("\"exit_code\":1"), "{request:?}: {answer}");
    }
    let files = || fs::read_dir(&second).unwrap().count();
    assert_eq!(router.sandbox.inside(&router.namespace, files).unwrap(), 0);
    assert_eq!(ask(&[1, 0]), LOADED);
    drop(agent);
    assert!(process.wait().unwrap().success());

    let outcome = bench.run("loader").outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&["the agent, which alone starts a loader"]);
}
