//! What a bridge that ends in order leaves to the next one.

use limiter_tests::process::terminate;

use super::*;

/// The second block is as many times as long as the first one as it can be.
const BACKOFF: &str = "limits:
  - name: login
    on: requests
    match: { path: /login }
    key: source
    algorithm: leaky_bucket
    rate: 1/min
    depth: 3
    penalty: { after: 1s, block: 3s, backoff: 10, max: 1h }
";

#[test]
fn a_peer_that_was_blocked_before_a_restart_is_blocked_for_longer_after_it() {
    let mut floors = Floors::new(BACKOFF);
    let _agent = floors.agent();
    let _proxy = Proxy::start(&floors.bench, &floors.document, "nginx");
    let seconds = |floors: &Floors| {
        floors.go_on(3, "");
        let event = floors.event("pushed", Some("198.18.0.3"));
        event["seconds"].as_f64().unwrap()
    };
    let first = seconds(&floors);
    assert!((1.0..=3.0).contains(&first), "{first}");
    assert!(terminate(&mut floors.bridge.process).unwrap().success());
    floors.bridge = Floors::bridge(&floors.bench, &floors.document);
    let begin = Instant::now();
    while floors.login(3, "").is_none() {
        assert!(begin.elapsed() < PATIENCE, "the first block does not end");
    }
    let second = seconds(&floors);
    assert!(second > 20.0, "{second} s, as if it was the first one");
}
