//! From a decision to an XDP action and the counters; the only place that knows either.

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS};
use limiter_common::{
    base::tally,
    packet::reason::{REASONS, Reason},
};

use crate::kernel::{
    barrier::black_box,
    maps::{COUNTERS, packet_slot},
};

/// What was decided about a frame: the place of its reason, see [`Reason::index`].
///
/// It is a number, because the verifier would follow each of several values by itself.
#[must_use]
pub(crate) struct Verdict(pub(crate) u64);

impl Verdict {
    /// Nothing was decided, or counted: the packet is one that takes a closer look.
    pub(crate) const OPEN: Self = Self(REASONS as u64);

    /// Whether it takes a closer look.
    #[inline(always)]
    pub(crate) const fn is_open(&self) -> bool {
        self.0 == Self::OPEN.0
    }

    #[inline(always)]
    pub(crate) const fn new(reason: Reason) -> Self {
        Self(reason.index() as u64)
    }

    /// Whether the frame is dropped.
    #[inline(always)]
    pub(crate) const fn drops(&self) -> bool {
        self.0 >= Reason::Exceed.index() as u64
    }

    /// Whether the frame is dropped, or would be if everything were not only monitored.
    #[inline(always)]
    pub(crate) const fn would_drop(&self) -> bool {
        self.0 >= Reason::Monitor.index() as u64
    }

    /// Whether it is one: a packet that takes a closer look, or met other CPUs at its state, has to be decided about anew.
    #[inline(always)]
    pub(crate) const fn is_decided(&self) -> bool {
        self.0 != Reason::Contended.index() as u64 && !self.is_open()
    }

    /// The verdict under a policy that only monitors.
    #[inline(always)]
    pub(crate) const fn monitored(self) -> Self {
        if self.drops() && self.is_decided() { Self::new(Reason::Monitor) } else { self }
    }

    /// Counts the frame and gives the action that the kernel takes.
    #[inline(always)]
    pub(crate) fn settle(&self, bytes: u64) -> u32 {
        // Dispatchers have slots below the length of the array, so this cannot fail; if it did, a
        // frame that cannot be accounted would pass.
        let Some(counters) = COUNTERS.get_ptr_mut(packet_slot()) else {
            return XDP_PASS;
        };
        // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its
        // end on a CPU before the next packet.
        let counters = unsafe { &mut *counters };
        // The compiler may know that a reason is within the array, the verifier wants to see it.
        if let Some(tally) = counters.reasons.get_mut(black_box(self.0 as usize)) {
            tally::add(tally, bytes);
        }
        if self.drops() { XDP_DROP } else { XDP_PASS }
    }
}
