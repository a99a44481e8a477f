//! What Envoy asks the bridge: a `RateLimitRequest`. Any bytes are a call, or none, and its answer has a status for each
//! descriptor.

#![no_main]

use std::{cell::RefCell, sync::Arc};

use libfuzzer_sys::fuzz_target;
use limiter_userspace::{
    bridge::{decide::Decider, ratelimit::read, table::Table},
    policy::{Policy, document::parse_with_warnings},
};

const DOCUMENT: &[u8] = br#"version: 1
attributes:
  user: { header: x-user-id }
  key: { descriptor: true, digest: true }
  route: { path: { /login: login, "/v1/*": api, "*": other } }
deny: [198.51.100.0/24]
limits:
  - { name: login, on: requests, match: { route: login, method: POST }, key: [source, user], rate: 5/min, burst: 5 }
  - { name: queue, on: requests, key: user, algorithm: leaky_bucket, rate: 10/s, depth: 6 }
  - { name: window, on: requests, match: { domain: edge }, key: [key, host], algorithm: sliding_window, limit: 100, window: 1h, override: allow }
  - { name: fixed, on: requests, key: user, cost: { default: 2, by: route, values: { api: 5 } }, algorithm: fixed_window, limit: 50, window: 1s }
  - { name: log, on: requests, key: path, algorithm: sliding_log, limit: 100, window: 1min, override: allow }
"#;

thread_local! {
    static BRIDGE: RefCell<(Decider, Arc<Policy>, u64)> = RefCell::new(bridge());
}

fn bridge() -> (Decider, Arc<Policy>, u64) {
    let mut files = |_: &str| Ok(Vec::new());
    let (policy, _) = parse_with_warnings("policy.yaml", DOCUMENT, 0, &mut files).unwrap();
    let decider = Decider::new(&policy, Table::in_memory(1_024)).unwrap();
    (decider, Arc::new(policy), 1_000_000_000_000)
}

fuzz_target!(|message: &[u8]| {
    BRIDGE.with_borrow_mut(|(decider, policy, now)| {
        *now += 1_000_000;
        read(decider, policy, message, *now);
    });
});
