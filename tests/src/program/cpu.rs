//! CPUs of this process, and the clock that they share.

use std::{io, mem::zeroed};

use anyhow::{Result, bail, ensure};

/// Returns two CPUs that this process may run on.
///
/// # Errors
/// Fails if there is only one, or if the affinity cannot be read.
pub fn two_cpus() -> Result<[usize; 2]> {
    // SAFETY: a set of CPUs is plain bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: memory for the result, of the size that is passed.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    ensure!(result == 0, "cannot tell the CPUs: {}", io::Error::last_os_error());
    let mut cpus = (0..libc::CPU_SETSIZE as usize).filter(|cpu| {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_ISSET(*cpu, &set) }
    });
    match (cpus.next(), cpus.next()) {
        (Some(one), Some(other)) => Ok([one, other]),
        _ => bail!("there is one CPU, and this takes two"),
    }
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// Fails if this process may not run on the CPU, or if there is no such CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    // SAFETY: a set of CPUs is plain bits, for which zeros are valid; `CPU_SET` checks its bounds.
    let result = unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The clock that the programs read (`CLOCK_MONOTONIC`), in nanoseconds.
#[must_use]
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: memory for the result; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
