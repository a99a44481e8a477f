//! `/v1/charge` and `/v1/refund`.

use std::time::Instant;

use super::*;

const API: &str = "attributes:
  user: { header: x-user-id }
limits:
  - { name: tokens, on: requests, match: { path: /v1/* }, key: user, rate: 1000/min, burst: 1000 }
  - { name: other, on: requests, key: source, rate: 5/min, burst: 5 }
";

#[test]
fn a_limit_is_charged_after_the_fact_and_gets_back_what_was_not_used() {
    let (bench, document) = (Bench::new(), Document::new(API));
    let bridge = Bridge::start(&bench, &document, "");
    let settle = |what: &str, cost: u64| {
        let body = format!(
            "{{\"limit\":\"tokens\",\"request\":{{\"user\":\"anna\",\"path\":\"/v1/chat\"}},\"cost\":{cost}}}"
        );
        let reply = bridge.post(&format!("/v1/{what}"), &["Content-Type: application/json"], &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        let told: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(told["schema"], format!("limiter.{what}/1"));
        told
    };
    let auth = || {
        let fields = ["X-Real-IP: 192.0.2.9", "X-Original-URI: /v1/chat", "X-User-Id: anna"];
        bridge.ask("GET /v1/auth?deny=429&limit=tokens", &fields)
    };
    assert_eq!(auth().status, 204);
    let told = settle("charge", 5_000);
    assert_eq!((&told["verdict"], &told["limits"][0]["left"]), (&"limited".into(), &0.into()));
    assert_eq!(told["limits"][0]["name"], "tokens");
    let refused = auth();
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 429 && (230..=265).contains(&wait), "{refused:?}");
    let told = settle("refund", 4_900);
    assert_eq!(told["verdict"], "pass");
    assert_eq!(auth().status, 204);
    assert_eq!(settle("refund", 1_000_000)["limits"][0]["left"], 1_000, "never more than it has");
}

#[test]
fn what_is_no_charge_is_told_what_is_wrong() {
    let (bench, document) = (Bench::new(), Document::new(API));
    let bridge = Bridge::start(&bench, &document, "");
    let json = "Content-Type: application/json; charset=utf-8";
    let whole = r#"{"limit":"tokens","request":{"user":"a","path":"/v1/x"},"cost":1}"#;
    for (fields, body, status, detail) in [
        (vec![json], whole.to_owned(), 200, "limiter.charge/1"),
        (vec![], whole.to_owned(), 415, "application/json"),
        (vec!["Content-Type: text/plain"], whole.to_owned(), 415, "application/json"),
        (vec![json], String::new(), 400, "the body is wrong"),
        (vec![json], "{".to_owned(), 400, "the body is wrong"),
        (vec![json], whole.replace("tokens", "tokes"), 400, "the limits on requests are tokens"),
        (vec![json], whole.replace(":1}", ":0}"), 400, "from 1 to"),
        (vec![json], whole.replace(":1}", ":-1}"), 400, "the body is wrong"),
        (vec![json], whole.replace(":1}", ":1,\"x\":1}"), 400, "unknown field `x`"),
        (vec![json], whole.replace("user", "usr"), 400, "there are limit, cost"),
        (vec![json], whole.replace("/v1/x", "/"), 400, "is not about such a request"),
        (vec![json], whole.replace("\"user\":\"a\",", ""), 400, "is not about such a request"),
        (vec![json], " ".repeat(66_000), 413, "65536 bytes"),
        (vec![json], "[".repeat(60_000), 400, "the body is wrong"),
    ] {
        let reply = bridge.post("/v1/charge", &fields, &body);
        let shown = body.chars().take(80).collect::<String>();
        assert!(
            reply.status == status && reply.body.contains(detail),
            "{fields:?} {shown}: {reply:?}"
        );
    }
    assert_eq!(bridge.ask("GET /v1/charge", &[]).status, 405);
    // One that is not sent is not waited for.
    let mut stream = bridge.connect();
    let begun = request("POST /v1/refund", &[json, "Content-Length: 100"]);
    let begin = Instant::now();
    let reply = exchange(&mut stream, begun).unwrap();
    assert!(reply.status == 408 && begin.elapsed() < PATIENCE, "{reply:?}");
}

#[test]
fn only_trusted_users_charge() {
    let (bench, document) = (Bench::new(), Document::new(API));
    let command = Bridge::command(&bench, &document, "--trusted nobody").as_nobody();
    let bridge = Bridge::of(command, &document);
    for path in ["/v1/charge", "/v1/refund"] {
        let reply = bridge.post(path, &["Content-Type: application/json"], "{}");
        assert!(reply.status == 403 && reply.body.contains("--trusted"), "{reply:?}");
    }
}
