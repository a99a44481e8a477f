//! The bridge as a process: its rights, its document, its end, and its metrics.

use std::{fs, io::Read as _, thread, time::Instant};

use limiter_tests::process::terminate;

use super::*;
use crate::cli::{SMALL, package::assert_status};

#[test]
fn it_holds_no_capability_whoever_starts_it() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let (grpc, spop) = (grpc_socket(&document), spop_socket(&document));
    let more = format!("--grpc unix:{} --spop unix:{}", grpc.display(), spop.display());
    let bridge = Bridge::start(&bench, &document, &format!("--group www-data {more}"));
    let sets = ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"];
    let rights = sets.map(|set| (set, "0000000000000000"));
    let tasks = fs::read_dir(format!("/proc/{}/task", bridge.process.id())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert_status(&status, &rights);
        assert_status(&status, &[("NoNewPrivs", "1")]);
        threads += 1;
    }
    assert!(threads > 1);
    let groups = fs::read_to_string("/etc/group").unwrap();
    let line = groups.lines().find(|line| line.starts_with("www-data:")).unwrap();
    for socket in [&bridge.socket, &grpc, &spop] {
        let metadata = fs::metadata(socket).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o660, "{socket:?}");
        let group = std::os::unix::fs::MetadataExt::gid(&metadata);
        assert_eq!(line.split(':').nth(2), Some(&*group.to_string()), "{socket:?}");
    }
}

#[test]
fn a_document_has_64_limits_on_packets_beside_256_on_requests() {
    let packets = (0..64).map(|at| {
        format!("  - {{ name: p{at}, match: {{ protocol: udp, ports: [{}] }}, key: source, rate: 9/s }}\n", 1_000 + at)
    });
    let requests = (0..256).map(|at| {
        let limit = "key: source, algorithm: leaky_bucket, rate: 1/h, depth: 1";
        format!("  - {{ name: r{at}, on: requests, match: {{ path: /{at} }}, {limit} }}\n")
    });
    let limits: String = packets.chain(requests).collect();
    let (bench, document) = (Bench::new(), Document::new(&format!("limits:\n{limits}")));
    let check = bench.done(&document.in_place("policy check FILE")).stdout;
    assert!(check.contains("64 limits, 256 limits on requests"), "{check}");
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    assert_eq!(bench.json("policy show -j")["limits"].as_array().map(Vec::len), Some(64));
    let bridge = Bridge::start(&bench, &document, "");
    for (path, status) in [("/0", 204), ("/0", 429), ("/255", 204), ("/255", 429), ("/256", 204)] {
        assert_eq!(bridge.auth("192.0.2.9", "GET", path).status, status, "{path}");
    }
}

#[test]
fn it_follows_its_document_and_keeps_the_last_good_policy() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = Bridge::start(&bench, &document, "");
    for _ in 0..3 {
        assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, 204);
    }
    document.write("limits: [{name: login, on: requests, rate");
    let rejected = bridge.expect("rejected");
    assert!(rejected["faults"][0]["file"].as_str().unwrap().contains("policy.yaml"), "{rejected}");
    let metric = |name: &str| {
        let metrics = bridge.ask("GET /metrics", &[]).body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).trim().to_owned()
    };
    assert_eq!(metric("limiter_policy_last_reload_successful"), "0");
    assert_eq!(bridge.ask("GET /readyz", &[]).status, 200);
    assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, 429);
    document.write(&LOGIN.replace("127.0.0.66", "127.0.0.67"));
    bridge.expect("applied");
    assert_eq!(metric("limiter_policy_last_reload_successful"), "1");
    assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, 429, "the limit stayed the same");
    assert_eq!(bridge.auth("127.0.0.66", "GET", "/other").status, 204);
    bridge.signal(libc::SIGHUP);
    assert_eq!(bridge.expect("applied")["limits"], 1);
    document.write("");
    assert_eq!(bridge.expect("applied")["limits"], 0);
    assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, 204);
}

#[test]
fn a_restart_forgets_nobody_who_owes() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let state = document.path().with_file_name("state");
    let arguments = format!("--state-file {}", state.display());
    let bridge = Bridge::start(&bench, &document, &arguments);
    for status in [204, 204, 204, 429] {
        assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, status);
    }
    // Once asked to end, once killed.
    let mut bridge = bridge;
    assert!(terminate(&mut bridge.process).unwrap().success());
    bridge.expect("stopped");
    assert!(!bridge.socket.exists(), "its socket goes with it");
    let kept = document.path().with_file_name("state.handover");
    assert!(kept.exists());
    for _ in 0..2 {
        let bridge = Bridge::start(&bench, &document, &arguments);
        let state = bridge.began.iter().find(|event| event["event"] == "state").unwrap();
        assert_eq!(state["kept"], true, "{state}");
        assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, 429);
        assert_eq!(bridge.auth("192.0.2.10", "GET", "/login").status, 204);
    }
    // What no bridge has written keeps none from answering.
    fs::remove_file(&kept).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &kept).unwrap();
    let bridge = Bridge::start(&bench, &document, &arguments);
    assert!(bridge.began.iter().any(|event| event["event"] == "forgot"), "{:?}", bridge.began);
    assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, 429);
}

/// As in `/dev/shm`, where the folder is root's and the bridge is nobody's.
#[test]
fn a_bridge_leaves_its_records_in_a_folder_of_another_user() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let arguments = format!("--state-file {}", document.path().with_file_name("state").display());
    let mut bridge = proxies::bridge_with(&bench, &document, &arguments);
    assert!(terminate(&mut bridge.process).unwrap().success());
    let left = fs::metadata(document.path().with_file_name("state.handover")).unwrap();
    assert_eq!(
        (std::os::unix::fs::MetadataExt::uid(&left), left.permissions().mode() & 0o777),
        (65_534, 0o600)
    );
}

#[test]
fn a_state_file_on_a_disk_is_refused() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let arguments =
        "bridge --policy FILE --listen unix:/run/limiter-bridge.sock --state-file /proc/state";
    let outcome = bench.run(&document.in_place(arguments)).outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&["/proc/state", "disk", "below /run"]);
}

#[test]
fn a_request_that_is_under_way_is_answered_at_its_end() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let mut bridge = Bridge::start(&bench, &document, "");
    let (mut idle, mut asking) = (bridge.connect(), bridge.connect());
    std::io::Write::write_all(&mut asking, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let begin = Instant::now();
    assert!(terminate(&mut bridge.process).unwrap().success());
    assert!(begin.elapsed() < PATIENCE / 4, "{:?}", begin.elapsed());
    let mut reply = String::new();
    asking.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    idle.read_to_string(&mut reply).unwrap();
}

#[test]
fn it_listens_for_this_host_only_and_needs_a_valid_document() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    bench.hosts.router.ip("link set lo up").unwrap();
    let refused = |arguments: &str, code, words: &[&str]| {
        let outcome = bench.run(&document.in_place(arguments)).outcome().unwrap();
        outcome.assert_exit_code(code).assert_says(words);
    };
    for address in ["0.0.0.0:9190", "192.0.2.1:9190", "[::]:9190"] {
        let words = ["is no loopback address", "unix:PATH"];
        refused(&format!("bridge --policy FILE --listen {address}"), 2, &words);
    }
    refused("bridge --policy FILE --listen unix:x.sock", 2, &["begins with /"]);
    refused("bridge --policy FILE --group no-such", 4, &["there is no group", "hint: "]);
    let nginx = "bridge config nginx --policy FILE";
    refused(&format!("{nginx} --haproxy-socket unix:/h"), 2, &["nginx has no map", "leave out"]);
    refused(&format!("{nginx} --listen unix:@name"), 2, &["nginx cannot ask", "give unix:PATH"]);
    let bridge = Bridge::start(&bench, &document, "--listen 127.0.0.1:9190");
    let connect = || std::net::TcpStream::connect("127.0.0.1:9190");
    let mut stream = bench.hosts.router.namespace.inside(connect).unwrap().unwrap();
    let fields = ["X-Real-IP: 192.0.2.9", "X-Original-URI: /"];
    let reply = exchange(&mut stream, request("GET /v1/auth", &fields)).unwrap();
    assert_eq!(reply.status, 204);
    // Another bridge takes no address of it.
    let taken = format!("bridge --policy FILE --listen unix:{}", bridge.socket.display());
    refused(&taken, 1, &["cannot listen on unix:", "in use"]);
    refused(
        "bridge --policy FILE --listen 127.0.0.1:9190",
        1,
        &["cannot listen on 127.0.0.1:9190"],
    );
    document.write("limits: 7");
    let other = document.path().with_file_name("other.sock");
    let listen = format!("--listen 127.0.0.1:9191 --listen unix:{}", other.display());
    refused(&format!("bridge --policy FILE {listen}"), 3, &["policy.yaml:2"]);
    assert!(!other.exists(), "a start that fails leaves no socket");
    drop(bridge);
    // The socket of one that was killed is no obstacle.
    document.write(LOGIN);
    thread::sleep(Duration::from_millis(1));
    let bridge = Bridge::start(&bench, &document, "");
    assert_eq!(bridge.ask("GET /healthz", &[]).status, 200);
}
