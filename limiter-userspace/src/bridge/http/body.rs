//! The bodies of requests and answers, which the OpenAPI document describes.

use std::{collections::BTreeMap, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{fault::Fault, parameters::MOST_COST};
use crate::bridge::answer::RequestFill;

/// A charge or a refund.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Settlement")]
pub(in crate::bridge) struct Settled {
    /// The name of the limit.
    pub(super) limit: String,
    /// The request that it is charged for: properties by their names, as the parameters of `/v1/budget`.
    pub(super) request: BTreeMap<String, String>,
    /// How many times what the request costs.
    #[schemars(range(min = 1, max = MOST_COST))]
    pub(super) cost: u64,
}

impl Settled {
    /// Reads it from JSON.
    ///
    /// # Errors
    /// [`Fault::BadBody`].
    pub(in crate::bridge) fn read(json: &[u8]) -> Result<Self, Fault> {
        serde_json::from_slice(json).map_err(|error| Fault::BadBody { error: error.to_string() })
    }
}

/// What limits have left for a request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(in crate::bridge) struct Budget {
    pub(super) schema: BudgetSchema,
    /// What becomes of such a request now.
    pub(super) verdict: BudgetVerdict,
    /// The limits that are about it.
    pub(super) limits: Vec<Left>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) enum BudgetSchema {
    #[serde(rename = "limiter.budget/1")]
    Budget,
    #[serde(rename = "limiter.charge/1")]
    Charge,
    #[serde(rename = "limiter.refund/1")]
    Refund,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum BudgetVerdict {
    Pass,
    Limited,
    Denied,
}

/// What a limit has left for the key of a request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Left {
    /// The display name of the limit or layer.
    pub(super) name: String,
    /// What passes at once after a rest.
    pub(super) quota: u64,
    /// Seconds until all of the quota is there again after it was used up.
    #[schemars(range(min = 0))]
    pub(super) window: f64,
    /// Requests of cost 1 that pass now.
    pub(super) left: u64,
    /// Seconds until the request passes; `null` if it never does.
    #[schemars(range(min = 0))]
    pub(super) wait: Option<f64>,
    /// Seconds until nothing is charged any more.
    #[schemars(range(min = 0))]
    pub(super) refills: f64,
}

/// What limits on requests and on packets have left for a source.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(in crate::bridge) struct Source {
    /// `limiter.bridge_source/1`.
    pub(super) schema: &'static str,
    /// Its address.
    pub(super) source: IpAddr,
    /// The limits on requests that count by the source alone.
    pub(super) requests: Vec<RequestFill>,
    /// What the agent tells, as `limiter get -j` prints it; `null` if it knows nothing of the source.
    pub(super) packets: Value,
    /// Why the agent tells nothing.
    pub(super) packets_unknown: Option<String>,
}
