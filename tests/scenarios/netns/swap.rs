//! A policy is applied again and again while frames come as fast as possible.

use std::time::Duration;

use super::{Net, v4};
use crate::cli::Document;

const APPLIES: usize = 1_000;
/// More than can be sent.
const FULL_RATE: u64 = 10_000_000;

/// Each frame of the client either matches the limit or its source is denied.
fn policy(rate: &str, denied: &str) -> Document {
    Document::new(&format!(
        "deny: [{denied}]
limits:
  - name: source
    match: {{ protocol: udp, ports: 9 }}
    key: source
    rate: {rate}
    burst: 200"
    ))
}

#[test]
fn a_thousand_applies_under_full_rate_traffic_lose_nothing() {
    let net = Net::attached("");
    let policies = [policy("2k pps", "198.18.0.12"), policy("1k pps", "198.18.0.11")];
    let applies = policies.each_ref().map(|policy| policy.in_place("policy apply FILE"));
    net.run(&applies[0]);
    let mut senders = [10, 11, 12].map(|number| net.sender(FULL_RATE, net.udp(v4(number))));
    let (sent, arrivals) = net.flood(&mut senders, Duration::from_secs(240), |stop| {
        for number in 1..=APPLIES {
            net.run(&applies[number % 2]);
        }
        stop.stop();
    });

    let status = net.json("status -j");
    let reason = |name: &str| status["reasons"][name].as_u64().unwrap();
    let limits = status["limits"].as_array().unwrap();
    let limit = limits.iter().find(|limit| limit["name"] == "source").unwrap();
    let limited = |name: &str| limit[name].as_u64().unwrap();
    let all: u64 = sent.iter().map(|sent| sent.packets).sum();
    println!("{APPLIES} applies in {:?}: {all} frames, {}", sent[0].time, status["reasons"]);
    // Each frame was decided by one of the policies and counted once.
    assert_eq!(reason("deny") + limited("conform") + limited("exceed"), all);
    assert_eq!(reason("exceed"), limited("exceed"));
    assert_eq!(reason("contended"), 0);
    // All passed frames arrived, and no apply gave a source more tokens.
    let passed: Vec<u64> = (10..=12).map(|number| arrivals.from(v4(number)).packets).collect();
    assert_eq!(passed.iter().sum::<u64>(), limited("conform"));
    for (number, (sent, passed)) in (10..=12).zip(sent.iter().zip(&passed)) {
        let source = format!("198.18.0.{number}");
        assert_eq!(net.counted(&source), (*passed, sent.packets - passed), "{source}");
    }
    // One rate holds for half of the time, the other for the other half. A bucket refills while its source is
    // denied.
    let most = 200.0 + 2e3 * sent[0].time.as_secs_f64() + 2.0;
    assert!(passed.iter().all(|passed| (1.0..=most).contains(&(*passed as f64))), "{passed:?}");
}
