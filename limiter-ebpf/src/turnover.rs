//! Who comes into the table of sources, and who has to go.

use limiter_common::contract::Turnover;

use crate::maps::TURNOVER;

/// Counts on this CPU.
#[inline(always)]
pub(crate) fn count(change: impl FnOnce(&mut Turnover)) {
    if let Some(turnover) = TURNOVER.get_ptr_mut(0) {
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its end on
        // a CPU before the next packet.
        change(unsafe { &mut *turnover });
    }
}
