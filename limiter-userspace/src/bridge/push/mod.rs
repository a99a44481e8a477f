//! Blocks of peers that go on over a limit with a penalty, handed to the agent, which has the kernel drop their packets.
//!
//! A decision only puts a block into a queue. The answer to the request that called for it waits a moment until the agent has looked
//! for its connection, which the proxy may close after the answer. A task hands them on, many at once. While the agent is away, they wait as long as
//! they are of use, and the queue takes no more than it has room for.

mod connection;
mod counts;
mod offences;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{Method, StatusCode, body::Bytes};
use limiter_common::base::address::{Address, Mask};
use serde::{Deserialize, Serialize};
use tokio::{
    select,
    sync::{
        mpsc::{self, Receiver, Sender, error::TrySendError},
        oneshot,
    },
    time::{MissedTickBehavior, interval, sleep, timeout},
};

pub(super) use self::connection::Connection;
pub(super) use self::offences::Stored;
use self::{
    counts::{Dropped, PushCounts},
    offences::{Due, Offences, Refused},
};
use super::{
    client::{Client, ClientError, accepted},
    event::Event,
    in_force::InForce,
    link::{Link, is_needed},
    told::Told,
};
use crate::{
    metrics::Family,
    policy::{
        Policy,
        model::{Proxied, RequestKeyPart, RequestLimit},
    },
    query,
};

/// Blocks that wait for the agent.
const QUEUE: usize = 1_000;
/// Blocks that are handed on at once.
const BATCH: usize = 1_000;
/// How old a block may get while the agent is away.
const OLDEST: Duration = Duration::from_secs(10);
/// How long the agent may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the answer to a request waits for the agent. The proxy waits for longer.
const HOLD: Duration = Duration::from_millis(200);
/// The time between two tries while it is away.
const PAUSE: Duration = Duration::from_millis(200);
/// How often it is looked whether the agent is there.
const PROBE: Duration = Duration::from_secs(1);
/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// The longest block that the agent takes, in ns: a day.
const LONGEST: u64 = 24 * 3600 * SECOND;

/// A request that a limit refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) source: IpAddr,
    /// Whether it has the fields of a proxy other than the one that asks.
    pub(super) is_proxied: bool,
    /// A digest of the key by which the limit counts it; `None` if its rate does not refuse it.
    pub(super) key: Option<u64>,
    /// Nanoseconds until it passes; [`u64::MAX`] if it never does.
    pub(super) wait: u64,
}

/// A block that the agent is asked for.
#[derive(Debug)]
struct Push {
    connection: Connection,
    limit: String,
    /// Until when the peer is to be blocked, in ns of `CLOCK_MONOTONIC`.
    until: u64,
    /// When it was put into the queue.
    queued: Instant,
    /// Closed once the agent has answered.
    _done: oneshot::Sender<()>,
}

/// A block that the agent was asked for just now.
pub(super) struct Pushed(oneshot::Receiver<()>);

impl Pushed {
    /// Waits a moment for the agent.
    pub(super) async fn settle(self) {
        // What became of it is counted elsewhere.
        drop(timeout(HOLD, self.0).await);
    }
}

/// The same, as the agent reads it.
#[derive(Serialize)]
struct Penalty<'p> {
    subject: IpAddr,
    /// Seconds.
    r#for: u64,
    reason: &'static str,
    limit: &'p str,
    proof: Proof,
}

#[derive(Serialize)]
struct Proof {
    remote: String,
    local: String,
}

/// What became of one, as the agent tells.
#[derive(Deserialize)]
struct Outcome {
    result: String,
    seconds: Option<f64>,
}

/// Finds who is to be blocked, and has a queue of them.
pub(super) struct Pusher {
    pub(super) offences: Offences,
    queue: Sender<Push>,
    counts: PushCounts,
}

/// The other end of the queue.
pub(super) struct Queue(Receiver<Push>);

impl Pusher {
    /// None is known yet. `seed` is that of the state of keys.
    pub(super) fn new(seed: [u64; 2]) -> (Self, Queue) {
        let (queue, waiting) = mpsc::channel(QUEUE);
        (
            Self { offences: Offences::new(seed), queue, counts: PushCounts::default() },
            Queue(waiting),
        )
    }

    /// Notes that a limit refused a request that came by a connection, at `now` in ns of `CLOCK_MONOTONIC`. Has the peer blocked if it went on for as long as the penalty of the limit says: then, the answer
    /// is to wait for [`Pushed::settle`].
    ///
    /// A source that is not the peer came by another proxy, whose packets are those of all its clients. Nobody is blocked then. The
    /// fields of another proxy mean the same, unless the penalty says that such a peer is blocked.
    pub(super) fn refused(
        &self,
        policy: &Policy,
        limit: &RequestLimit,
        refusal: &Refusal,
        connection: Connection,
        now: u64,
    ) -> Option<Pushed> {
        let penalty = limit.penalty.as_ref()?;
        let Refusal { source, is_proxied, key, wait } = *refusal;
        if connection.remote.ip() != source {
            self.counts.dropped(Dropped::OtherSource, 1);
            return None;
        }
        if is_proxied && penalty.proxied == Proxied::Spare {
            self.counts.dropped(Dropped::Proxied, 1);
            return None;
        }
        let prefix = policy.key_prefix;
        let peer = Address::from(source).masked(&Mask::new(prefix.ipv4, prefix.ipv6));
        // Clients are told whole seconds.
        let wait = wait.div_ceil(SECOND).max(1).saturating_mul(SECOND);
        let is_one = limit.keys().all(|it| it.parts.contains(&RequestKeyPart::Source));
        let refused = Refused { peer, digest: key.unwrap_or_default(), is_one };
        let due = self.offences.exceed(&limit.name, &penalty.compiled(0), refused, wait, now)?;
        let Due::Until(until) = due else {
            self.counts.dropped(Dropped::Shared, 1);
            return None;
        };
        let (push, pushed) = Push::new(connection, limit.name.clone(), until);
        if let Err(TrySendError::Full(_)) = self.queue.try_send(push) {
            self.counts.dropped(Dropped::QueueFull, 1);
        }
        Some(pushed)
    }

    /// Notes that a limit with a penalty refused a request whose connection is not known. Its peer is not blocked. `is_remote` says
    /// whether it was to a proxy on another host, none of whose connections can be proven here.
    pub(super) fn refused_unknown(&self, is_remote: bool) {
        self.counts.dropped(if is_remote { Dropped::Elsewhere } else { Dropped::NoPeer }, 1);
    }

    pub(super) fn families(&self) -> Vec<Family> {
        self.counts.families()
    }
}

impl Queue {
    /// Hands blocks to the agent until the process ends, and looks whether it is there as long as the policy needs it.
    pub(super) async fn hand_on(
        mut self,
        agent: Client,
        pusher: Arc<Pusher>,
        in_force: Arc<InForce>,
        link: Arc<Link>,
    ) {
        let mut probe = interval(PROBE);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = Told::default();
        loop {
            let mut batch = Vec::new();
            select! {
                biased;
                count = self.0.recv_many(&mut batch, BATCH) => if count == 0 { return },
                _ = probe.tick() => {
                    if is_needed(&in_force.policy()) {
                        link.note(probe_agent(&agent).await);
                    } else {
                        link.unneeded();
                    }
                }
            }
            while !batch.is_empty() {
                let before = batch.len();
                batch.retain(|push| push.queued.elapsed() < OLDEST);
                pusher.counts.dropped(Dropped::Late, before - batch.len());
                match ask(&agent, &batch).await {
                    Ok(outcomes) => {
                        for (push, outcome) in batch.drain(..).zip(outcomes) {
                            pusher.counts.answered(&outcome.result);
                            if told.has_room() {
                                link.tell(push.told(&outcome));
                            }
                        }
                        link.note(Ok(()));
                    }
                    // 503 is for a moment, as while it is away.
                    Err(error @ ClientError::Refused { status, .. })
                        if status != StatusCode::SERVICE_UNAVAILABLE =>
                    {
                        pusher.counts.dropped(Dropped::Refused, batch.len());
                        batch.clear();
                        link.note(Err(error));
                    }
                    Err(error) => {
                        link.note(Err(error));
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

/// Looks whether the agent answers for an instance, which it opens by that.
async fn probe_agent(agent: &Client) -> Result<(), ClientError> {
    let answer = agent.ask(Method::GET, "/v1/source/127.0.0.1", Bytes::new(), PATIENCE).await?;
    match answer.status() {
        // Nothing is known of it.
        StatusCode::NOT_FOUND => Ok(()),
        _ => accepted(answer).map(drop),
    }
}

/// Has the agent block peers. Returns what became of each.
async fn ask(agent: &Client, batch: &[Push]) -> Result<Vec<Outcome>, ClientError> {
    let now = query::now();
    let penalties: Vec<Penalty<'_>> = batch.iter().map(|push| push.penalty(now)).collect();
    let broken = |error: serde_json::Error| ClientError::Broken(error.to_string());
    let body = serde_json::to_vec(&penalties).map_err(broken)?;
    let answer = agent.ask(Method::POST, "/v1/penalties", Bytes::from(body), PATIENCE).await?;
    serde_json::from_slice(&accepted(answer)?).map_err(broken)
}

impl Push {
    fn new(connection: Connection, limit: String, until: u64) -> (Self, Pushed) {
        let (done, waiting) = oneshot::channel();
        let push = Self { connection, limit, until, queued: Instant::now(), _done: done };
        (push, Pushed(waiting))
    }

    fn penalty(&self, now: u64) -> Penalty<'_> {
        let left = self.until.saturating_sub(now).clamp(1, LONGEST);
        let Connection { remote, local } = self.connection;
        Penalty {
            subject: remote.ip(),
            r#for: left.div_ceil(SECOND),
            reason: "requests over a limit",
            limit: &self.limit,
            proof: Proof { remote: remote.to_string(), local: local.to_string() },
        }
    }

    fn told(self, outcome: &Outcome) -> Event {
        Event::Pushed {
            peer: self.connection.remote.ip(),
            limit: self.limit,
            result: outcome.result.chars().filter(char::is_ascii_graphic).take(32).collect(),
            seconds: outcome.seconds.filter(|seconds| *seconds > 0.0),
        }
    }
}

#[cfg(test)]
mod tests;
