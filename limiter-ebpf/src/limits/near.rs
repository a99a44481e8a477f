//! Which limits a packet leaves nearly used up; see [`near`](limiter_common::algorithm::near).
//!
//! Packets that are far from all of their limits, all of them inline ones, do not come here.

use limiter_common::{
    abi::policy::half,
    base::tally,
    policy::limit::{INLINE, KEYED, Limit},
};

use crate::kernel::{
    maps::{LIMITS, TALLIES},
    scratch::PacketScratch,
};

/// Counts the packet under each of the limits in a set, all of which it leaves near, by the policy of an epoch.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn count_near(epoch: u32, limits: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let mut left = limits;
    for _ in 0..INLINE + KEYED {
        let bit = left & left.wrapping_neg();
        if bit == 0 {
            break;
        }
        left ^= bit;
        if let Some(limit) = LIMITS.get(half(epoch, Limit::row(bit)))
            && let Some(tallies) = TALLIES.get_ptr_mut(limit.tally)
        {
            // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its
            // end on a CPU before the next packet.
            tally::add(unsafe { &mut (*tallies).near }, scratch.bytes);
        }
    }
    0
}
