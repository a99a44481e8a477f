//! The answers to proxies and to monitoring systems, by HTTP/1.1.
//!
//! | endpoint | who is answered | answer |
//! |---|---|---|
//! | any method `/v1/auth` | trusted users, loopback, and trusted certificates | 204 for a request that passes, else 403 or 429 |
//! | any method `/v1/ext_authz/…` | the same | 200 for a request to the rest of the path that passes, else 403 or 429 |
//! | `GET /v1/budget` | the same | what limits have left, in JSON; nothing is charged |
//! | `POST /v1/charge`, `/v1/refund` | the same | the same, after a charge or a refund after the fact |
//! | `POST /v1/release` | the same | 204: the places of a request are given back |
//! | `GET /v1/source/ADDRESS` | the same | what limits on requests and on packets have left for a source, in JSON |
//! | `/v1/penalties` | trusted users on a Unix socket | that of the agent |
//! | `GET /v1/openapi.json`, `/healthz`, `/readyz`, `/metrics` | whoever may connect | the others as of the agent |

pub(super) mod address;
mod asked;
pub(super) mod body;
mod budget;
mod counts;
mod decide;
mod fault;
mod held;
pub(super) mod parameters;
mod penalties;
pub(super) mod proxied;
mod release;
mod reply;
mod serve;
mod settle;
mod source;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{sync::Mutex, task::block_in_place};

pub(super) use self::{
    asked::Asked,
    counts::{Tallies, Timed},
    decide::{Decision, Question},
    fault::Fault,
    held::Room,
    serve::{Accepted, serve, until},
};
use self::{body::BudgetSchema, reply::Reply};
use super::{
    client::Client,
    decide::Settlement,
    haproxy::Holder,
    in_force::InForce,
    kernel::Kernel,
    link::Link,
    listener::Peer,
    metrics,
    openapi::{self, Endpoint},
    push::Pusher,
    users::Users,
};
use crate::{
    metrics::{Metrics, SCHEMA},
    query,
};

/// How long the headers of a request may take, and how long a connection may wait for the next one.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes, and the most lines, of the headers of a request.
pub(super) const HEADER_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;
/// What Envoy has before the target of the request that it asks about.
const EXT_AUTHZ: &str = "/v1/ext_authz";

/// What requests are answered by.
pub(super) struct Service {
    pub(super) in_force: Arc<InForce>,
    /// The users whose processes may ask.
    pub(super) users: Users,
    pub(super) tallies: Tallies,
    /// Has peers blocked that go on over a limit.
    pub(super) pusher: Arc<Pusher>,
    /// Has HAProxy answer sources itself that a limit holds.
    pub(super) holder: Option<Holder>,
    /// Knows what limits on packets have left for sources.
    pub(super) kernel: Kernel,
    /// By which others have peers blocked.
    pub(super) agent: Client,
    /// Whether the agent is there.
    pub(super) link: Arc<Link>,
    /// The connections there are of users who may ask, by loopback addresses, of others, and of proxies on other hosts.
    pub(super) connections: [AtomicUsize; 4],
    /// The answers that are held back.
    pub(super) held: Arc<Room>,
    /// Held while metrics are counted.
    pub(super) scrape: Mutex<()>,
}

/// Answers the requests of a connection, one after the other.
pub(super) async fn converse(connection: Accepted) {
    let Accepted { stream, peer, end, place } = connection;
    let service = &*place.service;
    let answer = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(service.answer(request, peer).await)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_header_size(HEADER_BYTES)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    until(connection, http1::Connection::graceful_shutdown, end).await;
}

impl Service {
    /// The answer to a request. Only charges, refunds and penalties have a body that is read.
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<Full<Bytes>> {
        let or_fault = |reply: Result<Reply, Fault>| reply.unwrap_or_else(|it| Reply::fault(&it));
        let forwarded = request.uri().path_and_query();
        let forwarded = forwarded.and_then(|it| it.as_str().strip_prefix(EXT_AUTHZ));
        let route = openapi::route(request.uri().path());
        let (endpoint, reply) = match (forwarded, route) {
            (Some(target), _) => {
                (Timed::ExtAuthz.name(), self.ext_authz(&request, target, peer).await)
            }
            (None, None) => ("other", Reply::unknown()),
            (None, Some((route, _))) if !route.takes(request.method().as_str()) => {
                ("other", Reply::untaken(route))
            }
            (None, Some((route, rest))) => {
                let reply = match route.endpoint {
                    Endpoint::Auth => self.auth(&request, peer).await,
                    Endpoint::Budget => or_fault(self.budget(&request, peer)),
                    Endpoint::Charge => {
                        or_fault(self.settle(request, peer, Settlement::Charge).await)
                    }
                    Endpoint::Refund => {
                        or_fault(self.settle(request, peer, Settlement::Refund).await)
                    }
                    Endpoint::Release => or_fault(self.release(request.headers(), peer)),
                    Endpoint::Source => or_fault(self.source(rest, peer).await),
                    Endpoint::Penalties => or_fault(self.penalties(request, peer).await),
                    // It has no state without a policy in force.
                    Endpoint::Healthz => Reply::text("ok\n".to_owned()),
                    Endpoint::Readyz => self.ready(),
                    Endpoint::Metrics => self.metrics().await,
                    Endpoint::Openapi => {
                        let mut reply = Reply::new(200);
                        reply.json("application/json", &openapi::document());
                        reply
                    }
                };
                (route.endpoint.name(), reply)
            }
        };
        self.tallies.answered(endpoint, reply.status.as_u16());
        reply.into()
    }

    /// Tells whether the agent answers. Requests are decided about without it.
    fn ready(&self) -> Reply {
        let fault = self.link.fault().or_else(|| self.kernel.fault(query::now()));
        let fault = fault.map(|why| format!("degraded: {why}\n"));
        Reply::text(fault.unwrap_or_else(|| "ok\n".to_owned()))
    }

    /// Tells what limits have left.
    fn budget(&self, request: &Request<Incoming>, peer: Peer) -> Result<Reply, Fault> {
        self.check(peer)?;
        let policy = self.in_force.policy();
        let question = budget::Question::read(&policy, request.uri().query())?;
        let (answer, policy) =
            self.in_force.decide(&question.request(), question.cost, true, query::now());
        let mut reply = Reply::new(200);
        reply.json("application/json", &budget::told(BudgetSchema::Budget, &policy, &answer));
        Ok(reply)
    }

    /// Checks that a process may ask.
    ///
    /// # Errors
    /// [`Fault::Untrusted`].
    pub(super) fn check(&self, peer: Peer) -> Result<(), Fault> {
        match peer {
            Peer::User(user) if !self.users.contains(user) => Err(Fault::Untrusted { user }),
            // Whose certificate is not trusted gets no connection.
            Peer::User(_) | Peer::Address(_) | Peer::Certificate => Ok(()),
        }
    }

    async fn metrics(&self) -> Reply {
        // One at a time, on a thread that is not needed for decisions: whoever may connect may ask for as many as they like.
        let scrape = self.scrape.lock().await;
        let mut families = block_in_place(|| metrics::families(&self.in_force));
        drop(scrape);
        let connections = self.connections.iter().map(|it| it.load(Relaxed)).sum();
        families.extend(self.tallies.families(connections, self.held.taken()));
        families.extend(self.pusher.families());
        families.extend(self.holder.iter().flat_map(Holder::families));
        families.extend([self.link.family(), self.kernel.family()]);
        families.sort_by_key(|family| family.name);
        let mut reply = Reply::text(Metrics { schema: SCHEMA, metrics: families }.to_string());
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        reply
    }
}

/// Where no agent answers.
#[cfg(test)]
pub(super) const NOBODY: &str = "/nonexistent";

#[cfg(test)]
impl Service {
    /// One that user 7 may ask, by the limits of a document.
    pub(super) fn of(policy: &str, kernel: Kernel) -> Arc<Self> {
        use super::table::Table;
        use crate::policy::document;

        let policy = document::parse("p", policy.as_bytes(), &mut |_| Ok(Vec::new())).unwrap();
        Arc::new(Self {
            in_force: Arc::new(InForce::new(policy, Table::in_memory(1_024)).unwrap()),
            users: Users::named(&[], 7).unwrap(),
            tallies: Tallies::default(),
            pusher: Arc::new(Pusher::new([1, 2]).0),
            holder: None,
            kernel,
            agent: Client::new(NOBODY.as_ref()),
            link: Arc::new(Link::new(tokio::sync::mpsc::channel(1).0)),
            connections: Default::default(),
            held: Arc::default(),
            scrape: Mutex::default(),
        })
    }
}
