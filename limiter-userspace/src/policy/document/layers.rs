//! Reads the layers of a limit.

use super::{
    allowance::is_given,
    fault::Findings,
    fields::{Fields, list},
    names::{ALGORITHMS, Algorithm},
    scalar,
    shape::Shape,
    source::Place,
    terms::{KEYS, Terms},
    tree::{Node, Value},
    unit::Unit,
};
use crate::policy::{
    model::{Allowance, Count},
    units::parse_duration,
};

/// The most layers of a limit.
const LAYERS: usize = 8;

/// An allowance with the key of its own, if it has one.
pub(super) type Layer<K> = (Allowance, Option<K>);

/// Reads the value of `key`.
pub(super) type KeyReader<'r, K> = &'r dyn Fn(&Node<'_>, &mut Findings<'_>) -> Option<K>;

/// Whether the algorithm supports what the limit counts; a fault if not.
pub(super) fn count_fits(terms: Terms<'_>, at: Place, findings: &mut Findings<'_>) -> bool {
    let (message, remedy) = match (terms.algorithm, terms.unit) {
        (Algorithm::Concurrent, Unit::Packets(Count::Connections) | Unit::Requests { .. }) => {
            return true;
        }
        (Algorithm::Concurrent, _) => {
            ("concurrent counts open connections, nothing else", "write `count: connections`")
        }
        (
            Algorithm::SlidingLog,
            Unit::Packets(Count::Bytes | Count::Weighted(_)) | Unit::Requests { dearest: 2.. },
        ) => ("a sliding_log counts events, each as one", "take sliding_window"),
        _ => return true,
    };
    findings.add(at, message, remedy);
    false
}

/// Reads the layers of a limit: the entries of `layers`, each of a shape, or one from the limit's own keys.
pub(super) fn layers<K: Clone + PartialEq>(
    fields: &Fields<'_, '_>,
    terms: Terms<'_>,
    of_limit: Option<&K>,
    (shape, key): (&'static Shape, KeyReader<'_, K>),
    findings: &mut Findings<'_>,
) -> Vec<Layer<K>> {
    let Some(node) = fields.get("layers") else {
        if !is_given(fields) {
            return Vec::new();
        }
        let allowance = terms.read(fields, findings);
        return allowance.map(|allowance| (allowance, None)).into_iter().collect();
    };
    if let Some(at) = KEYS.iter().find_map(|key| fields.place(key)) {
        let message = "with `layers`, what is admitted is said there";
        findings.add(at, message, "make it another entry of `layers`");
    }
    let mut found: Vec<Layer<K>> = Vec::new();
    let nodes = list(node, findings);
    if nodes.is_empty() {
        findings.add(node.at, "the list is empty", "give at least one layer, such as {rate: 5/s}");
    }
    if let Some(first) = nodes.get(LAYERS) {
        let message = format!("there are {} layers, more than {LAYERS}", nodes.len());
        findings.add(first.at, message, "make it several limits");
    }
    let terms = Terms { shortest: shortest_period(nodes, terms.unit), ..terms };
    let mut places = Vec::new();
    for node in nodes.iter().take(LAYERS) {
        let Some(layer) = layer(node, terms, (shape, key), findings) else { continue };
        if let Some(same) = found.iter().position(|other| *other == layer) {
            let message = format!("this is the same as layer {}", same + 1);
            findings.add(node.at, message, "remove one of the two");
            continue;
        }
        found.push(layer);
        places.push(node.at);
    }
    let own = |key: &Option<K>| key.clone().or_else(|| of_limit.cloned());
    let parts: Vec<_> =
        found.iter().zip(places).map(|((it, key), at)| (*it, own(key), at)).collect();
    never_refusing(&parts, findings);
    found
}

/// Reports layers that never refuse a packet, because another layer with the same key always refuses it too.
pub(super) fn never_refusing<K: PartialEq>(
    layers: &[(Allowance, K, Place)],
    findings: &mut Findings<'_>,
) {
    for (index, (allowance, key, at)) in layers.iter().enumerate() {
        let narrower = layers.iter().enumerate().find(|(other, (narrow, of, _))| {
            *other != index
                && of == key
                && allowance.never_refuses_beside(*narrow)
                // Of two layers that admit the same, the first stays.
                && (*other < index || !narrow.never_refuses_beside(*allowance))
        });
        if let Some((other, _)) = narrower {
            let message =
                format!("this layer never refuses anything: layer {} always does first", other + 1);
            let remedy = "remove it; beside a lower rate, a higher one needs a smaller burst";
            findings.add(*at, message, remedy);
        }
    }
}

/// The shortest period of the rates and windows of several layers, in nanoseconds; `None` for fewer than two.
pub(super) fn shortest_period(nodes: &[Node<'_>], unit: Unit<'_>) -> Option<u64> {
    let period = |node: &Node<'_>| {
        let Value::Map(pairs) = &node.value else { return None };
        pairs.iter().find_map(|(word, node)| match (&*word.text, &node.value) {
            ("rate", Value::Text(text)) => unit.parse_rate(text).ok().map(|rate| rate.period),
            ("window", Value::Text(text)) => {
                let time = parse_duration(text).ok()?;
                u64::try_from(time.as_nanos()).ok()
            }
            _ => None,
        })
    };
    if nodes.len() < 2 { None } else { nodes.iter().filter_map(period).min() }
}

fn layer<K>(
    node: &Node<'_>,
    terms: Terms<'_>,
    (shape, key): (&'static Shape, KeyReader<'_, K>),
    findings: &mut Findings<'_>,
) -> Option<Layer<K>> {
    let fields = Fields::read(node, shape, findings)?;
    let key = match fields.get("key") {
        Some(node) => Some(key(node, findings)?),
        None => None,
    };
    let algorithm = match fields.get("algorithm") {
        Some(node) => scalar::word(node, "algorithm", &ALGORITHMS, findings)?,
        None => terms.algorithm,
    };
    let own = Terms { algorithm, ..terms };
    // What does not fit the limit itself was reported there.
    if algorithm != terms.algorithm {
        let at = fields.get("algorithm").map_or(fields.at, |node| node.at);
        let mixes =
            (algorithm == Algorithm::Concurrent) != (terms.algorithm == Algorithm::Concurrent);
        if mixes && matches!(terms.unit, Unit::Packets(_)) {
            let message = "open connections and rates cannot be layers of one limit";
            findings.add(at, message, "make them two limits");
            return None;
        }
        if !count_fits(own, at, findings) {
            return None;
        }
    }
    let allowance = own.read(&fields, findings)?;
    Some((allowance, key))
}
