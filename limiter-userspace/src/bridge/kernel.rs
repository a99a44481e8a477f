//! What the kernel's limits on packets have left for the source of a request, as the agent tells.
//!
//! It is asked only for limits whose `requests` is not `off`. What it tells is kept for a short time, so that a source that asks
//! much does not cost a question each time: one request asks, and others take what was told before, or wait for it. So many
//! requests of one source do not hide others. While the agent is away, nothing is known of any source.

use std::{
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
        model::{Limit, OfRequests},
    },
    query,
};

/// How long the agent may take.
const PATIENCE: Duration = Duration::from_millis(20);
/// For how long what it told is kept, in ns.
const KEPT: u64 = 100_000_000;
/// For how long that is taken while it is asked again, in ns.
const STALE: u64 = 1_000_000_000;
/// For how long it is not asked again after it was away, in ns.
const PAUSE: u64 = 1_000_000_000;
/// So many answers that come late one after the other are told, for so long after the last, in ns.
const LATE: u32 = 3;
const LATELY: u64 = 10_000_000_000;
/// The most questions at once. The agent has room for 64 connections of those it trusts.
const AT_ONCE: usize = 16;
/// The most sources of which something is kept.
const SOURCES: usize = 8_192;

/// A limit on packets that has nothing left for a source, or a block of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Over {
    /// The name of the limit; [`DENY`] or [`PENALTY`] for a block.
    pub(super) limit: String,
    /// Nanoseconds until a packet passes; [`u64::MAX`] if none ever does.
    pub(super) wait: u64,
    /// Whether the kernel drops packets of the source.
    drops: bool,
}

/// What the lists with blocks are called in place of a limit.
const DENY: &str = "deny";
const PENALTY: &str = "penalty";

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "over={}", self.limit)?;
        match self.wait {
            u64::MAX => Ok(()),
            wait => write!(f, ";wait={}", wait.div_ceil(1_000_000_000)),
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
    state: Option<ReportState>,
}

#[derive(Deserialize)]
struct ReportState {
    next_packet_seconds: Option<f64>,
}

/// What is known of a source.
#[derive(Default)]
struct Known {
    /// What the agent told, and when, in ns of `CLOCK_MONOTONIC`.
    told: Mutex<Option<(u64, Arc<[Over]>)>>,
    /// Held by who asks.
    asking: tokio::sync::Mutex<()>,
}

impl Known {
    /// What was told within a time before `now`, both in ns.
    fn within(&self, time: u64, now: u64) -> Option<Arc<[Over]>> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, over) = told.as_ref()?;
        (now.saturating_sub(*at) < time).then(|| Arc::clone(over))
    }

    fn note(&self, now: u64, over: Arc<[Over]>) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, over));
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
    /// Questions: that were answered, by what was kept, and that were not.
    asked: AtomicU64,
    kept: AtomicU64,
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
}

/// Whether a limit on packets is of concern to requests.
pub(super) fn is_of_requests(limit: &Limit) -> bool {
    !limit.requests.is_off()
}

impl Kernel {
    pub(super) fn new(agent: &Path) -> Self {
        let [paused, asked, kept, unknown] = [const { AtomicU64::new(0) }; 4];
        let agent = Client::new(agent);
        let questions = Semaphore::new(AT_ONCE);
        Self {
            agent,
            patience: PATIENCE,
            sources: Mutex::default(),
            questions,
            paused,
            asked,
            kept,
            unknown,
            late: Mutex::default(),
        }
    }

    /// One that waits for the agent as long as it takes.
    #[cfg(test)]
    pub(super) fn patient(agent: &Path) -> Self {
        Self { patience: Duration::from_secs(60), ..Self::new(agent) }
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

    /// Notes whether the agent answered in time at `now`.
    fn note(&self, is_late: bool, now: u64) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        *late = match is_late {
            true => Late { count: late.count.saturating_add(1), last: now },
            false => Late::default(),
        };
    }

    /// The limits on packets that have nothing left for a source, as far as they are of concern to requests and the agent
    /// answers: first those for which the policy refuses requests, and of these that with the longest wait. Tells with each
    /// whether it refuses requests.
    pub(super) async fn over(&self, policy: &Policy, source: IpAddr) -> Option<(Over, bool)> {
        // The agent knows sources, which are prefixes of addresses. So all addresses of one cost one question.
        let prefix = policy.key_prefix;
        let source = Address::from(source).masked(&Mask::new(prefix.ipv4, prefix.ipv6));
        let known = self.known(source.try_into().ok()?).await?;
        let is_block = |over: &Over| [DENY, PENALTY].contains(&&*over.limit);
        let enforces = |limit: &Limit| limit.requests == OfRequests::Enforce;
        let found = known.iter().filter_map(|over| {
            if is_block(over) {
                return Some((over, over.drops && policy.limits.iter().any(enforces)));
            }
            let limit = policy.limits.iter().find(|limit| limit.name == over.limit)?;
            is_of_requests(limit).then_some((over, over.drops && enforces(limit)))
        });
        let first = found.max_by_key(|(over, refuses)| (*refuses, over.wait));
        first.map(|(over, refuses)| (over.clone(), refuses))
    }

    /// What is known of a source, which the agent is asked about if need be.
    async fn known(&self, source: IpAddr) -> Option<Arc<[Over]>> {
        let known = self.of(source, query::now());
        let told = match known.within(KEPT, query::now()) {
            Some(told) => Some(told),
            None => match known.asking.try_lock() {
                Ok(asking) => {
                    if let Some(told) = self.ask_about(source, &known).await {
                        self.asked.fetch_add(1, Relaxed);
                        return Some(told);
                    }
                    drop(asking);
                    known.within(STALE, query::now())
                }
                // Another request asks.
                Err(_) => match known.within(STALE, query::now()) {
                    Some(told) => Some(told),
                    None => {
                        let _: Result<_, _> = timeout(self.patience, known.asking.lock()).await;
                        known.within(STALE, query::now())
                    }
                },
            },
        };
        let count = if told.is_some() { &self.kept } else { &self.unknown };
        count.fetch_add(1, Relaxed);
        told
    }

    /// The place for what is known of a source. Beyond [`SOURCES`], what nobody asks for any more makes room; where nothing
    /// does, it is forgotten again.
    fn of(&self, source: IpAddr, now: u64) -> Arc<Known> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sources.get(&source) {
            return Arc::clone(known);
        }
        if sources.len() >= SOURCES {
            sources.retain(|_, known| known.within(KEPT, now).is_some());
        }
        let known = Arc::<Known>::default();
        if sources.len() < SOURCES {
            sources.insert(source, Arc::clone(&known));
        }
        known
    }

    /// Asks the agent, unless it was away just now or too much is asked at once.
    async fn ask_about(&self, source: IpAddr, known: &Known) -> Option<Arc<[Over]>> {
        if query::now() < self.paused.load(Relaxed) {
            return None;
        }
        let _question = timeout(self.patience, self.questions.acquire()).await.ok()?.ok()?;
        match self.ask(source).await {
            Ok(over) => {
                self.note(false, query::now());
                known.note(query::now(), Arc::clone(&over));
                Some(over)
            }
            // It is there, and has much to do: the next question may come in time.
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

    async fn ask(&self, source: IpAddr) -> Result<Arc<[Over]>, ClientError> {
        let target = format!("/v1/source/{source}");
        let answer = self.agent.ask(Method::GET, &target, Bytes::new(), self.patience).await?;
        // Nothing is known of the source.
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(Arc::default());
        }
        let body = accepted(answer)?;
        let report: Report = serde_json::from_slice(&body)
            .map_err(|error| ClientError::Broken(error.to_string()))?;
        Ok(report.over().into())
    }

    pub(super) fn family(&self) -> Family {
        let of = |count: &AtomicU64| Whole(count.load(Relaxed));
        Family::new(
            "limiter_bridge_sources_total",
            Kind::Counter,
            "Questions about the source of a request under the limits on packets, by whether the agent was asked, its answer was \
             kept, or nothing was known (unknown).",
        )
        .with([("result", "asked")], of(&self.asked))
        .with([("result", "kept")], of(&self.kept))
        .with([("result", "unknown")], of(&self.unknown))
    }
}

impl Report {
    /// The limits that have nothing left, and the blocks of the source.
    fn over(self) -> Vec<Over> {
        if self.allowed.is_some() {
            return Vec::new();
        }
        let drops = self.mode == "enforce";
        // Beyond what fits it is the largest number.
        let wait = |seconds: Option<f64>| seconds.map_or(u64::MAX, |it| (it * 1e9).ceil() as u64);
        let blocks = [(DENY, self.denied), (PENALTY, self.blocked), (PENALTY, self.penalty)];
        let blocks = blocks.into_iter().filter_map(|(list, until)| {
            let wait = wait(until?.seconds_left);
            Some(Over { limit: list.to_owned(), wait, drops })
        });
        let over = self.limits.into_iter().filter_map(|limit| {
            let seconds = limit.state?.next_packet_seconds;
            if seconds.is_some_and(|it| it <= 0.0) {
                return None;
            }
            let wait = wait(seconds);
            let drops = drops && limit.mode == "enforce";
            // The layer is no part of the name.
            let name = limit.name.split(' ').next()?.to_owned();
            Some(Over { limit: name, wait, drops })
        });
        blocks.chain(over).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{
        "schema": "limiter.source/1", "mode": "enforce", "allowed": null, "denied": null, "blocked": null, "penalty": null,
        "limits": [
            {"name": "web", "mode": "enforce", "state": {"next_packet_seconds": 2.5}},
            {"name": "web (layer 2)", "mode": "enforce", "state": {"next_packet_seconds": 0.0}},
            {"name": "watched", "mode": "monitor", "state": {"next_packet_seconds": null}},
            {"name": "by-port", "mode": "enforce", "state": null}
        ]
    }"#;

    fn over(text: &str) -> Vec<(String, u64, bool)> {
        let report: Report = serde_json::from_str(text).unwrap();
        let over = report.over().into_iter();
        over.map(|it| (it.limit, it.wait, it.drops)).collect()
    }

    fn policy(web: OfRequests) -> Policy {
        let mut limit = Limit::new("web", &[]);
        limit.requests = web;
        Policy { limits: vec![limit, Limit::new("watched", &[])], ..Policy::default() }
    }

    #[test]
    fn a_limit_with_nothing_left_is_told() {
        let web = ("web".to_owned(), 2_500_000_000, true);
        let watched = ("watched".to_owned(), u64::MAX, false);
        assert_eq!(over(REPORT), [web, watched.clone()]);
        let monitored = REPORT.replacen("enforce", "monitor", 1);
        assert_eq!(over(&monitored), [("web".to_owned(), 2_500_000_000, false), watched]);
        let allowed = REPORT.replace("\"allowed\": null", "\"allowed\": {\"seconds_left\": null}");
        assert_eq!(over(&allowed), []);
        let text = |wait| Over { limit: "web".to_owned(), wait, drops: true }.to_string();
        assert_eq!((&*text(1), &*text(u64::MAX)), ("over=web;wait=1", "over=web"));
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
        kernel.of(source, 0).note(later, report.over().into());
        let over = |web| runtime.block_on(kernel.over(&policy(web), source)).unwrap();
        let (denied, refuses) = over(OfRequests::Enforce);
        assert_eq!((&*denied.to_string(), refuses), ("over=deny", true));
        assert!(!over(OfRequests::Advise).1);
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
            runtime.spawn(async move { kernel.over(&policy(OfRequests::Enforce), source).await })
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
    fn only_limits_that_are_of_concern_to_requests_are_told_and_answers_are_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kernel = Kernel::new(Path::new("/nowhere/agent.sock"));
        let [one, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        let report: Report = serde_json::from_str(REPORT).unwrap();
        // However long this takes.
        let now = query::now().saturating_add(60 * PAUSE);
        kernel.of(one, 0).note(now, report.over().into());
        let over = |web, source| runtime.block_on(kernel.over(&policy(web), source));
        let found = |refuses| {
            let limit = "web".to_owned();
            Some((Over { limit, wait: 2_500_000_000, drops: true }, refuses))
        };
        assert_eq!(over(OfRequests::Enforce, one), found(true));
        assert_eq!(over(OfRequests::Advise, one), found(false));
        assert_eq!(over(OfRequests::Off, one), None);
        // Addresses of one source share what was told of it.
        let report: Report = serde_json::from_str(REPORT).unwrap();
        kernel.of("2001:db8::".parse().unwrap(), 0).note(now, report.over().into());
        let within = "2001:db8::2:0:0:1".parse().unwrap();
        assert_eq!(over(OfRequests::Enforce, within), found(true));
        // Nobody answers about the other, and the agent is not asked again at once.
        assert_eq!(over(OfRequests::Enforce, other), None);
        assert!(kernel.paused.load(Relaxed) > query::now());
        assert_eq!(over(OfRequests::Enforce, other), None);
        assert_eq!((kernel.kept.load(Relaxed), kernel.unknown.load(Relaxed)), (4, 2));
    }
}
