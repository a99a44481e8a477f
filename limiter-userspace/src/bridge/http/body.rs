//! The body of a charge or a refund.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{budget::Question, fault::Fault};
use crate::policy::Policy;

/// What is settled.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settled {
    /// The name of the limit.
    pub(super) limit: String,
    /// The request that it is charged for: properties by their names, as the parameters of `/v1/budget`.
    request: BTreeMap<String, String>,
    /// How many times what the request costs.
    cost: u64,
}

impl Settled {
    /// Reads it from JSON.
    ///
    /// # Errors
    /// [`Fault::BadBody`].
    pub(super) fn read(json: &[u8]) -> Result<Self, Fault> {
        serde_json::from_slice(json).map_err(|error| Fault::BadBody { error: error.to_string() })
    }

    /// The request, and what it costs.
    ///
    /// # Errors
    /// As [`Question::of`].
    pub(super) fn question(&self, policy: &Policy) -> Result<Question, Fault> {
        let properties = self.request.iter().map(|(name, value)| (&**name, &**value));
        Question::of(policy, self.limit.clone(), self.cost, properties)
    }
}
