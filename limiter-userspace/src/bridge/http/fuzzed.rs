//! What is read of requests to the bridge, without a server: for the fuzz target `requests`.

mod address;
mod asked;
mod body;
mod budget;
mod fault;
mod held;
mod parameters;
pub(super) mod proxied;

use http::{HeaderMap, HeaderName, HeaderValue};

use self::{
    asked::Asked,
    body::{BudgetSchema, Settled},
    budget::Question,
    fault::Fault,
    parameters::Parameters,
};
use super::{
    answer::{Answer, Verdict},
    decide::{Decider, Settlement},
    lease::{self, Leases},
};
use crate::policy::Policy;

/// Reads a query, header lines and a body as the bridge does, and decides about what they tell at `now` in nanoseconds.
///
/// # Panics
/// Where what was read is not as the decision needs it.
pub fn read(
    decider: &mut Decider,
    policy: &Policy,
    query: &str,
    lines: &[(&[u8], &[u8])],
    body: &[u8],
    now: u64,
) {
    let mut answer = Answer::default();
    if let Some(Parameters { deny, cost, limits, .. }) = told(Parameters::read(Some(query))) {
        assert!((deny == 403 || deny == 429) && (1..=1_000_000_000).contains(&cost));
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            {
                headers.append(name, value);
            }
        }
        let checked = |asked: Asked<'_>| asked.check(policy).map(|()| cost);
        if told(Asked::read(&headers, limits.clone()).and_then(checked)).is_some()
            && let Ok(asked) = Asked::read(&headers, limits)
        {
            let _: bool = asked.is_proxied();
            let request = asked.request();
            if let Some(path) = request.path {
                // What does not begin so is no path, as the `*` of OPTIONS.
                assert!(!path.starts_with('/') || !path.contains("//"));
                assert!(!path.contains(['\\', '\0']));
                assert!(path.split('/').all(|part| part != "." && part != ".."));
            }
            assert_eq!(request.source.map(|source| source.to_canonical()), request.source);
            decider.decide(&request, cost, now, &mut answer);
            assert!(answer.verdict == Verdict::Pass || answer.hold == 0);
            assert!(answer.verdict == Verdict::Pass || answer.leases.is_empty());
            if let Some(lease) = answer.leases.told() {
                let leases = lease.parse::<Leases>().unwrap_or_default();
                assert_eq!(leases, answer.leases);
                assert!(decider.release(&leases, now) > 0);
                assert_eq!(decider.release(&leases, now), 0);
            }
        }
    }
    if let Some(question) = told(Question::read(policy, Some(query))) {
        decider.peek(&question.request(), question.cost, now, &mut answer);
        let told = budget::told(BudgetSchema::Budget, policy, &answer);
        assert!(serde_json::to_string(&told).is_ok());
    }
    let lease = lines.iter().find(|(name, _)| *name == lease::HEADER.as_bytes());
    if let Some((_, lease)) = lease {
        let lease = String::from_utf8_lossy(lease);
        if let Some(leases) = told(lease.parse::<Leases>().map_err(Fault::from)) {
            assert_eq!(leases.told().as_deref(), Some(&*lease));
            decider.release(&leases, now);
        }
    }
    let settled = Settled::read(body).and_then(|settled| Question::of(policy, &settled));
    if let Some(question) = told(settled) {
        for settlement in [Settlement::Charge, Settlement::Refund, Settlement::Charge] {
            decider.settle(&question.request(), question.cost, settlement, now, &mut answer);
            assert!(answer.standings.iter().all(|it| it.left <= it.quota));
        }
    }
}

/// What was read; a fault says what is wrong.
fn told<T>(read: Result<T, Fault>) -> Option<T> {
    read.inspect_err(|fault| assert!(!fault.to_string().is_empty() && fault.status() >= 400)).ok()
}
