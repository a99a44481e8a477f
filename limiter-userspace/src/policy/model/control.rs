//! The budgets of the link's own control traffic.

use limiter_common::algorithm::rate::{Rate, SECOND};
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;

/// The budgets of control traffic: the default ones and those of named interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The budgets of interfaces that no override names.
    pub budgets: ControlBudgets,
    /// Budgets of named interfaces. Of several overrides that name an interface, the first applies.
    pub overrides: Vec<ControlOverride>,
}

/// The budgets of control traffic on one interface: token buckets that count packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlBudgets {
    /// The budget of each protocol.
    pub budget: Allowance,
    /// The budget of each source of a protocol.
    pub per_source: Allowance,
    /// The budget of each source for packets that can be forged from afar: OSPF and DHCP to a unicast
    /// address.
    pub far: Allowance,
    /// The protocols without a budget, whose packets are treated as ordinary ones: their
    /// [`bit`](limiter_common::packet::control::Protocol::bit)s, or-ed.
    pub ordinary: u64,
}

/// Budgets of named interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlOverride {
    /// Names, patterns or indices of interfaces.
    pub interfaces: Vec<String>,
    /// The budgets of each of these interfaces.
    pub budgets: ControlBudgets,
}

const fn per_second(packets: u64, burst: u64) -> Allowance {
    Allowance::TokenBucket { rate: Rate { packets, period: SECOND }, burst }
}

impl Default for ControlBudgets {
    /// Sized for a link of some hundred neighbours that all come back at once; one source may use half of it.
    fn default() -> Self {
        Self {
            budget: per_second(1_000, 2_000),
            per_source: per_second(500, 1_000),
            far: per_second(10, 20),
            ordinary: 0,
        }
    }
}
