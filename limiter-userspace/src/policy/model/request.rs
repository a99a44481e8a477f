//! Limits on requests: what the bridge decides about, beside the packets that the kernel decides about.

use std::{collections::BTreeMap, fmt};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    allowance::Allowance,
    limit::{Mode, Penalty},
    matching::Whom,
    overrides::OverrideWhom,
};

/// A named property of a request, which matches and keys of limits on requests use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// Where a request has it.
    pub from: AttributeSource,
    /// Whether it is a secret: only a keyed digest of it is kept, shown or compared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub digest: bool,
}

/// Where a request has an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AttributeSource {
    /// The value of a header, by its name in lower case. Of several, the first.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
    /// The value that the first matching pattern of the path stands for; without one, there is none.
    Path(Vec<(Pattern, String)>),
    /// An entry of a descriptor with the name of the attribute, and nothing of an HTTP request.
    Descriptor,
}

/// What a text has to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// This text.
    Exact(String),
    /// A text that begins so; written with a `*` at the end.
    Prefix(String),
}

impl Pattern {
    /// Whether a text is of the pattern.
    pub fn accepts(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => text == exact,
            Self::Prefix(prefix) => text.starts_with(prefix.as_str()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) => f.write_str(text),
            Self::Prefix(text) => write!(f, "{text}*"),
        }
    }
}

/// A property of a request that has a value. It is stored by its name: no attribute has the name of another property.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Field {
    /// The method, in upper case.
    Method,
    /// The host that was asked for, in lower case, without the port.
    Host,
    /// The path, without the query.
    Path,
    /// The domain of Envoy; empty for HTTP.
    Domain,
    /// An attribute of [`Policy::attributes`](super::Policy::attributes).
    Attribute(String),
}

impl From<String> for Field {
    fn from(name: String) -> Self {
        match name.as_str() {
            "method" => Self::Method,
            "host" => Self::Host,
            "path" => Self::Path,
            "domain" => Self::Domain,
            _ => Self::Attribute(name),
        }
    }
}

impl From<Field> for String {
    fn from(field: Field) -> Self {
        field.name().to_owned()
    }
}

impl Field {
    /// The properties that are no attributes.
    pub const BUILT_IN: [Self; 4] = [Self::Method, Self::Host, Self::Path, Self::Domain];

    /// The word for it in a document.
    pub fn name(&self) -> &str {
        match self {
            Self::Method => "method",
            Self::Host => "host",
            Self::Path => "path",
            Self::Domain => "domain",
            Self::Attribute(name) => name,
        }
    }
}

/// A limit on requests: which of them it is about, by which key they are counted, and how much it admits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLimit {
    /// Unique among all limits of the policy: 1 to 32 of `a`-`z`, `0`-`9`, `_` and `-`.
    pub name: String,
    /// The requests that the limit is about.
    pub matching: RequestMatch,
    /// What requests must share to have one state; a [`RequestLayer`] may have a key of its own.
    pub key: RequestKey,
    /// What becomes of a request that lacks an attribute of the key.
    pub missing: Missing,
    /// What a request costs.
    pub cost: RequestCost,
    /// Whether the limit refuses requests, only counts them, refuses all of them, or is off.
    pub mode: Mode,
    /// The allowances of the limit, all of which must admit a request. Empty: only keys with an override are
    /// limited.
    pub layers: Vec<RequestLayer>,
    /// Another allowance that is counted beside the layers and refuses nothing.
    pub candidate: Option<Allowance>,
    /// The block in the kernel of a peer whose requests stay over the limit; `None`: no block. Its `unproven` is `ignore`: the
    /// agent blocks only peers whose connection it finds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub penalty: Option<Penalty>,
    /// Other allowances for some requests. Of several that are about a request, the first applies.
    pub overrides: Vec<RequestOverride>,
    /// The headers of answers that tell of this limit.
    pub headers: HeaderSet,
    /// What becomes of requests while the bridge does not answer.
    pub on_failure: OnFailure,
    /// Charges requests that are sent again once; `None`: each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// The share of the quota, in percent from 1 to 99, below which the service is told to do less for a request that passes;
    /// `None`: it is told nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degrade: Option<u8>,
    /// How long a request is held back at most until its turn in the queue of a leaky bucket, in ns, 1 ms to
    /// [`LONGEST_DELAY`](Self::LONGEST_DELAY); no queue takes longer to drain. `None`: it passes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<u64>,
    /// Whether a limit that Envoy tells with a descriptor is taken in place of the layers. Requests with another limit have
    /// another state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_told: bool,
}

/// How long a limit knows a request by its header [`Idempotency::HEADER`], and charges its repeats no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idempotency {
    /// In ns, 1 s to 24 h.
    pub window: u64,
}

impl Idempotency {
    /// The header that repeats of a request have in common, in lower case.
    pub const HEADER: &str = "idempotency-key";
}

/// The requests that a limit is about: those that meet every condition. An empty list is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestMatch {
    /// Patterns by property; one of each must be the request's. A request without the property meets none.
    pub fields: BTreeMap<Field, Vec<Pattern>>,
    /// Sets and prefixes; one must contain the source.
    pub sources: Vec<Whom>,
    /// Sets and prefixes; none may contain the source.
    pub except_sources: Vec<Whom>,
}

/// What requests must share to have one state. Without parts, all requests have the same state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKey {
    /// Each part at most once, and only one of the source and a prefix of it.
    pub parts: Vec<RequestKeyPart>,
}

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RequestKeyPart {
    /// The source, masked to [`Policy::key_prefix`](super::Policy::key_prefix).
    Source,
    /// The source, masked to other lengths, as [`KeyPart::SourcePrefix`](super::KeyPart::SourcePrefix).
    SourcePrefix {
        /// For IPv4, 0 to 32.
        ipv4: u8,
        /// For IPv6, 0 to 128.
        ipv6: u8,
    },
    /// The tenant of the source. Requests of sources without a tenant are not limited.
    Tenant,
    /// The value of a property.
    Field(Field),
}

/// What becomes of a request that lacks an attribute of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The limit is not about it.
    #[default]
    Pass,
    /// It is refused.
    Refuse,
}

/// What a request costs: the weight of the limit, times what the caller says that it costs (1 if it says nothing).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestCost {
    /// The weight of requests without one of their own, 1 to 65535.
    pub default: u16,
    /// The property by whose value requests have weights of their own; `None`: none have.
    pub by: Option<Field>,
    /// The weights by value, each 1 to 65535.
    pub values: BTreeMap<String, u16>,
}

impl Default for RequestCost {
    fn default() -> Self {
        Self { default: 1, by: None, values: BTreeMap::new() }
    }
}

/// One of the allowances of a limit on requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLayer {
    /// How much the layer admits.
    pub allowance: Allowance,
    /// The layer's own key; `None`: the key of the limit.
    pub key: Option<RequestKey>,
}

/// Another allowance for some requests, in place of the layers of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestOverride {
    /// The source or the tenant; `None`: any.
    pub whom: Option<OverrideWhom>,
    /// The values that properties of the request must have. Not empty if there is no `whom`.
    pub fields: BTreeMap<Field, Pattern>,
    /// One allowance for each layer of the limit; `None`: not limited.
    pub layers: Option<Vec<Allowance>>,
}

/// Headers that tell a client of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderSet {
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers).
    pub ietf: bool,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    pub x_ratelimit: bool,
    /// `Retry-After`, with a refusal.
    pub retry_after: bool,
}

impl Default for HeaderSet {
    fn default() -> Self {
        Self { ietf: true, x_ratelimit: false, retry_after: true }
    }
}

/// What becomes of requests while the bridge does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// They pass.
    #[default]
    Open,
    /// They are refused.
    Closed,
}

impl RequestLimit {
    /// The longest [`delay`](Self::delay), in ns: 10 s.
    pub const LONGEST_DELAY: u64 = 10_000_000_000;

    /// Whether the limit holds requests back.
    pub fn delays(&self) -> bool {
        self.delay.is_some() && self.mode == Mode::Enforce
    }

    /// What its layers, its overrides and its candidate admit.
    pub fn allowances(&self) -> impl Iterator<Item = Allowance> {
        let layers = self.layers.iter().map(|layer| layer.allowance);
        let overrides = self.overrides.iter().filter_map(|one| one.layers.as_ref()).flatten();
        layers.chain(overrides.copied()).chain(self.candidate)
    }

    /// Whether it counts how many requests are open, beside what else its layers count.
    pub fn has_open(&self) -> bool {
        self.allowances().any(|it| matches!(it, Allowance::Concurrent { .. }))
    }

    /// Whether it counts how many requests are open, and nothing else.
    pub fn is_of_open(&self) -> bool {
        self.has_open() && self.allowances().all(|it| matches!(it, Allowance::Concurrent { .. }))
    }

    /// Whether it is about all requests of a source alike, which nothing but time lets pass again. Not so one with a penalty: who
    /// goes on has to be seen.
    pub fn holds_sources(&self) -> bool {
        self.matching.fields.is_empty()
            && self.overrides.iter().all(|it| it.fields.is_empty())
            && self.cost == RequestCost::default()
            && self.penalty.is_none()
            && self.idempotency.is_none()
            && self.delay.is_none()
    }

    /// The keys that state is kept by: that of the limit, if a layer has none of its own, and those of layers.
    pub fn keys(&self) -> impl Iterator<Item = &RequestKey> {
        let is_used = self.layers.is_empty() || self.layers.iter().any(|it| it.key.is_none());
        let own = is_used.then_some(&self.key);
        own.into_iter().chain(self.layers.iter().filter_map(|layer| layer.key.as_ref()))
    }

    /// The key of layer `layer` (from 0): its own, or that of the limit.
    pub fn key_of_layer(&self, layer: usize) -> &RequestKey {
        self.layers.get(layer).and_then(|layer| layer.key.as_ref()).unwrap_or(&self.key)
    }

    /// The properties that the limit matches by, counts by, weighs by or has overrides for; some may come several times.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        // A candidate counts by the key of the limit, whatever the layers have.
        let of_layers = self.layers.iter().filter_map(|layer| layer.key.as_ref());
        let keys = std::iter::once(&self.key).chain(of_layers).flat_map(|key| &key.parts);
        let keys = keys.filter_map(|part| match part {
            RequestKeyPart::Field(field) => Some(field),
            _ => None,
        });
        let overrides = self.overrides.iter().flat_map(|one| one.fields.keys());
        self.matching.fields.keys().chain(keys).chain(&self.cost.by).chain(overrides)
    }

    /// The prefixes that have overrides, in their order.
    pub(in crate::policy) fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.overrides.iter().filter_map(|one| match &one.whom {
            Some(OverrideWhom::Prefix(prefix)) => Some(*prefix),
            Some(OverrideWhom::Tenant(_)) | None => None,
        })
    }

    /// Whether the other limit has the same match, key and cost.
    pub(in crate::policy) fn does_the_same_as(&self, other: &Self) -> bool {
        self.key == other.key && self.cost == other.cost && self.matching == other.matching
    }

    /// An enforced limit on all requests by a key, without layers: it limits nobody.
    pub fn new(name: impl Into<String>, parts: &[RequestKeyPart]) -> Self {
        Self {
            name: name.into(),
            matching: RequestMatch::default(),
            key: RequestKey { parts: parts.to_vec() },
            missing: Missing::default(),
            cost: RequestCost::default(),
            mode: Mode::Enforce,
            layers: Vec::new(),
            candidate: None,
            penalty: None,
            overrides: Vec::new(),
            headers: HeaderSet::default(),
            on_failure: OnFailure::default(),
            idempotency: None,
            degrade: None,
            delay: None,
            takes_told: false,
        }
    }
}
