//! Reads limits on requests.

mod attributes;
mod key;
mod matching;
mod options;
mod overrides;
pub(super) mod values;
pub(super) mod write;

pub(super) use self::attributes::{attributes, warn_of_unused};
pub use self::{
    key::{request_key_name, request_part_name},
    write::override_conditions,
};
use self::{
    matching::{cost, matching},
    overrides::Of,
};
use super::{
    allowance::{action, is_given},
    fault::Findings,
    fields::Fields,
    layers::{count_fits, layers},
    limit::{object, penalty},
    names::{ALGORITHMS, Algorithm, HEADERS, Header, MISSING, ON_FAILURE, OVERRIDE},
    ports::several,
    scalar::{self, flag},
    shape::request::{ALLOWANCE, LAYER, LIMIT, PENALTY},
    source::{Place, ticked},
    terms::{Terms, algorithm_of},
    tree::Node,
    unit::Unit,
};
use crate::policy::{
    Builtin,
    model::{
        HeaderSet, Missing, Mode, OnFailure, Policy, RequestCost, RequestKey, RequestKeyPart,
        RequestLayer, RequestLimit,
    },
    scopes::Scopes,
    shadowed::FromFiles,
};

/// A limit with the place of its name.
pub(super) struct Found {
    pub(super) limit: RequestLimit,
    pub(super) at: Place,
}

/// Reads a limit on requests. `index`, from 0, stands for the name if that cannot be read. `None` if it has no valid name, key
/// or algorithm.
pub(super) fn limit(
    node: &Node<'_>,
    index: usize,
    known: (&Policy, &FromFiles),
    scopes: &mut Scopes<'_>,
    findings: &mut Findings<'_>,
) -> Option<Found> {
    findings.object = Some(object(node, index));
    let found = read(node, known, scopes, findings);
    findings.object = None;
    found
}

fn read(
    node: &Node<'_>,
    known: (&Policy, &FromFiles),
    scopes: &mut Scopes<'_>,
    findings: &mut Findings<'_>,
) -> Option<Found> {
    let policy = known.0;
    let fields = Fields::read(node, &LIMIT, findings)?;
    let name = fields.get("name").and_then(|node| scalar::name(node, "a limit", findings));
    if let (Some(name), Some(at)) = (name, fields.get("name").map(|node| node.at))
        && Builtin::by_name(name).is_some()
    {
        let message = format!("{} is a limit on packets that every policy has", ticked(name));
        findings.add(at, message, "give it another name");
    }
    let matching =
        fields.get("match").map(|node| matching(node, known, findings)).unwrap_or_default();
    let sources = scopes.scope(&matching.sources, &matching.except_sources);
    if sources.is_empty() {
        let at = fields.get("match").map_or(fields.at, |node| node.at);
        let message = "it matches nothing: `except` has all that `source` has";
        findings.add(at, message, "take some out of it, or remove the limit");
    }
    let cost = fields.get("cost").and_then(|node| cost(node, policy, findings)).unwrap_or_default();
    // The keys of rates depend on the algorithm.
    let terms = terms(&fields, &cost, findings);
    let (mode, is_zero) = action(&fields, terms, findings);
    let drops = mode == Some(Mode::Drop);
    let key = match fields.get("key") {
        Some(node) => key::key(node, policy, findings),
        // What refuses everything keeps nothing apart; overrides are of sources.
        None if drops => Some(RequestKey { parts: vec![RequestKeyPart::Source] }),
        None => {
            fields.needs("key", &LIMIT, findings);
            None
        }
    };
    let read_key = |node: &Node<'_>, findings: &mut Findings<'_>| key::key(node, policy, findings);
    let layers = terms
        .filter(|_| !is_zero)
        .map(|terms| layers(&fields, terms, key.as_ref(), (&LAYER, &read_key), findings))
        .unwrap_or_default();
    let first = layers.first().map(|(allowance, _)| algorithm_of(allowance));
    let candidate = fields.get("candidate").zip(terms).and_then(|(node, terms)| {
        let fields = Fields::read(node, &ALLOWANCE, findings)?;
        let algorithm = first.unwrap_or(terms.algorithm);
        Terms { algorithm, ..terms }.read(&fields, findings)
    });
    let mut limit = RequestLimit {
        name: name.unwrap_or_default().to_owned(),
        matching,
        key: key.clone().unwrap_or_default(),
        missing: word(&fields, "missing", &MISSING, Missing::default(), findings),
        cost,
        mode: mode.unwrap_or_default(),
        layers: layers
            .into_iter()
            .map(|(allowance, key)| RequestLayer { allowance, key })
            .collect(),
        candidate,
        penalty: fields.get("penalty").and_then(|node| penalty(node, &PENALTY, findings)),
        overrides: Vec::new(),
        headers: fields
            .get("headers")
            .map_or_else(HeaderSet::default, |node| headers(node, findings)),
        on_failure: word(&fields, "on_failure", &ON_FAILURE, OnFailure::default(), findings),
        idempotency: fields
            .get("idempotency")
            .and_then(|node| options::idempotency(node, findings)),
        degrade: fields.get("degrade").and_then(|node| options::degrade(node, findings)),
        delay: fields.get("delay").and_then(|node| options::delay(node, findings)),
        takes_told: word(&fields, "override", &OVERRIDE, false, findings),
    };
    if let Some((node, terms)) = fields.get("overrides").zip(terms) {
        let of = Of { limit: &limit, has_key: key.is_some(), sources: &sources };
        limit.overrides = overrides::overrides(node, &of, terms, known, findings);
    }
    if let (Some(at), Some(delay)) = (fields.place("delay"), limit.delay) {
        options::check_delay(delay, &limit, at, findings);
    }
    if let Some(at) = fields.place("delay").filter(|_| limit.idempotency.is_some()) {
        let message = "a request that is sent again is not held back, and would leave the queue of `delay` out of turn";
        findings.add(at, message, "remove `idempotency`, or `delay`");
    }
    if let Some(at) = fields.place("penalty").filter(|_| !limit.headers.retry_after) {
        let message = "`penalty` is for who comes back before the `Retry-After` that is told, and `headers` tells none";
        findings.add(at, message, "add `retry-after` to `headers`, or remove `penalty`");
    }
    limits_somebody(&fields, &limit, findings);
    terms?;
    name?;
    key?;
    let at = fields.get("name").map_or(fields.at, |node| node.at);
    Some(Found { limit, at })
}

/// The algorithm, and what requests cost; `None` if requests cannot be decided about by it.
fn terms(
    fields: &Fields<'_, '_>,
    cost: &RequestCost,
    findings: &mut Findings<'_>,
) -> Option<Terms<'static>> {
    let algorithm = fields.get("algorithm");
    let algorithm = match algorithm {
        Some(node) => (scalar::word(node, "algorithm", &ALGORITHMS, findings)?, node.at),
        None => (Algorithm::TokenBucket, fields.at),
    };
    let dearest = cost.values.values().copied().fold(cost.default, u16::max);
    let terms = Terms::of(algorithm.0, Unit::Requests { dearest: dearest.into() });
    count_fits(terms, algorithm.1, findings).then_some(terms)
}

/// Reports a limit that says neither a rate nor that it has none.
fn limits_somebody(fields: &Fields<'_, '_>, limit: &RequestLimit, findings: &mut Findings<'_>) {
    let unlimited = fields.get("unlimited").and_then(|node| flag(node, findings)) == Some(true);
    let says = is_given(fields) || fields.get("layers").is_some();
    if let Some(at) = fields.place("unlimited").filter(|_| unlimited && says) {
        findings.add(at, "with a rate, it is not unlimited", "remove one of the two");
    }
    let limits_nobody = limit.mode != Mode::Drop
        && !says
        && !unlimited
        && limit.overrides.iter().all(|one| one.layers.is_none());
    if limits_nobody && fields.get("overrides").is_none_or(|_| !limit.overrides.is_empty()) {
        findings.add(fields.at, "it limits nothing", "give it a rate, such as `rate: 100/min`");
    }
}

fn word<T: Copy>(
    fields: &Fields<'_, '_>,
    key: &str,
    words: &super::names::Words<T>,
    default: T,
    findings: &mut Findings<'_>,
) -> T {
    let node = fields.get(key);
    let what = format!("value of `{key}`");
    node.and_then(|node| scalar::word(node, &what, words, findings)).unwrap_or(default)
}

/// Reads `headers`.
fn headers(node: &Node<'_>, findings: &mut Findings<'_>) -> HeaderSet {
    let found =
        several(node, findings, |node, findings| scalar::word(node, "header", &HEADERS, findings));
    if found.contains(&Header::None) && found.len() > 1 {
        findings.add(node.at, "`none` joins with nothing", "remove it, or all the others");
    }
    HeaderSet {
        ietf: found.contains(&Header::Ietf),
        x_ratelimit: found.contains(&Header::XRatelimit),
        retry_after: found.contains(&Header::RetryAfter),
    }
}
