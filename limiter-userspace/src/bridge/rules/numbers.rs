//! The numbers of allowances.

use std::collections::HashMap;

use limiter_common::algorithm::{
    gcra::Gcra,
    kind::Kind,
    meter::Meter,
    policer::Policer as _,
    rate::{Rate, SECOND},
};

use crate::{
    policy::{PolicyError, model::Allowance},
    query::Fill,
};

/// What an allowance admits to a key.
#[derive(Clone, Copy, Debug)]
pub(in crate::bridge) struct Numbers {
    pub(in crate::bridge) meter: Meter,
    /// The meter of the state that keys without an entry share.
    pub(in crate::bridge) shared: Meter,
    /// See [`Standing::quota`](super::super::answer::Standing::quota).
    pub(in crate::bridge) quota: u64,
    /// See [`Standing::window`](super::super::answer::Standing::window).
    pub(in crate::bridge) window: u64,
    /// The largest cost that the meter can represent. A request that costs more never passes.
    pub(in crate::bridge) most: u64,
}

impl Numbers {
    /// Those of so many requests in a time, in nanoseconds, by a kind of algorithm that states are of. `None` if it cannot have
    /// them.
    pub(super) fn told(
        kind: Kind,
        (number, period): (u64, u64),
        dearest: u64,
        sharers: u32,
    ) -> Option<Self> {
        let (limit, window) = (number, period);
        let allowance = match kind {
            Kind::Bucket => {
                Allowance::TokenBucket { rate: Rate { packets: number, period }, burst: number }
            }
            Kind::Fixed => Allowance::FixedWindow { limit, window },
            Kind::Sliding => Allowance::SlidingWindow { limit, window },
            Kind::SlidingLog => Allowance::SlidingLog { limit, window },
            Kind::Concurrent => return None,
        };
        Self::new(allowance, dearest, sharers).ok()
    }

    /// For requests that cost `dearest` at most, or what the caller says. As many keys as `sharers` may share a state.
    fn new(allowance: Allowance, dearest: u64, sharers: u32) -> Result<Self, PolicyError> {
        let meter = allowance.meter(dearest)?;
        let quota = match Fill::of_word(&meter, meter.fresh(0), 0, 1) {
            Some(fill) => fill.most,
            None => meter.gcra.depth,
        };
        let (meter, most) = with_room(meter, quota, dearest);
        let shared = allowance.shared_meter(sharers, |allowance| allowance.meter(dearest))?;
        let (shared, _) = with_room(shared, quota, dearest);
        let Gcra { depth, shift, interval, .. } = meter.gcra;
        let window = match meter.kind() {
            Kind::Bucket => depth.div_ceil(1 << shift),
            Kind::Fixed | Kind::Sliding | Kind::SlidingLog => interval,
            Kind::Concurrent => 0,
        };
        Ok(Self { meter, shared, quota, window, most })
    }
}

/// How long a bucket may owe what was [charged after the fact](crate::bridge::decide::Decider::settle), in ns, if not for longer
/// by its burst: a day. A word that is further ahead counts as lost, as after the clock went back.
const LONGEST_DEBT: u64 = 86_400 * SECOND;

/// The same meter for requests that cost up to all that it admits at once, where that is more than `dearest`, and that may owe
/// for [`LONGEST_DEBT`]; and the largest cost. Only what a bucket may owe depends on it.
fn with_room(mut meter: Meter, quota: u64, dearest: u64) -> (Meter, u64) {
    if meter.kind() != Kind::Bucket {
        return (meter, u64::MAX);
    }
    let gcra = &mut meter.gcra;
    gcra.dearest = gcra.dearest.max(LONGEST_DEBT << gcra.shift);
    let units = gcra.interval.checked_mul(quota).map(|units| units >> gcra.fraction);
    match units.filter(|units| *units <= Gcra::MAX_DEPTH) {
        Some(units) => {
            gcra.dearest = gcra.dearest.max(units);
            (meter, quota.max(dearest))
        }
        None => (meter, dearest),
    }
}

/// The numbers of a policy, each once.
#[derive(Debug, Default)]
pub(super) struct Interner {
    numbers: Vec<Numbers>,
    known: HashMap<(Allowance, u64, u32), usize>,
}

impl Interner {
    /// The place of the [numbers](Numbers::new) of an allowance.
    pub(super) fn place(
        &mut self,
        allowance: Allowance,
        dearest: u64,
        sharers: u32,
    ) -> Result<usize, PolicyError> {
        let of = (allowance, dearest, sharers);
        if let Some(place) = self.known.get(&of) {
            return Ok(*place);
        }
        self.numbers.push(Numbers::new(allowance, dearest, sharers)?);
        self.known.insert(of, self.numbers.len() - 1);
        Ok(self.numbers.len() - 1)
    }

    pub(super) fn into_numbers(self) -> Vec<Numbers> {
        self.numbers
    }
}
