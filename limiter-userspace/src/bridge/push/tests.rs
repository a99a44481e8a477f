use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::mpsc::channel,
    thread,
};

use super::*;
use crate::{
    bridge::table::Table,
    policy::model::{Field, Penalty as PenaltyModel, Proxied, RequestKeyPart, Unproven},
};

/// A policy with a limit whose penalty begins at once.
fn policy() -> Policy {
    policy_of(Proxied::Spare)
}

fn policy_of(proxied: Proxied) -> Policy {
    let mut limit = RequestLimit::new("login", &[RequestKeyPart::Source]);
    let unproven = Unproven::Ignore;
    let [after, block, max] = [SECOND, 60 * SECOND, 3600 * SECOND];
    limit.penalty = Some(PenaltyModel { after, block, backoff: 2, max, unproven, proxied });
    Policy { on_requests: vec![limit], ..Policy::default() }
}

fn connection(number: u8) -> Connection {
    let remote = ([192, 0, 2, number], 51_812).into();
    Connection { remote, local: ([198, 51, 100, 1], 443).into() }
}

impl Pusher {
    /// Has a peer go on for as long as it takes.
    fn go_on(&self, number: u8) {
        let (policy, connection) = (policy(), connection(number));
        let now = query::now();
        for at in [SECOND, SECOND, 0].map(|before| now.saturating_sub(before)) {
            let limit = &policy.on_requests[0];
            let refusal = Refusal {
                source: connection.remote.ip(),
                is_proxied: false,
                key: Some(1),
                wait: 60 * SECOND,
            };
            drop(self.refused(&policy, limit, &refusal, connection, at));
        }
    }

    fn count(&self, result: &str) -> u64 {
        let text = self.families()[0].to_string();
        let line = format!("limiter_bridge_pushed_total{{result=\"{result}\"}} ");
        let found = text.lines().find_map(|it| it.strip_prefix(&line));
        found.map_or(0, |count| count.parse().unwrap())
    }
}

#[test]
fn a_source_that_is_not_the_peer_is_never_pushed() {
    let (pusher, mut queue) = Pusher::new([1, 2]);
    let (policy, connection) = (policy(), connection(1));
    let now = query::now();
    for at in [SECOND, SECOND, 0].map(|before| now.saturating_sub(before)) {
        let source = "203.0.113.7".parse().unwrap();
        let limit = &policy.on_requests[0];
        let refusal = Refusal { source, is_proxied: false, key: Some(1), wait: u64::MAX };
        let pushed = pusher.refused(&policy, limit, &refusal, connection, at);
        assert!(pushed.is_none());
    }
    queue.0.try_recv().unwrap_err();
    assert_eq!(pusher.count("other_source"), 3);
}

#[test]
fn a_peer_with_the_fields_of_a_proxy_is_pushed_only_if_the_penalty_says_so() {
    for (proxied, is_pushed) in [(Proxied::Spare, false), (Proxied::Block, true)] {
        let (pusher, mut queue) = Pusher::new([1, 2]);
        let (policy, connection) = (policy_of(proxied), connection(1));
        let now = query::now();
        for at in [SECOND, SECOND, 0].map(|before| now.saturating_sub(before)) {
            let source = connection.remote.ip();
            let refusal = Refusal { source, is_proxied: true, key: Some(1), wait: u64::MAX };
            drop(pusher.refused(&policy, &policy.on_requests[0], &refusal, connection, at));
        }
        assert_eq!(queue.0.try_recv().is_ok(), is_pushed, "{proxied:?}");
        assert_eq!(pusher.count("proxied"), if is_pushed { 0 } else { 3 }, "{proxied:?}");
    }
}

#[test]
fn a_refusal_without_a_connection_is_counted_by_why_there_is_none() {
    let (pusher, _queue) = Pusher::new([1, 2]);
    pusher.refused_unknown(false);
    pusher.refused_unknown(true);
    assert_eq!(["no_peer", "elsewhere"].map(|result| pusher.count(result)), [1, 1]);
}

/// 20 keys in turn, refused for a minute each: pages of one client, or users behind one address.
#[test]
fn a_peer_of_many_keys_is_pushed_only_if_they_have_its_address() {
    let field = || RequestKeyPart::Field(Field::Path);
    for (parts, is_one) in [(vec![RequestKeyPart::Source, field()], true), (vec![field()], false)] {
        let (pusher, mut queue) = Pusher::new([1, 2]);
        let (mut policy, connection) = (policy(), connection(1));
        policy.on_requests[0].key.parts = parts;
        let begin = query::now();
        for step in 0..200 {
            let refusal = Refusal {
                source: connection.remote.ip(),
                is_proxied: false,
                key: Some(step % 20),
                wait: 60 * SECOND,
            };
            let (limit, now) = (&policy.on_requests[0], begin + step * SECOND / 50);
            drop(pusher.refused(&policy, limit, &refusal, connection, now));
        }
        assert_eq!((queue.0.try_recv().is_ok(), pusher.count("shared") > 0), (is_one, !is_one));
    }
}

#[test]
fn a_queue_that_is_full_takes_no_more_and_counts_it() {
    let (pusher, mut queue) = Pusher::new([1, 2]);
    let push = || Push::new(connection(1), "login".to_owned(), 0).0;
    while pusher.queue.try_send(push()).is_ok() {}
    pusher.go_on(7);
    assert_eq!((queue.0.len(), pusher.count("queue_full")), (QUEUE, 1));
    queue.0.try_recv().unwrap();
    pusher.go_on(8);
    assert_eq!((queue.0.len(), pusher.count("queue_full")), (QUEUE, 1));
}

#[test]
fn a_block_has_the_time_that_is_left_of_it() {
    let (mut push, _) = Push::new(connection(9), "login".to_owned(), 60 * SECOND);
    let json = |push: &Push, now| serde_json::to_value(push.penalty(now)).unwrap();
    let expected = serde_json::json!({
        "subject": "192.0.2.9",
        "for": 60,
        "reason": "requests over a limit",
        "limit": "login",
        "proof": { "remote": "192.0.2.9:51812", "local": "198.51.100.1:443" },
    });
    assert_eq!(json(&push, 0), expected);
    assert_eq!(json(&push, 9 * SECOND + 1)["for"], 51);
    // One that is over ends at once, and none is longer than the agent takes.
    assert_eq!(json(&push, 61 * SECOND)["for"], 1);
    push.until = u64::MAX / 2;
    assert_eq!(json(&push, 0)["for"], 86_400);
}

/// An agent that answers blocks, one on each of its connections, and knows nothing of sources.
fn agent(path: PathBuf, answers: &'static [&'static str]) -> std::sync::mpsc::Receiver<String> {
    const UNKNOWN: &str = "HTTP/1.1 404 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let listener = UnixListener::bind(path).unwrap();
    let (sender, asked) = channel();
    thread::spawn(move || {
        let mut answers = answers.iter();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut text = String::new();
            let mut bytes = [0; 4096];
            while !(text.ends_with(']') || text.starts_with("GET ") && text.ends_with("\r\n\r\n")) {
                let length = stream.read(&mut bytes).unwrap();
                text.push_str(str::from_utf8(&bytes[..length]).unwrap());
            }
            if text.starts_with("GET ") {
                stream.write_all(UNKNOWN.as_bytes()).unwrap();
                continue;
            }
            let Some(answer) = answers.next() else { break };
            stream.write_all(answer.as_bytes()).unwrap();
            sender.send(text).unwrap();
        }
    });
    asked
}

#[test]
fn blocks_reach_an_agent_that_was_away_and_their_results_are_counted() {
    const REFUSES: &str =
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
    const BUSY: &str = "HTTP/1.1 503 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    const BLOCKS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 74\r\nConnection: close\r\n\r\n\
        [{\"result\":\"blocked\",\"seconds\":60},{\"result\":\"sp\\u0000am\",\"seconds\":null}]";
    let folder = std::env::temp_dir().join(format!("limiter-push-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("agent.sock");
    let in_force = Arc::new(InForce::new(policy(), Table::in_memory(1_024)).unwrap());
    let (pusher, queue) = Pusher::new([1, 2]);
    let pusher = Arc::new(pusher);
    let (events, mut told) = mpsc::channel(16);
    let link = Arc::new(Link::new(events));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut next = async || told.recv().await.unwrap().to_string();
        for number in [1, 2] {
            pusher.go_on(number);
        }
        // This one waited for too long.
        let queued = Instant::now().checked_sub(OLDEST).unwrap();
        let (push, pushed) = Push::new(connection(4), String::new(), 0);
        let late = Push { queued, ..push };
        pusher.queue.try_send(late).unwrap();
        let client = Client::new(&path);
        tokio::spawn(queue.hand_on(client, Arc::clone(&pusher), in_force, Arc::clone(&link)));
        assert!(next().await.contains("nobody answers at unix:"));
        assert!(link.fault().is_some());
        // One that comes to nothing keeps nobody waiting, and the others waited for it.
        pushed.settle().await;
        let asked = agent(path.clone(), &[BUSY, BLOCKS, REFUSES]);
        assert_eq!(next().await, "192.0.2.1 went on over login: blocked, for 60 s");
        assert_eq!(next().await, "192.0.2.2 went on over login: spam");
        assert_eq!(next().await, "the agent answers");
        assert!(link.fault().is_none());
        let asked = asked.recv().unwrap();
        assert!(asked.starts_with("POST /v1/penalties HTTP/1.1\r\n"), "{asked}");
        pusher.go_on(3);
        assert!(next().await.contains("the answer is 403 Forbidden: no"));
    });
    for (result, count) in [("blocked", 1), ("other", 1), ("refused", 1), ("late", 1)] {
        assert_eq!(pusher.count(result), count, "{result}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
