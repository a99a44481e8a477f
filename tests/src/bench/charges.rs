//! The decisions of the limits about the frames of a case.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use limiter_common::{abi::counters::LimitTally, base::tally::Tally};
use limiter_userspace::datapath::snapshot::Snapshot;

use super::case::Case;

/// The tally of each limit, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charges(BTreeMap<String, Charge>);

/// The tally of one limit, in frames.
#[derive(Clone, Copy, Debug, Default)]
struct Charge {
    /// Frames charged to the limit.
    conform: u64,
    /// Frames that the limit refused.
    exceed: u64,
    /// Frames that the limit would have refused if it were enforced.
    monitored: u64,
}

impl Charges {
    /// Adds what was counted between two snapshots under one policy.
    pub(crate) fn add(&mut self, before: &Snapshot, after: &Snapshot) {
        for limit in &after.limits {
            let charge = self.0.entry(limit.name.clone()).or_default();
            let more = |of: fn(&LimitTally) -> Tally| {
                let [after, before] = [after, before].map(|all| of(&all.tally(&limit.name)));
                after.packets.wrapping_sub(before.packets)
            };
            charge.conform += more(|tally| tally.conform);
            charge.exceed += more(|tally| tally.exceed);
            charge.monitored += more(|tally| tally.monitored);
        }
    }

    /// Checks the tallies of a case, of whose `received` frames `expected` had the expected reason.
    pub(crate) fn check(&self, case: &Case, received: u64, expected: u64) -> Result<()> {
        let Case { name, charged, exceeded, .. } = case;
        for (limit, Charge { conform, exceed, monitored }) in &self.0 {
            let due = if charged.contains(limit) { received } else { 0 };
            ensure!(
                conform.abs_diff(due) <= received - expected,
                "{name}: limit {limit} was charged {conform} times instead of {due}"
            );
            let due = if *exceeded == Some(limit.as_str()) { expected } else { 0 };
            let over = exceed + monitored;
            ensure!(over == due, "{name}: limit {limit} refused {over} frames instead of {due}");
        }
        Ok(())
    }

    /// Checks the tallies of a case of whose frames `passed` passed and `refused` were refused by limits.
    /// Every passed frame has to be counted at each limit that the case names, as conforming or as monitored;
    /// up to `missing` may be absent.
    pub(crate) fn check_mixed(
        &self,
        case: &Case,
        passed: u64,
        refused: u64,
        missing: u64,
    ) -> Result<()> {
        let Case { name, charged, .. } = case;
        for (limit, Charge { conform, monitored, .. }) in &self.0 {
            let (most, least) = if charged.contains(limit) {
                (passed, passed.saturating_sub(missing))
            } else {
                (0, 0)
            };
            ensure!(
                *conform <= most + missing,
                "{name}: limit {limit} was charged {conform} times, and {most} frames passed"
            );
            ensure!(
                conform + monitored >= least,
                "{name}: limit {limit} was charged {conform} times and monitored {monitored}, and {passed} frames passed"
            );
        }
        let exceed: u64 = self.0.values().map(|charge| charge.exceed).sum();
        ensure!(
            exceed == refused,
            "{name}: limits refused {exceed} frames, and {refused} were dropped for it"
        );
        Ok(())
    }
}
