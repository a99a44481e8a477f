//! Whether anything is dropped: what the operator's switch says, and what the policy says.
//!
//! The switch is a word beside the policies. It takes no lock, waits for nothing and reads no
//! document, so that it can be thrown whatever else goes on, and no change of the policy undoes it.

use std::os::fd::AsFd as _;

use limiter_common::abi::{
    layout::map,
    policy::{Head, flag},
};

use super::{maps::Maps, policy::in_force, sys};
use crate::{
    error::{Error, Result},
    policy::model::GlobalMode,
};

/// What keeps packets from being dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Monitoring {
    /// Whether the switch is on: nothing is dropped, whatever the policy says.
    pub switch: bool,
    /// What the policy in force says by itself.
    pub policy: GlobalMode,
}

impl Monitoring {
    fn of(head: &Head, epoch: u32) -> Self {
        let policy = match head.settings[epoch as usize & 1].flags & flag::MONITOR {
            0 => GlobalMode::Enforce,
            _ => GlobalMode::Monitor,
        };
        Self { switch: head.monitor != 0, policy }
    }

    /// What holds now.
    pub const fn mode(self) -> GlobalMode {
        if self.switch { GlobalMode::Monitor } else { self.policy }
    }

    /// Whether nothing is dropped.
    pub fn is_on(self) -> bool {
        self.mode() == GlobalMode::Monitor
    }
}

impl Maps {
    /// Whether anything is dropped now.
    ///
    /// # Errors
    /// What the system says.
    pub fn monitoring(&self) -> Result<Monitoring> {
        Ok(self.monitoring_at(sys::monotonic())?.1)
    }

    /// The epoch that packets go by at a time of the monotonic clock, and whether anything is dropped
    /// then.
    pub(crate) fn monitoring_at(&self, now: u64) -> Result<(u32, Monitoring)> {
        let head = self.read_head()?;
        let epoch = in_force(&head, now);
        Ok((epoch, Monitoring::of(&head, epoch)))
    }

    /// Throws the switch: from now on nothing is dropped, under any policy, or again what the policy
    /// in force says. It takes no lock.
    ///
    /// # Errors
    /// What the system says.
    pub fn switch_monitor(&mut self, on: bool) -> Result<()> {
        sys::set_monitor(self.raw(map::HEAD)?.fd().as_fd(), on)
            .map_err(|error| Error::system("throw the monitor switch", error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dropped_if_either_says_so() {
        use GlobalMode::{Enforce, Monitor};
        for (switch, policy, mode) in [
            (false, Enforce, Enforce),
            (false, Monitor, Monitor),
            (true, Enforce, Monitor),
            (true, Monitor, Monitor),
        ] {
            let monitoring = Monitoring { switch, policy };
            assert_eq!(monitoring.mode(), mode, "{monitoring:?}");
            assert_eq!(monitoring.is_on(), mode == Monitor);
        }
    }
}
