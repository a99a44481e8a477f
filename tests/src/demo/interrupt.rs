//! Handles Ctrl-C.

use std::{
    io,
    mem::zeroed,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Installs handlers for SIGINT, SIGTERM and SIGHUP; from then on [`is_asked`] tells whether one came.
///
/// # Errors
/// Fails if a handler cannot be installed.
pub(crate) fn catch() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: plain old data, for which zeros are valid.
        let mut action: libc::sigaction = unsafe { zeroed() };
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: a handler that only stores to an atomic.
        if unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } < 0 {
            return Err(io::Error::last_os_error()).context("cannot catch signals");
        }
    }
    Ok(())
}

/// Whether a signal to end has come.
pub(crate) fn is_asked() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}
