//! Who comes into the tables, and who has to go.

use limiter_common::contract::Turnover;

use crate::maps::TURNOVER;

/// Counts on this CPU, of one of [these](limiter_common::contract::turnover).
#[inline(always)]
pub(crate) fn count(of: u32, change: impl FnOnce(&mut Turnover)) {
    if let Some(turnover) = TURNOVER.get_ptr_mut(of) {
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its end on
        // a CPU before the next packet.
        change(unsafe { &mut *turnover });
    }
}
