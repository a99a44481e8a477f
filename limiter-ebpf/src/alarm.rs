//! The [alarm](limiter_common::alarm) of this CPU.

use aya_ebpf::{
    bindings::{BPF_F_TIMER_ABS, BPF_F_TIMER_CPU_PIN, bpf_timer},
    helpers::{bpf_get_smp_processor_id, bpf_timer_init, bpf_timer_set_callback, bpf_timer_start},
};
use limiter_common::{alarm::Alarm, gcra::Time, refused::Refused};

use crate::{
    barrier::publish,
    clock,
    maps::{ALARMS, ALARMS_ENABLED},
};

/// The clock that timers go by, as the kernel numbers it: the monotonic one.
const MONOTONIC: u64 = 1;

/// Whether a source is refused still, where it takes more than the time of a tick to tell: by the alarm if that is set,
/// otherwise by the clock.
#[inline(always)]
pub(crate) fn holds(refused: &Refused) -> bool {
    let alarm = if are_enabled() && refused.may_trust() { of_this_cpu() } else { None };
    let (Some(alarm), Some(tick)) = (alarm, clock::tick()) else {
        return refused.holds(Time::exact(clock::now()));
    };
    // SAFETY: a map value of this CPU, on which no other packet is decided before this one. When it goes off, which may
    // be on another, two words of it are written, by one store each, so that what is learnt here may be lost; the
    // controller stops it by zeros.
    let alarm = unsafe { &mut *alarm };
    if refused.trusts() && alarm.tells(refused.until, tick) {
        return true;
    }
    let now = clock::now();
    let wait = alarm.set(now, refused.until, tick);
    if wait != 0 {
        publish(alarm);
        set_alarm(wait);
    }
    refused.holds(Time::exact(now))
}

/// Whether alarms are set. The constant is frozen at load time, so the verifier removes the branch not taken.
#[inline(always)]
fn are_enabled() -> bool {
    ALARMS_ENABLED.load() != 0
}

#[inline(always)]
fn of_this_cpu() -> Option<*mut Alarm> {
    // SAFETY: the helper has no precondition.
    ALARMS.get_ptr_mut(unsafe { bpf_get_smp_processor_id() } as u32)
}

/// Has the alarm of this CPU go off after so many nanoseconds; it tells already what it will until then.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn set_alarm(wait: u64) -> u32 {
    // Older kernels verify it whether or not it is called.
    if !are_enabled() {
        return 0;
    }
    let Some(alarm) = of_this_cpu() else { return 0 };
    // SAFETY: a map value that was just looked up, which begins with the timer, and the map that it is of. The callback
    // is what the kernel calls it as.
    let is_set = unsafe {
        let at = (*alarm).at;
        let timer = (&raw mut (*alarm).timer).cast::<bpf_timer>();
        // It was made before, mostly.
        let _: i64 = bpf_timer_init(timer, (&raw const ALARMS).cast_mut().cast(), MONOTONIC);
        // From Linux 6.7 on it goes off at that time, whenever it was set, and here, also where the CPU is idle but for
        // the packets at hand.
        bpf_timer_set_callback(timer, go_off as *mut _) == 0
            && (bpf_timer_start(timer, at, (BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN).into()) == 0
                || bpf_timer_start(timer, wait, 0) == 0)
    };
    if !is_set {
        silence(alarm);
        // SAFETY: as above. It is tried again after as many refusals.
        unsafe { (&raw mut (*alarm).refusals).write_volatile(0) };
    }
    0
}

/// Goes off: called by the kernel, with the map, the number of the CPU and its alarm.
#[inline(never)]
extern "C" fn go_off(_map: *mut u8, _cpu: *mut u32, alarm: *mut Alarm) -> u64 {
    // SAFETY: the map value that the kernel gave; aligned words.
    unsafe {
        let late = (&raw const (*alarm).late).read_volatile();
        let at = (&raw const (*alarm).at).read_volatile();
        (&raw mut (*alarm).late).write_volatile(Alarm::lateness(late, at, clock::now()));
    }
    silence(alarm);
    0
}

/// Has an alarm tell nothing any more.
#[inline(always)]
fn silence(alarm: *mut Alarm) {
    // SAFETY: a map value, that was looked up or that the kernel gave; an aligned word.
    unsafe { (&raw mut (*alarm).before).write_volatile(0) };
}
