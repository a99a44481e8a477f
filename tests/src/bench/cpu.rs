//! Pins the measurement to one CPU.

use std::{io, mem::zeroed, time::Duration};

use anyhow::{Context as _, Result};

/// Pins this thread, and the threads it starts later, to the last CPU it may use, because the first ones get
/// more interrupts. Returns the number of the CPU.
pub(crate) fn pin() -> Result<usize> {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: plain old data, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: a set of that size.
    check(unsafe { libc::sched_getaffinity(0, size, &raw mut set) })
        .context("cannot see which CPUs may be used")?;
    let cpu = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: a number within the set.
        .rfind(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .context("no CPU may be used")?;
    // SAFETY: plain old data, for which zeros are valid.
    let mut one: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: a number within the set.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    // SAFETY: a set of that size.
    check(unsafe { libc::sched_setaffinity(0, size, &raw const one) })
        .with_context(|| format!("cannot stay on CPU {cpu}"))?;
    Ok(cpu)
}

/// The CPU time of this thread, in user mode and in the kernel. Unlike wall time, it does not include other
/// processes.
pub(crate) fn thread_time() -> Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: memory for the result.
    check(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) })
        .context("cannot read the clock of a thread")?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
