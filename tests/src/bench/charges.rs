//! What the limits did with the frames of a case.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use limiter_common::contract::Tally;
use limiter_userspace::datapath::snapshot::Snapshot;

use super::case::Case;

/// Frames that each limit was charged and that it refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charges(BTreeMap<String, (u64, u64)>);

impl Charges {
    /// Adds what was counted between two snapshots of one policy.
    pub(crate) fn add(&mut self, before: &Snapshot, after: &Snapshot) {
        for limit in &after.limits {
            let (conform, exceed) = self.0.entry(limit.name.clone()).or_default();
            let [after, before] = [after, before].map(|all| all.tally(&limit.name));
            let more = |after: Tally, before: Tally| after.packets.wrapping_sub(before.packets);
            *conform += more(after.conform, before.conform);
            *exceed += more(after.over(), before.over());
        }
    }

    /// Checks them for a case of which so many frames were received, and so many of those counted
    /// as they should.
    pub(crate) fn check(&self, case: &Case, received: u64, expected: u64) -> Result<()> {
        let Case { name, charged, exceeded, .. } = case;
        for (limit, (conform, exceed)) in &self.0 {
            let due = if charged.contains(limit) { received } else { 0 };
            ensure!(
                conform.abs_diff(due) <= received - expected,
                "{name}: limit {limit} was charged {conform} times instead of {due}"
            );
            let due = if *exceeded == Some(limit.as_str()) { expected } else { 0 };
            ensure!(
                *exceed == due,
                "{name}: limit {limit} refused {exceed} frames instead of {due}"
            );
        }
        Ok(())
    }
}
