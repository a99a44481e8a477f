//! From a decision to an XDP action and the counters; the only place that knows either.

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS};
use limiter_common::{contract::Tally, limit::Limit, reason::Reason};

use crate::{
    barrier::opaque,
    maps::{COUNTERS, SLOT},
};

/// What was decided about a frame.
#[must_use]
pub(crate) struct Verdict {
    pub(crate) reason: Reason,
    /// The limits that it was charged to, as [`Limit::bit`]s.
    pub(crate) charged: u64,
}

impl Verdict {
    /// Counts the frame and gives the action that the kernel takes.
    #[inline(always)]
    pub(crate) fn settle(&self, bytes: u64) -> u32 {
        // The slot is a constant below the length of the array, so this cannot fail; if it did, a
        // frame that cannot be accounted would pass.
        let Some(counters) = COUNTERS.get_ptr_mut(SLOT.load()) else {
            return XDP_PASS;
        };
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its
        // end on a CPU before the next packet.
        let counters = unsafe { &mut *counters };
        // The compiler knows that a reason is within the array, the verifier wants to see it.
        if let Some(tally) = counters.reasons.get_mut(opaque(self.reason.index())) {
            count(tally, bytes);
        }
        let exceeded = self.reason.exceeded();
        for (tally, limit) in counters.limits.iter_mut().zip(Limit::ALL) {
            if self.charged & limit.bit() != 0 {
                count(&mut tally.conform, bytes);
            } else if exceeded == Some(limit) {
                count(&mut tally.exceed, bytes);
            }
        }
        if self.reason.drops() { XDP_DROP } else { XDP_PASS }
    }
}

#[inline(always)]
const fn count(tally: &mut Tally, bytes: u64) {
    tally.packets = tally.packets.wrapping_add(1);
    tally.bytes = tally.bytes.wrapping_add(bytes);
}
