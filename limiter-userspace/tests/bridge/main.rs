//! What the bridge promises of its process: no allocation for a decision, and no state lost when it is killed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
    env, fs,
    io::{BufRead as _, BufReader},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::{self, Command, Stdio},
    time::Duration,
};

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_userspace::{
    bridge::{
        answer::{Answer, Verdict},
        decide::Decider,
        request::{Request, Told},
        table::{Began, Table},
    },
    policy::{
        Policy,
        model::{
            Allowance, Attribute, AttributeSource, Field, Idempotency, OverrideWhom, Pattern,
            RequestCost, RequestKeyPart, RequestLayer, RequestLimit, RequestOverride, Whom,
        },
    },
};

mod imported;

const NOW: u64 = 1_000_000 * SECOND;

/// The environment variable with the file of a child that is to be killed.
const VICTIM: &str = "LIMITER_BRIDGE_VICTIM";

thread_local! {
    /// The allocations of this thread.
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
}

/// The allocator of the system, which counts.
struct Counting;

// SAFETY: each call is passed on to the allocator of the system as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _: Result<(), _> = ALLOCATED.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _: Result<(), _> = ALLOCATED.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A user and a secret, the same or an empty `Idempotency-Key`, and a limit.
struct Headers(&'static str, &'static str, &'static str, Option<(u64, u64)>);

impl Told for Headers {
    fn header(&self, name: &str) -> Option<&str> {
        match name {
            "x-user-id" => Some(self.0),
            "authorization" => Some(self.1),
            "idempotency-key" => Some(self.2),
            _ => None,
        }
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }

    fn limit(&self) -> Option<(u64, u64)> {
        self.3
    }
}

fn bucket(packets: u64, burst: u64) -> Allowance {
    Allowance::TokenBucket { rate: Rate { packets, period: 60 * SECOND }, burst }
}

fn limit(name: &str, parts: &[RequestKeyPart], allowance: Allowance) -> RequestLimit {
    let layers = vec![RequestLayer { allowance, key: None }];
    RequestLimit { layers, ..RequestLimit::new(name, parts) }
}

fn attribute(name: &str) -> Field {
    Field::Attribute(name.to_owned())
}

fn header(name: &str, digest: bool) -> Attribute {
    Attribute { from: AttributeSource::Header(name.to_owned()), digest }
}

/// A policy with all that a decision may ask for.
fn rich() -> Policy {
    let mut policy = Policy::default();
    policy.attributes.insert("user".to_owned(), header("x-user-id", false));
    policy.attributes.insert("secret".to_owned(), header("authorization", true));
    policy.tenants.insert("gold".to_owned(), vec!["198.51.100.0/24".parse().unwrap()]);
    policy.sets.insert("office".to_owned(), vec!["203.0.113.0/24".parse().unwrap()]);
    let user = RequestKeyPart::Field(attribute("user"));
    let mut login = limit("login", &[RequestKeyPart::Source, user.clone()], bucket(600, 50));
    login.matching.fields.insert(
        Field::Path,
        vec![Pattern::Exact("/login".to_owned()), Pattern::Exact("/".to_owned())],
    );
    login.candidate = Some(bucket(60, 5));
    login.cost = RequestCost {
        default: 1,
        by: Some(Field::Method),
        values: BTreeMap::from([("POST".to_owned(), 5)]),
    };
    let acme = Pattern::Exact("acme".to_owned());
    login.overrides = vec![
        RequestOverride {
            whom: None,
            fields: BTreeMap::from([(attribute("user"), acme)]),
            layers: Some(vec![bucket(6_000, 500)]),
        },
        RequestOverride {
            whom: Some(OverrideWhom::Prefix("192.0.2.0/25".parse().unwrap())),
            fields: BTreeMap::new(),
            layers: None,
        },
    ];
    let secret = RequestKeyPart::Field(attribute("secret"));
    let log = Allowance::SlidingLog { limit: 100, window: 60 * SECOND };
    let mut office = limit("office", &[RequestKeyPart::Source], bucket(60, 100));
    office.matching.sources = vec![Whom::Set("office".to_owned())];
    let mut secret = limit("secret", &[secret], log);
    secret.matching.fields.insert(Field::Path, vec![Pattern::Prefix("/o".to_owned())]);
    policy.on_requests = vec![
        login,
        office,
        secret,
        limit("source", &[RequestKeyPart::Source], bucket(100, 100)),
        limit("tenant", &[RequestKeyPart::Tenant], bucket(1_000, 1_000)),
        limit("all", &[], Allowance::SlidingWindow { limit: 1 << 20, window: SECOND }),
    ];
    policy
}

#[test]
fn a_decision_takes_no_memory() {
    let mut decider = Decider::new(&rich(), Table::in_memory(1_024)).unwrap();
    let mut answer = Answer::default();
    let mut decide = |rounds: u32, answer: &mut Answer| {
        for number in 0..rounds {
            // Some of them come again, and some are new: more than there is room for.
            let last = if number % 2 == 0 { number % 64 } else { number };
            let source = [0xc000_0200, 0xc633_6400, 0xcb00_7100][number as usize % 3] + last;
            let user = ["acme", "anna"][number as usize % 2];
            let headers = Headers(user, "a long secret token", "", None);
            let request = Request {
                method: Some(["GET", "POST"][number as usize % 2]),
                host: Some("example.org"),
                path: Some(["/", "/login", "/other"][number as usize % 3]),
                domain: "",
                source: Some(IpAddr::V4(Ipv4Addr::from_bits(source))),
                told: &headers,
            };
            let now = NOW + u64::from(number) * 1_000_000;
            decider.peek(&request, 1, now, answer);
            decider.decide(&request, 1 + u64::from(number % 3), now, answer);
        }
    };
    decide(100, &mut answer);
    let before = ALLOCATED.get();
    decide(20_000, &mut answer);
    assert_eq!(ALLOCATED.get() - before, 0);
    let counts = decider.counts();
    let sum = |count: fn(&limiter_userspace::bridge::decide::RowCounts) -> u64| {
        counts.rows.iter().map(count).sum::<u64>()
    };
    // All that there is was done.
    assert!(sum(|row| row.conform) > 1_000 && sum(|row| row.exceed) > 1_000, "{counts:?}");
    assert!(sum(|row| row.exceed_monitor) > 100 && sum(|row| row.near) > 100, "{counts:?}");
}

/// One limit by each algorithm, and by what else a limit may do.
#[test]
fn a_decision_takes_no_memory_whatever_the_limit_does() {
    let source = [RequestKeyPart::Source];
    let rate = Rate { packets: 60, period: 60 * SECOND };
    let queue = Allowance::LeakyBucket { rate, depth: 5 };
    let plain = |allowance| limit("limit", &source, allowance);
    let all = [
        ("token bucket", plain(bucket(60, 5))),
        ("leaky bucket", plain(queue)),
        ("gcra", plain(Allowance::Gcra { rate, tolerance: 4 * SECOND })),
        ("fixed window", plain(Allowance::FixedWindow { limit: 5, window: SECOND })),
        ("sliding window", plain(Allowance::SlidingWindow { limit: 5, window: SECOND })),
        ("sliding log", plain(Allowance::SlidingLog { limit: 5, window: SECOND })),
        ("concurrent", plain(Allowance::Concurrent { limit: 5, idle: SECOND })),
        ("delay", RequestLimit { delay: Some(4 * SECOND), ..plain(queue) }),
        (
            "idempotency",
            RequestLimit { idempotency: Some(Idempotency { window: SECOND }), ..plain(queue) },
        ),
        ("told limit", RequestLimit { takes_told: true, ..plain(queue) }),
    ];
    for (name, limit) in all {
        let is_concurrent = name == "concurrent";
        let policy = Policy { on_requests: vec![limit], ..Policy::default() };
        let mut decider = Decider::new(&policy, Table::in_memory(1_024)).unwrap();
        let mut answer = Answer::default();
        let (mut passed, mut refused, mut held) = (0, 0, 0);
        let mut decide = |rounds: u32| {
            for number in 0..rounds {
                let told = (u64::from(5 + number % 2), SECOND);
                let headers = Headers("", "", ["a", "b"][number as usize % 2], Some(told));
                let source = 0xc000_0200 + number % 128;
                let request = Request { told: &headers, ..of_address(source) };
                let now = NOW + u64::from(number) * 1_000_000;
                decider.peek(&request, 1, now, &mut answer);
                decider.decide(&request, 1 + u64::from(number % 2), now, &mut answer);
                if is_concurrent && number % 3 == 0 {
                    decider.release(&answer.leases, now);
                }
                passed += u32::from(answer.verdict == Verdict::Pass);
                refused += u32::from(answer.verdict == Verdict::Limited);
                held += u32::from(answer.hold > 0);
            }
        };
        decide(200);
        let before = ALLOCATED.get();
        decide(20_000);
        assert_eq!(ALLOCATED.get() - before, 0, "{name}");
        assert!(passed > 1_000 && refused > 1_000, "{name}: {passed} passed, {refused} refused");
        assert_eq!(held > 0, name == "delay", "{name}: {held}");
        let repeats = decider.counts().rows[0].repeat;
        assert_eq!(repeats > 0, name == "idempotency", "{name}: {repeats}");
    }
}

/// Keys of the child. Each has one bucket and one log.
const KEYS: u32 = 64;
/// What each limit admits at once; nothing comes back meanwhile.
const BURST: u64 = 100;

/// A policy under which a key is admitted so many requests, by a bucket and by a log. Its rate, which is next to nothing,
/// depends on `variant`.
fn scarce(variant: u64) -> Policy {
    const DAY: u64 = 24 * 3600 * SECOND;
    let rate = Rate { packets: variant, period: 50 * DAY };
    let bucket = Allowance::LeakyBucket { rate, depth: BURST };
    let log = Allowance::SlidingLog { limit: BURST, window: variant * DAY };
    let (source, key) =
        ([RequestKeyPart::Source], RequestKeyPart::SourcePrefix { ipv4: 31, ipv6: 64 });
    Policy {
        on_requests: vec![limit("bucket", &source, bucket), limit("log", &[key], log)],
        ..Policy::default()
    }
}

fn of_source(number: u32) -> Request<'static> {
    // Each has a prefix of its own.
    of_address(0xc000_0200 + 2 * number)
}

fn of_address(bits: u32) -> Request<'static> {
    let source = Some(IpAddr::V4(Ipv4Addr::from_bits(bits)));
    Request { method: None, host: None, path: None, domain: "", source, told: &() }
}

fn open(path: &Path) -> Decider {
    Decider::new(&scarce(1), Table::open(path, 1 << 16).unwrap()).unwrap()
}

/// Not a test by itself: the process that the test below kills. It says each request that passed.
#[test]
fn the_process_that_is_killed() {
    use std::io::Write as _;
    let Some(path) = env::var_os(VICTIM) else { return };
    let mut decider = open(Path::new(&path));
    let mut answer = Answer::default();
    let mut told = std::io::stdout();
    told.write_all(b"\n").unwrap();
    for number in 0..20_000_u64 {
        let source = number as u32 % KEYS;
        decider.decide(&of_source(source), 1, NOW + number, &mut answer);
        if answer.verdict == Verdict::Pass {
            // Straight away: what is not written when the process is killed, nobody was told.
            told.write_all(format!("{source}\n").as_bytes()).unwrap();
        }
        // So that states are re-scaled all the time.
        if number % 7 == 0 {
            decider.apply(&scarce(1 + number % 2)).unwrap();
        }
    }
}

/// A process is killed at any moment, again and again. No answer that it gave is forgotten, and of what it had not answered,
/// at most one request counts each time.
#[test]
fn a_process_that_is_killed_leaves_its_state() {
    let name = format!("limiter-bridge-{}", process::id());
    let directory = Path::new("/dev/shm").join(name);
    fs::create_dir(&directory).unwrap();
    let path = directory.join("state");
    let mut passed = [0_u64; KEYS as usize];
    let mut kills = 0;
    let mut is_over = false;
    while kills < 60 && !is_over {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env(VICTIM, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A few requests each time, and then some moment.
        let answered = (kills * 7 + 3) % 13;
        let mut seen = 0;
        for line in lines.by_ref().map_while(Result::ok) {
            if let Ok(source) = line.parse::<usize>() {
                passed[source] += 1;
                seen += 1;
                if seen >= answered {
                    break;
                }
            }
        }
        std::thread::sleep(Duration::from_micros(kills * 131 % 977));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Ok(source) = line.parse::<usize>() {
                passed[source] += 1;
            }
        }
        kills += 1;
        // The last one ended by itself, as nothing was left.
        is_over = seen == 0;
        let mut decider = open(&path);
        assert_eq!(decider.table().began(), Began::Kept);
        let mut answer = Answer::default();
        for source in 0..KEYS {
            decider.peek(&of_source(source), 1, NOW, &mut answer);
            let passed = passed[source as usize];
            for standing in &answer.standings {
                let charged = BURST - standing.left;
                // A word that is re-scaled is rounded up a little each time.
                assert!(
                    (passed..=passed + kills + 1).contains(&charged),
                    "{source}: {passed} passed and {charged} are charged after {kills} kills"
                );
            }
        }
    }
    assert!(kills > 5, "only {kills} kills");
    println!("{kills} kills, passed {passed:?}");
    fs::remove_dir_all(directory).unwrap();
}
