//! What the kernel's limits on packets have left for the source of a request, as the agent tells.
//!
//! It is asked only for limits whose `requests` is not `off`. What it tells is kept for a short time, so that a source that asks
//! much does not cost a question each time. While it is away or slow, nothing is known of any source.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hyper::{Method, StatusCode, body::Bytes};
use limiter_common::base::address::{Address, Mask};
use serde::{Deserialize, de::IgnoredAny};

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
/// For how long it is not asked again after it did not answer, in ns.
const PAUSE: u64 = 1_000_000_000;
/// The most sources of which something is kept.
const SOURCES: usize = 8_192;

/// A limit on packets that has nothing left for a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Over {
    /// Its name.
    pub(super) limit: String,
    /// Nanoseconds until a packet passes; [`u64::MAX`] if none ever does.
    pub(super) wait: u64,
    /// Whether the kernel drops packets of the source.
    drops: bool,
}

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
    limits: Vec<ReportLimit>,
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

/// What the agent told of sources, and when.
type Told = HashMap<IpAddr, (u64, Arc<[Over]>)>;

/// Asks the agent about sources.
pub(super) struct Kernel {
    agent: Client,
    /// What it told, and when, in ns of `CLOCK_MONOTONIC`.
    told: Mutex<Told>,
    /// Until when it is not asked, in ns.
    paused: AtomicU64,
    /// Questions: that were answered, by what was kept, and that were not.
    asked: AtomicU64,
    kept: AtomicU64,
    unknown: AtomicU64,
}

/// Whether a limit on packets is of concern to requests.
pub(super) fn is_of_requests(limit: &Limit) -> bool {
    !limit.requests.is_off()
}

impl Kernel {
    pub(super) fn new(agent: &Path) -> Self {
        let [paused, asked, kept, unknown] = [const { AtomicU64::new(0) }; 4];
        let agent = Client::new(agent);
        Self { agent, told: Mutex::default(), paused, asked, kept, unknown }
    }

    /// The limits on packets that have nothing left for a source, as far as they are of concern to requests and the agent
    /// answers: first those for which the policy refuses requests, and of these that with the longest wait. Tells with each
    /// whether it refuses requests.
    pub(super) async fn over(&self, policy: &Policy, source: IpAddr) -> Option<(Over, bool)> {
        // The agent knows sources, which are prefixes of addresses. So all addresses of one cost one question.
        let prefix = policy.key_prefix;
        let source = Address::from(source).masked(&Mask::new(prefix.ipv4, prefix.ipv6));
        let known = self.known(source.try_into().ok()?).await?;
        let found = known.iter().filter_map(|over| {
            let limit = policy.limits.iter().find(|limit| limit.name == over.limit)?;
            let refuses = limit.requests == OfRequests::Enforce && over.drops;
            is_of_requests(limit).then_some((over, refuses))
        });
        let first = found.max_by_key(|(over, refuses)| (*refuses, over.wait));
        first.map(|(over, refuses)| (over.clone(), refuses))
    }

    async fn known(&self, source: IpAddr) -> Option<Arc<[Over]>> {
        let now = query::now();
        if let Some((at, over)) = self.lock().get(&source)
            && now.saturating_sub(*at) < KEPT
        {
            self.kept.fetch_add(1, Relaxed);
            return Some(Arc::clone(over));
        }
        if now < self.paused.load(Relaxed) {
            self.unknown.fetch_add(1, Relaxed);
            return None;
        }
        let Ok(over) = self.ask(source).await else {
            self.paused.store(now.saturating_add(PAUSE), Relaxed);
            self.unknown.fetch_add(1, Relaxed);
            return None;
        };
        self.asked.fetch_add(1, Relaxed);
        let mut told = self.lock();
        if told.len() >= SOURCES {
            told.retain(|_, (at, _)| now.saturating_sub(*at) < KEPT);
        }
        if told.len() < SOURCES {
            told.insert(source, (now, Arc::clone(&over)));
        }
        Some(over)
    }

    async fn ask(&self, source: IpAddr) -> Result<Arc<[Over]>, ClientError> {
        let target = format!("/v1/source/{source}");
        let answer = self.agent.ask(Method::GET, &target, Bytes::new(), PATIENCE).await?;
        // Nothing is known of the source.
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(Arc::default());
        }
        let body = accepted(answer)?;
        let report: Report = serde_json::from_slice(&body)
            .map_err(|error| ClientError::Broken(error.to_string()))?;
        Ok(report.over().into())
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The limits that have nothing left.
    fn over(self) -> Vec<Over> {
        if self.allowed.is_some() {
            return Vec::new();
        }
        let drops = self.mode == "enforce";
        let over = self.limits.into_iter().filter_map(|limit| {
            let wait = match limit.state?.next_packet_seconds {
                Some(seconds) if seconds <= 0.0 => return None,
                // Beyond what fits it is the largest number.
                Some(seconds) => (seconds * 1e9).ceil() as u64,
                None => u64::MAX,
            };
            let drops = drops && limit.mode == "enforce";
            // The layer is no part of the name.
            let name = limit.name.split(' ').next()?.to_owned();
            Some(Over { limit: name, wait, drops })
        });
        over.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{
        "schema": "limiter.source/1", "mode": "enforce", "allowed": null,
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
    fn only_limits_that_are_of_concern_to_requests_are_told_and_answers_are_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let kernel = Kernel::new(Path::new("/nowhere/agent.sock"));
        let [one, other]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse().unwrap());
        let report: Report = serde_json::from_str(REPORT).unwrap();
        // However long this takes.
        let now = query::now().saturating_add(60 * PAUSE);
        kernel.lock().insert(one, (now, report.over().into()));
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
        kernel.lock().insert("2001:db8::".parse().unwrap(), (now, report.over().into()));
        let within = "2001:db8::2:0:0:1".parse().unwrap();
        assert_eq!(over(OfRequests::Enforce, within), found(true));
        // Nobody answers about the other, and the agent is not asked again at once.
        assert_eq!(over(OfRequests::Enforce, other), None);
        assert!(kernel.paused.load(Relaxed) > query::now());
        assert_eq!(over(OfRequests::Enforce, other), None);
        assert_eq!((kernel.kept.load(Relaxed), kernel.unknown.load(Relaxed)), (4, 2));
    }
}
