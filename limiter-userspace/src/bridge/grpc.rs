//! The answers to proxies by gRPC: `envoy.service.ratelimit.v3.RateLimitService`, and `grpc.health.v1.Health`.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::{
    HeaderMap, Request, Response, body::Incoming, server::conn::http2, service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout;
use tonic::{
    Code, Status,
    body::Body,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;

use super::{
    answer::Verdict,
    decide::Effect,
    fields::random,
    http::{Accepted, HEADER_BYTES, PATIENCE, Service, Timed, until},
    kernel::Left,
    listener::Peer,
    ratelimit::{
        self,
        messages::{HealthCheckRequest, HealthCheckResponse, RateLimitRequest, RateLimitResponse},
    },
};
use crate::query;

/// The methods.
const RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// The services whose health is told; the empty name is that of the whole bridge.
const SERVICES: [&str; 3] = ["", "limiter.bridge", "envoy.service.ratelimit.v3.RateLimitService"];
/// `SERVING`.
const SERVING: i32 = 1;

/// The most bytes of a message.
const MESSAGE_BYTES: usize = 64 << 10;
/// The most calls of a connection at a time.
const STREAMS: u32 = 256;
/// How much of what a connection sends may wait to be read, in bytes.
const WINDOW: u32 = 1 << 20;
/// About all sources of a call, the agent is asked for the patience with one question divided by this: 10 ms. Envoy waits 20 ms for an
/// answer if its configuration says nothing else, and takes none for a request that passes.
const SHARE: u32 = 2;
/// A connection that says nothing is asked whether it is there, and has as long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Answers the calls of a connection.
pub(super) async fn converse(connection: Accepted) {
    let service = Arc::clone(connection.service());
    let (peer, end) = (connection.peer, connection.end.clone());
    let answer = service_fn(|request: Request<Incoming>| {
        let call = Call { service: Arc::clone(&service), peer };
        async { Ok::<_, Infallible>(call.answer(request).await) }
    });
    let (stream, _place) = connection.into_parts();
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES as u32)
        .initial_stream_window_size(MESSAGE_BYTES as u32)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(MESSAGE_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), answer);
    until(connection, http2::Connection::graceful_shutdown, end).await;
}

/// A call of a method.
struct Call {
    service: Arc<Service>,
    peer: Peer,
}

impl Call {
    /// The answer to a call. One whose message is late is not decided about.
    async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let service = Arc::clone(&self.service);
        let (is_rate_limit, is_health) =
            (request.uri().path() == RATE_LIMIT, request.uri().path() == HEALTH);
        let patience = deadline(request.headers()).map_or(PATIENCE, |told| told.min(PATIENCE));
        let answer = async {
            if is_rate_limit {
                let mut grpc =
                    Grpc::new(ProstCodec::<RateLimitResponse, RateLimitRequest>::default())
                        .max_decoding_message_size(MESSAGE_BYTES);
                grpc.unary(self, request).await
            } else if is_health {
                let mut grpc =
                    Grpc::new(ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default())
                        .max_decoding_message_size(MESSAGE_BYTES);
                grpc.unary(self, request).await
            } else {
                let methods = format!("there are {RATE_LIMIT} and {HEALTH}");
                Status::unimplemented(methods).into_http()
            }
        };
        let late = |_| Status::deadline_exceeded("the message came late").into_http();
        let response = timeout(patience, answer).await.unwrap_or_else(late);
        let endpoint = match (is_rate_limit, is_health) {
            (true, _) => Timed::RateLimit.name(),
            (_, true) => "health",
            _ => "other",
        };
        service.tallies.answered(endpoint, status(&response));
        response
    }
}

/// The verdict of an answer.
#[derive(Clone, Copy)]
struct Decided(Verdict);

/// The status of HTTP that says the same as an answer.
fn status(response: &Response<Body>) -> u16 {
    match response.extensions().get::<Decided>() {
        Some(Decided(Verdict::Limited)) => return 429,
        Some(Decided(Verdict::Denied)) => return 403,
        Some(Decided(Verdict::Pass)) | None => {}
    }
    match Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code()) {
        Code::Ok => 200,
        Code::PermissionDenied => 403,
        Code::NotFound | Code::Unimplemented => 404,
        Code::DeadlineExceeded => 408,
        _ => 400,
    }
}

/// How long a client waits, as its header `grpc-timeout` says: up to 8 digits and a unit.
fn deadline(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

type Answered<M> = Result<tonic::Response<M>, Status>;

impl UnaryService<RateLimitRequest> for Call {
    type Response = RateLimitResponse;
    type Future = Pin<Box<dyn Future<Output = Answered<RateLimitResponse>> + Send>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let (service, peer) = (Arc::clone(&self.service), self.peer);
        Box::pin(async move {
            let begin = Instant::now();
            let answer = service.rate_limit(request.get_ref(), peer).await;
            service.tallies.took(Timed::RateLimit, begin.elapsed());
            let (response, verdict) = answer?;
            let mut response = tonic::Response::new(response);
            response.extensions_mut().insert(Decided(verdict));
            Ok(response)
        })
    }
}

impl Service {
    /// The answer to Envoy, and the verdict of it.
    async fn rate_limit(
        &self,
        message: &RateLimitRequest,
        peer: Peer,
    ) -> Result<(RateLimitResponse, Verdict), Status> {
        self.check(peer).map_err(|fault| Status::permission_denied(fault.to_string()))?;
        let invalid = |fault: ratelimit::Fault| Status::invalid_argument(fault.to_string());
        if let Some(leases) = ratelimit::released(message).map_err(invalid)? {
            self.in_force.release(&leases, query::now());
            return Ok((ratelimit::done(), Verdict::Pass));
        }
        let call = ratelimit::Call::read(message).map_err(invalid)?;
        let policy = self.in_force.policy();
        let mut told: Option<Left> = None;
        let ask = async {
            for source in call.sources() {
                match self.kernel.left(&policy, source).await {
                    Some((over, true)) => {
                        return Some(call.refused(source, &over.limit, over.wait, random()));
                    }
                    left => {
                        let left = left.map(|(left, _)| left);
                        told = told.take().into_iter().chain(left).max_by_key(Left::rank);
                    }
                }
            }
            None
        };
        // What is not told by then decides nothing.
        if let Ok(Some(refused)) = timeout(self.kernel.patience() / SHARE, ask).await {
            return Ok((refused, Verdict::Limited));
        }
        let told = told.map(|left| left.to_string());
        Ok(call.answer(told, random(), |items| {
            let (answers, policy) = self.in_force.decide_all(items, query::now());
            if let Some(holder) = &self.holder {
                let refunds = items.iter().zip(&answers);
                for (item, answer) in refunds.filter(|(it, _)| it.effect == Effect::Refund) {
                    holder.given_back(item.request.source, answer);
                }
            }
            // Envoy tells no connection.
            let refused_by = answers.iter().filter_map(|answer| answer.refused_by);
            let mut limits = refused_by.filter_map(|limit| policy.on_requests.get(limit));
            if limits.any(|limit| limit.penalty.is_some()) {
                self.pusher.refused_unknown(peer == Peer::Certificate);
            }
            (answers, policy)
        }))
    }
}

impl UnaryService<HealthCheckRequest> for Call {
    type Response = HealthCheckResponse;
    type Future = Ready<Answered<HealthCheckResponse>>;

    fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
        // It has no state without a policy in force.
        ready(match SERVICES.contains(&&*request.get_ref().service) {
            true => Ok(tonic::Response::new(HealthCheckResponse { status: SERVING })),
            false => Err(Status::not_found("there is limiter.bridge, and the empty name")),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read as _, Write as _},
        os::unix::net::UnixListener,
        thread,
    };

    use super::*;
    use crate::bridge::{
        http::NOBODY,
        kernel::Kernel,
        ratelimit::messages::{Code as Overall, Descriptor, Entry},
    };

    /// What the answer is about a request of 192.0.2.1.
    fn ask(service: &Service, user: u32) -> Result<(RateLimitResponse, Verdict), Status> {
        let entry = Entry { key: b"remote_address".to_vec(), value: b"192.0.2.1".to_vec() };
        let descriptor = Descriptor { entries: vec![entry], ..Descriptor::default() };
        let message =
            RateLimitRequest { descriptors: vec![descriptor], ..RateLimitRequest::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(service.rate_limit(&message, Peer::User(user)))
    }

    /// By what the agent tells of its source, as by HTTP.
    #[test]
    fn what_a_limit_on_packets_has_left_decides_about_a_call() {
        let name = format!("limiter-grpc-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _: io::Result<()> = std::fs::remove_file(&path);
        let agent = UnixListener::bind(&path).unwrap();
        let agent = thread::spawn(move || {
            for mut stream in agent.incoming().map_while(Result::ok).take(2) {
                let _: io::Result<usize> = stream.read(&mut [0; 4_096]);
                let body = r#"{"mode": "enforce", "limits": [{"name": "web", "mode": "enforce", "count": "packets",
                    "algorithm": "token_bucket", "state": {"limit": 100, "used": 95, "remaining": 5,
                    "next_packet_seconds": 0.0, "full_seconds": 95.0}}]}"#;
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _: io::Result<()> = stream.write_all((head + body).as_bytes());
            }
        });
        for (requests, is_over) in [("enforce", true), ("advise", false)] {
            let policy = format!(
                "version: 1
limits:
  - {{ name: web, key: source, rate: 1/s, burst: 100, requests: {requests} }}
  - {{ name: all, on: requests, key: all, rate: 9/h }}
"
            );
            let service = Service::of(&policy, Kernel::patient(&path));
            let (response, verdict) = ask(&service, 7).unwrap();
            assert_eq!(response.overall_code() == Overall::OverLimit, is_over);
            assert_eq!(verdict.refusal(), is_over.then_some(429));
            let counts = service.in_force.counts().0;
            assert_eq!(counts.rows[0].conform, u64::from(!is_over), "charged nowhere");
            let names = |headers: &[ratelimit::messages::HeaderValue]| {
                headers.iter().map(|it| it.key.clone()).collect::<Vec<_>>()
            };
            if is_over {
                let told = names(&response.response_headers_to_add);
                assert_eq!(told, ["retry-after", "content-type"]);
            } else {
                assert_eq!(names(&response.request_headers_to_add), ["x-limiter-source"]);
                let over = &response.request_headers_to_add[0].value;
                assert_eq!(over, "over=web;wait=25");
            }
        }
        agent.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn users_that_are_not_trusted_are_refused() {
        let service = Service::of("version: 1", Kernel::new(NOBODY.as_ref()));
        assert!(ask(&service, 7).is_ok());
        assert_eq!(ask(&service, 8).unwrap_err().code(), Code::PermissionDenied);
    }

    #[test]
    fn a_deadline_has_a_unit() {
        let told = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            deadline(&headers)
        };
        assert_eq!(told("50m"), Some(Duration::from_millis(50)));
        assert_eq!(told("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        for text in ["", "m", "50", "123456789m", "-1S", "+1S1", "1.5S", "1\u{e9}"] {
            assert_eq!(told(text), None, "{text}");
        }
        assert_eq!(deadline(&HeaderMap::new()), None);
    }
}
