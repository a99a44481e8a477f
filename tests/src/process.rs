//! Signals to, and ends of, processes that a test started.

use std::{
    io,
    process::{Child, ExitStatus},
};

/// Sends a signal to a process.
///
/// # Panics
/// If the process was waited for already.
#[track_caller]
pub fn signal(process: &Child, signal: libc::c_int) {
    // SAFETY: the call has no pointers. The process is a child of this one, so its id is not reused until it
    // is waited for.
    let sent = unsafe { libc::kill(process.id() as libc::pid_t, signal) };
    assert_eq!(sent, 0, "process {} is gone", process.id());
}

/// Sends SIGTERM, as an operator or a service manager does, and waits for the end of the process.
///
/// # Errors
/// Fails if the process cannot be waited for.
///
/// # Panics
/// If the process was waited for already.
#[track_caller]
pub fn terminate(process: &mut Child) -> io::Result<ExitStatus> {
    signal(process, libc::SIGTERM);
    process.wait()
}

/// Kills a process and waits for its end. A process that has ended already is no error.
pub fn kill(process: &mut Child) {
    // Errors are ignored: this runs while a failed test unwinds.
    let _ = process.kill();
    let _ = process.wait();
}
