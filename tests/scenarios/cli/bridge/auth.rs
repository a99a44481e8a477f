//! `/v1/auth` and `/v1/budget` without a proxy: limits, wrong requests, bounds, and who is answered.

use std::{
    io::{self, Read as _, Write as _},
    mem,
    os::unix::net::UnixStream,
    time::Instant,
};

use limiter_tests::process::terminate;
use serde_json::Value;

use super::*;

#[test]
fn a_source_is_refused_beyond_its_limit_and_told_when_to_come_back() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = Bridge::start(&bench, &document, "");
    for left in ["2", "1", "0"] {
        let reply = bridge.auth("192.0.2.9", "POST", "/login");
        assert_eq!((reply.status, reply.field("x-ratelimit-remaining")), (204, Some(left)));
        assert_eq!(reply.field("ratelimit-policy"), Some("\"login\";q=3;w=30"));
        assert_eq!(reply.field("retry-after"), None);
        assert_eq!(reply.field("content-type"), None);
    }
    let refused = bridge.auth("192.0.2.9", "GET", "/%6cogin?x");
    assert_eq!((refused.status, refused.field("x-limiter-status")), (429, Some("429")));
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((10..=11).contains(&wait), "{wait}");
    assert_eq!(refused.field("ratelimit"), Some("\"login\";r=0;t=10"));
    assert_eq!(refused.field("content-type"), Some("application/problem+json"));
    let problem: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"][0], "login");
    // Without the parameter, the status is one that nginx takes.
    let fields = ["X-Real-IP: 192.0.2.9", "X-Original-URI: /login"];
    let as_403 = bridge.ask("POST /v1/auth", &fields);
    assert_eq!((as_403.status, as_403.field("x-limiter-status")), (403, Some("429")));
    assert_eq!(bridge.auth("192.0.2.10", "POST", "/login").status, 204);
    let other = bridge.auth("192.0.2.9", "POST", "/other");
    assert_eq!((other.status, other.field("ratelimit")), (204, None));
    let denied = bridge.auth("127.0.0.66", "GET", "/");
    assert_eq!((denied.status, denied.field("x-limiter-status")), (403, Some("403")));
    assert_eq!(denied.field("retry-after"), None);
}

/// So clients that were refused together do not come back together.
#[test]
fn clients_are_not_all_told_to_come_back_at_once() {
    let text = "limits: [{name: slow, on: requests, key: source, algorithm: leaky_bucket, rate: 1/h, depth: 1}]";
    let (bench, document) = (Bench::new(), Document::new(text));
    let bridge = Bridge::start(&bench, &document, "");
    let wait = |number: u8| {
        let source = format!("192.0.2.{number}");
        assert_eq!(bridge.auth(&source, "GET", "/").status, 204);
        let wait = bridge.auth(&source, "GET", "/").field("retry-after").unwrap().parse();
        let wait: u64 = wait.unwrap();
        // Some time passed since the first one.
        assert!((3_500..=3_960).contains(&wait), "{wait}");
        wait
    };
    let waits: Vec<u64> = (0..12).map(wait).collect();
    assert!(waits.iter().max().unwrap() - waits.iter().min().unwrap() > 20, "{waits:?}");
}

#[test]
fn a_question_charges_nothing_and_a_cost_charges_more() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = Bridge::start(&bench, &document, "");
    let fields = ["X-Real-IP: 192.0.2.9", "X-Original-URI: /login"];
    let left = |reply: Reply| reply.field("x-ratelimit-remaining").unwrap().to_owned();
    for _ in 0..5 {
        let peek = bridge.ask("GET /v1/auth?peek=1", &fields);
        assert_eq!((peek.status, &*left(peek)), (204, "3"));
    }
    assert_eq!(left(bridge.ask("GET /v1/auth?cost=2", &fields)), "1");
    assert_eq!(bridge.ask("GET /v1/auth?cost=2", &fields).status, 403);
    let budget = bridge.ask("GET /v1/budget?limit=login&source=192.0.2.9&path=/login", &[]);
    let told: Value = serde_json::from_str(&budget.body).unwrap();
    assert_eq!((&told["schema"], &told["verdict"]), (&"limiter.budget/1".into(), &"pass".into()));
    assert_eq!((&told["limits"][0]["left"], &told["limits"][0]["quota"]), (&1.into(), &3.into()));
    // What can never pass has no time.
    let never = bridge.ask("GET /v1/auth?cost=4&deny=429", &fields);
    assert_eq!((never.status, never.field("retry-after")), (429, None));
}

#[test]
fn only_the_limits_that_are_named_are_asked() {
    let more = "  - { name: all, on: requests, key: source, algorithm: leaky_bucket, rate: 1/min, depth: 1 }\n";
    let (bench, document) = (Bench::new(), Document::new(&format!("{LOGIN}{more}")));
    let bridge = Bridge::start(&bench, &document, "");
    let fields = ["X-Real-IP: 192.0.2.9", "X-Original-URI: /login"];
    let status = |query: &str| bridge.ask(&format!("GET /v1/auth{query}"), &fields).status;
    assert_eq!([status(""), status("")], [204, 403]);
    let login = "?limit=login";
    assert_eq!([status(login), status(login), status(login)], [204, 204, 403]);
    assert_eq!([status("?limit=all"), status("?limit=login&limit=all")], [403, 403]);
    assert_eq!(status("?limit=nothing"), 400);
    let budget = bridge.ask("GET /v1/budget?limit=all&source=192.0.2.9&path=/login", &[]);
    let told: Value = serde_json::from_str(&budget.body).unwrap();
    assert_eq!(told["limits"].as_array().unwrap().len(), 1, "{told}");
}

#[test]
fn a_wrong_request_is_told_what_is_wrong() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = Bridge::start(&bench, &document, "");
    let source = "X-Real-IP: 192.0.2.9";
    for (line, fields, status, detail) in [
        ("GET /v1/auth", vec![], 400, "tells no source"),
        ("GET /v1/auth", vec![source, source], 400, "several headers X-Real-IP"),
        ("GET /v1/auth", vec!["X-Real-IP: 192.0.2.9, 10.0.0.1"], 400, "which is no address"),
        (
            "GET /v1/auth",
            vec![source, "X-Original-URI: /", "X-Forwarded-Uri: /"],
            400,
            "both X-Original",
        ),
        (
            "GET /v1/auth",
            vec![source, "X-Original-URI: /", "X-Original-URI: /"],
            400,
            "several headers x-original-uri",
        ),
        ("GET /v1/auth?deny=200", vec![source], 400, "give 403 or 429"),
        ("GET /v1/auth?cost=0", vec![source], 400, "from 1 to"),
        ("GET /v1/auth?cosst=1", vec![source], 400, "there are deny"),
        ("GET /v1/budget?limit=nothing", vec![], 400, "the limits on requests are login"),
        ("GET /v1/budget?user=7", vec![], 400, "there are limit, cost"),
        ("POST /v1/budget", vec![], 405, "GET"),
        ("POST /metrics", vec![], 405, "GET"),
        ("GET /", vec![], 404, "/v1/auth"),
    ] {
        let reply = bridge.ask(line, &fields);
        let problem: Value = serde_json::from_str(&reply.body).unwrap();
        let told = problem["detail"].as_str().unwrap();
        assert!(reply.status == status && told.contains(detail), "{line} {fields:?}: {reply:?}");
    }
    for path in ["/healthz", "/readyz"] {
        let reply = bridge.ask(&format!("GET {path}"), &[]);
        assert_eq!((reply.status, &*reply.body), (200, "ok\n"));
    }
}

/// The service may go by another of several values than the limits, or by another path.
#[test]
fn what_is_ambiguous_is_refused() {
    let document = Document::new(
        "attributes: {user: {header: x-user-id}, session: {cookie: sid}}
limits:
  - {name: user, on: requests, match: {path: /a*}, key: user, rate: 1/h, burst: 1}
  - {name: session, on: requests, match: {method: POST}, key: session, rate: 1/h, burst: 1}",
    );
    let bench = Bench::new();
    let bridge = Bridge::start(&bench, &document, "");
    let [source, path, method] =
        ["X-Real-IP: 192.0.2.9", "X-Original-URI: /a", "X-Original-Method: POST"];
    let ask = |fields: &[&str]| bridge.ask("GET /v1/auth", &[&[source], fields].concat());
    for (fields, words) in [
        (vec![path, method, "X-User-Id:", "X-User-Id: 7"], "several \"headers x-user-id\""),
        (vec![path, method, "Cookie: sid=; sid=7"], "several \"cookies sid\""),
        (vec![path, method, "Cookie: sid=1", "Cookie: a=1; sid=7"], "several \"cookies sid\""),
        (vec!["X-Original-URI: /b/../a", method], "services understand differently"),
        (vec!["X-Original-URI: /b%2f..%2fa", method], "services understand differently"),
        (vec![method], "the proxy tells no path"),
        (vec![path], "the proxy tells no method"),
    ] {
        let reply = ask(&fields);
        assert!(
            reply.status == 400 && reply.body.contains(&words.replace('"', "\\\"")),
            "{fields:?}: {reply:?}"
        );
    }
    assert_eq!(ask(&[path, method, "X-User-Id: 7", "Cookie: b=sid; sid=7"]).status, 204);
}

/// One `Idempotency-Key` of two may be that of the service, and the other that of the limits.
#[test]
fn a_request_that_is_sent_again_is_charged_once() {
    let document = Document::new(
        "limits: [{name: pay, on: requests, key: source, algorithm: leaky_bucket, rate: 1/h, depth: 5, idempotency: {window: 5m}}]",
    );
    let bench = Bench::new();
    let state = format!("--state-file {}", document.path().with_file_name("state").display());
    let mut bridge = Bridge::start(&bench, &document, &state);
    let pay = |bridge: &Bridge, more: &[&str]| {
        let fields = ["X-Real-IP: 192.0.2.9", "X-Original-Method: POST", "X-Original-URI: /pay"];
        bridge.ask("GET /v1/auth", &[&fields, more].concat())
    };
    // What was charged before a restart is not charged again after it.
    let before = "Idempotency-Key: 1f2e3d4c";
    let is_charged_once = |reply: Reply| reply.field("ratelimit").unwrap().contains(";r=4;");
    assert!(is_charged_once(pay(&bridge, &[before])));
    assert!(terminate(&mut bridge.process).unwrap().success());
    let mut bridge = Bridge::start(&bench, &document, &state);
    assert!(is_charged_once(pay(&bridge, &[before])));
    // Nor after one that killed the bridge: this was the first repeat.
    wait_for_handover(&document.path().with_file_name("state"), |kept| kept["repeats"][0][3] == 1);
    kill(&mut bridge.process);
    let bridge = Bridge::start(&bench, &document, &state);
    assert!(is_charged_once(pay(&bridge, &[before])));
    let known = document.path().with_file_name("state.handover");
    assert!(known.exists(), "another kill before the next change loses nothing either");
    let ask = |more: &[&str]| pay(&bridge, more);
    let key = "Idempotency-Key: 8e03978e";
    let left: Vec<u16> = (0..20).map(|_| ask(&[key]).status).collect();
    assert_eq!(left.iter().filter(|status| **status == 204).count(), 4 + 3, "{left:?}");
    assert_eq!(ask(&[key, key]).status, 400);
    let metrics = bridge.ask("GET /metrics", &[]).body;
    assert!(metrics.contains("{limit=\"pay\",layer=\"1\",result=\"repeat\"} 4\n"), "{metrics}");
}

#[test]
fn nothing_that_is_sent_ends_it() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = Bridge::start(&bench, &document, "");
    let mut state = 7_u64;
    let mut random = |most: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % most
    };
    let whole = request(
        "GET /v1/auth?deny=429&cost=2",
        &["X-Real-IP: 192.0.2.9", "X-Original-URI: /lo%67in/../x?y", "Cookie: a=1; b"],
    );
    for round in 0..400 {
        let mut text = whole.clone().into_bytes();
        for _ in 0..=round % 8 {
            if text.is_empty() {
                break;
            }
            let at = random(text.len());
            match random(3) {
                0 => text[at] = random(256) as u8,
                1 => drop(text.remove(at)),
                _ => text.truncate(at.max(1)),
            }
        }
        let mut stream = bridge.connect();
        stream.write_all(&text).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // It may be reset, as there is something unread.
        let _: io::Result<usize> = stream.read_to_end(&mut Vec::new());
    }
    // More headers, and longer ones, than are read.
    let many: Vec<String> = (0..80).map(|number| format!("X-{number}: 1")).collect();
    let many: Vec<&str> = many.iter().map(|line| &**line).collect();
    assert_eq!(bridge.ask("GET /healthz", &many).status, 431);
    let long = format!("X-Long: {}", "x".repeat(20 << 10));
    let mut stream = bridge.connect();
    let reply = exchange(&mut stream, request("GET /healthz", &[&long]));
    assert!(reply.is_err() || reply.is_ok_and(|reply| reply.status == 431));
    // Who sends no more of its headers is not waited for.
    let mut slow = bridge.connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nX: ").unwrap();
    let begin = Instant::now();
    let _: io::Result<usize> = slow.read_to_end(&mut Vec::new());
    assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
    // Requests of one connection follow each other.
    let mut stream = bridge.connect();
    for _ in 0..3 {
        assert_eq!(exchange(&mut stream, request("GET /healthz", &[])).unwrap().status, 200);
    }
}

#[test]
fn one_connection_too_many_is_answered_at_once() {
    const MOST: usize = 4_096;
    raise_descriptors();
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    let bridge = Bridge::start(&bench, &document, "");
    let all: Vec<UnixStream> = (0..MOST).map(|_| bridge.connect()).collect();
    let mut more = bridge.connect();
    let mut reply = String::new();
    more.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    drop(all);
    let begin = Instant::now();
    while exchange(&mut bridge.connect(), request("GET /healthz", &[]))
        .is_ok_and(|it| it.status == 503)
    {
        assert!(begin.elapsed() < PATIENCE);
    }
    let metrics = bridge.ask("GET /metrics", &[]).body;
    let turned_away = metrics
        .lines()
        .find_map(|line| line.strip_prefix("limiter_bridge_connections_turned_away_total "));
    assert!(turned_away.unwrap().parse::<u64>().unwrap() >= 1, "{metrics}");
}

/// Whoever may not ask takes no place of those who may.
#[test]
fn others_take_no_places_of_those_who_may_ask() {
    raise_descriptors();
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    // Root is another one here, and the process itself is not.
    let command = Bridge::command(&bench, &document, "--trusted nobody --listen 127.0.0.1:9190");
    bench.hosts.router.ip("link set lo up").unwrap();
    let bridge = Bridge::of(command.as_nobody(), &document);
    let all: Vec<UnixStream> = (0..200).map(|_| bridge.connect()).collect();
    let turned_away = all.iter().rev().filter(|stream| {
        let mut reply = String::new();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let _: io::Result<usize> = (&mut &**stream).read_to_string(&mut reply);
        reply.starts_with("HTTP/1.1 503 ")
    });
    assert!(turned_away.take(3).count() == 3);
    let ask = || {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9190));
        let mut stream = std::net::TcpStream::connect(address)?;
        exchange(
            &mut stream,
            request("GET /v1/auth", &["X-Real-IP: 192.0.2.9", "X-Original-URI: /"]),
        )
    };
    let reply = bench.hosts.router.namespace.inside(ask).unwrap().unwrap();
    assert_eq!(reply.status, 204);
}

/// Lets this process have as many descriptors as it may.
fn raise_descriptors() {
    // SAFETY: plain old data, for which zeros are valid.
    let mut limit: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: a structure that outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as before.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

#[test]
fn only_trusted_users_are_answered() {
    let (bench, document) = (Bench::new(), Document::new(LOGIN));
    // Root, which asks, is trusted unless others are.
    let start = |arguments| {
        Bridge::of(Bridge::command(&bench, &document, arguments).as_nobody(), &document)
    };
    let bridge = start("");
    assert_eq!(bridge.auth("192.0.2.9", "GET", "/").status, 204);
    drop(bridge);
    let bridge = start("--trusted nobody --trusted 65533");
    for path in ["GET /v1/auth", "GET /v1/budget"] {
        let reply = bridge.ask(path, &["X-Real-IP: 192.0.2.9"]);
        assert_eq!(reply.status, 403);
        assert!(reply.body.contains("user 0 may not ask") && reply.body.contains("--trusted"));
    }
    assert_eq!(bridge.ask("GET /healthz", &[]).status, 200);
    drop(bridge);
    let outcome = bench
        .run(&document.in_place("bridge --policy FILE --listen unix:/tmp/x.sock --trusted no-such"))
        .outcome()
        .unwrap();
    outcome.assert_exit_code(4).assert_says(&["there is no user \"no-such\"", "hint: "]);
}
