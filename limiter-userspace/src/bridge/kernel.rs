//! What the kernel's limits on packets have left for the source of a request, as the agent tells.
//!
//! It is asked only for limits whose `requests` is not `off`. What it tells is kept for a short time, so that a source that asks
//! much does not cost a question each time: one request asks, and others take what was told before, or wait for it. So many
//! requests of one source do not hide others. While the agent is away, nothing is known of any source. Nor is it of new ones
//! beyond a number of questions a second, or for a pause after the agent was late.

use std::{
    cmp::Reverse,
    collections::HashMap,
    fmt,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hyper::{Method, StatusCode, body::Bytes};
use limiter_common::base::address::{Address, Mask};
use serde::{Deserialize, de::IgnoredAny};
use tokio::{sync::Semaphore, time::timeout};

use super::client::{Client, ClientError, accepted};
use crate::{
    metrics::{Family, Kind, Value::Whole},
    policy::{
        Policy,
        model::{Count, Limit, OfRequests},
    },
    query,
};

/// How long the agent may take.
const PATIENCE: Duration = Duration::from_millis(20);
/// For how long what it told is kept, in ns.
const KEPT: u64 = 100_000_000;
/// For how long it is not asked again whatever requests may have used, in ns: so a source costs the agent 500 questions a second at most.
const FRESH: u64 = 2_000_000;
/// For how long that is taken while it is asked again, in ns.
const STALE: u64 = 1_000_000_000;
/// For how long it is not asked again after it was away, in ns.
const PAUSE: u64 = 1_000_000_000;
/// For how long it is not asked again after it was late, in ns. While it stays so, each pause is twice the one before, up to so
/// many doublings. The first is short, as a busy machine makes several late at once.
const LATE_PAUSE: u64 = 100_000_000;
const DOUBLINGS: u32 = 6;
/// So many answers that come late one after the other begin a pause, and are told for so long after the last, in ns.
const LATE: u32 = 3;
const LATELY: u64 = 10_000_000_000;
/// The most questions at once. The agent has room for 64 connections of those it trusts.
const AT_ONCE: usize = 16;
/// The time for one question about any source, in ns, and for how many the agent may be asked after a rest. A question takes it
/// some 150 us of CPU time, and pushes need the rest.
const QUESTION: u64 = 500_000;
const BURST: u64 = 200;
/// The most sources of which something is kept.
const SOURCES: usize = 8_192;

/// What a limit on packets has left for a source, or a block of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The name of the limit; [`DENY`] or [`PENALTY`] for a block.
    pub(super) limit: String,
    /// What passes at once after a rest, and now, in the unit that the limit counts; 0 for a block.
    most: u64,
    left: u64,
    /// What a request takes, in the same unit.
    request: u64,
    /// Nanoseconds until requests pass; 0 if they do now, [`u64::MAX`] if none ever does.
    pub(super) wait: u64,
    /// Whether the kernel drops packets of the source.
    drops: bool,
}

/// What the lists with blocks are called in place of a limit.
const DENY: &str = "deny";
const PENALTY: &str = "penalty";

impl Left {
    /// Whether less than the reserve is left, or the source is blocked.
    const fn is_over(&self) -> bool {
        self.wait > 0
    }

    fn reserve(&self) -> u64 {
        OfRequests::reserve(self.most, self.request)
    }

    /// Whether so many requests may have used what was left above the reserve, and the kernel would drop packets then. A request
    /// comes by a connection that is there, so it uses none.
    fn may_be_over(&self, requests: u64) -> bool {
        let used = if self.request > 1 { self.request.saturating_mul(requests) } else { 0 };
        self.drops && !self.is_over() && self.left.saturating_sub(used) < self.reserve()
    }

    /// What puts that first which is told: the longest wait, then the smallest part left, in millionths.
    pub(super) fn rank(&self) -> (u64, Reverse<u128>) {
        let part = u128::from(self.left) * 1_000_000 / u128::from(self.most.max(1));
        (self.wait, Reverse(part))
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.wait {
            0 => write!(f, "within={};left={}", self.limit, self.left),
            u64::MAX => write!(f, "over={}", self.limit),
            wait => write!(f, "over={};wait={}", self.limit, wait.div_ceil(1_000_000_000)),
        }
    }
}

/// The report of the agent on a source, as far as it is used.
#[derive(Deserialize)]
struct Report {
    mode: String,
    allowed: Option<IgnoredAny>,
    /// By the list.
    denied: Option<ReportUntil>,
    /// By hand.
    blocked: Option<ReportUntil>,
    /// By a limit or a push.
    penalty: Option<ReportUntil>,
    limits: Vec<ReportLimit>,
}

#[derive(Deserialize)]
struct ReportUntil {
    /// `None`: for good.
    seconds_left: Option<f64>,
}

#[derive(Deserialize)]
struct ReportLimit {
    name: String,
    mode: String,
    count: String,
    algorithm: Option<String>,
    state: Option<ReportState>,
}

#[derive(Deserialize)]
struct ReportState {
    limit: u64,
    used: u64,
    remaining: u64,
    next_packet_seconds: Option<f64>,
    full_seconds: f64,
}

/// What the agent told of a source.
struct Told {
    /// When, in ns of `CLOCK_MONOTONIC`.
    at: u64,
    /// Requests that were decided about by it.
    requests: u64,
    limits: Arc<[Left]>,
}

/// What is known of a source.
#[derive(Default)]
struct Known {
    told: Mutex<Option<Told>>,
    /// Held by who asks.
    asking: tokio::sync::Mutex<()>,
}

impl Known {
    /// What was told within a time before `now`, both in ns, for one more request. `None` if the requests that it was told for
    /// may have used up a limit for which `counts` holds: a client is faster than what was told is old.
    fn take(&self, time: u64, now: u64, counts: impl Fn(&Left) -> bool) -> Option<Arc<[Left]>> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.as_mut().filter(|told| now.saturating_sub(told.at) < time)?;
        let may_be_over = |it: &Left| it.may_be_over(told.requests) && counts(it);
        if now.saturating_sub(told.at) >= FRESH && told.limits.iter().any(may_be_over) {
            return None;
        }
        told.requests = told.requests.saturating_add(1);
        Some(Arc::clone(&told.limits))
    }

    fn is_within(&self, time: u64, now: u64) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.as_ref().is_some_and(|told| now.saturating_sub(told.at) < time)
    }

    /// Notes what was told at `now` for a request.
    fn note(&self, now: u64, limits: Arc<[Left]>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(Told { at: now, requests: 1, limits });
    }
}

type Sources = HashMap<IpAddr, Arc<Known>>;

/// Asks the agent about sources.
pub(super) struct Kernel {
    agent: Client,
    /// How long it may take.
    patience: Duration,
    sources: Mutex<Sources>,
    questions: Semaphore,
    /// Until when it is not asked, in ns.
    paused: AtomicU64,
    /// Until when the questions before take it, at [`QUESTION`] each, in ns.
    busy: AtomicU64,
    /// Questions: that were answered, by what was kept, that were one too many, and that were not answered.
    asked: AtomicU64,
    kept: AtomicU64,
    capped: AtomicU64,
    unknown: AtomicU64,
    late: Mutex<Late>,
}

/// Answers of the agent that came too late.
#[derive(Default)]
struct Late {
    /// How many since one came in time.
    count: u32,
    /// When it was asked last of these, in ns.
    last: u64,
    /// How many pauses these began.
    pauses: u32,
}

/// Whether a limit on packets is of concern to requests.
pub(super) fn is_of_requests(limit: &Limit) -> bool {
    !limit.requests.is_off()
}

impl Kernel {
    pub(super) fn new(agent: &Path) -> Self {
        let [paused, busy, asked, kept, capped, unknown] = [const { AtomicU64::new(0) }; 6];
        let agent = Client::new(agent);
        let questions = Semaphore::new(AT_ONCE);
        Self {
            agent,
            patience: PATIENCE,
            sources: Mutex::default(),
            questions,
            paused,
            busy,
            asked,
            kept,
            capped,
            unknown,
            late: Mutex::default(),
        }
    }

    /// One that waits for the agent as long as it takes.
    #[cfg(test)]
    pub(super) fn patient(agent: &Path) -> Self {
        Self { patience: Duration::from_secs(60), ..Self::new(agent) }
    }

    /// How long a question may take.
    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Why nothing is known of sources at `now` although the agent is there: it answers late. `None` if it does not.
    pub(super) fn fault(&self, now: u64) -> Option<String> {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let is_late = late.count >= LATE && now.saturating_sub(late.last) < LATELY;
        is_late.then(|| {
            format!(
                "the agent answers later than {} ms: nothing is known of sources",
                self.patience.as_millis()
            )
        })
    }

    /// Notes whether the agent answered in time at `now`. It is there when it is late, and has much to do: the next question may
    /// come in time, and after [`LATE`] that did not there is a pause.
    fn note(&self, is_late: bool, now: u64) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_late {
            *late = Late::default();
            return;
        }
        (late.count, late.last) = (late.count.saturating_add(1), now);
        // Those that were asked before a pause began do not make it longer.
        if late.count >= LATE && !self.is_paused(now) {
            let pause = LATE_PAUSE << late.pauses.min(DOUBLINGS);
            self.paused.store(now.saturating_add(pause), Relaxed);
            late.pauses = late.pauses.saturating_add(1);
        }
    }

    fn is_paused(&self, now: u64) -> bool {
        now < self.paused.load(Relaxed)
    }

    /// Whether there is room for a question at `now`, in ns, which it takes then.
    fn spend(&self, now: u64) -> bool {
        let after = |busy: u64| {
            let after = busy.max(now).saturating_add(QUESTION);
            (after <= now.saturating_add(BURST * QUESTION)).then_some(after)
        };
        self.busy.fetch_update(Relaxed, Relaxed, after).is_ok()
    }

    /// What a limit on packets has left for a source, of those that are of concern to requests, if the agent answers. It is one
    /// that refuses requests; else one whose reserve is used up, the longest wait first; else the one with the least left. Tells
    /// with it whether the policy has it refuse requests.
    pub(super) async fn left(&self, policy: &Policy, source: IpAddr) -> Option<(Left, bool)> {
        if !policy.limits.iter().any(is_of_requests) {
            return None;
        }
        // The agent knows sources, which are prefixes of addresses. So all addresses of one cost one question.
        let prefix = policy.key_prefix;
        let source = Address::from(source).masked(&Mask::new(prefix.ipv4, prefix.ipv6));
        let is_block = |left: &Left| [DENY, PENALTY].contains(&&*left.limit);
        let enforces = |limit: &Limit| limit.requests == OfRequests::Enforce;
        let of = |left: &Left| policy.limits.iter().find(|limit| limit.name == left.limit);
        let counts = |left: &Left| of(left).is_some_and(is_of_requests);
        let known = self.known(source.try_into().ok()?, counts).await?;
        let found = known.iter().filter_map(|left| {
            let refuses = if is_block(left) {
                policy.limits.iter().any(enforces)
            } else {
                enforces(of(left).filter(|limit| is_of_requests(limit))?)
            };
            Some((left, refuses && left.drops && left.is_over()))
        });
        let first = found.max_by_key(|(left, refuses)| (*refuses, left.rank()));
        first.map(|(left, refuses)| (left.clone(), refuses))
    }

    /// What is known of a source, which the agent is asked about if need be. It is asked again where requests may have used up
    /// what it told of a limit that `counts` holds for.
    async fn known(&self, source: IpAddr, counts: impl Fn(&Left) -> bool) -> Option<Arc<[Left]>> {
        let known = self.of(source, query::now());
        let mut told = known.take(KEPT, query::now(), &counts);
        let mut unanswered = &self.unknown;
        if told.is_none() {
            let mut asking = known.asking.try_lock().ok();
            if asking.is_none() {
                // Another request asks.
                told = known.take(STALE, query::now(), &counts);
                if told.is_none() {
                    asking = timeout(self.patience, known.asking.lock()).await.ok();
                    told = known.take(STALE, query::now(), &counts);
                }
            }
            if told.is_none() && asking.is_some() && !self.is_paused(query::now()) {
                if !self.spend(query::now()) {
                    unanswered = &self.capped;
                } else if let Some(told) = self.ask_about(source, &known).await {
                    self.asked.fetch_add(1, Relaxed);
                    return Some(told);
                }
            }
            drop(asking);
            // Better what may be used up than nothing.
            told = told.or_else(|| known.take(STALE, query::now(), |_| false));
        }
        let count = if told.is_some() { &self.kept } else { unanswered };
        count.fetch_add(1, Relaxed);
        told
    }

    /// The place for what is known of a source. Beyond [`SOURCES`], what is not taken any more makes room; where nothing does, it
    /// is forgotten again.
    fn of(&self, source: IpAddr, now: u64) -> Arc<Known> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sources.get(&source) {
            return Arc::clone(known);
        }
        if sources.len() >= SOURCES {
            sources.retain(|_, known| known.is_within(STALE, now));
        }
        let known = Arc::<Known>::default();
        if sources.len() < SOURCES {
            sources.insert(source, Arc::clone(&known));
        }
        known
    }

    /// Asks the agent, unless too much is asked at once or a pause begins meanwhile.
    async fn ask_about(&self, source: IpAddr, known: &Known) -> Option<Arc<[Left]>> {
        let _question = timeout(self.patience, self.questions.acquire()).await.ok()?.ok()?;
        if self.is_paused(query::now()) {
            return None;
        }
        match self.ask(source).await {
            Ok(limits) => {
                self.note(false, query::now());
                known.note(query::now(), Arc::clone(&limits));
                Some(limits)
            }
            Err(ClientError::Late(_)) => {
                self.note(true, query::now());
                None
            }
            Err(_) => {
                self.paused.store(query::now().saturating_add(PAUSE), Relaxed);
                None
            }
        }
    }

    async fn ask(&self, source: IpAddr) -> Result<Arc<[Left]>, ClientError> {
        let target = format!("/v1/source/{source}");
        let answer = self.agent.ask(Method::GET, &target, Bytes::new(), self.patience).await?;
        // Nothing is known of the source.
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(Arc::default());
        }
        let body = accepted(answer)?;
        let report: Report = serde_json::from_slice(&body)
            .map_err(|error| ClientError::Broken(error.to_string()))?;
        Ok(report.left().into())
    }

    pub(super) fn family(&self) -> Family {
        let of = |count: &AtomicU64| Whole(count.load(Relaxed));
        Family::new(
            "limiter_bridge_sources_total",
            Kind::Counter,
            "Questions about the source of a request under the limits on packets: the agent was asked, or its answer \
             was kept. Nothing was known as too much was asked already (capped), or else (unknown).",
        )
        .with([("result", "asked")], of(&self.asked))
        .with([("result", "kept")], of(&self.kept))
        .with([("result", "capped")], of(&self.capped))
        .with([("result", "unknown")], of(&self.unknown))
    }
}

impl Report {
    /// What limits have left, and the blocks of the source.
    fn left(self) -> Vec<Left> {
        if self.allowed.is_some() {
            return Vec::new();
        }
        let drops = self.mode == "enforce";
        let blocks = [(DENY, self.denied), (PENALTY, self.blocked), (PENALTY, self.penalty)];
        let blocks = blocks.into_iter().filter_map(|(list, until)| {
            let wait = until?.seconds_left.map_or(u64::MAX, nanoseconds);
            Some(Left { limit: list.to_owned(), most: 0, left: 0, request: 0, wait, drops })
        });
        let limits = self.limits.into_iter().filter_map(|it| it.left(drops));
        blocks.chain(limits).collect()
    }
}

impl ReportLimit {
    /// What it has left; `None` if it has no state for the source. `drops`: whether the kernel drops packets at all.
    fn left(self, drops: bool) -> Option<Left> {
        let state = self.state?;
        let request = OfRequests::request(match &*self.count {
            "bytes" => &Count::Bytes,
            "connections" | "syns" => &Count::Connections,
            _ => &Count::Packets,
        });
        // The layer is no part of the name.
        let limit = self.name.split(' ').next()?.to_owned();
        let drops = drops && self.mode == "enforce";
        let (most, left) = (state.limit, state.remaining);
        let mut it = Left { limit, most, left, request, wait: 0, drops };
        let is_bucket =
            matches!(self.algorithm.as_deref(), Some("token_bucket" | "leaky_bucket" | "gcra"));
        it.wait = match state.next_packet_seconds {
            None => u64::MAX,
            Some(next) if next <= 0.0 && left >= it.reserve() => 0,
            Some(next) => {
                // A client that waited so long needs the reserve and what its next request takes.
                let enough = it.reserve().saturating_add(request).min(most);
                let missing = enough.saturating_sub(left);
                // A bucket is refilled steadily. Of other algorithms, it is known when all is there again.
                let seconds = match is_bucket {
                    true => state.full_seconds * missing as f64 / state.used.max(1) as f64,
                    false => state.full_seconds,
                };
                nanoseconds(next.max(seconds)).max(1)
            }
        };
        Some(it)
    }
}

/// Beyond what fits it is the largest number.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{
        "schema": "limiter.source/1", "mode": "enforce", "allowed": null, "denied": null, "blocked": null, "penalty": null,
        "limits": [
            {"name": "web", "mode": "enforce", "count": "packets", "algorithm": "fixed_window", "state":
                {"limit": 100, "used": 100, "remaining": 0, "next_packet_seconds": 2.5, "full_seconds": 2.5}},
            {"name": "web (layer 2)", "mode": "enforce", "count": "packets", "algorithm": "token_bucket", "state":
                {"limit": 100, "used": 60, "remaining": 40, "next_packet_seconds": 0.0, "full_seconds": 60.0}},
            {"name": "watched", "mode": "monitor", "count": "packets", "algorithm": "token_bucket", "state":
                {"limit": 0, "used": 0, "remaining": 0, "next_packet_seconds": null, "full_seconds": 0.0}},
            {"name": "by-port", "mode": "enforce", "count": "packets", "algorithm": null, "state": null}
        ]
    }"#;

    fn told(text: &str) -> Vec<(String, bool)> {
        let report: Report = serde_json::from_str(text).unwrap();
        report.left().into_iter().map(|it| (it.to_string(), it.drops)).collect()
    }

    fn policy(web: OfRequests) -> Policy {
        let mut limit = Limit::new("web", &[]);
        limit.requests = web;
        Policy { limits: vec![limit, Limit::new("watched", &[])], ..Policy::default() }
    }

    #[test]
    fn what_limits_have_left_is_told() {
        let all = |drops| {
            [("over=web;wait=3", drops), ("within=web;left=40", drops), ("over=watched", false)]
                .map(|(text, drops)| (text.to_owned(), drops))
        };
        assert_eq!(told(REPORT), all(true));
        assert_eq!(told(&REPORT.replacen("enforce", "monitor", 1)), all(false));
        let allowed = REPORT.replace("\"allowed\": null", "\"allowed\": {\"seconds_left\": null}");
        assert_eq!(told(&allowed), []);
    }

    /// What a limit of 1 a second by this algorithm has left.
    fn limit(count: &str, algorithm: &str, limit: u64, left: u64) -> Left {
        let state = ReportState {
            limit,
            used: limit - left,
            remaining: left,
            next_packet_seconds: Some(0.0),
            full_seconds: (limit - left) as f64,
        };
        let [name, mode, count, algorithm] =
            ["web", "enforce", count, algorithm].map(str::to_owned);
        let algorithm = Some(algorithm);
        ReportLimit { name, mode, count, algorithm, state: Some(state) }.left(true).unwrap()
    }

    /// A client that is told 429 has packets left to read it by, and to ask again.
    #[test]
    fn a_limit_keeps_a_reserve_for_the_refusal() {
        for (count, most, reserve, request) in [
            ("packets", 60, 12, 10),
            ("packets", 30, 10, 10),
            ("packets", 10, 5, 10),
            ("packets", 1, 0, 10),
            ("bytes", 1_000_000, 200_000, 15_000),
            ("bytes", 40_000, 15_000, 15_000),
            ("connections", 3, 1, 1),
        ] {
            let with = |left| limit(count, "token_bucket", most, left);
            assert_eq!(with(reserve).wait, 0, "{count} {most}");
            if let Some(left) = reserve.checked_sub(1) {
                let wait = with(left).wait.div_ceil(1_000_000_000);
                let enough = (reserve + request).min(most);
                assert_eq!(wait, enough - left, "{count} {most}: until a request passes again");
            }
        }
        // What a window gives back when is not told: it has given back all at its end.
        assert_eq!(limit("packets", "fixed_window", 60, 11).wait, 49_000_000_000);
        let queue = |left| limit("packets", "leaky_bucket", 60, left).to_string();
        assert_eq!([queue(11), queue(12)], ["over=web;wait=11", "within=web;left=12"]);
    }

    /// What was told does not hold for more requests than it has room for, however fast they come.
    #[test]
    fn requests_use_up_what_was_told() {
        let known = Known::default();
        let note = |left| known.note(0, [limit("packets", "token_bucket", 60, left)].into());
        let take = || known.take(KEPT, FRESH, |_| true).is_some();
        note(12);
        assert!((0..9).all(|_| known.take(KEPT, FRESH - 1, |_| true).is_some()), "just told");
        note(57);
        let taken = (0..9).filter(|_| take()).count();
        assert_eq!(taken, 4, "with that which asked, 5 requests of 10 packets above 12");
        assert!(known.take(KEPT, FRESH, |_| false).is_some(), "of no concern");
        known.note(0, [limit("connections", "fixed_window", 10, 2)].into());
        assert!((0..9).all(|_| take()), "requests use no connections");
        note(11);
        assert!((0..9).all(|_| take()), "who is refused takes nothing that would be left");
        assert!(known.take(KEPT, KEPT, |_| true).is_none());
    }

    #[test]
    fn a_block_of_a_source_is_told_and_refuses_where_a_limit_does() {
        let text = REPORT.replace("\"penalty\": null", "\"penalty\": {\"seconds_left\": 7.5}");
        let text = text.replace("\"denied\": null", "\"denied\": {\"seconds_left\": null}");
        let report: Report = serde_json::from_str(&text).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kernel = Kernel::new(Path::new("/nowhere/agent.sock"));
        let source: IpAddr = "192.0.2.1".parse().unwrap();
        let later = query::now().saturating_add(60 * PAUSE);
        kernel.of(source, 0).note(later, report.left().into());
        let left = |web| runtime.block_on(kernel.left(&policy(web), source)).unwrap();
        let (denied, refuses) = left(OfRequests::Enforce);
        assert_eq!((&*denied.to_string(), refuses), ("over=deny", true));
        assert!(!left(OfRequests::Advise).1);
    }

    /// Many requests of one source ask once, and one about whom the agent is late hides nobody.
    #[test]
    fn one_request_of_a_source_asks_and_others_wait_for_it() {
        use std::io::{self, Read as _, Write as _};
        let path = std::env::temp_dir().join(format!("limiter-kernel-{}.sock", std::process::id()));
        let _: io::Result<()> = std::fs::remove_file(&path);
        let agent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            for mut stream in agent.incoming().map_while(Result::ok) {
                let mut bytes = [0; 4_096];
                let read = stream.read(&mut bytes).unwrap_or(0);
                // About others than one source it does not answer.
                if !String::from_utf8_lossy(&bytes[..read]).contains("/192.0.2.1 ") {
                    std::thread::spawn(move || stream.read(&mut bytes));
                    continue;
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", REPORT.len());
                let _: io::Result<()> = stream.write_all((head + REPORT).as_bytes());
            }
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let asking = |patience| Arc::new(Kernel { patience, ..Kernel::new(&path) });
        let ask = |kernel: &Arc<Kernel>, address: &str| {
            let (kernel, source) = (Arc::clone(kernel), address.parse().unwrap());
            runtime.spawn(async move { kernel.left(&policy(OfRequests::Enforce), source).await })
        };
        let patient = asking(Duration::from_secs(60));
        let others: Vec<_> = (2..12).map(|it| ask(&patient, &format!("192.0.2.{it}"))).collect();
        let all: Vec<_> = (0..200).map(|_| ask(&patient, "192.0.2.1")).collect();
        for one in all {
            assert!(runtime.block_on(one).unwrap().is_some_and(|(_, refuses)| refuses));
        }
        // It is asked again as time goes by, and not by each of them.
        assert!(patient.asked.load(Relaxed) < 100, "{}", patient.asked.load(Relaxed));
        others.iter().for_each(tokio::task::JoinHandle::abort);
        let hasty = asking(Duration::from_millis(1));
        assert!(runtime.block_on(ask(&hasty, "192.0.2.2")).unwrap().is_none());
        assert_eq!(hasty.paused.load(Relaxed), 0, "who is late is not away");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_agent_that_answers_late_time_and_again_is_told_until_it_answers_in_time() {
        let kernel = Kernel::new(Path::new("/nowhere/agent.sock"));
        for at in 1..LATE {
            kernel.note(true, at.into());
        }
        assert_eq!(kernel.fault(5), None, "it may be so by chance");
        kernel.note(true, 5);
        assert!(kernel.fault(5).unwrap().contains("later than 20 ms"));
        assert_eq!(kernel.fault(5 + LATELY), None, "nobody asks any more");
        kernel.note(false, 6);
        assert_eq!(kernel.fault(6), None);
    }

    #[test]
    fn pauses_after_late_answers_grow_until_one_comes_in_time() {
        let kernel = Kernel::new(Path::new("/nowhere/agent.sock"));
        let mut now = 1;
        (1..LATE).for_each(|_| kernel.note(true, now));
        assert!(!kernel.is_paused(now));
        for times in [1, 2, 4, 8, 16, 32, 64, 64] {
            // Some were asked at once.
            (0..9).for_each(|_| kernel.note(true, now));
            now += times * LATE_PAUSE;
            assert!(kernel.is_paused(now - 1) && !kernel.is_paused(now), "{times}");
        }
        kernel.note(false, now);
        (1..LATE).for_each(|_| kernel.note(true, now));
        assert!(!kernel.is_paused(now));
    }

    /// An agent that is stopped keeps few requests waiting.
    #[test]
    fn an_agent_that_does_not_answer_is_not_asked_for_a_while() {
        let path = std::env::temp_dir().join(format!("limiter-late-{}.sock", std::process::id()));
        drop(std::fs::remove_file(&path));
        let agent = std::os::unix::net::UnixListener::bind(&path).unwrap();
        agent.set_nonblocking(true).unwrap();
        let kernel = Kernel { patience: Duration::from_millis(1), ..Kernel::new(&path) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // Far off, so that no pause ends meanwhile.
        let begin = Late { pauses: 30, ..Late::default() };
        *kernel.late.lock().unwrap() = begin;
        let policy = policy(OfRequests::Enforce);
        for last in 0..20 {
            let source = IpAddr::from([192, 0, 2, last]);
            assert!(runtime.block_on(kernel.left(&policy, source)).is_none());
        }
        std::fs::remove_file(&path).unwrap();
        let asked = std::iter::from_fn(|| agent.accept().ok()).count();
        assert_eq!((asked, kernel.unknown.load(Relaxed)), (LATE as usize, 20));
    }

    /// However many sources there are.
    #[test]
    fn so_many_questions_a_second_are_asked_and_those_beyond_are_counted() {
        let kernel = Kernel::new(Path::new("/nowhere/agent.sock"));
        let spend = |now| (0..1_000).filter(|_| kernel.spend(now)).count();
        let begin = query::now();
        let asked = [0, QUESTION, 3 * QUESTION, 3 * QUESTION + 3_600_000_000_000]
            .map(|after| spend(begin + after));
        assert_eq!(asked, [200, 1, 2, 200]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let policy = policy(OfRequests::Enforce);
        let left = runtime.block_on(kernel.left(&policy, "192.0.2.1".parse().unwrap()));
        let [capped, unknown] = [&kernel.capped, &kernel.unknown].map(|it| it.load(Relaxed));
        assert_eq!((left, capped, unknown), (None, 1, 0));
        assert!(!kernel.is_paused(query::now()), "nobody was asked");
    }

    #[test]
    fn only_limits_that_are_of_concern_to_requests_are_told_and_answers_are_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kernel = Kernel::new(Path::new("/nowhere/agent.sock"));
        let [one, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        let report: Report = serde_json::from_str(REPORT).unwrap();
        // However long this takes.
        let now = query::now().saturating_add(60 * PAUSE);
        kernel.of(one, 0).note(now, report.left().into());
        let over = |web, source| {
            let left = runtime.block_on(kernel.left(&policy(web), source));
            left.map(|(left, refuses)| (left.to_string(), refuses))
        };
        let found = |refuses| Some(("over=web;wait=3".to_owned(), refuses));
        assert_eq!(over(OfRequests::Enforce, one), found(true));
        assert_eq!(over(OfRequests::Advise, one), found(false));
        assert_eq!(over(OfRequests::Off, one), None);
        // Addresses of one source share what was told of it.
        let report: Report = serde_json::from_str(REPORT).unwrap();
        kernel.of("2001:db8::".parse().unwrap(), 0).note(now, report.left().into());
        let within = "2001:db8::2:0:0:1".parse().unwrap();
        assert_eq!(over(OfRequests::Enforce, within), found(true));
        // Nobody answers about the other, and the agent is not asked again at once.
        assert_eq!(over(OfRequests::Enforce, other), None);
        assert!(kernel.paused.load(Relaxed) > query::now());
        assert_eq!(over(OfRequests::Enforce, other), None);
        assert_eq!((kernel.kept.load(Relaxed), kernel.unknown.load(Relaxed)), (3, 2));
    }
}
