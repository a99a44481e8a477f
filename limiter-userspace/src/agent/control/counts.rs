//! What became of the blocks that were asked for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::results::{LiftResult, PushResult};
use crate::metrics::{Family, Kind, Value};

/// How often each result was given.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pushed: [AtomicU64; PushResult::ALL.len()],
    lifted: [AtomicU64; LiftResult::ALL.len()],
}

impl Counts {
    pub(super) fn add(&self, result: PushResult) {
        if let Some(count) = self.pushed.get(result as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn add_lift(&self, result: LiftResult) {
        if let Some(count) = self.lifted.get(result as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn families(&self) -> [Family; 2] {
        let mut pushed = Family::new(
            "limiter_pushed_total",
            Kind::Counter,
            "Blocks that other processes asked the agent for on its control socket, by what became of them.",
        );
        for (result, count) in PushResult::ALL.into_iter().zip(&self.pushed) {
            pushed.push([("result", result.name())], Value::Whole(count.load(Relaxed)));
        }
        let mut lifted = Family::new(
            "limiter_push_lifts_total",
            Kind::Counter,
            "Requests on the control socket to end a pushed block, by what became of them.",
        );
        for (result, count) in LiftResult::ALL.into_iter().zip(&self.lifted) {
            lifted.push([("result", result.name())], Value::Whole(count.load(Relaxed)));
        }
        [lifted, pushed]
    }
}
