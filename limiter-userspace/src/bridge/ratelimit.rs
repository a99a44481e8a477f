//! Envoy's rate limit service: what its messages ask and are answered.
//!
//! A descriptor is a request. Its entries are told by their keys:
//!
//! | key | meaning |
//! |---|---|
//! | `remote_address` | the source: an address |
//! | `masked_remote_address` | the source, if there is no `remote_address`: the first address of a prefix |
//! | `method`, `host`, `path` | those properties |
//! | `x-limiter-lease` | the request ended: its places are given back, and nothing is asked |
//! | another | the attribute of this name, or that of a header of this name |

#[cfg(fuzzing)]
mod fuzzed;
pub(super) mod messages;

use std::{borrow::Cow, collections::BTreeSet, net::IpAddr};

use thiserror::Error;

#[cfg(fuzzing)]
pub use self::fuzzed::read;
use self::messages::{
    Code, Descriptor, Duration, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse,
    Status, Unit,
};
use super::{
    answer::{Answer, Standing, Verdict},
    decide::{Effect, Item, MOST_ITEMS},
    fields::{DEGRADE, SOURCE, degraded, exceeded, fields, problem, seconds_to_wait},
    lease::{self, LeaseError, Leases},
    request::{Request, Told},
};
use crate::policy::{
    Policy,
    model::name_of_layer,
    units::{host_of, path_of, quoted},
};

/// The most entries of a descriptor: more than attributes and properties that a policy can have, so that no client has too
/// many made.
const MOST_ENTRIES: usize = 128;
/// The key of the entry with the source.
const ADDRESS: &str = "remote_address";
/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A call that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Fault {
    /// It has no descriptor.
    #[error("there is no descriptor: give the route of the proxy rate limit actions that make one")]
    NoDescriptor,
    /// It has more descriptors than are decided about at once.
    #[error("there are {0} descriptors, and {MOST_ITEMS} are the most: have the proxy make fewer")]
    TooManyDescriptors(usize),
    /// A descriptor has too many entries.
    #[error(
        "a descriptor has {0} entries, and {MOST_ENTRIES} are the most: have the proxy make fewer"
    )]
    TooManyEntries(usize),
    /// What is handed back is no lease.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The source is no address.
    #[error(
        "the entry {key} is {value}, which is no address: have the proxy tell it by the action of this name"
    )]
    BadSource {
        /// The key of the entry.
        key: &'static str,
        /// Its value, quoted.
        value: String,
    },
}

/// A descriptor, what it costs, and what is done about it.
#[derive(Debug)]
struct Asked<'m> {
    domain: &'m str,
    method: Option<String>,
    host: Option<String>,
    path: Option<String>,
    source: Option<IpAddr>,
    entries: Entries<'m>,
    hits: u64,
    effect: Effect,
    /// Whether it has a path that services understand differently.
    is_ambiguous: bool,
}

impl<'m> Asked<'m> {
    fn read(message: &'m RateLimitRequest, descriptor: &'m Descriptor) -> Result<Self, Fault> {
        if descriptor.entries.len() > MOST_ENTRIES {
            return Err(Fault::TooManyEntries(descriptor.entries.len()));
        }
        let limit = descriptor.limit.and_then(|told| {
            let (_, seconds) = Unit::LENGTHS.iter().find(|(unit, _)| *unit == told.unit())?;
            (told.requests_per_unit > 0)
                .then_some((u64::from(told.requests_per_unit), seconds * SECOND))
        });
        let text = |bytes: &'m [u8]| String::from_utf8_lossy(bytes);
        let entries = descriptor.entries.iter().map(|it| (text(&it.key), text(&it.value)));
        let entries = Entries { entries: entries.collect(), limit };
        let hits =
            descriptor.hits_addend.map_or(u64::from(message.hits_addend.max(1)), |own| own.value);
        let target = entries.entry("path");
        let path = target.and_then(path_of);
        Ok(Self {
            domain: &message.domain,
            method: entries.entry("method").map(str::to_ascii_uppercase),
            host: entries.entry("host").map(host_of),
            is_ambiguous: target.is_some() && path.is_none(),
            path,
            source: entries.source()?,
            entries,
            hits,
            effect: match hits {
                0 => Effect::Ask,
                _ if descriptor.is_negative_hits => Effect::Refund,
                _ => Effect::Charge,
            },
        })
    }

    /// The source, if it is told as an address and not given back anything.
    fn address(&self) -> Option<IpAddr> {
        let is_one = |value: &str| !value.contains('/');
        let is_asked =
            self.effect != Effect::Refund && self.entries.entry(ADDRESS).is_some_and(is_one);
        self.source.filter(|_| is_asked)
    }

    fn request(&self) -> Request<'_> {
        Request {
            method: self.method.as_deref(),
            host: self.host.as_deref(),
            path: self.path.as_deref(),
            domain: self.domain,
            source: self.source,
            told: &self.entries,
        }
    }
}

/// The entries of a descriptor.
#[derive(Debug)]
struct Entries<'m> {
    /// Keys and values.
    entries: Vec<(Cow<'m, str>, Cow<'m, str>)>,
    /// The limit that is told with them: a number, and the nanoseconds that it is for.
    limit: Option<(u64, u64)>,
}

impl Entries<'_> {
    fn source(&self) -> Result<Option<IpAddr>, Fault> {
        let told = |key| self.entry(key).map(|value| (key, value));
        let Some((key, value)) = told(ADDRESS).or_else(|| told("masked_remote_address")) else {
            return Ok(None);
        };
        let address = value.split_once('/').map_or(value, |(address, _)| address);
        let source = address.parse::<IpAddr>().map(|source| source.to_canonical());
        source.map(Some).map_err(|_| Fault::BadSource { key, value: quoted(value) })
    }
}

impl Told for Entries<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.entry(name)
    }

    fn entry(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(own, _)| own == key).map(|(_, value)| &**value)
    }

    fn limit(&self) -> Option<(u64, u64)> {
        self.limit
    }

    /// A call is answered at once.
    fn hold(&self, _: u64) -> bool {
        false
    }
}

/// The places that a call gives back, as the request that it is about ended; `None` for a call that asks.
///
/// # Errors
/// [`Fault::Lease`].
pub(super) fn released(message: &RateLimitRequest) -> Result<Option<Leases>, Fault> {
    let mut entries = message.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
    let Some(entry) = entries.find(|entry| entry.key == lease::HEADER.as_bytes()) else {
        return Ok(None);
    };
    let text = str::from_utf8(&entry.value).unwrap_or_default();
    Ok(Some(text.parse()?))
}

/// The answer to a call that gave places back.
pub(super) fn done() -> RateLimitResponse {
    RateLimitResponse { overall_code: Code::Ok.into(), ..RateLimitResponse::default() }
}

/// A call that asks about its descriptors.
#[derive(Debug)]
pub(super) struct Call<'m>(Vec<Asked<'m>>);

impl<'m> Call<'m> {
    /// Reads the descriptors of a message.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn read(message: &'m RateLimitRequest) -> Result<Self, Fault> {
        match message.descriptors.len() {
            0 => return Err(Fault::NoDescriptor),
            1..=MOST_ITEMS => {}
            number => return Err(Fault::TooManyDescriptors(number)),
        }
        let asked = message.descriptors.iter().map(|descriptor| Asked::read(message, descriptor));
        asked.collect::<Result<_, Fault>>().map(Self)
    }

    /// The sources of what is asked or charged. One that is told as a prefix is not among them: the kernel may count by a longer
    /// one.
    pub(super) fn sources(&self) -> BTreeSet<IpAddr> {
        self.0.iter().filter_map(Asked::address).collect()
    }

    /// The answer where a limit on packets of this name has too little left for a source, until `wait` ns have passed. Nothing is
    /// charged.
    pub(super) fn refused(
        &self,
        source: IpAddr,
        limit: &str,
        wait: u64,
        jitter: u32,
    ) -> RateLimitResponse {
        let status = |asked: &Asked<'_>| match asked.address() == Some(source) {
            true => Status {
                code: Code::OverLimit.into(),
                duration_until_reset: duration(wait),
                ..Status::default()
            },
            false => Status { code: Code::Ok.into(), ..Status::default() },
        };
        let problem = exceeded(vec![limit.to_owned()]);
        let wait = seconds_to_wait(wait, jitter);
        let retry_after = wait.map(|seconds| header(("retry-after", seconds.to_string())));
        RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: self.0.iter().map(status).collect(),
            response_headers_to_add: retry_after
                .into_iter()
                .chain([header(problem_type())])
                .collect(),
            raw_body: format!("{problem}\n").into_bytes(),
            ..RateLimitResponse::default()
        }
    }

    /// Has `decide` decide about the descriptors: all are charged, and given back, or none is. `source` is what the service is
    /// told of what limits on packets have left. The second is the verdict of all.
    pub(super) fn answer<P: AsRef<Policy>>(
        &self,
        source: Option<String>,
        jitter: u32,
        decide: impl FnOnce(&[Item<'_>]) -> (Vec<Answer>, P),
    ) -> (RateLimitResponse, Verdict) {
        let Self(asked) = self;
        let is_ambiguous = asked.iter().any(|asked| asked.is_ambiguous);
        let requests: Vec<Request<'_>> = asked.iter().map(Asked::request).collect();
        let items = requests.iter().zip(asked).map(|(request, asked)| Item {
            request,
            hits: asked.hits.max(1),
            effect: if is_ambiguous { Effect::Ask } else { asked.effect },
        });
        let (mut answers, policy) = decide(&items.collect::<Vec<_>>());
        for (answer, asked) in answers.iter_mut().zip(asked) {
            if asked.is_ambiguous {
                *answer = Answer { verdict: Verdict::Denied, ..Answer::default() };
            }
        }
        let policy = policy.as_ref();
        let statuses = answers.iter().map(|answer| status(policy, answer)).collect();
        let all = together(answers);
        let mut headers: Vec<_> = fields(policy, &all, jitter).into_iter().map(header).collect();
        let mut raw_body = Vec::new();
        if let Some(problem) = problem(policy, &all) {
            headers.push(header(problem_type()));
            raw_body = format!("{problem}\n").into_bytes();
        }
        let told = [
            (DEGRADE, degraded(policy, &all)),
            (lease::HEADER, all.leases.told()),
            (SOURCE, source.filter(|_| all.verdict == Verdict::Pass)),
        ];
        let told = told.into_iter().filter_map(|(name, value)| Some(header((name, value?))));
        let response = RateLimitResponse {
            overall_code: code(all.verdict).into(),
            statuses,
            response_headers_to_add: headers,
            request_headers_to_add: told.collect(),
            raw_body,
        };
        (response, all.verdict)
    }
}

/// That the body of a refusal is a problem.
fn problem_type() -> (&'static str, String) {
    ("content-type", "application/problem+json".to_owned())
}

fn header((name, value): (&str, String)) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value }
}

const fn code(verdict: Verdict) -> Code {
    match verdict {
        Verdict::Pass => Code::Ok,
        Verdict::Limited | Verdict::Denied => Code::OverLimit,
    }
}

/// The answer about all descriptors: the worst verdict, and the standings of those with this verdict before others.
fn together(mut answers: Vec<Answer>) -> Answer {
    answers.sort_by_key(|answer| match answer.verdict {
        Verdict::Denied => 0,
        Verdict::Limited => 1,
        Verdict::Pass => 2,
    });
    let mut all = Answer::default();
    all.verdict = answers.first().map_or(all.verdict, |answer| answer.verdict);
    for answer in answers {
        all.leases.0.extend(answer.leases.0);
        for standing in answer.standings {
            let is_same = |it: &Standing| (it.limit, it.layer) == (standing.limit, standing.layer);
            if !all.standings.iter().any(is_same) {
                all.standings.push(standing);
            }
        }
    }
    if all.verdict == Verdict::Pass {
        all.standings.sort_by_key(|standing| standing.left);
    }
    all
}

/// The status of a descriptor: of the limit that refuses it or has the least left.
fn status(policy: &Policy, answer: &Answer) -> Status {
    let mut status = Status { code: code(answer.verdict).into(), ..Status::default() };
    let first = answer.standings.first();
    if let Some((limit, it)) = first.and_then(|it| Some((policy.on_requests.get(it.limit)?, it))) {
        // Open requests have no unit of time.
        status.current_limit = (!it.is_of_open()).then(|| {
            let (requests_per_unit, unit) = per_unit(it.quota, it.window);
            let name = name_of_layer(&limit.name, it.layer);
            RateLimit { requests_per_unit, unit: unit.into(), name }
        });
        status.limit_remaining = whole(it.left);
        let time = if it.wait > 0 { it.wait } else { it.refills };
        status.duration_until_reset = duration(time);
    }
    status
}

/// A time in nanoseconds; `None` for one that never ends.
fn duration(time: u64) -> Option<Duration> {
    (time != u64::MAX).then(|| Duration {
        seconds: i64::try_from(time / SECOND).unwrap_or(i64::MAX),
        nanos: i32::try_from(time % SECOND).unwrap_or(0),
    })
}

/// So many requests in a time, in nanoseconds, as requests in that of Envoy's units which is nearest to it.
fn per_unit(quota: u64, window: u64) -> (u32, Unit) {
    let window = u128::from(window.max(1));
    let nanoseconds = |seconds: u64| u128::from(seconds) * u128::from(SECOND);
    // By their ratio, in thousandths.
    let distance = |seconds: u64| {
        let unit = nanoseconds(seconds);
        unit.max(window).saturating_mul(1_000) / unit.min(window)
    };
    let requests = |seconds| u128::from(quota).saturating_mul(nanoseconds(seconds)) / window;
    let told = Unit::LENGTHS.into_iter().filter(|(_, seconds)| requests(*seconds) > 0);
    let nearest = told.min_by_key(|(_, seconds)| distance(*seconds));
    let (unit, seconds) = nearest.unwrap_or((Unit::Year, 365 * 86_400));
    (whole(u64::try_from(requests(seconds)).unwrap_or(u64::MAX)), unit)
}

fn whole(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
