//! The parameters of a request to the bridge itself.

use form_urlencoded::parse;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::fault::Fault;
use crate::policy::Policy;

/// The parameters that `/v1/auth` knows.
const KNOWN: &str = "deny, limit, cost and peek";
/// The largest cost of a request.
pub(in crate::bridge) const MOST_COST: u64 = 1_000_000_000;

/// What the parameters of `/v1/auth` ask for.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
pub(in crate::bridge) struct Parameters {
    /// The status of a request that a limit refuses: 403, which nginx takes, or 429.
    #[schemars(schema_with = "deny_schema")]
    pub(super) deny: u16,
    /// How many times what the request costs.
    #[schemars(range(min = 1, max = MOST_COST), extend("default" = 1))]
    pub(super) cost: u64,
    /// 1: nothing is charged.
    #[schemars(schema_with = "peek_schema")]
    pub(super) peek: bool,
    /// Only the limits of these names are asked; all of them if there is none.
    #[schemars(rename = "limit")]
    pub(super) limits: Vec<String>,
}

fn deny_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "enum": [403, 429], "default": 403 })
}

fn peek_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "enum": [0, 1], "default": 0 })
}

impl Parameters {
    /// Reads them from the part of an URI behind the question mark.
    ///
    /// # Errors
    /// [`Fault::Parameter`] for a name or value that is not known.
    pub(super) fn read(query: Option<&str>) -> Result<Self, Fault> {
        let mut read = Self { deny: 403, cost: 1, peek: false, limits: Vec::new() };
        for (name, value) in parse(query.unwrap_or_default().as_bytes()) {
            match (&*name, &*value) {
                ("deny", "403") => read.deny = 403,
                ("deny", "429") => read.deny = 429,
                ("deny", _) => return Err(Fault::parameter(&name, "give 403 or 429")),
                ("cost", value) => read.cost = cost(value)?,
                ("limit", limit) => read.limits.push(limit.to_owned()),
                ("peek", "1") => read.peek = true,
                ("peek", "0") => read.peek = false,
                ("peek", _) => return Err(Fault::parameter(&name, "give 0 or 1")),
                _ => return Err(Fault::parameter(&name, &format!("there are {KNOWN}"))),
            }
        }
        Ok(read)
    }
}

/// Checks that a policy has limits on requests of these names.
///
/// # Errors
/// [`Fault::Parameter`] if one is missing.
pub(super) fn check(limits: &[String], policy: &Policy) -> Result<(), Fault> {
    let all = || policy.on_requests.iter().map(|limit| &*limit.name);
    match limits.iter().all(|limit| all().any(|it| it == limit)) {
        true => Ok(()),
        false => {
            let names = all().collect::<Vec<_>>().join(", ");
            Err(Fault::parameter("limit", &format!("the limits on requests are {names}")))
        }
    }
}

/// The value of a cost.
///
/// # Errors
/// [`Fault::Parameter`] for what is no number from 1 to [`MOST_COST`].
pub(super) fn cost(value: &str) -> Result<u64, Fault> {
    checked(value.parse().unwrap_or(0))
}

/// A cost from 1 to [`MOST_COST`].
///
/// # Errors
/// [`Fault::Parameter`] for any other number.
pub(super) fn checked(cost: u64) -> Result<u64, Fault> {
    let fits = (1..=MOST_COST).contains(&cost);
    fits.then_some(cost).ok_or_else(|| {
        Fault::parameter("cost", &format!("give a whole number from 1 to {MOST_COST}"))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_known_or_refused() {
        let read = |query| Parameters::read(Some(query));
        assert_eq!(
            Parameters::read(None).unwrap(),
            Parameters { deny: 403, cost: 1, peek: false, limits: Vec::new() }
        );
        assert_eq!(
            read("deny=429&cost=7&peek=1&limit=a&limit=b").unwrap(),
            Parameters {
                deny: 429,
                cost: 7,
                peek: true,
                limits: vec!["a".to_owned(), "b".to_owned()]
            }
        );
        for wrong in
            ["deny=200", "cost=0", "cost=-1", "cost=x", "cost=99999999999", "peek=yes", "dney=429"]
        {
            assert!(matches!(read(wrong), Err(Fault::Parameter { .. })), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_read(query in any::<String>()) {
            let _ = Parameters::read(Some(&query));
        }
    }
}
