//! What the bridge answers about a request, and about a source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lease::Leases;
use crate::policy::{KeyPrefix, Policy};

/// What becomes of a request, and what is left of the limits that are about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What becomes of it.
    pub verdict: Verdict,
    /// What the limits that are about the request have left after it, that which refuses it or has the least left first.
    /// Limits that only count are not among them.
    pub standings: Vec<Standing>,
    /// Nanoseconds for which a request that passes is to be held back: until its turn in the queues of its limits.
    pub hold: u64,
    /// The index of the limit that refuses it, in [`Policy::on_requests`](crate::policy::Policy::on_requests); `None` if no
    /// limit does: `deny` may.
    pub refused_by: Option<usize>,
    /// A digest of the key by which that limit counts the request; `None` if no limit refuses it by a rate. The digest is keyed
    /// by the table.
    pub refused_key: Option<u64>,
    /// The places that the request took, of limits that count how many are open. Where several requests that are decided about
    /// at once took one together, the first of them has it.
    pub leases: Leases,
}

impl Answer {
    /// The name of the limit that the request is over.
    pub fn limited_by<'p>(&self, policy: &'p Policy) -> Option<&'p str> {
        let limit = self.refused_by.filter(|_| self.verdict == Verdict::Limited)?;
        policy.on_requests.get(limit).map(|limit| &*limit.name)
    }

    /// What refuses each request of the source for the longest time, if a limit does until a known time.
    pub fn held(&self) -> Option<&Standing> {
        let all = self.standings.iter().filter(|_| self.verdict == Verdict::Limited);
        all.filter(|it| it.holds.is_some() && (1..u64::MAX).contains(&it.wait))
            .max_by_key(|it| it.wait)
    }

    /// Nanoseconds until a request of this cost passes all of its limits, unless others are charged meanwhile; 0 when it does
    /// at once, [`u64::MAX`] when it never does. It is the longest wait of a limit.
    pub fn wait(&self) -> u64 {
        self.standings.iter().map(|standing| standing.wait).max().unwrap_or(0)
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    #[default]
    Pass,
    /// A limit refuses it, the first of the standings: 429.
    Limited,
    /// `deny`, a limit with `action: drop`, or the lack of an attribute refuses it, whatever its rate: 403.
    Denied,
}

impl Verdict {
    /// The status of HTTP that a refusal has: 429 or 403.
    pub const fn refusal(self) -> Option<u16> {
        match self {
            Self::Pass => None,
            Self::Limited => Some(429),
            Self::Denied => Some(403),
        }
    }
}

/// What a limit has left for a request's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The index of the limit in [`Policy::on_requests`](crate::policy::Policy::on_requests).
    pub limit: usize,
    /// The index of the layer.
    pub layer: usize,
    /// What passes at once after a rest: the burst, or the limit of a window.
    pub quota: u64,
    /// How long it takes, in ns, until all of the quota is there again after it was used up; the length of a window. 0 for a limit
    /// of open requests, of which time gives nothing back.
    pub window: u64,
    /// Requests of cost 1 that pass now.
    pub left: u64,
    /// Nanoseconds until a request of this cost passes, unless others are charged meanwhile; 0 when it does at once,
    /// [`u64::MAX`] when it never does. Of open requests, the time that it takes if none of them ends before.
    pub wait: u64,
    /// Nanoseconds until nothing is charged any more; as for `wait`.
    pub refills: u64,
    /// The prefixes that hold their sources as one: each request of theirs, whatever it asks for, is refused until `wait` is over,
    /// unless something is given back, or the policy says something else of a part of the prefix. `None` for a limit that may
    /// let other requests of the source pass.
    pub holds: Option<KeyPrefix>,
}

impl Standing {
    /// Whether it is of a limit of open requests.
    pub const fn is_of_open(&self) -> bool {
        self.window == 0
    }
}

/// What a limit on requests, which counts by the source alone, has left for a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RequestFill {
    /// The display name of the limit or layer.
    pub name: String,
    /// Its key, as a document has it.
    pub key: String,
    /// Its mode, as a document has it.
    pub mode: String,
    /// What passes at once after a rest.
    pub quota: u64,
    /// Seconds until all of the quota is there again after it was used up.
    pub window: f64,
    /// Requests that pass now.
    pub left: u64,
    /// Seconds until a request passes; `null` if none ever does.
    pub wait: Option<f64>,
    /// Seconds until nothing is charged any more.
    pub refills: f64,
}

impl RequestFill {
    /// Whether requests of the source are charged to the limit, so that less than its quota is left.
    pub const fn is_charged(&self) -> bool {
        self.left < self.quota
    }
}
