//! Both floors: clients on a wire, nginx, the bridge, the agent and the kernel.

mod restart;
mod told;

use std::{os::unix::fs::chown, time::Instant};

use limiter_tests::traffic::Connection;

use super::{
    super::{SMALL, agent::Agent, control::connect_as, json::send},
    proxies::{ABSTRACT, Proxy, TCP, bridge, bridge_with},
    *,
};

/// Who goes on after 429 for a second is blocked.
const PENALTY: &str = "allow: [198.18.0.77]
limits:
  - name: login
    on: requests
    match: { path: /login }
    key: source
    algorithm: leaky_bucket
    rate: 1/min
    depth: 3
    penalty: { after: 1s, block: 1m }
  - { name: packets, key: source, rate: 1M pps }
";
/// Small enough for a client to come near within few requests.
const RESERVE: &str = "limits:
  - { name: web, match: { protocol: tcp }, key: source, rate: 20 pps, burst: 60, requests: enforce }
  - { name: login, on: requests, match: { path: /login }, key: source, rate: 100/s }
";
/// How long a client waits for an answer: less than any block, so that one that falls within a connection is no
/// answer either.
const ANSWER: Duration = Duration::from_secs(5);
/// For how long somebody goes on who is not to be blocked.
const LONG: Duration = Duration::from_secs(3);

/// An instance with its agent, and a bridge whose user is not root.
struct Floors {
    bench: Bench,
    document: Document,
    bridge: Bridge,
}

impl Floors {
    /// An agent has to be started beside it.
    fn new(policy: &str) -> Self {
        let (bench, document) = (Bench::new(), Document::new(policy));
        let addresses =
            (3..10).chain([77]).map(|it| format!("address add 198.18.0.{it}/24 dev eth0\n"));
        bench.hosts.client.ip(&addresses.collect::<String>()).unwrap();
        bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
        let bridge = Self::bridge(&bench, &document);
        Self { bench, document, bridge }
    }

    /// A bridge that all proxies may ask, and that leaves its state to the next one.
    fn bridge(bench: &Bench, document: &Document) -> Bridge {
        bench.hosts.router.ip("link set lo up").unwrap();
        let agent = document.path().with_file_name("agent.sock");
        let state = Self::state(document);
        let run = state.parent().unwrap();
        let grpc = grpc_socket(document);
        // As the unit of the package has it, a folder of its own.
        fs::create_dir_all(run).unwrap();
        chown(run, Some(65_534), Some(65_534)).unwrap();
        let arguments = format!(
            "--agent unix:{} --state-file {} --listen {TCP} --grpc unix:{} --spop {ABSTRACT}",
            agent.display(),
            state.display(),
            grpc.display()
        );
        let bridge = bridge_with(bench, document, &arguments);
        fs::set_permissions(grpc, fs::Permissions::from_mode(0o666)).unwrap();
        bridge
    }

    /// The state file of that bridge.
    fn state(document: &Document) -> PathBuf {
        document.path().with_file_name("run").join("state")
    }

    /// Starts a proxy, as its printed configuration says.
    fn proxy(&self, name: &str) -> Proxy<'_> {
        match name {
            "haproxy" => Proxy::start_at(&self.bench, &self.document, name, "", ABSTRACT),
            _ => Proxy::start(&self.bench, &self.document, name),
        }
    }

    fn agent(&self) -> Agent {
        let socket = self.document.path().with_file_name("agent.sock");
        let control = format!("--control unix:{} --group 65534 --trusted 65534", socket.display());
        let agent =
            Agent::start(&self.bench, &self.document, &format!("-i eth0 --policy FILE {control}"));
        agent.until_it_answers();
        agent
    }

    /// The status that a client with the address `198.18.0.N` gets on a connection of its own; `None` if it gets none.
    fn login(&self, number: u8, fields: &str) -> Option<u16> {
        let hosts = &self.bench.hosts;
        let (from, to) = ([198, 18, 0, number].into(), (hosts.router_port.v4, 8080).into());
        let mut connection = Connection::open(&hosts.client.namespace, from, to).unwrap()?;
        connection.set_patience(ANSWER).unwrap();
        let request = "GET /login HTTP/1.1\r\nHost: www.example\r\nConnection: close\r\n";
        let line = connection.ask(&format!("{request}{fields}\r")).ok()?;
        line.split(' ').nth(1)?.parse().ok()
    }

    /// The same with the seconds of `Retry-After`, 0 without one.
    fn told(&self, number: u8) -> Option<(u16, u64)> {
        let hosts = &self.bench.hosts;
        let (from, to) = ([198, 18, 0, number].into(), (hosts.router_port.v4, 8080).into());
        let mut connection = Connection::open(&hosts.client.namespace, from, to).unwrap()?;
        let line = connection.ask("GET / HTTP/1.0\r\n\r").ok()?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut wait = 0;
        loop {
            let line = connection.hear().ok()?.to_ascii_lowercase();
            match line.trim().split_once(": ") {
                Some(("retry-after", seconds)) => wait = seconds.parse().ok()?,
                Some(_) => {}
                None => return Some((status, wait)),
            }
        }
    }

    /// Has a client go on until it gets no answer any more.
    #[track_caller]
    fn go_on(&self, number: u8, fields: &str) {
        let begin = Instant::now();
        while let Some(status) = self.login(number, fields) {
            assert!([200, 429].contains(&status), "{status}");
            assert!(begin.elapsed() < PATIENCE, "{}", self.bridge.ask("GET /metrics", &[]).body);
        }
    }

    /// Has a client go on for long, whose packets are never dropped.
    #[track_caller]
    fn go_on_unharmed(&self, number: u8, fields: &str) {
        let begin = Instant::now();
        while begin.elapsed() < LONG {
            assert!(self.login(number, fields).is_some());
        }
    }

    /// The next event of the bridge with this name, past others; of a block, that of this peer.
    #[track_caller]
    fn event(&self, name: &str, peer: Option<&str>) -> Value {
        loop {
            let event = self.bridge.next();
            let is_of =
                peer.is_none_or(|peer| event["peer"] == peer && event["result"] == "blocked");
            if event["event"] == name && is_of {
                return event;
            }
        }
    }

    /// Who is blocked.
    fn blocked(&self) -> Vec<String> {
        let list = self.bench.json("penalty list -j")["entries"].take();
        let entries = list.as_array().unwrap().iter();
        entries.map(|entry| entry["src"].as_str().unwrap().to_owned()).collect()
    }

    fn count(&self, result: &str) -> u64 {
        self.metric(&format!("limiter_bridge_pushed_total{{result=\"{result}\"}}"))
    }

    fn metric(&self, name: &str) -> u64 {
        let metrics = self.bridge.ask("GET /metrics", &[]).body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        assert!(value.is_some(), "no {name} in {metrics}");
        value.unwrap()
    }
}

#[test]
fn who_ignores_429_is_dropped_in_the_kernel_and_nobody_else() {
    // A client can forge the fields of a proxy.
    let floors = Floors::new(&PENALTY.replace("block: 1m", "block: 1m, proxied: block"));
    let _agent = floors.agent();
    let _proxy = Proxy::start(&floors.bench, &floors.document, "nginx");
    // One client is refused, and waits.
    for status in [200, 200, 200, 429] {
        assert_eq!(floors.login(4, ""), Some(status));
    }
    // Another one names others.
    let names =
        ["X-Forwarded-For: 198.18.0.5", "X-Real-IP: 198.18.0.5", "Forwarded: for=198.18.0.5"];
    let peer = "X-Limiter-Peer: 198.18.0.5 7777 198.18.0.2 8080";
    let fields = format!("{}\r\n{peer}\r\n{peer}\r\n", names.join("\r\n"));
    floors.go_on(3, &fields);
    let event = floors.event("pushed", Some("198.18.0.3"));
    assert_eq!(event["limit"], "login");
    assert_eq!(floors.blocked(), ["198.18.0.3"]);
    assert_eq!(floors.login(4, ""), Some(429));
    assert_eq!(floors.login(5, ""), Some(200));
    assert_eq!(floors.login(77, ""), Some(200));
    assert!(floors.bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap() > 0);
    assert_eq!(floors.count("blocked"), 1);
}

/// A proxy before nginx stands for many clients, and a client that is refused has no packets here.
#[test]
fn a_proxy_before_nginx_a_gateway_and_this_host_are_never_blocked() {
    let floors = Floors::new(PENALTY);
    floors.bench.hosts.router.ip("route add 203.0.113.0/24 via 198.18.0.7").unwrap();
    let _agent = floors.agent();
    let more = "set_real_ip_from 198.18.0.5;\nreal_ip_header X-Forwarded-For;\n";
    let proxy = Proxy::start_with(&floors.bench, &floors.document, "nginx", more);
    let begin = Instant::now();
    let is_told = || ["other_source", "gateway", "own"].iter().all(|it| floors.count(it) > 0);
    while begin.elapsed() < LONG || !is_told() {
        assert!(begin.elapsed() < PATIENCE, "{}", floors.bridge.ask("GET /metrics", &[]).body);
        assert!(floors.login(5, "X-Forwarded-For: 198.18.0.6\r\n").is_some());
        assert!(floors.login(7, "").is_some());
        proxy.get(2, "GET /login", &[]);
    }
    assert_eq!(floors.login(5, "X-Forwarded-For: 198.18.0.6\r\n"), Some(429));
    assert_eq!(floors.login(6, ""), Some(429), "its own limit");
    assert_eq!(floors.blocked(), [""; 0]);
}

/// nginx is not told to go by what the CDN tells.
#[test]
fn a_cdn_whose_clients_nginx_does_not_know_is_never_blocked() {
    let floors = Floors::new(PENALTY);
    let _agent = floors.agent();
    let _proxy = Proxy::start(&floors.bench, &floors.document, "nginx");
    let fields = "X-Forwarded-For: 203.0.113.9\r\nVia: 1.1 cdn\r\n";
    floors.go_on_unharmed(5, fields);
    assert_eq!(floors.login(5, fields), Some(429));
    assert_eq!(floors.blocked(), [""; 0]);
    assert!(floors.count("proxied") > 0);
    floors.go_on(3, "X-Forwarded-For: 198.18.0.3\r\n");
    assert_eq!(floors.blocked(), ["198.18.0.3"]);
}

/// The proxy tells the connection itself, whatever a client says of it.
fn who_ignores_429_of_a_proxy_is_dropped(name: &str) {
    let floors = Floors::new(PENALTY);
    let _agent = floors.agent();
    let _proxy = floors.proxy(name);
    floors.go_on_unharmed(5, "X-Forwarded-For: 203.0.113.9\r\n");
    assert!(floors.count("proxied") > 0);
    floors.go_on(3, "X-Limiter-Peer: 198.18.0.5 7777 198.18.0.2 8080\r\n");
    assert_eq!(floors.blocked(), ["198.18.0.3"]);
    assert_eq!(floors.login(5, ""), Some(429));
}

#[test]
fn who_ignores_429_of_envoy_is_dropped_in_the_kernel_and_nobody_else() {
    who_ignores_429_of_a_proxy_is_dropped("envoy-ext-authz");
}

#[test]
fn who_ignores_429_of_caddy_is_dropped_in_the_kernel_and_nobody_else() {
    who_ignores_429_of_a_proxy_is_dropped("caddy");
}

/// As printed, by an abstract socket: HAProxy is locked in a folder, as by its package.
#[test]
fn who_ignores_429_of_haproxy_is_dropped_in_the_kernel_and_nobody_else() {
    who_ignores_429_of_a_proxy_is_dropped("haproxy");
}

#[test]
fn a_refusal_whose_connection_nobody_tells_is_counted() {
    let (bench, document) = (Bench::new(), Document::new(PENALTY));
    let bridge = bridge(&bench, &document);
    let count = || {
        let metrics = bridge.ask("GET /metrics", &[]).body;
        let name = "limiter_bridge_pushed_total{result=\"no_peer\"} ";
        let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        found.unwrap()
    };
    for _ in 0..4 {
        bridge.auth("127.0.0.3", "GET", "/login");
    }
    assert_eq!(count(), 1);
    let proxy = Proxy::start(&bench, &document, "envoy");
    for status in [200, 200, 200, 429] {
        assert_eq!(proxy.get(2, "GET /login", &[]).status, status);
    }
    assert_eq!(count(), 2);
}

/// Any process could tell it.
#[test]
fn a_connection_that_is_told_over_a_loopback_address_is_ignored() {
    let (bench, document) = (Bench::new(), Document::new(PENALTY));
    bench.hosts.router.ip("link set lo up").unwrap();
    let bridge = Bridge::start(&bench, &document, &format!("--listen {TCP}"));
    let lines = [
        "X-Real-IP: 192.0.2.9",
        "X-Original-URI: /login",
        "X-Limiter-Peer: 192.0.2.9 51812 198.51.100.1 443",
    ];
    let request = request("GET /v1/auth", &lines);
    let by_tcp = || {
        let connect = || std::net::TcpStream::connect(TCP);
        let mut stream = bench.hosts.router.namespace.inside(connect).unwrap().unwrap();
        exchange(&mut stream, &request).unwrap().status
    };
    assert_eq!([(); 5].map(|()| by_tcp()), [204, 204, 204, 403, 403]);
    let counts = || {
        let metrics = bridge.ask("GET /metrics", &[]).body;
        let lines = metrics.lines().filter_map(|it| it.strip_prefix("limiter_bridge_pushed_total"));
        let counts = lines.filter(|line| !line.ends_with(" 0")).map(str::to_owned);
        counts.collect::<Vec<_>>()
    };
    assert_eq!(counts(), ["{result=\"no_peer\"} 2"]);
    // On a Unix socket it is taken.
    assert_eq!(exchange(&mut bridge.connect(), &request).unwrap().status, 403);
    assert_eq!(counts(), ["{result=\"no_peer\"} 2"]);
}

#[test]
fn requests_are_limited_without_the_agent_and_peers_are_blocked_once_it_is_back() {
    let floors = Floors::new(PENALTY);
    assert!(floors.event("agent_away", None)["message"].as_str().unwrap().contains("agent.sock"));
    let ready = || floors.bridge.ask("GET /readyz", &[]);
    let told = ready();
    assert!(told.status == 200 && told.body.starts_with("degraded: nobody answers"), "{told:?}");
    let _proxy = Proxy::start(&floors.bench, &floors.document, "nginx");
    floors.go_on_unharmed(3, "");
    let reply = floors.bridge.ask("GET /v1/penalties", &[]);
    assert!(reply.status == 503 && reply.body.contains("nobody answers"), "{reply:?}");
    for _ in 0..2 {
        let agent = floors.agent();
        floors.event("agent_back", None);
        assert_eq!(ready().body, "ok\n");
        floors.go_on(3, "");
        assert_eq!(floors.blocked(), ["198.18.0.3"]);
        let listed = floors.bridge.ask("GET /v1/penalties", &[]);
        assert!(listed.status == 200 && listed.body.contains("198.18.0.3"), "{listed:?}");
        let ended = floors.bridge.ask("DELETE /v1/penalties/198.18.0.3", &[]);
        assert_eq!((ended.status, floors.login(3, "")), (200, Some(429)), "{ended:?}");
        drop(agent);
        floors.event("agent_away", None);
        // What was pushed since is root's to end: the next agent does not know who pushed it.
        floors.bench.done("penalty del 198.18.0.3 --push");
    }
}

#[test]
fn only_known_users_ask_for_penalties() {
    let (bench, document) = (Bench::new(), Document::new(PENALTY));
    bench.hosts.router.ip("link set lo up").unwrap();
    let agent = "--agent unix:/nowhere/agent.sock";
    let bridge = Bridge::start(&bench, &document, &format!("--listen 127.0.0.1:9190 {agent}"));
    let connect = || std::net::TcpStream::connect("127.0.0.1:9190");
    let mut stream = bench.hosts.router.namespace.inside(connect).unwrap().unwrap();
    let reply = exchange(&mut stream, request("GET /v1/penalties", &[])).unwrap();
    assert!(reply.status == 403 && reply.body.contains("Unix socket"), "{reply:?}");
    for (line, status) in [
        ("GET /v1/penalties", 503),
        ("PUT /v1/penalties", 405),
        ("DELETE /v1/penalties/x", 400),
        ("GET /v1/penalties/192.0.2.9", 405),
        ("GET /v1/penaltiess", 404),
    ] {
        assert_eq!(bridge.ask(line, &[]).status, status, "{line}");
    }
    let document = Document::new(PENALTY);
    let bridge = bridge_with(&bench, &document, &format!("--trusted nobody {agent}"));
    for line in ["GET /v1/penalties", "GET /v1/source/192.0.2.9"] {
        let reply = bridge.ask(line, &[]);
        assert!(reply.status == 403 && reply.body.contains("user 0 may not ask"), "{reply:?}");
    }
    let refused = bench.run("bridge --agent 127.0.0.1:80").outcome().unwrap();
    refused.assert_exit_code(2).assert_says(&["give unix:PATH"]);
}

/// The agent trusts root without a proof, and a bridge of root asks for others.
#[test]
fn a_bridge_of_root_has_nobody_blocked_without_a_proof_but_for_root() {
    let (bench, document) = (Bench::new(), Document::new(PENALTY));
    bench.done(&format!("attach eth0 {SMALL}"));
    let control = format!("unix:{}", document.path().with_file_name("agent.sock").display());
    let arguments = format!("--policy FILE --control {control}");
    let agent = Agent::start(&bench, &document, &arguments);
    agent.until_it_answers();
    let trusted = "--trusted root --trusted nobody";
    let _bridge = Bridge::start(&bench, &document, &format!("--agent {control} {trusted}"));
    fs::set_permissions(socket(&document), fs::Permissions::from_mode(0o666)).unwrap();
    let block = r#"{"subject": "192.0.2.1", "for": "1m"}"#;
    for (user, result) in [(65_534, "unproven"), (0, "blocked")] {
        let head = request("POST /v1/penalties", &[&format!("Content-Length: {}", block.len())]);
        let reply = exchange(&mut connect_as(socket(&document), user), head + block).unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        let outcome: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(outcome["result"], result, "{user}");
    }
}

/// As behind a CDN, whose clients send no packet here.
#[test]
fn a_source_that_the_bridge_alone_knows_is_known() {
    let (bench, document) = (Bench::new(), Document::new(PENALTY));
    bench.done(&format!("attach eth0 {SMALL}"));
    let bridge = Bridge::start(&bench, &document, "");
    let get = format!("get 192.0.2.9 -j --bridge unix:{}", socket(&document).display());
    for (code, is_known) in [(4, false), (0, true)] {
        let outcome = bench.run(&get).outcome().unwrap();
        outcome.assert_exit_code(code);
        let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(report["known"], is_known, "{outcome}");
        assert_eq!(report["requests"][0]["name"], "login", "{outcome}");
        assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").status, 204);
    }
}

/// While a limit has little left, a client is told so in time.
#[test]
fn a_client_that_waits_as_it_is_told_loses_no_packet() {
    let floors = Floors::new(RESERVE);
    let _agent = floors.agent();
    let _proxy = Proxy::start(&floors.bench, &floors.document, "nginx");
    let unknown = || floors.metric("limiter_bridge_sources_total{result=\"unknown\"}");
    // On a busy machine the agent may take longer than the bridge waits for it. Then another client is looked at.
    let is_spared = (3..10).any(|number| {
        let before = unknown();
        let mut statuses = Vec::new();
        while statuses.iter().filter(|status| **status == 429).count() < 2 {
            assert!(statuses.len() < 100, "{statuses:?}");
            let told = floors.told(number);
            if unknown() > before {
                return false;
            }
            let (status, wait) = told.unwrap();
            statuses.push(status);
            thread::sleep(Duration::from_secs(wait));
        }
        let source = floors.bench.json(&format!("get 198.18.0.{number} -j"));
        assert_eq!(source["dropped"]["packets"], 0, "{statuses:?}");
        let first = statuses.iter().position(|status| *status == 429);
        assert!(first.is_some_and(|first| first >= 2), "{statuses:?}");
        assert!(!statuses.windows(2).any(|two| two == [429, 429]), "{statuses:?}");
        true
    });
    assert!(is_spared, "the agent was late each time");
}

#[test]
fn what_the_kernel_has_left_for_a_source_decides_about_its_requests() {
    let limits = "limits:
  - { name: hard, key: source, rate: 1/min, burst: 40, precise: true, requests: enforce }
  - { name: told, match: { protocol: udp }, key: source, rate: 1/min, burst: 10, precise: true, action: monitor, requests: enforce }
  - { name: other, match: { protocol: [udp, tcp] }, key: source, rate: 1/min, burst: 5, action: monitor }
  - { name: login, on: requests, key: source, rate: 1/min, burst: 5 }
";
    let floors = Floors::new(limits);
    let agent = floors.agent();
    // On a busy machine the agent may take longer than the bridge waits for it. Then it is asked again a second later.
    let auth = |number: u8| {
        let begin = Instant::now();
        loop {
            let before = floors.metric("limiter_bridge_sources_total{result=\"unknown\"}");
            let source = format!("X-Real-IP: 198.18.0.{number}");
            let reply = floors.bridge.ask("GET /v1/auth?deny=429&peek=1", &[&source]);
            if floors.metric("limiter_bridge_sources_total{result=\"unknown\"}") == before {
                return reply;
            }
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(200));
        }
    };
    let fields = |reply: &Reply| {
        ["x-limiter-source", "x-limiter-limit", "x-limiter-status"]
            .map(|name| reply.field(name).unwrap_or_default().split(';').next().unwrap().to_owned())
    };
    let reply = auth(3);
    assert_eq!((reply.status, fields(&reply)), (204, ["", "", ""].map(str::to_owned)));
    send(&floors.bench, [198, 18, 0, 4], 15);
    let reply = auth(4);
    assert_eq!((reply.status, &*fields(&reply)[0]), (204, "over=told"), "{reply:?}");
    send(&floors.bench, [198, 18, 0, 6], 4);
    let reply = auth(6);
    assert_eq!(reply.field("x-limiter-source"), Some("within=told;left=7"), "{reply:?}");
    send(&floors.bench, [198, 18, 0, 5], 50);
    let reply = auth(5);
    assert_eq!(reply.status, 429, "{reply:?}");
    assert_eq!(fields(&reply), ["over=hard", "hard", "429"]);
    let wait: u64 = reply.field("retry-after").unwrap().parse().unwrap();
    // A request takes more than the 20 that a minute each brings back.
    assert!((1_100..=1_400).contains(&wait), "{wait}");
    // Nothing was charged for it.
    let told = |number: u8| {
        let reply = floors.bridge.ask(&format!("GET /v1/source/198.18.0.{number}"), &[]);
        serde_json::from_str::<Value>(&reply.body).unwrap()
    };
    let both = told(5);
    assert_eq!(both["requests"][0]["left"], 5, "{both}");
    assert_eq!(both["requests"][0]["key"], "source");
    assert_eq!(both["packets"]["limits"][0]["state"]["remaining"], 0, "{both}");
    assert_eq!(told(9)["packets"], Value::Null);
    let get = |arguments: &str| {
        let socket = floors.bridge.socket.display();
        floors.bench.done(&format!("get 198.18.0.5 --bridge unix:{socket} {arguments}")).stdout
    };
    let printed: Value = serde_json::from_str(&get("-j")).unwrap();
    assert_eq!(printed["requests"], both["requests"]);
    let table = get("");
    let row = table.lines().skip_while(|line| !line.starts_with("LIMIT ON REQUESTS")).nth(1);
    assert_eq!(
        row.unwrap().split_whitespace().collect::<Vec<_>>(),
        ["login", "source", "enforce", "5", "5"]
    );
    let alone = floors.bench.json("get 198.18.0.5 --bridge unix:/nowhere/bridge.sock -j");
    assert_eq!(alone["requests"], Value::Null);
    drop(agent);
    let away = told(5);
    assert!(away["packets_unknown"].as_str().unwrap().contains("nobody answers"), "{away}");
    // What it told is kept for a moment.
    let begin = Instant::now();
    let reply = loop {
        let reply = floors.bridge.auth("198.18.0.5", "GET", "/");
        if reply.status == 204 {
            break reply;
        }
        assert!(begin.elapsed() < PATIENCE, "{reply:?}");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(reply.field("x-limiter-source"), None);
}
