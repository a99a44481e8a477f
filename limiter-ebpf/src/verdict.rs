//! From a decision to an XDP action and the counters; the only place that knows either.

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS};
use limiter_common::{contract::Tally, limit::Limit, reason::Reason};

use crate::{
    barrier::opaque,
    maps::{COUNTERS, SLOT},
};

/// What was decided about a frame.
#[must_use]
pub(crate) enum Verdict {
    /// It passes.
    Pass {
        /// The place of the reason, see [`Reason::index`].
        reason: usize,
        /// The limits that it was charged to, as [`Limit::bit`]s.
        charged: u64,
    },
    /// It is dropped.
    Drop(Reason),
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
        let (reason, action) = match *self {
            Self::Pass { reason, charged } => {
                for (tally, limit) in counters.limits.iter_mut().zip(Limit::ALL) {
                    if charged & limit.bit() != 0 {
                        count(&mut tally.conform, bytes);
                    }
                }
                (reason, XDP_PASS)
            }
            Self::Drop(reason) => {
                if let Some(limit) = reason.exceeded() {
                    count(&mut counters.limits[limit.index()].exceed, bytes);
                }
                (reason.index(), XDP_DROP)
            }
        };
        // The compiler may know that a reason is within the array, the verifier wants to see it.
        if let Some(tally) = counters.reasons.get_mut(opaque(reason)) {
            count(tally, bytes);
        }
        action
    }
}

#[inline(always)]
const fn count(tally: &mut Tally, bytes: u64) {
    tally.packets = tally.packets.wrapping_add(1);
    tally.bytes = tally.bytes.wrapping_add(bytes);
}
