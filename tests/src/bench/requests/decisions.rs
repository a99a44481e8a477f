//! Decisions of the core alone, without a server.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
};

use anyhow::{Context as _, Result};
use limiter_userspace::{
    bridge::{
        answer::Answer,
        decide::Decider,
        request::{Request, Told},
        table::Table,
    },
    policy::document,
};

use super::super::{cpu::thread_time, sample::Figure};

/// Decisions of a sample.
const BATCH: u64 = 1_000_000;
/// The keys that the table has room for, as `--keys` has it by default.
const KEYS: usize = 262_144;
/// Known sources.
pub(super) const SOURCES: u64 = 1 << 16;
/// Time between two requests, in nanoseconds.
const STEP: u64 = 100;
/// Limits by route.
const ROUTES: usize = 256;

/// The cost of a decision, and what made-up users cost in memory.
pub(super) struct Decisions {
    /// Nanoseconds of a decision, by name.
    pub(super) costs: Vec<(&'static str, Figure)>,
    /// Made-up users.
    pub(super) users: u64,
    /// Bytes by which the memory of the process grew while they came.
    pub(super) growth: u64,
}

/// A request in the making.
struct Asked {
    source: IpAddr,
    path: usize,
    user: String,
}

impl Told for Asked {
    fn header(&self, name: &str) -> Option<&str> {
        (name == "x-user-id").then_some(&self.user)
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
}

impl Load {
    fn new(limits: &str) -> Result<Self> {
        let text = format!(
            "version: 1\nattributes: {{ user: {{ header: x-user-id }} }}\nlimits:\n{limits}"
        );
        let policy = document::parse("policy", text.as_bytes(), &mut |_| Ok(Vec::new()))
            .map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        let decider = Decider::new(&policy, Table::in_memory(KEYS))?;
        let paths = (0..ROUTES).map(|route| format!("/route/{route}")).collect();
        let asked = Asked { source: Ipv4Addr::LOCALHOST.into(), path: 0, user: String::new() };
        Ok(Self { decider, paths, answer: Answer::default(), asked, count: 0 })
    }

    /// Nanoseconds of a decision. `next` makes the next request of a random number and of the number of the request.
    fn sample(&mut self, mut next: impl FnMut(&mut Asked, u64, u64)) -> Result<f64> {
        let begin = thread_time()?;
        for _ in 0..BATCH {
            self.count += 1;
            next(&mut self.asked, random(self.count), self.count);
            let request = Request {
                method: Some("GET"),
                host: None,
                path: self.paths.get(self.asked.path).map(String::as_str),
                domain: "",
                source: Some(self.asked.source),
                told: &self.asked,
            };
            self.decider.decide(&request, 1, self.count * STEP, &mut self.answer);
        }
        Ok((thread_time()? - begin).as_nanos() as f64 / BATCH as f64)
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
    let mut by_source = Load::new(&limit("known", "key: source"))?;
    let by_source = by_source.samples(samples, |asked, random, _| asked.source = known(random))?;
    let routes: String = (0..ROUTES)
        .map(|route| {
            limit(&format!("r{route}"), &format!("key: source, match: {{ path: /route/{route} }}"))
        })
        .collect();
    let by_route = Load::new(&routes)?.samples(samples, |asked, random, _| {
        asked.source = known(random % 1_024);
        asked.path = (random >> 32) as usize % ROUTES;
    })?;
    let mut made_up = Load::new(&limit("user", "key: user"))?;
    let next = |asked: &mut Asked, _: u64, count: u64| {
        asked.user.clear();
        let digit = |place: u32| char::from_digit((count >> (4 * place)) as u32 & 15, 16);
        asked.user.extend((0..8).filter_map(digit));
    };
    made_up.sample(next)?;
    let before = resident()?;
    let by_user = made_up.samples(samples, next)?;
    let growth = resident()?.saturating_sub(before);
    let costs = vec![
        ("one limit, 64 k known sources at random", by_source),
        ("one of 256 limits by path, 1,024 sources", by_route),
        ("one limit, a made-up user for each request", by_user),
    ];
    Ok(Decisions { costs, users: (samples + 1) * BATCH, growth })
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

/// The memory of this process, in bytes.
fn resident() -> Result<u64> {
    let status =
        fs::read_to_string("/proc/self/status").context("cannot read the memory in use")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|it| it.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(1_024 * kibibytes.context("/proc/self/status does not tell VmRSS")?)
}
