//! Decisions about requests that proxies ask about.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{HeaderMap, Request, body::Incoming, header::HeaderName};
use limiter_common::base::address::{Address, Mask};
use tokio::time::sleep;

use super::{
    Fault, Service, Timed,
    asked::Asked,
    held::{Held, Turn},
    parameters::{Parameters, check},
    reply::{Reply, SOURCE},
    source,
};
use crate::{
    bridge::{
        answer::{Answer, Verdict},
        fields::random,
        in_force::Untold,
        kernel::Left,
        listener::Peer,
        push::{Connection, Refusal},
    },
    policy::Policy,
    query,
};

/// The connection of the request, as the proxy tells of it: address and port of the peer, and of the proxy.
const PEER: HeaderName = HeaderName::from_static("x-limiter-peer");

/// A request that a proxy asks about.
pub(in crate::bridge) struct Question<'h> {
    pub(in crate::bridge) asked: Asked<'h>,
    /// The connection that it came by, if the proxy may name one.
    pub(in crate::bridge) connection: Option<Connection>,
    /// Whether a proxy on another host asks. None of its connections can be proven here.
    pub(in crate::bridge) is_remote: bool,
    /// How many times what it costs by the policy.
    pub(in crate::bridge) cost: u64,
    /// Whether it is only asked about, and not charged.
    pub(in crate::bridge) peek: bool,
}

/// What becomes of a request.
pub(in crate::bridge) enum Decision {
    /// What the limits on requests make of it, by the policy that they are of; and what a limit on packets has left for its
    /// source.
    Answered(Answer, Arc<Policy>, Option<Left>),
    /// A limit on packets that has too little left for its source refuses it. Nothing was charged.
    Refused(Left),
}

/// An answer, and what it waits for.
type InTurn = (Reply, Option<Wait>);

/// An answer is held back for so many nanoseconds.
struct Wait {
    held: Held,
    time: u64,
    /// The places that the request has already.
    untold: Untold,
}

impl Service {
    /// The answer to a proxy that asks about a request.
    pub(super) async fn auth(&self, request: &Request<Incoming>, peer: Peer) -> Reply {
        let begin = Instant::now();
        let decided = self.decide_auth(request, peer).await;
        self.tallies.took(Timed::Auth, begin.elapsed());
        in_turn(decided).await
    }

    /// The answer to Envoy, which asks about a request to `target` by `ext_authz`.
    pub(super) async fn ext_authz(
        &self,
        request: &Request<Incoming>,
        target: &str,
        peer: Peer,
    ) -> Reply {
        let begin = Instant::now();
        let decided = self.decide_ext_authz(request, target, peer).await;
        self.tallies.took(Timed::ExtAuthz, begin.elapsed());
        in_turn(decided).await
    }

    async fn decide_auth(&self, request: &Request<Incoming>, peer: Peer) -> Result<InTurn, Fault> {
        self.check(peer)?;
        let Parameters { deny, cost, peek, limits } = Parameters::read(request.uri().query())?;
        let policy = self.in_force.policy();
        if !limits.is_empty() {
            check(&limits, &policy)?;
        }
        let asked = Asked::read(request.headers(), limits)?;
        let connection = connection(request.headers(), peer);
        let is_remote = peer == Peer::Certificate;
        let question = Question { asked, connection, is_remote, cost, peek };
        self.decide_in_turn(&policy, question, [204, deny]).await
    }

    async fn decide_ext_authz(
        &self,
        request: &Request<Incoming>,
        target: &str,
        peer: Peer,
    ) -> Result<InTurn, Fault> {
        self.check(peer)?;
        let asked = Asked::forwarded(request.method().as_str(), target, request.headers())?;
        let is_remote = peer == Peer::Certificate;
        let connection = connection(request.headers(), peer);
        let question = Question { asked, connection, is_remote, cost: 1, peek: false };
        // It takes 200 alone for one that passes.
        self.decide_in_turn(&self.in_force.policy(), question, [200, 429]).await
    }

    /// Decides about a request, whose answer may be held back, under the policy that was in force just now. The statuses are those
    /// of one that passes, and of one that a limit refuses.
    async fn decide_in_turn(
        &self,
        policy: &Arc<Policy>,
        question: Question<'_>,
        statuses: [u16; 2],
    ) -> Result<InTurn, Fault> {
        let prefix = policy.key_prefix;
        let source = Address::from(question.asked.source());
        let source = source.masked(&Mask::new(prefix.ipv4, prefix.ipv6));
        let turn = Turn::new(&self.held, source);
        let question = Question { asked: question.asked.waiting(&turn), ..question };
        let (answer, policy, left) = match self.decide(policy, &question).await? {
            Decision::Answered(answer, policy, left) => (answer, policy, left),
            Decision::Refused(over) => {
                return Ok((source::refused(&over, statuses[1], random()), None));
            }
        };
        let mut reply = Reply::answer(&answer, &policy, statuses);
        if let Some(left) = left {
            reply.insert(SOURCE, &left.to_string());
        }
        let is_held = answer.hold > 0 && answer.verdict == Verdict::Pass && !question.peek;
        let untold = self.in_force.untold(&answer);
        match turn.held().filter(|_| is_held) {
            Some(held) => Ok((reply, Some(Wait { held, time: answer.hold, untold }))),
            None => {
                untold.tell();
                Ok((reply, None))
            }
        }
    }

    /// Decides about a request, which is checked under the policy that was in force just now. A peer that goes on over a limit is
    /// handed to the agent, which blocks it.
    ///
    /// # Errors
    /// [`Fault`] for a request that the policy in force cannot be held to.
    pub(in crate::bridge) async fn decide(
        &self,
        checked: &Arc<Policy>,
        question: &Question<'_>,
    ) -> Result<Decision, Fault> {
        let Question { asked, connection, is_remote, cost, peek } = question;
        asked.check(checked)?;
        let left = match self.kernel.left(checked, asked.source()).await {
            Some((over, true)) => return Ok(Decision::Refused(over)),
            left => left.map(|(left, _)| left),
        };
        let now = query::now();
        let (answer, policy) = self.in_force.decide(&asked.request(), *cost, *peek, now);
        if !Arc::ptr_eq(checked, &policy) {
            // Another one was put in force meanwhile.
            let untold = self.in_force.untold(&answer);
            asked.check(&policy)?;
            untold.tell();
        }
        let refused_by = answer.refused_by.and_then(|limit| policy.on_requests.get(limit));
        let penalised = refused_by.filter(|limit| limit.penalty.is_some() && !peek);
        if penalised.is_some() && connection.is_none() {
            self.pusher.refused_unknown(*is_remote);
        }
        if let Some((limit, connection)) = penalised.zip(*connection) {
            let is_limited = answer.verdict == Verdict::Limited;
            let wait = if is_limited { answer.wait() } else { u64::MAX };
            let refusal = Refusal {
                source: asked.source(),
                is_proxied: asked.is_proxied(),
                key: answer.refused_key,
                wait,
            };
            let pushed = self.pusher.refused(&policy, limit, &refusal, connection, now);
            // While the agent is away, there is nothing to wait for.
            if let Some(pushed) = pushed.filter(|_| self.link.fault().is_none()) {
                pushed.settle().await;
            }
        }
        Ok(Decision::Answered(answer, policy, left))
    }
}

/// An answer, in its turn.
async fn in_turn(decided: Result<InTurn, Fault>) -> Reply {
    match decided {
        Ok((reply, wait)) => {
            if let Some(Wait { held, time, untold }) = wait {
                sleep(Duration::from_nanos(time)).await;
                drop(held);
                untold.tell();
            }
            reply
        }
        Err(fault) => Reply::fault(&fault),
    }
}

/// The connection of a request, as far as the proxy tells of it. Who asks by a loopback address may be anybody, and so names
/// none. That of a proxy on another host is none of this one. A client that sends the header too, past a proxy that does not replace it, names none either.
fn connection(headers: &HeaderMap, peer: Peer) -> Option<Connection> {
    let Peer::User(_) = peer else { return None };
    let mut told = headers.get_all(PEER).iter();
    let first = told.next()?.to_str().ok()?;
    told.next().is_none().then(|| Connection::parse(first))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asks_on_a_unix_socket_tells_a_connection() {
        let mut headers = HeaderMap::new();
        let told = "192.0.2.9 51812 198.51.100.1 443";
        headers.insert(PEER, told.parse().unwrap());
        let is_told = |headers: &HeaderMap, peer| connection(headers, peer).is_some();
        assert!(is_told(&headers, Peer::User(7)));
        let local = "127.0.0.1:9".parse().unwrap();
        for peer in [Peer::Address(local), Peer::Certificate] {
            assert!(!is_told(&headers, peer), "{peer:?}");
        }
        headers.append(PEER, told.parse().unwrap());
        assert!(!is_told(&headers, Peer::User(7)), "a client told one, too");
    }
}
