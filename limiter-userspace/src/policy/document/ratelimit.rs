//! Makes limits on requests of a configuration of Envoy's rate limit service, github.com/envoyproxy/ratelimit.
//!
//! There, the entries of a descriptor are looked up one after the other in a tree of keys and values. A value itself comes before
//! one with a `*`, and a node without a value is for all others. Here, the nodes of one key below the same node are one limit:
//! the node without a value has its rate, and the others are overrides. A limit is about descriptors that have its entries. As
//! there all entries count, it exempts those that have what nodes with more entries are about. What has no such form is warned of.

mod words;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use limiter_common::algorithm::rate::{Rate, SECOND};

use self::words::{
    Values, about, any, is_header, is_within, name_of, prefix, restrict, unique, values,
};
use super::{
    DOCUMENT_BYTES, Faults, Warnings,
    fault::Findings,
    not_text,
    request::values::is_reserved,
    scalar::{self, expected},
    source::{Source, ticked},
    tree::{Node, Value, tree},
};
use crate::policy::model::{
    Allowance, Attribute, AttributeSource, Field, Mode, OverrideWhom, Pattern, Policy,
    RequestKeyPart, RequestLayer, RequestLimit, RequestOverride, Whom,
};

/// The algorithm of the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowAlgorithm {
    /// At most about the limit in the last unit.
    #[default]
    SlidingWindow,
    /// At most the limit in each unit of the clock of this machine.
    FixedWindow,
    /// The limit at once, and as much again over a unit.
    TokenBucket,
}

/// The most values of a key, and the most overrides of a limit for keys before its own.
const MOST_OVERRIDES: usize = 1_024;
/// The most attributes that a policy can have.
const MOST_ATTRIBUTES: usize = 64;
/// Keys whose meaning is lost.
const LOST: [&str; 4] = ["detailed_metric", "value_to_metric", "share_threshold", "quota_mode"];
/// The lengths of units in seconds.
const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", 86_400),
    ("week", 7 * 86_400),
    ("month", 30 * 86_400),
    ("year", 365 * 86_400),
];

/// Adds the limits of a configuration, or of those in a ConfigMap of Kubernetes, to a policy. Returns what is warned of.
///
/// # Errors
/// All faults of the text.
pub fn import(
    name: &str,
    text: &[u8],
    algorithm: WindowAlgorithm,
    policy: &mut Policy,
) -> Result<Vec<Warnings>, Faults> {
    if text.len() as u64 > DOCUMENT_BYTES {
        return Err(Faults::of_file(
            name,
            format!("it has more than {DOCUMENT_BYTES} bytes"),
            None,
        ));
    }
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return Err(not_text(name, text, error.valid_up_to())),
    };
    let source = Source::new(name, text);
    let mut findings = Findings::new(&source);
    let mut all = Vec::new();
    if let Some(root) = tree(text, &mut findings) {
        let files = match (get(&root, "kind"), get(&root, "data").map(|data| &data.value)) {
            (Some(kind), Some(Value::Map(files))) if is_text(kind, "ConfigMap") => Some(files),
            _ => None,
        };
        match files {
            None => Reader::new(policy, &mut findings, algorithm).read(&root),
            Some(files) => {
                for (word, node) in files {
                    if let Some(text) = scalar::text(node, &mut findings) {
                        let name = format!("{name}: {}", word.text);
                        // A text in it has no `kind` that this reads, so it goes no deeper.
                        let own = Source::new(&name, text);
                        let mut found = Findings::new(&own);
                        if let Some(root) = tree(text, &mut found) {
                            Reader::new(policy, &mut found, algorithm).read(&root);
                        }
                        all.push(found.take_warnings());
                        if let Some(faults) = found.into_faults() {
                            return Err(faults);
                        }
                    }
                }
            }
        }
    }
    all.push(findings.take_warnings());
    findings.into_faults().map_or(Ok(all), Err)
}

/// The value of a key of a mapping.
fn get<'n, 't>(node: &'n Node<'t>, key: &str) -> Option<&'n Node<'t>> {
    let Value::Map(pairs) = &node.value else { return None };
    let found = pairs.iter().find(|(word, _)| word.text == key);
    found.map(|(_, node)| node).filter(|node| !matches!(node.value, Value::Empty))
}

/// Whether a node says yes, in any of the spellings of YAML.
fn is_true(node: &Node<'_>) -> bool {
    let yes = ["true", "yes", "on", "y"];
    matches!(&node.value, Value::Text(text) if yes.iter().any(|it| text.eq_ignore_ascii_case(it)))
}

/// Whether one of these overrides is for the same requests.
fn has(overrides: &[RequestOverride], entry: &RequestOverride) -> bool {
    overrides.iter().any(|one| one.whom == entry.whom && one.fields == entry.fields)
}

fn is_text(node: &Node<'_>, expected: &str) -> bool {
    matches!(&node.value, Value::Text(text) if text == expected)
}

/// The nodes from the root to a node, as far as the limits below it go.
#[derive(Clone, Default)]
struct Path {
    /// Keys and values, for names.
    words: Vec<String>,
    fields: BTreeMap<Field, Vec<Pattern>>,
    sources: Vec<Whom>,
    parts: Vec<RequestKeyPart>,
    /// What other nodes are about.
    exempt: Vec<RequestOverride>,
}

impl Path {
    /// The keys of the entries.
    fn keys(&self) -> Keys {
        keys(&self.fields, &self.sources, &self.parts)
    }
}

/// The keys of entries.
type Keys = BTreeSet<RequestKeyPart>;

/// The keys of the entries that are matched or counted by.
fn keys(
    fields: &BTreeMap<Field, Vec<Pattern>>,
    sources: &[Whom],
    parts: &[RequestKeyPart],
) -> Keys {
    let fields = fields.keys().filter(|field| **field != Field::Domain);
    let source = (!sources.is_empty()).then_some(RequestKeyPart::Source);
    fields.cloned().map(RequestKeyPart::Field).chain(source).chain(parts.iter().cloned()).collect()
}

/// Has a limit exempt descriptors that have the entries of a node and more than those of the limit. Returns whether there can be
/// some.
fn exempt_longer(limit: &mut RequestLimit, nodes: &BTreeSet<Keys>) -> bool {
    // What refuses everything counts by nothing.
    let parts = if limit.mode == Mode::Drop { &[][..] } else { &limit.key.parts };
    let own = keys(&limit.matching.fields, &limit.matching.sources, parts);
    let longer = nodes.iter().filter(|node| own.is_subset(node));
    let more: Keys = longer.flatten().filter(|key| !own.contains(key)).cloned().collect();
    // The first that fits applies.
    limit.overrides.splice(0..0, more.iter().flat_map(any));
    !more.is_empty()
}

/// What a node says of rates.
enum Told {
    Nothing,
    Unlimited,
    Limited(Allowance),
    /// No request passes.
    Refused,
}

/// Overrides that exempt what nodes before a node of these values are about: that is not what the node is about.
fn others(
    part: &RequestKeyPart,
    values: &Values,
    before: &[(Values, &Node<'_>)],
) -> Vec<RequestOverride> {
    let before = before.iter().filter_map(|(values, _)| values.as_ref());
    let within = before.filter(|it| is_within(part, it, values.as_ref()));
    within.filter_map(|it| about(part, it, None)).collect()
}

struct Reader<'p, 'f, 's> {
    policy: &'p mut Policy,
    findings: &'f mut Findings<'s>,
    algorithm: WindowAlgorithm,
    domain: Option<String>,
    /// The keys of the entries of each node.
    nodes: BTreeSet<Keys>,
}

impl<'p, 'f, 's> Reader<'p, 'f, 's> {
    const fn new(
        policy: &'p mut Policy,
        findings: &'f mut Findings<'s>,
        algorithm: WindowAlgorithm,
    ) -> Self {
        Self { policy, findings, algorithm, domain: None, nodes: BTreeSet::new() }
    }

    fn read(mut self, root: &Node<'_>) {
        let Some(domain) = get(root, "domain") else {
            return self.findings.add(root.at, "there is no `domain`", "give a file of ratelimit");
        };
        self.domain = scalar::text(domain, self.findings).map(str::to_owned);
        let first = self.policy.on_requests.len();
        if let Some(nodes) = get(root, "descriptors") {
            self.level(nodes, &Path::default());
        }
        let mut is_exact = false;
        for limit in self.policy.on_requests.iter_mut().skip(first) {
            is_exact |= exempt_longer(limit, &self.nodes);
        }
        if is_exact {
            let message = "a limit is about descriptors with exactly its entries";
            let remedy = "keep the `rate_limits` of your Envoy: those that `limiter bridge config envoy` prints tell all entries in one descriptor";
            self.findings.warn(root.at, message, remedy);
        }
    }

    /// Reads the nodes of one level, grouped by their keys.
    fn level(&mut self, nodes: &Node<'_>, path: &Path) {
        let Value::List(nodes) = &nodes.value else {
            return expected(nodes, "a list of descriptors", self.findings);
        };
        let mut groups: Vec<(&str, Vec<&Node<'_>>)> = Vec::new();
        let mut places = BTreeMap::new();
        for node in nodes {
            let Some(key) = get(node, "key") else {
                self.findings.add(node.at, "a descriptor has no `key`", "give it one");
                continue;
            };
            let Some(key) = scalar::text(key, self.findings) else { continue };
            let at = *places.entry(key).or_insert_with(|| {
                groups.push((key, Vec::new()));
                groups.len() - 1
            });
            if let Some((_, group)) = groups.get_mut(at) {
                group.push(node);
            }
        }
        for (key, nodes) in groups {
            let Policy { on_requests, attributes, .. } = &*self.policy;
            let is_full =
                on_requests.len() > Policy::MOST_ON_REQUESTS || attributes.len() > MOST_ATTRIBUTES;
            // What has more than a policy can have is refused as a whole.
            if self.findings.is_full() || is_full {
                return;
            }
            self.group(key, &nodes, path);
        }
    }

    /// Reads the nodes of one key below the same node.
    fn group(&mut self, key: &str, nodes: &[&Node<'_>], path: &Path) {
        let Some(at) = nodes.first().map(|node| node.at) else { return };
        let Some(part) = self.part(key) else {
            let message = format!("descriptors with the key {} are left out", ticked(key));
            return self.findings.warn(
                at,
                message,
                "have the proxy send a key of lower-case letters",
            );
        };
        let mut keys = path.keys();
        if !keys.insert(part.clone()) {
            let message = format!("{} is in a descriptor twice, which is left out", ticked(key));
            return self.findings.warn(at, message, "have the proxy send two keys");
        }
        if nodes.len() > MOST_OVERRIDES {
            let message = format!("{} has more than {MOST_OVERRIDES} values", ticked(key));
            return self.findings.add(at, message, "write those that begin alike with a `*`");
        }
        self.nodes.insert(keys);
        let mut nodes: Vec<(Values, &Node<'_>)> =
            nodes.iter().map(|node| (values(node), *node)).collect();
        // Those that others are within come after them.
        nodes.sort_by_key(|(values, _)| match values {
            Some(pattern @ Pattern::Exact(_)) => {
                let length = match part {
                    RequestKeyPart::Source => prefix(pattern).map(|prefix| prefix.prefix_len()),
                    _ => None,
                };
                (0, Reverse(length))
            }
            Some(Pattern::Prefix(_)) => (1, Reverse(None)),
            None => (2, Reverse(None)),
        });
        self.limit(key, &part, &nodes, path);
        for (at, (values, node)) in nodes.iter().enumerate() {
            let Some(children) = get(node, "descriptors") else { continue };
            let mut below = path.clone();
            match (values, &part) {
                (None, _) => below.words.push(key.to_owned()),
                (Some(pattern), RequestKeyPart::Field(field)) => {
                    below.words.push(pattern.to_string());
                    below.fields.insert(field.clone(), vec![pattern.clone()]);
                }
                (Some(pattern), _) => {
                    let Some(prefix) = prefix(pattern) else { continue };
                    below.words.push(pattern.to_string());
                    below.sources.push(Whom::Prefix(prefix));
                }
            }
            if !matches!(values, Some(Pattern::Exact(_))) {
                below.parts.push(part.clone());
            }
            below.exempt.extend(others(&part, values, &nodes[..at]));
            if below.exempt.len() > MOST_OVERRIDES {
                let message =
                    format!("there are more than {MOST_OVERRIDES} values of the keys above");
                self.findings.add(node.at, message, "write those that begin alike with a `*`");
                continue;
            }
            self.level(children, &below);
        }
    }

    /// Makes a limit of the nodes of one key.
    fn limit(
        &mut self,
        key: &str,
        part: &RequestKeyPart,
        nodes: &[(Values, &Node<'_>)],
        path: &Path,
    ) {
        let parts: Vec<_> = path.parts.iter().chain([part]).cloned().collect();
        let mut limit = RequestLimit::new("", &parts);
        limit.matching.fields.clone_from(&path.fields);
        limit.matching.sources.clone_from(&path.sources);
        let domain = self.domain.iter().map(|domain| Pattern::Exact(domain.clone()));
        limit.matching.fields.insert(Field::Domain, domain.collect());
        limit.overrides.clone_from(&path.exempt);
        let is_shadow = |node: &Node<'_>| get(node, "shadow_mode").is_some_and(is_true);
        let limiting = |(_, node): &&(Values, &Node<'_>)| get(node, "rate_limit").is_some();
        let is_monitored = nodes.iter().filter(limiting).all(|(_, node)| is_shadow(node));
        if is_monitored {
            limit.mode = Mode::Monitor;
        }
        let (mut is_limiting, mut refused) = (false, Vec::new());
        for (at, (values, node)) in nodes.iter().enumerate() {
            self.warn_of_lost(node);
            let told = self.told(node);
            is_limiting |= matches!(told, Told::Limited(_));
            let allowance = match told {
                Told::Refused if is_shadow(node) => {
                    let message = "with `shadow_mode`, what 0 would refuse is not counted";
                    self.findings.warn(node.at, message, "add a limit with `action: monitor`");
                    None
                }
                Told::Refused => {
                    let others = others(part, values, &nodes[..at]);
                    match values {
                        Some(value @ Pattern::Exact(_)) if others.is_empty() => refused.push(value),
                        Some(value) => self.refuse((key, part), &[value], others, path),
                        None => self.refuse((key, part), &[], others, path),
                    }
                    None
                }
                Told::Limited(_) if is_shadow(node) && !is_monitored => {
                    let message =
                        "with `shadow_mode` beside values without it, this is not limited";
                    self.findings.warn(node.at, message, "make it a limit with `action: monitor`");
                    None
                }
                Told::Limited(allowance) => Some(allowance),
                Told::Unlimited | Told::Nothing => None,
            };
            match (values, allowance) {
                (Some(pattern), allowance) => match about(part, pattern, allowance) {
                    Some(entry) if has(&limit.overrides, &entry) => {
                        let message = "it occurs twice, and the first is taken";
                        self.findings.warn(node.at, message, "remove one");
                    }
                    Some(entry) => limit.overrides.push(entry),
                    None => {
                        let message = "its value is no source, and it is left out";
                        let remedy = "give an IPv4 address, or a prefix: a source of IPv6 is a /64";
                        self.findings.warn(node.at, message, remedy);
                    }
                },
                (None, Some(allowance)) => limit.layers.push(RequestLayer { allowance, key: None }),
                (None, None) => {}
            }
        }
        // A key has more values than a policy has limits.
        for values in refused.chunks(scalar::ENTRIES) {
            self.refuse((key, part), values, Vec::new(), path);
        }
        if is_limiting {
            // The first that fits applies, and what is exempt stays so.
            let own = limit.overrides.get_mut(path.exempt.len()..).unwrap_or_default();
            own.sort_by_key(|entry| match &entry.whom {
                Some(OverrideWhom::Prefix(prefix)) => Reverse(prefix.prefix_len()),
                Some(OverrideWhom::Tenant(_)) | None => Reverse(0),
            });
            limit.layers.truncate(1);
            let only = match nodes {
                [(Some(pattern), _)] => pattern.to_string(),
                _ => key.to_owned(),
            };
            limit.name = self.name(path.words.iter().map(String::as_str).chain([&*only]));
            self.policy.on_requests.push(limit);
        }
    }

    /// Makes a limit that refuses what the nodes of these values of a key are about, or what one without a value is, but for
    /// `others`.
    fn refuse(
        &mut self,
        (key, part): (&str, &RequestKeyPart),
        values: &[&Pattern],
        others: Vec<RequestOverride>,
        path: &Path,
    ) {
        let mut limit = RequestLimit::new("", &[RequestKeyPart::Source]);
        limit.mode = Mode::Drop;
        limit.matching.fields.clone_from(&path.fields);
        limit.matching.sources.clone_from(&path.sources);
        for part in &path.parts {
            restrict(&mut limit.matching, part, &[]);
        }
        // A value that is no source is warned of where it would be exempt.
        if !restrict(&mut limit.matching, part, values) {
            return;
        }
        let domain = self.domain.iter().map(|domain| Pattern::Exact(domain.clone()));
        limit.matching.fields.insert(Field::Domain, domain.collect());
        limit.overrides.clone_from(&path.exempt);
        limit.overrides.extend(others);
        let words = match values {
            [] => "refused".to_owned(),
            [value] => value.to_string(),
            _ => format!("{key}-refused"),
        };
        limit.name = self.name(path.words.iter().map(String::as_str).chain([&*words]));
        self.policy.on_requests.push(limit);
    }

    /// The part of a key that the entries of this key are; `None` if a descriptor cannot tell it.
    fn part(&mut self, key: &str) -> Option<RequestKeyPart> {
        let field = match key {
            "remote_address" | "masked_remote_address" => return Some(RequestKeyPart::Source),
            "method" => Field::Method,
            "host" => Field::Host,
            "path" => Field::Path,
            _ => {
                let is_known = |attribute: &Attribute| match &attribute.from {
                    AttributeSource::Header(header) => header == key,
                    _ => false,
                };
                let attributes = &mut self.policy.attributes;
                let known = attributes.iter().find(|(_, it)| is_known(it)).map(|(name, _)| name);
                let name = match known {
                    Some(name) => name.clone(),
                    None if name_of(key) == key && !is_reserved(key) => {
                        let from = AttributeSource::Descriptor;
                        let attribute = Attribute { from, digest: false };
                        attributes.entry(key.to_owned()).or_insert(attribute);
                        key.to_owned()
                    }
                    // The entries of a descriptor tell of the headers of their names, too.
                    None if is_header(key) => {
                        let name = unique(&format!("x-{}", name_of(key)), |it| {
                            attributes.contains_key(it) || is_reserved(it)
                        });
                        let from = AttributeSource::Header(key.to_owned());
                        attributes.insert(name.clone(), Attribute { from, digest: false });
                        name
                    }
                    None => return None,
                };
                Field::Attribute(name)
            }
        };
        Some(RequestKeyPart::Field(field))
    }

    /// What a node says of rates.
    fn told(&mut self, node: &Node<'_>) -> Told {
        let Some(rate) = get(node, "rate_limit") else { return Told::Nothing };
        if get(rate, "unlimited").is_some_and(is_true) {
            return Told::Unlimited;
        }
        if let Some(replaces) = get(rate, "replaces") {
            let message = "what it replaces is limited, too";
            self.findings.warn(replaces.at, message, "have the proxy send one or the other");
        }
        let Some(unit) = get(rate, "unit") else {
            self.findings.add(rate.at, "there is no `unit`", "give one, such as `second`");
            return Told::Nothing;
        };
        let text = scalar::text(unit, self.findings).unwrap_or_default().to_ascii_lowercase();
        let Some((_, seconds)) = UNITS.iter().find(|(name, _)| *name == text) else {
            let remedy = "give second, minute, hour, day, week, month or year";
            self.findings.add(unit.at, format!("{} is no unit", ticked(&text)), remedy);
            return Told::Nothing;
        };
        let Some(node) = get(rate, "requests_per_unit") else {
            self.findings.add(rate.at, "there is no `requests_per_unit`", "give a number");
            return Told::Nothing;
        };
        let range = 0..=u64::from(u32::MAX);
        let Some(limit) = scalar::whole(node, "the number", range, self.findings) else {
            return Told::Nothing;
        };
        match limit {
            0 => Told::Refused,
            _ => Told::Limited(self.allowance(limit, seconds * SECOND)),
        }
    }

    const fn allowance(&self, limit: u64, window: u64) -> Allowance {
        match self.algorithm {
            WindowAlgorithm::SlidingWindow => Allowance::SlidingWindow { limit, window },
            WindowAlgorithm::FixedWindow => Allowance::FixedWindow { limit, window },
            WindowAlgorithm::TokenBucket => {
                let rate = Rate { packets: limit, period: window };
                Allowance::TokenBucket { rate, burst: limit }
            }
        }
    }

    fn warn_of_lost(&mut self, node: &Node<'_>) {
        let Value::Map(pairs) = &node.value else { return };
        for (word, _) in pairs.iter().filter(|(word, _)| LOST.contains(&&*word.text)) {
            let message = format!("{} has no meaning here", ticked(&word.text));
            self.findings.warn(word.at, message, "each value is counted, and metrics are by limit");
        }
    }

    /// A name for a limit, of these words.
    fn name<'w>(&self, words: impl Iterator<Item = &'w str>) -> String {
        let name = name_of(&words.collect::<Vec<_>>().join("-"));
        let limits = &self.policy.on_requests;
        unique(&name, |name| limits.iter().any(|limit| limit.name == name))
    }
}
