//! What the limits did with the frames of a case.

use anyhow::{Result, ensure};
use limiter_common::contract::Tally;
use limiter_userspace::{datapath::snapshot::Snapshot, policy::Builtin};

use super::case::Case;

/// Frames that each built-in limit was charged and that it refused.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charges([(u64, u64); Builtin::ALL.len()]);

impl Charges {
    /// Adds what was counted between two snapshots.
    pub(crate) fn add(&mut self, before: &Snapshot, after: &Snapshot) {
        for (limit, (conform, exceed)) in Builtin::ALL.into_iter().zip(&mut self.0) {
            let [after, before] = [after, before].map(|all| all.tally(limit));
            let more = |after: Tally, before: Tally| after.packets.wrapping_sub(before.packets);
            *conform += more(after.conform, before.conform);
            *exceed += more(after.exceed, before.exceed);
        }
    }

    /// Checks them for a case of which so many frames were received, and so many of those counted
    /// as they should.
    pub(crate) fn check(&self, case: &Case, received: u64, expected: u64) -> Result<()> {
        let Case { name, charged, exceeded, .. } = case;
        for (limit, (conform, exceed)) in Builtin::ALL.into_iter().zip(self.0) {
            let due = if charged.contains(&limit) { received } else { 0 };
            ensure!(
                conform.abs_diff(due) <= received - expected,
                "{name}: limit {} was charged {conform} times instead of {due}",
                limit.name()
            );
            let due = if *exceeded == Some(limit) { expected } else { 0 };
            ensure!(
                exceed == due,
                "{name}: limit {} refused {exceed} frames instead of {due}",
                limit.name()
            );
        }
        Ok(())
    }
}
