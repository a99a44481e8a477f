//! What the datapath tells of sources.

use limiter_common::memory::event::EventStats;

use super::{maps::Maps, object::object};
use crate::error::Result;

impl Maps {
    /// How much was told and left out since the instance was made, over all CPUs.
    ///
    /// # Errors
    /// What the system says.
    pub fn event_stats(&self) -> Result<EventStats> {
        let per_cpu =
            self.event_stats.get(&0, 0).map_err(|error| object("read what was told", &error))?;
        let mut sum = EventStats::default();
        for of_cpu in per_cpu.iter() {
            for (sum, more) in sum.happened.iter_mut().zip(of_cpu.happened) {
                *sum = sum.wrapping_add(more);
            }
            for (sum, more) in sum.suppressed.iter_mut().zip(of_cpu.suppressed) {
                *sum = sum.wrapping_add(more);
            }
            sum.proven = sum.proven.wrapping_add(of_cpu.proven);
            sum.unproven = sum.unproven.wrapping_add(of_cpu.unproven);
        }
        Ok(sum)
    }
}
