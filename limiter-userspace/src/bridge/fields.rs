//! What an answer tells a client of its limits: the header fields, and the body of a refusal.
//!
//! | field | form | source |
//! |---|---|---|
//! | `RateLimit-Policy`, `RateLimit` | structured field lists (RFC 9651), a string with parameters for each limit | draft-ietf-httpapi-ratelimit-headers, revisions 8 to 10 |
//! | `X-RateLimit-Limit`, `-Remaining`, `-Reset` | whole numbers, of the first limit that has them | custom; seconds from now on |
//! | `Retry-After` | seconds from now on | RFC 9110, section 10.2.3 |
//! | body | `application/problem+json` | RFC 9457; the type is that of the draft |

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
};

use schemars::JsonSchema;
use serde::Serialize;

use super::answer::{Answer, Standing, Verdict};
use crate::policy::{
    Policy,
    model::{RequestLimit, name_of_layer},
};

/// The most limits that the fields name. The first is the one that refuses the request or has the least left.
pub const MOST: usize = 4;
/// The largest integer of a structured field.
const LARGEST: u64 = 999_999_999_999_999;
/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// The problem type that the draft registers for a request over a quota.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The header fields of an answer, by their names in lower case. `jitter` is a random number: it lengthens `Retry-After` by 0
/// to 10 %, so that clients that were refused together do not come back together.
///
/// A denied request has none: waiting does not help it.
pub fn fields(policy: &Policy, answer: &Answer, jitter: u32) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if answer.verdict == Verdict::Denied {
        return fields;
    }
    let standings = || {
        let standings = answer.standings.iter();
        standings.filter_map(|it| Some((policy.on_requests.get(it.limit)?, it)))
    };
    let told: Vec<_> = standings().filter(|(limit, _)| limit.headers.ietf).take(MOST).collect();
    if !told.is_empty() {
        let list = |item: fn(&RequestLimit, &Standing) -> String| {
            told.iter().map(|(limit, it)| item(limit, it)).collect::<Vec<_>>().join(", ")
        };
        fields.push(("ratelimit-policy", list(quota)));
        fields.push(("ratelimit", list(remaining)));
    }
    if let Some((_, it)) = standings().find(|(limit, _)| limit.headers.x_ratelimit) {
        fields.push(("x-ratelimit-limit", it.quota.to_string()));
        fields.push(("x-ratelimit-remaining", it.left.to_string()));
        fields.extend(reset(it).map(|reset| ("x-ratelimit-reset", reset.to_string())));
    }
    let is_told = standings().next().is_some_and(|(limit, _)| limit.headers.retry_after);
    if answer.verdict == Verdict::Limited && is_told {
        let seconds = retry_after(answer, jitter);
        fields.extend(seconds.map(|seconds| ("retry-after", seconds.to_string())));
    }
    fields
}

/// The header that names the limits that have the service do less for a request that passes.
pub const DEGRADE: &str = "x-limiter-degrade";

/// The header that tells the service what limits on packets have left for the source of a request.
pub const SOURCE: &str = "x-limiter-source";

/// The limits that have the service do less for a request that passes, as a list of their names; `None` if there are none.
pub fn degraded(policy: &Policy, answer: &Answer) -> Option<String> {
    if answer.verdict != Verdict::Pass {
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for it in &answer.standings {
        let Some(limit) = policy.on_requests.get(it.limit) else { continue };
        let is_below =
            |share: u8| u128::from(it.left) * 100 < u128::from(it.quota) * u128::from(share);
        if limit.degrade.is_some_and(is_below) && !names.contains(&&*limit.name) {
            names.push(&limit.name);
        }
    }
    (!names.is_empty()).then(|| names.join(", "))
}

/// What is wrong with a request, or why it is refused (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub struct Problem {
    /// The type of the problem, an URI.
    pub r#type: &'static str,
    /// The problem in a few words.
    pub title: &'static str,
    /// The status of the answer, or of that which a client is to get.
    pub status: u16,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The names of the limits that refuse the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violated_policies: Option<Vec<String>>,
}

impl Problem {
    /// One that its status says enough of.
    pub const fn of_status(title: &'static str, status: u16, detail: Option<String>) -> Self {
        Self { r#type: "about:blank", title, status, detail, violated_policies: None }
    }
}

impl fmt::Display for Problem {
    /// Writes it as JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// The body of a refusal; `None` for a request that passes.
pub fn problem(policy: &Policy, answer: &Answer) -> Option<Problem> {
    let named = |it: &Standing| {
        policy.on_requests.get(it.limit).map(|limit| name_of_layer(&limit.name, it.layer))
    };
    match answer.verdict {
        Verdict::Pass => None,
        Verdict::Limited => {
            let over = answer.standings.iter().filter(|it| it.wait > 0);
            let over: Vec<String> = over.take(MOST).filter_map(named).collect();
            Some(exceeded(over))
        }
        Verdict::Denied => Some(Problem::of_status("Forbidden", 403, None)),
    }
}

/// The body of a refusal by limits of these names.
pub(super) const fn exceeded(limits: Vec<String>) -> Problem {
    Problem {
        r#type: QUOTA_EXCEEDED,
        title: "Too many requests",
        status: 429,
        detail: None,
        violated_policies: Some(limits),
    }
}

/// Seconds until a request that is refused passes all its limits, lengthened by 0 to 10 %; `None` if it never does.
fn retry_after(answer: &Answer, jitter: u32) -> Option<u64> {
    seconds_to_wait(answer.wait(), jitter)
}

/// A time to wait in nanoseconds as seconds, lengthened by 0 to 10 %; `None` if waiting does not help.
pub(super) fn seconds_to_wait(wait: u64, jitter: u32) -> Option<u64> {
    if wait == u64::MAX {
        return None;
    }
    Some(seconds(lengthened(wait, jitter)))
}

/// A time lengthened by 0 to 10 %.
fn lengthened(time: u64, jitter: u32) -> u64 {
    let more = u128::from(time) * u128::from(jitter) / (10 * u128::from(u32::MAX));
    time.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
}

/// A number that nobody can tell in advance, for the random part of `Retry-After`.
pub(super) fn random() -> u32 {
    RandomState::new().hash_one(0) as u32
}

/// What HAProxy makes the answers of out to a source that a limit [holds](super::answer::Answer::held). They are those of
/// [`fields`] and [`problem`], without the seconds until the request passes.
pub(super) struct HeldFields {
    /// The name of the limit.
    pub(super) limit: String,
    /// Nanoseconds until `Retry-After` is over; `None` if it is not told.
    pub(super) retry_after: Option<u64>,
    /// `RateLimit-Policy`, and `RateLimit` up to the seconds; empty if they are not told.
    pub(super) policy: String,
    pub(super) remaining: String,
    /// `X-RateLimit-Limit`; `None` if it is not told.
    pub(super) quota: Option<u64>,
    pub(super) body: String,
}

/// Those of what a limit has left. `None` if the policy does not have the limit.
pub(super) fn of_held(policy: &Policy, it: &Standing, jitter: u32) -> Option<HeldFields> {
    let limit = policy.on_requests.get(it.limit)?;
    let headers = limit.headers;
    let name = name_of_layer(&limit.name, it.layer);
    let told = |text: String| if headers.ietf { text } else { String::new() };
    Some(HeldFields {
        limit: limit.name.clone(),
        retry_after: headers.retry_after.then(|| lengthened(it.wait, jitter)),
        policy: told(quota(limit, it)),
        remaining: told(format!("\"{name}\";r={};t=", it.left.min(LARGEST))),
        quota: headers.x_ratelimit.then_some(it.quota),
        body: exceeded(vec![name]).to_string(),
    })
}

/// An item of `RateLimit-Policy`: `q` is what passes at once after a rest, `w` the seconds until all of it is there again. What
/// counts open requests has their unit in place of a time.
fn quota(limit: &RequestLimit, it: &Standing) -> String {
    let name = name_of_layer(&limit.name, it.layer);
    let quota = it.quota.min(LARGEST);
    if it.is_of_open() {
        return format!("\"{name}\";q={quota};qu=\"concurrent-requests\"");
    }
    // Nobody waits by it, so it is rounded to the nearest second.
    let window = (it.window.saturating_add(SECOND / 2) / SECOND).max(1);
    format!("\"{name}\";q={quota};w={window}")
}

/// An item of `RateLimit`: `r` is what passes now, `t` is [`reset`].
fn remaining(limit: &RequestLimit, it: &Standing) -> String {
    let name = name_of_layer(&limit.name, it.layer);
    let left = it.left.min(LARGEST);
    match reset(it) {
        Some(reset) => format!("\"{name}\";r={left};t={reset}"),
        None => format!("\"{name}\";r={left}"),
    }
}

/// Seconds until a refused request passes, or until nothing is charged any more if it passes now; `None` if it never passes, and
/// where requests that end, and not time, make room.
fn reset(it: &Standing) -> Option<u64> {
    match it.wait {
        u64::MAX => None,
        0 if it.is_of_open() => None,
        0 => Some(seconds(it.refills)),
        wait => Some(seconds(wait)),
    }
}

/// Nanoseconds as seconds, rounded up, at least 1.
fn seconds(nanoseconds: u64) -> u64 {
    nanoseconds.div_ceil(SECOND).max(1)
}

#[cfg(test)]
mod tests;
