//! What was counted of the frames of one program.

use anyhow::{Result, ensure};
use limiter_common::packet::reason::{REASONS, Reason};
use limiter_tests::program::attached;
use limiter_userspace::datapath::{instance::Instance, snapshot::Snapshot};

use super::{case::Case, setting::Setting};

/// Frames that a source over 1/min may pass during the measurement.
const STRAYS: u64 = 8;
/// Of how many that are offered one over 1,000/s may pass one.
const STRAYS_OF: u64 = 1_000;
/// Of how many of a shipped example one may come out otherwise: a made-up source may be one that a list or a tenant
/// names, and its SYN one that repeats another.
const STRAYS_OF_EXAMPLES: u64 = 10_000;

/// The counters of an instance, and of no interface but the one in this slot.
pub(crate) fn snapshot(instance: &Instance, slot: u32) -> Result<Snapshot> {
    Ok(instance.maps().snapshot(&[attached(slot)])?)
}

/// Frames by their reasons.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted([u64; REASONS]);

impl Counted {
    /// Those that were counted between two snapshots of a slot.
    pub(crate) fn between(before: &Snapshot, after: &Snapshot) -> Self {
        Self(Reason::ALL.map(|reason| {
            let [before, after] = [before, after].map(|all| all.reasons[reason.index()].packets);
            after.wrapping_sub(before)
        }))
    }

    /// Those of one reason.
    pub(crate) const fn of(&self, reason: Reason) -> u64 {
        self.0[reason.index()]
    }

    /// All of them.
    pub(crate) fn received(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those within all limits.
    pub(crate) fn passed(&self) -> u64 {
        // Where nothing is dropped, what is over a limit is counted at that limit alone.
        let passes = |reason: &Reason| !reason.drops() && *reason != Reason::Monitor;
        Reason::ALL.into_iter().filter(passes).map(|reason| self.of(reason)).sum()
    }

    /// Frames of a case that may have another reason than it says.
    pub(crate) fn strays(&self, case: &Case) -> u64 {
        match case.setting {
            Setting::OverOften => self.received() / STRAYS_OF,
            Setting::Example(..) => STRAYS.max(self.received() / STRAYS_OF_EXAMPLES),
            _ if case.outcome.reasons().iter().all(|reason| reason.drops()) => STRAYS,
            _ => 0,
        }
    }

    /// Checks that so many frames of a case were counted, and as it says.
    pub(crate) fn check(&self, case: &Case, offered: u64) -> Result<()> {
        self.check_but(case, offered, self.strays(case))
    }

    /// The same, where so many frames may have another reason.
    pub(crate) fn check_but(&self, case: &Case, offered: u64, strays: u64) -> Result<()> {
        let Case { name, outcome, .. } = case;
        let received = self.received();
        ensure!(received == offered, "{name}: the limiter counted {received} of {offered} frames");
        outcome.check(name, received, |reason| self.of(reason), strays)
    }
}
