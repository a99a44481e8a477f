//! What HTTP tells the bridge: a query, header lines and a body of JSON. Any bytes are a request, or are told what is wrong with
//! them, and what is decided about fits its limits.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use limiter_userspace::{
    bridge::{decide::Decider, http::read, table::Table},
    policy::{Policy, document::parse_with_warnings},
};

const DOCUMENT: &[u8] = br#"version: 1
attributes:
  user: { header: x-user-id }
  key: { header: authorization, digest: true }
  session: { cookie: sid }
  route: { path: { /login: login, "/v1/*": api, "*": other } }
deny: [198.51.100.0/24]
limits:
  - { name: login, on: requests, match: { route: login, method: POST }, key: [source, user], rate: 5/min, burst: 5, idempotency: { window: 5m } }
  - { name: queue, on: requests, key: session, algorithm: leaky_bucket, rate: 10/s, depth: 6, delay: 500ms }
  - { name: window, on: requests, key: [key, host], algorithm: sliding_window, limit: 100, window: 1h }
  - { name: fixed, on: requests, key: user, cost: { default: 2, by: route, values: { api: 5 } }, algorithm: fixed_window, limit: 50, window: 1s }
  - { name: log, on: requests, key: path, algorithm: sliding_log, limit: 100, window: 1min }
  - { name: open, on: requests, key: host, algorithm: concurrent, limit: 100, idle: 1s }
"#;

thread_local! {
    static BRIDGE: RefCell<(Decider, Policy, u64)> = RefCell::new(bridge());
}

fn bridge() -> (Decider, Policy, u64) {
    let mut files = |_: &str| Ok(Vec::new());
    let (policy, _) = parse_with_warnings("policy.yaml", DOCUMENT, 0, &mut files).unwrap();
    (Decider::new(&policy, Table::in_memory(1_024)).unwrap(), policy, 1_000_000_000_000)
}

fuzz_target!(|text: &[u8]| {
    // The query, header lines, an empty line, and the body.
    let mut lines = text.split(|byte| *byte == b'\n');
    let query = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let headers = lines.by_ref().take_while(|line| !line.is_empty());
    let headers: Vec<(&[u8], &[u8])> = headers
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
        .collect();
    let body = lines.collect::<Vec<_>>().join(&b'\n');
    BRIDGE.with_borrow_mut(|(decider, policy, now)| {
        *now += 1_000_000;
        read(decider, policy, &query, &headers, &body, *now);
    });
});
