//! What each limit admitted and refused.

use limiter_common::contract::{Settings, Tally};

use crate::{inline, maps::TALLIES};

/// Counts a packet of so many bytes under a limit.
#[inline(always)]
pub(crate) fn count(tally: u32, exceed: bool, bytes: u64) {
    if let Some(limit) = TALLIES.get_ptr_mut(tally) {
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its
        // end on a CPU before the next packet.
        let limit = unsafe { &mut *limit };
        add(if exceed { &mut limit.exceed } else { &mut limit.conform }, bytes);
    }
}

/// Counts the inline limits that admitted a packet, and those that refused it.
#[inline(always)]
pub(crate) fn count_inline(settings: &Settings, conform: u64, exceed: u64, bytes: u64) {
    let count_one = #[inline(always)]
    |place: usize, bit: u64| {
        count(settings.tallies[place], exceed & bit != 0, bytes);
        true
    };
    inline::all(settings, conform | exceed, count_one);
}

/// Adds a packet to a tally of this CPU.
#[inline(always)]
pub(crate) const fn add(tally: &mut Tally, bytes: u64) {
    tally.packets = tally.packets.wrapping_add(1);
    tally.bytes = tally.bytes.wrapping_add(bytes);
}
