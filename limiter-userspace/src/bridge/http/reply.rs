//! Answers before they are sent.

use http_body_util::Full;
use hyper::{
    HeaderMap, Response, StatusCode,
    body::Bytes,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde::Serialize;

use super::fault::Fault;
use crate::{
    bridge::{
        answer::{Answer, Verdict},
        fields::{self, DEGRADE, Problem, degraded, fields, problem, random},
        lease,
        openapi::{ROUTES, Route},
    },
    policy::Policy,
};

/// What tells a proxy that does not take 429 of it: the status that its client is to get.
pub(super) const STATUS: HeaderName = HeaderName::from_static("x-limiter-status");
/// The limit that refuses a request.
pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-limiter-limit");
/// The limits that have the service do less for a request that passes.
const DEGRADED: HeaderName = HeaderName::from_static(DEGRADE);
/// The places that a request took.
pub(super) const LEASE: HeaderName = HeaderName::from_static(lease::HEADER);
/// What the kernel's limits have for the source of a request.
pub(super) const SOURCE: HeaderName = HeaderName::from_static(fields::SOURCE);

/// An answer before it is sent.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn new(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self { status, headers, body: Bytes::new() }
    }

    /// The answer about a request. The statuses are those of one that passes, and of one that a limit refuses.
    pub(super) fn answer(answer: &Answer, policy: &Policy, [pass, deny]: [u16; 2]) -> Self {
        let told = answer.verdict.refusal();
        let status = match answer.verdict {
            Verdict::Limited => deny,
            Verdict::Pass | Verdict::Denied => told.unwrap_or(pass),
        };
        let mut reply = Self::new(status);
        if let Some(problem) = problem(policy, answer) {
            reply.json("application/problem+json", &problem);
        }
        for (name, value) in fields(policy, answer, random()) {
            reply.insert(HeaderName::from_static(name), &value);
        }
        if let Some(told) = told {
            reply.headers.insert(STATUS, HeaderValue::from(told));
        }
        if let Some(limit) = answer.limited_by(policy) {
            reply.insert(LIMIT, limit);
        }
        if let Some(limits) = degraded(policy, answer) {
            reply.insert(DEGRADED, &limits);
        }
        if let Some(lease) = answer.leases.told() {
            reply.insert(LEASE, &lease);
        }
        reply
    }

    pub(super) fn text(text: String) -> Self {
        let mut reply = Self::new(200);
        let kind = HeaderValue::from_static("text/plain; charset=utf-8");
        reply.headers.insert(CONTENT_TYPE, kind);
        reply.body = text.into();
        reply
    }

    /// A problem of the request to the bridge itself.
    pub(super) fn problem(status: u16, detail: &str) -> Self {
        let mut reply = Self::new(status);
        let title = reply.status.canonical_reason().unwrap_or_default();
        let problem = Problem::of_status(title, status, Some(detail.to_owned()));
        reply.json("application/problem+json", &problem);
        reply
    }

    /// The answer to a request to a path that there is not.
    pub(super) fn unknown() -> Self {
        let paths = ROUTES.map(|route| route.path).join(", ");
        Self::problem(404, &format!("there are {paths}"))
    }

    /// The answer to a request of a method that its path has not.
    pub(super) fn untaken(route: &Route) -> Self {
        let methods = route.methods.join(", ");
        let mut reply = Self::problem(405, &format!("give {methods}"));
        reply.insert(ALLOW, &methods);
        reply
    }

    pub(super) fn fault(fault: &Fault) -> Self {
        Self::problem(fault.status(), &fault.to_string())
    }

    pub(super) fn json(&mut self, kind: &'static str, body: &impl Serialize) {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        // No body has a map whose keys are no texts, which alone is no JSON.
        self.body = serde_json::to_string(body).map(|json| json + "\n").unwrap_or_default().into();
    }

    /// Adds a header; one that no header can have as its value is left out.
    pub(super) fn insert(&mut self, name: HeaderName, value: &str) {
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
