//! Everything the agent does works with the capabilities of its unit and no others.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, MapData};
use limiter_common::abi::policy::Head;
use limiter_tests::{command, process::kill, sandbox::BPFFS};
use serde_json::Value;

use super::{
    super::{Bench, Document, SMALL, json::send, package::unit_lines},
    Agent, PATIENCE, ask, loader,
};

/// `nobody` and `nogroup`.
const USER: &str = "65534";

const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A policy whose limits have state in every table, with every kind of prefix.
fn document(deny: &str, rate: u32, ports: &str) -> String {
    format!(
        "sets: {{bad: {{file: bad.txt}}, own: {{cidrs: [198.18.0.0/15]}}}}\n\
         tenants: {{acme: {{cidrs: [203.0.113.0/24]}}, other: {{file: tenant.txt}}}}\n\
         allow: [203.0.113.200]\n\
         deny: [bad, {deny}]\n\
         limits:\n\
         - {{name: source, key: source, rate: {rate}/h, burst: 5, penalty: {{after: 1s, block: 1m, unproven: block}}, \
         overrides: [{{src: 192.0.2.64/26, rate: 2/h, burst: 5}}, {{tenant: acme, rate: 3/h, burst: 5}}]}}\n\
         - {{name: nets, key: source/24, rate: 900/s, burst: 200}}\n\
         - {{name: there, key: source, match: {{destination: own, except_destination: 198.19.0.0/16, \
         protocol: udp, ports: {ports}}}, rate: 800/s, burst: 200}}\n\
         - {{name: slid, key: source, match: {{protocol: udp}}, algorithm: sliding_window, rate: 90/s}}\n\
         - {{name: shared, key: tenant, rate: 700/s, burst: 200}}\n"
    )
}

/// The command that starts an agent as the unit of the package does: as its own user, with the capabilities
/// of the unit and without a way to get others.
fn as_service(bench: &Bench, binary: &str, arguments: &str) -> Command {
    let capabilities = unit_lines("AmbientCapabilities").join(" ").to_lowercase();
    let plus = capabilities.replace("cap_", "+").replace(' ', ",");
    let mut setpriv = bench.hosts.router.command("setpriv");
    setpriv
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"])
        .args(["--inh-caps", &format!("-all,{plus}"), "--ambient-caps", &format!("-all,{plus}")])
        .args(["--bounding-set", &format!("-all,{plus}"), binary])
        .args(arguments.split_whitespace())
        .env_remove("LIMITER_BPFFS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    setpriv
}

const PERFMON: u64 = 1 << 38;

/// The capability sets of a process or a thread, by the file `status` of it; the permitted set is the second one.
fn sets(status: &str) -> Vec<u64> {
    let sets: Vec<u64> = status
        .lines()
        .filter_map(|line| line.strip_prefix("Cap")?.split_once(":\t"))
        .map(|(_, set)| u64::from_str_radix(set, 16).unwrap())
        .collect();
    assert_eq!(sets.len(), 5, "{status}");
    sets
}

fn permitted(process: u32) -> u64 {
    sets(&fs::read_to_string(format!("/proc/{process}/status")).unwrap())[1]
}

/// A shell with these capabilities, of the user of the agent.
fn shell_with(bench: &Bench, capabilities: &str, script: &str) -> Command {
    let capabilities = format!("-all,{capabilities}");
    let mut setpriv = bench.hosts.router.command("setpriv");
    setpriv
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs"])
        .args(["--inh-caps", &capabilities, "--ambient-caps", &capabilities])
        .args(["--bounding-set", &capabilities, "sh", "-c", script]);
    setpriv.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    setpriv
}

/// The capabilities of an agent, and those of its loader.
const OF_AGENT: &str = "+bpf,+net_admin";
const OF_LOADER: &str = "+bpf,+net_admin,+perfmon";

/// Asserts that no thread of the agent has `CAP_PERFMON` in any set, and that whoever has its rights cannot have those of its
/// loader. Two things keep it off the memory of its loader, and each does so by itself: it has fewer capabilities, and the
/// loader is not dumpable.
#[track_caller]
fn assert_cannot_read_the_kernel(bench: &Bench, agent: u32) {
    for task in fs::read_dir(format!("/proc/{agent}/task")).unwrap() {
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        assert!(sets(&status).iter().all(|set| set & PERFMON == 0), "{status}");
    }
    // Opening these files asks for a right over the process that the same user has over one with the same capabilities.
    const FILES: [&str; 3] = ["environ", "maps", "mem"];
    let opened = |process: u32| {
        let opens = |file: &&str| {
            let script = format!("exec 3</proc/{process}/{file}");
            shell_with(bench, OF_AGENT, &script).status().unwrap().success()
        };
        FILES.into_iter().filter(opens).collect::<Vec<_>>()
    };
    // The files of a process that is not dumpable are of root.
    let is_dumpable = |process: u32| {
        let owner = fs::metadata(format!("/proc/{process}/environ")).unwrap().uid();
        assert!(owner == 0 || owner.to_string() == USER, "{owner}");
        owner != 0
    };
    let loader = loader::of(agent);
    assert_eq!((is_dumpable(agent), is_dumpable(loader)), (true, false));
    assert!(["environ", "maps"].iter().all(|file| opened(agent).contains(file)));
    assert!(opened(loader).is_empty());
    // One that is dumpable, and has the capabilities of the loader.
    let mut other = shell_with(bench, OF_LOADER, "exec sleep 600").spawn().unwrap();
    let begun = Instant::now();
    while fs::read_to_string(format!("/proc/{}/comm", other.id())).unwrap() != "sleep\n" {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((is_dumpable(other.id()), permitted(other.id())), (true, permitted(loader)));
    let of_other = opened(other.id());
    kill(&mut other);
    assert!(of_other.is_empty(), "who has fewer capabilities may not trace: {of_other:?}");
}

/// Asserts that a scrape succeeds, contains the instance, and reports no failure. Returns the answer.
#[track_caller]
fn scraped(bench: &Bench, what: &str) -> String {
    // Longer than the server caches an answer.
    thread::sleep(Duration::from_millis(1_100));
    let answer = ask(bench, METRICS);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{what}: {answer}");
    for line in ["limiter_attached{interface=\"eth0\"", "limiter_agent_failures_total 0"] {
        assert!(answer.contains(&format!("\n{line}")), "{what}: no {line} in {answer}");
    }
    answer
}

#[test]
fn nothing_of_it_takes_a_right_that_the_agent_does_not_have() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    router.ip("link set lo up").unwrap();
    let shell = |line: &str| {
        let mut shell = router.command("sh");
        assert!(shell.args(["-ec", line]).status().unwrap().success(), "{line}");
    };
    shell(&format!("chmod 711 {BPFFS} && mkdir -m 750 {BPFFS}/limiter"));
    shell(&format!("cd {BPFFS}/limiter && chown 0:{USER} . && mkdir -m 700 links programs maps"));
    shell(&format!("cd {BPFFS}/limiter && chown {USER}:{USER} links programs maps"));
    // `StateDirectory=` of the unit does the same.
    shell(&format!("mkdir -m 755 /var/lib/limiter && chown {USER}:{USER} /var/lib/limiter"));
    let policy = Document::new(&document("192.0.2.200", 10, "9"));
    let folder = policy.path().parent().unwrap().to_owned();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("bad.txt", "192.0.2.128/26\n");
    write("tenant.txt", "198.51.100.0/25\n");
    // The folder of the build may be closed to other users.
    let binary: PathBuf = folder.join("limiter");
    fs::copy(command::binary().unwrap(), &binary).unwrap();
    let arguments = policy
        .in_place("-j agent -i eth0 -i late --policy FILE --events 100/s --listen 127.0.0.1:9180");
    let start = || {
        let mut command = as_service(&bench, binary.to_str().unwrap(), &arguments);
        Agent::hear(command.spawn().unwrap())
    };
    let agent = start();
    assert_eq!(agent.expect_past_others("attached")["interface"], "eth0");
    agent.expect_past_others("unchanged");
    agent.expect_past_others("listening");
    assert_cannot_read_the_kernel(&bench, agent.process.id());
    let limited = |agent: &Agent, source: [u8; 4]| -> Value {
        send(&bench, source, 20);
        let event = agent.expect_past_others("limited");
        assert_eq!(event["limit"]["name"], "source", "{event}");
        // The state of the limit is in the event, so no missing capability hid it.
        assert!(event["limit"]["burst"].is_u64(), "{event}");
        event
    };
    // Sources under the default limit, under an override, and of a tenant. They send nothing more.
    for source in [[192, 0, 2, 1], [192, 0, 2, 70], [203, 0, 113, 1]] {
        limited(&agent, source);
    }
    scraped(&bench, "before any change");

    // After each change, the entries of these sources are behind the policy in force.
    for change in [
        "deny add 198.51.100.7",
        "allow add 198.51.100.8 --for 1h",
        "penalty add 198.51.100.9 --for 1h",
        "limit set source --rate 11/h",
        "limit set source --src 192.0.2.64/26 --rate 4/h",
        "monitor on",
        "monitor off",
    ] {
        bench.done(change);
        scraped(&bench, change);
    }
    for (what, deny, rate, ports) in [
        ("prefixes", "192.0.2.201", 10, "9"),
        ("limits", "192.0.2.201", 12, "9"),
        ("destinations and ports", "192.0.2.201", 12, "9-10"),
    ] {
        policy.write(&document(deny, rate, ports));
        agent.expect_past_others("applied");
        scraped(&bench, what);
    }
    for (file, text) in [("bad.txt", "203.0.114.0/24\n"), ("tenant.txt", "198.51.100.128/25\n")] {
        write(file, text);
        agent.expect_past_others("applied");
        scraped(&bench, file);
    }
    // One source is new under the newest policy, one has an entry behind it.
    limited(&agent, [192, 0, 2, 2]);
    scraped(&bench, "who came last");
    // Queries need no other capabilities either; they are made as the service user.
    for question in [
        "get 192.0.2.70",
        "policy explain 203.0.113.1",
        "test --src 192.0.2.1 --dst 198.18.1.2 --proto udp --dport 9",
        "deny list",
        "limit list",
        "status",
    ] {
        let mut command = as_service(&bench, binary.to_str().unwrap(), question);
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{question}: {text}");
    }

    router.ip("link add late type veth peer name other").unwrap();
    assert_eq!(agent.expect_past_others("attached")["interface"], "late");
    for line in ["link set late up", "link set late down", "link del late"] {
        router.ip(line).unwrap();
        scraped(&bench, line);
    }
    bench.done("detach eth0");
    assert_eq!(agent.expect_past_others("attached")["interface"], "eth0");
    scraped(&bench, "attached again");
    bench.done("limit set source --rate 13/h");
    agent.signal(libc::SIGHUP);
    agent.expect_past_others("applied");
    scraped(&bench, "a reload");

    agent.signal(libc::SIGKILL);
    drop(agent);
    let agent = start();
    assert_eq!(agent.expect_past_others("replaced")["interface"], "eth0");
    agent.expect_past_others("unchanged");
    agent.expect_past_others("listening");
    scraped(&bench, "a restart");
    bench.done("deny del 192.0.2.201");
    scraped(&bench, "a change after that");
    // Root makes other maps, and gives them to the agent's user before they are in use.
    shell(&format!("cd {BPFFS}/limiter && mkdir -m 700 maps2 && chown {USER}:{USER} maps2"));
    let head = || {
        let map = Array::<MapData, Head>::create(1, 0).unwrap();
        map.pin(format!("{BPFFS}/limiter/maps2/HEAD")).unwrap();
    };
    router.sandbox.inside(&router.namespace, head).unwrap();
    scraped(&bench, "maps that are being made");
    thread::sleep(Duration::from_millis(1_100));
    scraped(&bench, "maps that are being made still");

    policy.write("limits: [{name: source, key: source, rate: 9/h, burst: 5}]");
    agent.expect_past_others("applied");
    bench.done("detach --all");
    assert_eq!(agent.expect_past_others("attached")["interface"], "eth0");
    scraped(&bench, "attached again after all was detached");
    // A policy that has no room in the maps makes the agent exchange table and program, once for all that it lacks.
    bench.done("attach eth0 --overrides 64");
    agent.expect_past_others("unchanged");
    let overrides: Vec<_> =
        (0..200).map(|last| format!("{{src: 10.0.0.{last}, rate: 5/s, burst: 5}}")).collect();
    policy.write(&format!(
        "limits: [{{name: source, key: source, rate: 9/h, burst: 5, overrides: [{}]}}, \
         {{name: tcp, key: source, match: {{protocol: tcp}}, rate: 9/s}}, \
         {{name: icmp, key: source, match: {{protocol: icmp}}, rate: 9/s}}, \
         {{name: there, key: destination, match: {{protocol: tcp}}, rate: 9/s}}]",
        overrides.join(", ")
    ));
    agent.expect_past_others("applied");
    limited(&agent, [192, 0, 2, 3]);
    scraped(&bench, "an exchange");
    assert_cannot_read_the_kernel(&bench, agent.process.id());
    agent.end();
}

/// The agent reports a failed scrape once, and counts failures until a scrape works again.
#[test]
fn a_scrape_that_fails_is_told() {
    let bench = Bench::new();
    let router = &bench.hosts.router;
    router.ip("link set lo up").unwrap();
    bench.done(&format!("attach eth0 {SMALL} --pps 1kpps"));
    let policy = Document::new("limits: [{name: source, key: source, rate: 10/s}]");
    let agent = Agent::start(&bench, &policy, "--listen 127.0.0.1:9180");
    agent.expect("replaced");
    agent.expect("listening");
    scraped(&bench, "before");
    let rename = |from: &str, to: &str| {
        let mut mv = router.command("mv");
        let maps = format!("{BPFFS}/limiter/maps");
        assert!(
            mv.args([format!("{maps}/{from}"), format!("{maps}/{to}")]).status().unwrap().success()
        );
    };
    rename("TALLIES", "AWAY");
    // The agent opens the same maps itself, so it also reports that failure.
    let event = agent.expect("failed");
    assert!(event["message"].as_str().unwrap().contains("TALLIES"), "{event}");
    thread::sleep(Duration::from_millis(1_100));
    assert!(ask(&bench, METRICS).starts_with("HTTP/1.1 500"));
    let event = agent.expect("failed");
    assert!(
        event["message"].as_str().unwrap().starts_with("cannot serve the metrics: "),
        "{event}"
    );
    rename("AWAY", "TALLIES");
    thread::sleep(Duration::from_millis(1_100));
    assert!(ask(&bench, METRICS).starts_with("HTTP/1.1 200"));
    let is_over = || ask(&bench, METRICS).contains("\nlimiter_agent_failing 0\n");
    let begin = Instant::now();
    while !is_over() {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(200));
    }
    agent.end();
}
