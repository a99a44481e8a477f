//! Reads limits.

use super::{
    about::{self, Passes},
    allowance::{action, is_given, written_burst},
    fault::Findings,
    fields::Fields,
    key::{key, source_lengths},
    layers::{count_fits, layers},
    matching::matching,
    names::{
        ALGORITHMS, Algorithm, COUNTS, Counted, FLAGS, KINDS, OF_REQUESTS, ON, On, PROXIED,
        UNPROVEN, meaning,
    },
    overrides,
    scalar::{self, duration, flag},
    shape::{self, Shape},
    source::ticked,
    spot::Spot,
    terms::{Terms, algorithm_of},
    tree::{Node, Value},
};
use crate::policy::model::{
    Costs, Count, Given, Key, KeyPart, Layer, Limit, Match, Mode, Penalty, Policy, Proxied,
    TcpFlags, Unproven,
};
use limiter_common::packet::protocol::TCP;

/// The default of `max` of a penalty, in nanoseconds: an hour.
const LONGEST_BLOCK: u64 = 3600 * limiter_common::algorithm::rate::SECOND;

/// A limit with the places of its parts, for checks across limits.
pub(super) struct Found {
    pub(super) limit: Limit,
    /// The place of its name.
    pub(super) spot: Spot,
    /// The places of its overrides.
    pub(super) overrides: Vec<Spot>,
}

/// Reads a limit. `index`, from 0, stands for the name if that cannot be read. `None` if it has no valid name
/// or key.
pub(super) fn limit(
    node: &Node<'_>,
    index: usize,
    (policy, passes): (&Policy, &mut Passes<'_>),
    findings: &mut Findings<'_>,
) -> Option<Found> {
    findings.object = Some(object(node, index));
    let found = read(node, policy, passes, findings);
    findings.object = None;
    found
}

/// A limit in words, to begin its faults with. `index`, from 0, stands for the name if that cannot be read.
pub(super) fn object(node: &Node<'_>, index: usize) -> String {
    match name_of(node) {
        Some(name) => format!("limit {}", ticked(name)),
        None => format!("limit {}", index + 1),
    }
}

/// Whether a limit is on packets or on requests; `None` if that is a fault.
pub(super) fn on(node: &Node<'_>, index: usize, findings: &mut Findings<'_>) -> Option<On> {
    let Value::Map(pairs) = &node.value else { return Some(On::Packets) };
    let Some((_, value)) = pairs.iter().find(|(word, _)| word.text == "on") else {
        return Some(On::Packets);
    };
    findings.object = Some(object(node, index));
    let on = scalar::word(value, "value of `on`", &ON, findings);
    findings.object = None;
    on
}

/// The name as it was written.
fn name_of<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    let Value::Map(pairs) = &node.value else { return None };
    pairs.iter().find_map(|(word, node)| match &node.value {
        Value::Text(name) if word.text == "name" => Some(&**name),
        _ => None,
    })
}

fn read(
    node: &Node<'_>,
    policy: &Policy,
    passes: &mut Passes<'_>,
    findings: &mut Findings<'_>,
) -> Option<Found> {
    let before = findings.total();
    let fields = Fields::read(node, &shape::LIMIT, findings)?;
    let name = fields.get("name").and_then(|node| scalar::name(node, "a limit", findings));
    let known = (policy, passes.files);
    let matching = fields.get("match").map(|node| matching(node, known, findings));
    let algorithm = algorithm(&fields, findings);
    let count = count(&fields, algorithm, findings);
    let terms = Terms::new(algorithm.unwrap_or(Algorithm::TokenBucket), &count);
    let (mode, is_zero) = action(&fields, Some(terms), findings);
    let drops = mode == Some(Mode::Drop);
    let key = match fields.get("key") {
        Some(node) => key(node, policy, findings),
        // What drops everything keeps nothing apart; overrides and a penalty are of sources.
        None if drops => Some(Key { parts: vec![KeyPart::Source] }),
        None => {
            fields.needs("key", &shape::LIMIT, findings);
            None
        }
    };
    check_count(terms, &fields, findings);
    if let Some(matching) = &matching {
        check_counted((terms.algorithm, &count), matching, &fields, findings);
    }
    let read_key =
        |node: &Node<'_>, findings: &mut Findings<'_>| super::key::key(node, policy, findings);
    let layers = match is_zero {
        true => Vec::new(),
        false => layers(&fields, terms, key.as_ref(), (&shape::LAYER, &read_key), findings),
    };
    let layers: Vec<_> =
        layers.into_iter().map(|(allowance, key)| Layer { allowance, key }).collect();
    // The other keys depend on what is counted and on the algorithm.
    let first = layers
        .first()
        .map_or(terms, |layer| Terms { algorithm: algorithm_of(&layer.allowance), ..terms });
    let candidate = fields.get("candidate").and_then(|node| {
        let fields = Fields::read(node, &shape::ALLOWANCE, findings)?;
        first.read(&fields, findings)
    });
    let penalty = fields.get("penalty").and_then(|node| penalty(node, &shape::PENALTY, findings));
    if let (Some(key), Some(at)) = (&key, fields.place("penalty"))
        && source_lengths(key, policy.key_prefix).is_none()
    {
        let message = "a penalty blocks sources, and the key has none";
        findings.add(at, message, "add `source` to the key, or remove the penalty");
    }
    let shared = fields.get("shared").and_then(|node| {
        let shared = scalar::whole(node, "shared", 1..=Limit::MOST_SHARED.into(), findings)?;
        u32::try_from(shared).ok()
    });
    let requests = fields.get("requests").and_then(|node| {
        let requests = scalar::word(node, "value of `requests`", &OF_REQUESTS, findings)?;
        let is_of_source =
            |key: &Key| matches!(key.parts[..], [KeyPart::Source | KeyPart::SourcePrefix { .. }]);
        if !requests.is_off() && key.as_ref().is_some_and(|key| !is_of_source(key)) {
            let message = "requests learn of limits of their source, and the key is another one";
            findings.add(node.at, message, "write `key: source`, or remove `requests`");
        }
        Some(requests)
    });
    let precise = fields.get("precise").and_then(|node| flag(node, findings)) == Some(true);
    let mut limit = Limit {
        name: name.unwrap_or_default().to_owned(),
        matching: matching.unwrap_or_default(),
        key: key.clone().unwrap_or_default(),
        count: count.clone(),
        mode: mode.unwrap_or_default(),
        layers,
        candidate,
        penalty,
        overrides: Vec::new(),
        shared,
        precise,
        requests: requests.unwrap_or_default(),
        given: Given::default(),
    };
    limit.given.set(None, written_burst(&fields, terms.unit));
    let mut places = Vec::new();
    if let Some(node) = fields.get("overrides") {
        let read = overrides::overrides(node, &limit, key.is_some(), terms, known, findings);
        for (one, _, burst) in &read {
            limit.given.set(Some(&one.whom), *burst);
        }
        (limit.overrides, places) = read.into_iter().map(|(one, spot, _)| (one, spot)).unzip();
    }
    let unlimited = fields.get("unlimited").and_then(|node| flag(node, findings)) == Some(true);
    let says = is_given(&fields) || fields.get("layers").is_some();
    if let Some(at) = fields.place("unlimited").filter(|_| unlimited && says) {
        findings.add(at, "with a rate, it is not unlimited", "remove one of the two");
    }
    let limits_nobody = !drops
        && limit.layers.is_empty()
        && !says
        && !unlimited
        && limit.overrides.iter().all(|one| one.layers.is_none());
    if limits_nobody && fields.get("overrides").is_none_or(|_| !limit.overrides.is_empty()) {
        let remedy = match terms.algorithm {
            Algorithm::Concurrent => "give it open connections, such as `limit: 50`",
            _ => "give it a rate, such as `rate: 10k pps`",
        };
        findings.add(fields.at, "it limits nothing", remedy);
    }
    name?;
    key?;
    let at = fields.get("name").map_or(fields.at, |node| node.at);
    let spot = Spot::new(at, Some(&fields), findings);
    if findings.total() == before {
        about::check(&fields, &limit, (spot, &places), (policy, passes), findings);
    }
    Some(Found { limit, spot, overrides: places })
}

fn algorithm(fields: &Fields<'_, '_>, findings: &mut Findings<'_>) -> Option<Algorithm> {
    match fields.get("algorithm") {
        None => Some(Algorithm::TokenBucket),
        Some(node) => scalar::word(node, "algorithm", &ALGORITHMS, findings),
    }
}

fn count(
    fields: &Fields<'_, '_>,
    algorithm: Option<Algorithm>,
    findings: &mut Findings<'_>,
) -> Count {
    if let Some(node) = fields.get("cost") {
        if let Some(at) = fields.place("count") {
            let message = "`cost` says what is counted already";
            findings.add(at, message, "remove one of the two");
        }
        return costs(node, findings).map_or(Count::Packets, Count::Weighted);
    }
    let counted =
        fields.get("count").and_then(|node| scalar::word(node, "count", &COUNTS, findings));
    match counted {
        Some(Counted::Bytes) => Count::Bytes,
        Some(Counted::Connections) => Count::Connections,
        Some(Counted::Syns) => Count::Syns,
        None if algorithm == Some(Algorithm::Concurrent) => Count::Connections,
        Some(Counted::Packets) | None => Count::Packets,
    }
}

fn costs(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Costs> {
    let fields = Fields::read(node, &shape::COSTS, findings)?;
    let mut cost = |key: &str| {
        let node = fields.get(key)?;
        let cost = scalar::whole(node, "cost", 1..=u64::from(u16::MAX), findings)?;
        u16::try_from(cost).ok()
    };
    let default = cost("default").unwrap_or(1);
    let by_kind = KINDS.iter().filter_map(|&(name, kind)| Some((kind, cost(name)?))).collect();
    Some(Costs { default, by_kind })
}

/// Reports an algorithm that does not support what the limit counts.
fn check_count(terms: Terms<'_>, fields: &Fields<'_, '_>, findings: &mut Findings<'_>) {
    let Some(at) = ["cost", "count"].iter().find_map(|key| fields.get(key)).map(|node| node.at)
    else {
        return;
    };
    count_fits(terms, at, findings);
}

/// Reports a match without any packet that is counted: of connections and SYNs, only the first packet of a
/// TCP connection is.
fn check_counted(
    (algorithm, count): (Algorithm, &Count),
    matching: &Match,
    fields: &Fields<'_, '_>,
    findings: &mut Findings<'_>,
) {
    let counted = match count {
        Count::Syns => "SYNs",
        Count::Connections => "TCP connections",
        Count::Packets | Count::Bytes | Count::Weighted(_) => return,
    };
    let (flags, none) = (matching.tcp_flags, TcpFlags { set: 0, clear: 0 });
    let TcpFlags { set, clear } = flags.unwrap_or(none);
    let [syn, ack] = ["syn", "ack"].map(|name| meaning(name, &FLAGS).unwrap_or_default());
    let opens = set & ack == 0 && clear & syn == 0;
    let (message, remedy) = if !matching.protocols.is_empty() && !matching.protocols.contains(&TCP)
    {
        ("this matches no TCP", "write `protocol: tcp`, or count packets")
    } else if !matching.icmp_types.is_empty() {
        ("`icmp_type` leaves no TCP", "remove `icmp_type`, or count packets")
    } else if !opens && algorithm != Algorithm::Concurrent {
        ("`tcp_flags` leave no SYN without ACK", "remove `tcp_flags`")
    } else {
        return;
    };
    let node = ["count", "algorithm"].iter().find_map(|key| fields.get(key));
    let at = node.map_or(fields.at, |node| node.at);
    findings.add(at, format!("only {counted} are counted, and {message}"), remedy);
}

/// Reads a penalty by its shape: that of a limit on packets, or on requests.
pub(super) fn penalty(
    node: &Node<'_>,
    shape: &'static Shape,
    findings: &mut Findings<'_>,
) -> Option<Penalty> {
    let fields = Fields::read(node, shape, findings)?;
    let after = fields.get("after").and_then(|node| duration(node, findings));
    let block = fields.get("block").and_then(|node| duration(node, findings));
    let backoff = match fields.get("backoff") {
        Some(node) => scalar::whole(node, "backoff", 1..=10, findings),
        None => Some(2),
    };
    let max = match fields.get("max") {
        Some(node) => duration(node, findings),
        None => Some(LONGEST_BLOCK.max(block.unwrap_or_default())),
    };
    if let (Some(block), Some(max), Some(node)) = (block, max, fields.get("max"))
        && max < block
    {
        let message = "the longest block is shorter than the first";
        findings.add(node.at, message, "give `max` at least as long as `block`");
    }
    let unproven = match fields.get("unproven") {
        Some(node) => scalar::word(node, "value of `unproven`", &UNPROVEN, findings),
        None => Some(Unproven::default()),
    };
    let proxied = match fields.get("proxied") {
        Some(node) => scalar::word(node, "value of `proxied`", &PROXIED, findings),
        None => Some(Proxied::default()),
    };
    let backoff = u32::try_from(backoff?).ok()?;
    Some(Penalty {
        after: after?,
        block: block?,
        backoff,
        max: max?,
        unproven: unproven?,
        proxied: proxied?,
    })
}
