//! What is counted of requests.

/// What was counted of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// For each layer and each candidate of a limit, in the order in which they are asked.
    pub rows: Vec<RowCounts>,
    /// Requests that `allow` let pass.
    pub allowed: u64,
    /// Requests that `deny` or a penalty refused.
    pub denied: u64,
    /// Requests that a limit with `action: drop` refused.
    pub dropped: u64,
    /// Requests that were refused, since more limits were about them than are asked.
    pub too_many: u64,
    /// Requests that were charged to a state that keys share, since all keys of their set owed.
    pub shared: u64,
    /// Places that were given back when requests ended.
    pub released: u64,
    /// The keys in the table. Keys that owe nothing any more are among them.
    pub keys: usize,
}

/// What was counted of requests by a layer or a candidate of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// The index of the limit in [`Policy::on_requests`](crate::policy::Policy::on_requests).
    pub limit: usize,
    /// The index of the layer; 0 for a candidate.
    pub layer: usize,
    /// Whether it is the candidate.
    pub is_candidate: bool,
    /// The display name of the layer or candidate.
    pub name: String,
    /// Requests that were charged to it.
    pub conform: u64,
    /// Requests that it refused.
    pub exceed: u64,
    /// Requests that it would have refused; it, or everything, is only monitored.
    pub exceed_monitor: u64,
    /// Of those that were charged to it, the ones that left it [near](limiter_common::algorithm::near).
    pub near: u64,
    /// Requests that lacked a part of its key.
    pub missing: u64,
    /// Requests that were charged to it before, by their [`HEADER`](crate::policy::model::Idempotency::HEADER).
    pub repeat: u64,
}

/// The counts of a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) conform: u64,
    pub(super) exceed: u64,
    pub(super) exceed_monitor: u64,
    pub(super) near: u64,
    pub(super) missing: u64,
    pub(super) repeat: u64,
}
