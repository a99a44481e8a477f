//! Sources that a limit refuses for a while, which the real HAProxy answers by a map that the bridge writes.

use std::time::Instant;

use super::{
    proxies::{Proxy, bridge_and},
    *,
};

/// One request of a source, and one each hour. Requests to `/login` have a limit besides.
const HOUR: &str = "limits:
  - { name: login, on: requests, match: { path: /login }, key: source, algorithm: leaky_bucket, rate: 1/h, depth: 1 }
  - { name: all, on: requests, key: source, algorithm: leaky_bucket, rate: 1/h, depth: 2, headers: [ietf, x-ratelimit, retry-after] }
";

/// The bridge and HAProxy, with a map.
struct Bed<'b> {
    bridge: Bridge,
    proxy: Proxy<'b>,
}

impl<'b> Bed<'b> {
    fn new(bench: &'b Bench, document: &Document) -> Self {
        let beside = |name| document.path().with_file_name(name);
        let (socket, map) = (beside("runtime.sock"), beside("held.map"));
        fs::write(&map, "").unwrap();
        let arguments =
            format!("--haproxy-socket unix:{} --haproxy-map {}", socket.display(), map.display());
        let bridge = bridge_and(bench, document, &arguments);
        let proxy = Proxy::start_with(bench, document, "haproxy", &arguments);
        Self { bridge, proxy }
    }

    fn metric(&self, name: &str) -> u64 {
        let metrics = self.bridge.ask("GET /metrics", &[]).body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        assert!(value.is_some(), "no {name} in {metrics}");
        value.unwrap()
    }

    /// How many questions with this answer HAProxy asked.
    fn questions(&self) -> u64 {
        self.metric("limiter_bridge_requests_total{endpoint=\"spop\",code=\"429\"}")
    }

    /// Has `127.0.0.N` be refused until HAProxy does not ask about it any more.
    #[track_caller]
    fn hold(&self, number: u8) {
        until(|| self.proxy.get(number, "GET /", &[]).status == 429);
        self.is_held(number);
    }

    #[track_caller]
    fn is_held(&self, number: u8) {
        until(|| {
            let before = self.questions();
            assert_eq!(self.proxy.get(number, "GET /", &[]).status, 429);
            self.questions() == before
        });
    }
}

/// Waits until something is so.
#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn haproxy_answers_who_is_held_without_the_bridge_until_the_end() {
    let text = HOUR.replace("rate: 1/h, depth: 2", "rate: 6/min, depth: 2");
    let (bench, document) = (Bench::new(), Document::new(&text));
    let mut bed = Bed::new(&bench, &document);
    let told = loop {
        let reply = bed.proxy.get(2, "GET /", &[]);
        if reply.status == 429 {
            break reply;
        }
    };
    bed.is_held(2);
    kill(&mut bed.bridge.process);
    // As the bridge told it, with the time that is left.
    let own = bed.proxy.get(2, "GET /", &[]);
    assert_eq!((own.status, &own.body), (429, &told.body));
    for name in ["content-type", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining"] {
        assert!(
            own.field(name).is_some() && own.field(name) == told.field(name),
            "{name}: {own:?}"
        );
    }
    let seconds = |reply: &Reply, name| reply.field(name).unwrap().parse::<u64>().unwrap();
    let left = seconds(&own, "x-ratelimit-reset");
    assert!((1..=seconds(&told, "x-ratelimit-reset")).contains(&left), "{own:?}");
    assert_eq!(own.field("ratelimit"), Some(&*format!("\"all\";r=0;t={left}")));
    let wait = seconds(&own, "retry-after");
    assert!((left..=left + 1).contains(&wait), "{own:?}");
    let other = bed.proxy.get(3, "GET /", &[]);
    assert_eq!((other.status, other.field("ratelimit")), (200, None), "nobody is asked");
    thread::sleep(Duration::from_secs(wait));
    let passes = bed.proxy.get(2, "GET /", &[]);
    assert_eq!((passes.status, passes.field("retry-after")), (200, None), "{passes:?}");
}

#[test]
fn who_may_pass_by_another_limit_is_asked_about() {
    let (bench, document) = (Bench::new(), Document::new(HOUR));
    let bed = Bed::new(&bench, &document);
    for status in [200, 429, 429] {
        assert_eq!(bed.proxy.get(2, "GET /login", &[]).status, status);
    }
    // By then, the map would have the other one, too.
    bed.hold(3);
    let before = bed.questions();
    assert_eq!(bed.proxy.get(2, "GET /login", &[]).status, 429);
    assert_eq!(bed.questions(), before + 1);
    assert_eq!(bed.proxy.get(2, "GET /", &[]).status, 200);
    assert_eq!(bed.metric("limiter_bridge_haproxy_entries"), 1);
}

/// The kernel cannot block it, as its packets are those of the CDN.
#[test]
fn a_source_behind_a_cdn_is_held_and_no_other() {
    let limit =
        "match: { path: /penalty }, key: source, algorithm: leaky_bucket, rate: 1/h, depth: 1";
    let penalty = "penalty: { after: 1s, block: 1m }";
    let text = format!("{HOUR}  - {{ name: penalty, on: requests, {limit}, {penalty} }}\n");
    let (bench, document) = (Bench::new(), Document::new(&text));
    let bed = Bed::new(&bench, &document);
    let by_cdn = |source: &str, path: &str| {
        let field = format!("X-Test-Source: 192.0.2.1, {source}");
        bed.proxy.get(200, &format!("GET {path}"), &[&field]).status
    };
    assert_eq!([(); 3].map(|()| by_cdn("2001:db8::1", "/")), [200, 200, 429]);
    until(|| {
        let before = bed.questions();
        // Its other addresses are the same source.
        assert_eq!(by_cdn("2001:db8::7", "/"), 429);
        bed.questions() == before
    });
    assert_eq!(["2001:db8:0:1::1", "192.0.2.1"].map(|source| by_cdn(source, "/")), [200; 2]);
    let dropped = || bed.metric("limiter_bridge_pushed_total{result=\"other_source\"}");
    assert_eq!([(); 2].map(|()| by_cdn("192.0.2.2", "/penalty")), [200, 429]);
    assert_eq!(dropped(), 1, "its connection is that of the CDN");
}

#[test]
fn nobody_is_held_any_more_by_another_policy_or_after_a_refund() {
    let (bench, document) = (Bench::new(), Document::new(HOUR));
    let bed = Bed::new(&bench, &document);
    [2, 3].iter().for_each(|number| bed.hold(*number));
    let body = r#"{"limit": "all", "request": {"source": "127.0.0.2"}, "cost": 1}"#;
    let reply = bed.bridge.post("/v1/refund", &["Content-Type: application/json"], body);
    assert_eq!(reply.status, 200, "{reply:?}");
    until(|| bed.proxy.get(2, "GET /", &[]).status == 200);
    // No other entry went with it, as would be seen when one more is written.
    bed.hold(4);
    let before = bed.questions();
    assert_eq!(bed.proxy.get(3, "GET /", &[]).status, 429);
    assert_eq!(bed.questions(), before);
    document.write(&format!("allow: [127.0.0.3]\n{HOUR}"));
    until(|| bed.proxy.get(3, "GET /", &[]).status == 200);
    bed.hold(2);
}

#[test]
fn many_sources_are_held_and_removed_after_their_ends() {
    let text = HOUR.replace("rate: 1/h, depth: 2", "rate: 12/min, depth: 1");
    let (bench, document) = (Bench::new(), Document::new(&text));
    let bed = Bed::new(&bench, &document);
    let sources = 150;
    for at in 0..sources {
        let field = format!("X-Test-Source: 2001:db8:{at:x}::1");
        for _ in 0..2 {
            bed.proxy.get(200, "GET /", &[&field]);
        }
    }
    let entries = || bed.metric("limiter_bridge_haproxy_entries");
    let pushed = |result: &str| {
        bed.metric(&format!("limiter_bridge_haproxy_pushed_total{{result=\"{result}\"}}"))
    };
    until(|| pushed("written") >= sources / 2);
    until(|| entries() == 0);
    assert_eq!(["failed", "full", "queue_full"].map(pushed), [0; 3]);
    bed.hold(2);
}

#[test]
fn haproxy_may_be_away_and_begin_anew() {
    let (bench, document) = (Bench::new(), Document::new(HOUR));
    let mut bed = Bed::new(&bench, &document);
    bed.hold(2);
    let Bed { bridge, proxy } = &mut bed;
    proxy.restart(|| {
        document.write(&format!("{HOUR}# The map is cleared for another policy.\n"));
        let away = loop {
            let event = bridge.next();
            if event["event"] == "haproxy_away" {
                break event;
            }
        };
        assert!(away["message"].as_str().unwrap().contains("runtime.sock"), "{away}");
        assert!(away["hint"].as_str().unwrap().contains("stats socket"), "{away}");
        assert_eq!(bridge.auth("127.0.0.2", "GET", "/").status, 429);
        assert_eq!(bridge.auth("127.0.0.9", "GET", "/").status, 204);
    });
    assert_eq!(bridge.expect("haproxy_back")["event"], "haproxy_back");
    bed.is_held(2);
    // It loses the map without the bridge.
    bed.proxy.restart(|| ());
    bed.is_held(2);
}
