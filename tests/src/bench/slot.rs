//! The frame counters of one program.

use anyhow::{Result, ensure};
use limiter_common::packet::reason::{REASONS, Reason};
use limiter_tests::program::attached;
use limiter_userspace::datapath::{instance::Instance, snapshot::Snapshot};

use super::{case::Case, setting::Setting};

/// Frames that a source over 1/min may pass during the measurement.
const STRAYS: u64 = 8;
/// Under a limit of 1,000/s, one frame in so many may pass.
const STRAYS_OF: u64 = 1_000;
/// One frame in so many of a shipped example may have another outcome: a made-up source may be on a list or
/// belong to a tenant, and its SYN may be that of a connection before.
const STRAYS_OF_EXAMPLES: u64 = 10_000;

/// Reads the counters of the instance and of this slot.
pub(crate) fn snapshot(instance: &Instance, slot: u32) -> Result<Snapshot> {
    Ok(instance.maps().snapshot(&[attached(slot)])?)
}

/// The number of frames, by reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted([u64; REASONS]);

impl Counted {
    /// The frames counted between two snapshots of a slot.
    pub(crate) fn between(before: &Snapshot, after: &Snapshot) -> Self {
        Self(Reason::ALL.map(|reason| {
            let [before, after] = [before, after].map(|all| all.reasons[reason.index()].packets);
            after.wrapping_sub(before)
        }))
    }

    /// The frames with this reason.
    pub(crate) const fn of(&self, reason: Reason) -> u64 {
        self.0[reason.index()]
    }

    /// All frames.
    pub(crate) fn received(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The frames within all limits.
    pub(crate) fn passed(&self) -> u64 {
        // Frames with the reason `Monitor` passed, but exceeded a limit.
        let passes = |reason: &Reason| !reason.drops() && *reason != Reason::Monitor;
        Reason::ALL.into_iter().filter(passes).map(|reason| self.of(reason)).sum()
    }

    /// The number of frames of a case that may have another reason than expected.
    pub(crate) fn strays(&self, case: &Case) -> u64 {
        match case.setting {
            Setting::OverOften => self.received() / STRAYS_OF,
            setting if setting.has_strays() => STRAYS.max(self.received() / STRAYS_OF_EXAMPLES),
            _ if case.outcome.reasons().iter().all(|reason| reason.drops()) => STRAYS,
            _ => 0,
        }
    }

    /// Checks that `offered` frames were counted, with the reasons that the case expects.
    pub(crate) fn check(&self, case: &Case, offered: u64) -> Result<()> {
        self.check_but(case, offered, self.strays(case))
    }

    /// Like [`check`](Self::check), with the number of frames that may have another reason.
    pub(crate) fn check_but(&self, case: &Case, offered: u64, strays: u64) -> Result<()> {
        let Case { name, outcome, .. } = case;
        let received = self.received();
        ensure!(received == offered, "{name}: the limiter counted {received} of {offered} frames");
        outcome.check(name, received, |reason| self.of(reason), strays)
    }
}
