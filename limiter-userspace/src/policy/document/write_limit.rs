//! Writes a limit as keys and values.

use super::{
    key::key_name,
    names::{
        Algorithm, COUNTS, Counted, FLAGS, KINDS, MODES, OF_REQUESTS, PROXIED, UNPROVEN, word_for,
    },
    ports::{protocol_name, range_name},
    terms::{Terms, algorithm_of},
    text::{SHADOWED, Written, mapping, one_or_list, scalar, whom_text},
};
use crate::policy::{
    model::{
        Allowance, Count, KeyPrefix, Limit, Match, Mode, Override, OverrideWhom, Penalty, Proxied,
        TcpFlags, Unproven,
    },
    units::format_duration,
};

/// The keys of a limit and their values, in the order in which they are written. `shadowed` tells whether the
/// override with an index has no effect, or for `None` the limit.
pub(super) fn limit_entries(
    limit: &Limit,
    lengths: KeyPrefix,
    shadowed: impl Fn(Option<usize>) -> bool,
) -> Vec<(&'static str, Written)> {
    let algorithm = written_algorithm(limit);
    let terms = Terms::new(algorithm, &limit.count);
    let mut entries = vec![("name", Written::One(scalar(&limit.name)))];
    let mut one = |key, value: String| entries.push((key, Written::One(value)));
    if limit.matching != Match::default() {
        one("match", match_text(&limit.matching));
    }
    if shadowed(None) {
        one(SHADOWED.0, SHADOWED.1.to_owned());
    }
    one("key", key_name(&limit.key, lengths));
    match &limit.count {
        Count::Packets => {}
        Count::Weighted(costs) => {
            let kinds = costs
                .by_kind
                .iter()
                .filter_map(|(kind, cost)| Some((word_for(kind, &KINDS)?, cost.to_string())));
            let default = std::iter::once(("default", costs.default.to_string()));
            one("cost", mapping(default.chain(kinds)));
        }
        Count::Bytes => one("count", count_word(Counted::Bytes)),
        Count::Connections => one("count", count_word(Counted::Connections)),
        Count::Syns => one("count", count_word(Counted::Syns)),
    }
    if limit.mode != Mode::default() {
        one("action", word_for(&limit.mode, &MODES).unwrap_or_default().to_owned());
    }
    if algorithm != Algorithm::TokenBucket {
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
            let key = layer.key.as_ref().map(|key| key_name(key, lengths));
            layer_text(&layer.allowance, key, terms)
        });
        let layers = Written::Many(layers.collect());
        entries.push(("layers", layers));
    } else if limit.mode != Mode::Drop && limit.overrides.iter().all(|one| one.layers.is_none()) {
        // This is what is left of a limit after a command deleted its rate.
        one("unlimited", "true".to_owned());
    }
    if let Some(candidate) = &limit.candidate {
        entries.push(("candidate", Written::One(mapping(terms.written(candidate)))));
    }
    if let Some(penalty) = &limit.penalty {
        entries.push(("penalty", Written::One(penalty_text(penalty))));
    }
    if !limit.requests.is_off() {
        let word = word_for(&limit.requests, &OF_REQUESTS).unwrap_or_default();
        entries.push(("requests", Written::One(word.to_owned())));
    }
    if limit.precise {
        entries.push(("precise", Written::One("true".to_owned())));
    }
    if let Some(shared) = limit.shared {
        entries.push(("shared", Written::One(shared.to_string())));
    }
    if !limit.overrides.is_empty() {
        let overrides = limit.overrides.iter().enumerate();
        let overrides =
            overrides.map(|(place, one)| override_text(one, limit, terms, shadowed(Some(place))));
        entries.push(("overrides", Written::Many(overrides.collect())));
    }
    entries
}

/// A penalty as a mapping.
pub(super) fn penalty_text(penalty: &Penalty) -> String {
    let pairs = [
        ("after", format_duration(penalty.after)),
        ("block", format_duration(penalty.block)),
        ("backoff", penalty.backoff.to_string()),
        ("max", format_duration(penalty.max)),
    ];
    // Defaults are not written.
    let unproven = (penalty.unproven != Unproven::default())
        .then(|| word_for(&penalty.unproven, &UNPROVEN))
        .flatten();
    let proxied = (penalty.proxied != Proxied::default())
        .then(|| word_for(&penalty.proxied, &PROXIED))
        .flatten();
    let words = [("unproven", unproven), ("proxied", proxied)];
    let words = words.into_iter().filter_map(|(key, word)| Some((key, word?.to_owned())));
    mapping(pairs.into_iter().chain(words))
}

/// A layer as a mapping, with its key if that is its own. `terms` are those of the limit.
pub(super) fn layer_text(allowance: &Allowance, key: Option<String>, terms: Terms<'_>) -> String {
    let own = Terms { algorithm: algorithm_of(allowance), ..terms };
    let key = key.map(|key| ("key", key));
    let other = own.algorithm != terms.algorithm;
    let other = other.then(|| ("algorithm", own.algorithm_name().to_owned()));
    mapping(key.into_iter().chain(other).chain(own.written(allowance)))
}

/// What an override of a limit admits, as keys and values. `layers` is the number of layers of the limit.
pub(super) fn admitted(
    allowances: Option<&[Allowance]>,
    layers: usize,
    terms: Terms<'_>,
) -> Vec<(&'static str, String)> {
    let own = |allowance: &Allowance| {
        Terms { algorithm: algorithm_of(allowance), ..terms }.written(allowance)
    };
    match allowances {
        None => vec![("unlimited", "true".to_owned())],
        Some([allowance]) if layers <= 1 => own(allowance),
        Some(several) => {
            let several: Vec<_> = several.iter().map(|layer| mapping(own(layer))).collect();
            vec![("layers", format!("[{}]", several.join(", ")))]
        }
    }
}

/// The value of the limit's key `algorithm` when it is written.
pub(super) fn written_algorithm(limit: &Limit) -> Algorithm {
    let of_override = || limit.overrides.iter().flat_map(|one| one.layers.iter().flatten()).next();
    let first = limit.layers.first().map(|layer| &layer.allowance);
    first
        .or_else(of_override)
        .or(limit.candidate.as_ref())
        .map_or(Algorithm::TokenBucket, algorithm_of)
}

fn count_word(counted: Counted) -> String {
    word_for(&counted, &COUNTS).unwrap_or_default().to_owned()
}

/// An override as a mapping.
pub(super) fn override_text(
    one: &Override,
    limit: &Limit,
    terms: Terms<'_>,
    shadowed: bool,
) -> String {
    let mut pairs = vec![match &one.whom {
        OverrideWhom::Prefix(prefix) => ("src", scalar(&prefix.to_string())),
        OverrideWhom::Tenant(name) => ("tenant", scalar(name)),
    }];
    pairs.extend(admitted(one.layers.as_deref(), limit.layers.len(), terms));
    if shadowed {
        pairs.push((SHADOWED.0, SHADOWED.1.to_owned()));
    }
    mapping(pairs)
}

/// What a limit is about, as it is written without the braces; empty for all packets.
pub fn match_name(matching: &Match) -> String {
    let text = match_text(matching);
    text.trim_matches(['{', '}', ' ']).to_owned()
}

fn match_text(matching: &Match) -> String {
    let mut pairs: Vec<(&'static str, String)> = Vec::new();
    let mut push = |key, values: Vec<String>| {
        if !values.is_empty() {
            pairs.push((key, one_or_list(values)));
        }
    };
    if let Some(service) = &matching.service {
        push("service", vec![scalar(service)]);
    } else {
        push("protocol", matching.protocols.iter().map(|&one| protocol_name(one)).collect());
        push("ports", matching.ports.iter().map(range_name).collect());
    }
    push("source_ports", matching.source_ports.iter().map(range_name).collect());
    push("tcp_flags", matching.tcp_flags.iter().map(|&one| flags_text(one)).collect());
    push("icmp_type", matching.icmp_types.iter().map(ToString::to_string).collect());
    push("fragments", matching.fragments.iter().map(ToString::to_string).collect());
    push("length", matching.length.iter().map(range_name).collect());
    push("interface", matching.interfaces.iter().map(|name| scalar(name)).collect());
    for (key, whoms) in [
        ("source", &matching.sources),
        ("destination", &matching.destinations),
        ("except", &matching.except_sources),
        ("except_destination", &matching.except_destinations),
    ] {
        push(key, whoms.iter().map(whom_text).collect());
    }
    mapping(pairs)
}

/// Flags, always in quotes: `!` would begin a tag, and `,` another entry.
fn flags_text(flags: TcpFlags) -> String {
    let names = |bits: u8, not: &'static str| {
        let named = FLAGS.iter().filter(move |&&(_, bit)| bits & bit != 0);
        named.map(move |(name, _)| format!("{not}{name}"))
    };
    let all: Vec<_> = names(flags.set, "").chain(names(flags.clear, "!")).collect();
    format!("\"{}\"", all.join(","))
}
