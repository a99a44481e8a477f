//! Measures how long a decision of the bridge takes: `cargo run --release -p limiter-userspace --example decisions`.
//!
//! Each line is a policy and how requests come, the mean time of a decision in nanoseconds, and decisions in a second. It is the
//! time on the CPU, so that it does not matter what else runs.

use std::{
    error::Error,
    fs,
    net::{IpAddr, Ipv4Addr},
};

use limiter_common::algorithm::rate::{Rate, SECOND};
use limiter_userspace::{
    bridge::{
        answer::Answer,
        decide::Decider,
        request::{Request, Told},
        table::Table,
    },
    policy::{
        Policy,
        model::{
            Allowance, Attribute, AttributeSource, Field, Pattern, RequestKeyPart, RequestLayer,
            RequestLimit, Whom,
        },
    },
};

/// Decisions of a line.
const DECISIONS: u32 = 5_000_000;
/// The rounds of which the fastest counts.
const ROUNDS: u32 = 3;

/// The headers of a client.
struct Headers(String);

impl Told for Headers {
    fn header(&self, name: &str) -> Option<&str> {
        (name == "x-user-id").then_some(&self.0)
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let source = [RequestKeyPart::Source];
    let user = [RequestKeyPart::Field(Field::Attribute("user".to_owned()))];
    let pair = [&source[..], &user[..]].concat();
    let slow =
        |burst| Allowance::TokenBucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst };
    let fast = Allowance::TokenBucket { rate: Rate::per_second(1 << 20), burst: 1 << 20 };
    let window = Allowance::SlidingWindow { limit: 1 << 30, window: 60 * SECOND };
    let log = Allowance::SlidingLog { limit: 100, window: SECOND };
    let one = policy(vec![limit("source", &source, fast)]);
    let by_user = policy(vec![limit("user", &user, fast)]);
    let both = policy(vec![limit("both", &pair, fast)]);
    let three = policy(vec![
        limit("source", &source, fast),
        limit("user", &user, fast),
        limit("all", &[], window),
    ]);
    let routes = (0..256).map(|number| {
        let mut limit = limit(&format!("route-{number}"), &source, fast);
        limit.matching.fields.insert(Field::Path, vec![Pattern::Exact(format!("/{number}"))]);
        limit
    });
    let routes = policy(routes.collect());
    let mut listed = one.clone();
    listed.sets.insert(
        "many".to_owned(),
        (0..100_000_u32)
            .map(|number| IpAddr::V4(Ipv4Addr::from_bits(0xac10_0000 + number)).into())
            .collect(),
    );
    listed.deny.push(limiter_userspace::policy::model::Listed {
        whom: Whom::Set("many".to_owned()),
        until: None,
    });
    let refused = policy(vec![limit("source", &source, slow(1))]);
    let logged = policy(vec![limit("log", &source, log)]);
    for (name, policy, keys) in [
        ("a limit by source, 1,000 keys", &one, 1_000),
        ("a limit by source, 200,000 keys", &one, 200_000),
        ("a limit by user, 1,000 keys", &by_user, 1_000),
        ("a limit by source and user, 1,000 keys", &both, 1_000),
        ("three limits, 1,000 keys", &three, 1_000),
        ("256 limits by route, 1,000 keys", &routes, 1_000),
        ("a limit by source, 100,000 sources denied", &listed, 1_000),
        ("refused, 1,000 keys", &refused, 1_000),
        ("a sliding log, 1,000 keys", &logged, 1_000),
        ("10 million keys, none of which comes twice", &refused, 10_000_000),
    ] {
        measure(name, policy, keys)?;
    }
    Ok(())
}

fn limit(name: &str, parts: &[RequestKeyPart], allowance: Allowance) -> RequestLimit {
    let layers = vec![RequestLayer { allowance, key: None }];
    RequestLimit { layers, ..RequestLimit::new(name, parts) }
}

fn policy(limits: Vec<RequestLimit>) -> Policy {
    let from = AttributeSource::Header("x-user-id".to_owned());
    let mut policy = Policy { on_requests: limits, ..Policy::default() };
    policy.attributes.insert("user".to_owned(), Attribute { from, digest: false });
    policy
}

fn measure(name: &str, policy: &Policy, keys: u32) -> Result<(), Box<dyn Error>> {
    let mut decider = Decider::new(policy, Table::in_memory(Table::KEYS))?;
    let users: Vec<Headers> =
        (0..keys.min(1_000)).map(|number| Headers(format!("user-{number}"))).collect();
    let (mut answer, mut now, mut key) = (Answer::default(), 1_000_000 * SECOND, 0_u32);
    let decisions = DECISIONS.max(keys);
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begin = on_cpu()?;
        for _ in 0..decisions {
            // A step without a pattern that a CPU could foresee.
            key = (key + 7_919) % keys;
            now += 100;
            let request = Request {
                method: Some("GET"),
                host: Some("example.org"),
                path: Some("/17"),
                domain: "",
                source: Some(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + key))),
                told: &users[(key % 1_000) as usize],
            };
            decider.decide(&request, 1, now, &mut answer);
        }
        fastest = fastest.min((on_cpu()? - begin) as f64 / f64::from(decisions));
    }
    println!("{name:45} {fastest:6.0} ns {:6.1} M/s", 1_000.0 / fastest);
    Ok(())
}

/// The nanoseconds that this thread had a CPU.
fn on_cpu() -> Result<u64, Box<dyn Error>> {
    let numbers = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(numbers.split_whitespace().next().unwrap_or_default().parse()?)
}
