//! Which limits a packet leaves nearly used up; see [`near`](limiter_common::algorithm::near).
//!
//! Packets that are far from all of their limits do not come here.

use limiter_common::{
    abi::policy::half,
    policy::limit::{KEYED, Limit},
};

use crate::{
    kernel::{maps::LIMITS, scratch::PacketScratch},
    limits::{
        counters::{Outcome, count},
        inline,
    },
    policy::active::settings,
};

/// Counts the packet under each of the limits in a set, all of which it leaves near, by the policy of an epoch.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn count_near(epoch: u32, limits: u64) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    let bytes = scratch.bytes;
    let count_one = #[inline(always)]
    |place: usize, _| {
        count(settings.tallies[place], Outcome::Near, bytes);
        true
    };
    inline::all(settings, limits & !settings.keyed, count_one);
    let mut left = limits & settings.keyed;
    for _ in 0..KEYED {
        let bit = left & left.wrapping_neg();
        if bit == 0 {
            break;
        }
        left ^= bit;
        if let Some(limit) = LIMITS.get(half(epoch, Limit::row(bit))) {
            count(limit.tally, Outcome::Near, bytes);
        }
    }
    0
}
