//! What the datapath tells of sources.

use aya::{
    Pod,
    maps::{MapData, RingBuf},
};
use limiter_common::{
    abi::layout::map,
    memory::event::{EventStats, SourceEvent},
};

use super::{
    bpffs::Pins,
    maps::Maps,
    object::{object, typed},
};
use crate::error::Result;

/// Takes what is told. An instance has one such reader: others get the same, or what is overwritten by
/// then, and the datapath waits with new ones for the slowest.
pub struct Listener {
    ring: RingBuf<MapData>,
}

impl Listener {
    /// Listens to the instance that is pinned there.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(pins: &Pins) -> Result<Self> {
        Ok(Self { ring: typed(pins, map::EVENTS)? })
    }
}

impl Iterator for Listener {
    type Item = SourceEvent;

    /// What was told next, if there is anything yet.
    fn next(&mut self) -> Option<SourceEvent> {
        loop {
            // Nobody else writes there; what is of another size is passed over all the same.
            if let Some(event) = value(&self.ring.next()?) {
                return Some(event);
            }
        }
    }
}

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

/// A value by its bytes, if there are as many as it has.
pub(super) fn value<T: Pod>(bytes: &[u8]) -> Option<T> {
    if bytes.len() != size_of::<T>() {
        return None;
    }
    // SAFETY: there are as many bytes, of which any make a valid value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
