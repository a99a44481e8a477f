//! What became of the blocks that were asked for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::rules::PushResult;
use crate::metrics::{Family, Kind, Value};

/// How often each result was given.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; PushResult::ALL.len()]);

impl Counts {
    pub(super) fn add(&self, result: PushResult) {
        if let Some(count) = self.0.get(result as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn families(&self) -> [Family; 1] {
        let mut pushed = Family::new(
            "limiter_pushed_total",
            Kind::Counter,
            "Blocks that other processes asked the agent for on its control socket, by what became of them.",
        );
        for (result, count) in PushResult::ALL.into_iter().zip(&self.0) {
            pushed.push([("result", result.name())], Value::Whole(count.load(Relaxed)));
        }
        [pushed]
    }
}
