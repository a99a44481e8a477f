//! The control socket, as HTTP/1.1.

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{Control, lock, request::Body, rules::Outcome};
use crate::{
    bridge::listener::{Bound, Listener, Peer, Stream},
    error::{Error, Result},
};

/// The most connections. One more waits.
const CONNECTIONS: usize = 64;
/// How long the headers of a request may take, and how long a connection may wait for the next one.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(5);
/// The most bytes of a body: those of as many blocks as may be asked for, with all that each may have.
const BODY_BYTES: usize = 1 << 20;
/// The most bytes of the headers of a request.
const HEADER_BYTES: usize = 16 << 10;
/// How long is waited where no connection can be accepted, as there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<Full<Bytes>>;

/// Begins to answer on a socket, and goes on as long as the process does.
///
/// # Errors
/// What the system says.
pub(in crate::agent) fn serve(bound: Bound, control: Arc<Control>) -> Result<()> {
    let listener = bound.listen()?;
    tokio::spawn(accept(listener, control));
    Ok(())
}

async fn accept(listener: Listener, control: Arc<Control>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let control = Arc::clone(&control);
                tokio::spawn(async move {
                    converse(stream, peer, control).await;
                    drop(place);
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Answers the requests of a connection, one after the other.
async fn converse(stream: Box<dyn Stream>, peer: Peer, control: Arc<Control>) {
    let service = service_fn(|request| {
        let control = Arc::clone(&control);
        async move { Ok::<_, Infallible>(answer(control, request, peer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // Whoever asks learns by itself that the connection broke.
    let _: hyper::Result<()> = connection.await;
}

/// What is asked for.
enum Question {
    Push(Body),
    Lift(IpAddr),
    Penalties,
    Source(IpAddr),
}

async fn answer(control: Arc<Control>, request: Request<Incoming>, peer: Peer) -> Answer {
    let user = match peer {
        Peer::User(user) if control.users.contains(user) => user,
        Peer::User(user) => {
            let detail = format!(
                "user {user} may not ask: name it with `--trusted`, and start the agent again if the user is new"
            );
            return problem(403, &detail);
        }
        Peer::Host => return problem(403, "only processes on a Unix socket may ask"),
    };
    let question = match question(request).await {
        Ok(question) => question,
        Err(refused) => return refused.answer(),
    };
    let done = spawn_blocking(move || control.answer(user, question));
    match done.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            let status = match error {
                Error::NoInstance { .. } | Error::Busy { .. } | Error::Unconfirmed { .. } => 503,
                _ => 500,
            };
            problem(status, &error.to_string())
        }
        Err(error) => problem(500, &error.to_string()),
    }
}

/// A request that is not answered.
struct Refused {
    status: u16,
    why: String,
    /// The methods that the path has, if the request has another one.
    allowed: Option<&'static str>,
}

impl Refused {
    fn new(status: u16, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), allowed: None }
    }

    fn method(allowed: &'static str) -> Self {
        Self { status: 405, why: format!("give {allowed}"), allowed: Some(allowed) }
    }

    fn answer(&self) -> Answer {
        let mut answer = problem(self.status, &self.why);
        if let Some(allowed) = self.allowed {
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        answer
    }
}

/// Reads what is asked for.
async fn question(request: Request<Incoming>) -> std::result::Result<Question, Refused> {
    let path = request.uri().path().to_owned();
    let (place, address) = match path.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')) {
        Some((place, address)) => (place, Some(address)),
        None => (path.strip_prefix("/v1/").unwrap_or_default(), None),
    };
    let address = address.map(|text| {
        let address = text.parse().map(|address: IpAddr| address.to_canonical());
        let why = "give an address at the end of the path, as 192.0.2.9 or 2001:db8::1";
        address.map_err(|_| Refused::new(400, why))
    });
    let address = address.transpose()?;
    match (place, address, request.method()) {
        ("penalties", None, &Method::GET) => Ok(Question::Penalties),
        ("penalties", None, &Method::POST) => {
            let body = timeout(BODY, Limited::new(request.into_body(), BODY_BYTES).collect()).await;
            let body = body.map_err(|_| Refused::new(408, "the body takes too long"))?;
            let body = body.map_err(|_| Refused::new(413, "the body is too long, or broken"))?;
            Body::read(&body.to_bytes()).map(Question::Push).map_err(|why| Refused::new(400, why))
        }
        ("penalties", Some(address), &Method::DELETE) => Ok(Question::Lift(address)),
        ("source", Some(address), &Method::GET) => Ok(Question::Source(address)),
        ("penalties", None, _) => Err(Refused::method("GET, POST")),
        ("penalties", Some(_), _) => Err(Refused::method("DELETE")),
        ("source", Some(_), _) => Err(Refused::method("GET")),
        _ => Err(Refused::new(
            404,
            "there are /v1/penalties, /v1/penalties/ADDRESS and /v1/source/ADDRESS",
        )),
    }
}

impl Control {
    /// The answer to a question of a process of a user.
    fn answer(&self, user: u32, question: Question) -> Result<Answer> {
        Ok(match question {
            Question::Push(Body { asked, is_array }) => {
                let outcomes = self.push(user, &asked)?;
                let all = outcomes
                    .iter()
                    .zip(&asked)
                    .map(|(outcome, asked)| told(outcome, asked.subject));
                let all: Vec<Value> = all.collect();
                match (is_array, all.first()) {
                    (false, Some(one)) => json_of(200, one),
                    _ => json_of(200, &Value::Array(all)),
                }
            }
            Question::Lift(address) => {
                let is_lifted = lock(&self.opened).lift(address)?;
                let result = if is_lifted { "lifted" } else { "not_blocked" };
                json_of(200, &json!({ "subject": address, "result": result }))
            }
            Question::Penalties => of_json(200, lock(&self.opened).penalties()?),
            Question::Source(address) => match lock(&self.opened).source(address)? {
                Some(report) => of_json(200, report),
                None => problem(404, &format!("nothing is known of {address}")),
            },
        })
    }
}

fn told(outcome: &Outcome, subject: IpAddr) -> Value {
    json!({ "subject": subject, "result": outcome.result.name(), "seconds": outcome.seconds })
}

fn json_of(status: u16, value: &Value) -> Answer {
    of_json(status, format!("{value}\n").into_bytes())
}

fn of_json(status: u16, body: Vec<u8>) -> Answer {
    with(status, "application/json", body)
}

/// Why a request is not answered.
fn problem(status: u16, detail: &str) -> Answer {
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let problem =
        json!({ "type": "about:blank", "title": title, "status": status, "detail": detail });
    with(status, "application/problem+json", format!("{problem}\n").into_bytes())
}

fn with(status: u16, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
