//! The time.

use aya_ebpf::helpers::{bpf_jiffies64, bpf_ktime_get_ns};
use limiter_common::gcra::Time;

use crate::{
    maps::{TEST_CLOCK, TEST_CLOCK_ENABLED, TICK},
    subject::Subject,
};

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

/// The time that this CPU read first since the last tick of the kernel. The number of the tick is read
/// in no time, as the verifier puts a load in the place of the call.
#[inline(always)]
pub(crate) fn ticked(subject: &mut Subject) -> Time {
    let length = TICK.load();
    if length == 0 {
        return Time::exact(now());
    }
    let tick = if TEST_CLOCK_ENABLED.load() != 0 {
        now() / length
    } else {
        // SAFETY: the helper has no precondition.
        unsafe { bpf_jiffies64() }
    };
    if subject.tick != tick {
        subject.tick = tick;
        subject.ticked = now();
        return Time::exact(subject.ticked);
    }
    Time { now: subject.ticked, tick: length }
}

/// Lets some tens of nanoseconds pass, which nothing else that a program may do takes.
#[inline(always)]
pub(crate) fn pause() {
    // SAFETY: the helper has no precondition.
    let _: u64 = unsafe { bpf_ktime_get_ns() };
}
