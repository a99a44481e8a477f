//! Ending processes that a test started.

use std::{
    io,
    process::{Child, ExitStatus},
};

/// Sends a process a signal.
///
/// # Panics
/// If it was waited for already.
#[track_caller]
pub fn signal(process: &Child, signal: libc::c_int) {
    // SAFETY: the call has no pointers. The process is a child of this one, and has its number until it is
    // waited for.
    let sent = unsafe { libc::kill(process.id() as libc::pid_t, signal) };
    assert_eq!(sent, 0, "process {} is gone", process.id());
}

/// Asks a process to end, as an operator or a service manager does, and waits until it did.
///
/// # Errors
/// That it cannot be waited for.
///
/// # Panics
/// If it was waited for already.
#[track_caller]
pub fn terminate(process: &mut Child) -> io::Result<ExitStatus> {
    signal(process, libc::SIGTERM);
    process.wait()
}

/// Ends a process, whatever it is at, and waits until it is gone. One that ended by itself is fine too.
pub fn kill(process: &mut Child) {
    // There is nobody to tell: this is done while a test fails, too.
    let _ = process.kill();
    let _ = process.wait();
}
