//! What becomes of requests to begin and end blocks.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::output::lists::Penalties;

/// The answer about all penalties.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answered {
    /// To a request for one block.
    One(Answer<PushResult>),
    /// To a request for an array of blocks, in their order.
    All(Vec<Answer<PushResult>>),
    /// To the question whom it blocks.
    List(Penalties),
}

/// What became of a block.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Answer<R> {
    /// The address that was asked for.
    pub(super) subject: IpAddr,
    /// What became of it.
    pub(super) result: R,
    /// For how long the source is blocked, rounded up; 0 if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seconds: Option<u64>,
}

/// What became of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PushResult {
    /// The source is blocked.
    Blocked,
    /// A block that was pushed before lasts longer.
    Shorter,
    /// No connection proves it.
    Unproven,
    /// The source sends nothing to this host.
    NotAPeer,
    /// The list `allow` has it.
    Allowed,
    /// It is an address of this host.
    Own,
    /// It is a gateway of this host.
    Gateway,
    /// There were too many pushes.
    TooMany,
    /// Its set in the table of offences has no room.
    Full,
    /// The system failed to do it.
    Failed,
}

impl PushResult {
    pub(super) const ALL: [Self; 10] = [
        Self::Blocked,
        Self::Shorter,
        Self::Unproven,
        Self::NotAPeer,
        Self::Allowed,
        Self::Own,
        Self::Gateway,
        Self::TooMany,
        Self::Full,
        Self::Failed,
    ];

    /// Its name in answers and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Shorter => "shorter",
            Self::Unproven => "unproven",
            Self::NotAPeer => "not_a_peer",
            Self::Allowed => "allowed",
            Self::Own => "own",
            Self::Gateway => "gateway",
            Self::TooMany => "too_many",
            Self::Full => "full",
            Self::Failed => "failed",
        }
    }
}

/// What became of the wish to end a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LiftResult {
    /// It is ended.
    Lifted,
    /// No push blocks the source.
    NotBlocked,
    /// Another user pushed it, or it was pushed before this process began.
    NotYours,
}

impl LiftResult {
    pub(super) const ALL: [Self; 3] = [Self::Lifted, Self::NotBlocked, Self::NotYours];

    /// Its name in answers and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lifted => "lifted",
            Self::NotBlocked => "not_blocked",
            Self::NotYours => "not_yours",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::to_value;

    use super::*;

    #[test]
    fn results_have_the_same_names_in_answers_and_in_metrics() {
        for result in PushResult::ALL {
            assert_eq!(to_value(result).unwrap(), result.name());
        }
        for result in LiftResult::ALL {
            assert_eq!(to_value(result).unwrap(), result.name());
        }
    }
}
