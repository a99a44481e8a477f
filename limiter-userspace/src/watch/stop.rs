//! Stopping, as a shell has it of what it runs.

use std::{
    io,
    mem::{MaybeUninit, zeroed},
    ptr::{null, null_mut},
};

/// Who is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// This process.
    Alone,
    /// All that the shell started with it, as a terminal does that takes Ctrl-Z itself: a script that
    /// waits for this process would wait for ever otherwise.
    Together,
}

/// Whether it was started as one that Ctrl-Z does not stop, as by a script that would not notice. To be asked
/// before the signal is caught.
///
/// # Errors
/// What the system says.
pub(super) fn is_ignored() -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no action is set, and there is memory for the one that is.
    if unsafe { libc::sigaction(libc::SIGTSTP, null(), action.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call stored it.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Stops until the process is continued, of which there is a signal in any case: where nobody could
/// continue it, it goes on at once.
///
/// # Errors
/// What the system says.
pub(super) fn stop(who: Who) -> io::Result<()> {
    // SAFETY: plain old data, for which zeros are valid: no flags, and an empty set of signals.
    let mut default: libc::sigaction = unsafe { zeroed() };
    default.sa_sigaction = libc::SIG_DFL;
    let mut ours = MaybeUninit::uninit();
    // The signal is caught here, and stops nothing as long as it is.
    // SAFETY: the new action is a valid one, and there is memory for the one before.
    if unsafe { libc::sigaction(libc::SIGTSTP, &raw const default, ours.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Either has this thread stop before it returns: it is the first one, which takes what is sent to the
    // process.
    // SAFETY: calls without pointers.
    let sent = unsafe {
        match who {
            Who::Alone => libc::raise(libc::SIGTSTP),
            Who::Together => libc::kill(0, libc::SIGTSTP),
        }
    };
    let result = if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the action before was stored by the first call, which did not fail.
    if unsafe { libc::sigaction(libc::SIGTSTP, ours.as_ptr(), null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Not sent by anybody where nothing was stopped; otherwise it is one with the one that was.
    // SAFETY: a call without pointers.
    if result.is_ok() && unsafe { libc::raise(libc::SIGCONT) } != 0 {
        return Err(io::Error::last_os_error());
    }
    result
}
