//! Writes attributes and limits on requests as keys and values.

use super::{
    super::{
        names::{
            Algorithm, HEADERS, Header, MISSING, MODES, ON, ON_FAILURE, OVERRIDE, On, word_for,
        },
        terms::{Terms, algorithm_of},
        text::{Written, mapping, one_or_list, scalar, whom_text},
        unit::Unit,
        write_limit::{admitted, layer_text, penalty_text},
    },
    key::request_key_name,
};
use crate::policy::{
    model::{
        Attribute, AttributeSource, HeaderSet, Idempotency, KeyPrefix, Missing, Mode, OnFailure,
        OverrideWhom, Pattern, RequestCost, RequestLimit, RequestMatch, RequestOverride,
    },
    units::format_duration,
};

/// An attribute as a mapping.
pub(in crate::policy::document) fn attribute_text(attribute: &Attribute) -> String {
    let from = match &attribute.from {
        AttributeSource::Header(name) => ("header", scalar(name)),
        AttributeSource::Cookie(name) => ("cookie", scalar(name)),
        AttributeSource::Path(paths) => {
            let paths =
                paths.iter().map(|(path, value)| (scalar(&path.to_string()), scalar(value)));
            ("path", mapping(paths))
        }
        AttributeSource::Descriptor => ("descriptor", "true".to_owned()),
    };
    let digest = attribute.digest.then(|| ("digest", "true".to_owned()));
    mapping([from].into_iter().chain(digest))
}

/// The keys of a limit and their values, in the order in which they are written.
pub(in crate::policy::document) fn request_entries(
    limit: &RequestLimit,
    lengths: KeyPrefix,
) -> Vec<(&'static str, Written)> {
    let terms = terms(limit);
    let mut entries = Vec::new();
    let mut one = |key, value: String| entries.push((key, Written::One(value)));
    one("name", scalar(&limit.name));
    one("on", word_for(&On::Requests, &ON).unwrap_or_default().to_owned());
    if limit.matching != RequestMatch::default() {
        one("match", match_text(&limit.matching));
    }
    one("key", request_key_name(&limit.key, lengths));
    if limit.missing != Missing::default() {
        one("missing", word_for(&limit.missing, &MISSING).unwrap_or_default().to_owned());
    }
    if limit.cost != RequestCost::default() {
        one("cost", cost_text(&limit.cost));
    }
    if limit.mode != Mode::default() {
        one("action", word_for(&limit.mode, &MODES).unwrap_or_default().to_owned());
    }
    if terms.algorithm != Algorithm::TokenBucket {
        one("algorithm", terms.algorithm_name().to_owned());
    }
    if let [layer] = limit.layers.as_slice()
        && layer.key.is_none()
    {
        for (key, value) in terms.written(&layer.allowance) {
            one(key, value);
        }
    } else if !limit.layers.is_empty() {
        let layers = limit.layers.iter().map(|layer| {
            let key = layer.key.as_ref().map(|key| request_key_name(key, lengths));
            layer_text(&layer.allowance, key, terms)
        });
        let layers = Written::Many(layers.collect());
        entries.push(("layers", layers));
    } else if limit.mode != Mode::Drop && limit.overrides.iter().all(|one| one.layers.is_none()) {
        one("unlimited", "true".to_owned());
    }
    let mut one = |key, value: String| entries.push((key, Written::One(value)));
    if let Some(candidate) = &limit.candidate {
        one("candidate", mapping(terms.written(candidate)));
    }
    if let Some(penalty) = &limit.penalty {
        one("penalty", penalty_text(penalty));
    }
    if limit.headers != HeaderSet::default() {
        one("headers", headers_text(limit.headers));
    }
    if limit.takes_told {
        one("override", word_for(&true, &OVERRIDE).unwrap_or_default().to_owned());
    }
    if limit.on_failure != OnFailure::default() {
        one("on_failure", word_for(&limit.on_failure, &ON_FAILURE).unwrap_or_default().to_owned());
    }
    if let Some(Idempotency { window }) = limit.idempotency {
        one("idempotency", mapping([("window", format_duration(window))]));
    }
    if let Some(share) = limit.degrade {
        one("degrade", mapping([("at", format!("{share}%"))]));
    }
    if let Some(delay) = limit.delay {
        one("delay", format_duration(delay));
    }
    if !limit.overrides.is_empty() {
        let overrides = limit.overrides.iter().map(|one| override_text(one, limit));
        entries.push(("overrides", Written::Many(overrides.collect())));
    }
    entries
}

/// The terms by which the limit's own numbers are written.
pub(in crate::policy::document) fn terms(limit: &RequestLimit) -> Terms<'static> {
    let of_override = || limit.overrides.iter().flat_map(|one| one.layers.iter().flatten()).next();
    let first = limit.layers.first().map(|layer| &layer.allowance);
    let algorithm = first
        .or_else(of_override)
        .or(limit.candidate.as_ref())
        .map_or(Algorithm::TokenBucket, algorithm_of);
    Terms::of(algorithm, Unit::Requests { dearest: 1 })
}

/// The conditions of an override, as they are written.
pub(in crate::policy::document) fn conditions_of(one: &RequestOverride) -> Vec<(String, String)> {
    let whom = one.whom.iter().map(|whom| match whom {
        OverrideWhom::Prefix(prefix) => ("src".to_owned(), scalar(&prefix.to_string())),
        OverrideWhom::Tenant(name) => ("tenant".to_owned(), scalar(name)),
    });
    let fields = one.fields.iter();
    let fields = fields.map(|(field, pattern)| (scalar(field.name()), pattern_text(pattern)));
    whom.chain(fields).collect()
}

/// What an override is for, as a document has it, such as `user: acme, src: 198.51.100.0/24`.
pub fn override_conditions(one: &RequestOverride) -> String {
    let pairs = conditions_of(one).into_iter();
    pairs.map(|(key, value)| format!("{key}: {value}")).collect::<Vec<_>>().join(", ")
}

/// What an override admits, as keys and values.
pub(in crate::policy::document) fn admitted_by(
    one: &RequestOverride,
    limit: &RequestLimit,
) -> Vec<(&'static str, String)> {
    admitted(one.layers.as_deref(), limit.layers.len(), terms(limit))
}

fn override_text(one: &RequestOverride, limit: &RequestLimit) -> String {
    let admitted = admitted_by(one, limit).into_iter();
    let admitted = admitted.map(|(key, value)| (key.to_owned(), value));
    mapping(conditions_of(one).into_iter().chain(admitted))
}

fn pattern_text(pattern: &Pattern) -> String {
    scalar(&pattern.to_string())
}

fn match_text(matching: &RequestMatch) -> String {
    let fields = matching.fields.iter().map(|(field, patterns)| {
        (scalar(field.name()), one_or_list(patterns.iter().map(pattern_text)))
    });
    let sources = [("source", &matching.sources), ("except", &matching.except_sources)];
    let sources = sources
        .into_iter()
        .filter(|(_, whoms)| !whoms.is_empty())
        .map(|(key, whoms)| (key.to_owned(), one_or_list(whoms.iter().map(whom_text))));
    mapping(fields.chain(sources))
}

fn cost_text(cost: &RequestCost) -> String {
    let Some(by) = &cost.by else { return cost.default.to_string() };
    let values = cost.values.iter().map(|(value, cost)| (scalar(value), cost.to_string()));
    mapping([
        ("default", cost.default.to_string()),
        ("by", scalar(by.name())),
        ("values", mapping(values)),
    ])
}

fn headers_text(headers: HeaderSet) -> String {
    let given = [
        (headers.ietf, Header::Ietf),
        (headers.x_ratelimit, Header::XRatelimit),
        (headers.retry_after, Header::RetryAfter),
    ];
    let mut given: Vec<Header> =
        given.into_iter().filter_map(|(is_given, header)| is_given.then_some(header)).collect();
    if given.is_empty() {
        given.push(Header::None);
    }
    let words = given.iter().filter_map(|header| word_for(header, &HEADERS));
    one_or_list(words.map(str::to_owned))
}
