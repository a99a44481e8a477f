//! A policy change over SSH does not cut off its own session.

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    net::{IpAddr, TcpListener, TcpStream},
    os::fd::{FromRawFd as _, OwnedFd},
    ptr::{null, null_mut},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::command::{LimiterCommand, Outcome};

use super::{Bench, Document, SMALL, json::send};

/// How long the kernel may take to make a route.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that is open on the router, as that of an SSH session is.
struct Session {
    peer: IpAddr,
    client: TcpStream,
    server: TcpStream,
}

impl Session {
    /// Opens a connection from an address, which is added to the router.
    fn from(bench: &Bench, peer: &str) -> Self {
        let peer: IpAddr = peer.parse().unwrap();
        let router = &bench.hosts.router;
        let (length, dad) = if peer.is_ipv4() { (32, "") } else { (128, " nodad") };
        router.ip(&format!("address replace {peer}/{length} dev lo{dad}\n")).unwrap();
        let open = || {
            let sshd = TcpListener::bind((peer, 0)).unwrap();
            let address = sshd.local_addr().unwrap();
            // The kernel adds the route of a new IPv6 address a moment after the address.
            let start = Instant::now();
            let client = loop {
                match TcpStream::connect(address) {
                    Err(error)
                        if error.kind() == ErrorKind::NetworkUnreachable
                            && start.elapsed() < PATIENCE =>
                    {
                        thread::sleep(Duration::from_millis(5));
                    }
                    client => break client.unwrap(),
                }
            };
            let (server, _) = sshd.accept().unwrap();
            Self { peer, client, server }
        };
        router.sandbox.inside(&router.namespace, open).unwrap()
    }

    /// The value of `SSH_CONNECTION`.
    fn connection(&self) -> String {
        let [peer_port, port] =
            [&self.client, &self.server].map(|end| end.local_addr().unwrap().port());
        format!("{0} {peer_port} {0} {port}", self.peer)
    }

    fn run(&self, bench: &Bench, arguments: &str) -> LimiterCommand {
        bench.run(arguments).env("SSH_CONNECTION", &self.connection())
    }

    #[track_caller]
    fn done(&self, bench: &Bench, arguments: &str) -> Outcome {
        self.run(bench, arguments).done().unwrap()
    }
}

/// Runs a command on a terminal and returns its output.
fn at_terminal(bench: &Bench, session: &Session, arguments: &str) -> String {
    with_input(bench, session, arguments, None)
}

/// The same, with a file on standard input.
fn with_input(bench: &Bench, session: &Session, arguments: &str, input: Option<File>) -> String {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: there is memory for both results; without a name and settings.
    let opened =
        unsafe { libc::openpty(&raw mut master, &raw mut slave, null_mut(), null(), null()) };
    assert_eq!(opened, 0);
    // SAFETY: the call gave both descriptors to us alone.
    let (mut master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let status = bench
        .hosts
        .router
        .command(bench.limiter.path().to_str().unwrap())
        .args(arguments.split(' '))
        .env("SSH_CONNECTION", session.connection())
        .stdin(input.map_or_else(|| slave.try_clone().unwrap(), OwnedFd::from))
        .stdout(slave.try_clone().unwrap())
        .stderr(slave)
        .status()
        .unwrap();
    let mut said = Vec::new();
    // Reading ends with an error when no process has the terminal any more.
    let _ = master.read_to_end(&mut said);
    let said = String::from_utf8(said).unwrap();
    assert!(status.success(), "{said}");
    said
}

/// Whether the output says that a session is kept.
fn keeps(outcome: &Outcome, source: &str) -> bool {
    let begin = format!("{source} (this SSH session) is kept allowed until 20");
    let end = "Z; leave it out with --no-keep-ssh";
    outcome.stdout.lines().any(|line| line.starts_with(&begin) && line.ends_with(end))
}

/// Asserts that exactly one entry allows a source, for at most a day.
#[track_caller]
fn assert_kept(bench: &Bench, source: &str) {
    let list = bench.json("allow list -j")["entries"].take();
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    let entry = &list[0];
    let left = entry["seconds_left"].as_u64().unwrap();
    assert!(entry["src"] == source && (86_000..=86_400).contains(&left), "{list}");
}

#[test]
fn the_peer_is_allowed_where_a_policy_could_drop_it() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let session = Session::from(&bench, "203.0.113.9");
    let document = Document::new("limits: [{name: some, key: source, rate: 10/s, burst: 10}]");
    let apply = document.in_place("policy apply FILE --keep-ssh");
    let would = session.done(&bench, &format!("{apply} --dry-run")).stdout;
    let lines: Vec<&str> = would.lines().rev().take(2).collect();
    assert_eq!(lines[0], "Nothing was applied.");
    assert!(lines[1].starts_with("203.0.113.9 (this SSH session) would be kept allowed until 20"));
    let outcome = session.done(&bench, &apply);
    assert!(keeps(&outcome, "203.0.113.9"), "{outcome}");
    assert_kept(&bench, "203.0.113.9/32");
    for source in [[203, 0, 113, 9], [203, 0, 113, 10]] {
        send(&bench, source, 100);
    }
    let reasons = &bench.json("status -j")["reasons"];
    assert_eq!(reasons["allow"], 100);
    assert!(reasons["exceed"].as_u64().unwrap() >= 80, "{reasons}");
    // While enough of the time is left, the same document makes no difference.
    assert_eq!(session.done(&bench, &apply).stdout.lines().next(), Some("no difference"));
    // The entry is not part of the document, so another document does not remove it.
    bench.done(&Document::new("").in_place("policy apply FILE"));
    assert_kept(&bench, "203.0.113.9/32");
    bench.done("allow del 203.0.113.9");

    // In JSON, and for the source that the address belongs to.
    let session = Session::from(&bench, "2001:db8:1:2::9");
    let document = Document::new("limits: [{name: some, key: source, rate: 10/s, burst: 10}]");
    let apply = document.in_place("policy apply FILE --keep-ssh -j");
    let applied = session.run(&bench, &apply).json().unwrap();
    assert_eq!(applied["kept"], "2001:db8:1:2::/64");
    assert!(applied["kept_until"].as_str().unwrap().ends_with('Z'), "{applied}");
}

#[test]
fn a_session_is_left_alone_without_need_or_wish() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let session = Session::from(&bench, "203.0.113.9");
    let some = Document::new("limits: [{name: some, key: source, rate: 10/s}]");
    let udp =
        Document::new("limits: [{name: some, match: {protocol: udp}, key: source, rate: 9/s}]");
    for (document, options) in [(&some, ""), (&some, "--no-keep-ssh"), (&udp, "--keep-ssh")] {
        let apply = document.in_place(&format!("policy apply FILE {options}"));
        let outcome = session.done(&bench, &apply);
        assert!(!outcome.stdout.contains("SSH session"), "{outcome}");
        assert_eq!(
            bench.json("allow list -j")["entries"].as_array().map(Vec::len),
            Some(0),
            "{options}"
        );
        session.done(&bench, &Document::new("").in_place("policy apply FILE"));
    }
    bench.refused(
        &some.in_place("policy apply FILE --keep-ssh --no-keep-ssh"),
        2,
        &["--no-keep-ssh"],
    );
}

#[test]
fn every_change_keeps_the_peer() {
    for (first, change) in [
        ("", "limit set source --rate 1/h --burst 1"),
        ("limit set source --src 203.0.113.0/24 --rate 9/s", "limit set source --rate 9/s"),
        ("policy apply FILE", "limit del source --src 203.0.113.0/24"),
        ("policy apply FILE", "monitor off"),
        ("", "deny add 203.0.0.0/16"),
        ("", "penalty add 203.0.113.0/24 --for 1h"),
    ] {
        let bench = Bench::new();
        bench.done(&format!("attach eth0 {SMALL}"));
        let session = Session::from(&bench, "203.0.113.9");
        let document = Document::new(
            "limits: [{name: source, key: source, rate: 5/s, overrides: [\
             {src: 203.0.113.0/24, unlimited: true}]}, {name: syn, key: source, count: syns, rate: 5/s}]",
        );
        if !first.is_empty() {
            bench.done(&document.in_place(first));
        }
        assert_eq!(bench.json("allow list -j")["entries"].as_array().map(Vec::len), Some(0));
        let outcome = session.done(&bench, &format!("{change} --keep-ssh"));
        assert!(keeps(&outcome, "203.0.113.9"), "{outcome}");
        assert_kept(&bench, "203.0.113.9/32");
    }
}

#[test]
fn a_peer_that_a_limit_blocks_already_is_kept() {
    let penalty = "penalty: {after: 100ms, block: 1h, unproven: block}";
    let some =
        Document::new(&format!("limits: [{{name: some, key: source, rate: 1/s, {penalty}}}]"));
    let other = Document::new(&format!(
        "limits: [{{name: other, match: {{source: 198.51.100.0/24}}, key: source, rate: 1/s, {penalty}}}]"
    ));
    let bench = Bench::new();
    let session = Session::from(&bench, "203.0.113.9");
    let attach = some.in_place(&format!("attach eth0 {SMALL} --policy FILE"));
    let apply = other.in_place("policy apply FILE --keep-ssh");
    bench.done(&attach);
    let outcome = session.done(&bench, &apply);
    assert!(!keeps(&outcome, "203.0.113.9"), "it is not blocked, nor could it be: {outcome}");
    bench.done(&some.in_place("policy apply FILE"));
    send(&bench, [203, 0, 113, 9], 5_000);
    let blocked = bench.json("penalty list -j")["entries"].take();
    assert_eq!(blocked[0]["src"], "203.0.113.9", "{blocked}");
    bench.done(&other.in_place("policy apply FILE"));
    bench.done("monitor on");
    let outcome = session.done(&bench, "monitor off --keep-ssh");
    assert!(keeps(&outcome, "203.0.113.9"), "{outcome}");
    assert_kept(&bench, "203.0.113.9/32");
    let outcome = session.done(&bench, &apply);
    assert!(!outcome.stdout.contains("- allow"), "it is kept still: {outcome}");
}

#[test]
fn with_a_policy_for_a_new_instance_only_the_peer_is_kept_in_one_that_runs_as_well() {
    let bench = Bench::new();
    let session = Session::from(&bench, "203.0.113.9");
    let document = Document::new("limits: [{name: some, key: source, rate: 10/s}]");
    let kept = |interface: &str| {
        let options = "--policy-if-new FILE --keep-ssh";
        let attach = document.in_place(&format!("attach {interface} {SMALL} {options}"));
        keeps(&session.done(&bench, &attach), "203.0.113.9")
    };
    assert!(kept("eth0"));
    assert!(!kept("lo"), "it was allowed before");
    bench.done("allow del 203.0.113.9 --no-keep-ssh");
    bench.done("detach lo");
    assert!(kept("lo"));
    assert_kept(&bench, "203.0.113.9/32");
}

#[test]
fn whoever_is_at_a_terminal_is_kept_without_being_asked() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let session = Session::from(&bench, "203.0.113.9");
    let said = at_terminal(&bench, &session, "limit set source --rate 1/h --burst 1 --no-keep-ssh");
    assert!(!said.contains("SSH session"), "{said}");
    let said = at_terminal(&bench, &session, "limit set source --rate 1/h --burst 1");
    assert!(said.contains("203.0.113.9 (this SSH session) is kept allowed until 20"), "{said}");
    assert_kept(&bench, "203.0.113.9/32");
    let said = at_terminal(&bench, &session, "limit set source --rate 2/h --burst 1");
    assert!(!said.contains("SSH session"), "it is said once: {said}");
    // A list by the standard input does not take the terminal away.
    bench.done("allow flush");
    let list = Document::new("");
    let path = list.folder.join("list");
    std::fs::write(&path, "203.0.112.0/21\n").unwrap();
    let list = Some(File::open(&path).unwrap());
    let said = with_input(&bench, &session, "deny add -", list);
    assert!(said.contains("203.0.113.9 (this SSH session) is kept allowed until 20"), "{said}");
    assert_kept(&bench, "203.0.113.9/32");
}

#[test]
fn the_peer_itself_is_neither_denied_nor_left_to_the_limits() {
    let bench = Bench::attached();
    let session = Session::from(&bench, "192.0.9.1");
    let words = ["192.0.9.1/32 is where this SSH session comes from", "--no-keep-ssh"];
    bench.refused_as(session.run(&bench, "deny add 192.0.9.1 --keep-ssh"), 3, &words);
    session.done(&bench, "limit set syn --rate 5/s --keep-ssh");
    assert_kept(&bench, "192.0.9.1/32");
    bench.refused_as(session.run(&bench, "allow del 192.0.9.1 --keep-ssh"), 3, &words);
    bench.refused_as(session.run(&bench, "deny add 192.0.9.1 --keep-ssh"), 3, &words);
    session.done(&bench, "allow del 192.0.9.1 --no-keep-ssh");
    session.done(&bench, "deny add 192.0.9.1 --no-keep-ssh");
    assert!(keeps(&session.done(&bench, "deny del 192.0.9.1 --keep-ssh"), "192.0.9.1"));
}

#[test]
fn an_attach_keeps_the_peer_too() {
    let document = Document::new("deny: [203.0.113.0/24]");
    for options in ["--policy FILE", "--pps 1/h --burst 1"] {
        let bench = Bench::new();
        let session = Session::from(&bench, "203.0.113.9");
        let attach = document.in_place(&format!("attach eth0 {SMALL} {options} --keep-ssh"));
        let outcome = session.done(&bench, &attach);
        assert!(keeps(&outcome, "203.0.113.9"), "{outcome}");
        assert_kept(&bench, "203.0.113.9/32");
        bench.done("allow del 203.0.113.9 --no-keep-ssh");
        bench.done("detach eth0");
        // In JSON, on standard error.
        let attach = document.in_place(&format!("attach eth0 {SMALL} {options} --keep-ssh -j"));
        let said = session.done(&bench, &attach).stderr;
        assert!(said.starts_with("{\"warning\":{\"message\":\"203.0.113.9 (this SSH"), "{said}");
        bench.done("allow del 203.0.113.9 --no-keep-ssh");
        // Also for an instance that is running.
        let attach = document.in_place(&format!("attach lo {options} --keep-ssh"));
        let outcome = session.done(&bench, &attach);
        assert!(keeps(&outcome, "203.0.113.9"), "{outcome}");
        assert_kept(&bench, "203.0.113.9/32");
    }
}

#[test]
fn only_a_session_that_is_open_is_kept() {
    let bench = Bench::attached();
    let session = Session::from(&bench, "203.0.113.9");
    let connection = session.connection();
    let set = "limit set syn --rate 5/s --keep-ssh";
    let said = |value: &str| bench.run(set).env("SSH_CONNECTION", value);
    bench.refused_as(said("gibberish"), 4, &["SSH_CONNECTION is \"gibberish\"", "--keep-ssh"]);
    let stale = said("203.0.113.9 1 203.0.113.9 22");
    bench.refused_as(stale, 4, &["203.0.113.9, and no connection from there is open"]);
    // An empty or stale variable does not hide that of the parent process.
    let script = "SSH_CONNECTION= \"$@\" && SSH_CONNECTION='192.0.2.1 1 2 3' \"$@\"; true";
    let outcome = bench
        .hosts
        .router
        .command("sh")
        .env("SSH_CONNECTION", &connection)
        .args(["-c", script, "sh"])
        .arg(bench.limiter.path())
        .args(set.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8(outcome.stdout).unwrap();
    assert!(said.contains("203.0.113.9 (this SSH session) is kept allowed"), "{said}");
    assert_eq!(said.matches("syn limit: ").count(), 2, "{said}");
    drop(session);
}
