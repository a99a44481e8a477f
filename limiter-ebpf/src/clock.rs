//! The time.

use aya_ebpf::helpers::{bpf_jiffies64, bpf_ktime_get_ns};
use limiter_common::{gcra::Time, tick::Ticked};

use crate::{
    barrier::publish,
    cell::Plain,
    maps::{TEST_CLOCK, TEST_CLOCK_ENABLED, TICK, TICKED},
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

/// The time of the tick of the kernel.
#[inline(always)]
pub(crate) fn ticked(subject: &mut Subject) -> Time {
    let Some(tick) = tick() else { return Time::exact(now()) };
    if subject.tick != tick {
        publish(subject);
        let time = agree(tick);
        if subject.reread().tick != tick {
            return Time::exact(time);
        }
    }
    Time { now: subject.reread().ticked, tick: tick_length() }
}

/// Finds out what the time of a tick is, and keeps it in the subject if all CPUs agree on it; if they do not, that
/// is the time now.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn agree(tick: u64) -> u64 {
    let (Some(subject), Some(ticked)) = (Subject::get(), TICKED.get_ptr_mut(0)) else {
        return now();
    };
    // SAFETY: a map value that was just looked up; aligned words.
    let word = |at: usize| unsafe { Plain::new((&raw mut (*ticked)[at]).cast()) };
    match (Ticked { number: word(0), time: word(1) }).agree(tick, now) {
        Ok(time) => {
            (subject.tick, subject.ticked) = (tick, time);
            time
        }
        Err(now) => now,
    }
}

/// Lets some tens of nanoseconds pass, which nothing else that a program may do takes.
#[inline(always)]
pub(crate) fn pause() {
    // SAFETY: the helper has no precondition.
    let _: u64 = unsafe { bpf_ktime_get_ns() };
}
