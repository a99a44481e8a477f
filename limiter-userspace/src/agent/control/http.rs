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
use serde::Serialize;
use serde_json::json;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::{error::Elapsed, sleep, timeout},
};

use super::{
    Control, lock,
    request::{Asked, Body},
    results::{Answer, Answered, LiftResult},
    rules::Outcome,
};
use crate::{
    bridge::listener::{Bound, Listener, Peer, Stream},
    error::{Error, Result},
};

/// The most connections of users who may ask. One more waits.
const CONNECTIONS: usize = 64;
/// The most connections of others, who are told that they may not. One more is closed at once.
const OTHERS: usize = 8;
/// The times of a connection.
const TIMES: Times = Times { headers: Duration::from_secs(5), exchange: Duration::from_secs(15) };
/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(5);
/// The most bytes of a body: those of as many blocks as may be asked for, with all that each may have.
const BODY_BYTES: usize = 1 << 20;
/// The most bytes of the headers of a request.
const HEADER_BYTES: usize = 16 << 10;
/// How long is waited where no connection can be accepted, as there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);

type Reply = Response<Full<Bytes>>;

/// How long a connection may take. Each is for one request, so that nobody holds a place by asking nothing, or by reading no answer.
#[derive(Clone, Copy)]
struct Times {
    /// For the headers of its request.
    headers: Duration,
    /// For all of it: the request, and its answer until that is read.
    exchange: Duration,
}

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
    let [places, others] = [CONNECTIONS, OTHERS].map(|most| Arc::new(Semaphore::new(most)));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let place = match control.user(peer) {
            Ok(_) => Arc::clone(&places).acquire_owned().await.ok(),
            Err(_) => Arc::clone(&others).try_acquire_owned().ok(),
        };
        if let Some(place) = place {
            tokio::spawn(converse(stream, peer, Arc::clone(&control), place, TIMES));
        }
    }
}

/// Answers the request of a connection.
async fn converse(
    stream: Box<dyn Stream>,
    peer: Peer,
    control: Arc<Control>,
    place: OwnedSemaphorePermit,
    times: Times,
) {
    let place = Arc::new(place);
    let service = service_fn(|request| {
        let (control, place) = (Arc::clone(&control), Arc::clone(&place));
        async move { Ok::<_, Infallible>(answer(control, request, peer, place).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .header_read_timeout(times.headers)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // Whoever asks learns by itself that the connection broke.
    let _: std::result::Result<hyper::Result<()>, Elapsed> =
        timeout(times.exchange, connection).await;
}

/// What is asked for.
enum Question {
    Push(Body),
    Lift(IpAddr),
    Penalties,
    Source(IpAddr),
}

/// What is answered to a request. It keeps its place until its work is done, also if the connection ended before.
async fn answer(
    control: Arc<Control>,
    request: Request<Incoming>,
    peer: Peer,
    place: Arc<OwnedSemaphorePermit>,
) -> Reply {
    let user = match control.user(peer) {
        Ok(user) => user,
        Err(why) => return problem(403, &why),
    };
    let question = match question(request).await {
        Ok(question) => question,
        Err(refused) => return refused.answer(),
    };
    let done = spawn_blocking(move || {
        let _place = place;
        control.answer(user, question)
    });
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

    fn answer(&self) -> Reply {
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
    /// The user at the other end of a connection, if it may ask.
    ///
    /// # Errors
    /// Why it may not.
    fn user(&self, peer: Peer) -> std::result::Result<u32, String> {
        match peer {
            Peer::User(user) if self.users.contains(user) => Ok(user),
            Peer::User(user) => Err(format!(
                "user {user} may not ask: name it with `--trusted`, and start the agent again if the user is new"
            )),
            Peer::Address(_) | Peer::Certificate => {
                Err("only processes on a Unix socket may ask".to_owned())
            }
        }
    }

    /// The answer to a question of a process of a user.
    fn answer(&self, user: u32, question: Question) -> Result<Reply> {
        Ok(match question {
            Question::Push(Body { asked, is_array }) => {
                let outcomes = self.push(user, &asked)?;
                let told = |(outcome, asked): (&Outcome, &Asked)| Answer {
                    subject: asked.subject,
                    result: outcome.result,
                    seconds: Some(outcome.seconds),
                };
                let mut all: Vec<_> = outcomes.iter().zip(&asked).map(told).collect();
                let one = if is_array { None } else { all.pop() };
                json_of(200, &one.map_or(Answered::All(all), Answered::One))
            }
            Question::Lift(address) => {
                let result = self.lift(user, address)?;
                if result == LiftResult::NotYours {
                    let why = format!(
                        "the block of {address} is not yours: have it ended by the user that pushed it, or by root"
                    );
                    return Ok(problem(403, &why));
                }
                json_of(200, &Answer { subject: address, result, seconds: None })
            }
            Question::Penalties => json_of(200, &Answered::List(lock(&self.lists).penalties()?)),
            Question::Source(address) => match lock(&self.sources).source(address)? {
                Some(report) => of_json(200, report),
                None => problem(404, &format!("nothing is known of {address}")),
            },
        })
    }
}

fn json_of(status: u16, value: &impl Serialize) -> Reply {
    // Neither has a map with keys that are no texts.
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    of_json(status, body)
}

fn of_json(status: u16, body: Vec<u8>) -> Reply {
    with(status, "application/json", body)
}

/// Why a request is not answered.
fn problem(status: u16, detail: &str) -> Reply {
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let problem =
        json!({ "type": "about:blank", "title": title, "status": status, "detail": detail });
    with(status, "application/problem+json", format!("{problem}\n").into_bytes())
}

fn with(status: u16, kind: &'static str, body: Vec<u8>) -> Reply {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        runtime,
    };

    use super::*;
    use crate::datapath::bpffs::Pins;

    /// Holds a conversation with root, who has the other end of a pipe of so many bytes, until either ends.
    fn held<F: Future>(bytes: usize, times: Times, other: impl FnOnce(DuplexStream) -> F) {
        let pins = Pins::new(std::env::temp_dir().join("limiter-no-instance"));
        let control = Arc::new(Control::new(&["0".to_owned()], None, pins, None).unwrap());
        let runtime = runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (near, far) = duplex(bytes);
            let places = Arc::new(Semaphore::new(1));
            let place = Arc::clone(&places).acquire_owned().await.unwrap();
            let conversation =
                tokio::spawn(converse(Box::new(near), Peer::User(0), control, place, times));
            let kept = other(far).await;
            timeout(Duration::from_secs(20), conversation).await.expect("it ends").unwrap();
            assert_eq!(places.available_permits(), 1);
            drop(kept);
        });
    }

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(50);

    #[test]
    fn a_connection_that_asks_nothing_ends() {
        held(1 << 10, Times { headers: SHORT, exchange: LONG }, |silent| async move { silent });
    }

    #[test]
    fn a_connection_that_reads_no_answer_ends() {
        let times = Times { headers: LONG, exchange: SHORT };
        held(64, times, |mut other| async move {
            let request = b"GET /v1/other HTTP/1.1\r\nHost: agent\r\n\r\n";
            other.write_all(request).await.unwrap();
            other
        });
    }

    #[test]
    fn a_connection_is_for_one_request() {
        held(1 << 16, Times { headers: LONG, exchange: LONG }, |mut other| async move {
            let request = b"GET /v1/other HTTP/1.1\r\nHost: agent\r\n\r\n";
            other.write_all(&request.repeat(2)).await.unwrap();
            let mut answers = String::new();
            other.read_to_string(&mut answers).await.unwrap();
            assert_eq!(answers.matches("HTTP/1.1 404").count(), 1, "{answers}");
        });
    }
}
