//! The control socket of the agent, and blocks that are pushed by it or by commands.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{
    http::{Reply, exchange},
    packet::{Frame, SYN},
    sandbox::{BPFFS, Namespace},
    topology::lay_wire,
    traffic::{Connection, Sender, Service},
};
use serde_json::{Value, json};

use super::{
    Bench, Document, SMALL,
    agent::{Agent, PATIENCE},
    json::send,
};

/// The port of the service.
const PORT: u16 = 22;
/// A user that is trusted, and is not root.
const USER: u32 = 65_534;

/// An agent with a control socket, at a router that limits what it gets.
struct Setup {
    bench: Bench,
    document: Document,
    agent: Option<Agent>,
}

impl Setup {
    fn new(policy: &str, arguments: &str) -> Self {
        let (bench, document) = (Bench::new(), Document::new(policy));
        let folder = document.path().parent().unwrap().to_owned();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        bench.done(&format!("attach eth0 {SMALL}"));
        let mut setup = Self { bench, document, agent: None };
        setup.start(arguments);
        setup
    }

    fn socket(&self) -> PathBuf {
        self.document.path().with_file_name("agent.sock")
    }

    fn start(&mut self, arguments: &str) {
        let control = format!("--control unix:{} --group 65534", self.socket().display());
        let all = format!("--policy FILE {control} --trusted 0 --trusted {USER} {arguments}");
        let agent = Agent::start(&self.bench, &self.document, &all);
        agent.until_it_answers();
        self.agent = Some(agent);
    }

    /// A connection of a process of a user.
    fn connect_as(&self, user: u32) -> UnixStream {
        connect_as(self.socket(), user)
    }

    /// The answer to a request of a process of a user.
    #[track_caller]
    fn ask_as(&self, user: u32, line: &str, body: &str) -> Reply {
        let mut stream = self.connect_as(user);
        exchange(&mut stream, request(line, body)).unwrap()
    }

    #[track_caller]
    fn json_as(&self, user: u32, line: &str, body: &Value) -> Value {
        let reply = self.ask_as(user, line, &body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        serde_json::from_str(&reply.body).unwrap()
    }

    /// What becomes of a block for a minute that a process of a user asks for.
    #[track_caller]
    fn push_as(&self, user: u32, subject: &str, proof: Option<[SocketAddr; 2]>) -> String {
        let proof = proof.map(|[remote, local]| json!({ "remote": remote, "local": local }));
        let body = json!({ "subject": subject, "for": "60s", "proof": proof, "reason": "test" });
        let outcome = self.json_as(user, "POST /v1/penalties", &body);
        assert_eq!(outcome["subject"], subject);
        let is_blocked = outcome["result"] == "blocked" || outcome["result"] == "shorter";
        assert_eq!(outcome["seconds"], if is_blocked { 60 } else { 0 }, "{outcome}");
        outcome["result"].as_str().unwrap().to_owned()
    }

    fn namespace(&self) -> &Namespace {
        &self.bench.hosts.router.namespace
    }

    fn dropped(&self) -> u64 {
        self.bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap()
    }
}

/// A connection of a process of a user to a socket.
pub(super) fn connect_as(socket: PathBuf, user: u32) -> UnixStream {
    let connect = move || {
        for call in [libc::SYS_setresgid, libc::SYS_setresuid] {
            // SAFETY: the call has no pointers. Without the library's wrapper it is about this thread alone, which ends.
            assert_eq!(unsafe { libc::syscall(call, u32::MAX, user, u32::MAX) }, 0);
        }
        UnixStream::connect(socket).unwrap()
    };
    let stream = thread::spawn(connect).join().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn request(line: &str, body: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: agent\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

const POLICY: &str = "allow: [198.18.0.77]
limits:
  - { name: it, key: source, rate: 100000/s, burst: 100000 }
  - { name: login, on: requests, key: source, rate: 5/min, burst: 5, penalty: { after: 10s, block: 20s, max: 30s } }";

#[test]
fn a_connection_of_the_source_proves_it_and_nothing_else_does() {
    let setup = Setup::new(POLICY, "");
    let hosts = &setup.bench.hosts;
    let (client, router) = (&hosts.client, &hosts.router);
    // One more address of the client is allowed, another one never sends, and it has a gateway.
    client.ip("address add 198.18.0.77/24 dev eth0\naddress add 198.18.0.78/24 dev eth0").unwrap();
    router.ip("route add 203.0.113.0/24 via 198.18.0.99").unwrap();
    let service = Service::start_as(USER, setup.namespace(), PORT, "ready").unwrap();
    let (v4, v6) = (hosts.client_port.v4, hosts.client_port.v6);
    let to = |from: IpAddr| SocketAddr::new(hosts.router_port.address_like(from), PORT);
    let open = |from: IpAddr| {
        let mut connection = Connection::open(&client.namespace, from, to(from)).unwrap().unwrap();
        assert_eq!(connection.hear().unwrap(), "ready");
        let proof = [SocketAddr::new(from, connection.port().unwrap()), to(from)];
        (connection, proof)
    };
    let push = |subject: &str, proof| setup.push_as(USER, subject, proof);
    let (kept, proof) = open(v4.into());
    let client_text = v4.to_string();
    // A service of root, as sshd is.
    let _of_root = Service::start(setup.namespace(), PORT + 1, "ready").unwrap();
    let to_root = SocketAddr::new(hosts.router_port.v4.into(), PORT + 1);
    let mut ssh = Connection::open(&client.namespace, v4.into(), to_root).unwrap().unwrap();
    assert_eq!(ssh.hear().unwrap(), "ready");
    let proof_of_ssh = [SocketAddr::new(v4.into(), ssh.port().unwrap()), to_root];
    assert_eq!(push(&client_text, Some(proof_of_ssh)), "unproven");

    assert_eq!(push(&client_text, None), "unproven");
    let [remote, local] = proof;
    let port = |end: SocketAddr, port| SocketAddr::new(end.ip(), port);
    // The kernel finds the socket that listens for each of these: they are forged.
    assert_eq!(push(&client_text, Some([port(remote, remote.port() ^ 1), local])), "unproven");
    assert_eq!(push("198.18.0.78", Some(["198.18.0.78:7777".parse().unwrap(), local])), "unproven");
    assert_eq!(push(&client_text, Some([remote, port(local, 23)])), "unproven");
    // A proof is of its source alone: behind a proxy, the address in a header is another one.
    assert_eq!(push("192.0.2.9", Some(proof)), "unproven");
    assert_eq!(push(&client_text, Some([local, remote])), "unproven");
    // Even a SYN that is answered proves nothing.
    let syn = Frame::tcp([198, 18, 0, 78], hosts.router_port.v4, 5_000, PORT, SYN)
        .macs(hosts.client_port.mac, hosts.router_port.mac)
        .build();
    let mut sender = Sender::new(&client.namespace, &hosts.client_port, 1_000, syn).unwrap();
    assert!(sender.send(Duration::from_millis(20), &Default::default()).unwrap().packets > 0);
    assert_eq!(push("198.18.0.78", Some(["198.18.0.78:5000".parse().unwrap(), local])), "unproven");

    for (subject, result) in [
        (&*hosts.router_port.v4.to_string(), "own"),
        ("127.0.0.1", "own"),
        ("198.18.0.99", "gateway"),
        ("224.0.0.1", "not_a_peer"),
        ("0.0.0.0", "not_a_peer"),
        ("255.255.255.255", "not_a_peer"),
        ("ff02::1", "not_a_peer"),
        ("fe80::1", "not_a_peer"),
    ] {
        assert_eq!(push(subject, Some(proof)), result, "{subject}");
        assert_eq!(setup.push_as(0, subject, None), result, "{subject}");
    }
    let (allowed, proof_of_allowed) = open("198.18.0.77".parse().unwrap());
    assert_eq!(push("198.18.0.77", Some(proof_of_allowed)), "allowed");

    assert_eq!(setup.dropped(), 0);
    assert_eq!(push(&client_text, Some(proof)), "blocked");
    assert_eq!(push(&client_text, Some(proof)), "blocked");
    let events = std::iter::repeat_with(|| setup.agent.as_ref().unwrap().next());
    let event = events.into_iter().find(|event| event["event"] == "pushed").unwrap();
    assert_eq!((&event["source"], &event["user"]), (&json!(client_text), &json!(USER)), "{event}");
    assert_eq!((&event["seconds"], &event["reason"]), (&json!(60.0), &json!("test")), "{event}");
    assert!(Connection::open(&client.namespace, v4.into(), to(v4.into())).unwrap().is_none());
    assert!(setup.dropped() > 0);
    let lifted = setup.json_as(USER, &format!("DELETE /v1/penalties/{client_text}"), &json!(""));
    assert_eq!(lifted, json!({ "subject": client_text, "result": "lifted" }));
    let (again, [remote, local]) = open(v4.into());
    // For a limit with a penalty, no longer than that says.
    let mut body = json!({ "subject": client_text, "for": "1h", "limit": "login",
        "proof": { "remote": remote, "local": local } });
    assert_eq!(setup.json_as(USER, "POST /v1/penalties", &body)["seconds"], 30);
    setup.json_as(USER, &format!("DELETE /v1/penalties/{client_text}"), &json!(""));
    body["proof"] = Value::Null;
    assert_eq!(setup.json_as(0, "POST /v1/penalties", &body)["seconds"], 3_600);
    setup.json_as(0, &format!("DELETE /v1/penalties/{client_text}"), &json!(""));

    // Of IPv6, a /64 is a source: that of the wire has an address of the router.
    let (on_link, proof) = open(v6.into());
    assert_eq!(push(&v6.to_string(), Some(proof)), "own");
    let routed = "2001:db8:77::1";
    client.ip(&format!("address add {routed}/64 dev eth0 nodad")).unwrap();
    router.ip(&format!("route add 2001:db8:77::/64 via {v6}")).unwrap();
    let (of_v6, proof) = open(routed.parse().unwrap());
    assert_eq!(push("2001:db8:77::2", Some(proof)), "blocked");
    let from: IpAddr = "2001:db8:77::3".parse().unwrap();
    client.ip(&format!("address add {from}/64 dev eth0 nodad")).unwrap();
    assert!(Connection::open(&client.namespace, from, to(from)).unwrap().is_none());
    for connection in [kept, ssh, allowed, again, on_link, of_v6] {
        connection.reset().unwrap();
    }
    drop(service);
}

/// A connection that comes by an interface without the limiter: what it sends is not known to the table.
#[test]
fn who_sends_nothing_past_the_limiter_is_no_peer() {
    let setup = Setup::new(POLICY, "");
    let (client, router) = (&setup.bench.hosts.client, &setup.bench.hosts.router);
    let (near, far) = lay_wire(1, (client, "eth1"), (router, "eth1")).unwrap();
    let _service = Service::start_as(USER, setup.namespace(), PORT, "ready").unwrap();
    let to = SocketAddr::new(far.v4.into(), PORT);
    let mut connection = Connection::open(&client.namespace, near.v4.into(), to).unwrap().unwrap();
    // Before, no process has it at this host.
    assert_eq!(connection.hear().unwrap(), "ready");
    let proof = [SocketAddr::new(near.v4.into(), connection.port().unwrap()), to];
    assert_eq!(setup.push_as(USER, &near.v4.to_string(), Some(proof)), "not_a_peer");
}

#[test]
fn blocks_are_asked_for_listed_counted_and_kept_over_a_restart() {
    let mut setup = Setup::new(POLICY, "--push-rate 5/s --events 2/s");
    send(&setup.bench, [192, 0, 2, 1], 5);
    // Root needs no proof, also for who has not come yet.
    for source in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(setup.push_as(0, source, None), "blocked");
    }
    let before = setup.dropped();
    for source in [[192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 2, 3]] {
        send(&setup.bench, source, 10);
    }
    assert_eq!(setup.dropped(), before + 20);

    // What the commands print.
    let list = setup.json_as(USER, "GET /v1/penalties", &json!(""));
    assert_eq!(list["schema"], "limiter.penalties/1");
    let entry = &list["entries"][0];
    assert_eq!(
        (&entry["by"], &entry["layer"], &entry["limit"]),
        (&json!("push"), &json!("push"), &Value::Null)
    );
    let text = setup.bench.done("penalty list").stdout;
    assert!(
        text.lines().any(|line| line.starts_with("192.0.2.1 ") && line.contains(" push")),
        "{text}"
    );
    let source = setup.json_as(USER, "GET /v1/source/192.0.2.1", &json!(""));
    assert_eq!((&source["schema"], &source["pushed"]), (&json!("limiter.source/1"), &json!(true)));
    assert_eq!(source["limits"][0]["name"], "it");
    assert!(setup.bench.done("get 192.0.2.1").stdout.contains("pushed, for "));
    assert_eq!(setup.ask_as(USER, "GET /v1/source/192.0.2.200", "").status, 404);

    // An agent that was killed changes nothing, and neither does another policy.
    drop(setup.agent.take());
    setup.document.write(&format!("{POLICY}\ndeny: [203.0.113.0/24]"));
    setup.start("--push-rate 5/s");
    setup.bench.done(&format!("attach eth0 {SMALL} --replace"));
    let before = setup.dropped();
    send(&setup.bench, [192, 0, 2, 1], 10);
    assert_eq!(setup.dropped(), before + 10);

    // Beyond the rate they are refused.
    let many: Vec<Value> = (1..=100)
        .map(|last| json!({ "subject": format!("198.51.100.{last}"), "for": 60 }))
        .collect();
    let outcomes = setup.json_as(0, "POST /v1/penalties", &json!(many));
    let results = outcomes.as_array().unwrap().iter().filter(|it| it["result"] == "too_many");
    assert!((50..100).contains(&results.count()), "{outcomes}");
    assert_eq!(outcomes[0]["result"], "blocked");

    // `penalty del` ends blocks of any kind.
    setup.bench.done("penalty del 192.0.2.0/24");
    let before = setup.dropped();
    send(&setup.bench, [192, 0, 2, 1], 10);
    assert_eq!(setup.dropped(), before);

    // They go with the instance.
    setup.bench.done("detach --all");
    let reply = setup.ask_as(0, "POST /v1/penalties", r#"{"subject": "192.0.2.1", "for": 1}"#);
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(setup.ask_as(0, "GET /v1/penalties", "").status, 503);
    setup.bench.done(&format!("attach eth0 {SMALL}"));
    assert_eq!(setup.json_as(0, "GET /v1/penalties", &json!(""))["entries"], json!([]));
    assert_eq!(setup.push_as(0, "192.0.2.1", None), "blocked");
}

/// Root pushes as fast as others, and so nobody takes the records of limits.
#[test]
fn no_more_is_pushed_than_100_a_second_and_a_tenth_of_the_records() {
    let mut setup = Setup::new(POLICY, "");
    let blocked = |setup: &Setup, first: u32| {
        let subject = |at: u32| std::net::Ipv4Addr::from_bits(0xc633_6400 + first + at);
        let many = (0..1_000).map(|at| json!({ "subject": subject(at), "for": "1h" }));
        let outcomes = setup.json_as(0, "POST /v1/penalties", &json!(many.collect::<Vec<_>>()));
        let outcomes = outcomes.as_array().unwrap();
        let count = |result| outcomes.iter().filter(|it| it["result"] == result).count();
        assert_eq!(count("blocked") + count("too_many"), 1_000, "{outcomes:?}");
        count("blocked")
    };
    let begin = Instant::now();
    let pushed = blocked(&setup, 0);
    // So many may be pushed at once, and as many each second.
    let most = 100.0 * (1.0 + begin.elapsed().as_secs_f64()) + 1.0;
    assert!(pushed >= 100 && pushed as f64 <= most, "{pushed} of {most}");
    drop(setup.agent.take());
    setup.start("--push-rate none");
    // A set has as many bytes as 8 buckets with their keys, and 15 records.
    let records = 4_096 / 8 * 15;
    assert_eq!(pushed + blocked(&setup, 1_000), records / 10);
    assert_eq!(blocked(&setup, 2_000), 0);
}

#[test]
fn who_may_ask_and_how() {
    let setup = Setup::new(POLICY, "");
    assert_eq!(fs::metadata(setup.socket()).unwrap().permissions().mode() & 0o777, 0o660);
    fs::set_permissions(setup.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let reply = setup.ask_as(7, "GET /v1/penalties", "");
    assert_eq!(reply.status, 403);
    assert!(reply.body.contains("user 7 may not ask"), "{reply:?}");
    // Who may not ask takes no place of those who may.
    let silent: Vec<UnixStream> = (0..100).map(|_| setup.connect_as(7)).collect();
    assert_eq!(setup.ask_as(0, "GET /v1/penalties", "").status, 200);
    drop(silent);
    for (line, body, status, why) in [
        ("POST /v1/penalties", "{", 400, "no JSON"),
        ("POST /v1/penalties", r#"{"subject": "192.0.2.1", "for": "2d"}"#, 400, "24h"),
        ("PUT /v1/penalties", "", 405, "GET, POST"),
        ("DELETE /v1/penalties/192.0.2.0%2f24", "", 400, "address"),
        ("GET /v1/penalties/192.0.2.1", "", 405, "DELETE"),
        ("POST /v1/source/192.0.2.1", "", 405, "GET"),
        ("GET /v1/other", "", 404, "/v1/source/ADDRESS"),
        ("POST /v1/penalties", &" ".repeat((1 << 20) + 1), 413, "too long"),
    ] {
        let reply = setup.ask_as(0, line, body);
        assert_eq!(reply.status, status, "{line}: {reply:?}");
        assert!(reply.body.contains(why), "{line}: {reply:?}");
    }
    let lift = "DELETE /v1/penalties/192.0.2.1";
    let lifted = setup.json_as(0, lift, &json!(""));
    assert_eq!(lifted["result"], "not_blocked");
    // A user does not end what root pushed.
    assert_eq!(setup.json_as(USER, lift, &json!(""))["result"], "not_blocked");
    assert_eq!(setup.push_as(0, "192.0.2.1", None), "blocked");
    let reply = setup.ask_as(USER, lift, "");
    assert!(reply.status == 403 && reply.body.contains("not yours"), "{reply:?}");
    assert_eq!(setup.json_as(0, "GET /v1/source/192.0.2.1", &json!(""))["pushed"], true);
    assert_eq!(setup.json_as(0, lift, &json!(""))["result"], "lifted");
    let events = std::iter::repeat_with(|| setup.agent.as_ref().unwrap().next());
    let event = events.into_iter().find(|event| event["event"] == "lifted").unwrap();
    assert_eq!((&event["source"], &event["user"]), (&json!("192.0.2.1"), &json!(0)), "{event}");
    let bench = &setup.bench;
    // Also one of a smaller source, as an earlier policy had it.
    assert_eq!(setup.push_as(0, "2001:db8:9:1::1", None), "blocked");
    let document = Document::new("defaults: {key_prefix: {ipv6: 48}}");
    bench.done(&document.in_place("policy apply FILE"));
    let lift = "DELETE /v1/penalties/2001:db8:9:1::1";
    assert_eq!(setup.json_as(0, lift, &json!(""))["result"], "lifted");
    assert_eq!(setup.json_as(0, lift, &json!(""))["result"], "not_blocked");
    for (arguments, words) in [
        ("agent --control 127.0.0.1:1", "unix:PATH"),
        ("agent --trusted root", "--control"),
        ("agent --control unix:/tmp/limiter-none.sock --trusted no-such-user", "no user"),
    ] {
        let outcome = bench.run(arguments).outcome().unwrap();
        assert_ne!(outcome.code, 0);
        outcome.assert_says(&[words]);
    }
}

#[test]
fn commands_push_blocks_and_end_them() {
    let bench = Bench::new();
    let none = bench.run("penalty add 192.0.2.1 --for 10m --push").outcome().unwrap();
    none.assert_exit_code(4);
    bench.done(&format!("attach eth0 {SMALL}"));
    bench.done("allow add 192.0.2.7");
    let said = |arguments: &str| bench.done(arguments).stdout;
    assert_eq!(
        said("penalty add 192.0.2.1 --for 10m --push"),
        "penalty: 192.0.2.1 is blocked for 10m 00s\n"
    );
    let shorter = said("penalty add 192.0.2.1 --for 1m --push");
    assert!(shorter.starts_with("penalty: 192.0.2.1 is blocked already, for 9m 5"), "{shorter}");
    assert_eq!(
        said("penalty add 192.0.2.7 --for 1m --push"),
        "penalty: 192.0.2.7 is not blocked: it is on `allow`\n"
    );
    assert_eq!(
        said("penalty add 192.0.2.1 192.0.2.2 192.0.2.7 2001:db8:9::1 --for 1h --push"),
        "penalty: 3 sources blocked for 1h 00m; 1 not blocked, as `allow` has them\n"
    );
    let json = bench.json("-j penalty add 192.0.2.1 192.0.2.7 --for 1m --push");
    assert_eq!(
        (&json["schema"], &json["sources"][0]["result"]),
        (&json!("limiter.pushed/1"), &json!("shorter"))
    );
    assert_eq!(
        json["sources"][1],
        json!({ "src": "192.0.2.7", "result": "allowed", "seconds_left": 0 })
    );
    bench.refused(
        "penalty add 192.0.2.0/24 --for 1m --push",
        2,
        &["more than one source", "leave out --push"],
    );
    bench.refused("penalty add 192.0.2.1 --until 2099-01-01 --push", 2, &["--until"]);
    bench.hosts.router.ip("route add 203.0.113.0/24 via 198.18.0.99").unwrap();
    let own = bench.hosts.router_port.v4.to_string();
    for (address, words) in [(&*own, "an address of this host"), ("198.18.0.99", "a gateway")] {
        let command = format!("penalty add 192.0.2.3 {address} --for 1m --push");
        bench.refused(&command, 2, &[address, words, "limiter deny add"]);
    }
    assert_eq!(said("penalty del 192.0.2.3 --push"), "penalty: no push blocks 192.0.2.3\n");
    let dropped = || bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap();
    send(&bench, [192, 0, 2, 1], 10);
    send(&bench, [192, 0, 2, 7], 10);
    assert_eq!(dropped(), 10);
    assert_eq!(
        said("penalty del 192.0.2.1 --push"),
        "penalty: the pushed block of 192.0.2.1 is ended\n"
    );
    assert_eq!(said("penalty del 192.0.2.1 --push"), "penalty: no push blocks 192.0.2.1\n");
    send(&bench, [192, 0, 2, 1], 10);
    assert_eq!(dropped(), 10);
    // A block by hand is another one.
    bench.done("penalty add 192.0.2.1 --for 10m");
    assert_eq!(said("penalty del 192.0.2.1 --push"), "penalty: no push blocks 192.0.2.1\n");
    send(&bench, [192, 0, 2, 1], 10);
    assert_eq!(dropped(), 20);
    assert_eq!(
        said("penalty del 192.0.2.2 2001:db8:9::1 --push"),
        "penalty: the pushed blocks of 2 sources are ended\n"
    );
    assert_eq!(said("penalty del --all --push"), "penalty: no push blocks anybody\n");
    bench.done("penalty add 192.0.2.8 192.0.2.9 --for 1h --push");
    assert_eq!(
        said("penalty del --all --push"),
        "penalty: the pushed blocks of 2 sources are ended\n"
    );
    // Also one that no packet finds, since sources became larger.
    let small = Document::new("defaults: {key_prefix: {ipv6: 64}}");
    let large = Document::new("defaults: {key_prefix: {ipv6: 48}}");
    let apply = |document: &Document| bench.done(&document.in_place("policy apply FILE"));
    bench.done("penalty add 2001:db8:9:1::1 --for 1h --push");
    apply(&large);
    assert!(!said("penalty list").contains("2001:db8"));
    assert_eq!(
        said("penalty del --all --push"),
        "penalty: the pushed block of 2001:db8:9:1:: is ended\n"
    );
    assert_eq!(said("penalty del --all --push"), "penalty: no push blocks anybody\n");
    apply(&small);
    bench.done("penalty add 2001:db8:9:1::1 2001:db8:8:1::1 --for 1h --push");
    assert!(!apply(&large).stderr.contains("key_prefix"));
    assert_eq!(
        said("penalty del 2001:db8:9:1::1 --push"),
        "penalty: the pushed block of 2001:db8:9::/48 is ended\n"
    );
    apply(&small);
    bench.done("penalty add 2001:db8:7::1 --for 1h --push");
    let warned = bench.done(&large.in_place("policy apply FILE --dry-run")).stderr;
    assert!(warned.contains("of larger sources by it: 1; "), "{warned}");
    let left = said("penalty list");
    assert!(left.contains("2001:db8:8:1::/64") && !left.contains("2001:db8:9"), "{left}");
    // That by hand stays.
    send(&bench, [192, 0, 2, 1], 10);
    assert_eq!(dropped(), 30);
}

/// To load the program takes longer than a block, so the first command pins it for the others.
#[test]
fn the_program_that_pushes_is_pinned_and_goes_with_the_instance() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL}"));
    let in_router = |words: &str| {
        let output = bench.hosts.router.command("sh").args(["-ec", words]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let folder = format!("{BPFFS}/limiter");
    let pinned = || in_router(&format!("cd {folder} && find -name 'limiter_push*'"));
    let push = |last: u32| bench.done(&format!("penalty add 192.0.2.{last} --for 1h --push"));
    assert_eq!(pinned(), "");
    push(1);
    let first = pinned();
    assert!(first.starts_with("./maps/limiter_push-") && first.lines().count() == 1, "{first}");
    push(2);
    assert_eq!(pinned(), first);
    // That of another build is not run, and does not stay.
    in_router(&format!("cd {folder} && mv {} maps/limiter_push-0", first.trim()));
    push(3);
    assert_eq!(pinned(), first);
    bench.done("attach eth0 --sources 8192");
    assert_eq!(pinned(), "", "it went with the maps that it was for");
    push(4);
    // The other maps have their own.
    let second = pinned();
    let name = |path: &str| path.rsplit_once('-').unwrap().0.to_owned();
    assert_eq!(name(&second), name(&first).replace("/maps/", "/maps2/"));
    assert_ne!(second.rsplit('-').next(), first.rsplit('-').next());
    assert_eq!(bench.json("penalty list -j")["entries"].as_array().unwrap().len(), 4);
    bench.done("detach --all");
    in_router(&format!("test ! -e {folder}"));
}

#[test]
fn the_first_push_puts_no_other_policy_in_force() {
    let setup = Setup::new(POLICY, "");
    let epoch = || {
        let text = setup.bench.done("metrics").stdout;
        text.lines().find(|line| line.starts_with("limiter_policy_epoch")).unwrap().to_owned()
    };
    let before = epoch();
    assert_eq!(setup.push_as(0, "192.0.2.1", None), "blocked");
    assert_eq!(epoch(), before);
}
