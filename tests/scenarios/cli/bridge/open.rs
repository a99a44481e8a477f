//! Limits of open requests: their places, and what tells that a request ended.

use std::{io::Write as _, net::TcpStream, time::Instant};

use super::{proxies::Proxy, *};

/// Three open requests to `/held` for each source. The other limit tells a proxy that it asks the bridge.
const OPEN: &str = "attributes:
  route: { path: { /held: held, /leased: held, /fails: held, /login: login, \"*\": other } }
limits:
  - name: open
    on: requests
    match: { route: held }
    key: source
    algorithm: concurrent
    limit: 3
    idle: 10m
    headers: [ietf, x-ratelimit, retry-after]
  - { name: login, on: requests, match: { route: login }, key: source, rate: 1000/s }
";

/// What the proxies are tried with.
struct Bed<'b> {
    bridge: Bridge,
    proxy: Proxy<'b>,
}

impl Bed<'_> {
    /// Sends a request that the service holds, and waits until it has so many places.
    fn hold(&self, name: &str, open: u64) -> TcpStream {
        let mut stream = self.proxy.connect(2).unwrap();
        stream.write_all(request(&format!("GET /held?{name}"), &[]).as_bytes()).unwrap();
        self.wait_until_open(open);
        stream
    }

    /// Waits until so many requests are open.
    #[track_caller]
    fn wait_until_open(&self, number: u64) {
        let begin = Instant::now();
        while open(&self.bridge) != number {
            assert!(begin.elapsed() < PATIENCE, "{} are open, not {number}", open(&self.bridge));
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets the service answer a request that it holds.
    fn go(&self, name: &str) {
        assert_eq!(self.proxy.get(3, &format!("GET /go?{name}"), &[]).status, 200);
    }

    /// Reads the answer to a request.
    #[track_caller]
    fn answer(&self, stream: &mut TcpStream) {
        assert_eq!(exchange(stream, "").unwrap().status, 200);
    }
}

/// A client that goes away while the answer is held back leaves no place behind.
#[test]
fn an_answer_that_is_held_back_for_nobody_gives_its_place_back() {
    let (bench, document) = (Bench::new(), Document::new(&OPEN.replace("limits:\n", "limits:
  - { name: calm, on: requests, match: { route: held }, key: [source, route], algorithm: leaky_bucket, rate: 1/s, depth: 9, delay: 8s }
")));
    let bridge = Bridge::start(&bench, &document, "");
    let question = request("GET /v1/auth", &["X-Real-IP: 192.0.2.9", "X-Original-URI: /held"]);
    let ask = || {
        let mut stream = bridge.connect();
        stream.write_all(question.as_bytes()).unwrap();
        stream
    };
    let until = |number| {
        let begin = Instant::now();
        while open(&bridge) != number {
            assert!(begin.elapsed() < PATIENCE, "{} are open, not {number}", open(&bridge));
            thread::sleep(Duration::from_millis(5));
        }
    };
    let told = ask();
    until(1);
    let held = ask();
    until(2);
    drop(held);
    until(1);
    drop(told);
}

/// How many requests are open.
fn open(bridge: &Bridge) -> u64 {
    let metrics = bridge.ask("GET /metrics", &[]).body;
    let name = "limiter_requests_open{limit=\"open\",layer=\"1\"} ";
    let number = metrics.lines().find_map(|line| line.strip_prefix(name));
    number.unwrap().parse().unwrap()
}

/// The proxy tells the end of each request, whichever it is: that of its response, of its client, of its service.
fn a_request_has_its_place_until_its_end(name: &str) {
    let (bench, document) = (Bench::new(), Document::new(OPEN));
    let state = document.path().with_file_name("state");
    let more = format!("--state-file {}", state.display());
    let bridge = proxies::bridge_and(&bench, &document, &more);
    let bed = Bed { bridge, proxy: Proxy::start(&bench, &document, name) };
    let mut held: Vec<_> =
        ["a", "b", "c"].iter().zip(1..).map(|(name, open)| bed.hold(name, open)).collect();
    let refused = bed.proxy.get(2, "GET /held?d", &[]);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.field("ratelimit-policy"), Some("\"open\";q=3;qu=\"concurrent-requests\""));
    assert_eq!(refused.field("x-ratelimit-remaining"), Some("0"));
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((590..=760).contains(&wait), "{wait}: the time of a place whose end nobody tells");
    assert_eq!(bed.proxy.get(4, "GET /fails", &[]).status, 500, "another source");
    bed.wait_until_open(3);
    bed.go("b");
    bed.answer(&mut held[1]);
    bed.wait_until_open(2);
    // On the connection of the one that ended, too.
    held[1].write_all(request("GET /held?e", &[]).as_bytes()).unwrap();
    bed.wait_until_open(3);
    assert_eq!(bed.proxy.get(2, "GET /held?f", &[]).status, 429);
    // A client that goes away.
    drop(held.remove(0));
    bed.wait_until_open(2);
    // What was open before a bridge was started is open still, and gives its place back.
    let Bed { bridge, proxy } = bed;
    drop(bridge);
    let bed = Bed { bridge: proxies::bridge_and(&bench, &document, &more), proxy };
    bed.proxy.wait_for_the_bridge();
    assert_eq!(open(&bed.bridge), 2);
    bed.go("c");
    bed.go("e");
    held.iter_mut().for_each(|stream| bed.answer(stream));
    bed.wait_until_open(0);
    // A client may not give places back that it names itself.
    let own = bed.bridge.ask("GET /v1/auth", &["X-Real-IP: 127.0.0.2", "X-Original-URI: /held"]);
    let own = format!("X-Limiter-Lease: {}", own.field("x-limiter-lease").unwrap());
    for target in ["/login", "/fails", "/leased"] {
        let reply = bed.proxy.get(2, &format!("GET {target}"), &[&own]);
        assert_eq!(reply.field("x-limiter-lease"), None, "{reply:?}");
        bed.wait_until_open(1);
    }
}

#[test]
fn a_request_to_nginx_has_its_place_until_its_end() {
    a_request_has_its_place_until_its_end("nginx");
}

#[test]
fn a_request_to_envoy_has_its_place_until_its_end() {
    a_request_has_its_place_until_its_end("envoy");
}

/// The engine of HAProxy knows no later event than the headers of a response.
#[test]
fn a_request_to_haproxy_has_its_place_until_its_response() {
    let (bench, document) = (Bench::new(), Document::new(OPEN));
    let bridge = proxies::bridge(&bench, &document);
    let bed = Bed { bridge, proxy: Proxy::start(&bench, &document, "haproxy") };
    let mut held: Vec<_> =
        ["a", "b", "c"].iter().zip(1..).map(|(name, open)| bed.hold(name, open)).collect();
    assert_eq!(bed.proxy.get(2, "GET /held?d", &[]).status, 429);
    bed.go("b");
    bed.answer(&mut held[1]);
    bed.wait_until_open(2);
    assert_eq!(bed.proxy.get(2, "GET /fails", &[]).status, 500);
    bed.wait_until_open(2);
    // A client that goes away before leaves its place to the `idle` of its limit.
    drop(held.remove(0));
    bed.go("c");
    bed.answer(&mut held[1]);
    bed.wait_until_open(1);
}

/// The service gives the place back, by what the proxy tells it and no client does.
fn a_service_gives_the_place_back(name: &str) {
    let (bench, document) = (Bench::new(), Document::new(OPEN));
    let bridge = proxies::bridge(&bench, &document);
    let bed = Bed { bridge, proxy: Proxy::start(&bench, &document, name) };
    let forged = "X-Limiter-Lease: 0";
    let leases = [1, 2, 3].map(|open| {
        let reply = bed.proxy.get(2, "GET /leased", &[forged]);
        assert_eq!((reply.status, reply.field("x-limiter-lease")), (200, None));
        bed.wait_until_open(open);
        reply.body
    });
    assert_eq!(bed.proxy.get(2, "GET /leased", &[forged]).status, 429);
    for lease in &leases {
        let reply = bed.bridge.ask("POST /v1/release", &[&format!("X-Limiter-Lease: {lease}")]);
        assert_eq!(reply.status, 204, "{reply:?}");
    }
    bed.wait_until_open(0);
    // A request that takes no place has none.
    document.write(&OPEN.replace("/leased: held", "/leased: other"));
    bed.bridge.expect("applied");
    assert_eq!(bed.proxy.get(2, "GET /leased", &[forged]).body, "none");
}

#[test]
fn a_service_behind_caddy_gives_the_place_back() {
    a_service_gives_the_place_back("caddy");
}

#[test]
fn a_service_behind_traefik_gives_the_place_back() {
    a_service_gives_the_place_back("traefik");
}

#[test]
fn a_service_behind_envoy_gives_the_place_back_by_ext_authz() {
    a_service_gives_the_place_back("envoy-ext-authz");
}

#[test]
fn a_place_is_given_back_by_who_may_ask_and_in_no_other_way() {
    let (bench, document) = (Bench::new(), Document::new(OPEN));
    let bridge = Bridge::start(&bench, &document, "");
    let reply = bridge.auth("192.0.2.9", "GET", "/held");
    let lease = format!("X-Limiter-Lease: {}", reply.field("x-limiter-lease").unwrap());
    assert_eq!(reply.field("x-ratelimit-reset"), None, "time gives nothing back");
    assert_eq!(bridge.auth("192.0.2.9", "GET", "/login").field("x-limiter-lease"), None);
    for fields in [vec![], vec!["X-Limiter-Lease: x"], vec![&*lease, &*lease]] {
        let reply = bridge.ask("POST /v1/release", &fields);
        assert!(reply.status == 400 && reply.body.contains("x-limiter-lease"), "{reply:?}");
    }
    assert_eq!(bridge.ask("GET /v1/release", &[&lease]).status, 405);
    assert_eq!(open(&bridge), 1);
    let told: Value =
        serde_json::from_str(&bridge.ask("GET /v1/budget?source=192.0.2.9&path=/held", &[]).body)
            .unwrap();
    let limit = &told["limits"][0];
    assert_eq!((&limit["left"], &limit["window"]), (&2.into(), &0.0.into()));
    for what in ["charge", "refund"] {
        let body = r#"{"limit":"open","request":{"source":"192.0.2.9","path":"/held"},"cost":1}"#;
        let json = ["Content-Type: application/json"];
        let reply = bridge.post(&format!("/v1/{what}"), &json, body);
        assert!(reply.status == 400 && reply.body.contains("/v1/release"), "{reply:?}");
    }
    for _ in 0..2 {
        assert_eq!(bridge.ask("POST /v1/release", &[&lease]).status, 204);
        assert_eq!(open(&bridge), 0);
    }
    let metrics = bridge.ask("GET /metrics", &[]).body;
    assert!(metrics.contains("limiter_requests_released_total 1\n"), "{metrics}");
}

#[test]
fn only_trusted_users_give_places_back() {
    let (bench, document) = (Bench::new(), Document::new(OPEN));
    let command = Bridge::command(&bench, &document, "--trusted nobody").as_nobody();
    let bridge = Bridge::of(command, &document);
    let reply = bridge.ask("POST /v1/release", &["X-Limiter-Lease: 0"]);
    assert!(reply.status == 403 && reply.body.contains("--trusted"), "{reply:?}");
}
