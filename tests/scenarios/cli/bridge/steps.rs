//! What comes before a refusal: requests that are held back, and services that do less.

use std::time::Instant;

use super::{proxies::Proxy, *};

const QUEUE: &str = "limits:
  - { name: queue, on: requests, key: source, algorithm: leaky_bucket, rate: 4/s, depth: 4, delay: 1s,
      degrade: { at: 30% }, headers: [ietf, x-ratelimit, retry-after] }
";

/// Requests that come together leave the proxy one after the other, at the rate of the queue; those beyond its depth are refused.
fn a_queue_lets_out_evenly(name: &str) {
    let (bench, document) = (Bench::new(), Document::new(QUEUE));
    let _bridge = proxies::bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    let begin = Instant::now();
    let mut passed = Vec::new();
    let mut refused = 0;
    thread::scope(|scope| {
        let ask = || {
            let reply = proxy.get(2, "GET /", &[]);
            (reply.status, begin.elapsed())
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        for (status, after) in all.into_iter().map(|it| it.join().unwrap()) {
            assert!([200, 429].contains(&status), "{status}");
            match status {
                200 => passed.push(after),
                _ => refused += 1,
            }
        }
    });
    assert!(passed.len() >= 4 && refused >= 1, "{passed:?}, {refused} refused");
    passed.sort();
    for (at, after) in passed.iter().enumerate() {
        let turn = Duration::from_millis(250) * u32::try_from(at).unwrap();
        assert!(*after >= turn, "{passed:?}");
    }
}

#[test]
fn a_queue_behind_nginx_lets_out_evenly() {
    a_queue_lets_out_evenly("nginx");
}

#[test]
fn a_queue_behind_caddy_lets_out_evenly() {
    a_queue_lets_out_evenly("caddy");
}

#[test]
fn a_queue_behind_envoy_lets_out_evenly_by_ext_authz() {
    a_queue_lets_out_evenly("envoy-ext-authz");
}

#[test]
fn a_queue_behind_traefik_lets_out_evenly() {
    a_queue_lets_out_evenly("traefik");
}

/// The proxy is not made to wait: a request that would have to is refused, and charged nothing.
fn nobody_waits(name: &str) {
    let text = QUEUE.replace("4/s, depth: 4, delay: 1s", "6/min, depth: 2, delay: 10s");
    let (bench, document) = (Bench::new(), Document::new(&text));
    let _bridge = proxies::bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    assert_eq!(proxy.get(2, "GET /", &[]).status, 200);
    for _ in 0..3 {
        let refused = proxy.get(2, "GET /", &[]);
        assert_eq!((refused.status, refused.field("x-ratelimit-remaining")), (429, Some("1")));
        let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
        assert!((1..=11).contains(&wait), "{wait}");
    }
}

#[test]
fn nobody_waits_behind_envoy() {
    nobody_waits("envoy");
}

#[test]
fn nobody_waits_behind_haproxy() {
    nobody_waits("haproxy");
}

/// A client that goes away takes no place any more, and its charge stays.
#[test]
fn nobody_waits_for_a_client_that_is_gone() {
    let text = QUEUE.replace("4/s, depth: 4, delay: 1s", "6/min, depth: 2, delay: 10s");
    let (bench, document) = (Bench::new(), Document::new(&text));
    let bridge = Bridge::start(&bench, &document, "");
    let fields = ["X-Real-IP: 192.0.2.9", "X-Original-URI: /"];
    assert_eq!(bridge.ask("GET /v1/auth", &fields).status, 204);
    let held = || {
        let metrics = bridge.ask("GET /metrics", &[]).body;
        metrics.lines().any(|line| line == "limiter_bridge_held 1")
    };
    let mut waiting = bridge.connect();
    std::io::Write::write_all(&mut waiting, request("GET /v1/auth", &fields).as_bytes()).unwrap();
    let begin = Instant::now();
    while !held() {
        assert!(begin.elapsed() < PATIENCE);
    }
    // Others are answered meanwhile, and those who only ask at once.
    assert_eq!(bridge.ask("GET /v1/auth", &["X-Real-IP: 192.0.2.8"]).status, 204);
    drop(waiting);
    while held() {
        assert!(begin.elapsed() < Duration::from_secs(9), "it waits on");
    }
    let refused = bridge.ask("GET /v1/auth?deny=429", &fields);
    assert!(refused.status == 429 && refused.field("retry-after").is_some(), "{refused:?}");
}

/// The service is told where little is left, and by nobody else.
fn a_service_is_told_to_do_less(name: &str) {
    let text = QUEUE.replace("4/s, depth: 4, delay: 1s", "4/min, depth: 3").replace("30%", "40%");
    let (bench, document) = (Bench::new(), Document::new(&text));
    let _bridge = proxies::bridge(&bench, &document);
    let proxy = Proxy::start(&bench, &document, name);
    let forged = "X-Limiter-Degrade: other";
    // The service answers with what it was told.
    let told = || proxy.get(2, "GET /degraded", &[forged]).body;
    assert_eq!([told(), told(), told()], ["none", "queue", "queue"]);
    assert_eq!(proxy.get(2, "GET /degraded", &[forged]).status, 429);
    let reply = proxy.get(3, "GET /", &[forged]);
    assert_eq!((reply.status, reply.field("x-limiter-degrade")), (200, None));
}

#[test]
fn a_service_behind_nginx_is_told_to_do_less() {
    a_service_is_told_to_do_less("nginx");
}

#[test]
fn a_service_behind_caddy_is_told_to_do_less() {
    a_service_is_told_to_do_less("caddy");
}

#[test]
fn a_service_behind_envoy_is_told_to_do_less() {
    a_service_is_told_to_do_less("envoy");
}

#[test]
fn a_service_behind_envoy_is_told_to_do_less_by_ext_authz() {
    a_service_is_told_to_do_less("envoy-ext-authz");
}

#[test]
fn a_service_behind_haproxy_is_told_to_do_less() {
    a_service_is_told_to_do_less("haproxy");
}

#[test]
fn a_service_behind_traefik_is_told_to_do_less() {
    a_service_is_told_to_do_less("traefik");
}
