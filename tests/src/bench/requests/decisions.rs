//! Decisions of the core alone, without a server.

use std::{
    net::{IpAddr, Ipv4Addr},
    process,
    time::Instant,
};

use anyhow::Result;
use limiter_userspace::{
    bridge::{
        answer::Answer,
        decide::Decider,
        request::{Request, Told},
        table::Table,
    },
    policy::document,
};

use super::{
    super::{
        cpu::thread_time,
        sample::{Figure, quantile},
    },
    server::resident,
};

/// Decisions of a sample.
const BATCH: u64 = 1_000_000;
/// The keys that the table has room for, as `--keys` has it by default.
const KEYS: usize = 262_144;
/// Known sources.
pub(super) const SOURCES: u64 = 1 << 16;
/// Time between two requests, in nanoseconds.
const STEP: u64 = 100;
/// The same at 70,000 requests per second, about half of what a bridge answers.
const HALF_STEP: u64 = 14_286;
/// Limits by route.
const ROUTES: usize = 256;
/// Limits that are about the same request.
const AT_ONCE: usize = 8;

/// The cost of a decision, and what made-up users cost in memory.
pub(super) struct Decisions {
    /// Nanoseconds of a decision, by name.
    pub(super) costs: Vec<(&'static str, Figure)>,
    /// Made-up users.
    pub(super) users: u64,
    /// Bytes by which the memory of the process grew while they came.
    pub(super) growth: u64,
    /// Nanoseconds that [`SHARES`] of single decisions did not exceed, by name.
    pub(super) single: Vec<(&'static str, [f64; SHARES.len()])>,
}

/// Shares of single decisions.
pub(super) const SHARES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// A request in the making.
struct Asked {
    source: IpAddr,
    path: usize,
    user: String,
}

impl Asked {
    /// Names a user of a number.
    fn name_user(&mut self, number: u64) {
        self.user.clear();
        let digit = |place: u32| char::from_digit((number >> (4 * place)) as u32 & 15, 16);
        self.user.extend((0..8).filter_map(digit));
    }
}

impl Told for Asked {
    fn header(&self, name: &str) -> Option<&str> {
        (name == "x-user-id" && !self.user.is_empty()).then_some(&self.user)
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }
}

/// A decider and the requests that it is asked about.
struct Load {
    decider: Decider,
    paths: Vec<String>,
    answer: Answer,
    asked: Asked,
    /// Requests so far.
    count: u64,
    /// The time, and that between two requests, in nanoseconds.
    now: u64,
    step: u64,
}

impl Load {
    fn new(limits: &str) -> Result<Self> {
        let text = format!(
            "version: 1\nattributes:\n  user: {{ header: x-user-id }}\n  \
             secret: {{ header: x-user-id, digest: true }}\nlimits:\n{limits}"
        );
        let policy = document::parse("policy", text.as_bytes(), &mut |_| Ok(Vec::new()))
            .map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        let decider = Decider::new(&policy, Table::in_memory(KEYS))?;
        let paths = (0..ROUTES).map(|route| format!("/route/{route}")).collect();
        let asked = Asked { source: Ipv4Addr::LOCALHOST.into(), path: 0, user: String::new() };
        let answer = Answer::default();
        Ok(Self { decider, paths, answer, asked, count: 0, now: 0, step: STEP })
    }

    /// Nanoseconds of a decision. `next` makes the next request of a random number and of the number of the request.
    fn sample(&mut self, mut next: impl FnMut(&mut Asked, u64, u64)) -> Result<f64> {
        let begin = thread_time()?;
        for _ in 0..BATCH {
            self.ask(&mut next);
            self.decide();
        }
        Ok((thread_time()? - begin).as_nanos() as f64 / BATCH as f64)
    }

    fn ask(&mut self, mut next: impl FnMut(&mut Asked, u64, u64)) {
        self.count += 1;
        self.now += self.step;
        next(&mut self.asked, random(self.count), self.count);
    }

    fn decide(&mut self) {
        let request = Request {
            method: Some("GET"),
            host: None,
            path: self.paths.get(self.asked.path).map(String::as_str),
            domain: "",
            source: Some(self.asked.source),
            told: &self.asked,
        };
        self.decider.decide(&request, 1, self.now, &mut self.answer);
    }

    /// Nanoseconds that [`SHARES`] of a million decisions do not exceed, the reading of a clock included. Other work takes the CPU in
    /// too few of them to be seen there.
    fn single(&mut self, next: fn(&mut Asked, u64, u64)) -> [f64; SHARES.len()] {
        self.step = HALF_STEP;
        let mut times = Vec::with_capacity(BATCH as usize);
        for _ in 0..BATCH {
            self.ask(next);
            let begin = Instant::now();
            self.decide();
            times.push(begin.elapsed().as_nanos() as f64);
        }
        times.sort_by(f64::total_cmp);
        SHARES.map(|share| quantile(&times, share))
    }

    /// Nanoseconds of a decision, of so many samples after one that fills the table.
    fn samples(&mut self, samples: u64, next: fn(&mut Asked, u64, u64)) -> Result<Figure> {
        self.sample(next)?;
        let costs: Result<Vec<_>> = (0..samples).map(|_| self.sample(next)).collect();
        Ok(Figure::of(&costs?))
    }
}

/// Measures on the CPU of this thread, with `samples` million decisions of each kind.
pub(super) fn measure(samples: u64) -> Result<Decisions> {
    let limit = |name: &str, rest: &str| {
        format!("  - {{ name: {name}, on: requests, rate: 1000/s, burst: 1000, {rest} }}\n")
    };
    let one = limit("known", "key: source");
    let few = |asked: &mut Asked, random: u64, _: u64| asked.source = known(random % 1_024);
    let of_few = Load::new(&one)?.samples(samples, few)?;
    let by_source =
        Load::new(&one)?.samples(samples, |asked, random, _| asked.source = known(random))?;
    let routes: String = (0..ROUTES)
        .map(|route| {
            limit(&format!("r{route}"), &format!("key: source, match: {{ path: /route/{route} }}"))
        })
        .collect();
    let by_route = Load::new(&routes)?.samples(samples, |asked, random, _| {
        asked.source = known(random % 1_024);
        asked.path = (random >> 32) as usize % ROUTES;
    })?;
    // Limits of the same match and key would be one.
    let at_once: String = (0..AT_ONCE)
        .map(|at| {
            let key = ["source", "user"][at % 2];
            let paths = format!("[/route/0, /other/{at}]");
            limit(&format!("l{at}"), &format!("key: {key}, match: {{ path: {paths} }}"))
        })
        .collect();
    let known_user = |asked: &mut Asked, random: u64, _: u64| {
        asked.source = known(random % 1_024);
        asked.name_user(random % SOURCES);
    };
    let at_once = Load::new(&at_once)?.samples(samples, known_user)?;
    let both = Load::new(&limit("both", "key: [source, user]"))?.samples(samples, known_user)?;
    let digest = Load::new(&limit("secret", "key: secret"))?.samples(samples, known_user)?;
    let mut made_up = Load::new(&limit("user", "key: user"))?;
    let next = |asked: &mut Asked, _: u64, count: u64| asked.name_user(count);
    made_up.sample(next)?;
    let before = resident(process::id())?;
    let by_user = made_up.samples(samples, next)?;
    let growth = resident(process::id())?.saturating_sub(before);
    // Each user owes for an hour, and the table is full after the first sample.
    let owing = "  - { name: user, on: requests, rate: 1/h, burst: 1, key: user }\n";
    let full = Load::new(owing)?.samples(samples, next)?;
    let known_only = |asked: &mut Asked, random: u64, _: u64| asked.source = known(random);
    let mut beside = Load::new(&format!("{one}{owing}"))?;
    beside.sample(known_only)?;
    let calm = beside.single(known_only);
    // Made-up users, but for every second request.
    let mixed = |asked: &mut Asked, random: u64, count: u64| {
        asked.source = known(random);
        asked.user.clear();
        if count.is_multiple_of(2) {
            asked.name_user(count);
        }
    };
    beside.sample(mixed)?;
    let single = vec![
        ("known sources", calm),
        ("the same, beside as many made-up users", beside.single(mixed)),
    ];
    let costs = vec![
        ("one limit, 1,024 known sources at random", of_few),
        ("one limit, 64 k known sources at random", by_source),
        ("one of 256 limits by path, 1,024 sources", by_route),
        ("eight limits, by source and by user", at_once),
        ("one limit by source and user", both),
        ("one limit by the digest of a secret", digest),
        ("one limit, a made-up user for each request", by_user),
        ("the same, all keys of the table owe", full),
    ];
    Ok(Decisions { costs, users: (samples + 1) * BATCH, growth, single })
}

/// One of the known sources.
pub(super) fn known(random: u64) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + (random % SOURCES) as u32).into()
}

/// A random number that is the same in each run: SplitMix64.
pub(super) fn random(count: u64) -> u64 {
    let mixed = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
