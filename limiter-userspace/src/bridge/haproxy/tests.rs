use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixListener,
    sync::mpsc::{Receiver, channel},
    thread,
};

use super::{
    super::{
        answer::{Standing, Verdict},
        request::Request,
        table::Table,
    },
    entries::{IN_FLIGHT, MOST, REMOVED, SHORTEST},
    *,
};
use crate::policy::document;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_000 * SECOND;
/// One request of a source at once, and one a minute.
const EACH: &str = "version: 1
limits: [{ name: each, on: requests, key: source, algorithm: leaky_bucket, rate: 1/min, depth: 1 }]
";

fn policy(text: &str) -> Policy {
    document::parse("p", text.as_bytes(), &mut |_| Ok(Vec::new())).unwrap()
}

fn standing(wait: u64) -> Standing {
    let holds = Some(KeyPrefix { ipv4: 32, ipv6: 64 });
    let (limit, layer, quota, window, left) = (0, 0, 3, 30 * SECOND, 0);
    Standing { limit, layer, quota, window, left, wait, refills: wait, holds }
}

fn limited(standing: Standing) -> Answer {
    Answer { verdict: Verdict::Limited, standings: vec![standing], ..Answer::default() }
}

/// A source by its number, which is held for so long from [`NOW`] on.
fn held(source: u32, wait: u64) -> Held {
    Held {
        key: key(IpAddr::from(source.to_be_bytes()), KeyPrefix::default()),
        until: NOW + wait,
        standing: standing(wait),
        policy: Arc::default(),
    }
}

/// How many entries are removed, and how many are added.
fn numbers(changes: Option<Changes>) -> (usize, usize) {
    changes.map(|it| (it.removed.len(), it.added.len())).unwrap()
}

#[test]
fn a_source_has_one_entry_until_its_end() {
    let mut entries = Entries::default();
    let one = || vec![held(1, 10 * SECOND)];
    let short = held(2, SHORTEST - 1);
    assert_eq!(numbers(entries.change([one(), one(), vec![short]].concat(), &[], NOW)), (0, 1));
    // Of requests that were asked about before HAProxy had it.
    assert_eq!(numbers(entries.change(one(), &[], NOW + IN_FLIGHT - 1)), (0, 0));
    // HAProxy lost it. A key that it has twice would be found with its first value.
    assert_eq!(numbers(entries.change(one(), &[], NOW + IN_FLIGHT)), (1, 1));
    assert_eq!(numbers(entries.change(vec![], &[], NOW + 10 * SECOND - 1)), (0, 0));
    assert_eq!(numbers(entries.change(vec![], &[], NOW + 10 * SECOND)), (1, 0));
    assert_eq!(entries.len(), 0);
}

#[test]
fn a_source_that_got_something_back_is_not_held() {
    let mut entries = Entries::default();
    let key = held(1, 0).key;
    assert_eq!(numbers(entries.change(vec![held(1, 10 * SECOND)], &[], NOW)), (0, 1));
    assert_eq!(numbers(entries.change(vec![], &[key, key], NOW)), (1, 0));
    assert_eq!(numbers(entries.change(vec![], &[], NOW)), (0, 0));
    let many: Vec<Held> = (0..=REMOVED as u32).map(|at| held(at, 10 * SECOND)).collect();
    let keys: Vec<IpNet> = many.iter().map(|it| it.key).collect();
    assert_eq!(numbers(entries.change(many, &[], NOW)), (0, REMOVED + 1));
    assert!(entries.change(vec![], &keys, NOW).is_none(), "the map is to be cleared");
}

#[test]
fn the_map_is_bounded_however_many_sources_are_held() {
    let mut entries = Entries::default();
    let more = 1_000;
    let all = || (0..MOST as u32 + more).map(|at| held(at, 10 * SECOND)).collect::<Vec<_>>();
    let changes = entries.change(all(), &[], NOW).unwrap();
    assert_eq!((changes.added.len(), changes.full, entries.len()), (MOST, more.into(), MOST));
    // As many are removed at once as HAProxy has time for. Those that it has lost wait for that, too.
    let changes = entries.change(all(), &[], NOW + IN_FLIGHT).unwrap();
    assert_eq!((changes.removed.len(), changes.added.len()), (REMOVED / 2, REMOVED / 2));
    assert_eq!(changes.full, u64::from(more), "who is in it has room");
    let end = NOW + 10 * SECOND;
    for at in 1..=MOST / REMOVED {
        assert_eq!(numbers(entries.change(vec![], &[], end)), (REMOVED, 0));
        assert_eq!(entries.len(), MOST - at * REMOVED);
    }
}

#[test]
fn a_source_is_the_prefix_that_is_held_as_one() {
    let holds = KeyPrefix { ipv4: 24, ipv6: 64 };
    for (source, expected) in [
        ("192.0.2.9", "192.0.2.0/24"),
        ("::ffff:192.0.2.9", "192.0.2.0/24"),
        ("2001:db8::9", "2001:db8::/64"),
    ] {
        assert_eq!(key(source.parse().unwrap(), holds), expected.parse().unwrap());
    }
}

#[test]
fn an_entry_has_its_end_and_what_clients_are_told() {
    let limit = "limits: [{ name: a, on: requests, key: source, rate: 6/min, burst: 3";
    let time = Time { now: NOW + SECOND, unix: 5_000_000 };
    let value = |more: &str| {
        let policy = Arc::new(policy(&format!("version: 1\n{limit}{more} }}]")));
        time.text(&Held { policy, ..held(1, 10_999_999_999) }).unwrap().value
    };
    let body = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["a"]}"#;
    let told = value(", headers: [ietf, x-ratelimit, retry-after]");
    let [end, retry, rest] = told.splitn(3, '|').collect::<Vec<_>>()[..] else { panic!("{told}") };
    assert_eq!(end, "5009999", "no later than by the limit");
    assert!((5_009_999..=5_011_099).contains(&retry.parse().unwrap()), "{retry}");
    assert_eq!(rest, format!("a|\"a\";q=3;w=30|\"a\";r=0;t=|3|{body}"));
    assert_eq!(value(", headers: none"), format!("5009999||a||||{body}"));
}

/// Answers commands as HAProxy does, with these answers. Returns the commands.
fn haproxy(name: &str, answers: Vec<&'static str>) -> (Options, Receiver<String>) {
    let path = format!("limiter-{name}-{}.sock", std::process::id());
    let socket = std::env::temp_dir().join(path);
    let _: std::io::Result<()> = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let (sender, commands) = channel();
    let path = socket.clone();
    thread::spawn(move || {
        for answer in answers {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut command = String::new();
            stream.read_line(&mut command).unwrap();
            while command.contains("<<") && !command.ends_with("\n\n") {
                stream.read_line(&mut command).unwrap();
            }
            let _: Result<(), _> = sender.send(command);
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
        std::fs::remove_file(path).unwrap();
    });
    (Options { socket, map: "/m".to_owned() }, commands)
}

struct Bed {
    holder: Holder,
    writer: Writer,
    in_force: Arc<InForce>,
    commands: Receiver<String>,
}

impl Bed {
    fn new(name: &str, answers: Vec<&'static str>) -> Self {
        let (options, commands) = haproxy(name, answers);
        let in_force = Arc::new(InForce::new(policy(EACH), Table::in_memory(1_024)).unwrap());
        let link = Arc::new(Link::new(mpsc::channel(8).0));
        let (holder, writer) = new(&options, &in_force, &link);
        Self { holder, writer, in_force, commands }
    }

    /// Has a source be refused.
    fn refuse(&self, source: &str) {
        let (source, now) = (source.parse().unwrap(), query::now());
        for _ in 0..2 {
            let (answer, policy) = self.in_force.decide(&Request::of(source), 1, false, now);
            assert_eq!(answer.held().is_some(), answer.verdict == Verdict::Limited);
            self.holder.answered(source, &answer, &policy, now);
        }
    }

    /// Writes the map. Returns the commands, each up to the ends in it.
    fn update(&mut self) -> (bool, Vec<String>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let is_written = runtime.block_on(self.writer.update()).is_ok();
        let commands = self.commands.try_iter();
        let cut = |it: String| it.split_once(" 1").map_or(it.clone(), |(it, _)| it.to_owned());
        (is_written, commands.map(cut).collect())
    }
}

#[test]
fn the_map_is_cleared_at_the_start_and_for_another_policy() {
    let mut bed = Bed::new("cleared", vec!["\n"; 5]);
    bed.refuse("192.0.2.1");
    let added = "add map /m <<\n::ffff:192.0.2.1/128".to_owned();
    assert_eq!(bed.update(), (true, vec!["clear map /m\n".to_owned(), added]));
    assert_eq!(bed.update(), (true, vec![]));
    // What was answered by the policy before is not held.
    bed.refuse("192.0.2.2");
    bed.in_force.apply(policy(EACH)).unwrap();
    assert_eq!(bed.update(), (true, vec!["clear map /m\n".to_owned()]));
    bed.refuse("2001:db8::1");
    assert_eq!(bed.update().1, ["add map /m <<\n2001:db8::/64"]);
    let (_, answer, _) = bed.in_force.settle(
        &Request::of("2001:db8::1".parse().unwrap()),
        1,
        super::super::decide::Settlement::Refund,
        query::now(),
    );
    bed.holder.given_back("2001:db8::7".parse().ok(), &answer);
    assert_eq!(bed.update().1, ["del map /m 2001:db8::/64\n"]);
}

/// What was answered before something was given back may come after that.
#[test]
fn an_answer_from_before_a_refund_holds_nobody() {
    let mut bed = Bed::new("before", vec!["\n"; 4]);
    let (source, policy) = ("192.0.2.1".parse().unwrap(), bed.in_force.policy());
    let refused = limited(standing(10 * SECOND));
    let before = query::now();
    bed.refuse("192.0.2.1");
    assert_eq!(bed.update().1.len(), 2);
    bed.holder.given_back(Some(source), &refused);
    bed.holder.answered(source, &refused, &policy, before);
    assert_eq!(bed.update().1, ["del map /m ::ffff:192.0.2.1/128\n"]);
    bed.holder.answered(source, &refused, &policy, before);
    assert_eq!(bed.update(), (true, vec![]));
    bed.holder.answered(source, &refused, &policy, query::now());
    assert_eq!(bed.update().1.len(), 1);
}

/// A state of a prefix is that of all its sources, but what the policy says of a part of it is of that alone.
#[test]
fn a_prefix_is_held_where_the_policy_says_the_same_of_all_its_sources() {
    let mut bed = Bed::new("prefix", vec!["\n"; 4]);
    let limit = "limits: [{ name: each, on: requests, key: source/24, algorithm: leaky_bucket, rate: 1/min, depth: 1 }]";
    let text = format!("version: 1\nallow: [192.0.2.9, 203.0.113.0/24]\n{limit}\n");
    bed.in_force.apply(policy(&text)).unwrap();
    bed.refuse("192.0.2.1");
    bed.refuse("198.51.100.1");
    let added = "add map /m <<\n::ffff:198.51.100.0/120".to_owned();
    assert_eq!(bed.update(), (true, vec!["clear map /m\n".to_owned(), added]));
}

#[test]
fn a_refund_that_the_queue_has_no_room_for_clears_the_map() {
    let mut bed = Bed::new("full", vec!["\n"; 3]);
    bed.refuse("192.0.2.1");
    assert_eq!(bed.update().1.len(), 2);
    let refused = limited(standing(10 * SECOND));
    let source = "192.0.2.1".parse().unwrap();
    for _ in 0..QUEUE + 7 {
        bed.holder.answered(source, &refused, &bed.in_force.policy(), query::now());
    }
    assert_eq!(bed.writer.counts.queue_full.load(Relaxed), 7);
    bed.holder.given_back(Some(source), &refused);
    assert_eq!(bed.update(), (true, vec!["clear map /m\n".to_owned()]));
}

#[test]
fn after_an_error_the_map_begins_anew() {
    let answers = vec!["\n", "Unknown map identifier.\n", "Unknown map identifier.\n", "\n", "\n"];
    let mut bed = Bed::new("anew", answers);
    bed.refuse("192.0.2.1");
    assert_eq!((bed.update().0, bed.writer.entries.is_none()), (false, true));
    assert_eq!(bed.update(), (false, vec!["clear map /m\n".to_owned()]));
    assert_eq!(bed.writer.counts.failed.load(Relaxed), 1);
    bed.refuse("192.0.2.2");
    let (is_written, commands) = bed.update();
    assert_eq!((is_written, commands.len()), (true, 2), "{commands:?}");
    assert_eq!(bed.writer.counts.written.load(Relaxed), 1);
    // Now it is away.
    bed.refuse("192.0.2.3");
    assert!(!bed.update().0);
}
