//! Stopping the process, as job control of a shell does.

use std::{
    io,
    mem::{MaybeUninit, zeroed},
    ptr::{null, null_mut},
};

/// The processes that are to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// This process.
    Alone,
    /// The whole process group, as the terminal does for Ctrl-Z. If a script stayed running, it
    /// would wait for this process for ever.
    Together,
}

/// Whether SIGTSTP was ignored when the process started, as in a script that is to ignore Ctrl-Z.
/// Call it before the signal is caught.
///
/// # Errors
/// The error of `sigaction`.
pub(super) fn is_ignored() -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no action is set, and `action` is memory for the current one.
    if unsafe { libc::sigaction(libc::SIGTSTP, null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has stored the action.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Stops the process until it is continued. A SIGCONT follows in any case. If no shell could
/// continue the process, the kernel discards the stop, and the process goes on at once.
///
/// # Errors
/// The error of `sigaction`, `raise` or `kill`.
pub(super) fn stop(who: Who) -> io::Result<()> {
    // SAFETY: plain old data, for which zeros are valid: no flags, and an empty set of signals.
    let mut default: libc::sigaction = unsafe { zeroed() };
    default.sa_sigaction = libc::SIG_DFL;
    let mut ours = MaybeUninit::uninit();
    // While the signal is caught, it does not stop the process.
    // SAFETY: `default` is a valid action, and `ours` is memory for the current one.
    if unsafe { libc::sigaction(libc::SIGTSTP, &raw const default, ours.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Both calls stop this thread before they return: it is the first thread, the only one that
    // does not block the signal.
    // SAFETY: the calls take no pointers.
    let sent = unsafe {
        match who {
            Who::Alone => libc::raise(libc::SIGTSTP),
            Who::Together => libc::kill(0, libc::SIGTSTP),
        }
    };
    let result = if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the first call did not fail, so it has stored the action in `ours`.
    if unsafe { libc::sigaction(libc::SIGTSTP, ours.as_ptr(), null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // If nothing was stopped, no SIGCONT was sent. If one was sent and is pending, this one merges
    // with it.
    // SAFETY: the call takes no pointers.
    if result.is_ok() && unsafe { libc::raise(libc::SIGCONT) } != 0 {
        return Err(io::Error::last_os_error());
    }
    result
}
