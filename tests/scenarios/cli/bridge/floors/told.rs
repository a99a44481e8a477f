//! What limits on packets have left for a source, behind real proxies.

use limiter_tests::traffic::connect_from;

use super::*;

/// A client is over the limit by its UDP, which is dropped, and its requests reach the proxy.
const OVER: &str = "limits:
  - { name: hard, match: { protocol: udp }, key: source, rate: 1/min, burst: 40, precise: true, requests: enforce }
  - { name: login, on: requests, match: { path: /login }, key: source, rate: 100/s }
";

impl Floors {
    /// The answer to a request of a client with the address `198.18.0.N`.
    #[track_caller]
    fn get(&self, number: u8, target: &str, fields: &[&str]) -> Reply {
        let hosts = &self.bench.hosts;
        let (from, to) = (([198, 18, 0, number], 0).into(), (hosts.router_port.v4, 8080).into());
        let connect = || connect_from(from, to);
        let mut stream = hosts.client.namespace.inside(connect).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let fields = [fields, &["Connection: close"]].concat();
        exchange(&mut stream, request(&format!("GET {target}"), &fields)).unwrap()
    }

    /// The same once the agent told of its source in time. On a busy machine it may take longer than the bridge waits for it.
    #[track_caller]
    fn get_told(&self, number: u8, target: &str, fields: &[&str]) -> Reply {
        let begin = Instant::now();
        loop {
            let before = self.metric("limiter_bridge_sources_total{result=\"unknown\"}");
            let reply = self.get(number, target, fields);
            if self.metric("limiter_bridge_sources_total{result=\"unknown\"}") == before {
                return reply;
            }
            assert!(begin.elapsed() < PATIENCE, "the agent was late each time");
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A source that the kernel has too little left for is refused, and another one is not.
fn the_kernel_refuses_behind(name: &str) {
    let floors = Floors::new(OVER);
    let _agent = floors.agent();
    let _proxy = floors.proxy(name);
    send(&floors.bench, [198, 18, 0, 5], 50);
    let refused = floors.get_told(5, "/other", &[]);
    assert_eq!(refused.status, 429, "{refused:?}");
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    // A request takes more than the 20 that a minute each brings back.
    assert!((1_000..=1_400).contains(&wait), "{wait}");
    assert!(refused.field("content-type").unwrap().starts_with("application/problem+json"));
    let problem: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"][0], "hard", "{problem}");
    assert_eq!(floors.get_told(4, "/other", &[]).status, 200);
}

#[test]
fn the_kernel_refuses_behind_envoy() {
    the_kernel_refuses_behind("envoy");
}

#[test]
fn the_kernel_refuses_behind_envoy_by_ext_authz() {
    the_kernel_refuses_behind("envoy-ext-authz");
}

#[test]
fn the_kernel_refuses_behind_haproxy() {
    the_kernel_refuses_behind("haproxy");
}

/// A service sees what the limit has left, and not what its client says.
fn a_service_is_told_behind(name: &str, is_told: bool) {
    let floors = Floors::new(&OVER.replace("enforce", "advise"));
    let _agent = floors.agent();
    let _proxy = floors.proxy(name);
    send(&floors.bench, [198, 18, 0, 5], 50);
    let forged = "X-Limiter-Source: within=forged;left=1";
    let reply = floors.get_told(5, "/sourced", &[forged]);
    assert_eq!(reply.status, 200, "{reply:?}");
    let expected = if is_told { "over=hard;wait=" } else { "none" };
    assert!(reply.body.starts_with(expected), "{reply:?}");
    let reply = floors.get_told(4, "/sourced", &[forged]);
    assert!(reply.status == 200 && !reply.body.contains("forged"), "{reply:?}");
    assert_eq!(reply.field("x-limiter-source"), None, "a client is told nothing of it");
}

#[test]
fn a_service_behind_nginx_is_told_what_the_kernel_has_left() {
    a_service_is_told_behind("nginx", true);
}

/// Caddy takes the header away.
#[test]
fn a_service_behind_caddy_is_told_nothing_by_its_clients() {
    a_service_is_told_behind("caddy", false);
}

#[test]
fn a_service_behind_envoy_is_told_what_the_kernel_has_left() {
    a_service_is_told_behind("envoy", true);
}

#[test]
fn a_service_behind_envoy_is_told_what_the_kernel_has_left_by_ext_authz() {
    a_service_is_told_behind("envoy-ext-authz", true);
}

#[test]
fn a_service_behind_haproxy_is_told_what_the_kernel_has_left() {
    a_service_is_told_behind("haproxy", true);
}

#[test]
fn a_service_behind_traefik_is_told_what_the_kernel_has_left() {
    a_service_is_told_behind("traefik", true);
}

#[test]
fn a_block_that_was_pushed_is_told_and_refuses() {
    for (requests, status) in [("advise", 204), ("enforce", 429)] {
        let floors = Floors::new(&OVER.replace("enforce", requests));
        let _agent = floors.agent();
        let socket = floors.document.path().with_file_name("agent.sock");
        let block = r#"{"subject": "198.18.0.5", "for": "1h"}"#;
        let head = request("POST /v1/penalties", &[&format!("Content-Length: {}", block.len())]);
        let pushed = exchange(&mut connect_as(socket, 0), head + block).unwrap();
        assert!(pushed.body.contains("\"blocked\""), "{pushed:?}");
        let begin = Instant::now();
        let reply = loop {
            let reply = floors.bridge.auth("198.18.0.5", "GET", "/other");
            if reply.field("x-limiter-source").is_some() {
                break reply;
            }
            assert!(begin.elapsed() < PATIENCE, "{reply:?}");
            thread::sleep(Duration::from_millis(200));
        };
        assert_eq!(reply.status, status, "{reply:?}");
        assert!(reply.field("x-limiter-source").unwrap().starts_with("over=penalty;wait=3"));
        if status == 429 {
            let wait: u64 = reply.field("retry-after").unwrap().parse().unwrap();
            assert!((3_000..=3_960).contains(&wait), "{wait}");
        }
    }
}
