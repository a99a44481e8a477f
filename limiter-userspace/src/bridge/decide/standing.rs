//! What a state has left.

use std::time::Duration;

use limiter_common::{
    algorithm::{
        concurrent::{Concurrent, Table},
        kind::Kind,
        meter::Meter,
        policer::Policer as _,
        sliding_log::SlidingLog,
    },
    base::{slots::Slots, word::Word},
};

use crate::query::Fill;

/// What a state has left, as in [`Standing`](super::super::answer::Standing).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    /// Requests of cost 1 that pass now.
    pub(super) left: u64,
    /// Nanoseconds until a request passes; [`u64::MAX`] if it never does.
    pub(super) wait: u64,
    /// Nanoseconds until nothing is charged any more.
    pub(super) refills: u64,
}

impl Left {
    fn of(fill: Fill) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            left: fill.left(),
            wait: fill.next.map_or(u64::MAX, nanoseconds),
            refills: nanoseconds(fill.full),
        }
    }
}

/// What a state that nothing is charged to has left for a request of this cost.
pub(super) fn fresh(meter: &Meter, now: u64, cost: u64) -> Left {
    if !meter.is_wide() {
        return of_word(meter, meter.fresh(now), now, cost);
    }
    let limit = meter.gcra.depth;
    let wait = if for_cost(limit, cost).is_some() { 0 } else { u64::MAX };
    Left { left: limit, wait, refills: 0 }
}

/// What the state of this word has left for a request of this cost.
pub(super) fn of_word(meter: &Meter, word: u64, now: u64, cost: u64) -> Left {
    match meter.kind() {
        Kind::Bucket => {
            let gcra = &meter.gcra;
            let spent = gcra.spent(word, now);
            let (left, wait) = (gcra.left(spent), gcra.wait(word, now, cost));
            Left { left, wait, refills: spent.div_ceil(1 << gcra.shift) }
        }
        Kind::Fixed | Kind::Sliding | Kind::SlidingLog | Kind::Concurrent => {
            Fill::of_word(meter, word, now, cost).map(Left::of).unwrap_or_default()
        }
    }
}

/// What a log has left for a request of this cost.
pub(super) fn of_log(
    meter: &Meter,
    control: &impl Word,
    slots: &impl Slots,
    now: u64,
    cost: u64,
) -> Left {
    let log = meter.sliding_log();
    let left = Left::of(Fill::of_log(log, control, slots, now));
    let wait = for_cost(log.limit, cost).map_or(u64::MAX, |limit| {
        let log = SlidingLog { limit, ..log };
        log.wait(control, slots, now)
    });
    Left { wait, ..left }
}

/// What the places of open requests have left for a request of this cost.
pub(super) fn of_open(meter: &Meter, slots: &impl Table, now: u64, cost: u64) -> Left {
    let leases = meter.concurrent();
    let wait = for_cost(leases.limit, cost).map_or(u64::MAX, |limit| {
        let leases = Concurrent { limit, ..leases };
        leases.wait(slots, now)
    });
    let left = leases.limit.saturating_sub(leases.held(slots, now));
    Left { left, wait, refills: leases.rest(slots, now) }
}

/// The limit that has room for one event exactly where this one has room for so many at once; `None` if it never has.
pub(super) const fn for_cost(limit: u64, cost: u64) -> Option<u64> {
    match limit.checked_sub(cost.saturating_sub(1)) {
        None | Some(0) => None,
        some => some,
    }
}
