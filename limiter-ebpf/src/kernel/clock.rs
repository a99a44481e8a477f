//! The time.

use aya_ebpf::helpers::{bpf_jiffies64, bpf_ktime_get_ns};

use crate::kernel::maps::{TEST_CLOCK, TEST_CLOCK_ENABLED, TICK};

/// Nanoseconds of the monotonic clock, or of the test's clock in an object loaded for tests.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // The constant is frozen at load time, so the verifier removes the branch not taken.
    if TEST_CLOCK_ENABLED.load() != 0
        && let Some(clock) = TEST_CLOCK.get_ptr(0)
    {
        // SAFETY: an aligned word of an array map; the test that writes it writes whole words.
        return unsafe { clock.read_volatile() };
    }
    // SAFETY: the helper has no precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// The number of the tick of the kernel, which is read in no time, as the verifier puts a load in the place of
/// the call; `None` where packets are not to go by ticks.
#[inline(always)]
pub(crate) fn tick() -> Option<u64> {
    let length = tick_length();
    if length == 0 {
        None
    } else if TEST_CLOCK_ENABLED.load() != 0 {
        Some(now() / length)
    } else {
        // SAFETY: the helper has no precondition.
        Some(unsafe { bpf_jiffies64() })
    }
}

/// Nanoseconds from one tick of the kernel to the next; 0 where packets are not to go by ticks.
#[inline(always)]
pub(crate) fn tick_length() -> u64 {
    TICK.load()
}

/// The number of the tick, or of some interval of time where packets do not go by ticks: the low bits.
#[inline(always)]
pub(crate) fn number() -> u32 {
    match tick() {
        Some(tick) => tick as u32,
        None => (now() >> 20) as u32,
    }
}
