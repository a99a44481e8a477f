//! The answers to proxies and to monitoring systems, by HTTP/1.1.
//!
//! | endpoint | who is answered | answer |
//! |---|---|---|
//! | any method `/v1/auth` | trusted users, and loopback | 204 for a request that passes, else 403 or 429 |
//! | `GET /v1/budget` | the same | what limits have left, in JSON; nothing is charged |
//! | `GET /healthz`, `/readyz`, `/metrics` | whoever may connect | as of the agent |

mod asked;
mod budget;
mod counts;
mod fault;
mod parameters;

use std::{
    convert::Infallible,
    hash::{BuildHasher as _, RandomState},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, select, sync::watch, time::sleep};

pub(super) use self::counts::Tallies;
use self::{
    asked::Asked,
    fault::Fault,
    parameters::{Parameters, check},
};
use super::{
    answer::{Answer, Verdict},
    fields::{fields, problem},
    in_force::InForce,
    listener::{Listener, Peer, Stream},
    metrics,
    users::Users,
};
use crate::{
    metrics::{Metrics, SCHEMA},
    query,
};

/// The most connections. One more is answered 503 at once.
const CONNECTIONS: usize = 4_096;
/// How long the headers of a request may take, and how long a connection may wait for the next one.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes, and the most lines, of the headers of a request.
const HEADER_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;
/// How long is waited where no connection can be accepted, as there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// The answer to a connection that is turned away.
const TURNED_AWAY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// What tells a proxy that does not take 429 of it: the status that its client is to get.
const STATUS: HeaderName = HeaderName::from_static("x-limiter-status");
/// The limit that refuses a request.
const LIMIT: HeaderName = HeaderName::from_static("x-limiter-limit");

/// What requests are answered by.
pub(super) struct Service {
    pub(super) in_force: InForce,
    /// The users whose processes may ask.
    pub(super) users: Users,
    pub(super) tallies: Tallies,
    /// The connections there are.
    pub(super) connections: AtomicUsize,
}

/// Answers the requests of a listener until `end` is true. Connections that are open then are answered to their end.
pub(super) async fn serve(
    listener: Listener,
    service: Arc<Service>,
    mut end: watch::Receiver<bool>,
) {
    loop {
        let accepted = select! {
            biased;
            _ = end.wait_for(|end| *end) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((mut stream, peer)) = accepted else {
            sleep(PAUSE).await;
            continue;
        };
        let Some(place) = Place::take(&service) else {
            service.tallies.turned_away();
            // Into an empty buffer, so that nothing is waited for.
            let write = async { drop(stream.write_all(TURNED_AWAY).await) };
            select! { biased; () = write => {}, () = sleep(Duration::ZERO) => {} }
            continue;
        };
        tokio::spawn(converse(stream, peer, place, end.clone()));
    }
}

/// One of the connections that there may be.
struct Place(Arc<Service>);

impl Place {
    fn take(service: &Arc<Service>) -> Option<Self> {
        if service.connections.fetch_add(1, Relaxed) >= CONNECTIONS {
            service.connections.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Self(Arc::clone(service)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// Answers the requests of a connection, one after the other.
async fn converse(
    stream: Box<dyn Stream>,
    peer: Peer,
    place: Place,
    mut end: watch::Receiver<bool>,
) {
    let service = &*place.0;
    let answer = service_fn(|request: Request<Incoming>| {
        let response = service.answer(&request, peer);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_header_size(HEADER_BYTES)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    // Whoever asks learns by itself that the connection broke.
    select! {
        _ = &mut connection => return,
        _ = end.wait_for(|end| *end) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _: hyper::Result<()> = connection.await;
}

impl Service {
    /// The answer to a request. Its body is not read.
    fn answer(&self, request: &Request<Incoming>, peer: Peer) -> Response<Full<Bytes>> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (endpoint, reply) = match request.uri().path() {
            "/v1/auth" => {
                let begin = Instant::now();
                let reply = self.auth(request, peer).unwrap_or_else(|fault| Reply::fault(&fault));
                self.tallies.took(begin.elapsed());
                ("auth", reply)
            }
            "/v1/budget" if is_read => {
                ("budget", self.budget(request, peer).unwrap_or_else(|fault| Reply::fault(&fault)))
            }
            // It has no state without a policy in force.
            "/healthz" if is_read => ("healthz", Reply::text("ok\n".to_owned())),
            "/readyz" if is_read => ("readyz", Reply::text("ok\n".to_owned())),
            "/metrics" if is_read => ("metrics", self.metrics()),
            "/v1/budget" | "/healthz" | "/readyz" | "/metrics" => {
                let mut reply = Reply::problem(405, "give GET or HEAD");
                reply.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                ("other", reply)
            }
            _ => {
                let paths = "there are /v1/auth, /v1/budget, /healthz, /readyz and /metrics";
                ("other", Reply::problem(404, paths))
            }
        };
        self.tallies.answered(endpoint, reply.status.as_u16());
        reply.into()
    }

    /// Decides about the request that a proxy asks about.
    fn auth(&self, request: &Request<Incoming>, peer: Peer) -> Result<Reply, Fault> {
        self.check(peer)?;
        let Parameters { deny, cost, peek, limits } = Parameters::read(request.uri().query())?;
        let policy = self.in_force.policy();
        if !limits.is_empty() {
            check(&limits, &policy)?;
        }
        let asked = Asked::read(request.headers(), limits)?;
        asked.check(&policy)?;
        let (answer, policy) = self.in_force.decide(&asked.request(), cost, peek, query::now());
        let (status, told) = match answer.verdict {
            Verdict::Pass => (204, None),
            Verdict::Limited => (deny, Some(429)),
            Verdict::Denied => (403, Some(403)),
        };
        let mut reply = Reply::new(status);
        if let Some(problem) = problem(&policy, &answer) {
            reply.json("application/problem+json", &problem);
        }
        for (name, value) in fields(&policy, &answer, random()) {
            reply.insert(HeaderName::from_static(name), &value);
        }
        if let Some(told) = told {
            reply.headers.insert(STATUS, HeaderValue::from(told));
        }
        let first = answer.standings.first().and_then(|it| policy.on_requests.get(it.limit));
        if let Some(limit) = first.filter(|_| answer.verdict == Verdict::Limited) {
            reply.insert(LIMIT, &limit.name);
        }
        Ok(reply)
    }

    /// Tells what limits have left.
    fn budget(&self, request: &Request<Incoming>, peer: Peer) -> Result<Reply, Fault> {
        self.check(peer)?;
        let policy = self.in_force.policy();
        let question = budget::Question::read(&policy, request.uri().query())?;
        let (answer, policy) =
            self.in_force.decide(&question.request(), question.cost, true, query::now());
        let mut reply = Reply::new(200);
        reply.json("application/json", &budget::told(&policy, &answer));
        Ok(reply)
    }

    /// Checks that a process may ask.
    fn check(&self, peer: Peer) -> Result<(), Fault> {
        match peer {
            Peer::User(user) if !self.users.contains(user) => Err(Fault::Untrusted { user }),
            Peer::User(_) | Peer::Host => Ok(()),
        }
    }

    fn metrics(&self) -> Reply {
        let mut families = self.tallies.families(self.connections.load(Relaxed));
        families.extend(metrics::families(&self.in_force));
        families.sort_by_key(|family| family.name);
        let mut reply = Reply::text(Metrics { schema: SCHEMA, metrics: families }.to_string());
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        reply
    }
}

/// A number that nobody can tell in advance.
fn random() -> u32 {
    RandomState::new().hash_one(0) as u32
}

/// An answer before it is sent.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Reply {
    fn new(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self { status, headers, body: Bytes::new() }
    }

    fn text(text: String) -> Self {
        let mut reply = Self::new(200);
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        reply.headers.insert(CONTENT_TYPE, kind);
        reply.body = text.into();
        reply
    }

    /// A problem of the request to the bridge itself.
    fn problem(status: u16, detail: &str) -> Self {
        let mut reply = Self::new(status);
        let title = reply.status.canonical_reason().unwrap_or_default();
        let problem =
            json!({ "type": "about:blank", "title": title, "status": status, "detail": detail });
        reply.json("application/problem+json", &problem);
        reply
    }

    fn fault(fault: &Fault) -> Self {
        Self::problem(fault.status(), &fault.to_string())
    }

    fn json(&mut self, kind: &'static str, value: &Value) {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.body = format!("{value}\n").into();
    }

    /// Adds a header; one that no header can have as its value is left out.
    fn insert(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }
}

impl From<Reply> for Response<Full<Bytes>> {
    fn from(reply: Reply) -> Self {
        let mut response = Self::new(Full::new(reply.body));
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }
}
