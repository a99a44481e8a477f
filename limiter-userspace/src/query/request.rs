//! The lists and limits of a policy that decide about a request.
//!
//! Only the policy is asked. What a key has left is known to the bridge.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{InquiryError, source::source_name, target::parse_address};
use crate::{
    bridge::{
        properties::{Properties, PropertyValue},
        request::{Request, Told},
    },
    policy::{
        List,
        document::{request_key_name, request_part_name},
        model::{
            Allowance, GlobalMode, KeyPrefix, Missing, Mode, OverrideWhom, Policy, RequestKey,
            RequestKeyPart, RequestLimit, RequestOverride, Whom, name_of_layer,
        },
        units::{host_of, path_of, quoted},
    },
};

/// A request of HTTP that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The method, in upper case.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The headers, each by its name in lower case.
    pub headers: Vec<(String, String)>,
    /// The host, in lower case and without the port.
    pub host: Option<String>,
    /// The source; `None` if it may be any.
    pub source: Option<IpAddr>,
}

/// The lists and limits of a policy that decide about a request.
#[derive(Clone, Debug)]
pub struct RequestExplanation<'p> {
    /// Whether the policy refuses nothing.
    pub is_monitored: bool,
    /// The lists that the source is on, each with its entry, in the order in which they are asked.
    pub lists: Vec<(List, String)>,
    /// The tenant of the source.
    pub tenant: Option<&'p str>,
    /// Every layer and candidate of the limits on requests, in the order of the policy.
    pub rows: Vec<RequestRow<'p>>,
}

/// What a layer of a limit, or its candidate, is to a request.
#[derive(Clone, Debug)]
pub struct RequestRow<'p> {
    /// The limit.
    pub limit: &'p RequestLimit,
    /// The name of the layer or the candidate.
    pub name: String,
    /// The key, as a document has it.
    pub key: String,
    /// What is done with a request that exceeds it.
    pub mode: Mode,
    /// Whether the request is counted.
    pub standing: RequestStanding,
    /// The parts of the key that the request has.
    pub counted_by: Vec<CountedBy>,
    /// What it admits; `None` if it goes by no rate.
    pub allowance: Option<Allowance>,
    /// What the request costs.
    pub cost: u16,
    /// The override that the allowance comes from.
    pub by: Option<&'p RequestOverride>,
}

/// A part of a key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedBy {
    /// The part, as a document has it.
    pub part: String,
    /// The value; `None` for a secret, of which only a digest is kept.
    pub value: Option<String>,
}

/// Whether a limit counts a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestStanding {
    /// It does.
    Counts,
    /// That depends on the source, which was not given.
    Depends,
    /// It does not, because of this: the name of a property, `source`, `tenant`, `unlimited` or `off`.
    Not(String),
    /// It does not, as the request lacks these properties of the key.
    Lacks(Vec<String>),
    /// It refuses the request, as that lacks these properties of the key.
    RefusesLack(Vec<String>),
}

impl Told for Sent {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }
}

impl Sent {
    /// Reads a request such as `POST /login`, its headers such as `x-user-id:7`, and its source.
    ///
    /// # Errors
    /// [`InquiryError::Value`] for any of them that is not of this form.
    pub fn parse(
        request: &str,
        headers: &[String],
        source: Option<&str>,
    ) -> Result<Self, InquiryError> {
        let refused = |what, text: &str, fault, examples: &str| InquiryError::Value {
            what,
            value: quoted(text),
            fault,
            examples: examples.to_owned(),
        };
        let mut words = request.split_whitespace();
        let (Some(method), Some(target), None) = (words.next(), words.next(), words.next()) else {
            let examples = "write them as in HTTP, such as POST /login";
            return Err(refused("request", request, "is not a method and a path", examples));
        };
        let Some(path) = path_of(target) else {
            let examples = "the bridge refuses a path with `.`, `..`, a backslash or a NUL";
            return Err(refused(
                "request",
                request,
                "has a path that services understand differently",
                examples,
            ));
        };
        if !path.starts_with('/') {
            let examples = "a path begins with /, such as in POST /login";
            return Err(refused("request", request, "has no path", examples));
        }
        let header = |text: &String| {
            let (name, value) = text.split_once(':').filter(|(name, _)| !name.trim().is_empty())?;
            Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        };
        let read = |text| {
            header(text).ok_or_else(|| {
                let examples = "write its name and its value, such as x-user-id:7";
                refused("header", text, "has no name before a colon", examples)
            })
        };
        let headers = headers.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let host = headers.iter().find(|(name, _)| name == "host").map(|(_, value)| host_of(value));
        Ok(Self {
            method: method.to_ascii_uppercase(),
            path,
            host,
            headers,
            source: source.map(|text| parse_address("source", text)).transpose()?,
        })
    }

    /// The request, as the bridge is asked about it.
    pub fn request(&self) -> Request<'_> {
        Request {
            method: Some(&self.method),
            host: self.host.as_deref(),
            path: Some(&self.path),
            domain: "",
            source: self.source,
            told: self,
        }
    }
}

/// Explains which lists and limits of a policy decide about a request. `now` is in seconds of Unix time.
pub fn explain<'p>(policy: &'p Policy, sent: &Sent, now: u64) -> RequestExplanation<'p> {
    // Digests are told from values here, and never shown.
    let asked = Asked {
        policy,
        properties: Properties::new(policy, [0; 2]),
        request: sent.request(),
        tenant: sent.source.and_then(|source| tenant_of(policy, source)),
    };
    RequestExplanation {
        is_monitored: policy.mode == GlobalMode::Monitor,
        lists: sent.source.map(|source| lists_of(policy, source, now)).unwrap_or_default(),
        tenant: asked.tenant,
        rows: policy.on_requests.iter().flat_map(|limit| asked.rows(limit)).collect(),
    }
}

/// A request that a policy is asked about.
struct Asked<'p, 's> {
    policy: &'p Policy,
    properties: Properties,
    request: Request<'s>,
    tenant: Option<&'p str>,
}

impl<'p> Asked<'p, '_> {
    /// What each layer of a limit, and its candidate, is to the request.
    fn rows(&self, limit: &'p RequestLimit) -> Vec<RequestRow<'p>> {
        let by = limit.overrides.iter().find(|one| self.is_for(one));
        let row = |name, key: &RequestKey, mode, allowance: Option<Allowance>| {
            // What refuses everything asks for no key.
            let asked = if mode == Mode::Drop { &RequestKey::default() } else { key };
            let (standing, counted_by) = self.standing(limit, asked);
            // A limit that drops refuses by no rate, so an override with one exempts nobody.
            let is_exempt = match mode {
                Mode::Drop => by.is_some_and(|by| by.layers.is_none()),
                _ => allowance.is_none(),
            };
            let standing = match standing {
                _ if mode == Mode::Off => RequestStanding::Not("off".to_owned()),
                RequestStanding::Not(why) => RequestStanding::Not(why),
                _ if is_exempt => RequestStanding::Not("unlimited".to_owned()),
                standing => standing,
            };
            RequestRow {
                limit,
                name,
                key: request_key_name(key, self.policy.key_prefix),
                mode,
                standing,
                counted_by,
                allowance: allowance.filter(|_| mode != Mode::Drop),
                cost: self.cost(limit),
                by,
            }
        };
        let layers = match limit.mode {
            Mode::Drop => 1,
            _ => limit
                .layers
                .len()
                .max(by.and_then(|by| Some(by.layers.as_ref()?.len())).unwrap_or(1)),
        };
        let mut rows: Vec<_> = (0..layers)
            .map(|layer| {
                let own = limit.layers.get(layer).map(|it| it.allowance);
                let allowance = match by {
                    Some(by) => by.layers.as_ref().and_then(|layers| layers.get(layer)).copied(),
                    None => own,
                };
                let name = name_of_layer(&limit.name, layer);
                row(name, limit.key_of_layer(layer), limit.mode, allowance)
            })
            .collect();
        if let Some(candidate) = limit.candidate.filter(|_| limit.mode != Mode::Drop) {
            let mode = if limit.mode == Mode::Off { Mode::Off } else { Mode::Monitor };
            let name = format!("{} (candidate)", limit.name);
            // An override is in place of the layers alone.
            let candidate = row(name, &limit.key, mode, Some(candidate));
            rows.push(RequestRow { by: None, ..candidate });
        }
        rows
    }

    /// Whether an override is for the request.
    fn is_for(&self, one: &RequestOverride) -> bool {
        let source = self.request.source;
        let is_whom = match &one.whom {
            None => true,
            Some(OverrideWhom::Prefix(prefix)) => source.is_some_and(|it| prefix.contains(&it)),
            Some(OverrideWhom::Tenant(name)) => self.tenant == Some(name),
        };
        is_whom
            && one.fields.iter().all(|(field, pattern)| {
                let value = self.properties.value(field, &self.request);
                value.is_some_and(|value| pattern.accepts(&value))
            })
    }

    /// Whether the request is counted by a key, and by which values.
    fn standing(
        &self,
        limit: &RequestLimit,
        key: &RequestKey,
    ) -> (RequestStanding, Vec<CountedBy>) {
        let matching = &limit.matching;
        for (field, patterns) in &matching.fields {
            let value = self.properties.value(field, &self.request);
            if !value.is_some_and(|value| patterns.iter().any(|pattern| pattern.accepts(&value))) {
                return (RequestStanding::Not(field.name().to_owned()), Vec::new());
            }
        }
        let within = |whom: &Whom, source: IpAddr| {
            self.policy.prefixes(whom).iter().any(|prefix| prefix.contains(&source))
        };
        if self.request.source.is_some()
            && !self.properties.accepts(matching, &self.request, within)
        {
            return (RequestStanding::Not("source".to_owned()), Vec::new());
        }
        let asks_source = !matching.sources.is_empty() || !matching.except_sources.is_empty();
        let (mut lacks, mut counted_by) = (Vec::new(), Vec::new());
        let mut depends = asks_source && self.request.source.is_none();
        for part in &key.parts {
            let name = request_part_name(part, self.policy.key_prefix);
            match self.value(part) {
                Part::Known(value) => counted_by.push(CountedBy { part: name, value }),
                Part::Nobodys => return (RequestStanding::Not(name), Vec::new()),
                Part::Any => depends = true,
                Part::Lacking => lacks.push(name),
            }
        }
        let standing = match (lacks.is_empty(), limit.missing) {
            (true, _) if depends => RequestStanding::Depends,
            (true, _) => RequestStanding::Counts,
            (false, Missing::Pass) => RequestStanding::Lacks(lacks),
            (false, Missing::Refuse) => RequestStanding::RefusesLack(lacks),
        };
        (standing, counted_by)
    }

    fn value(&self, part: &RequestKeyPart) -> Part {
        let masked = |lengths: KeyPrefix| match self.request.source {
            None => Part::Any,
            Some(source) => {
                let whole = IpNet::from(source);
                let prefix = IpNet::new(source, lengths.length_for(&whole)).unwrap_or(whole);
                Part::Known(Some(source_name(prefix.trunc())))
            }
        };
        match part {
            RequestKeyPart::Source => masked(self.policy.key_prefix),
            RequestKeyPart::SourcePrefix { ipv4, ipv6 } => {
                masked(KeyPrefix { ipv4: *ipv4, ipv6: *ipv6 })
            }
            RequestKeyPart::Tenant => match (self.request.source, self.tenant) {
                (None, _) => Part::Any,
                (Some(_), None) => Part::Nobodys,
                (Some(_), Some(tenant)) => Part::Known(Some(tenant.to_owned())),
            },
            RequestKeyPart::Field(field) => match self.properties.value(field, &self.request) {
                None => Part::Lacking,
                Some(PropertyValue::Digest(_)) => Part::Known(None),
                Some(PropertyValue::Plain(value)) => Part::Known(Some(value.to_owned())),
            },
        }
    }

    /// What the request costs.
    fn cost(&self, limit: &RequestLimit) -> u16 {
        let cost = &limit.cost;
        let by = cost.by.as_ref().and_then(|field| self.properties.value(field, &self.request));
        by.and_then(|value| cost.values.get(&*value).copied()).unwrap_or(cost.default)
    }
}

/// A part of a key, of a request.
enum Part {
    /// The value; `None` for a secret.
    Known(Option<String>),
    /// It depends on the source, which was not given.
    Any,
    /// The source has no tenant.
    Nobodys,
    /// The request lacks it.
    Lacking,
}

/// The tenant with the longest prefix around a source.
fn tenant_of(policy: &Policy, source: IpAddr) -> Option<&str> {
    let all = policy.tenants.iter();
    let all = all.flat_map(|(name, prefixes)| prefixes.iter().map(move |prefix| (prefix, name)));
    let around = all.filter(|(prefix, _)| prefix.contains(&source));
    around.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, name)| name.as_str())
}

/// The lists that a source is on, each with its entry.
fn lists_of(policy: &Policy, source: IpAddr, now: u64) -> Vec<(List, String)> {
    let entry = |list: List| {
        let mut lasting = policy.list(list).iter().filter(|listed| !listed.is_over(now));
        lasting.find_map(|listed| {
            let prefix = policy.prefixes(&listed.whom).iter().find(|it| it.contains(&source))?;
            let of = match &listed.whom {
                Whom::Set(name) => format!(" in the set {name}"),
                Whom::Prefix(_) => String::new(),
            };
            Some((list, format!("{prefix}{of}")))
        })
    };
    List::ALL.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests;
