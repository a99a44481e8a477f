//! `/v1/budget`: what the limits have left for a request that is described by parameters.

use std::net::IpAddr;

use form_urlencoded::parse;

use super::{
    address::address,
    body::{Budget, BudgetSchema, BudgetVerdict, Left, Settled},
    fault::Fault,
    parameters::{check, checked, cost},
};
use crate::{
    bridge::{
        answer::{Answer, Standing, Verdict},
        request::{Request, Told},
    },
    policy::{
        Policy,
        model::{AttributeSource, name_of_layer},
        units::{host_of, path_of},
    },
};

/// The request that is asked about.
#[derive(Debug, Default)]
pub(super) struct Question {
    /// What the request costs; at least 1.
    pub(super) cost: u64,
    method: Option<String>,
    host: Option<String>,
    path: Option<String>,
    source: Option<IpAddr>,
    attributes: Attributes,
}

/// The attributes that are given, as a request would have them.
#[derive(Debug, Default)]
struct Attributes {
    headers: Vec<(String, String)>,
    entries: Vec<(String, String)>,
    /// The names of the limits that are asked; all of them if there is none.
    limits: Vec<String>,
}

impl Question {
    /// Reads it from the part of an URI behind the question mark.
    ///
    /// # Errors
    /// [`Fault::Parameter`] for a name or value that is not known.
    pub(super) fn read(policy: &Policy, query: Option<&str>) -> Result<Self, Fault> {
        let mut read = Self { cost: 1, ..Self::default() };
        for (name, value) in parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "limit" => read.attributes.limits.push(value.into_owned()),
                "cost" => read.cost = cost(&value)?,
                name => read.property(policy, name, &value)?,
            }
        }
        check(&read.attributes.limits, policy)?;
        Ok(read)
    }

    /// What a charge or a refund is of.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(super) fn of(policy: &Policy, settled: &Settled) -> Result<Self, Fault> {
        let mut read = Self { cost: checked(settled.cost)?, ..Self::default() };
        read.attributes.limits.push(settled.limit.clone());
        check(&read.attributes.limits, policy)?;
        for (name, value) in &settled.request {
            read.property(policy, name, value)?;
        }
        Ok(read)
    }

    /// Gives the request a property.
    fn property(&mut self, policy: &Policy, name: &str, value: &str) -> Result<(), Fault> {
        match name {
            "method" => self.method = Some(value.to_ascii_uppercase()),
            "host" => self.host = Some(host_of(value)),
            "path" => {
                let path = path_of(value);
                let path =
                    path.ok_or_else(|| Fault::parameter("path", "give one without `.` and `..`"));
                self.path = Some(path?);
            }
            "source" => {
                let source = address(value);
                self.source =
                    Some(source.ok_or_else(|| Fault::parameter("source", "give an address"))?);
            }
            other => match policy.attributes.get(other).map(|it| &it.from) {
                Some(AttributeSource::Header(header)) => {
                    self.attributes.headers.push((header.clone(), value.to_owned()));
                }
                Some(AttributeSource::Cookie(cookie)) => {
                    let pair = format!("{cookie}={value}");
                    self.attributes.cookie(&pair);
                }
                Some(AttributeSource::Descriptor) => {
                    self.attributes.entries.push((other.to_owned(), value.to_owned()));
                }
                Some(AttributeSource::Path(_)) => {
                    return Err(Fault::parameter(other, "it comes of the path: give path"));
                }
                None => return Err(Fault::parameter(other, &parameters(policy))),
            },
        }
        Ok(())
    }

    /// The same, for the decision.
    pub(super) fn request(&self) -> Request<'_> {
        Request {
            method: self.method.as_deref(),
            host: self.host.as_deref(),
            path: self.path.as_deref(),
            domain: "",
            source: self.source,
            told: &self.attributes,
        }
    }
}

/// The parameters that there are.
fn parameters(policy: &Policy) -> String {
    let attributes = policy.attributes.keys().map(|name| format!(", {name}"));
    format!("there are limit, cost, method, host, path, source{}", attributes.collect::<String>())
}

impl Attributes {
    /// Adds a cookie.
    fn cookie(&mut self, pair: &str) {
        match self.headers.iter_mut().find(|(name, _)| name == "cookie") {
            Some((_, cookies)) => *cookies = format!("{cookies}; {pair}"),
            None => self.headers.push(("cookie".to_owned(), pair.to_owned())),
        }
    }
}

impl Told for Attributes {
    fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    fn entry(&self, key: &str) -> Option<&str> {
        find(&self.entries, key)
    }

    fn asks(&self, limit: &str) -> bool {
        self.limits.is_empty() || self.limits.iter().any(|it| it == limit)
    }
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(it, _)| it == name).map(|(_, value)| &**value)
}

/// The body of an answer.
pub(super) fn told(schema: BudgetSchema, policy: &Policy, answer: &Answer) -> Budget {
    let entry = |it: &Standing| {
        let limit = policy.on_requests.get(it.limit)?;
        let seconds = |time: u64| time as f64 / 1e9;
        Some(Left {
            name: name_of_layer(&limit.name, it.layer),
            quota: it.quota,
            window: seconds(it.window),
            left: it.left,
            wait: (it.wait < u64::MAX).then(|| seconds(it.wait)),
            refills: seconds(it.refills),
        })
    };
    let verdict = match answer.verdict {
        Verdict::Pass => BudgetVerdict::Pass,
        Verdict::Limited => BudgetVerdict::Limited,
        Verdict::Denied => BudgetVerdict::Denied,
    };
    Budget { schema, verdict, limits: answer.standings.iter().filter_map(entry).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::model::{Attribute, RequestLimit};

    fn policy() -> Policy {
        let mut policy = Policy::default();
        let attributes = [
            ("user", AttributeSource::Header("x-user-id".to_owned())),
            ("session", AttributeSource::Cookie("sid".to_owned())),
            ("route", AttributeSource::Path(Vec::new())),
            ("tier", AttributeSource::Descriptor),
        ];
        for (name, from) in attributes {
            policy.attributes.insert(name.to_owned(), Attribute { from, digest: false });
        }
        policy.on_requests = ["api", "login"].map(|name| RequestLimit::new(name, &[])).into();
        policy
    }

    #[test]
    fn attributes_are_given_by_their_names() {
        let query = "limit=api&source=192.0.2.9&method=get&path=//x&host=A&user=a%20b&session=7&tier=gold&cost=2";
        let question = Question::read(&policy(), Some(query)).unwrap();
        let request = question.request();
        assert_eq!(
            (request.method, request.path, request.host),
            (Some("GET"), Some("/x"), Some("a"))
        );
        assert_eq!(request.source, Some("192.0.2.9".parse().unwrap()));
        assert_eq!(request.told.header("x-user-id"), Some("a b"));
        assert_eq!(request.told.header("cookie"), Some("sid=7"));
        assert_eq!(request.told.entry("tier"), Some("gold"));
        assert_eq!(question.cost, 2);
        assert!(request.told.asks("api") && !request.told.asks("login"));
        for (query, remedy) in [
            ("limit=x", "the limits on requests are api, login"),
            ("route=login", "give path"),
            (
                "usr=7",
                "there are limit, cost, method, host, path, source, route, session, tier, user",
            ),
            ("source=x", "give an address"),
            ("cost=0", "give a whole number"),
        ] {
            let fault = Question::read(&policy(), Some(query)).unwrap_err().to_string();
            assert!(fault.contains(remedy), "{query}: {fault}");
        }
    }

    #[test]
    fn an_answer_is_in_seconds() {
        let standing = |limit, wait| Standing {
            limit,
            layer: limit,
            quota: 5,
            window: 60_000_000_000,
            left: 0,
            wait,
            refills: 1_500_000_000,
            holds: None,
        };
        let answer = Answer {
            verdict: Verdict::Limited,
            hold: 0,
            standings: vec![standing(1, u64::MAX), standing(0, 500_000_000), standing(7, 0)],
            ..Answer::default()
        };
        let told = told(BudgetSchema::Budget, &policy(), &answer);
        let [first, second] = &told.limits[..] else { panic!("{told:?}") };
        assert_eq!((told.verdict, first.wait), (BudgetVerdict::Limited, None));
        assert_eq!((&*first.name, first.window), ("login (layer 2)", 60.0));
        assert_eq!((second.wait, second.refills), (Some(0.5), 1.5));
    }
}
